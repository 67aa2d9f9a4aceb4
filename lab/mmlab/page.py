# SPDX-License-Identifier: GPL-2.0
"""report.md and report.html: one document, printed twice.

The page is one file without scripts. A plot is an SVG with its numbers as a table below it.
"""

import html as escaping
import re
import statistics
from dataclasses import dataclass, field

from . import evidence, report

CANNOT_SHOW = (
    ('Devices', 'Latency, bandwidth and seeks of real disks: the block devices of the guest are '
     'memory, and a read in order costs what a random one does.'),
    ('TLB and interrupts', 'What TLB misses, TLB shootdowns and interrupts between CPUs cost.'),
    ('Caches', 'Cache misses and memory bandwidth: an instruction takes 1 ns of virtual time, '
     'whichever it is and wherever its data are.'),
    ('NUMA', 'Distance between nodes: all of them are equally near.'),
    ('Parallelism', 'Lock contention, and races between CPUs: under icount there is one vCPU, '
     'and more would take turns.'),
    ('Speculation', 'Branch prediction, and what mitigations cost.'),
    ('Size', 'Machines with more memory than the guest has, and workloads that run for hours.'),
)


# --- numbers as text ----------------------------------------------------------

def number(value, key, sign=''):
    """A value of a metric, without its unit. Times are kept in ns and shown in ms."""
    if key == 'seconds':
        return format(value / 1e6, f'{sign},.3f').replace(',', ' ')
    if isinstance(value, int) or value == int(value):
        return format(int(value), f'{sign}d')
    return format(value, f'{sign}.1f')


def amount(values, key):
    """All runs of one kernel: the mean, and the range when they differ."""
    if not values:
        return 'none'
    if len(set(values)) == 1:
        return number(values[0], key)
    return (f'{number(statistics.fmean(values), key)}\n'
            f'({number(min(values), key)} to {number(max(values), key)})')


def delta(line):
    """The difference, with per cent where there is a base for it."""
    if line.delta is None:
        return 'none'
    if not line.delta:
        return '0'
    text = number(line.delta, line.key, '+')
    base = statistics.fmean(line.base)
    # Points of a percentage are not per cent of it.
    if not base or line.metric.unit == '%':
        return text
    return f'{text}\n({100 * line.delta / base:+.1f} %)'


def probability(p):
    """A p value, rounded up where it is small."""
    return '1' if p >= 0.9995 else f'{p:.3f}' if p >= 0.001 else f'{p:.5f}'


def amounts(line):
    """A line in words."""
    return (f'{label(line)} {amount(line.base, line.key)} -> {amount(line.patched, line.key)}, '
            f'{delta(line)}').replace('\n', ' ')


def label(line):
    """The name of a metric with its unit."""
    metric = line.metric
    return metric.label + (f' ({metric.unit})' if metric.unit else '')


# --- the document -------------------------------------------------------------

@dataclass
class Heading:
    level: int
    text: str


@dataclass
class Text:
    text: str


@dataclass
class Code:
    text: str


@dataclass
class Grid:
    """A table; `marks` has a class for each row, `folded` puts it behind its caption."""
    caption: str
    header: list
    rows: list
    marks: list = field(default_factory=list)
    folded: bool = False


@dataclass
class Plot:
    """Values of both kernels over rows, over a number in the names of rows, or over time.

    `lines`: {kernel: [(x, mean, low, high)]}, x being text for kind "bars" and numbers otherwise.
    """
    kind: str               # bars, counts or time
    title: str
    x: str
    y: str
    lines: dict
    key: str = ''


def _line_cells(line):
    bounds = '-' if line.ci is None else (
        f'{number(line.ci[0], line.key, "+")} to\n{number(line.ci[1], line.key, "+")}')
    tested = line.ci is not None and len(set(line.base + line.patched)) > 1
    return [line.row, label(line), amount(line.base, line.key), amount(line.patched, line.key),
            delta(line), bounds, number(line.floor, line.key),
            f'{probability(line.p)}\n({probability(line.holm)})' if tested else '-',
            line.verdict + (f': {line.why}' if line.why else '')]


