# SPDX-License-Identifier: GPL-2.0
"""make bisect MUTANT=name: whether `git bisect run` finds a bug in the middle of the series.

The history it works on: the series up to the end of the mutant's topic, the mutant as a commit of
its own, the rest of the series. Each step builds the commit that git has checked out, boots the
mutant's test, and looks at the rows that the mutant's header names. A commit that does not build,
or a guest that does not get through the test, is skipped (125), as one does by hand.
"""

import os
import re
import sys

from . import bases, boot, build, cache, deps, runner, tree as trees
from .bases import ROOT
from .ui import LabError, git, run, say, stage

SKIP = 125          # git-bisect(1): this commit cannot be tested


def pick(base, name):
    """The mutant of that name, its test, and the LRU kind with rows that it fails."""
    mutants = {m.name: m for m in bases.load_mutants(base)}
    if name not in mutants:
        raise LabError(f'MUTANT={name or "(none)"} is not a mutant of {base.name}',
                       f'one of {", ".join(mutants)}')
    mutant = mutants[name]
    lru = next(kind for test, kind in sorted(mutant.expect))
    return mutant, bases.load_tests()[mutant.test], lru


def history(tree, mutant, topic):
    """(last good commit, the mutant's commit, head) of the series with the mutant inside."""
    series = bases.load_series(tree.base).patches
    last = max(nr for nr, patch in enumerate(series) if patch.topic == topic)
    good = trees.apply(tree, 'base', [p.path for p in series[:last + 1]])
    bad = trees.apply_plain(tree, good, mutant.path)
    rest = [p.path for p in series[last + 1:]]
    return good, bad, trees.apply(tree, bad, rest) if rest else bad


def step(base_name, mutant_name, image):
    """One step of git bisect run: 0 good, 1 bad, 125 cannot tell."""
    base = bases.load_bases()[base_name]
    mutant, test, lru = pick(base, mutant_name)
    tree = trees.get(base)
    commit = git(tree.path, 'rev-parse', 'HEAD')
    config_dir, config_hash = build.configure(tree)
    kern = build.Kernel(f'bisect-{commit[:12]}', git(tree.path, 'log', '-1', '--format=%s'), commit)
    build.kernel(tree, kern, config_dir, config_hash)
    if kern.bad:
        say(f'    {kern.bad}')
        return SKIP
    log = cache.path('log', f'bisect-{commit[:12]}.log')
    result = boot.boot(boot.command(kern.image, image, test, lru, 'tcg', test.cpus, boot.tsc_khz()),
                       log, boot.BOOT_SECONDS + test.timeout)
    rows = {row.name for row in result.rows if row.status == 'not ok'}
    say(f'    {commit[:12]} {kern.desc}: {result.status}')
    if result.status not in ('PASS', 'FAIL'):
        return SKIP
    return 1 if rows & mutant.expect[(test.name, lru)] else 0


def main():
    """make bisect MUTANT= [BASE=mainline]; as a step: python3 -m mmlab bisect BASE MUTANT IMAGE"""
    if len(sys.argv) == 5:
        return step(*sys.argv[2:])
    base = bases.pick_bases(os.environ.get('BASE') or 'mainline')[0]
    mutant, test, lru = pick(base, os.environ.get('MUTANT') or '')
    deps.ensure(deps.RUN, test.tools)
    cache.lock()
    with stage('fetch', f'{base.name}: {base.package} {base.version}'):
        tree = trees.get(base)
    with stage('history', f'{base.series} with {mutant.name} in it'):
        good, bad, head = history(tree, mutant, test.topic)
        patched = runner.kernels(tree, [test], False)[1]
    config_dir, _ = build.configure(tree)
    with stage('selftests'):
        tests_dir = build.selftests(tree, patched.commit, config_dir)
        image = build.image(tests_dir, [test])
    subject = f'with {mutant.path.name}'
    count = git(tree.path, 'rev-list', '--count', f'{good}..{head}')
    with stage('bisect', f'{count} commits, {test.name} {lru}'):
        trees.checkout(tree, head)
        git(tree.path, 'bisect', 'start', head, good)
        try:
            env = {'PYTHONPATH': str(ROOT / 'lab'), 'PYTHONDONTWRITEBYTECODE': '1',
                   'XDG_CACHE_HOME': str(cache.CACHE.parent)}
            code, out = run(['git', '-C', str(tree.path), 'bisect', 'run', sys.executable, '-m',
                             'mmlab', 'bisect', base.name, mutant.name, str(image)],
                            env=env, check=False,
                            ticker=lambda line: print(line, end='', flush=True))
        finally:
            git(tree.path, 'bisect', 'reset', 'base', check=False)
    found = re.search(r'([0-9a-f]{40}) is the first bad commit', out)
    if not found:
        raise LabError(f'git bisect run ended with {code} and names no commit')
    right = found.group(1) == bad
    # git does not end its own line.
    print(f'\nfirst bad commit: {git(tree.path, "log", "-1", "--format=%h %s", found.group(1))}'
          f'{"" if right else f", and it should be {subject}"}')
    return 0 if right else 1
