# SPDX-License-Identifier: GPL-2.0
"""make report: base against patched, run after run, and what of it is more than noise."""

import functools
import itertools
import json
import math
import os
import random
import re
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import bases, cache, deps, page, runner
from .ui import LabError, stage

RUNS = 8
MUTANT_RUNS = 1


@dataclass
class Variation:
    """How one repetition differs from the first, in nothing that should matter.

    Under icount two boots of the same line are one and the same run, to the
    instruction: repeating it says nothing of how much is chance. What a guest
    counts may still hang on where the tick falls, or on where its memory is.
    """
    text: str
    pad: int = 0            # bytes more on the kernel command line
    env: int = 0            # bytes more in the environment of the test
    mem: int = 0            # MiB of RAM more
    delay: int = 0          # us of sleep before the test; the tick is every 4 ms
    initrd: int = 0         # KiB of zeros behind the initramfs

    def of(self, test, image):
        """What a boot of `test` takes instead: (test, image, words for the command line)."""
        memory = test.memory + self.mem
        # Below 512 MiB of usable RAM the kernel switches transparent huge pages off.
        if test.memory < 512 <= memory:
            raise LabError(f'{test.name}: {memory} MiB of RAM are on the other side of a threshold')
        words = ['mmlab.stamp=1']
        words += [f'mmlab.delay={self.delay}'] if self.delay else []
        words += [f'mmlab.pad={"x" * self.pad}'] if self.pad else []
        # Init hands words that the kernel does not know to the test: they move its stack.
        words += [f'PADDING={"x" * self.env}'] if self.env else []
        return replace(test, memory=memory), self._padded(image), ' '.join(words)

    def _padded(self, image):
        if not self.initrd:
            return image
        padded = image.with_name(f'{image.name.split(".")[0]}-{self.initrd}.gz')
        if not padded.exists():
            part = padded.with_suffix('.part')
            part.write_bytes(image.read_bytes() + bytes(self.initrd << 10))
            os.rename(part, padded)
        return padded


# Mixed, as one kind alone may leave a mode of the system unseen: of eight paddings of the
# command line all gave one time to 1 ppm, and none at all gave another, 1.1 % from it.
VARIATIONS = (
    Variation('as it is'),
    Variation('command line 16 bytes longer', pad=16),
    Variation('test starts 1 ms later', delay=1000),
    Variation('4 MiB of RAM more', mem=4),
    Variation('environment 200 bytes longer', env=200),
    Variation('test starts 2 ms later, command line 64 bytes longer', delay=2000, pad=64),
    Variation('64 KiB of zeros behind the initramfs', initrd=64),
    Variation('test starts 3 ms later, 8 MiB of RAM more', delay=3000, mem=8),
    Variation('test starts 250 ms later', delay=250000),
    Variation('12 MiB of RAM more, environment 72 bytes longer', mem=12, env=72),
    Variation('test starts 501 ms later, 128 KiB of zeros behind the initramfs', delay=501000,
              initrd=128),
    Variation('command line 256 bytes longer, 16 MiB of RAM more', pad=256, mem=16),
)


def variation(n):
    """How repetition number n differs, counted from 1."""
    return VARIATIONS[n - 1]


class Options(runner.Options):
    """What was asked of make report."""

    @classmethod
    def from_env(cls):
        """Options from the make variables; other defaults than those of make run."""
        opts = super().from_env()
        env = os.environ
        opts.mode = env.get('MODE') or 'icount'
        opts.runs = int(env.get('RUNS') or RUNS)
        if opts.runs > len(VARIATIONS):
            raise LabError(f'RUNS={opts.runs}: there are {len(VARIATIONS)} ways to vary a run',
                           f'take at most {len(VARIATIONS)}')
        opts.vary = variation
        opts.mutant_runs = min(opts.runs, int(env.get('MUTANTS') or MUTANT_RUNS))
        opts.mutants = opts.mutant_runs > 0
        return opts

    def command(self, base):
        """The line that reproduces a report."""
        words = ['make report', f'BASE={base.name}']
        for key, value, default in (('TESTS', self.tests, ''), ('LRU', self.lru, 'both'),
                                    ('MODE', self.mode, 'icount'), ('TREE', self.tree, ''),
                                    ('CPUS', self.cpus, 0), ('RUNS', self.runs, RUNS),
                                    ('MUTANTS', self.mutant_runs, MUTANT_RUNS)):
            if value != default:
                words.append(f'{key}="{value}"' if ' ' in str(value) else f'{key}={value}')
        return ' '.join(words)