HEADER = ['Row', 'Metric', 'base', 'patched', 'delta', '95 % interval', 'floor', 'p (Holm)',
          'verdict']


def _counted(items):
    return ', '.join(f'{items.count(item)} {item}' for item in dict.fromkeys(items))


def _table(table, results):
    """The blocks of one test with one LRU kind."""
    runs = [run for run in results['runs'] if (run['test'], run['lru']) == (table.test, table.lru)]
    n = [sum(run['kernel'] == kernel for run in runs) for kernel in ('base', 'patched')]
    states = {}
    for line in table.lines:
        if line.state and not any(line.row.startswith(row + ', ') for row in states):
            states[line.row] = line.state
    yield Heading(3, f'{table.test}, {table.lru} LRU, {results["version"]}')
    yield Text(f'{n[0]} runs of base and {n[1]} of patched, in turn. '
               f'Rows with numbers: {_counted(list(states.values())) or "none"}.')
    text = (f'{table.tested} of {len(table.lines)} lines differ in any run, and are tested; the '
            f'smallest p that {n[0]} and {n[1]} runs can give is {probability(table.least)}. Without '
            f'the correction, {evidence.ALPHA * table.tested:.1f} of them would be below '
            f'{evidence.ALPHA} by chance.')
    if table.tested and table.least * table.tested > evidence.ALPHA:
        text += ' So few runs cannot show a difference after the correction: take more (RUNS=).'
    yield Text(text)
    loud = [line for line in table.lines if line.verdict != 'same']
    quiet = [line for line in table.lines if line.verdict == 'same']
    name = f'{table.test} {table.lru} {results["base"]}'
    if loud:
        yield Grid(f'{name}: what is not the same, worsened first', HEADER,
                   [_line_cells(line) for line in loud],
                   [line.verdict.replace(' ', '-') for line in loud])
    else:
        yield Text('All lines are the same on both.')
    if quiet:
        yield Grid(f'{name}: what is the same ({len(quiet)} lines)', HEADER,
                   [_line_cells(line) for line in quiet], ['same'] * len(quiet), folded=True)


def _points(line):
    """(kernel, mean, low, high) of a line."""
    for kernel, values in (('base', line.base), ('patched', line.patched)):
        if values:
            yield kernel, statistics.fmean(values), min(values), max(values)


def _numbered(name):
    """A row's name with its only number as #, and the number: ("# groups", 16), or None."""
    name = re.sub(r'\b[Oo]ne\b', '1', name)
    found = re.findall(r'\b\d+\b', name)
    return (re.sub(r'\b\d+\b', '#', name), int(found[0])) if len(found) == 1 else None


def plots(table, results):
    """What a table can be drawn as: whatever rows and counters there are."""
    name = f'{table.test}, {table.lru}, {results["base"]}'
    counts, bars = {}, {}
    order = {}
    for run in results['runs']:
        if (run['test'], run['lru']) == (table.test, table.lru):
            for row in run['rows']:
                order.setdefault(row['name'], len(order))
    lines = [line for line in table.lines if line.metric.better and line.delta is not None]
    for line in sorted(lines, key=lambda line: order.get(line.row, len(order))):
        numbered = _numbered(line.row)
        if numbered and line.key != 'seconds':
            # "1 group" and "16 groups" are the same thing.
            same = re.sub(r's\b', '', numbered[0])
            counts.setdefault((same, line.key), []).append((numbered[1], line, numbered[0]))
        if line.row != evidence.WHOLE_TEST:
            bars.setdefault(line.key, []).append(line)
    drawn = set()
    for (_, key), points in counts.items():
        points.sort(key=lambda point: point[0])
        if len({x for x, *_ in points}) < 2:
            continue
        drawn |= {(line.row, key) for _, line, _ in points}
        if all(line.verdict == 'same' or not line.delta for _, line, _ in points):
            continue
        out = {}
        for x, line, _ in points:
            for kernel, *values in _points(line):
                out.setdefault(kernel, []).append((x, *values))
        pattern = points[-1][2]
        over = f'number of {pattern[2:]}' if pattern.startswith('# ') else f'# in "{pattern}"'
        metric = label(points[0][1])
        yield Plot('counts', f'{metric} by {over} ({name})', over, metric, out, key)
    for key, group in bars.items():
        # All rows, where a difference was found in one.
        group = [line for line in group
                 if (line.row, key) not in drawn and any(line.base + line.patched)]
        if not any(line.verdict in ('better', 'worse') for line in group):
            continue
        out = {}
        for line in group:
            for kernel, *values in _points(line):
                out.setdefault(kernel, []).append((line.row, *values))
        yield Plot('bars', f'{label(group[0])} by row ({name})', 'row', label(group[0]), out, key)
    yield from _over_time(table, results, name)


