# SPDX-License-Identifier: GPL-2.0
"""make matrix: declarations, what is compiled, and what counts as a finding."""

import os
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmlab import arm64, build, matrix, proof     # noqa: E402
from mmlab.ui import LabError                     # noqa: E402

HEADERS = '''diff --git a/mm/swap.h b/mm/swap.h
--- a/mm/swap.h
+++ b/mm/swap.h
@@ -1,6 +1,6 @@
 void kept(int a);
-void taken(int a,
+void taken(int b, int a,
 	   int c);
@@ -20,8 +20,9 @@
 bool far_above(struct one *one,
 	       struct two *two,
-	       int nid);
+	       int nid, long nr);
@@ -30,8 +30,9 @@
 extern int other;
-extern atomic_t counter;
+/* added(x) is new */
+void added(int a);
+	bool field;
'''

OUTPUT = '''  CC      mm/a.o
/x/tree/mm/a.c: In function 'f':
/x/tree/mm/a.c:10:5: warning: unused variable 'b' [-Wunused-variable]
/x/tree/mm/a.c:20:5: warning: unused variable 'b' [-Wunused-variable]
Warning: ../mm/a.c:30 function parameter 'c' not described in 'f'
  CHECK   /x/tree/mm/a.c
/x/tree/mm/a.c:40:6: error: cannot read this
'''

COCCI = '''/usr/bin/spatch -D report x.cocci /x/tree/mm/a.c
/x/tree/mm/a.c:12:2-5: WARNING: Use BUG_ON, see line 9
/x/tree/mm/a.c:22:2-5: WARNING: Use BUG_ON, see line 19
'''

NM = '''mm/a.o:                 U __udivdi3
mm/a.o:0000000000000010 T shrink
mm/b.o:                 U shrink
mm/b.o:0000000000000020 t local
'''

TREE = SimpleNamespace(path=Path('/x/tree'), ident='tree')


def stanza(text):
    """load() of a file with that text."""
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / 'matrix.conf'
        path.write_text(text)
        return matrix.load(path)


class Declarations(unittest.TestCase):
    """lab/matrix.conf."""

    def test_the_file(self):
        confs = matrix.load()
        self.assertTrue(any(c.prefixes for c in confs.values()))
        self.assertTrue(any(c.scope == 'all' for c in confs.values()))
        self.assertEqual({c.check for c in confs.values()}, set(matrix.CHECKS))
        self.assertEqual({c.arch for c in confs.values()}, set(build.ARCHES))

    def test_refused(self):
        for text, error in (('Name: a\n', "lacks 'Arch'"),
                            ('Name: a\nArch: vax\n', 'Arch: vax is not known'),
                            ('Name: a\nArch: x86_64\nCheck: selftests\n', 'Arch: x86_64 is not'),
                            ('Name: a\nArch: arm64\nSparse: yes\n', 'sparse reads'),
                            ('Name: a\nArch: arm64\nPrefixes: some\n', 'Prefixes: some is not'),
                            ('Name: a\nArch: arm64\nOptions: SMP\n', 'SMP is not NAME=value'),
                            ('Name: a\nArch: arm64\n\nName: a\nArch: arm64\n', 'twice')):
            with self.subTest(text), self.assertRaisesRegex(LabError, error):
                stanza(text)

    def test_unknown_name(self):
        with self.assertRaisesRegex(LabError, 'CONFIGS=vax is not declared: one of full'):
            matrix.pick('full,vax')

    def test_variables(self):
        for env, error in (({'BOOT': 'vax'}, 'BOOT=vax is not known'),
                           ({'BOOT': 'arm64', 'BASE': '6.1'}, 'BASE=mainline alone'),
                           ({'WITH': '/nowhere'}, 'WITH=/nowhere: there is no such file')):
            none = dict.fromkeys(('BOOT', 'BASE', 'WITH', 'CONFIGS', 'TREE', 'RUNS'), '')
            with mock.patch.dict(os.environ, dict(none, **env)):
                with self.subTest(env), self.assertRaisesRegex(LabError, error):
                    matrix.main()

    def test_a_lost_option_is_an_error(self):
        self.assertEqual(build.lost('CONFIG_SMP=y\n', {'CONFIG_SMP': 'CONFIG_SMP=n'}),
                         ['CONFIG_SMP is y, wanted n'])


