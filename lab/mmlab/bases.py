# SPDX-License-Identifier: GPL-2.0
"""The declarations of the project: bases, tests, series files, mutants."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from . import ktap
from .ui import LabError

ROOT = Path(__file__).resolve().parents[2]


def stanzas(path):
    """Yield the stanzas of a file as dicts: 'Key: value' lines, blank line between, # comments."""
    entry = {}
    for nr, line in enumerate(path.read_text().splitlines() + [''], 1):
        if line.startswith('#'):
            continue
        if not line.strip():
            if entry:
                yield entry
            entry = {}
            continue
        key, colon, value = line.partition(':')
        if not colon:
            raise LabError(f'{path.name} line {nr}: not "Key: value": {line.strip()}')
        entry[key.strip()] = value.strip()


@dataclass
class Base:
    """A declared kernel tree; the fields are those of the file `bases`."""
    name: str
    line: str
    package: str
    version: str
    suites: list
    upstream: str
    selftests: str
    series: str
    status: str
    flavour: str = ''           # lab/config/FLAVOUR.config comes on top, and FLAVOUR-BASE.config
    arch: str = 'x86_64'        # of another one, all options are in lab/config/ARCH.config

    @property
    def patches(self):
        return ROOT / 'patches' / self.name

    @property
    def mutants(self):
        return ROOT / 'patches' / 'mutants' / self.name

    @property
    def config(self):
        names = ['common', self.name] if self.arch == 'x86_64' else [self.arch]
        names += [self.flavour] if self.flavour else []
        paths = [ROOT / f'lab/config/{name}.config' for name in names]
        more = ROOT / f'lab/config/{self.flavour}-{self.name}.config'
        return paths + ([more] if self.flavour and more.exists() else [])


def load_bases(path=ROOT / 'bases'):
    """All bases by name, in the order of the file."""
    bases = {}
    for entry in stanzas(path):
        try:
            base = Base(entry['Name'], entry['Line'], entry['Package'], entry['Version'],
                        entry['Suites'].split(), entry['Upstream'], entry['Selftests'],
                        entry['Series'], entry['Status'])
        except KeyError as err:
            raise LabError(f'{path.name}: a stanza lacks {err}') from err
        bases[base.name] = base
    return bases


def pick_bases(names):
    """The bases that BASE= names: one, several with commas, or all."""
    bases = load_bases()
    if names == 'all':
        return list(bases.values())
    picked = []
    for name in names.split(','):
        if name not in bases:
            raise LabError(f'BASE={name} is not declared', f'one of {", ".join(bases)} or all')
        picked.append(bases[name])
    return picked


@dataclass
class Test:
    """A paired test; the fields are those of lab/tests.conf."""
    name: str
    topic: str
    report: str
    memory: int
    cpus: int
    timeout: int
    tools: list
    cmdline: str
    mutant_lru: str = 'both'


def load_tests(path=ROOT / 'lab/tests.conf'):
    """All paired tests by name."""
    tests = {}
    for entry in stanzas(path):
        try:
            test = Test(entry['Name'], entry['Topic'], entry['Report'], int(entry['Memory']),
                        int(entry['Cpus']), int(entry['Timeout']), entry.get('Tools', '').split(),
                        entry.get('Cmdline', ''), entry.get('Mutant-lru', 'both'))
        except KeyError as err:
            raise LabError(f'{path.name}: a stanza lacks {err}') from err
        except ValueError as err:
            raise LabError(f'{path.name}: {entry["Name"]}: {err}') from err
        if test.mutant_lru not in ('both', 'classic', 'mglru'):
            raise LabError(f'{path.name}: {test.name}: Mutant-lru: {test.mutant_lru} is not known',
                           'one of both, classic, mglru')
        if 512 <= test.memory < 544:
            raise LabError(f'{path.name}: {test.name}: Memory: {test.memory} switches THP off',
                           'take 544 MiB or more')
        tests[test.name] = test
    return tests


def pick_tests(names):
    """The tests that TESTS= names; all when it is empty."""
    tests = load_tests()
    if not names:
        return list(tests.values())
    picked = []
    for name in re.split(r'[ ,]+', names.strip()):
        if name not in tests:
            raise LabError(f'TESTS={name} is not declared', f'one of {", ".join(tests)}')
        picked.append(tests[name])
    return picked


