# SPDX-License-Identifier: GPL-2.0
"""The table of make lru-file."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmlab import lrufile    # noqa: E402


class Rows(unittest.TestCase):
    """lrufile.rows()"""

    def run_of(self, **values):
        return dict(dict.fromkeys(lrufile.NAMES, 0), **values)

    def test_ranges_and_the_difference_of_means(self):
        lines = lrufile.rows('readonce', 'classic',
                             [self.run_of(allocstall=10), self.run_of(allocstall=30)],
                             [self.run_of(allocstall=5), self.run_of(allocstall=5)])
        self.assertEqual([line for line in lines if line[2] == 'Allocation stalls'],
                         [['lru-file-readonce', 'classic', 'Allocation stalls', '10..30', '5',
                           '-75.0 %']])

    def test_nothing_is_divided_by_zero(self):
        lines = lrufile.rows('readonce', 'classic', [self.run_of()], [self.run_of(refault=1)])
        self.assertEqual({line[5] for line in lines}, {''})

    def test_the_script_prints_each_of_them(self):
        script = (lrufile.ROOT / 'lab/lru-file.sh').read_text()
        for name in lrufile.NAMES:
            self.assertIn(name, script)
