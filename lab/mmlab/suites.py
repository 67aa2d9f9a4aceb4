# SPDX-License-Identifier: GPL-2.0
"""make suites: upstream's own tests, base against patched, test by test.

Both kernels are built with lab/config/suites.config on top, and boot one after the other for
each suite: selftests/mm (vm on 6.1) by the categories of its run_vmtests.sh, the memory tests of
selftests/cgroup, the KUnit suites, and the vm class of stress-ng. lab/suites.sh runs them.

What counts is that no test passes on base and fails on patched. Tests that differ are run
again, on both kernels alike, as one that differs by chance is not a difference. The
operations per second of stress-ng are listed, and judged by no exit code: time under emulation is
not that of a machine.
"""

import dataclasses
import datetime
import json
import math
import os
import re
import shutil
import statistics
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from . import bases, boot, build, cache, deps, ktap, runner, tree as trees
from .bases import ROOT
from .ui import LabError, run, say, stage

CPUS = 2
FLAVOUR = 'suites'
# timeout: that of busybox leaves the children of what it ends. bash: run_vmtests.sh.
TOOLS = ['stress-ng', 'mkfs.xfs', 'mkfs.ext4', 'bash', 'timeout']

# Time that a guest may take over its share before it counts as hung: the last test of it, its
# start, and disks to be made.
GRACE = 300


@dataclass
class Suite:
    """One of SUITES=: how it is booted, and the share of MINUTES= that it may take."""
    memory: int                 # MiB
    share: float
    each: int                   # seconds for a single test
    items: dict                 # base -> what lab/suites.sh is to run, a boot for each line of it
    cmdline: str = 'kunit.enable=0'


# Not run, as the lab's kernels have no modules: hmm, vmalloc, page_frag. Nor are pkey, hugevm,
# pfnmap: their subjects are not those of the series.
# Several boots, so that one that dies takes no more than its own with it.
MM = ['compaction madv_populate process_madv process_mrelease mlock mremap vma_merge rmap mkdirty '
      'soft_dirty pagemap mmap', 'thp', 'ksm ksm_numa memory-failure madv_guard memfd_secret mdwe',
      'hugetlb cow', 'gup_test migration', 'userfaultfd']

SUITES = {
    'mm': Suite(2048, 0.65, 120, {'mainline': MM, '6.1': ['more.sh', 'run_vmtests.sh']},
                'kunit.enable=0 numa=fake=2'),
    'cgroup': Suite(1024, 0.3, 120, {
        'mainline': ['test_memcontrol', 'test_kmem test_zswap test_hugetlb_memcg test_core'],
        '6.1': ['test_memcontrol', 'test_kmem test_core']}),
    # They have run by the time that the guest's init does.
    'kunit': Suite(1024, 0.05, 60, {'mainline': ['all']}, 'kunit.enable=1'),
    'stress-ng': Suite(1024, 0, 30, {'mainline': ['all'], '6.1': ['all']}),
}
# Runs of each kernel: those of all stressors, and those again of stressors that look different.
STRESS, STRESS_AGAIN = 3, 3

_MARK = re.compile(r'MMLAB: suite (begin|end|late) (\S+) (\S+)(?: (\d+) (\d+))?$')
_ROW = re.compile(r'((?:# )*)((?:not ok|ok) \d+.*)')
_RUNNING = re.compile(r'(?:# )?running (\S.*)')
_LEGACY = re.compile(r'(?:# )?\[(PASS|SKIP|FAIL)\]')
_SKIP = re.compile(r'(?<!x)\bSKIP\b(?!:\d):?\s*(\S.*)|\[SKIP\]\s*(\S.*)', re.I)
# stress-ng: metrc: [71] mmap   82   2.02   0.11   1.92   40.62   40.44
_METRIC = re.compile(r'stress-ng: \w+:\s+\[\d+\] (\S+)\s+(\d+)((?:\s+\d+\.\d+){5})')
_CHANGING = re.compile(r'0x[0-9a-f]+|\b[0-9a-f]{8,}\b')

# Why a test does not run, in the words of the tests.
REASONS = (
    ('no module, or not in this kernel',
     r'module|not available|not supported|no kernel support|CONFIG_'),
    ('huge pages: too few, or sizes that are not there', r'huge|hugetlb|thp size|memory'),
    ('a library or a program that is not there', r'liburing|io_uring|program|command'),
)