def _over_time(table, results, name):
    """The samples that rows took, of the first run of each kernel."""
    found = {}
    for run in results['runs']:
        if ((run['test'], run['lru']) == (table.test, table.lru) and run['n'] == 1
                and run['kernel'] in ('base', 'patched')):
            for row in run['rows']:
                for sample in row.get('samples') or []:
                    (x, when), *rest = sample.items()
                    for key, value in rest:
                        found.setdefault((row['name'], x, key), {}).setdefault(
                            run['kernel'], []).append((when, value, value, value))
    for (row, x, key), lines in found.items():
        if any(len(points) > 1 for points in lines.values()):
            text = evidence.METRICS.get(key, evidence.Metric(key)).label
            yield Plot('time', f'{text} over time: {row} ({name})', x, text, lines, key)


def _variations(results):
    seen = {}
    for run in results['runs']:
        if run.get('how'):
            seen.setdefault(run['n'], run['how'])
    return seen


def _method(results):
    """How the numbers were made."""
    seen = _variations(results)
    yield Text('Base and patched are booted in turn: base, patched, base, patched. Delta is the '
               'difference of the means, patched less base; its 95 % interval is Welch\'s, with '
               'Student\'s t. p is that of a permutation test, two-sided: of all ways to deal out '
               f'the runs to the two kernels (of {evidence.EXACT} random ones, when there are more), '
               'how many give a difference of the means as large. Each table of one test and LRU kind '
               'is one family for Holm\'s correction.')
    yield Text('The floor is by how much two runs of one kernel differ at most. A difference that is '
               'not above it is not called one: then the verdict is "same", or "too noisy" where the '
               f'floor is above {evidence.SAME_WITHIN:.0%} of the value and so could hide one. Above '
               f'the floor it is "better" or "worse" where Holm\'s p is at most {evidence.ALPHA}, and '
               '"differs" where neither direction is better by itself; else "too noisy", or "too few '
               'runs" where no difference could have been shown with so many runs. Rows that are '
               'controls are judged as all others.')
    if results['mode'] == 'icount':
        yield Text('Times are virtual: QEMU counts each instruction as 1 ns (icount), and waiting '
                   'takes no time of the host. The same command gives the same digits with the same '
                   'QEMU, on any host. So runs that are to tell something of noise have to differ: '
                   'each one does, in what should not matter, and the two kernels in the same way.')
    else:
        yield Text(f'Mode {results["mode"]}: no virtual time, and the times are no results.')
    if seen:
        yield Grid('How the runs differ', ['Run', 'Difference'],
                   [[str(n), how] for n, how in sorted(seen.items())])


def _mutants(rows, results):
    yield Text('A mutant is the patched kernel with one bug brought back, or without one of the '
               'patches: the test has to fail on it.')
    cells = []
    for kernel, about, test, lru, failed, caught, boots, as_expected, expected in rows:
        if expected == 'PASS':
            text = f'passes in {boots - caught} of {boots}, as is declared for this LRU kind'
        else:
            text = f'in {caught} of {boots}'
        text += '' if as_expected else '; not as expected'
        cells.append([kernel, about, f'{test} {lru}', text, '; '.join(failed) or 'none'])
    yield Grid(f'Mutants, {results["base"]}',
               ['Kernel', 'What it is', 'Test', 'Caught', 'Rows that fail'], cells)


