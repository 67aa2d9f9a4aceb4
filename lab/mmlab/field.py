# SPDX-License-Identifier: GPL-2.0
"""make field: which of the problems does each kernel have that people run today?

The paired tests on kernels as Debian built them (lab/field.conf): nothing is compiled but the
tests, against the headers of this machine, and init. A kernel of a distribution has as modules
what the lab's has built in; they go into the initramfs, and init loads them.

A row that fails here means something if it is one that a reported problem is known to fail:
Expect-fail in the series files and in the mutants. A row that is skipped says nothing.
"""

import datetime
import json
import lzma
import os
import re
import shutil
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from . import bases, boot, build, cache, deps, fetch, report, runner
from .bases import ROOT
from .ui import LabError, run, say, stage

# What the tests use and the kernel may have as a module; what these need comes with them.
# zsmalloc: zswap's pool.
MODULES = ('configfs', 'null_blk', 'loop', 'ext4', 'xfs', 'zsmalloc')

# No kernel is built: the compiler is for the tests.
PACKAGES = ('gcc', 'libc6-dev', 'make', 'kmod', 'python3', 'linux-libc-dev', 'qemu-system-x86',
            'busybox-static', 'debian-archive-keyring', 'libc-bin', 'libarchive-tools')

# Such a kernel has ten times as much built in as the lab's, and takes as long to get to init.
BOOT_SECONDS = 4 * boot.BOOT_SECONDS

# How often a guest is booted that dies of what is not its own.
ATTEMPTS = 3

# A guest can emulate two nodes by itself where CONFIG_NUMA_EMU is on; else QEMU makes them.
FAKE_NODES = 'numa=fake=2'

HAS, NOT, UNKNOWN, LACKS = 'has it', 'does not', 'cannot tell', 'no MGLRU'


@dataclass
class Kernel:
    """A kernel of lab/field.conf, and what was found for it."""
    name: str
    line: str
    package: str
    suites: list
    what: str
    version: str = ''
    suite: str = ''
    debs: list = field(default_factory=list)
    release: str = ''
    image: Path = None
    config: dict = field(default_factory=dict)
    modules: list = field(default_factory=list)     # [(path in the guest, path here)]
    missing: list = field(default_factory=list)     # of MODULES: neither module nor built in
    note: str = ''


def load(path=ROOT / 'lab/field.conf'):
    """All kernels of a field.conf by name, in the order of the file."""
    kernels = {}
    for entry in bases.stanzas(path):
        try:
            kern = Kernel(entry['Name'], entry['Line'], entry['Package'], entry['Suites'].split(),
                          entry['What'])
        except KeyError as err:
            raise LabError(f'{path.name}: a stanza lacks {err}') from err
        if kern.name in kernels:
            raise LabError(f'{path.name}: {kern.name} is declared twice')
        if not kern.suites:
            raise LabError(f'{path.name}: {kern.name}: Suites: names none')
        kernels[kern.name] = kern
    return kernels


def pick(names):
    """The kernels that KERNELS= names; all when it is empty."""
    kernels = load()
    if not names.strip():
        return list(kernels.values())
    picked = []
    for name in re.split(r'[ ,]+', names.strip()):
        if name not in kernels:
            raise LabError(f'KERNELS={name} is not declared', f'one of {", ".join(kernels)}')
        picked.append(kernels[name])
    return picked


# --- getting kernels ---------------------------------------------------------

def of_line(version, line):
    """Whether a Debian version is of a line: 6.1.192-3 is of 6.1, and 6.12.118-1 is not."""
    return bool(re.match(re.escape(line) + r'(?![0-9])', version))


def newest(kern, found):
    """What to take of [(version, suite)], the newest first: (version, suite, what to say of it)."""
    own = [pair for pair in found if pair[1] in kern.suites]
    if not own:
        raise LabError(f'{kern.package} is in none of: {", ".join(kern.suites)}',
                       f'change the stanza {kern.name} in lab/field.conf')
    match = [pair for pair in own if of_line(pair[0], kern.line)]
    if match:
        return *match[0], ''
    return *own[0], (f'{kern.name}: there is no {kern.line} in {", ".join(kern.suites)} any more: '
                     f'this is {own[0][0]}')