class Selection(unittest.TestCase):
    """What is compiled."""

    def test_what_headers_change(self):
        self.assertEqual(matrix.changed_names(HEADERS), {'taken', 'far_above', 'counter'})

    def test_objects_of_a_makefile(self):
        with tempfile.TemporaryDirectory() as tmp:
            tree, out = Path(tmp) / 'tree', Path(tmp) / 'out'
            (tree / 'mm').mkdir(parents=True)
            (out / 'include/config').mkdir(parents=True)
            (out / 'include/config/auto.conf').write_text('CONFIG_SWAP=y\n')
            (tree / 'mm/Makefile').write_text('page-alloc-y := page_alloc.o\nobj-y += page-alloc.o\n'
                                              'obj-$(CONFIG_SWAP) += swapfile.o\nobj-y += sub/\n'
                                              'obj-$(CONFIG_MEMCG) += memcontrol.o\n')
            for name in ('page_alloc', 'swapfile', 'memcontrol'):
                (tree / f'mm/{name}.c').write_text('')
            found = matrix.configured(SimpleNamespace(path=tree, ident='t'), out, 'mm')
            self.assertEqual(found, {'mm/page_alloc.o', 'mm/swapfile.o'})
            (tree / 'mm/Makefile').write_text('')
            with self.assertRaisesRegex(LabError, 'names no object'):
                matrix.configured(SimpleNamespace(path=tree, ident='t'), out, 'mm')


class Reading(unittest.TestCase):
    """What tools print."""

    def test_noise(self):
        noise, read = proof._noise(TREE, OUTPUT)
        self.assertEqual(noise.count["mm/a.c: warning: unused variable 'b' [-Wunused-variable]"], 2)
        self.assertEqual([w for w in noise.where.values() if w.endswith(':30')], ['../mm/a.c:30'])
        self.assertEqual(len(noise.count), 3)
        self.assertEqual((read, noise.unread), ({'mm/a.c'}, ['mm/a.c']))

    def test_symbols(self):
        self.assertEqual(proof.symbols(NM), ({'__udivdi3': 'mm/a.o', 'shrink': 'mm/b.o'},
                                             {'shrink': 'mm/a.o'}))

    def test_coccinelle(self):
        found, where = matrix.reports(TREE, COCCI)
        self.assertEqual(found, {'WARNING: Use BUG_ON, see line': 2})
        self.assertEqual(list(where.values()), ['mm/a.c:12'])


class Fake(matrix.Bench):
    """A configuration whose commits are what a test says: {commit: Noise or LabError}."""

    def __init__(self, noises, there=('mm/a.o',)):
        self.noises, self.there, self.tree = noises, set(there), TREE
        self.commits = [c for c in noises if c != 'base']
        self.patches = [SimpleNamespace(name=f'{c}.patch') for c in self.commits]
        self.conf = matrix.Config('fake', 'compile', 'x86_64', [], 'all', 'touched', False, True)

    def compile(self, commit, objects, sparse=None):
        found = self.noises[commit]
        if isinstance(found, LabError):
            raise found
        return found

    def remade(self, old, new, objects):
        return objects


def noise(*warnings, needs=(), defines=()):
    """A Noise with some warnings of mm/a.c."""
    count = Counter(f'mm/a.c: warning: {text}' for text in warnings)
    return proof.Noise(count, {what: 'mm/a.c:7' for what in count}, [],
                       dict.fromkeys(needs, 'mm/a.o'), dict.fromkeys(defines, 'mm/a.o'))


def findings(noises, grep=''):
    """What compile_config() finds."""
    bench = Fake(noises)
    with mock.patch.object(matrix, 'Bench', lambda *args: bench), \
            mock.patch.object(matrix, 'git', lambda *args, **kw: (0, grep)):
        result = matrix.compile_config(TREE, bench.conf, bench.patches, bench.commits, {'mm/a.o'},
                                       set())
    return result.found