def document(runs):
    """The blocks of a report. runs: [(results, tables, mutants)]."""
    names = ', '.join(results['version'] for results, _, _ in runs)
    yield Heading(1, f'mm-reclaim: base against patched, {names}')
    yield Text('Not measured on hardware: all of this ran in QEMU. What is compared are counts of '
               'pages and events, and virtual time.')
    yield Heading(2, 'Summary')
    rows, worse = [], []
    for results, tables, _ in runs:
        for table in tables:
            verdicts = [line.verdict for line in table.lines]
            rows.append([f'{results["base"]} {table.test} {table.lru}'] +
                        [str(verdicts.count(v)) for v in evidence.ORDER])
            worse += [[f'{results["base"]} {table.test} {table.lru}: {line.row}', label(line),
                       amount(line.base, line.key), amount(line.patched, line.key), delta(line)]
                      for line in table.lines if line.verdict == 'worse']
    yield Grid('Lines of the tables below by verdict', ['Table', *evidence.ORDER], rows)
    if worse:
        yield Grid('All that is worse with the series',
                   ['Row', 'Metric', 'base', 'patched', 'delta'], worse, ['worse'] * len(worse))
    else:
        yield Text('Nothing came out as worse.')
    for results, _, _ in runs:
        for run in results['runs']:
            if not run['as_expected']:
                yield Text(f'Not as expected: {results["base"]} {run["kernel"]} {run["test"]} '
                           f'{run["lru"]}, run {run["n"]}: {run["why"]}')
        for kernel in results['kernels']:
            if kernel.get('bad'):
                yield Text(f'Not built: {results["base"]} {kernel["name"]}: {kernel["bad"]}')
    yield Heading(2, 'What emulation cannot show')
    yield Grid('Not to be concluded from this report', ['What', 'Why'],
               [list(row) for row in CANNOT_SHOW])
    yield Heading(2, 'Before and after')
    for results, tables, _ in runs:
        for table in tables:
            yield from _table(table, results)
    drawn = [plot for results, tables, _ in runs for table in tables
             for plot in plots(table, results)]
    if drawn:
        yield Heading(2, 'Plots')
        yield Text('Bars and points are means; the thin line goes from the lowest run to the highest.')
        yield from drawn
    if any(rows for _, _, rows in runs):
        yield Heading(2, 'Mutants')
        for results, _, rows in runs:
            if rows:
                yield from _mutants(rows, results)
    yield Heading(2, 'How it was measured')
    for results, _, _ in runs:
        yield Heading(3, f'Runs on {results["version"]}')
        yield from _method(results)
    yield Heading(2, 'Provenance')
    for results, _, _ in runs:
        yield Heading(3, f'What {results["base"]} was')
        yield Text('Reproduce:')
        yield Code(results.get('reproduce', 'unknown'))
        yield Grid(f'Versions, {results["base"]}', ['What', 'Value'],
                   [[text, str(results.get(key) or 'unknown')] for key, text in report.PROVENANCE])
        yield Grid(f'Kernels, {results["base"]}', ['Kernel', 'What it is', 'Key'],
                   [[k['name'], k.get('desc', ''), k.get('key', '')] for k in results['kernels']])


def _plot_rows(plot):
    """The numbers of a plot as rows of a table."""
    xs = list(dict.fromkeys(point[0] for points in plot.lines.values() for point in points))
    rows = []
    for x in xs:
        cells = [str(x)]
        for points in plot.lines.values():
            found = next((point for point in points if point[0] == x), None)
            cells.append('none' if found is None else number(found[1], plot.key) + (
                '' if found[2] == found[3] else
                f' ({number(found[2], plot.key)} to {number(found[3], plot.key)})'))
        rows.append(cells)
    return Grid(f'Numbers: {plot.title}', [plot.x, *plot.lines], rows, folded=True)


# --- Markdown -----------------------------------------------------------------

