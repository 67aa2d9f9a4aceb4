# SPDX-License-Identifier: GPL-2.0
"""make run: from a tree to the before/after table."""

import datetime
import json
import os
import re
import shutil
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from . import bases, boot, build, cache, deps, ktap, report, tree as trees, ui
from .bases import ROOT
from .ui import LabError, git, say, stage

LRU = {'classic': ['classic'], 'mglru': ['mglru'], 'both': ['classic', 'mglru']}

# icount executes one vCPU at a time and counts each instruction.
ICOUNT_SLOWDOWN = 4


@dataclass
class Options:
    """What the user asked for; empty strings are defaults."""
    base: str = 'mainline'
    tests: str = ''
    lru: str = 'both'
    mode: str = 'auto'
    tree: str = ''
    cpus: int = 0
    runs: int = 1
    mutants: bool = True
    results: str = ''
    quick: bool = False         # see wanted()
    vary: object = None         # of the number of a repetition: how it differs from the first
    mutant_runs: int = 0        # repetitions that boot mutants too; 0: all of them
    deadline: float = 0         # seconds after which no more mutants are built or booted

    @classmethod
    def from_env(cls):
        """Options from the make variables of the same names, which arrive as environment."""
        env = os.environ
        try:
            opts = cls(env.get('BASE') or 'mainline', env.get('TESTS', ''), env.get('LRU') or 'both',
                       env.get('MODE') or 'auto', env.get('TREE', ''), int(env.get('CPUS') or 0),
                       int(env.get('RUNS') or 1), env.get('MUTANTS', '1') != '0',
                       env.get('RESULTS') or str(ROOT / 'results'),
                       mutant_runs=int(env.get('MUTANTS') or 0))
        except ValueError as err:
            raise LabError(f'CPUS=, RUNS= and MUTANTS= take numbers: {err}') from err
        if opts.lru not in LRU:
            raise LabError(f'LRU={opts.lru} is not known', f'one of {", ".join(LRU)}')
        if opts.runs < 1 or not 0 <= opts.cpus <= 8 or opts.mutant_runs < 0:
            raise LabError('RUNS= starts at 1, MUTANTS= at 0, CPUS= goes to 8')
        if opts.mode not in ('tcg', 'icount', 'kvm', 'auto'):
            raise LabError(f'MODE={opts.mode} is not known', 'one of tcg, icount, kvm, auto')
        return opts

    def command(self, base):
        """The line that reproduces a run."""
        words = ['make run', f'BASE={base.name}']
        for key, value, default in (('TESTS', self.tests, ''), ('LRU', self.lru, 'both'),
                                    ('MODE', self.mode, 'auto'), ('TREE', self.tree, ''),
                                    ('CPUS', self.cpus, 0), ('RUNS', self.runs, 1)):
            if value != default:
                words.append(f'{key}="{value}"' if ' ' in str(value) else f'{key}={value}')
        if not self.mutants:
            words.append('MUTANTS=0')
        elif 0 < self.mutant_runs < self.runs:
            words.append(f'MUTANTS={self.mutant_runs}')
        return ' '.join(words)


def _tests_are_current(tree, series, patched):
    """A LabError unless the patched tree has the tests that selftests/ has."""
    for patch in series.patches:
        for name in patch.files:
            _, have = git(tree.path, 'show', f'{patched}:{tree.base.selftests}/{name}', check=False)
            if have != (ROOT / 'selftests' / name).read_text():
                raise LabError(f'selftests/{name} is not what {patch.name} has', 'make refresh')


