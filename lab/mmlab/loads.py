# SPDX-License-Identifier: GPL-2.0
"""make loads: loads that are not tests, base against patched: lab/loads.sh.

The report's own streams (use-once and read-twice, as vm-scalability has them), streams beside anon
memory, fio, and the stressors of the huge pages' report. Base and patched boot in turn, RUNS= times
each, varied as in make report; icount where the length of a path matters, MTTCG where threads do.
No exit code comes of the numbers: they are there to be read.
"""

import dataclasses
import datetime
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from . import bases, boot, build, cache, deps, evidence, page, report, runner
from .bases import ROOT
from .ui import LabError, say, stage


@dataclass
class Load:
    """One load of lab/loads.sh, and what it boots on."""
    mode: str
    cpus: int
    memory: int             # MiB
    tools: list = field(default_factory=list)
    runs: int = 3
    flavour: str = ''       # lab/config/FLAVOUR.config on top
    lru: tuple = ('classic', 'mglru')


# A second of MTTCG is too noisy for less than 4 runs, and huge pages do not know of the LRU's kind.
LOADS = {
    'readonce': Load('icount', 1, 640, ['mkfs.xfs']),
    'readtwice': Load('icount', 1, 640, ['mkfs.xfs']),
    'mix': Load('icount', 1, 640, ['mkfs.xfs']),
    'fio': Load('tcg', 2, 1024, ['mkfs.ext4', 'fio'], runs=4, lru=('classic',)),
    'fio-group': Load('tcg', 2, 1024, ['mkfs.ext4', 'fio'], runs=4, lru=('classic',)),
    'madvise': Load('icount', 1, 1024, ['stress-ng'], lru=('classic',)),
    'mremap': Load('icount', 1, 1024, ['stress-ng'], lru=('classic',)),
    'madvise-rate': Load('tcg', 2, 1024, ['stress-ng'], runs=6, lru=('classic',)),
    'mremap-rate': Load('tcg', 2, 1024, ['stress-ng'], runs=6, lru=('classic',)),
    'thp-locks': Load('tcg', 2, 1024, lru=('classic',), flavour='lockstat'),
}
# A boot took three minutes on a busy host with two cores.
TIMEOUT = 900

_KBS, _US = {'better': 1, 'unit': 'KB/s'}, {'better': -1, 'unit': 'us'}
evidence.METRICS.update({
    'ms': evidence.Metric('Time', -1, 'ms'),
    'ops_100s': evidence.Metric('Bogo operations a second', 1, '1/100'),
    'locks_taken': evidence.Metric('Queue lock taken', -1),
    'locks_per_1000': evidence.Metric('Queue lock taken per 1000 huge pages', -1),
    'sync_after': evidence.Metric('sync(2) afterwards', -1, 'ms'),
    **{f'{job}_kbs': evidence.Metric(f'fio, {words}: written', **_KBS) for job, words in
       (('order', 'in order'), ('random', 'at random'), ('fsync', 'fsync each 8'))},
    **{f'{job}_{what}us': evidence.Metric(f'fio, {words}: {text}', **_US)
       for job, words in (('order', 'in order'), ('random', 'at random'), ('fsync', 'fsync each 8'))
       for what, text in (('p99', '99th percentile'), ('max', 'longest write'))},
})


def pick(text):
    """The loads that LOADS= names; all of them by default."""
    names = text.replace(',', ' ').split() or list(LOADS)
    for name in names:
        if name not in LOADS:
            raise LabError(f'LOADS={name} is not known', f'of {", ".join(LOADS)}')
    return list(dict.fromkeys(names))


