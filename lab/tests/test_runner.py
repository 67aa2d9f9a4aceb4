# SPDX-License-Identifier: GPL-2.0
"""Which kernels are booted, and how patches are printed."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmlab import bases, boot, build, refresh, runner    # noqa: E402
from mmlab.ui import LabError, git                # noqa: E402


def kernel(name, **expect):
    """A kernel with rows that have to fail, by LRU kind."""
    return SimpleNamespace(name=name, tests=['a_test'],
                           expect={('a_test', lru): rows for lru, rows in expect.items()})


class Mutants(unittest.TestCase):
    """MUTANTS= of make run."""

    def test_a_number_of_repetitions(self):
        for env, runs, command in (
                ({}, 0, 'make run BASE=6.1'),
                ({'RUNS': '3', 'MUTANTS': '1'}, 1, 'make run BASE=6.1 RUNS=3 MUTANTS=1'),
                ({'RUNS': '3', 'MUTANTS': '3'}, 3, 'make run BASE=6.1 RUNS=3'),
                ({'RUNS': '3', 'MUTANTS': '0'}, 0, 'make run BASE=6.1 RUNS=3 MUTANTS=0')):
            with mock.patch.dict(os.environ, env, clear=True):
                opts = runner.Options.from_env()
            self.assertEqual(opts.mutant_runs, runs)
            self.assertEqual(opts.command(SimpleNamespace(name='6.1')), command)
        self.assertFalse(opts.mutants)


class Wanted(unittest.TestCase):
    """runner.wanted()"""

    def booted(self, kern, mutant_lru, quick=False):
        test = SimpleNamespace(name='a_test', mutant_lru=mutant_lru)
        return [lru for lru in ('classic', 'mglru') if runner.wanted(kern, test, lru, quick)]

    def test_base_and_patched_have_both(self):
        for name in ('base', 'patched'):
            self.assertEqual(self.booted(kernel(name), 'classic', True), ['classic', 'mglru'])

    def test_mutants_have_both_by_default(self):
        self.assertEqual(self.booted(kernel('mutant:x', classic={'row'}), 'both', True),
                         ['classic', 'mglru'])

    def test_mutants_have_the_one_that_will_do(self):
        self.assertEqual(self.booted(kernel('mutant:x', classic={'row'}), 'classic'), ['classic'])

    def test_rows_to_fail_with_the_other_are_left_out_only_when_time_counts(self):
        kern = kernel('without:0001', classic={'row'}, mglru={'row'})
        self.assertEqual(self.booted(kern, 'classic'), ['classic', 'mglru'])
        self.assertEqual(self.booted(kern, 'classic', True), ['classic'])

    def test_where_only_the_other_has_rows_to_fail_it_comes_instead(self):
        kern = kernel('without:0001', mglru={'row'})
        self.assertEqual(self.booted(kern, 'classic'), ['classic', 'mglru'])
        self.assertEqual(self.booted(kern, 'classic', True), ['mglru'])

    def test_other_tests_are_not_booted(self):
        kern = kernel('patched')
        kern.tests = ['another']
        self.assertEqual(self.booted(kern, 'both'), [])

    def test_only_mutants_are_left_out_when_time_is_over(self):
        over = runner.Options(deadline=0.001)
        self.assertEqual([runner._late(over, kernel(name)) for name in
                          ('base', 'patched', 'without:0001', 'mutant:x')],
                         [False, False, True, True])
        self.assertFalse(runner._late(runner.Options(deadline=1e9), kernel('mutant:x')))
        self.assertFalse(runner._late(runner.Options(), kernel('mutant:x')))

    def test_an_unknown_kind_is_refused(self):
        with tempfile.TemporaryDirectory() as tmp:
            conf = Path(tmp) / 'tests.conf'
            conf.write_text('Name: a\nTopic: b\nReport: c\nMemory: 640\nCpus: 1\nTimeout: 9\n'
                            'Mutant-lru: clasic\n')
            with self.assertRaisesRegex(LabError, 'Mutant-lru: clasic is not known'):
                bases.load_tests(conf)


class Times(unittest.TestCase):
    """build._keep_times(): what make finds newer than its objects"""

    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        top = Path(self.tmp.name)
        for name in ('tree', 'out', 'patches', 'mutants'):
            (top / name).mkdir()
        (top / 'patches/0001-x.patch').write_text('diff --git a/one.h b/one.h\n')
        (top / 'mutants/x.patch').write_text('diff --git a/two.c b/two.c\n')
        self.tree = SimpleNamespace(path=top / 'tree', base=SimpleNamespace(
            patches=top / 'patches', mutants=top / 'mutants'))
        self.out = top / 'out'
        git(self.tree.path, 'init', '-q')
        for name in ('one.h', 'two.c'):
            self.write(name, 'old', 1000)
        build._note_times(self.tree, self.out)

    def write(self, name, text, when):
        (self.tree.path / name).write_text(text)
        os.utime(self.tree.path / name, (when, when))

    def times(self):
        build._keep_times(self.tree, self.out)
        return [(self.tree.path / name).stat().st_mtime for name in ('one.h', 'two.c')]

    def test_there_and_back_is_not_newer(self):
        self.write('one.h', 'new', 2000)
        self.write('one.h', 'old', 3000)
        self.assertEqual(self.times(), [1000, 1000])

    def test_a_change_is_newer(self):
        self.write('two.c', 'new', 2000)
        self.assertEqual(self.times(), [1000, 2000])

    def test_nothing_noted_changes_nothing(self):
        self.write('one.h', 'old', 3000)
        (self.out / '.mmlab-times').unlink()
        self.assertEqual(self.times(), [3000, 1000])


class Format(unittest.TestCase):
    """refresh.printed()"""

    def test_an_empty_line_of_context_at_the_end_survives(self):
        with tempfile.TemporaryDirectory() as tmp:
            tree = Path(tmp)
            git(tree, 'init', '-q')
            file = tree / 'file'
            # Of the three lines of context the last one is empty.
            file.write_text('1\n2\n3\n\n')
            git(tree, 'add', 'file')
            git(tree, 'commit', '-q', '-m', 'one')
            file.write_text('0\n2\n3\n\n')
            git(tree, 'commit', '-q', '-a', '-m', 'two')
            text = refresh.printed(tree)
            self.assertTrue(text.endswith(' \n'), text[-40:])
            git(tree, 'reset', '-q', '--hard', 'HEAD^')
            subprocess.run(['git', 'apply', '--check'], cwd=tree, input=text, text=True, check=True)


class Turn(unittest.TestCase):
    """boot.turn()"""

    def test_one_guest_at_a_time(self):
        code = ('import sys, tempfile; sys.path.insert(0, "lab"); from mmlab import boot\n'
                'with boot.turn(): print("booted")')
        root = Path(__file__).resolve().parents[2]
        # Not the lock of those who really boot.
        with tempfile.TemporaryDirectory() as tmp, mock.patch.object(tempfile, 'tempdir', tmp):
            with boot.turn():
                proc = subprocess.Popen([sys.executable, '-c', code], cwd=root, text=True,
                                        stdout=subprocess.PIPE, env=dict(os.environ, TMPDIR=tmp))
                with self.assertRaises(subprocess.TimeoutExpired):
                    proc.communicate(timeout=1)
            self.assertEqual(proc.communicate(timeout=30)[0], 'booted\n')


if __name__ == '__main__':
    unittest.main()
