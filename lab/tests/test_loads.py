# SPDX-License-Identifier: GPL-2.0
"""The loads of make loads, and their table."""

import re
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmlab import evidence, loads    # noqa: E402
from mmlab.ui import LabError        # noqa: E402

SCRIPT = (loads.ROOT / 'lab/loads.sh').read_text()


class Pick(unittest.TestCase):
    """LOADS="""

    def test_all_by_default(self):
        self.assertEqual(loads.pick(''), list(loads.LOADS))

    def test_each_once_in_the_order_given(self):
        self.assertEqual(loads.pick('mix fio,mix'), ['mix', 'fio'])

    def test_unknown(self):
        with self.assertRaisesRegex(LabError, 'LOADS=fia is not known'):
            loads.pick('fio,fia')


class Script(unittest.TestCase):
    """lab/loads.sh against lab/mmlab/loads.py"""

    def test_it_knows_each_load(self):
        for name in loads.LOADS:
            self.assertRegex(SCRIPT, rf'(?m)^(.*\| )?{name}( \|.*)?\)$')

    def test_a_flavour_has_its_configuration(self):
        for load in loads.LOADS.values():
            if load.flavour:
                self.assertTrue((loads.ROOT / f'lab/config/{load.flavour}.config').exists())

    def test_what_it_counts_has_a_name(self):
        names = re.search(r'(?m)^names="([^"]*)"', SCRIPT).group(1).split()
        self.assertEqual([name for name in names if name not in evidence.METRICS], [])


class Lines(unittest.TestCase):
    """loads.lines()"""

    def runs(self, name, key, base, patched):
        return [{'kernel': kernel, 'test': name, 'lru': 'classic', 'n': n, 'rows': [
                    {'name': name, 'status': 'ok', 'counters': {key: value, 'pswpin': 0},
                     'parts': {}, 'seconds': None}]}
                for kernel, values in (('base', base), ('patched', patched))
                for n, value in enumerate(values, 1)]

    def test_ranges_and_the_difference_of_means(self):
        got = loads.lines(self.runs('readonce', 'allocstall', [10, 30], [5, 5]))
        self.assertEqual(got, [['readonce', 'classic', 'Allocation stalls', '20 (10 to 30)', '5',
                                '-15 (-75.0 %)', 'too noisy']])

    def test_apart_with_enough_runs(self):
        got = loads.lines(self.runs('fio', 'order_kbs', [10, 11, 12, 10], [20, 21, 20, 22]))
        self.assertEqual(got[0][-1], 'better')

    def test_wall_time_is_not_judged(self):
        got = loads.lines(self.runs('fio', 'ms', [10, 11, 12, 10], [20, 21, 20, 22]))
        self.assertEqual(got[0][-1], 'not judged')


if __name__ == '__main__':
    unittest.main()
