# SPDX-License-Identifier: GPL-2.0
"""make lru-file: the report's own load, scaled down: use-once reads, and read-twice.

What vm-scalability calls lru-file-readonce and lru-file-readtwice, as far as a guest of 640 MiB
goes: lab/lru-file.sh. Base and patched boot under icount with one vCPU, so that the time is
virtual and a repetition gives the same; RUNS= adds boots that differ in padding, as in make report.
No exit code comes of the numbers: they are there to be read.
"""

import dataclasses
import os
import statistics
from pathlib import Path

from . import bases, boot, build, cache, deps, evidence, report, runner
from .bases import ROOT
from .ui import LabError, say, stage

READERS = 16
CASES = {'readonce': 1, 'readtwice': 2}
TOOLS = ['mkfs.xfs']
# A boot took three minutes on a busy host with two cores.
TIMEOUT = 900

# Names of lab/lru-file.sh, as mmtests has them.
NAMES = {'read': 'Pages read', 'allocstall': 'Allocation stalls',
         'pgscan_direct': 'Direct pages scanned', 'pgsteal_direct': 'Direct pages reclaimed',
         'pgscan_kswapd': 'Kswapd pages scanned', 'pgsteal_kswapd': 'Kswapd pages reclaimed',
         'refault': 'Page refaults', 'ms': 'Time, virtual (ms)'}


def rows(case, lru, base, patched):
    """Lines of the table for one case: base and patched are lists of counters, one for each run."""
    def show(values):
        low, high = min(values), max(values)
        return f'{low:g}' if low == high else f'{low:g}..{high:g}'

    out = []
    for key, name in NAMES.items():
        old, new = [run[key] for run in base], [run[key] for run in patched]
        mean = statistics.mean(old)
        delta = f'{(statistics.mean(new) - mean) / mean * 100:+.1f} %' if mean else ''
        out.append([f'lru-file-{case}', lru, name, show(old), show(new), delta])
    return out


def measure(base, opts, tests):
    """All boots of one base: (kernels, lines of the table)."""
    boot.refuse_mode('icount', base, 1)
    tree, kerns, tests_dir, _, _ = runner.prepare(base, opts, tests)
    kerns = kerns[:2]
    if kerns[1].bad:
        raise LabError(f'the patched kernel does not build: {kerns[1].bad}')
    image = build.image(tests_dir, tests, TOOLS, {'/tests/lru-file.sh': ROOT / 'lab/lru-file.sh'})
    load = dataclasses.replace(tests[0], name='lru-file.sh', memory=640, cmdline='')
    lines = []
    with stage('boot', f'{opts.runs * 4 * len(runner.LRU[opts.lru])} boots, icount'):
        for lru in runner.LRU[opts.lru]:
            for case, times in CASES.items():
                got = {kern.name: [] for kern in kerns}
                for n in range(1, opts.runs + 1):
                    guest, initrd, append = evidence.VARIATIONS[n - 1].of(load, image)
                    for kern in kerns:
                        cmd = boot.command(kern.image, initrd, guest, lru, 'icount', 1, 0,
                                           f'mmlab.args={READERS},{times} {append}'.strip())
                        log = cache.path('log', f'lru-file-{base.name}-{kern.name}-{lru}-{case}-{n}.log')
                        result = boot.boot(cmd, log, TIMEOUT)
                        if result.status != 'PASS':
                            raise LabError(f'{kern.name} lru-file-{case} {lru}: {result.status}: '
                                           f'{result.reason}', f'see {log}')
                        got[kern.name].append(result.rows[0].counters)
                        say(f'    {kern.name} lru-file-{case} {lru} {n}: '
                            f'{result.rows[0].counters["allocstall"]:g} allocation stalls')
                lines += rows(case, lru, got['base'], got['patched'])
    return tree, lines


def main():
    """make lru-file [BASE=] [LRU=] [RUNS=1]"""
    opts = runner.Options.from_env()
    opts.mutants = False
    if opts.runs > len(evidence.VARIATIONS):
        raise LabError(f'RUNS={opts.runs} is more than there are variations',
                       f'at most {len(evidence.VARIATIONS)}')
    picked = bases.pick_bases(os.environ.get('BASE') or 'mainline')
    tests = bases.pick_tests('readonce')
    deps.ensure(deps.RUN, TOOLS)
    cache.lock()
    for base in picked:
        tree, lines = measure(base, opts, tests)
        grid = report._grid(['case', 'LRU', 'metric', 'base', 'patched', 'delta'], lines)
        target = Path(opts.results)
        target.mkdir(parents=True, exist_ok=True)
        words = f'RUNS={opts.runs} LRU={opts.lru}'
        head = [f'{tree.version}, {READERS} readers, twice the RAM of 640 MiB, {boot.qemu_version()}, '
                f'icount, 1 vCPU, n = {opts.runs}', f'again: make lru-file BASE={base.name} {words}', '']
        (target / f'lru-file-{base.name}.txt').write_text('\n'.join([*head, *grid, '']))
        print('\n'.join([*head, *grid]))
    return 0