@dataclass
class Item:
    """What one item came to: {row: (status, reason)}, and the seconds it took."""
    rows: dict
    seconds: int = 0
    late: bool = False
    text: list = dataclasses.field(default_factory=list)


def add(rows, name, status, reason=''):
    """Add a row; a name that is there gets a number."""
    name = _CHANGING.sub('*', ' '.join(name.split()))
    free, nr = name, 1
    while free in rows:
        nr += 1
        free = f'{name} ({nr})'
    rows[free] = (status, reason)


def read_item(suite, item, lines, code):
    """The rows of one item.

    Two levels are told apart: the test, with "test" as its name, and what it says of its own
    parts, "test: part". Each is a row of its own, as a test can fail with all parts passed.
    """
    rows, test, skip, legacy = {}, item, '', None

    def close():
        if legacy:
            status = {'PASS': 'pass', 'SKIP': 'skip', 'FAIL': 'fail'}[legacy]
            add(rows, test, status, skip if status == 'skip' else '')

    for line in lines:
        running, row = _RUNNING.fullmatch(line), _ROW.fullmatch(line)
        mark, why = _LEGACY.fullmatch(line), _SKIP.search(line)
        if running:
            close()
            test, skip, legacy = re.sub(r'^(bash )?\./', '', running.group(1)), '', None
        elif row:
            got = ktap._parse_row(ktap._ROW.fullmatch(row.group(2).strip()))
            status = {'ok': 'pass', 'not ok': 'fail', 'skip': 'skip'}[got.status]
            exit_code = re.search(r'# exit=(\d+)$', line)
            if suite == 'mm' and not row.group(1):
                reason = {'124': 'timed out', '137': 'killed'}.get(
                    exit_code and exit_code.group(1), exit_code.group(0)[2:] if exit_code else '')
                add(rows, test, status, reason or (skip if status == 'skip' else ''))
            else:
                add(rows, f'{test}: {got.name or got.number}', status, got.reason)
                skip = got.reason if status == 'skip' and got.reason else skip
        elif mark and suite == 'vm':
            legacy = mark.group(1)
        elif why and not mark:
            skip = (why.group(1) or why.group(2)).strip()
    close()
    if suite == 'cgroup':
        add(rows, item, {0: 'pass', ktap.KSFT_SKIP: 'skip'}.get(code, 'fail'),
            'timed out' if code == 124 else skip if code == ktap.KSFT_SKIP else f'exit {code}')
    return rows


def kunit_rows(tree, lines):
    """The rows of a KUnit suite, as the tree's own parser has them."""
    with tempfile.TemporaryDirectory() as tmp:
        log = Path(tmp) / 'log'
        log.write_text('\n'.join(lines) + '\n')
        run(['python3', str(tree.path / 'tools/testing/kunit/kunit.py'), 'parse',
             f'--json={tmp}/json', str(log)], check=False, cwd=tmp,
            env={'PYTHONDONTWRITEBYTECODE': '1'})
        try:
            group = json.loads((Path(tmp) / 'json').read_text())
        except (OSError, ValueError) as err:
            raise LabError(f'kunit.py parse of {tree.base.name} makes no result: {err}') from err
    rows = {}

    def walk(node, name):
        for case in node.get('test_cases', []):
            add(rows, f'{name}{case["name"]}', {'PASS': 'pass', 'SKIP': 'skip'}.get(
                case['status'], 'fail'), 'crashed' if case['status'] == 'ERROR' else '')
        for sub in node.get('sub_groups', []):
            walk(sub, f'{name}{sub["name"]}: ')
    walk(group, '')
    if not rows:
        add(rows, 'a result', 'fail', 'kunit.py parse found none')
    return rows


def read_log(text, tree=None):
    """All that a boot says: ({item: Item}, {splat: count}, whether it came to its end)."""
    items, lines, current = {}, [], ''
    clean = [ktap._ANSI.sub('', line) for line in re.sub('[\r\0]', '', text).split('\n')]
    for line in ktap._user_lines(clean):
        mark = _MARK.match(line)
        if not mark:
            lines.append(line)
            continue
        what, suite, item, code, seconds = mark.groups()
        if what == 'late':
            items[item] = Item({}, late=True)
        elif what == 'begin':
            lines, current = [], item
            items[item] = Item({})
        elif item == current:
            rows = (kunit_rows(tree, lines) if suite == 'kunit' else
                    {} if suite == 'stress-ng' else read_item(suite, item, lines, int(code)))
            items[item] = Item(rows, int(seconds), text=lines)
            current = ''
    if current:                     # the guest did not live to see its end
        items[current] = Item(read_item('', current, lines, -1), text=lines)
    splats = Counter()
    for line in clean:
        stamp = ktap._STAMP.search(line)
        splat = ktap._splat(line[stamp.end():].strip()) if stamp else None
        if splat:
            # Lines and addresses move with a patch, what it is about does not.
            splats[f'{splat[0]}: ' + re.sub(r'(:|\+0x|/0x|: )?\b(0x)?[0-9a-f]*\d[0-9a-f]*\b', '',
                                            re.sub(r'CPU: \d+ (UID: \d+ )?PID: \d+', '',
                                                   splat[1]))[:120]] += 1
    return items, splats, '\nMMLAB: end' in text.replace('\r', '')


