# SPDX-License-Identifier: GPL-2.0
"""make check: everything the project says of itself, proved again.

Cheap checks come first. Each one is a function that returns nothing when it
passes, and raises: Skip with a reason, or LabError with what is wrong.
"""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import bases, boot, cache, deps, jobs, refresh, runner, send, tree as trees
from .bases import ROOT
from .ui import LabError, budget, git, run, say, stage


# CI has 90 minutes, and what follows the boots takes some. On a machine that is new or slow,
# mutants are left out after that many seconds, which is said, and counts as skipped.
DEADLINE = 75 * 60


class Skip(Exception):
    """A check that cannot be made here, and why."""


class Tally:
    """Runs checks, prints a line for each and counts them."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, name, ok, why=''):
        """Book one result. ok: True, False, or None for a skip."""
        word = {True: 'ok', False: 'FAILED', None: 'skip'}[ok]
        print(f'{word:6} {name}{": " + why if why else ""}', flush=True)
        self.passed += ok is True
        self.failed += ok is False
        self.skipped += ok is None

    def check(self, name, func, *args):
        """Run one check."""
        try:
            func(*args)
        except Skip as why:
            self.add(name, None, str(why))
        except (LabError, OSError, subprocess.SubprocessError) as err:
            self.add(name, False, str(err))
        else:
            self.add(name, True)


def unit_tests():
    """The unit tests of the lab."""
    code, out = run([sys.executable, '-m', 'unittest', 'discover', '-s', 'lab/tests'], cwd=ROOT,
                    check=False, env={'PYTHONDONTWRITEBYTECODE': '1'})
    ran = re.search(r'^Ran (\d+) tests?', out, re.M)
    if code or not ran or not int(ran.group(1)):
        bad = re.findall(r'^(?:FAIL|ERROR): (.*)$', out, re.M)
        raise LabError(f'unit tests: {"; ".join(bad) or out.strip().splitlines()[-1]}',
                       'python3 -m unittest discover -s lab/tests')


def _tracked(*patterns):
    names = [ROOT / name for name in git(ROOT, 'ls-files', '--', *patterns).splitlines()]
    if not names:
        raise LabError(f'no file is tracked under {" ".join(patterns)}: nothing checked')
    return [str(name) for name in names if name.exists()]


def python_compiles():
    """All Python files compile."""
    for name in _tracked('*.py'):
        try:
            compile(Path(name).read_text(), name, 'exec')
        except SyntaxError as err:
            raise LabError(f'{name}: {err}') from err


def shell_scripts():
    """shellcheck has nothing to say."""
    code, out = run(['shellcheck', '-x', *_tracked('*.sh', '.ci/run')], check=False, cwd=ROOT)
    if code:
        raise LabError(f'shellcheck: {out.strip().splitlines()[0:3]}')


def no_leaks_of_the_workplace():
    """No registry host, no signed-off patch, in anything tracked."""
    for what, pattern, where in (
            ('a package registry is named',
             r'(deb|security)\.debian\.org|registry\.npmjs|snapshot\.debian',
             ['.', ':!lab/mmlab/check.py']),
            ('signing off is for the submitter', '^Signed-off-by:', ['patches'])):
        code, out = git(ROOT, 'grep', '-nIE', pattern, '--', *where, check=False)
        if code == 0:
            raise LabError(f'{what}: {out.splitlines()[0]}')
        if code != 1:           # 1 is no match; anything else found nothing because it did not look
            raise LabError(f'git grep: {out.strip()}')


def jobs_are_current():
    """jobs/ is what make jobs writes, and YAML; the configuration of mmtests is shell."""
    old = jobs.stale()
    if old:
        raise LabError(f'not up to date: jobs/{old[0]}', 'make jobs')
    for name in _tracked('jobs/*.yaml'):
        try:
            jobs.parse(Path(name).read_text())
        except ValueError as err:
            raise LabError(f'{name}: {err}') from err
    for name in _tracked('jobs/mmtests/*'):
        run(['bash', '-n', name])


# Runs under Debian's own python3, which has the schemas.
LAVA = """
import sys, yaml
from lava_common import schemas
from lava_common.schemas.test import testdef
for name in sys.argv[1:]:
    with open(name, encoding='utf-8') as file:
        data = yaml.safe_load(file)
    try:
        (schemas.validate if 'actions' in data else testdef.validate)(data)
    except Exception as err:
        sys.exit(f'{name}: {err}')
    print(name)
