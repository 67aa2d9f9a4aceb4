# SPDX-License-Identifier: GPL-2.0
"""make suites: what is read out of the logs of upstream's tests, and how two kernels compare."""

import os
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmlab import bases, suites                   # noqa: E402
from mmlab.suites import Item                     # noqa: E402
from mmlab.ui import LabError                     # noqa: E402

MM = '''TAP version 13
# ---------------------
# running ./cow
# ---------------------
# TAP version 13
# 1..3
# # [INFO] detected THP size: 2048 KiB
# ok 1 Basic COW after fork() ... with base page
# not ok 2 Basic COW after fork() ... at 0x7f12ab340000
# ok 3 # SKIP liburing is not there
# [FAIL]
not ok 1 cow # exit=1
# ---------------------
# running ./khugepaged -s 2
# ---------------------
# ok 1 collapse_full
# Terminated
# [FAIL]
not ok 2 khugepaged -s 2 # exit=124
# ---------------------
# running ./mrelease_test
# ---------------------
# 1..0 # SKIP process_mrelease() is not there
# [SKIP]
ok 3 mrelease_test # SKIP
# 1..3'''

VM = '''-----------------
running ./ksm_tests -M -p 10
-----------------
OK
[PASS]
-----------------
running ./khugepaged
-----------------
Run test: collapse_full... [FAIL]
[PASS] of something
[FAIL]
-----------------
running ./test_hmm.sh smoke
-----------------
./test_hmm.sh: You must have the module: SKIP no module
[SKIP]'''


def log(*lines, end=True):
    """A boot with these lines, which comes to its end or not."""
    head = ['MMLAB: boot 7.3 cpus=2', 'MMLAB: begin test=suites.sh lru=classic']
    return '\r\n'.join(head + [*lines] + ['MMLAB: exit 0', 'MMLAB: end', ''] * end)


class Rows(unittest.TestCase):
    """Which rows an item has."""

    def test_mm_has_both_levels(self):
        rows = suites.read_item('mm', 'cow', MM.splitlines(), 1)
        self.assertEqual(rows, {
            'cow: Basic COW after fork() ... with base page': ('pass', ''),
            'cow: Basic COW after fork() ... at *': ('fail', ''),
            'cow: liburing is not there': ('skip', 'liburing is not there'),
            'cow': ('fail', 'exit=1'),
            'khugepaged -s 2: collapse_full': ('pass', ''),
            'khugepaged -s 2': ('fail', 'timed out'),
            'mrelease_test': ('skip', 'process_mrelease() is not there')})

    def test_vm_says_it_in_brackets(self):
        rows = suites.read_item('vm', 'run_vmtests.sh', VM.splitlines(), 0)
        self.assertEqual(rows, {'ksm_tests -M -p 10': ('pass', ''), 'khugepaged': ('fail', ''),
                                'test_hmm.sh smoke': ('skip', 'no module')})

    def test_cgroup_counts_the_exit_code(self):
        lines = ['TAP version 13', '1..2', 'ok 1 test_memcg_low', 'not ok 2 test_memcg_sock']
        self.assertEqual(suites.read_item('cgroup', 'test_memcontrol', lines, 1), {
            'test_memcontrol: test_memcg_low': ('pass', ''),
            'test_memcontrol: test_memcg_sock': ('fail', ''),
            'test_memcontrol': ('fail', 'exit 1')})
        self.assertEqual(suites.read_item('cgroup', 'x', [], 124)['x'], ('fail', 'timed out'))
        self.assertEqual(suites.read_item('cgroup', 'x', ['1..0 # SKIP no zswap'], 4)['x'],
                         ('skip', 'no zswap'))

    def test_the_same_name_twice(self):
        rows = suites.read_item('cgroup', 'x', ['ok 1 a', 'not ok 2 a'], 1)
        self.assertEqual((rows['x: a'][0], rows['x: a (2)'][0]), ('pass', 'fail'))