def metrics(items):
    """{stressor: operations per second of real time} of a boot."""
    rates = {}
    for item in items.values():
        for line in item.text:
            match = _METRIC.search(line)
            if match and float(match.group(3).split()[0]) > 0:
                rates[match.group(1)] = float(match.group(3).split()[3])
    return rates


def guest_of(items):
    """The item that stands for the guest which ran these."""
    return f'the guest of {" ".join(items)}'


def by_chance(base, patched):
    """Probability, one-sided, of patched failing this much more often: Fisher's exact test.

    Both are lists of True for a pass.
    """
    failed, passed = (base + patched).count(False), (base + patched).count(True)
    size = len(patched)
    return sum(math.comb(failed, k) * math.comb(passed, size - k)
               for k in range(patched.count(False), min(failed, size) + 1)
               if size - k <= passed) / math.comb(failed + passed, size)


def judge(base, patched):
    """The verdict of one row from the statuses of its runs on both kernels.

    worse: passes on base each time, and on patched never; or so much more rarely that chance
    does that one time in twenty. A row that is not there has not passed.
    """
    if set(base) == set(patched) and len(set(base)) == 1:
        return 'same'
    if 'late' in base or 'late' in patched:
        return 'not run'
    good = [status == 'pass' for status in base], [status == 'pass' for status in patched]
    if 'skip' in base + patched and not ('fail' in base + patched or 'missing' in base + patched):
        return 'skips'
    if all(good[0]) and not any(good[1]) or by_chance(*good) <= 0.05:
        return 'worse'
    if all(good[1]) and not any(good[0]) or by_chance(good[1], good[0]) <= 0.05:
        return 'better'
    if sum(good[0]) == sum(good[1]) and not any(good[0]):
        return 'fails otherwise'
    return 'flaky'


def compare(runs):
    """Judge all rows: {(suite, item, row): (verdict, statuses on base, on patched, reason)}.

    runs: {(suite, kernel): [{item: Item}]}.
    """
    table = {}
    for suite in dict.fromkeys(suite for suite, _ in runs):
        boots = {kern: runs.get((suite, kern), []) for kern in ('base', 'patched')}
        rows = dict.fromkeys((item, row) for kern in boots for items in boots[kern]
                             for item in items for row in items[item].rows)
        for item, row in rows:
            got, why = {}, []
            for kern, all_items in boots.items():
                got[kern] = []
                for items in all_items:
                    if item not in items:
                        continue
                    status, reason = items[item].rows.get(row, (
                        'late' if items[item].late else 'missing', ''))
                    got[kern].append(status)
                    why += [reason] if reason else []
            # Both kernels get the same number of runs, or a run says nothing.
            size = min(map(len, got.values()))
            got = {kern: statuses[:size] for kern, statuses in got.items()}
            if size:
                table[suite, item, row] = (judge(got['base'], got['patched']), got['base'],
                                           got['patched'], '; '.join(dict.fromkeys(why)))
    return table


def brief(statuses):
    """Statuses of several runs in few words: "pass", "2 fail, 1 pass"."""
    count = Counter(statuses)
    if len(count) == 1:
        return statuses[0]
    return ', '.join(f'{n} {status}' for status, n in sorted(count.items()))


def different(rates, least=2):
    """Stressors whose runs on both kernels do not overlap: {name: median's change in %}.

    rates: {stressor: ([base], [patched])}. Beyond the spread means that the gap between the two
    is wider than the runs of either kernel are apart.
    """
    found = {}
    for name, (base, patched) in rates.items():
        if min(len(base), len(patched)) < least:
            continue
        gap = max(min(patched) - max(base), min(base) - max(patched))
        if gap > max(max(base) - min(base), max(patched) - min(patched)):
            found[name] = (statistics.median(patched) / statistics.median(base) - 1) * 100
    return found