# --- statistics --------------------------------------------------------------

ALPHA = 0.05            # of the corrected p, and 1 - ALPHA is what the intervals cover
EXACT = 20000           # so many ways to deal out the runs are all tried; else that many at random
SAME_WITHIN = 0.05      # a floor above this part of the value hides too much for "same"
MIN_VARIATIONS = 8      # runs that a noise floor is made of


def permutation_p(one, two):
    """Two-sided p of the difference of the means, by dealing out the runs anew.

    That is: how often chance alone, which run was called base and which patched, gives a
    difference as large. Exact up to EXACT deals; above, of as many random ones and the real one.
    """
    pool, size = list(one) + list(two), len(one)
    if not one or not two:
        return 1.0
    if size == len(two) and (max(one) < min(two) or max(two) < min(one)):
        return least_p(size, size)      # this deal and its mirror image: none is as extreme
    total = sum(pool)

    def distance(first):
        # In proportion to the difference of the means, and exact for whole numbers.
        return abs(first * len(pool) - total * size)

    # Times are whole numbers of ns, so this is for other fractions only.
    seen = distance(sum(one)) * (1 - 1e-12)
    if math.comb(len(pool), size) <= EXACT:
        deals = itertools.combinations(pool, size)
        hits = [distance(sum(deal)) >= seen for deal in deals]
        return sum(hits) / len(hits)
    rng = random.Random(0)
    hits = sum(distance(sum(rng.sample(pool, size))) >= seen for _ in range(EXACT))
    return (hits + 1) / (EXACT + 1)


def least_p(size, other):
    """The smallest p that permutation_p() can give for so many runs."""
    deals = math.comb(size + other, size)
    if size == other:
        return min(1.0, 2 / deals)
    return 1 / (deals if deals <= EXACT else EXACT + 1)


def holm(values):
    """Holm's correction: the p values, in their order, as if only one had been looked at."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    out, worst = [0.0] * len(values), 0.0
    for rank, i in enumerate(order):
        worst = max(worst, min(1.0, (len(values) - rank) * values[i]))
        out[i] = worst
    return out


@functools.lru_cache(maxsize=None)
def t_quantile(p, df):
    """Quantile of Student's t for p > 0.5.

    With t = sqrt(df) tan(a) the density is proportional to cos(a) ** (df - 1).
    """
    def area(angle, steps=400):
        width = angle / steps
        ends = 1 + math.cos(angle) ** (df - 1)
        inner = sum((4 if i % 2 else 2) * math.cos(i * width) ** (df - 1) for i in range(1, steps))
        return width / 3 * (ends + inner)

    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if 0.5 + scale * area(middle) < p:
            low = middle
        else:
            high = middle
    return math.sqrt(df) * math.tan(low)


def interval(one, two):
    """Welch's interval for the difference of the means, two - one; None for fewer than 2 runs."""
    if len(one) < 2 or len(two) < 2:
        return None
    delta = statistics.fmean(two) - statistics.fmean(one)
    a, b = statistics.variance(one) / len(one), statistics.variance(two) / len(two)
    if a + b == 0:
        return delta, delta
    df = (a + b) ** 2 / (a * a / (len(one) - 1) + b * b / (len(two) - 1))
    half = t_quantile(1 - ALPHA / 2, round(df, 2)) * math.sqrt(a + b)
    return delta - half, delta + half


def spread(values):
    """By how much two runs of one kernel differ at most."""
    return max(values) - min(values) if values else 0


# --- metrics -----------------------------------------------------------------

@dataclass
class Metric:
    """What a counter is called, and which way is better: -1 lower, 1 higher, 0 depends."""
    label: str
    better: int = 0
    unit: str = ''