"""


def lava_schema():
    """The files for LAVA hold to LAVA's schemas."""
    names = _tracked('jobs/lava/*.yaml')
    _, out = run(['/usr/bin/python3', '-c', LAVA, *names])
    if out.split() != names:
        raise LabError(f'LAVA has checked {len(out.split())} files of {len(names)}')


def postings():
    """Each topic can be posted: a stanza, its page, the headings that the cover letter takes."""
    known = send.load_postings()
    for base in bases.load_bases().values():
        for topic in {p.topic for p in bases.load_series(base).patches}:
            if topic not in known:
                raise LabError(f'patches/postings has no stanza for {topic}', 'add one')
            send.sections(known[topic])


def standalone_selftests():
    """make -C selftests builds without a warning, and an unprivileged run skips."""
    with tempfile.TemporaryDirectory() as tmp:
        work = Path(tmp) / 'selftests'
        shutil.copytree(ROOT / 'selftests', work)
        run(['make', '-C', str(work), 'clean', 'all', 'CFLAGS=-O2 -Werror'])
        run(['chmod', '-R', 'a+rX', tmp])
        for test in bases.load_tests():
            code, out = _as_nobody([str(work / test)])
            if code != 4 or '1..0 # SKIP' not in out:
                raise LabError(f'{test} without root: exit {code}, wanted the skip (4)')


def _as_nobody(cmd, cwd='/'):
    """Run a command without privileges: (exit code, output)."""
    kwargs = {}
    if os.geteuid() == 0:
        kwargs = {'user': 65534, 'group': 65534, 'extra_groups': []}
    # The kselftest runner opens /dev/stdout, so the pipe has to belong to that user.
    done = subprocess.run(['bash', '-o', 'pipefail', '-c', '"$@" 2>&1 | cat', 'bash', *cmd],
                          cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False, timeout=300, **kwargs)
    return done.returncode, done.stdout


def checkpatch_options():
    """The options in checkpatch.conf, which gives a reason for each."""
    words = []
    reason = False
    for line in (ROOT / 'checkpatch.conf').read_text().splitlines():
        if line.startswith('#'):
            reason = True
        elif line.strip():
            if not reason:
                raise LabError(f'checkpatch.conf: no reason above "{line}"')
            words += line.split()
            reason = False
    return words


def checkpatch(tree, patch):
    """checkpatch --strict of the tree itself, with the exceptions of checkpatch.conf."""
    code, out = run(['perl', str(tree.path / 'scripts/checkpatch.pl'), '--strict', '--no-summary',
                     '--terse', f'--root={tree.path}', *checkpatch_options(), str(patch.path)],
                    cwd=tree.path, check=False,
                    # spdxcheck.py needs the modules of Debian's own python3.
                    env={'PATH': '/usr/sbin:/usr/bin:/sbin:/bin'})
    if code or out.strip():
        raise LabError(out.strip().splitlines()[0].replace(str(ROOT) + '/', ''))