def why_skipped(reason):
    """One of a few kinds for the reason of a skip."""
    for kind, regex in REASONS:
        if re.search(regex, reason, re.I):
            return kind
    return 'other' if reason else 'no reason given'


def tables(base, table, splats, rates):
    """The report in markdown, worsened first."""
    lines = []
    for suite in dict.fromkeys(key[0] for key in table):
        own = {key: value for key, value in table.items() if key[0] == suite}
        kinds = Counter(brief(v[1]) if v[0] == 'same' else v[0] for v in own.values())
        lines.append(f'{suite}: {len(own)} tests: ' +
                     ', '.join(f'{n} {kind}' for kind, n in kinds.most_common()))
    for verdict, title in (('worse', 'Pass on base, fail on patched'),
                           ('flaky', 'Differ from run to run'),
                           ('fails otherwise', 'Fail in another way'),
                           ('skips', 'Skipped in some runs'),
                           ('not run', 'Not run in time on one of them'),
                           ('better', 'Fail on base, pass on patched')):
        found = [(key, value) for key, value in table.items() if value[0] == verdict]
        lines += ['', f'## {title}: {len(found)}']
        if found:
            lines += ['', '| test | base | patched | |', '|---|---|---|---|']
            lines += [f'| {" ".join(key[:2])}: {key[2]} | {brief(value[1])} | {brief(value[2])} | '
                      f'{value[3]} |' for key, value in found]
    same = [(key, value) for key, value in table.items() if value[0] == 'same']
    failed = [(key, value) for key, value in same if value[1][0] == 'fail']
    lines += ['', f'## Fail on both: {len(failed)}', '']
    lines += [f'- {" ".join(key[:2])}: {key[2]}' + (f' ({value[3]})' if value[3] else '')
              for key, value in failed]
    skipped = Counter((key[0], why_skipped(value[3]), value[3]) for key, value in same
                      if value[1][0] == 'skip')
    lines += ['', f'## Skipped on both: {sum(skipped.values())}', '', '| suite | tests | why |',
              '|---|---|---|']
    lines += [f'| {suite} | {n} | {kind}{": " + reason if reason else ""} |'
              for (suite, kind, reason), n in sorted(skipped.items())]
    lines += ['', '## What the kernels say', '']
    lines += [f'- {name}: {got[0]} on base, {got[1]} on patched' for name, got in splats.items()]
    if not splats:
        lines.append('no splat on either')
    if rates:
        apart = different(rates)
        lines += ['', f'## stress-ng, operations a second: {len(apart)} of {len(rates)} apart', '',
                  'Real time under emulation, which is not that of a machine.', '',
                  '| stressor | n | base | patched | medians | |', '|---|---|---|---|---|---|']
        for name in sorted(rates, key=lambda name: (-abs(apart.get(name, 0)), name)):
            runs = [rate for rate in rates[name] if rate]
            if len(runs) < 2:
                lines.append(f'| {name} | 0 | | | | no rate |')
                continue
            change = (statistics.median(runs[1]) / statistics.median(runs[0]) - 1) * 100
            spread = ' | '.join(f'{min(rate):.2f}..{max(rate):.2f}' for rate in runs)
            lines.append(f'| {name} | {min(map(len, runs))} | {spread} | {change:+.1f} % | '
                         f'{"beyond the spread" if name in apart else ""} |')
    return [f'# Upstream\'s tests on {base.name}, base against patched', '', *lines]


def options():
    """(bases, suites, runs, minutes, lru) as the user wants them."""
    picked = bases.pick_bases(os.environ.get('BASE') or 'mainline')
    names = (os.environ.get('SUITES') or ','.join(SUITES)).split(',')
    for name in names:
        if name not in SUITES:
            raise LabError(f'SUITES={name} is not known', f'one of {", ".join(SUITES)}')
    try:
        repeats = int(os.environ.get('RUNS') or 1)
        minutes = int(os.environ.get('MINUTES') or 15)
    except ValueError as err:
        raise LabError(f'RUNS= and MINUTES= take numbers: {err}') from err
    if repeats < 1 or minutes < 1:
        raise LabError('RUNS= and MINUTES= start at 1')
    lru = os.environ.get('LRU') or 'classic'
    if lru not in ('classic', 'mglru'):
        raise LabError(f'LRU={lru} is not known', 'one of classic, mglru')
    return picked, names, repeats, minutes, lru


