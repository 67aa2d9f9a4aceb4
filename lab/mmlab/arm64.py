# SPDX-License-Identifier: GPL-2.0
"""make matrix BOOT=arm64: the anon-aging pair on arm64, and what it counts of TLB invalidations.

Taking the accessed bit off a page costs one there, as it did on x86 in 2010. A plugin of QEMU
(lab/tlbi.c) counts the instructions that do it, by address; System.map says in which function.
"""

import bisect
import dataclasses
import os
from collections import Counter

from . import boot, build, cache, deps, matrix, runner, tree as trees
from .bases import ROOT, load_tests
from .ui import LabError, run, say, stage

TEST = 'anon_aging'
LRU = 'classic'         # the other kind of LRU has no active list to age


def plugin():
    """The plugin, compiled for this machine."""
    source = ROOT / 'lab/tlbi.c'
    done = cache.path('init', f'tlbi-{cache.digest(source, build.compiler())}.so')
    if not done.exists():
        run(['gcc', '-O2', '-Wall', '-Wextra', '-Werror', '-fPIC', '-shared', '-fvisibility=hidden',
             '-o', f'{done}.part', str(source)])
        os.rename(f'{done}.part', done)
    return done


def by_function(counts, symbols):
    """What the plugin has written, added up by function: a Counter."""
    table = sorted((int(line.split()[0], 16), line.split()[2]) for line in symbols.splitlines()
                   if line.split()[1] in 'tTwW')
    starts, found = [addr for addr, _ in table], Counter()
    for line in counts.splitlines():
        addr, count = line.split()
        nr = bisect.bisect_right(starts, int(addr, 16)) - 1
        # Executed before the kernel has moved to its own addresses: the boot, not the test.
        found[table[nr][1] if nr >= 0 and int(addr, 16) >= starts[0] else '(early)'] += int(count)
    return found


def spread(values):
    """A number, or the range of several."""
    return str(values[0]) if len(set(values)) == 1 else f'{min(values)}..{max(values)}'


def table(found):
    """Lines: TLB invalidations by function; found: {kernel: [Counter]}."""
    boots_all = [one for runs in found.values() for one in runs]
    names = sorted({name for one in boots_all for name in one},
                   key=lambda name: (-max(one[name] for one in boots_all), name))
    rows = [['all'] + [spread([sum(one.values()) for one in runs]) for runs in found.values()]]
    rows += [[name] + [spread([one[name] for one in runs]) for runs in found.values()]
             for name in names]
    rows.insert(0, ['TLB invalidations in'] + list(found))
    wide = [max(len(row[nr]) for row in rows) for nr in range(len(rows[0]))]
    return ['  '.join(cell.ljust(wide[0]) if nr == 0 else cell.rjust(wide[nr])
                      for nr, cell in enumerate(row)) for row in rows]


def boots(base, own_tree, runs):
    """Base and patched, `runs` times: (lines for the report, number of boots that failed)."""
    deps.ensure(deps.ARM64)
    base, test = dataclasses.replace(base, arch='arm64'), load_tests()[TEST]
    with stage('fetch', f'{base.name}: {base.package} {base.version}'):
        tree = trees.get(base, own_tree)
    with stage('apply', f'{base.series} to {tree.version}'):
        kerns = runner.kernels(tree, [test], False)
    with stage('configure', ' '.join(p.name for p in base.config)):
        config_dir, config_hash = build.configure(tree)
    for kern in kerns:
        with stage('build arm64', f'{base.name} {kern.name}'):
            build.kernel(tree, kern, config_dir, config_hash)
        if kern.bad:
            raise LabError(f'the arm64 kernel does not build: {kern.bad}')
    with stage('image'):
        tests_dir = matrix.programs('arm64', [TEST])
        image = build.pack({'/init': build.init_program('arm64'),
                            f'/tests/{TEST}': tests_dir / TEST})
    found, lines, failures = {kern.name: [] for kern in kerns}, [], 0
    with stage('boot arm64', f'{len(kerns) * runs} boots'):
        for nr in range(1, runs + 1):
            for kern in kerns:
                log = cache.path('log', f'arm64-{base.name}-{kern.name}-{nr}.log')
                counts = log.with_suffix('.tlbi')
                counts.unlink(missing_ok=True)
                cmd = boot.command_arm64(kern.image, image, test, LRU, test.cpus,
                                         f'{plugin()},out={counts}')
                result = boot.boot(cmd, log, boot.BOOT_SECONDS * 2 + test.timeout)
                rows = {row.name for row in result.rows if row.status == 'not ok'}
                wanted = set(kern.expect.get((TEST, LRU), ()))
                bad = result.status not in ('PASS', 'FAIL') or rows != wanted
                failures += bad
                line = (f'{base.name} arm64 {kern.name} {TEST} {LRU} {nr}: '
                        f'{"FAILED" if bad else "as expected"}: {result.status}, '
                        f'{len(rows)}/{len(result.rows)} rows fail, {result.seconds or 0:.0f} s')
                if bad:
                    line += (f': {result.reason or "; ".join(sorted(rows ^ wanted))} '
                             f'(wanted {len(wanted)} rows to fail); {log}')
                say(f'    {line}')
                lines.append(line)
                if not counts.exists() or not counts.read_text():
                    raise LabError(f'QEMU has counted no TLB invalidation in {kern.name}',
                                   f'see {log}')
                symbols = (kern.image.parent / 'System.map').read_text()
                found[kern.name].append(by_function(counts.read_text(), symbols))
    return lines + table(found), failures
