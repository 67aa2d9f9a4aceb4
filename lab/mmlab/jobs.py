# SPDX-License-Identifier: GPL-2.0
"""make jobs: the tests of lab/tests.conf as jobs for lkp-tests, LAVA, tuxrun and mmtests.

What is made is in jobs/ and committed, as a LAVA server takes its definitions out of a git
repository. make check says when it is not up to date. Documentation/bigger-machines.md tells
how to use it, and what the formats were checked with.
"""

import json
import re

from . import bases
from .bases import ROOT
from .ui import LabError, say

JOBS = ROOT / 'jobs'
LRUS = ('classic', 'mglru')
MADE = 'Made by "make jobs" from lab/tests.conf: not to be edited.'
PATH = '/opt/kselftests'        # where the images of LAVA and tuxrun have the installed selftests

# The benchmarks that the reports speak of, where lkp-tests has them, in the size of the report.
# That of anon-aging is not named in its report. need_memory is what has to be free.
REPORTS = {
    'readonce': {
        'suite': 'vm-scalability', 'testcase': 'vm-scalability', 'category': 'benchmark',
        'need_cpu': 120, 'need_memory': '200G', 'runtime': '300s', 'nr_task': 120,
        'vm-scalability': {'test': ['lru-file-readonce']}},
    'swap': {
        'suite': 'vm-scalability', 'testcase': 'vm-scalability', 'category': 'benchmark',
        'runtime': 300, 'size': None, 'nr_task': [8, 32], 'disk': ['1HDD', '4HDD'],
        'swap': {'priority': 1},
        'vm-scalability': {'test': ['swap-w-rand', 'swap-w-seq']}},
    'thp': {
        'suite': 'stress-ng', 'testcase': 'stress-ng', 'category': 'benchmark',
        'need_cpu': 72, 'need_memory': '150G', 'nr_threads': '100%', 'testtime': ['60s'],
        'stress-ng': {'test': ['madvise', 'mremap']}},
    # 100000 files for each of 8 threads, 63 times; fsmark of lkp-tests reckons with 4 KiB each.
    'dirty': {
        'suite': 'fsmark', 'testcase': 'fsmark', 'category': 'benchmark',
        'need_cpu': 8, 'iterations': '63x', 'nr_threads': '8t', 'disk': '1HDD', 'fs': ['xfs'],
        'fsmark': {'filesize': '1B', 'test_size': '192G', 'sync_method': 'NoSync',
                   'nr_directories': '10000d', 'nr_files_per_directory': '10fpd'}},
}


# --- YAML: as much of it as is written here.

def _scalar(value):
    if value is None:
        return ''
    if isinstance(value, bool):
        return 'true' if value else 'false'
    if isinstance(value, int):
        return str(value)
    # What any YAML takes for a number, a boolean or a mark is quoted; JSON's quotes are YAML's.
    if re.fullmatch(r'[A-Za-z/][A-Za-z0-9_./%+-]*', value) and not re.fullmatch(
            r'(?i)y|n|yes|no|on|off|true|false|null', value):
        return value
    return json.dumps(value)


def dump(data, indent=0):
    """Mappings, lists and scalars as lines of YAML."""
    pad, lines = ' ' * indent, []
    if isinstance(data, dict):
        for key, value in data.items():
            if isinstance(value, (dict, list)):
                lines.append(f'{pad}{key}:')
                lines += dump(value, indent + 2)
            else:
                lines.append(f'{pad}{key}: {_scalar(value)}'.rstrip())
        return lines
    for value in data:
        if isinstance(value, dict):
            inner = dump(value, indent + 2)
            lines.append(f'{pad}- {inner[0].lstrip()}')
            lines += inner[1:]
        else:
            lines.append(f'{pad}- {_scalar(value)}')
    return lines


def _value(text):
    if not text:
        return None
    if text.startswith('"'):
        return json.loads(text)
    if re.fullmatch(r'-?\d+', text):
        return int(text)
    if text in ('true', 'false'):
        return text == 'true'
    if not re.fullmatch(r'[A-Za-z/][A-Za-z0-9_./%+-]*', text):
        raise ValueError(f'not a plain scalar: {text}')
    return text


def _block(lines, indent):
    """The value that begins with the first of `lines`, which are (indent, text) and consumed."""
    if not lines or lines[0][0] < indent:
        return None
    indent = lines[0][0]
    data = [] if re.match(r'-( |$)', lines[0][1]) else {}
    while lines and lines[0][0] >= indent:
        at, text = lines.pop(0)
        if at != indent:
            raise ValueError(f'indented by {at}: {text}')
        if isinstance(data, list):
            if not text.startswith('- '):
                raise ValueError(f'no item of a list: {text}')
            text = text[2:]
            if re.match(r'[\w+.-]+:( |$)', text):
                lines.insert(0, (indent + 2, text))
                data.append(_block(lines, indent + 2))
            else:
                data.append(_value(text))
            continue
        match = re.fullmatch(r'([\w+.-]+):(?: (.*))?', text)
        if not match or match.group(1) in data:
            raise ValueError(f'no key, or one twice: {text}')
        if match.group(2) or not lines or lines[0][0] <= indent:
            data[match.group(1)] = _value(match.group(2))
        else:
            data[match.group(1)] = _block(lines, indent + 1)
    return data