# The words of mmtests (its monitor mmtests-vmstat), where it has one. What is not here keeps the
# name that the test gives it, and is not judged.
METRICS = {
    'allocstall': Metric('Allocation stalls', -1),
    'minflt': Metric('Minor Faults'),
    'majflt': Metric('Major Faults', -1),
    'pgmajfault': Metric('Major Faults', -1),
    'pswpin': Metric('Swap Ins', -1, 'pages'),
    'pswpout': Metric('Swap Outs', 0, 'pages'),
    'pgscan_direct': Metric('Direct pages scanned', -1, 'pages'),
    'pgscan_kswapd': Metric('Kswapd pages scanned', -1, 'pages'),
    'pgsteal_direct': Metric('Direct pages reclaimed', 0, 'pages'),
    'pgsteal_kswapd': Metric('Kswapd pages reclaimed', 0, 'pages'),
    'direct_efficiency': Metric('Direct efficiency', 1, '%'),
    'kswapd_efficiency': Metric('Kswapd efficiency', 1, '%'),
    'direct_percentage': Metric('Percentage direct scans', -1, '%'),
    'nr_vmscan_write': Metric('Page writes by reclaim', -1, 'pages'),
    'nr_vmscan_immediate_reclaim': Metric('Page reclaim immediate', -1, 'pages'),
    'slabs_scanned': Metric('Slabs scanned', 0, 'objects'),
    'thp_fault_alloc': Metric('THP fault alloc'),
    'thp_collapse_alloc': Metric('THP collapse alloc'),
    'thp_split_page': Metric('THP splits'),
    # mmtests has no word for these.
    'pgscan': Metric('Pages scanned', -1, 'pages'),
    'pgsteal': Metric('Pages reclaimed', 0, 'pages'),
    'efficiency': Metric('Reclaim efficiency', 1, '%'),
    'pgrefill': Metric('Active pages scanned', -1, 'pages'),
    'pgdeactivate': Metric('Pages deactivated', -1, 'pages'),
    'active_anon': Metric('Active anon left', 0, 'pages'),
    'inactive_anon': Metric('Inactive anon left', 0, 'pages'),
    'oom_kill': Metric('OOM kills', -1),
    'swap_ra': Metric('Swap readahead', 0, 'pages'),
    'swap_ra_hit': Metric('Swap readahead hits', 0, 'pages'),
    'swap_ra_efficiency': Metric('Swap readahead efficiency', 1, '%'),
    'unmapped_left': Metric('Unmapped huge memory left', -1, 'pages'),
    'workingset_refault_anon': Metric('Anon refaults', -1, 'pages'),
    'workingset_refault_file': Metric('File refaults', -1, 'pages'),
    'refault': Metric('File refaults', -1, 'pages'),
    'stalls_per_10000': Metric('Allocation stalls per 10000 pages', -1),
    'p50_us': Metric('Stall, median', -1, 'us'),
    'p99_us': Metric('Stall, 99th percentile', -1, 'us'),
    'max_us': Metric('Stall, longest', -1, 'us'),
    'sum_us': Metric('Stalls, all', -1, 'us'),
    'sleeps': Metric('Sleeps in dirty throttling', -1),
    'idle_sleeps': Metric('Sleeps with nothing dirty', -1),
    'idle_ms': Metric('Asleep with nothing dirty', -1, 'ms'),
    'flushes': Metric('Flushes of statistics', -1),
    'peak': Metric('Dirty pages, most', 0, 'pages'),
    'seconds': Metric('Time, virtual', -1, 'ms'),
}

# What a clock gave: a result under icount alone.
TIME = re.compile(r'seconds|(?:.*_)?(?:ms|us|ns)')

# Percentages, from counters of the same row: (100 x, of y).
DERIVED = {
    'direct_efficiency': ('pgsteal_direct', ('pgscan_direct',)),
    'kswapd_efficiency': ('pgsteal_kswapd', ('pgscan_kswapd',)),
    'direct_percentage': ('pgscan_direct', ('pgscan_direct', 'pgscan_kswapd')),
    'efficiency': ('pgsteal', ('pgscan',)),
    'swap_ra_efficiency': ('swap_ra_hit', ('swap_ra',)),
}

WHOLE_TEST = 'the whole test'


@dataclass
class Line:
    """A line of the table: one metric of one row, on both kernels."""
    row: str
    key: str
    base: list
    patched: list
    state: str = ''             # of the row, base to patched: "fixed", "control", ...
    delta: float = None
    ci: tuple = None            # 95 % of the delta
    floor: float = 0            # what two runs of one kernel differ by, at most
    p: float = 1.0
    holm: float = 1.0
    verdict: str = 'not judged'
    why: str = ''

    @property
    def metric(self):
        return METRICS.get(self.key, Metric(self.key))