class Logs(unittest.TestCase):
    """What a boot comes to."""

    def test_items_and_their_time(self):
        items, splats, ended = suites.read_log(log(
            'MMLAB: suite begin cgroup test_kmem', 'ok 1 a', '[   12.345678] noise', '',
            'MMLAB: suite end cgroup test_kmem 0 17', 'MMLAB: suite late cgroup test_core'))
        self.assertEqual(items['test_kmem'].rows, {'test_kmem: a': ('pass', ''),
                                                   'test_kmem': ('pass', 'exit 0')})
        self.assertEqual((items['test_kmem'].seconds, items['test_core'].late), (17, True))
        self.assertEqual((splats, ended), ({}, True))

    def test_a_guest_that_dies_leaves_what_it_had(self):
        items, splats, ended = suites.read_log(log(
            'MMLAB: suite begin cgroup test_kmem', 'ok 1 a',
            '[   12.345678] kernel BUG at mm/vmscan.c:1234!', end=False))
        self.assertEqual(items['test_kmem'].rows, {'test_kmem: a': ('pass', '')})
        self.assertEqual((list(splats.values()), ended), ([1], False))

    def test_splats_are_the_same_wherever_they_are(self):
        line = '[    1.000000] WARNING: mm/a.c:%d at reclaim+0x%d/0x78, CPU#%d: cow/%d'
        one = suites.read_log(log(line % (12, 12, 1, 71)))
        two = suites.read_log(log(line % (99, 56, 0, 82)))
        self.assertEqual(list(one[1]), list(two[1]))
        self.assertIn('reclaim', list(one[1])[0])

    def test_rates(self):
        line = 'stress-ng: metrc: [71] mmap   82   2.02   0.11   1.92   40.62   40.44'
        items, *_ = suites.read_log(log('MMLAB: suite begin stress-ng mmap', line,
                                        'MMLAB: suite end stress-ng mmap 0 3'))
        self.assertEqual(suites.metrics(items), {'mmap': 40.62})


class Verdicts(unittest.TestCase):
    """Base against patched."""

    def test_one_run(self):
        self.assertEqual(suites.judge(['pass'], ['pass']), 'same')
        self.assertEqual(suites.judge(['fail'], ['fail']), 'same')
        self.assertEqual(suites.judge(['pass'], ['fail']), 'worse')
        self.assertEqual(suites.judge(['pass'], ['missing']), 'worse')
        self.assertEqual(suites.judge(['fail'], ['pass']), 'better')
        self.assertEqual(suites.judge(['pass'], ['skip']), 'skips')
        self.assertEqual(suites.judge(['pass'], ['late']), 'not run')
        self.assertEqual(suites.judge(['fail'], ['missing']), 'fails otherwise')

    def test_several(self):
        self.assertEqual(suites.judge(['pass', 'pass'], ['fail', 'pass']), 'flaky')
        self.assertEqual(suites.judge(['pass', 'fail'], ['fail', 'fail']), 'flaky')
        self.assertEqual(suites.judge(['pass', 'pass'], ['fail', 'fail']), 'worse')
        often, rarely = ['pass'] * 8 + ['fail'], ['fail'] * 7 + ['pass'] * 2
        self.assertEqual(suites.judge(often, rarely), 'worse')
        self.assertEqual(suites.judge(rarely, often), 'better')

    def test_chance(self):
        self.assertAlmostEqual(suites.by_chance([True] * 3, [False] * 3), 1 / 20)
        self.assertAlmostEqual(suites.by_chance([True] * 3, [True] * 3), 1)

    def test_both_get_the_same_number_of_runs(self):
        one = {'thp': Item({'khugepaged': ('pass', '')})}
        bad = {'thp': Item({'khugepaged': ('fail', 'exit=1')})}
        table = suites.compare({('mm', 'base'): [one], ('mm', 'patched'): [one, bad]})
        self.assertEqual(table[('mm', 'thp', 'khugepaged')][0], 'same')

    def test_a_row_that_is_gone_is_worse(self):
        table = suites.compare({('mm', 'base'): [{'thp': Item({'x': ('pass', '')})}],
                                ('mm', 'patched'): [{'thp': Item({})}]})
        self.assertEqual(table[('mm', 'thp', 'x')][:3], ('worse', ['pass'], ['missing']))

    def test_rates_that_overlap_or_nearly_do_say_nothing(self):
        self.assertEqual(suites.different({'a': ([10, 11, 12], [11, 12, 13])}), {})
        self.assertEqual(suites.different({'a': ([10, 11, 12], [12.5, 13, 14])}), {})
        self.assertEqual(suites.different({'a': ([10], [20])}), {})
        self.assertAlmostEqual(suites.different({'a': ([10, 11, 10.5], [21, 22, 21])})['a'], 100)

    def test_worse_comes_first_in_the_report(self):
        table = {('mm', 'thp', 'x'): ('worse', ['pass'], ['fail'], 'exit=1'),
                 ('mm', 'thp', 'y'): ('same', ['skip'], ['skip'], 'no module')}
        text = '\n'.join(suites.tables(bases.load_bases()['mainline'], table, {'WARN: x': [0, 1]},
                                       {'vm': ([1, 1, 1], [2, 2, 2])}))
        self.assertLess(text.index('fail on patched: 1'), text.index('Fail on both: 0'))
        for words in ('| mm thp: x | pass | fail | exit=1 |', 'no module',
                      '0 on base, 1 on patched',
                      '| vm | 3 | 1.00..1.00 | 2.00..2.00 | +100.0 % | beyond the spread |'):
            self.assertIn(words, text)