def _known(kern):
    """Where it is kept what was taken for a kernel last."""
    return cache.path('field', f'{kern.name}.json')


def get(kernels):
    """Download the kernels, the newest of their suites; without a network what there is already."""
    suites = list(dict.fromkeys(suite for kern in kernels for suite in kern.suites))
    root = None
    try:
        root, env = fetch.update('the kernels', suites, 'try again later')
    except LabError as err:
        if not all(_known(kern).exists() for kern in kernels):
            raise
        say(f'!!! {err.what}: taking the kernels of the last time')
    for kern in kernels:
        if root is None:
            known = json.loads(_known(kern).read_text())
            kern.version, kern.suite, kern.note = known['version'], known['suite'], known['note']
            kern.debs = [Path(deb) for deb in known['debs']]
        else:
            kern.version, kern.suite, kern.note = newest(kern, fetch.madison(env, kern.package))
            if kern.note:
                say(f'!!! {kern.note}')
            cache.need_space(f'the kernel {kern.name}', 500)
            kern.debs = [fetch.download(root, env, name, kern.version) for name in
                         fetch.same_version(env, kern.package, kern.version)]
            _known(kern).write_text(json.dumps(
                {'version': kern.version, 'suite': kern.suite, 'note': kern.note,
                 'debs': [str(deb) for deb in kern.debs]}))
        say(f'    {kern.name}: {kern.version} of {kern.suite}')


def _one(kern, top, *patterns):
    """The one file of a package that has one of some names."""
    found = [path for pattern in patterns for path in top.glob(pattern)]
    if len(found) != 1:
        raise LabError(f'{kern.package} {kern.version} has {len(found)} files '
                       f'{" or ".join(patterns)}, and should have one',
                       f'look into {top}, and change lab/field.conf')
    return found[0]


def unpack(kern):
    """Unpack a kernel into the cache; sets image, release, config and modules."""
    top = cache.path('field', f'{kern.name}-{kern.version}')
    if not top.exists():
        part = top.with_name(top.name + '.part')
        shutil.rmtree(part, ignore_errors=True)
        (part / 'usr/lib').mkdir(parents=True)
        (part / 'lib').symlink_to('usr/lib')        # which of the two depends on the suite
        for deb in kern.debs:
            run(['bash', '-o', 'pipefail', '-c',
                 'dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"', 'bash',
                 str(deb), str(part)])
        release = _one(kern, part, 'lib/modules/*/modules.builtin').parent.name
        run(['depmod', '-b', str(part), release], env={'PATH': deps.sbin()})
        for old in top.parent.glob(f'{kern.name}-*/'):
            if old != part:
                shutil.rmtree(old)          # of a version before: 100 MiB
        cache.replace(part, top)
    kern.release = _one(kern, top, 'lib/modules/*/modules.builtin').parent.name
    kern.image = _one(kern, top, f'boot/vmlinuz-{kern.release}',
                      f'lib/modules/{kern.release}/vmlinuz')
    config = _one(kern, top, f'boot/config-{kern.release}', f'lib/modules/{kern.release}/config')
    kern.config = dict(line.split('=', 1) for line in config.read_text().splitlines()
                       if line.startswith('CONFIG_'))
    lib = top / 'lib/modules' / kern.release
    paths, kern.missing = choose(*[(lib / f'modules.{name}').read_text()
                                   for name in ('dep', 'softdep', 'builtin')])
    kern.modules = []
    for nr, path in enumerate(paths):
        name = f'{nr:03}-{_module(path)}.ko'
        plain = cache.path('field', top.name, 'plain', name)
        plain.write_bytes(_plain(lib / path))
        kern.modules.append((f'/modules/{name}', plain))


def _module(path):
    """The name of a module, which has no '-', of its file."""
    return Path(path).name.partition('.ko')[0].replace('-', '_')


def _plain(path):
    """The contents of a module that may be compressed."""
    data = path.read_bytes()
    if path.name.endswith('.ko.xz'):
        return lzma.decompress(data)
    if not path.name.endswith('.ko'):
        raise LabError(f'{path.name}: no way is known to unpack that', 'add one to field.py')
    return data