def parse(text):
    """The documents of a file in the YAML that dump() writes; a ValueError for any other."""
    documents = []
    for part in re.split(r'^---$', text, flags=re.M):
        lines = [(len(line) - len(line.lstrip(' ')), line.strip()) for line in part.splitlines()
                 if line.strip() and not line.lstrip().startswith('#')]
        documents.append(_block(lines, 0))
        if lines:
            raise ValueError(f'left over: {lines[0][1]}')
    return documents


def _file(comments, *documents):
    head = ['# SPDX-License-Identifier: GPL-2.0', f'# {MADE}', *[f'# {c}'.rstrip() for c in comments]]
    return '\n'.join(head) + '\n' + '\n---\n'.join('\n'.join(dump(d)) for d in documents) + '\n'


# --- What is in the jobs.

def config(base):
    """The kernel options that the tests of a base want: {option: value}."""
    found = {}
    for patch in bases.load_series(base).patches:
        if patch.is_fix:
            continue
        for part in patch.path.read_text().split('\ndiff --git ')[1:]:
            if part.split('\n')[0].endswith(f'{base.selftests}/config'):
                found.update(re.findall(r'^\+CONFIG_(\w+)=(\w+)$', part, re.M))
    return found


def lkp(tests, base):
    """A job file of lkp-tests: its program "kselftests", with the directory mm and our tests."""
    options = [{name: value} for name, value in config(base).items()]
    head = {'suite': 'kselftests', 'testcase': 'kselftests', 'category': 'functional',
            'need_cpu': max(t.cpus for t in tests), 'need_memory': '2G', 'need_kconfig': options}
    # Later documents of a job file are added to the first, so a command line comes last.
    lines = sorted({t.cmdline for t in tests})
    documents = []
    for cmdline in lines:
        part = {'kselftests': {'group': ['mm'],
                               'test': [t.name for t in tests if t.cmdline == cmdline]}}
        if cmdline:
            part = {'kernel_cmdline': cmdline, **part}
        documents.append(part if documents else {**head, **part})
    return _file(['A job of lkp-tests: lkp split-job, then lkp run, or lkp queue.'], *documents)


def report_jobs(tests):
    """The benchmarks of the reports, as job files of lkp-tests: {name: text}."""
    return {f'lkp/report-{test.topic}.yaml': _file(
        [f'What this report is about, in its size: {test.report}'], REPORTS[test.topic])
        for test in tests if test.topic in REPORTS}


def lava(test):
    """A test definition of LAVA: jobs/run.sh tells it the result of each row."""
    return _file([f'A test definition of LAVA. {PATH} has the selftests, installed.'], {
        'metadata': {'format': 'Lava-Test Test Definition 1.0', 'name': test.name,
                     'description': f'{test.topic}: {test.report}'.replace('"', "'"),
                     'os': ['debian', 'openembedded'], 'scope': ['functional']},
        'params': {'KSELFTEST_PATH': PATH},
        'run': {'steps': [f'KSELFTEST_PATH="$KSELFTEST_PATH" ./jobs/run.sh {test.name}']}})


def lava_job(test):
    """A job of LAVA that boots a guest for a test."""
    minutes = _minutes(test)
    append = ' '.join(['console=ttyS0', 'root=/dev/vda', 'rw', *test.cmdline.split()])
    return _file(['A job of LAVA with QEMU; the three addresses in .invalid are to be filled in:',
                  f'a kernel, a root file system with the selftests in {PATH}, and this repository.'
                  ], {
        'job_name': f'mm-reclaim {test.name}', 'device_type': 'qemu', 'visibility': 'public',
        'priority': 'medium',
        'context': {'arch': 'amd64', 'memory': _memory(test),
                    'extra_options': ['-smp', str(test.cpus)]},
        'timeouts': {'job': {'minutes': minutes + 20}, 'action': {'minutes': minutes + 10},
                     'connection': {'minutes': 5}},
        'actions': [
            {'deploy': {'to': 'tmpfs', 'timeout': {'minutes': 10}, 'images': {
                'kernel': {'image_arg': f'-kernel {{kernel}} --append "{append}"',
                           'url': 'https://files.invalid/bzImage'},
                'rootfs': {'image_arg': '-drive file={rootfs},if=virtio,format=raw',
                           'url': 'https://files.invalid/rootfs.ext4.xz', 'compression': 'xz'}}}},
            {'boot': {'method': 'qemu', 'media': 'tmpfs', 'timeout': {'minutes': 5},
                      'prompts': ['root@(.*):'],
                      'auto_login': {'login_prompt': 'login:', 'username': 'root'}}},
            {'test': {'timeout': {'minutes': minutes}, 'definitions': [
                {'repository': 'https://git.invalid/mm-reclaim.git', 'from': 'git',
                 'path': f'jobs/lava/{test.name}.yaml', 'name': test.name}]}}]})


