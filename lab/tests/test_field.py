# SPDX-License-Identifier: GPL-2.0
"""make field: field.conf, which kernel and which modules, and what a log says of a kernel."""

import io
import lzma
import os
import stat
import subprocess
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mmlab import bases, build, fetch, field, ktap          # noqa: E402
from mmlab.ui import LabError                               # noqa: E402

STANZA = '''# a comment
Name: 6.12
Line: 6.12
Package: linux-image-cloud-amd64
Suites: new old
What: many
'''

MADISON = '''linux-image-x | 6.12.118-1 | http://mirror.invalid/d-security new/main amd64 Packages
linux-image-x | 6.12.117-1 | http://mirror.invalid/d old/main amd64 Packages
linux-image-x | 6.1.192-3 | file:/mirror old/updates/main amd64 Packages
'''

DEP = '''kernel/fs/configfs/configfs.ko.xz:
kernel/drivers/block/null_blk/null_blk.ko.xz: kernel/fs/configfs/configfs.ko.xz
kernel/fs/xfs/xfs.ko.xz: kernel/lib/libcrc32c.ko.xz kernel/lib/deep.ko.xz
kernel/lib/libcrc32c.ko.xz: kernel/lib/deep.ko.xz
kernel/lib/deep.ko.xz:
kernel/crypto/crc32c-generic.ko:
kernel/drivers/other.ko:
'''
SOFTDEP = '''# Soft dependencies
softdep libcrc32c pre: crc32c-generic
softdep crc32c_generic pre: libcrc32c nowhere
softdep xfs post: other
'''
BUILTIN = 'kernel/fs/ext4/ext4.ko\nkernel/mm/zs-malloc.ko\n'


def log(*rows, code=1, test='aging', lru='classic', end='MMLAB: end'):
    """The ktap.Result of a boot with rows."""
    lines = ['[    0.1] Linux version 6.12', 'MMLAB: boot 6.12-cloud cpus=2 mem_kb=1',
             f'MMLAB: begin test={test} lru={lru}', 'TAP version 13', f'1..{len(rows)}']
    lines += [row.replace(' ', f' {nr} {lru}: ', 1) if row.startswith('ok') else
              row.replace('not ok ', f'not ok {nr} {lru}: ') for nr, row in enumerate(rows, 1)]
    return ktap.parse_log('\n'.join([*lines, f'MMLAB: exit {code}', 'MMLAB: seconds 1.5', end, '']))


class Declared(unittest.TestCase):
    """lab/field.conf and KERNELS=."""

    def parse(self, text):
        with tempfile.TemporaryDirectory() as tmp:
            path = Path(tmp) / 'field.conf'
            path.write_text(text)
            return field.load(path)

    def test_fields(self):
        kern = self.parse(STANZA)['6.12']
        self.assertEqual((kern.line, kern.package, kern.suites, kern.what),
                         ('6.12', 'linux-image-cloud-amd64', ['new', 'old'], 'many'))

    def test_refused(self):
        for text, message in (
                (STANZA.replace('Line: 6.12\n', ''), "field.conf: a stanza lacks 'Line'"),
                (STANZA + '\n' + STANZA, '6.12 is declared twice'),
                (STANZA.replace('new old', ''), 'Suites: names none'),
                ('Name 6.12\n', 'field.conf line 1: not "Key: value"')):
            with self.subTest(message), self.assertRaisesRegex(LabError, message):
                self.parse(text)

    def test_ours(self):
        kernels = field.load()
        self.assertLessEqual({'6.1', '6.12', '7.3'}, set(kernels))
        self.assertEqual([k.name for k in field.pick('6.12, 6.1')], ['6.12', '6.1'])
        self.assertEqual([k.name for k in field.pick(' ')], list(kernels))

    def test_unknown(self):
        with self.assertRaisesRegex(LabError, 'KERNELS=5.10 is not declared: one of 6.1, '):
            field.pick('6.1,5.10')

    def test_icount(self):
        with mock.patch.dict(os.environ, {'MODE': 'icount', 'KERNELS': '', 'TESTS': ''}):
            with self.assertRaisesRegex(LabError, 'MODE=icount: .* one of tcg, kvm, auto'):
                field.main()