def prepare(base, names):
    """Both kernels and an initramfs: (tree, [base, patched], {suite: image})."""
    # The tests of the patched tree for both: they are those of the base, and the series' own.
    tree, kerns, tests_dir, *_ = runner.pair(base, runner.Options(), bases.pick_tests(''),
                                             ['cgroup'])
    with stage('image'):
        return tree, kerns, images(tree, tests_dir, names)


def images(tree, tests_dir, names):
    """An initramfs for each suite: {suite: path}."""
    made = {}
    # pthread_cancel() loads it when it is called, so ldd does not name it.
    unwind = os.path.realpath(run(['gcc', '-print-file-name=libgcc_s.so.1'])[1].strip())
    for name in names:
        extra = {'/tests/suites.sh': ROOT / 'lab/suites.sh',
                 '/tests/guest.sh': ROOT / 'lab/guest.sh',
                 '/usr/lib/libgcc_s.so.1': Path(unwind)}
        source = {'mm': tests_dir, 'cgroup': tests_dir.parent / 'cgroup'}.get(name)
        for path in sorted(source.rglob('*')) if source else []:
            if path.is_file():
                extra[f'/suites/{source.name}/{path.relative_to(source)}'] = path
        made[name] = build.image(tests_dir, [], TOOLS, extra)
    return made


class Boots:
    """Boots of one base, and what they came to; a log that is there is not made again."""

    def __init__(self, base, minutes, lru):
        self.base, self.minutes, self.lru = base, minutes, lru
        self.tree, self.kerns, self.images = None, None, None
        self.runs, self.splats, self.rates, self.late, self.work = {}, {}, {}, [], None

    def start(self, names):
        """Build what is booted."""
        self.tree, self.kerns, self.images = prepare(self.base, names)
        self.place()

    def place(self):
        """Where the logs go: made of all that a boot depends on."""
        self.work = cache.path('runs', 'suites-' + cache.digest(
            *[kern.key for kern in self.kerns], *map(str, self.images.values()), self.lru,
            str(self.minutes), boot.qemu_version(), repr(SUITES)))
        done = len(list(self.work.glob('logs/*.log')))
        if done:
            say(f'going on with an interrupted run: {done} boots are done')

    def one(self, kern, name, items, nr, seconds):
        """One boot; what it says is kept. Returns the seconds that its items took."""
        suite = SUITES[name]
        program = {('mm', '6.1'): 'vm'}.get((name, self.base.name), name)
        guest = bases.Test('suites.sh', '', '', suite.memory, CPUS, seconds + GRACE, [],
                           suite.cmdline if self.base.name == 'mainline' else
                           suite.cmdline.replace('kunit.enable=0', '').strip())
        # Splats are rows here: the tests after one are wanted as well.
        more = f'panic_on_warn=0 mmlab.args={program},{seconds},{suite.each},{"+".join(items)}'
        log = self.work / 'logs' / f'{name}-{cache.digest(*items)[:6]}-{kern.name}-{nr}.log'
        if not log.exists():
            boot.boot(boot.command(kern.image, self.images[name], guest, self.lru, 'tcg', CPUS,
                                   boot.tsc_khz(), more), log, guest.timeout + boot.BOOT_SECONDS)
        text = log.read_text(errors='replace')
        broken = re.search(r'MMLAB: cannot (.*)', text)
        if broken:
            raise LabError(f'{name} on {kern.name}: the guest cannot {broken.group(1).strip()}',
                           f'see {log}')
        got, splats, ended = read_log(text, self.tree)
        if not got:
            raise LabError(f'{name} on {kern.name}: no test ran: {boot.judge(log).reason}',
                           f'see {log}')
        spent = sum(item.seconds for item in got.values())
        if name == 'stress-ng':
            for stressor, rate in metrics(got).items():
                self.rates.setdefault(stressor, ([], []))[kern.name == 'patched'].append(rate)
        else:
            # What the guest did not live to start has not passed.
            for item in items if name != 'kunit' else ():
                got.setdefault(item, Item({}))
            got[guest_of(items)] = Item({'it comes to its end': ('pass', '') if ended else
                                         ('fail', boot.judge(log).reason)})
            self.runs.setdefault((name, kern.name), []).append(got)
            late = [item for item in got if got[item].late]
            self.late += [f'{name} {item} ({kern.name})' for item in late]
        for splat, count in splats.items():
            self.splats.setdefault(splat, [0, 0])[kern.name == 'patched'] += count
        rows = Counter(status for item in got.values() for status, _ in item.rows.values())
        say(f'    {kern.name} {name} {" ".join(items)} {nr}: {spent} s, ' +
            (', '.join(f'{n} {status}' for status, n in sorted(rows.items())) or
             f'{len(metrics(got))} rates') + ('' if ended else '; it did not come to its end'))
        return spent

    def both(self, name, items, nr, seconds=900):
        """One boot of each kernel; the seconds of the longer one."""
        return max([self.one(kern, name, items, nr, seconds) for kern in self.kerns])

    def suite(self, name, repeats):
        """All boots of a suite: the first, and those again of items with a row that differs."""
        if name == 'stress-ng':
            for nr in range(1, STRESS + 1):
                self.both(name, ['all'], nr)
            again = sorted(different(self.rates))
            for nr in range(STRESS + 1, STRESS + STRESS_AGAIN + 1) if again else ():
                self.both(name, again, nr)
            return
        left = int(self.minutes * 60 * SUITES[name].share)
        for group in SUITES[name].items[self.base.name]:
            items = group.split()
            if left > 0:
                left -= self.both(name, items, 1, left)
            else:
                say(f'    {name} {group}: no time left: MINUTES= takes more')
                self.late += [f'{name} {item}' for item in items]
        table = compare({key: value for key, value in self.runs.items() if key[0] == name})
        for group in SUITES[name].items[self.base.name]:
            items = group.split()
            again = [item for item in items if name == 'kunit' or any(
                value[0] not in ('same', 'not run') and key[1] in (item, guest_of(items))
                for key, value in table.items())]
            if name == 'kunit' and all(value[0] == 'same' for value in table.values()):
                continue
            for nr in range(2, repeats + 2) if again else ():
                self.both(name, again, nr)


