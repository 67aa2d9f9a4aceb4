# SPDX-License-Identifier: GPL-2.0
"""make torture and make bisect: options, and what is read out of a log."""

import os
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmlab import bases, bisect, torture          # noqa: E402
from mmlab.ui import LabError                     # noqa: E402

LOG = '''[    1.0] BUG: KCSAN: data-race in balance_dirty_pages / wb_update_bandwidth
[    2.0] BUG: KCSAN: data-race in tick_nohz_stop_tick / tick_sched_do_timer
[    3.0] BUG: KCSAN: data-race in balance_dirty_pages / wb_update_bandwidth
[    4.0] BUG: KCSAN: data-race in shrink_one
'''


class Races(unittest.TestCase):
    """Which data races count."""

    def test_those_in_our_functions_once_each(self):
        self.assertEqual(torture.races(LOG, {'balance_dirty_pages', 'shrink_one'}),
                         ['balance_dirty_pages / wb_update_bandwidth', 'shrink_one / ?'])

    def test_those_of_others_do_not(self):
        self.assertEqual(torture.races(LOG, {'swapin_nr_pages'}), [])

    def test_functions_are_those_of_touched_files(self):
        with tempfile.TemporaryDirectory() as tmp:
            (Path(tmp) / 'mm').mkdir()
            (Path(tmp) / 'mm/a.c').write_text('static int one(int a)\n{\n\treturn two(a);\n}\n'
                                              'void three(int a,\n\t   int b)\n{\n}\n'
                                              'int declared(void);\n')
            patch = Path(tmp) / 'p.patch'
            patch.write_text('diff --git a/mm/a.c b/mm/a.c\n')
            names = torture.functions(SimpleNamespace(path=Path(tmp)), [patch])
        self.assertEqual(names & {'one', 'two', 'three', 'declared'}, {'one', 'three'})


class Options(unittest.TestCase):
    """Bad input is one clear line."""

    def refused(self, text, **env):
        with mock.patch.dict(os.environ, dict({'BASE': '', 'LRU': '', 'TESTS': ''}, **env)):
            with self.assertRaisesRegex(LabError, text):
                torture.options()

    def test_defaults(self):
        with mock.patch.dict(os.environ, {'BASE': '', 'FLAVOUR': '', 'MINUTES': '', 'TESTS': '',
                                          'LRU': ''}):
            picked, flavours, minutes, tests, kinds = torture.options()
        self.assertEqual(([b.name for b in picked], flavours, minutes, kinds),
                         (['mainline'], ['kasan'], 20, ['classic', 'mglru']))
        self.assertEqual({t.name for t in tests}, set(bases.load_tests()))

    def test_flavour(self):
        self.refused('FLAVOUR=kmsan is not known', FLAVOUR='kmsan')

    def test_minutes(self):
        self.refused('MINUTES= takes a number', MINUTES='ten')
        self.refused('MINUTES=1 is too short', MINUTES='1')

    def test_each_flavour_has_a_configuration(self):
        for flavour in torture.FLAVOURS:
            base = bases.load_bases()['mainline']
            base.flavour = flavour
            self.assertTrue(base.config[-1].is_file())

    def test_no_such_mutant(self):
        with self.assertRaisesRegex(LabError, 'MUTANT=x is not a mutant of mainline'):
            bisect.pick(bases.load_bases()['mainline'], 'x')

    def test_each_mutant_can_be_looked_for(self):
        for base in bases.load_bases().values():
            for mutant in bases.load_mutants(base):
                _, test, lru = bisect.pick(base, mutant.name)
                self.assertTrue(mutant.expect[(test.name, lru)])


if __name__ == '__main__':
    unittest.main()