class Version(unittest.TestCase):
    """Which package it is."""

    def kern(self, line='6.12'):
        return field.Kernel('k', line, 'linux-image-x', ['new', 'old'], '')

    def found(self):
        with mock.patch.object(fetch, 'run', return_value=(0, MADISON)):
            return fetch.madison({}, 'linux-image-x')

    def test_madison(self):
        self.assertEqual(self.found(), [('6.12.118-1', 'new'), ('6.12.117-1', 'old'),
                                        ('6.1.192-3', 'old/updates')])

    def test_line(self):
        for version, line, same in (('6.1.192-3', '6.1', True), ('6.12.118-1', '6.1', False),
                                    ('7.3~rc7-1~exp1', '7.3', True), ('7.30-1', '7.3', False),
                                    ('7.3.4-1~bpo13+1', '7', True), ('7.3-1', '7x3', False)):
            with self.subTest(version=version, line=line):
                self.assertEqual(field.of_line(version, line), same)

    def test_newest(self):
        self.assertEqual(field.newest(self.kern(), self.found()), ('6.12.118-1', 'new', ''))

    def test_other_suites_do_not_count(self):
        found = [('6.12.200-1', 'other'), *self.found()]
        self.assertEqual(field.newest(self.kern(), found)[0], '6.12.118-1')
        with self.assertRaisesRegex(LabError, 'linux-image-x is in none of: new, old'):
            field.newest(self.kern(), found[:1])

    def test_line_is_gone(self):
        version, suite, note = field.newest(self.kern('7.3'), self.found())
        self.assertEqual((version, suite), ('6.12.118-1', 'new'))
        self.assertIn('there is no 7.3 in new, old any more: this is 6.12.118-1', note)

    def test_packages_of_the_same_version(self):
        shown = {'meta': 'Depends: image-9 (= 9-1), other (= 8-1), linux-base (>= 4)',
                 'image-9': 'Pre-Depends: base-9 (= 9-1)\nDepends: meta (= 9-1), kmod',
                 'base-9': 'Description: none'}
        with mock.patch.object(fetch, 'run', side_effect=lambda cmd, env: (
                0, shown[cmd[-1].partition('=')[0]])):
            self.assertEqual(fetch.same_version({}, 'meta', '9-1'), ['meta', 'image-9', 'base-9'])

    def test_without_a_network(self):
        kern = self.kern()
        with tempfile.TemporaryDirectory() as tmp, \
                mock.patch.object(field.cache, 'CACHE', Path(tmp)), \
                mock.patch.object(fetch, 'update', side_effect=LabError('cannot fetch', 'try')):
            with self.assertRaisesRegex(LabError, 'cannot fetch: try'):
                field.get([kern])
            field._known(kern).write_text('{"version": "6.12.9-1", "suite": "new", "note": "", '
                                          '"debs": ["/x.deb"]}')
            out = io.StringIO()
            with redirect_stdout(out):
                field.get([kern])
        self.assertEqual((kern.version, kern.debs), ('6.12.9-1', [Path('/x.deb')]))
        self.assertIn('!!! cannot fetch: taking the kernels of the last time', out.getvalue())