def one_base(base, names, repeats, minutes, lru, target):
    """A base: the number of tests that are worse."""
    base = dataclasses.replace(base, flavour=FLAVOUR)
    names = [name for name in names if base.name in SUITES[name].items]
    boots = Boots(base, minutes, lru)
    boots.start(names)
    with stage('boot', f'{base.name}: {", ".join(names)}; {CPUS} vCPUs, {lru}'):
        for name in names:
            boots.suite(name, repeats)
    table = compare(boots.runs)
    worse = sum(value[0] == 'worse' for value in table.values())
    # A splat is a failure of the kernel, whatever test has made it.
    worse += sum(bool(got[1] and not got[0]) for got in boots.splats.values())
    command = (f'make suites BASE={base.name} SUITES={",".join(names)} RUNS={repeats} '
               f'MINUTES={minutes} LRU={lru}')
    head = [f'{datetime.date.today()}, `{command}`; {boot.qemu_version()}, {CPUS} vCPUs, on '
            f'{boot.host()}; {build.compiler()}', '']
    text = tables(base, table, boots.splats, boots.rates)
    if boots.late:
        head += [f'Not run on either, as MINUTES={minutes} were over: {", ".join(boots.late)}', '']
    text[1:1] = ['', *head]
    done = target / f'suites-{datetime.datetime.now():%Y%m%d-%H%M%S}-{base.name}'
    boots.work.mkdir(parents=True, exist_ok=True)
    (boots.work / 'report.md').write_text('\n'.join(text) + '\n')
    (boots.work / 'results.json').write_text(json.dumps(
        {'command': command, 'rates': boots.rates, 'splats': boots.splats,
         'rows': [{'suite': key[0], 'item': key[1], 'row': key[2], 'verdict': value[0],
                   'base': value[1], 'patched': value[2], 'reason': value[3]}
                  for key, value in table.items()]}, indent=1) + '\n')
    shutil.move(str(boots.work), str(done))
    print('\n'.join(text))
    print(f'\n{worse} worse of {len(table)} tests on {base.name}; {done}/report.md')
    return worse


def main():
    """make suites [BASE=] [SUITES=mm,cgroup,kunit,stress-ng] [RUNS=1] [MINUTES=15] [LRU=classic]"""
    picked, names, repeats, minutes, lru = options()
    deps.ensure(deps.RUN, TOOLS)
    cache.lock()
    target = Path(os.environ.get('RESULTS') or ROOT / 'results')
    target.mkdir(parents=True, exist_ok=True)
    return 1 if sum(one_base(base, names, repeats, minutes, lru, target) for base in picked) else 0
