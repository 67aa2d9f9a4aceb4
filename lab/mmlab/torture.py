# SPDX-License-Identifier: GPL-2.0
"""make torture: the patched kernel, built to check itself, under all that it has to bear.

For each debug kernel (FLAVOUR: lab/config/FLAVOUR.config on top of the lab's configuration): the
paired tests on 4 vCPUs, then lab/torture.sh for the rest of MINUTES. What counts is what the
kernel says of itself, what a program finds that verifies what it wrote, and what is left over.

The numbers of a paired test are not judged: its bounds hold for a kernel that is not ten times
slower. Rows that fail are listed, and do not fail the run, unless contents are wrong; a test that
says so does it in the row's name ("... contents ..."), see CONTENTS.
"""

import dataclasses
import datetime
import os
import re
from pathlib import Path

from . import bases, boot, build, cache, deps, runner, tree as trees
from .bases import ROOT
from .ui import LabError, say, stage

# KASAN and KCSAN exclude each other.
FLAVOURS = ('kasan', 'kcsan')
CPUS = 4
# swapon: that of busybox takes no priority.
TOOLS = ['stress-ng', 'fio', 'mkfs.xfs', 'swapon']

# Guest RAM: a shadow of an eighth, redzones, quarantine, and four times the per-CPU lists.
MORE_MEMORY = 2

# The share of the time that the paired tests get: their own time-outs, this much longer.
SLOWER = 6

# A row whose name has this says that memory had other contents than were written.
CONTENTS = re.compile(r'content|checksum|verif|nothing is left|allocations that fail')

# "data-race in f / g", and one line of it with CONFIG_KCSAN_REPORT_RACE_UNKNOWN_ORIGIN.
RACE = re.compile(r'BUG: KCSAN: data-race in (\S+)(?: / (\S+))?')


def functions(tree, paths):
    """The names of functions in the files that patches touch, as far as a line shows them."""
    names = set()
    for name in {name for path in paths for name in bases.touched(path)}:
        source = tree.path / name
        if name.endswith(('.c', '.h')) and source.exists():
            names |= set(re.findall(r'^(?:[a-z_].*[ *])?(\w+)\((?:[^;]*)$', source.read_text(),
                                    re.M))
    return names


def races(log, ours):
    """The data races of a log in functions that are ours: a sorted list of "f / g"."""
    found = set()
    for first, second in RACE.findall(log):
        if {first.split('+')[0], second.split('+')[0]} & ours:
            found.add(f'{first.split("+")[0]} / {second.split("+")[0] or "?"}')
    return sorted(found)


def options():
    """(bases, flavours, minutes, tests) as the user wants them."""
    picked = bases.pick_bases(os.environ.get('BASE') or 'mainline')
    flavours = (os.environ.get('FLAVOUR') or 'kasan').split(',')
    for flavour in flavours:
        if flavour not in FLAVOURS:
            raise LabError(f'FLAVOUR={flavour} is not known', f'one of {", ".join(FLAVOURS)}')
    try:
        minutes = int(os.environ.get('MINUTES') or 20)
    except ValueError as err:
        raise LabError(f'MINUTES= takes a number: {err}') from err
    if minutes < 2:
        raise LabError(f'MINUTES={minutes} is too short', 'take 2 or more')
    lru = os.environ.get('LRU') or 'both'
    if lru not in runner.LRU:
        raise LabError(f'LRU={lru} is not known', f'one of {", ".join(runner.LRU)}')
    return picked, flavours, minutes, bases.pick_tests(os.environ.get('TESTS') or ''), runner.LRU[lru]


