# SPDX-License-Identifier: GPL-2.0
"""make profile: which kernel functions are called more, and which less, with the series.

ftrace's function profile of the whole test under icount: the counts of calls are exact. Time is
instructions, those of the functions that are called included: the option to leave them out,
graph-time, has no effect on 7.3. ftrace prints seven digits of it, and 30 characters of a name.
"""

import json
import os
import re
from pathlib import Path

from . import bases, boot, build, cache, deps, page, report, runner
from .ui import LabError, say, stage

TOP = 20
# Each call costs some hundred instructions more when it is counted.
SLOWDOWN = 3 * runner.ICOUNT_SLOWDOWN


def functions(profile):
    """{function: (calls, ns)}, with the clones that the compiler made of a function as one."""
    out = {}
    for name, (calls, us) in profile.items():
        name = re.sub(r'\.(?:isra|constprop|part|cold)\b.*', '', name)
        before = out.get(name, (0, 0))
        out[name] = (before[0] + calls, before[1] + round(us * 1000))
    return out


def movers(base, patched, which):
    """[(function, base, patched, delta)], by size of the difference; which: 0 calls, 1 ns."""
    out = []
    for name in set(base) | set(patched):
        one, two = base.get(name, (0, 0))[which], patched.get(name, (0, 0))[which]
        if one != two:
            out.append((name, one, two, two - one))
    return sorted(out, key=lambda entry: (-abs(entry[3]), entry[0]))


def _delta(one, change):
    return f'{change:+d}' + (f' ({100 * change / one:+.1f} %)' if one else '')


def grids(title, base, patched):
    """Tables of the top movers, by calls and by instructions."""
    for which, unit in ((0, 'calls'), (1, 'instructions')):
        found = movers(base, patched, which)
        rows = []
        if not which:
            one, two = (sum(entry[0] for entry in side.values()) for side in (base, patched))
            rows.append(['all functions', str(one), str(two), _delta(one, two - one)])
        rows += [[name, str(a), str(b), _delta(a, change)] for name, a, b, change in found[:TOP]]
        yield page.Grid(f'{title}: {unit} by function, the first {min(TOP, len(found))} of '
                        f'{len(found)} that differ', ['Function', 'base', 'patched', 'delta'], rows)


def boot_pair(kerns, image, test, lru, timeout, work):
    """Profiles of base and patched: [{function: (calls, ns)}]."""
    out = []
    for kern in kerns:
        log = work / f'{kern.name}-{test.name}-{lru}.log'
        if log.exists():
            result = boot.judge(log)
        else:
            cmd = boot.command(kern.image, image, test, lru, 'icount', 1, 0, 'mmlab.profile=1')
            result = boot.boot(cmd, log, timeout)
        say(f'    {kern.name} {test.name} {lru}: {result.status}, {len(result.profile)} functions')
        if result.status not in ('PASS', 'FAIL') or not result.profile:
            raise LabError(f'{kern.name} {test.name} {lru}: {result.status}: {result.reason}',
                           f'see {log}')
        out.append(functions(result.profile))
    return out


def profile_base(base, opts, tests):
    """Boot, print and write the profiles of one base; the directory they are in."""
    boot.refuse_mode('icount', base, 1)
    tree, kerns, _, image, config_hash = runner.pair(base, opts, tests)
    work = cache.path('runs', cache.digest('profile', *[k.key for k in kerns], image,
                                           boot.qemu_version(), *[str(test) for test in tests]))
    found = []
    with stage('boot', f'{2 * len(tests) * len(runner.LRU[opts.lru])} boots, icount, profiled'):
        for test in tests:
            for lru in runner.LRU[opts.lru]:
                timeout = boot.BOOT_SECONDS + test.timeout * SLOWDOWN
                pair = boot_pair(kerns, image, test, lru, timeout, work)
                found.append((f'{test.name} {lru} {base.name}', *pair))
    words = [f'{key}={value}' for key, value, default in (
        ('TESTS', opts.tests, ''), ('LRU', opts.lru, 'both'), ('TREE', opts.tree, ''))
             if value != default]
    again = ' '.join(['make profile', f'BASE={base.name}', *words])
    blocks = [page.Heading(1, f'mm-reclaim: profile, base against patched, {tree.version}'),
              page.Text('ftrace\'s function profile of whole tests, in QEMU under icount with 1 vCPU: '
                        'the same command gives the same digits with the same QEMU. Calls are exact. '
                        'Instructions are those of a function and of all it calls, without time '
                        'asleep, with what ftrace adds to each call, and to seven digits, as ftrace '
                        'prints them. A function that one of the kernels has inlined is not called '
                        'there. One pair of boots has no floor: a timer tick that falls elsewhere '
                        'moves a few calls too.'),
              page.Text('Reproduce:'), page.Code(again)]
    for entry in found:
        blocks += grids(*entry)
    values = {'base': base.name, 'version': tree.version, 'config_hash': config_hash, 'mode': 'icount',
              'qemu': boot.qemu_version(), 'compiler': build.compiler(), 'host': boot.host(),
              'series': base.series, 'series_tree': tree.tree_of(kerns[1].commit)}
    blocks.append(page.Grid('Versions', ['What', 'Value'], [
        [text, values[key]] for key, text in report.PROVENANCE if key in values]))
    target = Path(opts.results) / f'profile-{base.name}'
    target.mkdir(parents=True, exist_ok=True)
    (target / 'profile.md').write_text(page.print_markdown(blocks))
    (target / 'profile.json').write_text(json.dumps(
        {name: {'base': one, 'patched': two} for name, one, two in found}, indent=1) + '\n')
    for block in blocks:
        if isinstance(block, page.Grid) and block.caption != 'Versions':
            print(f'\n{block.caption}\n' + '\n'.join(report._grid(block.header, block.rows)))
    print(f'\nprofile: {target}/profile.md  (profile.json)\nagain:   {again}')
    return target


def main():
    """make profile"""
    if os.environ.get('MODE') not in (None, '', 'icount'):
        raise LabError(f'MODE={os.environ["MODE"]}: calls are exact under icount alone',
                       'leave MODE out')
    opts = runner.Options.from_env()
    tests = bases.pick_tests(opts.tests)
    picked = bases.pick_bases(opts.base)
    if opts.tree and len(picked) > 1:
        raise LabError('TREE= is one tree, and BASE= names several', 'pick one BASE')
    deps.ensure(deps.RUN, [tool for t in tests for tool in t.tools])
    cache.lock()
    for base in picked:
        profile_base(base, opts, tests)
    return 0