def git_am_is_quilt(tree):
    """git am and quilt push -a give the same tree; no fuzz, no offset."""
    base = tree.base
    series = bases.load_series(base)
    paths = [p.path for p in series.patches]
    with_am = tree.tree_of(trees.apply(tree, 'base', paths))
    # quilt works on just the files that the series touches.
    names = sorted({name for path in paths for name in bases.touched(path)})
    with tempfile.TemporaryDirectory(dir=cache.path('x').parent) as tmp:
        work = Path(tmp)
        listed = git(tree.path, 'ls-tree', 'base', *names).splitlines()
        for line in listed:
            mode, _, rest = line.split(' ', 2)
            blob, name = rest.split('\t')
            target = work / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(subprocess.run(['git', '-C', str(tree.path), 'cat-file', 'blob', blob],
                                              stdout=subprocess.PIPE, check=True).stdout)
            target.chmod(0o755 if mode == '100755' else 0o644)
        env = {'QUILT_PATCHES': str(ROOT), 'QUILT_SERIES': str(ROOT / base.series),
               'QUILT_PC': str(work / '.pc')}
        code, out = run(['quilt', '--quiltrc', '-', 'push', '-a', '--fuzz=0'], cwd=work, env=env,
                        check=False)
        if code:
            raise LabError(f'quilt push -a: {out.strip().splitlines()[-1]}')
        noise = [line for line in out.splitlines() if 'fuzz' in line or 'offset' in line]
        if noise:
            raise LabError(f'quilt push -a: {noise[0].strip()}', 'make refresh')
        index = work / '.index'
        env = {'GIT_INDEX_FILE': str(index)}
        git(tree.path, 'read-tree', 'base', env=env)
        for name in names:
            target = work / name
            if not target.exists():
                git(tree.path, 'update-index', '--force-remove', name, env=env)
                continue
            blob = git(tree.path, 'hash-object', '-w', str(target))
            mode = '100755' if target.stat().st_mode & 0o100 else '100644'
            git(tree.path, 'update-index', '--add', '--cacheinfo', f'{mode},{blob},{name}', env=env)
        with_quilt = git(tree.path, 'write-tree', env=env)
    if with_am != with_quilt:
        raise LabError(f'git am gives tree {with_am[:12]}, quilt gives {with_quilt[:12]}')


def no_drift(tree):
    """The patches carry what selftests/ has, and apply without offset."""
    stale = refresh.drift(tree)
    if stale:
        raise LabError(f'not up to date: {", ".join(p.name for p in stale)}', 'make refresh')
    for patch in bases.load_series(tree.base).patches:
        added = re.findall(r'^--- /dev/null\n\+\+\+ b/(\S+)', patch.path.read_text(), re.M)
        strays = [name for name in added if Path(name).name not in patch.files]
        if strays:
            raise LabError(f'{patch.name} adds files that its "# files:" line does not name: '
                           f'{" ".join(strays)}')


def every_fix_has_a_mutant(base):
    """Each patch to the kernel proper is left out once, and its test is declared."""
    mutants = {m.name for m in bases.load_mutants(base)}
    topics = {t.topic for t in bases.load_tests().values()}
    for patch in bases.load_series(base).patches:
        if patch.topic not in topics:
            raise LabError(f'{patch.name}: no test has the topic {patch.topic}', 'lab/tests.conf')
        if patch.is_fix and not patch.expect and patch.by_hand not in mutants:
            raise LabError(f'{patch.name}: nothing is expected to fail without it')


def maintainers(tree):
    """MAINTAINERS.snippet goes through the parser of the tree."""
    with tempfile.TemporaryDirectory() as tmp:
        work = Path(tmp)
        (work / 'MAINTAINERS').write_text((ROOT / 'MAINTAINERS.snippet').read_text())
        code, out = run(['perl', str(tree.path / 'scripts/parse-maintainers.pl'),
                         f'--input={work}/MAINTAINERS', f'--output={work}/out'], cwd=work,
                        check=False)
        if code or not (work / 'out').exists():
            raise LabError(f'parse-maintainers.pl: {out.strip() or code}')
        have = sorted(line for line in (ROOT / 'MAINTAINERS.snippet').read_text().splitlines()
                      if re.match(r'[A-Z]:\t', line))
        parsed = sorted(line for line in (work / 'out').read_text().splitlines()
                        if re.match(r'[A-Z]:\t', line))
        if have != parsed or not have:
            raise LabError('parse-maintainers.pl loses or changes a line of MAINTAINERS.snippet')