def choose(dep, softdep, builtin, wanted=MODULES):
    """The modules to load for `wanted`, in order, and those the kernel has in no form.

    The arguments are the contents of modules.dep, modules.softdep and modules.builtin. A line of
    modules.dep has all that a module needs, and what is to be loaded first comes last.
    """
    files, needs = {}, {}
    for line in dep.splitlines():
        path, _, rest = line.partition(':')
        files[_module(path)] = path
        needs[_module(path)] = [_module(other) for other in reversed(rest.split())]
    before = {}
    for line in softdep.splitlines():
        match = re.match(r'softdep (\S+) (?:post: .*?)?pre: (.*?)(?: post: .*)?$', line)
        if match:
            before[match.group(1).replace('-', '_')] = match.group(2).replace('-', '_').split()
    inside = {_module(path) for path in builtin.split()}
    order = []

    def add(name, above=()):
        # Of two that name each other, neither has to be first.
        if name in order or name in above or name not in files:
            return
        for other in needs[name] + before.get(name, []):
            add(other, (*above, name))
        order.append(name)

    for name in wanted:
        add(name)
    return ([files[name] for name in order],
            [name for name in wanted if name not in files and name not in inside])


def selftests():
    """Build the tests alone, against the headers of this machine: the directory they are in."""
    sources = sorted(path for path in (ROOT / 'selftests').rglob('*')
                     if path.suffix in ('.c', '.h') or path.name == 'Makefile')
    done = cache.path('selftests', 'field-' + cache.digest(build.compiler(), *sources))
    if not done.exists():
        part = done.with_name(done.name + '.part')
        shutil.rmtree(part, ignore_errors=True)
        for path in sources:
            target = part / path.relative_to(ROOT / 'selftests')
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        run(['make', '-C', str(part), f'-j{build.JOBS}', 'all'], log=cache.path('log', 'field.log'))
        cache.replace(part, done)
    return done


# --- verdicts ----------------------------------------------------------------

def telling():
    """Rows that are known to fail for a reported problem, for any base and LRU: {test: names}."""
    known = {}
    for base in bases.load_bases().values():
        series = bases.load_series(base)
        for expect in [series.expect, *[patch.expect for patch in series.patches],
                       *[mutant.expect for mutant in bases.load_mutants(base)]]:
            for (test, _), rows in expect.items():
                known.setdefault(test, set()).update(rows)
    return known


def unfixed():
    """Rows that fail on some unpatched base: {(test, lru): names}."""
    known = {}
    for base in bases.load_bases().values():
        for key, rows in bases.load_series(base).expect.items():
            known.setdefault(key, set()).update(rows)
    return known


def verdict(result, wanted, tells, key_rows):
    """What a boot says of a kernel: (HAS, NOT or UNKNOWN, why).

    wanted: (test, LRU kind) that it was to run. tells: the rows that fail for a reported problem.
    key_rows: those of them without which there is no saying that the kernel does not have it.
    """
    if result.status not in ('PASS', 'FAIL', 'SKIP'):
        return UNKNOWN, f'{result.status}: {result.reason}'
    if (result.test, result.lru) != wanted:
        return UNKNOWN, f'the guest ran {result.test} {result.lru}'
    failed = [row.name for row in result.rows if row.status == 'not ok']
    if tells.intersection(failed):
        return HAS, f'left behind: {", ".join(result.leaks)}' if result.leaks else ''
    if failed:
        return UNKNOWN, f'a row fails that no reported problem is known to: {"; ".join(failed)}'
    checked = {row.name for row in result.rows if row.status == 'ok'}
    if not checked:
        return UNKNOWN, f'nothing was checked: {result.reason}'
    # A skipped row has its reason appended to its name.
    lost = [name for name in sorted(key_rows) for row in result.rows
            if row.status == 'skip' and (row.name == name or row.name.startswith(name + ':'))]
    if lost:
        return UNKNOWN, f'skipped: {"; ".join(lost)}'
    return NOT, ''