def boots(base, name, opts, kerns, image, n):
    """Boots of one load for repetition n: entries as runner.run_base() has them."""
    load = LOADS[name]
    for lru in [lru for lru in runner.LRU[opts.lru] if lru in load.lru]:
        test = bases.Test('loads.sh', '', '', load.memory, load.cpus, TIMEOUT, [], '')
        guest, initrd, append = evidence.variation(n).of(test, image)
        for kern in kerns:
            khz = boot.tsc_khz() if load.mode == 'tcg' else 0
            cmd = boot.command(kern.image, initrd, guest, lru, load.mode, load.cpus, khz,
                               f'mmlab.args={name} {append}')
            log = cache.path('log', f'loads-{base.name}-{kern.name}-{name}-{lru}-{n}.log')
            result = boot.boot(cmd, log, TIMEOUT)
            if result.status != 'PASS':
                raise LabError(f'{kern.name} {name} {lru}: {result.status}: {result.reason}',
                               f'see {log}')
            say(f'    {kern.name} {name} {lru} {n}: {result.seconds:.1f} s')
            yield {'kernel': kern.name, 'test': name, 'lru': lru, 'n': n,
                   'rows': [dict(dataclasses.asdict(row), name=name, seconds=None)
                            for row in result.rows]}


def lines(runs):
    """The table: [[load, LRU, metric, base, patched, delta, verdict]]."""
    out = []
    for name, load in LOADS.items():
        mine = [run for run in runs if run['test'] == name]
        for table in evidence.tables({'runs': mine, 'mode': load.mode}):
            for line in table.lines:
                if any(line.base + line.patched):
                    cells = [page.amount(line.base, line.key), page.amount(line.patched, line.key),
                             page.delta(line)]
                    out.append([name, table.lru, page.label(line),
                                *[cell.replace('\n', ' ') for cell in cells], line.verdict])
    return out


def one_base(base, names, opts):
    """All boots of one base: (tree, runs)."""
    # The programs come from the debug kernel's tree too, so that each flavour has one image.
    runs = []
    for flavour in dict.fromkeys(LOADS[name].flavour for name in names):
        mine = [name for name in names if LOADS[name].flavour == flavour]
        debug = dataclasses.replace(base, flavour=flavour)
        tree, kerns, tests_dir = runner.pair(debug, opts, bases.pick_tests(''))[:3]
        for name in mine:
            boot.refuse_mode(LOADS[name].mode, base, LOADS[name].cpus)
            image = build.image(tests_dir, [], LOADS[name].tools, {
                f'/tests/{script}': ROOT / 'lab' / script for script in ('guest.sh', 'loads.sh')})
            count = opts.runs or LOADS[name].runs
            with stage('boot', f'{name}: {count} times, {LOADS[name].mode}'):
                for n in range(1, count + 1):
                    runs += boots(base, name, opts, kerns, image, n)
    return tree, runs


def main():
    """make loads [BASE=] [LOADS=] [LRU=] [RUNS=]"""
    names = pick(os.environ.get('LOADS') or '')
    opts = runner.Options.from_env()
    if opts.runs > len(evidence.VARIATIONS):
        raise LabError(f'RUNS={opts.runs} is more than there are variations',
                       f'at most {len(evidence.VARIATIONS)}')
    opts.runs = opts.runs if os.environ.get('RUNS') else 0
    picked = bases.pick_bases(os.environ.get('BASE') or 'mainline')
    deps.ensure(deps.RUN, sorted({tool for name in names for tool in LOADS[name].tools}))
    cache.lock()
    runner.writable(opts.results)
    for base in picked:
        tree, runs = one_base(base, names, opts)
        again = f'make loads BASE={base.name} LOADS={",".join(names)} LRU={opts.lru}' + \
            (f' RUNS={opts.runs}' if opts.runs else '')
        counts = ', '.join(f'{name} {opts.runs or LOADS[name].runs}' for name in names)
        head = [f'{datetime.date.today()}, {tree.version}, {boot.qemu_version()}, on {boot.host()}',
                f'n: {counts}', f'again: {again}', '']
        grid = report._grid(['load', 'LRU', 'metric', 'base', 'patched', 'delta', 'verdict'],
                            lines(runs))
        stem = f'loads-{datetime.datetime.now():%Y%m%d-%H%M%S}-{base.name}'
        target = Path(opts.results) / stem
        target.mkdir(parents=True)
        (target / 'report.txt').write_text('\n'.join([*head, *grid, '']))
        (target / 'runs.json').write_text(json.dumps({'command': again, 'runs': runs}, indent=1))
        print('\n'.join([*head, *grid]))
        print(f'\nresults: {target}/report.txt  (runs.json)')
    return 0