def torture(base, flavour, minutes, tests, kinds):
    """One debug kernel: (lines for the report, number of failures)."""
    base = dataclasses.replace(base, flavour=flavour)
    with stage('fetch', f'{base.name}: {base.package} {base.version}'):
        tree = trees.get(base)
    with stage('apply', f'{base.series} to {tree.version}'):
        kern = runner.kernels(tree, tests, False)[1]
    with stage('configure', ' '.join(p.name for p in base.config)):
        config_dir, config_hash = build.configure(tree)
    with stage('build', f'{base.name} {flavour}: {kern.desc}'):
        build.kernel(tree, kern, config_dir, config_hash)
    if kern.bad:
        raise LabError(f'the {flavour} kernel does not build: {kern.bad}')
    with stage('selftests'):
        tests_dir = build.selftests(tree, kern.commit, config_dir)
    with stage('image'):
        image = build.image(tests_dir, tests, TOOLS,
                            {f'/tests/{script}': ROOT / 'lab' / script
                             for script in ('guest.sh', 'torture.sh')})
    ours = functions(tree, kern.patches)
    khz = boot.tsc_khz()
    # Data races are reported and counted; all else ends the guest. With page tables of five levels
    # and emulated nodes, 7.3 has no shadow for the first interrupt descriptors, and KASAN says so.
    append = {'kcsan': 'panic_on_warn=0', 'kasan': 'no5lvl'}[flavour]
    storm = dataclasses.replace(tests[0], name='torture.sh', memory=1024, cmdline='',
                                timeout=minutes * 60)
    jobs = [(test, lru, '') for test in tests for lru in kinds]
    jobs = [(test, lru, '-s,60' if test.name == 'swap_targets' else '') for test, lru, _ in jobs]
    jobs += [(storm, lru, str(minutes * 60 // len(kinds))) for lru in kinds]
    lines, failures = [], 0
    with stage('boot', f'{len(jobs)} boots, {CPUS} vCPUs, {flavour}'):
        for nr, (test, lru, args) in enumerate(jobs, 1):
            log = cache.path('log', f'torture-{base.name}-{flavour}-{test.name}-{lru}.log')
            more = ' '.join(filter(None, [append, f'mmlab.args={args}' if args else '']))
            cmd = boot.command(kern.image, image,
                               dataclasses.replace(test, memory=test.memory * MORE_MEMORY), lru,
                               'tcg', CPUS, khz, more)
            result = boot.boot(cmd, log, boot.BOOT_SECONDS * 4 + test.timeout * SLOWER)
            text = log.read_text(errors='replace')
            found = races(text, ours)
            rows = [row.name for row in result.rows if row.status == 'not ok']
            bad = result.status not in ('PASS', 'FAIL') or found or \
                [name for name in rows if CONTENTS.search(name) or test is storm]
            if flavour == 'kcsan' and result.status == 'OOPS' and not found and \
                    not re.search(r'BUG: (?!KCSAN)|Oops|Kernel panic|WARNING:', text):
                bad = rows if test is storm else False      # only races in code of others
            failures += bool(bad)
            why = '; '.join(found) or result.reason
            others = len(set(RACE.findall(text))) - len(found)
            line = (f'{base.name} {flavour} {test.name} {lru}: {"FAILED" if bad else "ok"}: '
                    f'{result.status}, {len(result.rows)} rows, {len(rows)} not ok, '
                    f'{result.seconds or 0:.0f} s')
            if bad:
                line += f': {why}; {log}'
            elif rows:
                line += f': {"; ".join(rows)}'
            if others > 0:
                line += f'; {others} data races in code of others'
            say(f'    {nr}/{len(jobs)} {line}')
            lines.append(line)
    return lines, failures


def main():
    """make torture [BASE=] [FLAVOUR=kasan,kcsan] [MINUTES=20] [TESTS=] [LRU=]"""
    picked, flavours, minutes, tests, kinds = options()
    deps.ensure(deps.RUN, [*TOOLS, *[tool for t in tests for tool in t.tools]])
    cache.lock()
    failures, lines = 0, []
    for base in picked:
        for flavour in flavours:
            more, bad = torture(base, flavour, minutes, tests, kinds)
            lines += more
            failures += bad
    target = Path(os.environ.get('RESULTS') or ROOT / 'results')
    target.mkdir(parents=True, exist_ok=True)
    report = target / f'torture-{datetime.datetime.now():%Y%m%d-%H%M%S}.txt'
    report.write_text('\n'.join([boot.qemu_version(), boot.host(), build.compiler(), *lines, '']))
    print('\n'.join(lines))
    print(f'{failures} of {len(lines)} boots failed; {report}')
    return 1 if failures else 0