def entry(kern, test, lru, n, result, judged):
    """One boot as it is kept in results.json."""
    word, why = judged
    count = [sum(row.status == status for row in result.rows) for status in ('not ok', 'skip')]
    return {'kernel': kern.name, 'test': test.name, 'lru': lru, 'n': n, 'status': result.status,
            'reason': result.reason, 'verdict': word, 'why': why, 'failed': count[0],
            'skipped': count[1], 'rows': [asdict(row) for row in result.rows],
            'notes': result.notes, 'seconds': result.seconds, 'tail': result.tail}


def crashed(run_):
    """Whether a boot came to no result."""
    return run_['status'] not in ('PASS', 'FAIL', 'SKIP')


def unchecked(results):
    """Boots that came to no result, and tests of which no row was checked on a kernel."""
    return [r for r in results['runs']
            if crashed(r) or r['skipped'] == len(r['rows'])]


# --- the tables --------------------------------------------------------------

def cell(run_):
    """A boot in a cell of the table."""
    if run_['verdict'] == LACKS:
        return LACKS
    if crashed(run_):
        return f'{UNKNOWN}: {run_["status"]}'
    text = f'{run_["verdict"]} {run_["failed"]}/{len(run_["rows"])}'
    return text + (f', {run_["skipped"]} skipped' if run_['skipped'] else '')


def table(results):
    """Text table: a line for each test and LRU kind, a column for each kernel."""
    kernels = results['kernels']
    lines = []
    for test, lru in dict.fromkeys((r['test'], r['lru']) for r in results['runs']):
        cells = []
        for kern in kernels:
            texts = [cell(r) for r in results['runs']
                     if (r['kernel'], r['test'], r['lru']) == (kern['name'], test, lru)]
            cells.append(', '.join(text + (f' x{texts.count(text)}' if len(texts) > 1 else '')
                                   for text in dict.fromkeys(texts)) or '-')
        lines.append([f'{test} {lru}'] + cells)
    return '\n'.join(report._grid(['problem'] + [kern['version'] for kern in kernels], lines))


def summary(results, kern):
    """One line of a kernel: which problems it has, in short."""
    words = {}
    for test in dict.fromkeys(r['test'] for r in results['runs']):
        mine = [r for r in results['runs'] if (r['kernel'], r['test']) == (kern['name'], test)]
        by_lru = {word: list(dict.fromkeys(r['lru'] for r in mine if r['verdict'] == word))
                  for word in (HAS, NOT, UNKNOWN)}
        for word, kinds in by_lru.items():
            if kinds:
                words.setdefault(word, []).append(f'{test} ({", ".join(kinds)})')
    return (f'FIELD {kern["name"]} {kern["version"]}: ' +
            '; '.join(f'{label}: {", ".join(words[word])}' for word, label in
                      ((HAS, 'has'), (NOT, 'has not'), (UNKNOWN, 'cannot tell')) if word in words))


def _rows(results, wanted):
    """Lines about rows: {line of a kernel and test: [(row, LRU kinds)]} where wanted(row)."""
    found = {}
    for r in results['runs']:
        for row in r['rows']:
            if wanted(row):
                kinds = found.setdefault((r['kernel'], r['test']), {}).setdefault(row['name'], [])
                if r['lru'] not in kinds:
                    kinds.append(r['lru'])
    return found


def details(results):
    """Lists of the rows that fail, of those skipped and of what could not be told."""
    tells = {test: set(rows) for test, rows in results['telling'].items()}
    lines = ['rows that fail:']
    for (kern, test), rows in _rows(results, lambda row: row['status'] == 'not ok').items():
        lines.append(f'  {kern} {test}')
        lines += [f'    {name} ({", ".join(kinds)})' +
                  ('' if name in tells.get(test, ()) else ': not known to fail for the problem')
                  for name, kinds in rows.items()]
    skipped = _rows(results, lambda row: row['status'] == 'skip')
    if skipped:
        lines += ['', 'rows that this kernel cannot do, which says nothing of it:']
    for (kern, test), rows in skipped.items():
        lines.append(f'  {kern} {test}')
        lines += [f'    {name} ({", ".join(kinds)})' for name, kinds in rows.items()]
    for word, head in ((UNKNOWN, 'cannot tell:'), (HAS, 'worth a look:')):
        odd = [r for r in results['runs'] if r['verdict'] == word and r['why']]
        lines += ['', head] if odd else []
        lines += [f'  {r["kernel"]} {r["test"]} {r["lru"]}: {r["why"]}' for r in odd]
    return '\n'.join(lines)