def _md_table(grid):
    rows = [[str(cell).replace('|', '\\|').replace('\n', ' ') for cell in row]
            for row in [grid.header] + grid.rows]
    rule = ['---'] * len(grid.header)
    return '\n'.join('| ' + ' | '.join(row) + ' |' for row in [rows[0], rule] + rows[1:])


def print_markdown(blocks):
    """Blocks as Markdown."""
    out = []
    for block in blocks:
        if isinstance(block, Plot):
            block = _plot_rows(block)
        if isinstance(block, Heading):
            out.append(f'{"#" * block.level} {block.text}')
        elif isinstance(block, Code):
            out.append(f'    {block.text}')
        elif isinstance(block, Grid):
            out += [f'{block.caption}:', _md_table(block)]
        else:
            out.append(block.text)
    return '\n\n'.join(out) + '\n'


def markdown(runs):
    """report.md."""
    return print_markdown(document(runs))


# --- SVG ----------------------------------------------------------------------

WIDTH = 360             # in units that are about a pixel on a phone
KERNELS = ('base', 'patched')


def _esc(text):
    return escaping.escape(str(text), quote=True)


def _nice(top):
    """A round number that is not below `top`, for the end of an axis."""
    if top <= 0:
        return 1
    size = 10 ** (len(str(int(top))) - 1) if top >= 1 else 1
    return next(step * size for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if step * size >= top)


def _short(value, key):
    return number(value, key).removesuffix('.000') if key == 'seconds' else number(value, key)


def _text(x, y, text, anchor='start', extra=''):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{_esc(text)}</text>'


def _wrap(text, width):
    lines = ['']
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append('')
        lines[-1] = f'{lines[-1]} {word}'.strip()
    return lines


def _legend(y, kernels, bars):
    out, x = [], 8
    for kernel in kernels:
        if bars:
            out.append(f'<rect class="{kernel}" x="{x}" y="{y - 9}" width="14" height="10"/>')
        else:
            out.append(f'<path class="line {kernel}" d="M{x} {y - 4}h22"/>')
            out.append(_marker(kernel, x + 11, y - 4))
        x += 19 if bars else 27
        out.append(_text(x, y, kernel))
        x += 70
    return out


def _marker(kernel, x, y):
    if kernel == 'base':
        return f'<rect class="mark base" x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"/>'
    return f'<circle class="mark patched" cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>'


def _bars(plot):
    """Horizontal bars, two for a row, its name above them: (height, elements)."""
    top = _nice(max(point[3] for points in plot.lines.values() for point in points))
    scale = (WIDTH - 8 - 88) / top
    out, y = _legend(18, plot.lines, True), 40
    for row in dict.fromkeys(point[0] for points in plot.lines.values() for point in points):
        for text in _wrap(row, 56):
            out.append(_text(8, y, text))
            y += 14
        y -= 8
        for kernel, points in plot.lines.items():
            for x, mean, low, high in points:
                if x != row:
                    continue
                out.append(f'<rect class="{kernel}" x="8" y="{y}" '
                           f'width="{max(mean * scale, 1):.1f}" height="11"/>')
                if low != high:
                    out.append(f'<path class="whisker" d="M{8 + low * scale:.1f} {y + 5.5}'
                               f'H{8 + high * scale:.1f}"/>')
                out.append(_text(12 + max(mean, high) * scale, y + 10, _short(mean, plot.key)))
                y += 13
        y += 18
    return y - 6, out