def kernels(tree, tests, mutants=True):
    """The kernels of a base for some tests: base, patched, one without each fix, mutants."""
    base = tree.base
    series = bases.load_series(base)
    names = [t.name for t in tests]
    paths = [p.path for p in series.patches]
    start = tree.commit_of('base')
    patched = trees.apply(tree, 'base', paths, cached='patched')
    version = tree.version
    result = [build.Kernel('base', f'{version} as it is', start, series.expect, names),
              build.Kernel('patched', f'{version} with the series', patched, {}, names, paths)]
    if not mutants:
        return result
    for patch in series.patches:
        paired = [t.name for t in tests if t.topic == patch.topic]
        if patch.is_fix and paired and not patch.by_hand:
            commit = trees.apply_plain(tree, patched, patch.path, True, f'without-{patch.path.stem}')
            result.append(build.Kernel(f'without:{patch.path.stem[:4]}',
                                       f'the series without {patch.path.stem}', commit,
                                       patch.expect, paired, paths))
    for mutant in bases.load_mutants(base):
        if mutant.test in names:
            commit = trees.apply_plain(tree, patched, mutant.path, False, f'mutant-{mutant.name}')
            result.append(build.Kernel(f'mutant:{mutant.name}', mutant.subject, commit,
                                       mutant.expect, [mutant.test], paths + [mutant.path]))
    return result


def wanted(kern, test, lru, quick=False):
    """Whether a kernel is booted for a test with an LRU kind.

    Where one LRU kind does for mutants (Mutant-lru: in tests.conf), the other one is booted for
    those that have rows to fail with it; when time counts (`quick`), only for those that have
    none with the first one, instead of it.
    """
    if test.name not in kern.tests:
        return False
    if kern.name in ('base', 'patched') or test.mutant_lru == 'both':
        return True
    usual = (test.name, test.mutant_lru) in kern.expect
    if lru == test.mutant_lru:
        return usual or not quick
    return (test.name, lru) in kern.expect and not (quick and usual)


def _late(opts, kern):
    """Whether there is no time left for a kernel; base and patched are never left out."""
    return bool(opts.deadline and kern.name not in ('base', 'patched') and
                time.monotonic() - ui.START > opts.deadline)


def prepare(base, opts, tests, more=()):
    """Everything up to the first boot: (tree, kernels, tests, image, config hash).

    more: directories of selftests, besides that of the series, whose programs are built.
    """
    with stage('fetch', f'{base.name}: {opts.tree or base.package + " " + base.version}'):
        tree = trees.get(base, opts.tree)
    with stage('apply', f'{base.series} to {tree.version}'):
        kerns = kernels(tree, tests, opts.mutants)
        _tests_are_current(tree, bases.load_series(base), kerns[1].commit)
    with stage('configure', ' '.join(p.name for p in base.config)):
        config_dir, config_hash = build.configure(tree)
    for kern in kerns:
        if _late(opts, kern):
            continue
        with stage('build', f'{base.name} {kern.name}: {kern.desc}'):
            build.kernel(tree, kern, config_dir, config_hash)
            if kern.bad:
                say(f'!!! {kern.name}: {kern.bad}')
    if kerns[0].bad:
        raise LabError(f'the base kernel does not build: {kerns[0].bad}')
    with stage('selftests', f'make -C tools/testing/selftests TARGETS={base.selftests.split("/")[-1]}'):
        tests_dir = build.selftests(tree, kerns[1].commit, config_dir, more)
    with stage('image'):
        image = build.image(tests_dir, tests)
    return tree, kerns, tests_dir, image, config_hash


def pair(base, opts, tests, more=()):
    """The same for base and patched alone, which both have to build."""
    tree, kerns, *rest = prepare(base, replace(opts, mutants=False), tests, more)
    if kerns[1].bad:
        raise LabError(f'the patched kernel does not build: {kerns[1].bad}')
    return tree, kerns[:2], *rest


def _same_kernel(kerns):
    """Drop kernels that are one with another: (those to boot, [(name, same as)]).

    Only where the same rows have to fail: else one of the two expectations is wrong.
    """
    seen, same, kept = {}, [], []
    for kern in kerns:
        twin = seen.setdefault(kern.key, kern) if not kern.bad else kern
        own = {key: rows for key, rows in twin.expect.items() if key[0] in kern.tests}
        if twin is kern or kern.name == 'patched' or not set(kern.tests) <= set(twin.tests):
            kept.append(kern)
        elif own == kern.expect:
            same.append((kern.name, twin.name))
        else:
            kern.bad = f'it is the same kernel as {twin.name}, but other rows have to fail'
            kept.append(kern)
    return kept, same