def markdown(results):
    """report.md of a run."""
    about = [[kern['name'], kern['version'], kern['suite'], kern['release'], kern['lru'],
              ' '.join(kern['modules']), ' '.join(kern['missing']) or 'none', kern['what']]
             for kern in results['kernels']]
    facts = [[key, results[key]] for key in ('date', 'qemu', 'mode', 'host', 'compiler')]
    return '\n\n'.join([
        f'# mm-reclaim: {results["run"]}', f'Reproduce: `{results["reproduce"]}`',
        'Kernels as Debian built them, and the tests of `selftests/`. "has it 5/12": of 12 rows '
        '5 fail, some of which are known to fail for the reported problem; "does not": none '
        'fails, and all rows that would tell were checked.',
        report._fenced(table(results)),
        report._fenced('\n'.join(summary(results, kern) for kern in results['kernels'])),
        report._fenced(details(results)),
        report._md_table(['Kernel', 'Version', 'Suite', 'Release', 'LRU by default', 'Modules',
                          'Missing', 'What'], about),
        report._md_table(['What', 'Value'], facts),
        *[f'- {note}' for note in results['notes']]]) + '\n'


# --- the run -----------------------------------------------------------------

def command(opts, names):
    """The line that reproduces a run."""
    words = ['make field'] + ([f'KERNELS={names}'] if names else [])
    for key, value, default in (('TESTS', opts.tests, ''), ('LRU', opts.lru, 'both'),
                                ('MODE', opts.mode, 'auto'), ('CPUS', opts.cpus, 0),
                                ('RUNS', opts.runs, 1)):
        if value != default:
            words.append(f'{key}="{value}"' if ' ' in str(value) else f'{key}={value}')
    return ' '.join(words)


def guest(kern, test):
    """A test as the kernel can do it: (test, more arguments of QEMU)."""
    if FAKE_NODES not in test.cmdline or kern.config.get('CONFIG_NUMA_EMU') == 'y':
        return test, []
    words = [word for word in test.cmdline.split() if word != FAKE_NODES]
    more = []
    for node in range(2):
        more += ['-object', f'memory-backend-ram,id=node{node},size={test.memory // 2}M',
                 '-numa', f'node,nodeid={node},memdev=node{node}']
    return replace(test, cmdline=' '.join(words)), more


def attempt(cmd, log, timeout, notes):
    """Boot, unless the log is there of an interrupted run: a ktap.Result.

    QEMU's MTTCG can lose the race between a vCPU that patches code and one that executes it, of
    which the guest dies with an int3. The lab's own kernels have no jump labels for that; these
    have, and are booted again.
    """
    result = boot.judge(log) if log.exists() else boot.boot(cmd, log, timeout)
    for nr in range(1, ATTEMPTS):
        if result.status != 'OOPS' or 'int3' not in result.reason:
            break
        os.rename(log, log.with_suffix(f'.int3-{nr}'))
        notes.append(f'{log.stem}: the guest died of an int3, which is of QEMU, and was booted '
                     'again')
        say(f'!!! {notes[-1]}')
        result = boot.boot(cmd, log, timeout)
    return result


def default_lru(config):
    """Which LRU a kernel runs on unless told otherwise, in words."""
    if config.get('CONFIG_LRU_GEN') != 'y':
        return 'classic, has no MGLRU'
    return 'mglru' if config.get('CONFIG_LRU_GEN_ENABLED') == 'y' else 'classic'