def recompiles_only_what_changed(kern):
    """A variant compiles the files its patches touch, and what each link makes anew."""
    if kern.changed is None:
        raise Skip('built from nothing, so all of it was compiled')
    if any(not name.endswith('.c') for name in kern.changed if not name.startswith(
            ('tools/testing/', 'Documentation/', 'MAINTAINERS'))):
        raise Skip('the patches touch headers')
    allowed = {name[:-2] + '.o' for name in kern.changed if name.endswith('.c')}
    # Objects which carry the version or the symbol table are part of each link.
    extra = [name for name in kern.objects if name not in allowed and
             not re.search(r'boot/header|version|kallsyms|piggy|compressed/|\.vmlinux|vmlinux\.|utsname|config_data',
                           name)]
    if extra:
        raise LabError(f'{len(extra)} objects more than the patches touch: {" ".join(extra[:5])}')


def builds_without_warning(kern):
    """No compiler warning in a file that the series touches."""
    if kern.bad:
        raise LabError(kern.bad)
    names = {name for path in kern.patches for name in bases.touched(path)}
    noise = [w for w in kern.warnings if any(name in w for name in names)]
    if noise:
        raise LabError(noise[0])


def runs_under_kselftest(tree, tests_dir):
    """run_kselftest.sh of the installed selftests knows our tests, and runs them."""
    install = tests_dir.parent
    target = tests_dir.name
    listed = (install / 'kselftest-list.txt').read_text().split()
    wanted = f'{target}:ksft_reclaim.sh' if target == 'mm' else None
    for name in [wanted] if wanted else [f'{target}:{t}' for t in bases.load_tests()]:
        if name not in listed:
            raise LabError(f'make install does not list {name}')
        with tempfile.TemporaryDirectory() as tmp:
            # A copy that an unprivileged user can get at: this host is not under test.
            work = Path(tmp) / 'install'
            work.mkdir()
            shutil.copytree(tests_dir, work / target)
            shutil.copytree(install / 'kselftest', work / 'kselftest')
            for file in ('run_kselftest.sh', 'kselftest-list.txt'):
                shutil.copy(install / file, work)
            run(['chmod', '-R', 'a+rwX', tmp])
            code, out = _as_nobody(['bash', str(work / 'run_kselftest.sh'), '-t', name], cwd=work)
            if not re.search(rf'^ok 1 selftests: {target}: {name.split(":")[1]} # SKIP', out, re.M):
                last = out.strip().splitlines()[-1:] or [f'exit {code}']
                raise LabError(f'run_kselftest.sh -t {name}: {last[0]}')


def guest_faults(kern, image, mode):
    """A guest that panics, hangs or leaves something behind is seen as that."""
    khz = boot.tsc_khz() if mode == 'tcg' else 0
    for fault, status, timeout in (('panic', 'PANIC', 60), ('hang', 'HANG', 15),
                                   ('leak', 'LEAK', 60)):
        cmd = boot.command(kern.image, image, None, None, mode, 1, khz, f'mmlab.fault={fault}')
        result = boot.boot(cmd, cache.path('log', f'fault-{fault}.log'), timeout)
        if result.status != status:
            raise LabError(f'a guest with fault {fault} gives {result.status}: {result.reason}')


def skips_without(kern, image, mode):
    """Without the memory controller, or with little RAM, each test skips, and passes nothing."""
    khz = boot.tsc_khz() if mode == 'tcg' else 0
    for test in bases.load_tests().values():
        for what, change, append in (('memcg', {}, 'cgroup_disable=memory'),
                                     ('RAM', {'memory': 96}, '')):
            cmd = boot.command(kern.image, image, dataclasses.replace(test, **change), 'classic',
                               mode, 1, khz, append)
            result = boot.boot(cmd, cache.path('log', f'skip-{test.name}-{what}.log'), 60)
            if result.status != 'SKIP':
                raise LabError(f'{test.name} without {what} gives {result.status}: {result.reason}')