class Options(unittest.TestCase):
    """Bad input is one clear line."""

    def refused(self, text, **env):
        with mock.patch.dict(os.environ, dict({'BASE': '', 'SUITES': '', 'RUNS': '', 'MINUTES': '',
                                               'LRU': ''}, **env)):
            with self.assertRaisesRegex(LabError, text):
                suites.options()

    def test_bad_input(self):
        self.refused('SUITES=ltp is not known: one of mm, cgroup, kunit, stress-ng', SUITES='ltp')
        self.refused('RUNS= and MINUTES= take numbers', RUNS='two')
        self.refused('start at 1', MINUTES='-1')
        self.refused('LRU=both is not known', LRU='both')
        self.refused('BASE=7 is not declared', BASE='7')

    def test_each_base_has_its_configuration(self):
        for base in bases.load_bases().values():
            base.flavour = suites.FLAVOUR
            self.assertEqual([path.name for path in base.config[2:]],
                             ['suites.config', f'suites-{base.name}.config'])
            self.assertTrue(all(path.is_file() for path in base.config))

    def test_items_survive_the_command_line(self):
        for suite in suites.SUITES.values():
            for groups in suite.items.values():
                self.assertRegex('|'.join(groups), r'^[\w. |-]+$')
                names = ' '.join(groups).split()
                self.assertEqual(len(names), len(set(names)))


class Boots(unittest.TestCase):
    """Which boots are made: suites.Boots with a stand-in for the guest."""

    def boots(self, results, minutes=15, repeats=1):
        """(boots made, verdicts, Boots); results: {(kernel, item, nr): status}, else a pass."""
        made = []

        class Stand(suites.Boots):
            def one(self, kern, name, items, nr, seconds):
                made.append((kern.name, ' '.join(items), nr))
                got = {item: Item({'x': (results.get((kern.name, item, nr), 'pass'), '')})
                       for item in items}
                self.runs.setdefault((name, kern.name), []).append(got)
                return 60
        stand = Stand(bases.load_bases()['mainline'], minutes, 'classic')
        stand.kerns = [mock.Mock(), mock.Mock()]
        stand.kerns[0].name, stand.kerns[1].name = 'base', 'patched'
        suite = suites.Suite(1024, 0.2, 60, {'mainline': ['a b', 'c']})
        with mock.patch.dict(suites.SUITES, {'cgroup': suite}), mock.patch('builtins.print'):
            stand.suite('cgroup', repeats)
        return made, {key[1]: value[0] for key, value in suites.compare(stand.runs).items()}, stand

    def test_both_kernels_in_turns(self):
        made, verdicts, _ = self.boots({})
        self.assertEqual(made, [('base', 'a b', 1), ('patched', 'a b', 1), ('base', 'c', 1),
                                ('patched', 'c', 1)])
        self.assertEqual(set(verdicts.values()), {'same'})

    def test_what_differs_runs_again_alone(self):
        made, verdicts, _ = self.boots({('patched', 'b', 1): 'fail'}, repeats=2)
        self.assertEqual(made[4:], [('base', 'b', 2), ('patched', 'b', 2), ('base', 'b', 3),
                                    ('patched', 'b', 3)])
        self.assertEqual(verdicts, {'a': 'same', 'b': 'flaky', 'c': 'same'})

    def test_what_fails_each_time_is_worse(self):
        _, verdicts, _ = self.boots({('patched', 'c', nr): 'fail' for nr in (1, 2)})
        self.assertEqual(verdicts['c'], 'worse')

    def test_no_time_left_is_said(self):
        made, _, stand = self.boots({}, minutes=5)
        self.assertEqual([name for _, name, _ in made], ['a b', 'a b'])
        self.assertEqual(stand.late, ['cgroup c'])