def field_run(kernels, opts, tests, names):
    """All boots: the results."""
    with stage('fetch', ', '.join(f'{kern.name}: {kern.package}' for kern in kernels)):
        get(kernels)
    with stage('unpack'):
        for kern in kernels:
            unpack(kern)
    with stage('selftests', 'make -C selftests'):
        tests_dir = selftests()
    with stage('image'):
        images = {kern.name: build.image(tests_dir, tests, extra=dict(kern.modules))
                  for kern in kernels}
    cpus = {test.name: opts.cpus or test.cpus for test in tests}
    mode = boot.pick_mode(opts.mode, kernels[0], max(cpus.values()), kernels[0].image,
                          images[kernels[0].name])
    khz = boot.tsc_khz() if mode == 'tcg' else 0
    tells, keys = telling(), unfixed()
    results = {
        'run': datetime.datetime.now().strftime('%Y%m%d-%H%M%S') + '-field',
        'date': datetime.date.today().isoformat(), 'reproduce': command(opts, names),
        'host': boot.host(), 'mode': mode, 'base': 'Debian', 'qemu': boot.qemu_version(),
        'compiler': build.compiler(), 'notes': [kern.note for kern in kernels if kern.note],
        'telling': {test: sorted(rows) for test, rows in tells.items()},
        'kernels': [{'name': kern.name, 'version': kern.version, 'suite': kern.suite,
                     'release': kern.release, 'what': kern.what, 'lru': default_lru(kern.config),
                     'modules': [Path(path).stem.partition('-')[2] for path, _ in kern.modules],
                     'missing': kern.missing} for kern in kernels], 'runs': []}
    jobs = [(n, kern, test, lru) for n in range(1, opts.runs + 1) for kern in kernels
            for test in tests for lru in runner.LRU[opts.lru]]

    def qemu(kern, test, lru):
        test, more = guest(kern, test)
        return boot.command(kern.image, images[kern.name], test, lru, mode, cpus[test.name],
                            khz) + more

    # Everything that a boot depends on: only then is a log of an interrupted run used.
    key = cache.digest(results['qemu'], *[re.sub(r'tsc_early_khz=\d+', '', str(qemu(*job[1:])))
                                          for job in jobs],
                       *[kern.version for kern in kernels], str([t.timeout for t in tests]))
    work = cache.path('runs', key)
    done = len(list(work.glob('logs/*.log')))
    if done:
        say(f'going on with an interrupted run: {done} of {len(jobs)} boots are done')
    with stage('boot', f'{len(jobs)} boots, {mode}'):
        for nr, (n, kern, test, lru) in enumerate(jobs, 1):
            if lru == 'mglru' and kern.config.get('CONFIG_LRU_GEN') != 'y':
                continue
            name = f'{kern.name}-{test.name}-{lru}-{n}.log'
            log = work / 'logs' / name
            result = attempt(qemu(kern, test, lru), log, BOOT_SECONDS + test.timeout,
                             results['notes'])
            judged = verdict(result, (test.name, lru), tells.get(test.name, set()),
                             keys.get((test.name, lru), set()))
            results['runs'].append(dict(entry(kern, test, lru, n, result, judged),
                                        log=f'logs/{name}'))
            say(f'    {nr}/{len(jobs)} {kern.name} {test.name} {lru}: '
                f'{cell(results["runs"][-1])}')
    runner.keep(results, markdown(results), work, opts.results)
    return results


def show(results):
    """Print the table of a run, and what is behind it."""
    print()
    print(table(results))
    print()
    for kern in results['kernels']:
        print(summary(results, kern))
    print()
    print(details(results))
    for note in results['notes']:
        print(f'note: {note}')
    for r in unchecked(results):
        if crashed(r):
            print(f'\n{r["kernel"]} {r["test"]} {r["lru"]}: {r["why"]}; the log ends:')
            print('\n'.join('    ' + line for line in r['tail']))
    print(f'\nresults: {results["dir"]}  (report.md, results.json, logs/)')
    print(f'again:   {results["reproduce"]}')


def main():
    """make field [KERNELS=6.1,6.12,...] [TESTS=] [LRU=] [MODE=] [CPUS=] [RUNS=]"""
    opts = runner.Options.from_env()
    names = os.environ.get('KERNELS') or ''
    kernels, tests = pick(names), bases.pick_tests(opts.tests)
    if opts.mode == 'icount':
        raise LabError('MODE=icount: make field does not boot kernels of a distribution with it',
                       'one of tcg, kvm, auto')
    runner.writable(opts.results)
    deps.ensure({name: deps.RUN[name] for name in PACKAGES},
                [tool for test in tests for tool in test.tools])
    cache.lock()
    results = field_run(kernels, opts, tests, names)
    show(results)
    return int(bool(unchecked(results)))