@dataclass
class Patch:
    """One patch of a series."""
    path: Path
    topic: str = ''
    files: list = field(default_factory=list)      # test sources it carries, names in selftests/
    expect: dict = field(default_factory=dict)     # what fails with this patch left out
    by_hand: str = ''                              # the mutant that leaves it out, if not git apply -R

    @property
    def name(self):
        return self.path.name

    @property
    def is_fix(self):
        """Whether the patch touches the kernel proper: those have a left-out variant."""
        return any(not f.startswith(('tools/', 'Documentation/', 'MAINTAINERS'))
                   for f in touched(self.path))


@dataclass
class Series:
    """A series file: its patches, and what fails on the base without them."""
    patches: list
    expect: dict


def touched(path):
    """The files a patch touches, in the order of the patch."""
    files = []
    for line in path.read_text(errors='replace').splitlines():
        match = re.match(r'diff --git a/(\S+) b/(\S+)$', line)
        if match and match.group(2) not in files:
            files.append(match.group(2))
    return files


def _expect(name, text):
    """ktap.parse_expect(), with the name of the file in its error."""
    try:
        return ktap.parse_expect(text)
    except ValueError as err:
        raise LabError(f'{name}: {err}') from err


def load_series(base):
    """Parse the series file of a base.

    Comments which the lab reads, valid until the next one of the same kind:
      # topic: NAME               section of the series
      # files: A B                test sources that the next patch carries
      # Expect-fail: TEST LRU: ROW; ROW      rows that fail on the unpatched base
      # Expect-fail-without: TEST LRU: ROW   rows that fail with the previous patch left out
                                  (default: what fails on the base)
      # without-by-hand: MUTANT   leaves the previous patch out, where taking its diff back fails
    """
    path = ROOT / base.series
    patches, expect, topic, files = [], [], '', []
    without, by_hand = {}, {}
    for nr, line in enumerate(path.read_text().splitlines(), 1):
        line = line.strip()
        match = re.match(r'#\s*(topic|files|Expect-fail|Expect-fail-without|without-by-hand):\s*(.*)', line)
        if match:
            key, value = match.groups()
            if 'without' in key and not patches:
                raise LabError(f'{base.series} line {nr}: {key}: there is no patch above it')
            if key == 'topic':
                topic = value
            elif key == 'files':
                files = value.split()
            elif key == 'without-by-hand':
                if not (base.mutants / f'{value}.patch').is_file():
                    raise LabError(f'{base.series} line {nr}: no such mutant: {value}')
                by_hand[len(patches) - 1] = value
            elif key == 'Expect-fail':
                expect.append(f'Expect-fail: {value}')
            else:
                without.setdefault(len(patches) - 1, []).append(f'Expect-fail: {value}')
        if not line or line.startswith('#'):
            continue
        name = line.split()[0]
        if not (ROOT / name).is_file():
            raise LabError(f'{base.series} line {nr}: no such patch: {name}')
        patches.append(Patch(ROOT / name, topic, files))
        files = []
    total = _expect(base.series, '\n'.join(expect))
    for nr, patch in enumerate(patches):
        tests = {t.name for t in load_tests().values() if t.topic == patch.topic}
        own = {key: rows for key, rows in total.items() if key[0] in tests}
        patch.expect = _expect(base.series, '\n'.join(without[nr])) if nr in without else own
        patch.by_hand = by_hand.get(nr, '')
    return Series(patches, total)


@dataclass
class Mutant:
    """A patch that brings a bug back: which test must catch it, and in which rows."""
    path: Path
    test: str
    expect: dict
    subject: str

    @property
    def name(self):
        return self.path.stem


def load_mutants(base):
    """The hand-written mutants of a base. Header lines: Subject:, Test:, Expect-fail:."""
    mutants = []
    for path in sorted(base.mutants.glob('*.patch')):
        head = path.read_text().split('\ndiff --git', 1)[0]
        test = re.search(r'^Test: (\S+)$', head, re.M)
        subject = re.search(r'^Subject: (.*)$', head, re.M)
        expect = _expect(path.relative_to(ROOT), head)
        if not test or not subject or not expect:
            raise LabError(f'{path.relative_to(ROOT)}: needs Subject:, Test: and Expect-fail:')
        if test.group(1) not in load_tests() or {t for t, _ in expect} != {test.group(1)}:
            raise LabError(f'{path.relative_to(ROOT)}: Test: and Expect-fail: have to name one test '
                           'of lab/tests.conf')
        mutants.append(Mutant(path, test.group(1), expect, subject.group(1)))
    return mutants