def check_base(tally, base, opts):
    """All checks of one base, up to the matrix."""
    with stage('fetch', f'{base.name}: {base.package} {base.version}'):
        tree = trees.get(base)
    tests = list(bases.load_tests().values())
    with stage('patches', base.name):
        for patch in bases.load_series(base).patches:
            tally.check(f'{base.name}: checkpatch {patch.name}', checkpatch, tree, patch)
        if tree.pinned:
            tally.check(f'{base.name}: git am = quilt push -a', git_am_is_quilt, tree)
            tally.check(f'{base.name}: patches are up to date', no_drift, tree)
        else:
            tally.add(f'{base.name}: git am = quilt push -a', None, f'{tree.version} is not pinned')
            tally.add(f'{base.name}: patches are up to date', None, f'{tree.version} is not pinned')
        tally.check(f'{base.name}: every fix has a mutant', every_fix_has_a_mutant, base)
        tally.check(f'{base.name}: MAINTAINERS.snippet', maintainers, tree)
    opts.base = base.name
    results, kerns, tests_dir, image = runner.run_base(base, opts, tests)
    for kern in kerns[1:]:
        if not kern.name.startswith('mutant') or kern.bad:
            tally.check(f'{base.name}: {kern.name} builds without a warning',
                        builds_without_warning, kern)
        tally.check(f'{base.name}: {kern.name} compiles only what changed',
                    recompiles_only_what_changed, kern)
    tally.check(f'{base.name}: run_kselftest.sh', runs_under_kselftest, tree, tests_dir)
    tally.check(f'{base.name}: panic, hang and leak of a guest are seen', guest_faults, kerns[0],
                image, results['mode'])
    tally.check(f'{base.name}: tests skip without memcg and without RAM', skips_without, kerns[0],
                image, results['mode'])
    for note in results['notes']:
        tally.add(f'{base.name}: {note}', None)
    for entry in results['runs']:
        tally.add(f'{base.name}: {entry["kernel"]} {entry["test"]} {entry["lru"]} is '
                  f'{entry["expected"].lower()}', entry['as_expected'], entry['why'])
    runner.show(results)


def main():
    """make check [BASE=all] [MODE=auto]"""
    # What is left out is not checked, so TESTS=, LRU= and the like are not for make check.
    asked = runner.Options.from_env()
    opts = runner.Options(mode=asked.mode, results=asked.results, quick=True,
                          deadline=DEADLINE)
    picked = bases.pick_bases(os.environ.get('BASE') or 'all')
    tests = bases.load_tests().values()
    deps.ensure(dict(deps.RUN, **deps.CHECK, **deps.SEND), [tool for t in tests for tool in t.tools])
    cache.lock()
    tally = Tally()
    with stage('static checks'):
        tally.check('unit tests of the lab', unit_tests)
        tally.check('python compiles', python_compiles)
        tally.check('shellcheck', shell_scripts)
        tally.check('nothing of the workplace', no_leaks_of_the_workplace)
        tally.check('jobs are up to date', jobs_are_current)
        tally.check('jobs: schema of LAVA', lava_schema)
        tally.check('postings', postings)
        tally.check('standalone selftests', standalone_selftests)
    for base in picked:
        try:
            check_base(tally, base, opts)
        except LabError as err:
            tally.add(f'{base.name}', False, str(err))
    print('\n'.join([''] + _budget()))
    print(f'{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped')
    return 1 if tally.failed or not tally.passed else 0


def _budget():
    say(f'the cache takes {trees.disk_usage()} MiB')
    return budget()