class WholeRun(unittest.TestCase):
    """make suites with a stand-in for QEMU: exit code, report, going on after an interruption."""

    def run_it(self, broken, interrupt=0):
        """broken: the kernels on which test_kmem fails. Returns (worse, report, boots made)."""
        made = []

        def fake_boot(cmd, log_path, timeout):
            made.append(cmd)
            if len(made) == interrupt:
                raise KeyboardInterrupt
            kern = 'patched' if 'patched' in cmd[cmd.index('-kernel') + 1] else 'base'
            lines = []
            for item in cmd[-1].split(',')[-1].split('+'):
                bad = item == 'test_kmem' and kern in broken
                lines += [f'MMLAB: suite begin cgroup {item}', f'{"not " * bad}ok 1 row',
                          f'MMLAB: suite end cgroup {item} {int(bad)} 1']
            log_path.parent.mkdir(parents=True, exist_ok=True)
            log_path.write_text(log(*lines))

        kerns = [mock.Mock(key=name, image=Path(f'/{name}')) for name in ('base', 'patched')]
        kerns[0].name, kerns[1].name = 'base', 'patched'
        images = {'cgroup': Path('/image')}
        with mock.patch.object(suites.cache, 'CACHE', self.tmp / 'cache'), \
                mock.patch.object(suites, 'prepare', lambda *_: (None, kerns, images)), \
                mock.patch.object(suites.boot, 'boot', fake_boot), \
                mock.patch.object(suites.boot, 'tsc_khz', lambda: 1), \
                mock.patch.object(suites.boot, 'qemu_version', lambda: 'QEMU 0'), \
                mock.patch('builtins.print'):
            worse = suites.one_base(bases.load_bases()['mainline'], ['cgroup'], 1, 15, 'classic',
                                    self.tmp)
        found = sorted(self.tmp.glob('suites-*/report.md'))
        return worse, found[-1].read_text(), made

    def setUp(self):
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.tmp = Path(tmp.name)

    def test_nothing_differs(self):
        worse, text, made = self.run_it(())
        self.assertEqual((worse, len(made)), (0, 4))
        self.assertIn('fail on patched: 0', text)

    def test_a_regression(self):
        worse, text, made = self.run_it(('patched',))
        self.assertEqual((worse, len(made)), (2, 6))        # the row, and the program
        self.assertIn('| cgroup test_kmem: test_kmem: row | pass | fail |', text)
        self.assertIn('make suites BASE=mainline SUITES=cgroup RUNS=1 MINUTES=15 LRU=classic', text)

    def test_fails_on_both(self):
        worse, text, made = self.run_it(('base', 'patched'))
        self.assertEqual((worse, len(made)), (0, 4))
        self.assertIn('Fail on both: 2', text)

    def test_an_interrupted_run_goes_on(self):
        with self.assertRaises(KeyboardInterrupt):
            self.run_it((), interrupt=3)
        self.assertEqual(len(self.run_it(())[2]), 2)


if __name__ == '__main__':
    unittest.main()