def _minutes(test):
    """Time for a test with both kinds of LRU, as emulated as in the lab."""
    return 2 * -(-test.timeout // 60) + 1


def _memory(test):
    """MiB for a guest with a user space of its own; some rows are left out above 4 GiB."""
    return max(2048, 2 * test.memory)


def tuxrun(tests):
    """A script that calls tuxrun for each test and kind of LRU."""
    lines = ['#!/bin/sh', '# SPDX-License-Identifier: GPL-2.0', f'# {MADE}',
             '# usage: KERNEL=URL KSELFTEST=URL [ROOTFS=URL] jobs/tuxrun.sh [option of tuxrun...]',
             '#', '# KERNEL is a bzImage, KSELFTEST the tarball of',
             '# make -C tools/testing/selftests TARGETS=mm gen_tar: both as URL, or file:///path.',
             '# A test that skips all counts as failed here; its log says why.',
             'set -eu', ': "${KERNEL:?}" "${KSELFTEST:?}"', 'code=0', '',
             '# name, kind of LRU, kernel parameters, minutes; then options of tuxrun',
             'boot() {', '\tname=$1 lru=$2 args=$3 minutes=$4', '\tshift 4',
             '\ttuxrun --device qemu-x86_64 --kernel "$KERNEL" ${ROOTFS:+--rootfs "$ROOTFS"} \\',
             f'\t\t--overlay "$KSELFTEST" {PATH} \\',
             '\t\t${args:+--boot-args "$args"} --timeouts commands="$minutes" \\',
             '\t\t--parameters command-name="$name-$lru" "$@" \\',
             f'\t\t-- "{PATH}/mm/$name -l $lru" || code=1', '}', '']
    for test in tests:
        for lru in LRUS:
            lines.append(f'boot {test.name} {lru} "{test.cmdline}" {_minutes(test)} "$@"')
    return '\n'.join(lines + ['exit $code', ''])


def mmtests(tests):
    """A configuration of mmtests: its script driver runs the tests, its monitors watch."""
    return f'''# SPDX-License-Identifier: GPL-2.0
# {MADE}
# A configuration of mmtests, for ./run-mmtests.sh --config. Its benchmark "script" fetches
# jobs/run.sh with wget, so MM_RECLAIM is where this repository is served from; in the
# environment too: KSELFTEST_PATH, where the selftests are installed ({PATH} if not set).
export MMTESTS="script"

export RUN_MONITOR=yes
export MONITORS_ALWAYS=
export MONITORS_GZIP="proc-vmstat mpstat"
export MONITORS_WITH_LATENCY="vmstat"
export MONITOR_UPDATE_FREQUENCY=1

# The tests bring swap of their own and skip with any other: swapoff -a comes first, by hand.
export SWAP_CONFIGURATION=default

export SCRIPT_LOCATION="${{MM_RECLAIM:?}}/jobs/run.sh"
export SCRIPT_KEEP=

export KSELFTEST_PATH="${{KSELFTEST_PATH:-{PATH}}}"
export KSELFTEST_TESTS="{' '.join(t.name for t in tests)}"
'''


def generate():
    """All files: {path below jobs/: text}."""
    tests = list(bases.load_tests().values())
    base = bases.pick_bases('mainline')[0]
    files = {'lkp/mm-reclaim.yaml': lkp(tests, base), 'tuxrun.sh': tuxrun(tests),
             'mmtests/config-mm-reclaim': mmtests(tests), **report_jobs(tests)}
    for test in tests:
        files[f'lava/{test.name}.yaml'] = lava(test)
        files[f'lava/{test.name}.job.yaml'] = lava_job(test)
    return files


def stale():
    """The files in jobs/ that are not as generate() makes them, or should not be there."""
    files = generate()
    have = {str(path.relative_to(JOBS)) for path in JOBS.rglob('*')
            if path.is_file() and path != JOBS / 'run.sh'}
    return sorted([name for name, text in files.items()
                   if name not in have or (JOBS / name).read_text() != text]
                  + [name for name in have if name not in files])


def main():
    """make jobs"""
    files = generate()
    for name, text in files.items():
        if name.endswith('.yaml'):
            try:
                parse(text)
            except ValueError as err:
                raise LabError(f'jobs/{name}: {err}') from err
    for name in stale():
        path = JOBS / name
        if name not in files:
            path.unlink()
            say(f'jobs/{name}: removed')
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name])
        path.chmod(0o755 if name.endswith('.sh') else 0o644)
        say(f'jobs/{name}: written')
    say('jobs are up to date')