class Modules(unittest.TestCase):
    """Which modules go into the initramfs, in which order."""

    def choose(self, *wanted):
        paths, missing = field.choose(DEP, SOFTDEP, BUILTIN, wanted)
        return [field._module(path) for path in paths], missing

    def test_what_a_module_needs_comes_first(self):
        self.assertEqual(self.choose('null_blk'), (['configfs', 'null_blk'], []))
        self.assertEqual(self.choose('xfs'), (['deep', 'crc32c_generic', 'libcrc32c', 'xfs'], []))

    def test_each_once(self):
        self.assertEqual(self.choose('configfs', 'null_blk', 'null_blk')[0],
                         ['configfs', 'null_blk'])

    def test_built_in_or_missing(self):
        self.assertEqual(self.choose('ext4', 'zs_malloc', 'brd'), ([], ['brd']))

    def test_contents(self):
        with tempfile.TemporaryDirectory() as tmp:
            for name, data in (('a.ko', b'elf'), ('b.ko.xz', lzma.compress(b'elf')),
                               ('c.ko.zst', b'?')):
                (Path(tmp) / name).write_bytes(data)
            self.assertEqual(field._plain(Path(tmp) / 'a.ko'), b'elf')
            self.assertEqual(field._plain(Path(tmp) / 'b.ko.xz'), b'elf')
            with self.assertRaisesRegex(LabError, 'c.ko.zst: no way is known'):
                field._plain(Path(tmp) / 'c.ko.zst')

    def test_two_nodes(self):
        test = bases.load_tests()['thp_deferred_split']
        emulated = SimpleNamespace(config={'CONFIG_NUMA_EMU': 'y'})
        self.assertEqual(field.guest(emulated, test), (test, []))
        got, more = field.guest(SimpleNamespace(config={}), test)
        self.assertEqual(got.cmdline, '')
        self.assertEqual(sum(f'size={test.memory // 2}M' in word for word in more), 2)
        self.assertEqual(more.count('-numa'), 2)


class Verdict(unittest.TestCase):
    """What a log says of a kernel."""

    def verdict(self, result, tells=('the bug',), keys=('the bug',)):
        return field.verdict(result, ('aging', 'classic'), set(tells), set(keys))

    def test_has_it(self):
        self.assertEqual(self.verdict(log('not ok the bug', 'ok control'))[0], field.HAS)

    def test_has_it_and_leaves_something(self):
        result = log('not ok the bug', end='MMLAB: leak new: swap /dev/x\nMMLAB: end')
        self.assertEqual(self.verdict(result), (field.HAS, 'left behind: new: swap /dev/x'))
        self.assertIn('worth a look:\n  6.1 aging classic: left behind: new: swap /dev/x',
                      field.details(Tables().results(('6.1', 'classic', result))))

    def test_has_not(self):
        self.assertEqual(self.verdict(log('ok the bug', 'ok control', code=0)), (field.NOT, ''))

    def test_a_control_fails(self):
        word, why = self.verdict(log('ok the bug', 'not ok control'))
        self.assertEqual(word, field.UNKNOWN)
        self.assertIn('a row fails that no reported problem is known to: control', why)

    def test_skipped(self):
        row = 'ok the bug # SKIP classic: the bug: no null_blk'
        word, why = self.verdict(log(row, 'ok control', code=0))
        self.assertEqual((word, why), (field.UNKNOWN, 'skipped: the bug'))
        # What does not tell may be skipped.
        self.assertEqual(self.verdict(log('ok the bug', 'ok control # SKIP no brd', code=0))[0],
                         field.NOT)

    def test_nothing_checked(self):
        for result in (log('ok the bug # SKIP no root', code=4), ktap.parse_log(
                'MMLAB: boot 6 cpus=1\nMMLAB: begin test=aging lru=classic\n'
                '1..0 # SKIP swap is on\nMMLAB: exit 4\nMMLAB: end\n')):
            self.assertEqual(result.status, 'SKIP')
            word, why = self.verdict(result)
            self.assertEqual(word, field.UNKNOWN)
            self.assertIn('nothing was checked', why)

    def test_no_result(self):
        for result in (log('not ok the bug', end=''), ktap.parse_log('', timed_out=True),
                       ktap.parse_log('[    1.0] Kernel panic - not syncing: x\n')):
            self.assertEqual(self.verdict(result)[0], field.UNKNOWN, result.status)

    def test_another_test(self):
        self.assertEqual(self.verdict(log('ok the bug', code=0, lru='mglru'))[0], field.UNKNOWN)

    def test_rows_of_ours(self):
        tells, keys = field.telling(), field.unfixed()
        self.assertEqual(set(tells), set(bases.load_tests()))
        for (test, _), rows in keys.items():
            self.assertLessEqual(rows, tells[test])