def _curves(plot):
    """Lines over a number: (height, elements)."""
    left, right, above, below = 52, WIDTH - 18, 56, 240
    top = _nice(max(point[3] for points in plot.lines.values() for point in points))
    xs = sorted({point[0] for points in plot.lines.values() for point in points})
    if plot.kind == 'time':
        first, last = xs[0], xs[-1]

        def across(x):
            return left + (right - left) * (x - first) / ((last - first) or 1)
    else:
        # 1, 2, 4, 16: steps of one width, as the numbers double.
        def across(x):
            return left + 18 + (right - left - 36) * xs.index(x) / max(len(xs) - 1, 1)

    def up(value):
        return below - (below - above) * value / top

    out = _legend(18, plot.lines, False)
    out.append(_text(8, 38, plot.y))
    for part in range(5):
        value = top * part / 4
        out.append(f'<path class="rule" d="M{left} {up(value):.1f}H{right}"/>')
        out.append(_text(left - 5, up(value) + 4, _short(value, plot.key), 'end'))
    shown = xs if plot.kind != 'time' else [first + (last - first) * i / 4 for i in range(5)]
    for x in shown:
        out.append(_text(across(x), below + 16, number(x, ''), 'middle'))
    out.append(_text((left + right) / 2, below + 34, plot.x, 'middle'))
    for kernel, points in plot.lines.items():
        path = ' '.join(f'{"L" if i else "M"}{across(x):.1f} {up(mean):.1f}'
                        for i, (x, mean, _, _) in enumerate(points))
        out.append(f'<path class="line {kernel}" d="{path}"/>')
        for x, mean, low, high in points:
            if low != high:
                out.append(f'<path class="whisker" d="M{across(x):.1f} {up(low):.1f}'
                           f'V{up(high):.1f}"/>')
            if plot.kind != 'time':
                out.append(_marker(kernel, across(x), up(mean)))
    return below + 44, out


def svg(plot, ident):
    """An SVG with a title and a description for those who do not see it."""
    height, elements = (_bars if plot.kind == 'bars' else _curves)(plot)
    what = ' and '.join(plot.lines)
    return (f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-labelledby="{ident}-t {ident}-d">'
            f'<title id="{ident}-t">{_esc(plot.title)}</title>'
            f'<desc id="{ident}-d">{_esc(what)}; the numbers are in the table below.</desc>'
            + ''.join(elements) + '</svg>')


# --- HTML ---------------------------------------------------------------------

STYLE = '''
:root{color-scheme:light dark;--bg:#fff;--fg:#1a1a1a;--soft:#f1f3f5;--rule:#8a8f94;--link:#0b57a4;
--base:#c04f00;--patched:#0068a5;--worse:#a80000;--better:#00632a;--odd:#6b4e00}
@media(prefers-color-scheme:dark){:root{--bg:#15181b;--fg:#e8e8e8;--soft:#24292e;--rule:#7d848a;
--link:#8ec5ff;--base:#f0a030;--patched:#62b8f0;--worse:#ff8f85;--better:#72d699;--odd:#e8c468}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:1rem/1.5 system-ui,sans-serif}
header,main,nav,footer{max-width:84rem;margin:0 auto;padding:0 1rem}
p,li,h1,h2,h3{max-width:46rem;overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.25}h2{margin-top:2.5rem;border-bottom:1px solid var(--rule)}
h3{margin-top:2rem}
a{color:var(--link)}
a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-99rem;background:var(--bg);padding:.5rem 1rem}
.skip:focus{left:1rem;top:.5rem}
.scroll{overflow-x:auto;margin:1rem 0;background:
linear-gradient(to left,var(--bg) 60%,transparent) right/2.5rem 100% no-repeat local,
linear-gradient(to left,var(--rule),transparent) right/.6rem 100% no-repeat scroll}
table{border-collapse:collapse;font-size:.85rem;line-height:1.35}
caption{text-align:left;font-weight:600;padding:.3rem 0}
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid var(--rule)}
th[scope=row]{font-weight:400;min-width:min(11rem,30vw)}
thead th{background:var(--soft)}
td{font-variant-numeric:tabular-nums}
.num{white-space:pre}
.worse .verdict{color:var(--worse);font-weight:700}.better .verdict{color:var(--better);font-weight:700}
.too-noisy .verdict,.too-few-runs .verdict,.not-judged .verdict{color:var(--odd)}
figure{margin:1.5rem 0;padding:0}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,28rem),1fr));gap:0 2rem;align-items:start}
figcaption{font-weight:600;font-size:.95rem;overflow-wrap:anywhere}
svg{width:100%;max-width:32rem;height:auto;font-size:11px;fill:var(--fg)}
svg .base{fill:var(--base)}svg .patched{fill:var(--patched)}
svg .line{fill:none;stroke-width:1.8}
svg .line.base{stroke:var(--base);stroke-width:4;stroke-dasharray:7 3}svg .line.patched{stroke:var(--patched)}
svg .mark{stroke:var(--bg);stroke-width:1}
svg .rule{stroke:var(--rule);stroke-width:.5}svg .whisker{stroke:var(--fg);stroke-width:1.5}
pre{background:var(--soft);padding:.7rem;overflow-x:auto}
summary{cursor:pointer;padding:.3rem 0}
footer{padding-top:1rem;padding-bottom:3rem}
@media print{nav,.skip{display:none}.scroll{overflow:visible;background:none}table{font-size:.6rem}
th[scope=row]{min-width:0}.num{white-space:pre-line}
tr,figure{break-inside:avoid}h2,h3{break-after:avoid}
details::details-content{content-visibility:visible;height:auto}}
'''