def _judge(result, expected, job, plans):
    """Whether a boot is as expected: (ok, why). `plans` collects the rows of each test.

    job: (test, LRU kind, vCPUs). The lab's guests have all that the tests ask for, so a row that
    is skipped there has not been checked, and that is a failure.
    """
    ok, why = ktap.compare(result, expected)
    if not ok:
        return ok, why
    got = (result.test, result.lru, result.boot.get('cpus'))
    skipped = [row.name for row in result.rows if row.status == 'skip']
    names = sorted(row.name for row in result.rows)
    if got != job:
        return False, f'the guest ran {got}, wanted {job}'
    if skipped:
        return False, f'skipped: {"; ".join(skipped)}'
    if names != plans.setdefault(job[:2], names):
        return False, 'it has other rows than on the first kernel'
    return ok, why


def run_base(base, opts, tests):
    """All boots for one base: (results as report.py takes them, kernels, installed selftests, image)."""
    cpus = {t.name: opts.cpus or (1 if opts.mode == 'icount' else t.cpus) for t in tests}
    boot.refuse_mode(opts.mode, base, max(cpus.values()))
    tree, kerns, tests_dir, image, config_hash = prepare(base, opts, tests)
    unbuilt = sum(not kern.image and not kern.bad for kern in kerns)
    kerns, same = _same_kernel([kern for kern in kerns if kern.image or kern.bad])
    mode = boot.pick_mode(opts.mode, base, max(cpus.values()), kerns[0].image, image)
    khz = boot.tsc_khz() if mode == 'tcg' else 0
    jobs = [(n, test, lru, kern) for n in range(1, opts.runs + 1) for test in tests
            for lru in LRU[opts.lru] for kern in kerns
            if not kern.bad and wanted(kern, test, lru, opts.quick) and
            (kern.name in ('base', 'patched') or n <= (opts.mutant_runs or opts.runs))]
    # Should time not suffice for all, those go without which the others say nothing.
    jobs.sort(key=lambda job: (job[0], job[3].name not in ('base', 'patched')))
    series = bases.load_series(base)
    plans = {}
    results = {
        'run': datetime.datetime.now().strftime('%Y%m%d-%H%M%S') + f'-{base.name}',
        'date': datetime.date.today().isoformat(), 'reproduce': opts.command(base),
        'host': boot.host(), 'accel': 'kvm' if mode == 'kvm' else 'tcg', 'mode': mode,
        'base': base.name, 'version': tree.version,
        'upstream': base.upstream if tree.pinned else 'not the pinned version',
        'series': base.series, 'series_tree': tree.tree_of(kerns[1].commit),
        'series_hash': trees.series_hash([p.path for p in series.patches]),
        'config_hash': config_hash, 'qemu': boot.qemu_version(), 'compiler': build.compiler(),
        'notes': [f'{name} is the same kernel as {other}, and is not booted again'
                  for name, other in same],
        'kernels': [{'name': k.name, 'desc': k.desc, 'key': k.key, 'objects': len(k.objects),
                     'changed': k.changed, 'seconds': k.seconds, 'bad': k.bad} for k in kerns],
        'runs': []}

    def command(n, test, lru, kern):
        guest, initrd, append = opts.vary(n).of(test, image) if opts.vary else (test, image, '')
        return boot.command(kern.image, initrd, guest, lru, mode, cpus[test.name], khz, append)

    # Everything that a boot depends on: only then is a log of an interrupted run used.
    key = cache.digest(*[k.key for k in kerns], image, results['qemu'], str(opts.runs),
                       *[re.sub(r'tsc_early_khz=\d+', '', str(command(*job)))
                         for job in jobs if job[3] is kerns[0]],
                       str([t.timeout for t in tests]))
    work = cache.path('runs', key)
    done = len(list(work.glob('logs/*.log')))
    if done:
        say(f'going on with an interrupted run: {done} of {len(jobs)} boots are done')
    late = 0
    with stage('boot', f'{len(jobs)} boots, {mode}'):
        for i, (n, test, lru, kern) in enumerate(jobs, 1):
            name = f'{kern.name.replace(":", "-")}-{test.name}-{lru}-{n}.log'
            log = work / 'logs' / name
            timeout = boot.BOOT_SECONDS + test.timeout * (ICOUNT_SLOWDOWN if mode == 'icount' else 1)
            if log.exists():
                result = boot.judge(log)
            elif _late(opts, kern):
                late += 1
                continue
            else:
                result = boot.boot(command(n, test, lru, kern), log, timeout)
            if not log.exists():
                raise LabError(f'{log} has vanished')
            expected = kern.expect.get((test.name, lru), set())
            ok, why = _judge(result, expected, (test.name, lru, cpus[test.name]), plans)
            say(f'    {i}/{len(jobs)} {kern.name} {test.name} {lru}: {result.status}'
                f'{"" if ok else " !!! " + why}')
            results['runs'].append({
                'kernel': kern.name, 'test': test.name, 'lru': lru, 'n': n,
                'status': result.status, 'reason': result.reason,
                'expected': 'FAIL' if expected else 'PASS', 'as_expected': ok, 'why': why,
                'rows': [asdict(row) for row in result.rows], 'notes': result.notes,
                'how': opts.vary(n).text if opts.vary else '',
                'seconds': result.seconds, 'log': f'logs/{name}', 'tail': result.tail})
    if late or unbuilt:
        results['notes'].append(f'after {opts.deadline // 60:.0f} minutes {unbuilt} kernels were '
                                f'not built, and {late} boots of others not made: '
                                f'make run BASE={base.name} does')
    keep(results, report.markdown(results), work, opts.results)
    return results, kerns, tests_dir, image


