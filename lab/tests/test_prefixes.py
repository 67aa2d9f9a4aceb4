# SPDX-License-Identifier: GPL-2.0
"""Which tests a prefix of the series boots, and what they have to come to."""

import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmlab import prefixes    # noqa: E402


def patch(path, topic, is_fix=True):
    return SimpleNamespace(path=path, topic=topic, is_fix=is_fix)


SERIES = SimpleNamespace(patches=[patch('1', 'a'), patch('2', 'a'), patch('3', 'a', False),
                                  patch('11', 'b'), patch('12', 'b', False)])
TESTS = [SimpleNamespace(name='test_a', topic='a'), SimpleNamespace(name='test_b', topic='b')]


class Plan(unittest.TestCase):
    """prefixes.plan()"""

    def test_a_test_counts_from_its_patch_on(self):
        got = [(p.paths, p.passing, p.ending) for p in prefixes.plan(SERIES, TESTS)]
        self.assertEqual(got, [(['1'], [], ['test_a']), (['1', '2', '3'], ['test_a'], []),
                               (['1', '2', '3', '11', '12'], ['test_a', 'test_b'], [])])

    def test_only_tests_that_were_asked_for(self):
        got = [(p.passing, p.ending) for p in prefixes.plan(SERIES, TESTS[1:])]
        self.assertEqual(got, [([], []), ([], []), (['test_b'], [])])


class Judge(unittest.TestCase):
    """prefixes.judge()"""

    def judge(self, status, *rows):
        prefix = prefixes.Prefix(None, [], ['whole'], ['begun'])
        result = SimpleNamespace(status=status, reason='', rows=[
            SimpleNamespace(name=f'row {nr}', status=row) for nr, row in enumerate(rows)])
        return [prefixes.judge(result, name, prefix)[0] for name in ('whole', 'begun')]

    def test_rows_may_fail_while_the_topic_is_not_complete(self):
        self.assertEqual(self.judge('PASS', 'ok', 'ok'), [True, True])
        self.assertEqual(self.judge('FAIL', 'ok', 'not ok'), [False, True])

    def test_a_skipped_row_was_not_passed(self):
        self.assertEqual(self.judge('PASS', 'ok', 'skip'), [False, True])

    def test_a_guest_that_does_not_come_to_its_end(self):
        self.assertEqual(self.judge('OOPS', 'ok'), [False, False])


if __name__ == '__main__':
    unittest.main()