def _html_grid(grid, ident):
    """A table that scrolls within its own region, which the keyboard reaches."""
    body = []
    numbers = {'base', 'patched', 'delta', '95 % interval', 'floor', 'p (Holm)'}
    for i, row in enumerate(grid.rows):
        cells = [f'<th scope="row">{_esc(row[0])}</th>']
        for name, cell in zip(grid.header[1:], row[1:]):
            kind = 'num' if name in numbers else name if name == 'verdict' else ''
            kind = f' class="{kind}"' if kind else ''
            cells.append(f'<td{kind}>{_esc(cell)}</td>')
        mark = f' class="{grid.marks[i]}"' if grid.marks else ''
        body.append(f'<tr{mark}>{"".join(cells)}</tr>')
    head = ''.join(f'<th scope="col">{_esc(cell)}</th>' for cell in grid.header)
    table = (f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{ident}">\n<table>\n'
             f'<caption id="{ident}">{_esc(grid.caption)}</caption>\n<thead><tr>{head}</tr></thead>\n'
             '<tbody>\n' + '\n'.join(body) + '\n</tbody>\n</table>\n</div>')
    if grid.folded:
        return f'<details><summary>{_esc(grid.caption)}</summary>\n{table}\n</details>'
    return table


def html(runs):
    """report.html: one file, nothing loaded, no script."""
    body, contents, title, in_plots = [], [], '', False
    for nr, block in enumerate(document(runs)):
        ident = f'b{nr}'
        if isinstance(block, Plot) != in_plots:
            in_plots = not in_plots
            body.append('<div class="plots">' if in_plots else '</div>')
        if isinstance(block, Heading) and block.level == 1:
            title = block.text
        elif isinstance(block, Heading):
            body.append(f'<h{block.level} id="{ident}">{_esc(block.text)}</h{block.level}>')
            if block.level == 2:
                contents.append(f'<li><a href="#{ident}">{_esc(block.text)}</a></li>')
        elif isinstance(block, Code):
            body.append(f'<pre tabindex="0"><code>{_esc(block.text)}</code></pre>')
        elif isinstance(block, Grid):
            body.append(_html_grid(block, ident))
        elif isinstance(block, Plot):
            body.append(f'<figure>\n<figcaption>{_esc(block.title)}</figcaption>\n{svg(block, ident)}\n'
                        f'{_html_grid(_plot_rows(block), ident + "-n")}\n</figure>')
        else:
            body.append(f'<p>{_esc(block.text)}</p>')
    dates = ', '.join(dict.fromkeys(results.get('date', 'unknown') for results, _, _ in runs))
    return ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<title>{_esc(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n'
            '<a class="skip" href="#main">Skip to the report</a>\n'
            f'<header>\n<h1>{_esc(title)}</h1>\n</header>\n'
            f'<nav aria-label="Contents">\n<ul>\n{chr(10).join(contents)}\n</ul>\n</nav>\n'
            f'<main id="main" tabindex="-1">\n{chr(10).join(body)}\n</main>\n'
            f'<footer>\n<p>Made by make report of mm-reclaim from runs of {_esc(dates)}.</p>\n</footer>\n'
            '</body>\n</html>\n')