@dataclass
class Table:
    """All lines of one test with one LRU kind."""
    test: str
    lru: str
    lines: list = field(default_factory=list)
    tested: int = 0             # lines that differ in any run: the family of Holm's correction
    least: float = 1.0          # the smallest p that so many runs can give


# Worsened first, what could not be decided next.
ORDER = ('worse', 'too noisy', 'too few runs', 'not judged', 'better', 'differs', 'same')


def _values(row):
    """{(part of the row, key): value} of a row, derived ones included."""
    out = {}
    parts = [('', row.get('counters') or {})] + list((row.get('parts') or {}).items())
    for part, counters in parts:
        have = dict(counters)
        for key, (top, bottom) in DERIVED.items():
            if top in have and all(k in have for k in bottom) and sum(have[k] for k in bottom):
                have[key] = 100 * have[top] / sum(have[k] for k in bottom)
        out.update(((part, key), value) for key, value in have.items())
    if row.get('seconds') is not None:
        out['', 'seconds'] = round(row['seconds'] * 1e9)        # whole ns add up without rounding
    return out


def _collect(runs):
    """{(row, key): {n: value}} and {row: statuses} of the runs of one kernel."""
    values, states = {}, {}
    for run in runs:
        for row in run.get('rows') or []:
            states.setdefault(row['name'], set()).add(row['status'])
            for (part, key), value in _values(row).items():
                name = row['name'] + (f', {part}' if part else '')
                values.setdefault((name, key), {})[run['n']] = value
        if run.get('seconds') is not None:
            values.setdefault((WHOLE_TEST, 'seconds'), {})[run['n']] = round(run['seconds'] * 1e9)
    return values, states


def _state(before, after):
    if before == after == {'ok'}:
        return 'control'
    if before == {'not ok'} and after == {'ok'}:
        return 'fixed'
    if before == {'ok'} and 'not ok' in after:
        return 'broken'
    if before == after == {'not ok'}:
        return 'not fixed'
    return f'{"/".join(sorted(before)) or "missing"} to {"/".join(sorted(after)) or "missing"}'


def judge(line, mode, least, tested):
    """Set the verdict of a line, and why; its delta, floor and p are there."""
    one, two, metric = line.base, line.patched, line.metric
    time = TIME.fullmatch(line.key)
    if time and mode != 'icount':
        line.why = f'{mode} has no virtual time'
        return
    runs = min(len(one), len(two))
    if runs < 2:
        line.why = f'{runs} run' + ('' if runs == 1 else 's')
        return
    if time and runs < MIN_VARIATIONS:
        line.why = f'a floor for times takes {MIN_VARIATIONS} variations'
        return
    size = max(abs(statistics.fmean(one)), abs(statistics.fmean(two)))
    if abs(line.delta) <= line.floor:
        line.verdict = 'same' if line.floor <= SAME_WITHIN * size else 'too noisy'
        line.why = '' if line.verdict == 'same' else 'the floor is above 5 % of the value'
    elif line.holm <= ALPHA:
        line.verdict = {0: 'differs', 1: 'better', -1: 'worse'}[
            metric.better * (1 if line.delta > 0 else -1)]
    elif least * tested > ALPHA:
        line.verdict = 'too few runs'
    else:
        line.verdict = 'too noisy'


def tables(results):
    """The Tables of a run: its results as runner.run_base() has them."""
    out = []
    runs = results['runs']
    for test, lru in dict.fromkeys((run['test'], run['lru']) for run in runs):
        mine = [run for run in runs if (run['test'], run['lru']) == (test, lru)]
        base, base_states = _collect([run for run in mine if run['kernel'] == 'base'])
        patched, patched_states = _collect([run for run in mine if run['kernel'] == 'patched'])
        table = Table(test, lru)
        for name, key in dict.fromkeys(list(base) + list(patched)):
            one = list(base.get((name, key), {}).values())
            two = list(patched.get((name, key), {}).values())
            row = max((r for r in list(base_states) + list(patched_states)
                       if name == r or name.startswith(r + ', ')), key=len, default=None)
            line = Line(name, key, one, two, '' if row is None else
                        _state(base_states.get(row, set()), patched_states.get(row, set())))
            if one and two:
                line.delta = statistics.fmean(two) - statistics.fmean(one)
                line.ci = interval(one, two)
                line.floor = max(spread(one), spread(two))
                line.p = permutation_p(one, two) if len(set(one + two)) > 1 else 1.0
            table.lines.append(line)
        # What is one number in all runs cannot come out as a difference, and is not tested.
        family = [line for line in table.lines if line.delta is not None and
                  len(set(line.base + line.patched)) > 1]
        for line, p in zip(family, holm([line.p for line in family])):
            line.holm = p
        table.tested = len(family)
        sizes = [(len(line.base), len(line.patched)) for line in family] or [(0, 0)]
        table.least = max(least_p(*size) for size in sizes)
        for line in table.lines:
            if line.delta is None:
                line.why = 'on one of the kernels only'
            else:
                judge(line, results['mode'], table.least, table.tested)
        rank = {verdict: i for i, verdict in enumerate(ORDER)}
        table.lines.sort(key=lambda line: rank[line.verdict])       # stable: else in log order
        out.append(table)
    return out