def keep(results, text, work, directory):
    """Write results.json and report.md, and move both and the logs to where the user wants them."""
    target = Path(directory) / results['run']
    while target.exists():      # another run that ended within the same second
        target = target.with_name(target.name + '+')
    target.parent.mkdir(parents=True, exist_ok=True)
    # The reports first: an interruption in between costs no boot.
    (work / 'results.json').write_text(json.dumps(results, indent=1) + '\n')
    (work / 'report.md').write_text(text)
    shutil.move(str(work), str(target))
    results['dir'] = str(target)


def verdict(results):
    """Exit code of a run: 0, or that of the first thing that was not as expected."""
    for kern in results['kernels']:
        if kern['bad']:
            return 3
    for entry in results['runs']:
        if not entry['as_expected']:
            return ktap.EXIT_CODES.get(entry['status']) or 1
    return 0


def show(results):
    """Print matrix and table of one base."""
    print()
    print(report.matrix(results))
    print()
    print(report.table(results))
    for note in results['notes']:
        print(f'note: {note}')
    for kern in results['kernels']:
        if kern['bad']:
            print(f'\n{kern["name"]}: {kern["bad"]}')
    for entry in results['runs']:
        if not entry['as_expected']:
            print(f'\n{entry["kernel"]} {entry["test"]} {entry["lru"]}: {entry["why"]}; the log ends:')
            print('\n'.join('    ' + line for line in entry['tail']))
    print(f'\nresults: {results["dir"]}  (report.md, results.json, logs/)')
    print(f'again:   {results["reproduce"]}')


def writable(directory):
    """Make the directory for results; a LabError when nothing can be written there."""
    Path(directory).mkdir(parents=True, exist_ok=True)
    if not os.access(directory, os.W_OK):
        raise LabError(f'{directory} may not be written to', 'set RESULTS= to another directory')


def main():
    """make run"""
    opts = Options.from_env()
    tests = bases.pick_tests(opts.tests)
    picked = bases.pick_bases(opts.base)
    if 'BASE' not in os.environ or not os.environ['BASE']:
        say('BASE=mainline, the tree that patches are sent for; BASE=6.1 or BASE=all for the others')
    if opts.tree and len(picked) > 1:
        raise LabError('TREE= is one tree, and BASE= names several', 'pick one BASE')
    writable(opts.results)
    deps.ensure(deps.RUN, [tool for t in tests for tool in t.tools])
    cache.lock()
    code = 0
    for base in picked:
        results, *_ = run_base(base, opts, tests)
        show(results)
        code = code or verdict(results)
    return code
