# SPDX-License-Identifier: GPL-2.0
"""make prefixes: each prefix of the series builds, boots, and passes the tests paired so far.

Who bisects stops anywhere in the series. A test counts from the patch on that adds it; that of the
topic which has begun is booted too, and only has to come to its end, as fixes are still missing.
"""

import datetime
import os
from dataclasses import dataclass, field
from pathlib import Path

from . import bases, boot, build, cache, deps, runner, tree as trees
from .ui import LabError, say, stage


@dataclass
class Prefix:
    """The series up to a patch that changes the kernel, and the patches of tests behind that."""
    last: object                # the patch
    paths: list                 # of all patches in it
    passing: list = field(default_factory=list)     # names of tests that have to pass
    ending: list = field(default_factory=list)      # and of those that have to come to their end


def plan(series, tests):
    """The Prefixes of a series; tests: the Tests that count."""
    out, paths, paired = [], [], []
    for patch in series.patches:
        paths.append(patch.path)
        mine = [test.name for test in tests if test.topic == patch.topic]
        if patch.is_fix:
            out.append(Prefix(patch, list(paths), list(paired), mine))
        elif out:
            paired += mine
            out[-1] = Prefix(out[-1].last, list(paths), list(paired))
    return out


def judge(result, name, prefix):
    """(whether a boot went as it has to, what is wrong)."""
    if result.status not in ('PASS', 'FAIL'):
        return False, result.reason
    rows = [row.name for row in result.rows if row.status != 'ok']
    if name in prefix.passing and (rows or result.status != 'PASS'):
        return False, result.reason or '; '.join(rows)
    return True, ''


def one_base(base, opts, tests):
    """All prefixes of a base: (lines, number of failures)."""
    with stage('fetch', f'{base.name}: {base.package} {base.version}'):
        tree = trees.get(base)
    prefixes = plan(bases.load_series(base), tests)
    kerns = []
    with stage('apply', f'{len(prefixes)} prefixes of {base.series}'):
        for prefix in prefixes:
            commit = trees.apply(tree, 'base', prefix.paths)
            kerns.append(build.Kernel(f'up to {prefix.last.path.stem[:4]}', prefix.last.path.stem,
                                      commit, {}, [], prefix.paths))
    config_dir, config_hash = build.configure(tree)
    lines, failures = [], 0
    for kern in kerns:
        with stage('build', f'{base.name} {kern.name}: {kern.desc}'):
            build.kernel(tree, kern, config_dir, config_hash)
        if kern.bad:
            failures += 1
            lines.append(f'{base.name} {kern.name}: does not build: {kern.bad}')
    with stage('selftests'):
        tests_dir = build.selftests(tree, kerns[-1].commit, config_dir)
        image = build.image(tests_dir, tests)
    jobs = [(prefix, kern, test, lru) for prefix, kern in zip(prefixes, kerns) if not kern.bad
            for test in tests if test.name in prefix.passing + prefix.ending
            for lru in runner.LRU[opts.lru]]
    with stage('boot', f'{len(jobs)} boots'):
        for nr, (prefix, kern, test, lru) in enumerate(jobs, 1):
            log = cache.path('log', f'prefix-{base.name}-{kern.key}-{test.name}-{lru}.log')
            result = boot.boot(boot.command(kern.image, image, test, lru, 'tcg', test.cpus,
                                            boot.tsc_khz()), log, boot.BOOT_SECONDS + test.timeout)
            ok, why = judge(result, test.name, prefix)
            failures += not ok
            passed = sum(row.status == 'ok' for row in result.rows)
            lines.append(f'{base.name} {kern.name} {test.name} {lru}: '
                         f'{"ok" if ok else "FAILED"}: {passed} of {len(result.rows)} rows pass'
                         f'{" (not complete yet)" if test.name in prefix.ending else ""}'
                         f'{"" if ok else f": {why}; {log}"}')
            say(f'    {nr}/{len(jobs)} {lines[-1]}')
    return lines, failures


def main():
    """make prefixes [BASE=mainline] [TESTS=] [LRU=both]"""
    opts = runner.Options.from_env()
    tests = bases.pick_tests(opts.tests)
    picked = bases.pick_bases(os.environ.get('BASE') or 'mainline')
    if opts.tree:
        raise LabError('TREE= is not for make prefixes', 'it takes the declared trees')
    deps.ensure(deps.RUN, [tool for test in tests for tool in test.tools])
    cache.lock()
    runner.writable(opts.results)
    lines, failures = [], 0
    for base in picked:
        more, bad = one_base(base, opts, tests)
        lines, failures = lines + more, failures + bad
    text = '\n'.join(lines)
    done = Path(opts.results) / f'prefixes-{datetime.datetime.now():%Y%m%d-%H%M%S}.txt'
    done.write_text(text + '\n')
    print(f'\n{text}\n\n{failures} failures in {len(lines)} lines; {done}')
    return 1 if failures else 0