def mutants(results):
    """What each mutant was caught in: [(kernel, description, test, lru, rows, caught, boots)]."""
    about = {k['name']: k['desc'] for k in results['kernels']}
    out = []
    runs = [run for run in results['runs'] if run['kernel'] not in ('base', 'patched')]
    for key in dict.fromkeys((run['kernel'], run['test'], run['lru']) for run in runs):
        mine = [run for run in runs if (run['kernel'], run['test'], run['lru']) == key]
        rows = dict.fromkeys(row['name'] for run in mine for row in run['rows']
                             if row['status'] == 'not ok')
        out.append((key[0], about.get(key[0], ''), key[1], key[2], list(rows),
                    sum(run['status'] != 'PASS' for run in mine), len(mine),
                    all(run['as_expected'] for run in mine), mine[0]['expected']))
    return out


# --- the report --------------------------------------------------------------

def load(directory):
    """The results of an earlier run."""
    path = Path(directory) / 'results.json'
    try:
        results = json.loads(path.read_text())
        results['runs'][0]['kernel']
        results['kernels'][0]['desc']       # those of make field have none
    except FileNotFoundError as err:
        raise LabError(f'FROM={directory}: there is no results.json') from err
    except (ValueError, KeyError, IndexError, TypeError) as err:
        raise LabError(f'{path} is not that of a run: {err!r}') from err
    return results


def write(results, directory):
    """Write report.md and report.html; [(results, tables, mutants)] of what is in them."""
    directory = Path(directory)
    runs = [(r, tables(r), mutants(r)) for r in results]
    for name, text in (('report.md', page.markdown(runs)), ('report.html', page.html(runs))):
        part = directory / f'.{name}.part'
        part.write_text(text, encoding='utf-8')
        os.rename(part, directory / name)
    return runs


def _worst(results, found):
    """What is to be seen first, in words."""
    for table in found:
        counts = {v: sum(line.verdict == v for line in table.lines) for v in ORDER}
        yield f'{results["base"]} {table.test} {table.lru}: ' + ', '.join(
            f'{n} {v}' for v, n in counts.items() if n)
        for line in table.lines:
            if line.verdict == 'worse':
                yield f'    worse: {line.row}: {page.amounts(line)}'


def main():
    """make report"""
    if os.environ.get('FROM'):
        sources = [Path(d) for d in re.split(r'[ ,]+', os.environ['FROM'].strip())]
        found = [load(source) for source in sources]
        target = Path(os.environ.get('RESULTS') or sources[0])
        target.mkdir(parents=True, exist_ok=True)
    else:
        opts = Options.from_env()
        tests = bases.pick_tests(opts.tests)
        picked = bases.pick_bases(opts.base)
        if opts.tree and len(picked) > 1:
            raise LabError('TREE= is one tree, and BASE= names several', 'pick one BASE')
        deps.ensure(deps.RUN, [tool for t in tests for tool in t.tools])
        cache.lock()
        found = []
        for base in picked:
            results, *_ = runner.run_base(base, opts, tests)
            found.append(results)
            write([results], results['dir'])
        target = Path(found[0]['dir'])
        if len(found) > 1:
            target = target.with_name(f'{found[0]["run"].rsplit("-", 1)[0]}-all')
            target.mkdir()
    with stage('report', str(target)):
        runs = write(found, target)
    print()
    for results, found_tables, _ in runs:
        print('\n'.join(_worst(results, found_tables)))
    print(f'\nreport: {target}/report.html  (report.md)')
    print('again:  ' + '; '.join(r['reproduce'] for r in found))
    return next((code for code in map(runner.verdict, found) if code), 0)