class Attempts(unittest.TestCase):
    """A guest that QEMU's race kills is booted again, and no other one."""

    INT3 = '[    4.0] Oops: int3: 0000 [#1] SMP\n'

    def attempt(self, *texts, left=None):
        boots = iter(texts)

        def boot_(_, where, __):
            where.write_text(next(boots))
            return field.boot.judge(where)

        notes = []
        with tempfile.TemporaryDirectory() as tmp, redirect_stdout(io.StringIO()), \
                mock.patch.object(field.boot, 'boot', boot_):
            path = Path(tmp) / '6-aging-mglru-1.log'
            if left:
                path.write_text(left)
            result = field.attempt([], path, 1, notes)
            kept = sorted(found.name for found in path.parent.iterdir())
        return result.status, len(notes), kept, len(list(boots))

    def test_again(self):
        self.assertEqual(self.attempt(self.INT3, 'x', 'unused'),
                         ('CRASHED', 1, ['6-aging-mglru-1.int3-1', '6-aging-mglru-1.log'], 1))

    def test_of_an_interrupted_run(self):
        self.assertEqual(self.attempt('x', left=self.INT3)[:2], ('CRASHED', 1))
        self.assertEqual(self.attempt('unused', left='x')[3], 1)

    def test_not_for_ever(self):
        self.assertEqual(self.attempt(*[self.INT3] * 4)[:2] + self.attempt(*[self.INT3] * 4)[3:],
                         ('OOPS', 2, 1))

    def test_other_oopses_count(self):
        self.assertEqual(self.attempt('[    4.0] Oops: 0002 [#1] SMP\n', 'unused')[::3],
                         ('OOPS', 1))


class Tables(unittest.TestCase):
    """What is printed, and the exit code."""

    def results(self, *boots):
        kernels = dict.fromkeys(name for name, *_ in boots)
        runs = []
        for kern, lru, result in boots:
            judged = field.verdict(result, ('aging', lru), {'the bug'}, {'the bug'})
            runs.append(field.entry(SimpleNamespace(name=kern), SimpleNamespace(name='aging'), lru,
                                    1, result, judged))
        about = {'suite': 's', 'release': 'r', 'what': 'w', 'lru': 'mglru', 'modules': ['xfs'],
                 'missing': []}
        return {'run': 'r', 'reproduce': 'make field', 'telling': {'aging': ['the bug']},
                'kernels': [dict(about, name=name, version=f'{name}.9-1') for name in kernels],
                'runs': runs, 'notes': [], 'date': 'd', 'qemu': 'q', 'mode': 'tcg', 'host': 'h',
                'compiler': 'c'}

    def some(self):
        return self.results(
            ('6.1', 'classic', log('not ok the bug', 'ok control', 'ok x # SKIP no brd')),
            ('6.1', 'mglru', log('ok the bug', 'ok control', lru='mglru', code=0)),
            ('6.12', 'classic', log('ok the bug', 'not ok control')),
            ('6.12', 'mglru', ktap.parse_log('', timed_out=True)))

    def test_table(self):
        lines = field.table(self.some()).splitlines()
        self.assertEqual(lines[0].split(), ['problem', '6.1.9-1', '6.12.9-1'])
        self.assertRegex(lines[2], r'^aging classic  has it 1/3, 1 skipped  cannot tell 1/2$')
        self.assertRegex(lines[3], r'^aging mglru +does not 0/2 +cannot tell: HANG$')

    def test_summary(self):
        results = self.some()
        self.assertEqual([field.summary(results, kern) for kern in results['kernels']],
                         ['FIELD 6.1 6.1.9-1: has: aging (classic); has not: aging (mglru)',
                          'FIELD 6.12 6.12.9-1: cannot tell: aging (classic, mglru)'])

    def test_details(self):
        text = field.details(self.some())
        for part in ('  6.1 aging\n    the bug (classic)\n',
                     '    control (classic): not known to fail for the problem',
                     'rows that this kernel cannot do, which says nothing of it:\n'
                     '  6.1 aging\n    x',
                     '  6.12 aging mglru: HANG: timed out'):
            self.assertIn(part, text)
        self.assertIn('1/3, 1 skipped', field.markdown(self.some()))

    def test_exit_code(self):
        crashed = [field.crashed(r) for r in self.some()['runs']]
        self.assertEqual(crashed, [False, False, False, True])
        skipped = self.results(('6.1', 'classic', log('ok the bug # SKIP no root', code=4)))
        self.assertTrue(field.unchecked(skipped))
        self.assertEqual([r['lru'] for r in field.unchecked(self.some())], ['mglru'])
        self.assertFalse(field.unchecked(self.results(('6.1', 'classic', log('not ok the bug')))))