class Findings(unittest.TestCase):
    """What the series adds fails, and names its patch."""

    def test_what_the_base_says_too_is_none(self):
        self.assertEqual(findings({'base': noise('old'), 'p1': noise('old'), 'p2': noise('old')}), [])

    def test_a_warning(self):
        self.assertEqual(findings({'base': noise('old'), 'p1': noise('old'),
                                   'p2': noise('old', 'new')}),
                         ['p2.patch: mm/a.c:7: warning: new'])

    def test_one_more_of_the_same(self):
        self.assertEqual(findings({'base': noise('old'), 'p1': noise('old', 'old'),
                                   'p2': noise('old', 'old')}),
                         ['p1.patch: mm/a.c:7: warning: old'])

    def test_a_warning_that_a_later_patch_takes_away(self):
        self.assertEqual(findings({'base': noise(), 'p1': noise('new'), 'p2': noise()}),
                         ['p1.patch: mm/a.c:7: warning: new (a later patch takes it away)'])

    def test_an_error(self):
        bad = LabError('it does not build')
        self.assertEqual(findings({'base': noise(), 'p1': bad, 'p2': bad}),
                         ['p1.patch: it does not build'])
        self.assertEqual(findings({'base': noise(), 'p1': bad, 'p2': noise()}),
                         ['p1.patch: it does not build'])

    def test_a_base_that_does_not_build_is_an_error(self):
        with self.assertRaisesRegex(LabError, 'it does not build'):
            findings({'base': LabError('it does not build'), 'p1': noise()})

    def test_a_symbol_that_no_object_has(self):
        self.assertEqual(findings({'base': noise(), 'p1': noise(needs=['__udivdi3'])}),
                         ['p1.patch: mm/a.o needs __udivdi3, which no object has in this '
                          'configuration'])

    def test_a_symbol_that_others_need_too(self):
        noises = {'base': noise(), 'p1': noise(needs=['get_random_u32'])}
        bench, other = Fake(noises, ('mm/a.o', 'mm/b.o')), noise(needs=['get_random_u32'])
        bench.compile = lambda commit, objects, sparse=None: (
            other if 'mm/b.o' in objects else noises[commit])
        for grep, found in (('base:mm/b.c', []), ('base:mm/a.c', ['get_random_u32'])):
            with mock.patch.object(matrix, 'git', lambda *args, **kw: (0, grep)):
                self.assertEqual(list(bench.unresolved(noises['base'], noises['p1'], ['mm/a.o'])),
                                 found)

    def test_a_symbol_that_another_object_has(self):
        self.assertEqual(findings({'base': noise(), 'p1': noise(needs=['x'], defines=['x'])}), [])

    def test_a_symbol_that_is_gone(self):
        self.assertEqual(findings({'base': noise(defines=['x']), 'p1': noise()}, 'p1:fs/b.c\n'),
                         ['p1.patch: x is gone from mm/a.o, and fs/b.c names it'])
        self.assertEqual(findings({'base': noise(defines=['x']), 'p1': noise()}, 'p1:mm/a.c\n'), [])


class Arm64(unittest.TestCase):
    """What the plugin counts."""

    def test_by_function(self):
        symbols = ('ffff800080000000 T _text\nffff800080001000 t shrink_one\n'
                   'ffff800080001800 d data\nffff800080002000 T flush\n')
        counts = '40080000 3\nffff800080001010 5\nffff8000800019f0 2\nffff800080002000 1\n'
        self.assertEqual(arm64.by_function(counts, symbols),
                         {'(early)': 3, 'shrink_one': 7, 'flush': 1})

    def test_table(self):
        lines = arm64.table({'base': [Counter(f=5, g=1), Counter(f=7)], 'patched': [Counter(f=1)] * 2})
        self.assertEqual([line.split() for line in lines],
                         [['TLB', 'invalidations', 'in', 'base', 'patched'], ['all', '6..7', '1'],
                          ['f', '5..7', '1'], ['g', '0..1', '0']])


if __name__ == '__main__':
    unittest.main()