class Archive(unittest.TestCase):
    """The initramfs."""

    def test_members(self):
        with tempfile.TemporaryDirectory() as tmp:
            (Path(tmp) / 'odd').write_bytes(b'12345')
            data = build.archive({'/init': Path(tmp) / 'odd', '/a/b/c': Path(tmp) / 'odd'},
                                 [('/bin/sh', 'busybox')])
        found, at = {}, 0
        while True:
            self.assertEqual(data[at:at + 6], b'070701')
            fields = [int(data[at + 6 + 8 * i:at + 14 + 8 * i], 16) for i in range(13)]
            name = data[at + 110:at + 109 + fields[11]].decode().removeprefix('./')
            start = at + 110 + fields[11] + -(at + 110 + fields[11]) % 4
            if name == 'TRAILER!!!':
                break
            found[name] = (fields[1], data[start:start + fields[6]], fields[9:11])
            at = start + fields[6] + -fields[6] % 4
        self.assertEqual(found['init'], (stat.S_IFREG | 0o755, b'12345', [0, 0]))
        self.assertEqual(found['bin/sh'][1], b'busybox')
        self.assertTrue(stat.S_ISLNK(found['bin/sh'][0]))
        self.assertEqual((stat.S_ISCHR(found['dev/console'][0]), found['dev/console'][2]),
                         (True, [5, 1]))
        names = list(found)
        self.assertLess(names.index('a'), names.index('a/b'))
        self.assertLess(names.index('a/b'), names.index('a/b/c'))

    def test_init_takes_parameters_of_modules(self):
        """The function of init.c that sorts the command line out, compiled alone."""
        source = (field.ROOT / 'lab/init.c').read_text()
        start = source.index('static void module_params(')
        code = ('#include <stdio.h>\n#include <string.h>\nstatic char cmdline[] = '
                '"console=ttyS0 null_blk.nr_devices=0 loop.max_loop=2 null_blk.gb=1 null_blkx.a=1'
                '\\n";\n' + source[start:source.index('\n}\n', start) + 3] +
                'int main(int n, char **v) { char b[64]; (void)n;'
                ' module_params(v[1], b, sizeof(b)); printf("[%s]", b); return 0; }\n')
        with tempfile.TemporaryDirectory() as tmp:
            prog = Path(tmp) / 'prog'
            subprocess.run(['gcc', '-x', 'c', '-', '-o', prog], input=code, text=True, check=True)
            got = {name: subprocess.run([prog, name], capture_output=True, text=True,
                                        check=True).stdout for name in ('null_blk', 'loop', 'xfs')}
        self.assertEqual(got, {'null_blk': '[nr_devices=0 gb=1 ]', 'loop': '[max_loop=2 ]',
                               'xfs': '[]'})


if __name__ == '__main__':
    unittest.main()
