# SPDX-License-Identifier: GPL-2.0
"""make send: the mails of one topic, ready to be looked at. Nothing in here sends anything.

A posting has to stand alone on the base, while the series has the topics on top of each other:
their tests share helpers and the lines of a Makefile. So a posting is made again from the series:
the patches to the kernel proper as they are; the files that tests share as a patch of its own; of
each file that several topics add lines to, the lines of this one (git blame knows whose they are).
Documentation/sending.md says what is checked before a mail is written.
"""

import dataclasses
import email.utils
import json
import os
import re
import shutil
import tempfile
import textwrap
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from . import bases, build, cache, check, deps, markdown, refresh, report, runner, tree as trees
from .bases import ROOT
from .ui import LabError, git, run, say, stage

OUT = ROOT / 'out'
PROCESS = 'Documentation/process'       # of the kernel
FILL = '*** TO BE FILLED IN ***'
TOOLS = 'tools/testing/'


@dataclass
class Posting:
    """A stanza of patches/postings."""
    topic: str
    subject: str
    change_id: str
    cover: list


def load_postings(path=ROOT / 'patches/postings'):
    """All postings by topic."""
    postings = {}
    for entry in bases.stanzas(path):
        try:
            posting = Posting(entry['Topic'], entry['Subject'], entry['Change-id'],
                              [name.strip() for name in entry['Cover'].split(';')])
        except KeyError as err:
            raise LabError(f'{path.name}: a stanza lacks {err}') from err
        if not re.fullmatch(r'20\d{6}-[a-z0-9-]+-[0-9a-f]{12}', posting.change_id):
            raise LabError(f'{path.name}: {posting.topic}: Change-id: {posting.change_id} is not '
                           'one', 'YYYYMMDD, a slug and 12 hexadecimal digits, as b4 makes them')
        postings[posting.topic] = posting
    return postings


@dataclass
class Options:
    """What the user asked for."""
    topic: str
    base: object
    version: int = 1
    changes: str = ''
    tree: str = ''
    after: dict = field(default_factory=dict)       # {topic: version that it was posted in}
    assisted: str = ''
    disclose: str = ''
    results: str = ''

    @classmethod
    def from_env(cls):
        """Options from the make variables of the same names, which arrive as environment."""
        env = os.environ
        name = env.get('BASE') or 'mainline'
        picked = bases.pick_bases(name)
        if len(picked) > 1:
            raise LabError(f'BASE={name} are several, and a posting has one', 'BASE=mainline')
        base = picked[0]
        topics = list(dict.fromkeys(p.topic for p in bases.load_series(base).patches))
        topic = env.get('TOPIC', '')
        if topic not in topics:
            raise LabError(f'TOPIC={topic} has no patches in {base.series}' if topic else
                           'TOPIC= says what is to be posted', f'one of {", ".join(topics)}')
        if base.status != 'development':
            raise LabError(f'BASE={base.name} is {base.status}, and stable trees take what is in '
                           f'mainline already ({PROCESS}/stable-kernel-rules.rst)', 'BASE=mainline')
        try:
            version = int(env.get('VERSION') or 1)
            after = {name: int(number or 1) for name, _, number in
                     (word.partition(':') for word in re.split(r'[ ,]+', env.get('AFTER', ''))
                      if word)}
        except ValueError as err:
            raise LabError(f'VERSION= takes a number, AFTER= takes TOPIC or TOPIC:VERSION: {err}'
                           ) from err
        if version < 1:
            raise LabError('VERSION= starts at 1')
        for name in after:
            if name not in topics or name == topic:
                raise LabError(f'AFTER={name}: no other topic has that name',
                               f'one of {", ".join(t for t in topics if t != topic)}')
        assisted = env.get('ASSISTED', '').strip()
        if re.search(r'[\n:<>]', assisted):
            raise LabError(f'ASSISTED={assisted} is what comes behind "Assisted-by: " in one line',
                           'ASSISTED=none where no tool wrote anything')
        return cls(topic, base, version, env.get('CHANGES', ''), env.get('TREE', ''), after,
                   assisted, env.get('DISCLOSE', ''), env.get('RESULTS') or str(ROOT / 'results'))


def _text(path, what):
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as err:
        raise LabError(f'{what}{path} cannot be read: {err}') from err
    if not text:
        raise LabError(f'{what}{path} is empty')
    return text


def identity():
    """Name and address of the submitter, from git and from nowhere else."""
    found = []
    for key in ('user.name', 'user.email'):
        code, out = run(['git', '-C', str(ROOT), 'config', '--get', key], check=False)
        found.append('' if code else out.strip())
    name, address = found
    if not name or not re.fullmatch(r'[^@\s<>]+@[^@\s<>]+\.[^@\s<>]+', address):
        raise LabError('git knows no name and address of yours to sign off with',
                       'git config user.name "Your Name"; git config user.email you@your.domain')
    if address.endswith('.invalid'):
        raise LabError(f'{address}, user.email of git, is no address to send from',
                       'git config user.email you@your.domain')
    return name, address


def changes(opts):
    """The changelog of the versions before this one, newest first; empty for the first."""
    if opts.version == 1:
        if opts.changes:
            raise LabError('CHANGES= says what is new, and VERSION=1 is all new', 'VERSION=2')
        return ''
    path = opts.changes or f'Documentation/changelog/{opts.topic}'
    if not opts.changes and not (ROOT / path).exists():
        raise LabError(f'there is no {path} to say what is new in version {opts.version}',
                       'write it, or name another file with CHANGES=')
    text = _text(ROOT / path if not opts.changes else path, 'CHANGES=' if opts.changes else '')
    if not re.search(rf'^Changes in v{opts.version}:$', text, re.M):
        raise LabError(f'{path} has no line "Changes in v{opts.version}:"',
                       'say below it what changed since the version before')
    return text


# --- Is the series proved?

def _missing(topic, base, series, tests, lrus=('classic', 'mglru')):
    """What a run has to have: [(kernel, test, lru, rows that have to fail)]."""
    names = [t.name for t in tests]
    kerns = [build.Kernel('base', '', '', series.expect, names),
             build.Kernel('patched', '', '', {}, names)]
    for patch in series.patches:
        if patch.topic == topic and patch.is_fix and not patch.by_hand:
            kerns.append(build.Kernel(f'without:{patch.path.stem[:4]}', '', '', patch.expect, names,
                                      [patch.path]))
    for mutant in bases.load_mutants(base):
        if mutant.test in names:
            kerns.append(build.Kernel(f'mutant:{mutant.name}', '', '', mutant.expect,
                                      [mutant.test], [mutant.path]))
    return kerns, [(kern, test, lru) for kern in kerns for test in tests for lru in lrus
                   if runner.wanted(kern, test, lru)]


def _failing(entry):
    return {row['name'] for row in entry['rows'] if row['status'] == 'not ok'}


def _why_not(results, kerns, wanted, keys):
    """Why a run proves nothing about the topic; empty when it does."""
    same = dict(re.findall(r'^(\S+) is the same kernel as (\S+), and', '\n'.join(results['notes']),
                           re.M))
    have = {kern['name']: kern for kern in results['kernels']}
    for kern in kerns:
        name = same.get(kern.name, kern.name)
        if name not in have:
            return f'it has no kernel {kern.name}'
        if have[name]['bad']:
            return f'{kern.name}: {have[name]["bad"]}'
        if name == kern.name and have[name]['key'] != keys(kern, results):
            return f'{kern.name} has changed since'
    for kern, test, lru in wanted:
        name = same.get(kern.name, kern.name)
        entries = [e for e in results['runs']
                   if (e['kernel'], e['test'], e['lru']) == (name, test.name, lru)]
        if not entries:
            return f'{kern.name} was not booted for {test.name} {lru}'
        for entry in entries:
            expected = kern.expect.get((test.name, lru), set())
            if not entry['as_expected'] or _failing(entry) != set(expected):
                caught = kern.name.startswith('mutant:') and not _failing(entry)
                return (f'{kern.name} {test.name} {lru} '
                        + ('was not caught' if caught else
                           f'is not as expected: {entry["why"] or "other rows fail"}'))
    return ''


def proof(opts, place, series, commits):
    """The newest run that proves the topic, and the one with the numbers: a LabError without one."""
    tests = [t for t in bases.load_tests().values() if t.topic == opts.topic]
    if not tests:
        raise LabError(f'no test has the topic {opts.topic}', 'lab/tests.conf')
    own_tree = f' TREE={opts.tree}' if opts.tree else ''
    todo = (f'make run BASE={opts.base.name} TESTS={",".join(t.name for t in tests)}{own_tree}')
    tree_hash = place.tree_of(commits[-1])
    config = cache.digest(*[p.read_bytes() for p in opts.base.config])
    cached = {}

    def keys(kern, results):
        if kern.name not in cached:
            start = 'base' if kern.name == 'base' else commits[-1]
            index = Index(place, start)
            for path in kern.patches:
                index.apply(path, reverse=kern.name.startswith('without'))
            cached[kern.name] = trees.kernel_key(place, index.tree())
            index.close()
        return cache.digest(cached[kern.name], results['config_hash'], results['compiler'])

    kerns, wanted = _missing(opts.topic, opts.base, series, tests)
    reason, proved, numbers = '', None, None
    for path in sorted(Path(opts.results).glob('*/results.json'), reverse=True):
        try:
            results = json.loads(path.read_text())
            if results['base'] != opts.base.name or results['series_tree'] != tree_hash:
                continue
            if results['config_hash'] != config:
                reason = reason or f'{path.parent.name} has another kernel configuration'
                continue
            why = _why_not(results, kerns, wanted, keys)
            part = _why_not(results, kerns[:2], [w for w in wanted if w[0] in kerns[:2]], keys)
        except (ValueError, KeyError, TypeError) as err:
            say(f'{path}: not a result of make run: {err!r}')
            continue
        if why and not reason:
            reason = f'{path.parent.name}: {why}'
        if not why and not proved:
            proved = dict(results, dir=path.parent.name)
        if not part:
            count = _repeats(results, tests)
            if not numbers or count > numbers[0]:
                numbers = (count, dict(results, dir=path.parent.name))
    if not proved:
        raise LabError(reason or f'{opts.results} has no result for the series as it is now (tree '
                       f'{tree_hash[:12]})', todo)
    return tests, kerns, proved, numbers[1]


def _repeats(results, tests):
    """In how many runs base and patched were booted for all of some tests."""
    count = Counter((e['kernel'], e['test'], e['lru']) for e in results['runs'])
    return min(count[kernel, t.name, lru] for kernel in ('base', 'patched') for t in tests
               for lru in ('classic', 'mglru'))


# --- A posting out of the series.

class Index:
    """An index of git by itself: commits are made without a checkout."""

    def __init__(self, place, start):
        handle, self.path = tempfile.mkstemp(dir=place.path / '.git', prefix='mmlab-index-')
        os.close(handle)
        os.unlink(self.path)            # git takes an empty file for a broken index
        self.place, self.env = place, {'GIT_INDEX_FILE': self.path}
        git(place.path, 'read-tree', start, env=self.env)

    def close(self):
        """Remove the file."""
        Path(self.path).unlink(missing_ok=True)

    def apply(self, patch, reverse=False):
        """Apply the diff of a patch; a LabError where it does not fit."""
        code, out = git(self.place.path, 'apply', '--cached', *(['-R'] if reverse else []),
                        str(patch), env=self.env, check=False)
        if code:
            raise LabError(f'{patch.name} does not apply: {out.strip().splitlines()[0]}')

    def put(self, name, blob, mode):
        """A file with other contents."""
        git(self.place.path, 'update-index', '--add', '--cacheinfo', f'{mode},{blob},{name}',
            env=self.env)

    def tree(self):
        """Its tree, as an object."""
        return git(self.place.path, 'write-tree', env=self.env)


# The series as such is no posting: the same commits each time.
FIXED = {'GIT_AUTHOR_DATE': '2000-01-01T00:00:00Z', 'GIT_COMMITTER_DATE': '2000-01-01T00:00:00Z'}


def series_commits(place, series):
    """The series on the base, as commits, in its order."""
    index, parent, commits = Index(place, 'base'), place.commit_of('base'), []
    try:
        for patch in series.patches:
            index.apply(patch.path)
            parent = git(place.path, 'commit-tree', index.tree(), '-p', parent, '-m', patch.name,
                         env=FIXED)
            commits.append(parent)
    finally:
        index.close()
    return commits


def _message(path):
    """Subject and text of a patch."""
    with tempfile.TemporaryDirectory() as tmp:
        head = git(tmp, 'mailinfo', '-u', '--encoding=UTF-8', f'{tmp}/text', f'{tmp}/diff',
                   stdin=path.read_text())
        subject = re.search(r'^Subject: (.*)$', head, re.M).group(1)
        return f'{subject}\n\n{(Path(tmp) / "text").read_text().strip()}\n'


class Sorter:
    """Knows which topic each line belongs to of the files that several of them add lines to."""

    def __init__(self, place, series, commits):
        self.place, self.series, self.head = place, series, commits[-1]
        self.owner = dict(zip(commits, series.patches))
        self.blamed = {}
        # The patch which brings files that are no test: others need these, and not its test.
        self.carrier = next((p for p in series.patches if self.shared(p)), None)

    def shared(self, patch):
        """The files of a patch that are not the source of a test."""
        return [name for name in patch.files
                if Path(name).stem not in self._tests(patch.topic)]

    @staticmethod
    def _tests(topic):
        return {t.name for t in bases.load_tests().values() if t.topic == topic}

    def needs_shared(self, topic):
        """Whether the tests of a topic need what the carrier brings along."""
        if not self.carrier or self.carrier.topic == topic:
            return False
        return any(f'"{name}"' in (ROOT / 'selftests' / own).read_text()
                   for patch in self.series.patches if patch.topic == topic
                   for own in patch.files for name in self.shared(self.carrier))

    def lines(self, name):
        """A file of the whole series: [(patch or None for the base, line)]."""
        if name not in self.blamed:
            code, out = git(self.place.path, 'blame', '--line-porcelain', f'base..{self.head}',
                            '--', name, check=False)
            if code:
                raise LabError(f'git blame {name}: {out.strip()}')
            found, patch = [], None
            for line in out.split('\n'):
                match = re.match(r'([0-9a-f]{40}) \d+ \d+', line)
                if match:
                    patch = self.owner.get(match.group(1))
                elif line.startswith('\t'):
                    found.append((patch, line[1:]))
            _, whole = git(self.place.path, 'show', f'{self.head}:{name}', check=False)
            code, old = git(self.place.path, 'show', f'base:{name}', check=False)
            kept = [line for patch, line in found if not patch]
            if '\n'.join(line for _, line in found) + '\n' != whole or \
                    not code and '\n'.join(kept) + '\n' != old:
                raise LabError(f'{name}: patches take lines of the base away, so that what each '
                               'topic adds cannot be told apart')
            self.blamed[name] = found
        return self.blamed[name]

    def keep(self, patch, line, have, shared):
        """Whether a line is there when the patches `have` are, and what the carrier brings."""
        if not patch or patch in have:
            return True
        if not shared or patch is not self.carrier:
            return False
        return not any(re.search(rf'\b{test}\b', line) for test in self._tests(patch.topic))

    def text(self, name, have, shared):
        """A file as it is with the patches `have`; None when it is not there."""
        out, some = [], False
        for patch, line in self.lines(name):
            if not self.keep(patch, line, have, shared):
                continue
            # What separated a line that is gone would be two empty ones.
            if patch and not line and out and not out[-1]:
                continue
            out.append(line)
            some = True
        return '\n'.join(out) + '\n' if some else None


@dataclass
class Mail:
    """A patch of a posting."""
    commit: str
    parent: str
    source: object              # the patch of the series, None for the shared files


def compose(place, series, commits, topics, sign):
    """The postings of some topics on top of each other: [[Mail]]. `sign` adds to a message."""
    sorter = Sorter(place, series, commits)
    index, parent = Index(place, 'base'), place.commit_of('base')
    have, shared, postings = [], False, []

    def commit(message, source, last):
        nonlocal parent
        new = git(place.path, 'commit-tree', index.tree(), '-p', parent, '-F', '-',
                  stdin=sign(message) if last else message, env=sign.env if last else FIXED)
        postings[-1].append(Mail(new, parent, source))
        parent = new

    def put(name):
        mode = git(place.path, 'ls-tree', sorter.head, name).split()[0]
        text = sorter.text(name, have, shared)
        if text is not None:
            index.put(name, git(place.path, 'hash-object', '-w', '--stdin', stdin=text), mode)

    try:
        for topic in topics:
            last = topic == topics[-1]
            postings.append([])
            for patch in series.patches:
                if patch.topic != topic:
                    continue
                if patch.is_fix:
                    index.apply(patch.path)
                    have.append(patch)
                    commit(_message(patch.path), patch, last)
                    continue
                if sorter.needs_shared(topic) and not shared and sorter.carrier not in have:
                    shared = True
                    own = {f'{test}.c' for test in sorter._tests(sorter.carrier.topic)}
                    for name in bases.touched(sorter.carrier.path):
                        if Path(name).name not in own:
                            put(name)
                    commit(_text(ROOT / 'patches/shared-selftest', '') + '\n', None, last)
                have.append(patch)
                for name in bases.touched(patch.path):
                    put(name)
                commit(_message(patch.path), patch, last)
    finally:
        index.close()
    return postings


class Sign:
    """Adds the trailers of the submitter to a commit message, and is its author."""

    def __init__(self, place, name, address, assisted):
        self.place = place
        self.env = {'GIT_AUTHOR_NAME': name, 'GIT_AUTHOR_EMAIL': address,
                    'GIT_COMMITTER_NAME': name, 'GIT_COMMITTER_EMAIL': address}
        self.trailers = [] if assisted in ('', 'none') else [f'Assisted-by: {assisted}']
        self.trailers.append(f'Signed-off-by: {name} <{address}>')

    def __call__(self, message):
        args = [word for trailer in self.trailers for word in ('--trailer', trailer)]
        return git(self.place.path, 'interpret-trailers', '--no-divider', *args, stdin=message) + '\n'


def depends(place, series, commits, opts, sign):
    """compose() for the topic, after others where it does not apply without: the postings."""
    topics = list(dict.fromkeys(p.topic for p in series.patches))
    after = [t for t in topics if t in opts.after]
    try:
        return after, compose(place, series, commits, after + [opts.topic], sign)
    except LabError as err:
        for other in topics[:topics.index(opts.topic)]:
            if other in after:
                continue
            more = [t for t in topics if t in after or t == other]
            try:
                found = compose(place, series, commits, more + [opts.topic], sign)
            except LabError:
                continue
            say(f'{err}: so it comes after {other}, which has to be posted before')
            opts.after[other] = 1
            return more, found
        raise


# --- What is proved of each patch.

def _objects(place, mails):
    """The objects of the files that the patches to the kernel touch."""
    names = git(place.path, 'diff', '--name-only', mails[0].parent, mails[-1].commit).splitlines()
    return sorted(name[:-2] + '.o' for name in names
                  if name.endswith('.c') and not name.startswith('tools/'))


def _noise(place, text):
    """The warnings in an output of make, without line numbers, counted; the files sparse reads,
    and those it gives up on: after an error it makes none of its checks."""
    found, read, unread, name = Counter(), set(), set(), ''
    for line in text.splitlines():
        match = re.match(r'  CHECK +(\S+)', line)
        if match:
            name = re.sub(r'^(\.\./)+', '', match.group(1)).replace(f'{place.path}/', '')
            read.add(name)
        match = re.match(r'(\S+?\.[chS]):\d+:(?:\d+:)? *((?:sparse: )?(warning|error): .*)', line)
        if match:
            where = os.path.normpath(match.group(1)).replace(f'{place.path}/', '')
            found[re.sub(r'^(\.\./)+', '', where) + f': {match.group(2)}'] += 1
            if match.group(3) == 'error':
                unread.add(name)
    return found, read, unread


def _checker(place):
    """sparse, in the words that make takes: with the definitions that make it read this tree."""
    # Of trace points it reads nothing but stubs: it gives up on the long formats of some, and then
    # makes none of its checks in the files that define them.
    words = 'sparse -DNOTRACE'
    probe = place.path / 'scripts/checker-valid.sh'
    if not probe.exists() or run(['sh', str(probe), *words.split()], check=False)[1].strip() == '1':
        return words
    # The kernel asks for this operator, which sparse 0.6.4 does not have, and uses it with gcc 14.
    words += ' -D__typeof_unqual__=__typeof__'
    if run(['sh', str(probe), *words.split()], check=False)[1].strip() != '1':
        raise LabError('this sparse is too old for the tree', 'see scripts/checker-valid.sh there')
    return words


def _compile(place, commit, objects, out, config_hash):
    """Build some objects of a commit with W=1 and sparse: (warnings, files that sparse cannot
    read). A LabError if it fails."""
    checker = _checker(place)
    _, sparse = run(['sparse', '--version'])
    key = cache.digest(trees.kernel_key(place, commit), config_hash, build.compiler(), sparse,
                       checker, ' '.join(objects))
    kept = cache.path('send', f'objects-{key}.json')
    if not kept.exists():
        trees.checkout(place, commit)
        log = cache.path('log', f'send-{place.ident}.log')
        code, text = run(['nice', *build._make(place, out, f'-j{build.JOBS}', '-k',
                                               '--output-sync=target', 'W=1', 'C=2',
                                               f'CHECK={checker}', *objects)],
                         env=build._env(), check=False, log=log)
        bad = [o for o in objects if not (out / o).exists()]
        if code or bad:
            error = next((line for line in text.splitlines() if re.search(r'error[: ]', line)),
                         f'make: {code}, no {" ".join(bad)}')
            raise LabError(f'{commit[:12]} does not build: {error.strip()}', f'see {log}')
        noise, read, unread = _noise(place, text)
        left = [o for o in objects if o[:-2] + '.c' not in read]
        if left:
            raise LabError(f'sparse was not run on {" ".join(left)}', f'see {log}')
        part = kept.with_suffix('.part')
        part.write_text(json.dumps({'noise': noise, 'unread': sorted(unread)}, indent=1))
        os.rename(part, kept)
    found = json.loads(kept.read_text())
    return Counter(found['noise']), found['unread']


def _name(place, mail):
    return git(place.path, 'log', '-1', '--format=%s', mail.commit)


def builds(place, mails):
    """Each prefix builds, and no patch adds a warning of W=1 or sparse: what was done, in words."""
    objects = _objects(place, mails)
    if not objects:
        return ['no file of the kernel proper is touched: nothing to build']
    out, config_hash = build.configure(place)
    before, unread = _compile(place, mails[0].parent, objects, out, config_hash)
    start, lines = sum(before.values()), []
    for nr, mail in enumerate(mails, 1):
        after, unread = _compile(place, mail.commit, objects, out, config_hash)
        more = after - before
        if more:
            raise LabError(f'patch {nr}, "{_name(place, mail)}", adds a warning: '
                           f'{next(iter(more))}')
        before = after
        lines.append(f'patch 1 to {nr}: {len(objects)} objects build with W=1 and sparse, '
                     f'{sum(after.values())} warnings ({start} on the base), none new')
    lines = [f'objects: {" ".join(objects)}'] + lines
    if unread:
        lines.append(f'not checked by this sparse, which cannot read them: {" ".join(unread)}')
    return lines


def builds_tests(place, commit, tests, base):
    """The Makefile of the selftests builds the tests of a topic, without any other topic."""
    out, _ = build.configure(place)
    key = cache.digest(trees.selftests_key(place, commit), build.compiler(),
                       ' '.join(t.name for t in tests))
    kept = cache.path('send', f'tests-{key}')
    if kept.exists():
        return
    trees.checkout(place, commit)
    log = cache.path('log', f'send-tests-{place.ident}.log')
    run(['nice', *build._make(place, out, f'-j{build.JOBS}', 'headers')], env=build._env(), log=log)
    with tempfile.TemporaryDirectory(dir=kept.parent) as tmp:
        code, text = run(['nice', 'make', '-C', str(place.path / base.selftests), f'OUTPUT={tmp}',
                          f'KHDR_INCLUDES=-isystem {out}/usr/include',
                          *[f'{tmp}/{t.name}' for t in tests]], check=False, log=log)
        names = '|'.join([t.name for t in tests] + ['reclaim_util'])
        bad = re.search(rf'.*\b(?:{names})\.[ch]:\d+.*(?:warning|error).*', text)
        if code or bad:
            last = next((line for line in text.splitlines() if 'rror' in line), f'make: {code}')
            raise LabError('the tests of this posting do not build by themselves: '
                           + (bad.group(0) if bad else last).strip(), f'see {log}')
    kept.write_text('')


def checkpatch(place, path):
    """checkpatch --strict on a mail: as make check does, but that it has to be signed off."""
    words = check.checkpatch_options()
    at = words.index('MISSING_SIGN_OFF') if 'MISSING_SIGN_OFF' in words else 0
    if at:
        del words[at - 1:at + 1]
    code, out = run(['perl', str(place.path / 'scripts/checkpatch.pl'), '--strict', '--no-summary',
                     '--terse', f'--root={place.path}', *words, str(path)], cwd=place.path,
                    check=False, env={'PATH': '/usr/sbin:/usr/bin:/sbin:/bin'})
    if code or out.strip():
        raise LabError('checkpatch: ' + (out.strip().splitlines() or [f'exit {code}'])[0].replace(
            f'{path.parent}/', ''))


def recipients(place, paths):
    """To and Cc as the tree's get_maintainer.pl says: maintainers and reviewers, lists."""
    def ask(*flags):
        code, out = run(['perl', str(place.path / 'scripts/get_maintainer.pl'), '--nogit',
                         '--nogit-fallback', '--norolestats', *flags, *map(str, paths)],
                        cwd=place.path, check=False)
        if code:
            raise LabError(f'get_maintainer.pl: {out.strip().splitlines()[-1:]}')
        return [line.strip() for line in out.splitlines() if '@' in line]

    people, lists = ask('--nol'), ask('--nom', '--nor', '--l')
    maintainers = ask('--nol', '--nor')
    if not people and not lists:
        raise LabError('get_maintainer.pl names nobody')
    return maintainers or people, [p for p in people if p not in maintainers] + lists


# --- The mails.

def _header(word, addresses):
    """A header with addresses, one a line; names in what RFC 2047 takes."""
    pairs = email.utils.getaddresses(addresses)
    text = ',\n\t'.join(email.utils.formataddr(pair) for pair in pairs)
    return f'{word}: {text}\n'


def _measured(proved, numbers, kerns, tests, mails, opts):
    """How it was measured, as text of a cover letter."""
    own = {mail.source.path.stem[:4]: nr for nr, mail in enumerate(mails, 1) if mail.source}
    names = {}
    for kern in kerns[2:]:
        kind, _, name = kern.name.partition(':')
        names[kern.name] = f'without patch {own[name]}' if kind == 'without' else \
            textwrap.shorten(next(k['desc'] for k in proved['kernels'] if k['name'] == kern.name),
                             52, placeholder='...')
    others = len({p.topic for p in bases.load_series(opts.base).patches}) - 1
    text = [f'Counted in QEMU guests ({numbers["accel"]}), Linux {numbers["version"]}; not timed, '
            'and not measured on hardware.'
            + (' Base and patched differ by all of the collection that this posting is from, '
               f'{others + 1} topics, and not by it alone.' if others else '')
            + f' Tree of the whole: {proved["series_tree"]}. Counters that got worse come '
            'first; rows that are equal are left out.']
    text = textwrap.wrap(text[0], 72)
    return '\n'.join(text + ['', report.narrow(numbers, [t.name for t in tests]), '',
                             *textwrap.wrap('Each of these brings a bug back, and has to fail the '
                                            'rows that it is about and no others; it does (rows '
                                            'that fail, of all rows):', 72), '',
                             report.caught(proved, [t.name for t in tests], names)])


def rules(place):
    """What this kernel asks of who was assisted by tools: text to show, and the form of the tag."""
    text, tag = [], 'Assisted-by:'
    for name in ('coding-assistants.rst', 'generated-content.rst'):
        code, out = git(place.path, 'show', f'base:{PROCESS}/{name}', check=False)
        if not code:
            text.append(f'{PROCESS}/{name}')
            match = re.search(r'^ +(Assisted-by: .*\[.*)$', out, re.M)
            tag = match.group(1) if match else tag
    return text, tag


def _footer(opts, posting, commit, published, prerequisites):
    lines = ['---']
    lines.append(f'base-commit: {commit}' if published else
                 f'base-commit: {commit} (of this machine alone: {FILL})')
    lines += prerequisites
    return '\n'.join(lines + [f'change-id: {posting.change_id}']) + '\n'


def sections(posting):
    """The sections of a topic's page that make its cover letter, as plain text."""
    page, parts = _text(ROOT / f'Documentation/{posting.topic}.md', ''), []
    for name in posting.cover:
        section = markdown.section(page, name)
        if not section:
            raise LabError(f'Documentation/{posting.topic}.md has no section "{name}"',
                           'the line Cover: of patches/postings names its headings')
        parts.append(f'{name}\n{"=" * len(name)}\n\n{markdown.plain(section)}')
    return parts


def cover(opts, posting, place, measured, what, todo):
    """The text of the cover letter."""
    parts = sections(posting)
    parts.insert(-1 if len(parts) > 1 else 1, f'Measured\n========\n\n{measured}')
    if what:
        parts.append(what)
    names, tag = rules(place)
    if opts.assisted != 'none' and names:
        given = _text(opts.disclose, 'DISCLOSE=') if opts.disclose else ''
        if not opts.assisted:
            todo.append(f'ASSISTED= is not set. {" and ".join(names)} ask for the tag '
                        f'"{tag}" in each patch that a tool contributed to: '
                        'ASSISTED="what comes behind the colon", or ASSISTED=none')
        if not given:
            todo.append(f'DISCLOSE=FILE is not set: {names[-1]} asks the cover letter which tools '
                        'were used, with what input, for which parts, and how it was tested '
                        '(none is needed with ASSISTED=none)')
        parts.append('Use of tools\n============\n\n' + (given or f'{FILL} (see {names[-1]})')
                     + ('' if opts.assisted else f'\n\n{FILL} {tag}'))
    return '\n\n'.join(parts) + '\n'


def _patch_ids(place, mails):
    """prerequisite-patch-id: of commits, as git format-patch --base has it."""
    ids = []
    for mail in mails:
        _, diff = git(place.path, 'diff-tree', '-p', '--no-renames', mail.commit, check=False)
        ids.append('prerequisite-patch-id: '
                   + git(place.path, 'patch-id', '--stable', stdin=diff).split()[0])
    return ids


def write(place, opts, posting, sign, mails, blurb, footer, target, draft):
    """The mails as files below `target`: their paths, the cover letter first."""
    target.mkdir(parents=True)
    name, address = sign.env['GIT_AUTHOR_NAME'], sign.env['GIT_AUTHOR_EMAIL']
    version = [f'-v{opts.version}'] if opts.version > 1 else []
    git(place.path, *[word for word in refresh.FORMAT if word not in ('-1', '--stdout')
                      and word not in ('--zero-commit', '--no-signature', '--no-numbered')],
        '--numbered', '--cover-letter', '--thread=shallow', *version,
        f'--subject-prefix={"DRAFT PATCH" if draft else "PATCH"}', f'--from={name} <{address}>',
        '-o', str(target), f'{mails[0].parent}..{mails[-1].commit}', env=sign.env)
    paths = sorted(target.glob('*.patch'))
    if len(paths) != len(mails) + 1:
        raise LabError(f'{len(paths)} mails for {len(mails)} patches')
    to, cc = recipients(place, paths[1:])
    for path in paths:
        head, blank, body = path.read_text().partition('\n\n')
        # b4 0.12 does not take a sender or a subject that git has folded.
        head = re.sub(r'^((?:From|Subject): .*)\n ', r'\1 ', head, flags=re.M)
        head += '\n' + _header('To', to) + (_header('Cc', cc) if cc else '')
        if path is paths[0]:
            head = head.replace('*** SUBJECT HERE ***', posting.subject)
            body = body.replace('*** BLURB HERE ***', blurb.rstrip())
            body = body.rsplit('\n-- \n', 1)
            body = f'{body[0].rstrip()}\n\n{footer}\n-- \n{body[1]}'
            if not body.isascii() and 'Content-Type' not in head:
                head += ('MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n'
                         'Content-Transfer-Encoding: 8bit\n')
        path.write_text(head.rstrip('\n') + blank + body)
    return paths


def round_trip(place, mbox, start, wanted):
    """b4 am and b4 shazam of the mbox, without a network, give the tree of the posting."""
    with tempfile.TemporaryDirectory() as tmp:
        config = Path(tmp) / 'gitconfig'
        # No server to ask, for the thread or for newer versions: the mbox has to be enough.
        config.write_text('[user]\n\tname = mm-reclaim lab\n\temail = lab@mm-reclaim.invalid\n'
                          '[safe]\n\tdirectory = *\n[gc]\n\tauto = 0\n'
                          '[b4]\n\tmidmask =\n\tsearchmask =\n\tattestation-policy = off\n')
        env = {'HOME': tmp, 'XDG_CACHE_HOME': tmp, 'XDG_DATA_HOME': tmp, 'XDG_CONFIG_HOME': tmp,
               'GIT_CONFIG_GLOBAL': str(config), 'GIT_CONFIG_SYSTEM': os.devnull}

        def same(what, code, out):
            have = place.tree_of('HEAD')
            if code or have != wanted:
                last = out.strip().splitlines()[-1:] or [f'exit {code}']
                raise LabError(f'{what} gives tree {have[:12]}, wanted {wanted[:12]}: {last[0]}')

        trees.checkout(place, start)
        code, out = run(['b4', '--offline-mode', 'am', '-o', tmp, '-n', 'posting', '-C', '-m', str(mbox)],
                        cwd=place.path, env=env, check=False)
        taken = sorted(Path(tmp).glob('posting*.mbx'))
        if code or not taken:
            raise LabError(f'b4 am: {(out.strip().splitlines() or [code])[-1]}')
        same('b4 am, then git am', *git(place.path, 'am', '-q', str(taken[0]), check=False))
        trees.checkout(place, start)
        same('b4 shazam', *run(['b4', '--offline-mode', 'shazam', '-C', '-m', str(mbox)], cwd=place.path, env=env,
                               check=False))
    trees.checkout(place, start)


# --- Put together.

def workplace(tree):
    """A checkout of a tree for this alone: the lab's own keeps its time stamps."""
    path = cache.path('send', f'send-{tree.ident}')
    base = tree.commit_of('base')
    if (path / '.git').exists():
        code, have = git(path, 'rev-parse', '-q', '--verify', 'refs/tags/base^{commit}',
                         check=False)
        if not code and have.strip() == base:
            for left in (path / '.git').glob('mmlab-index-*'):
                left.unlink()
            return dataclasses.replace(tree, path=path)
    cache.need_space(f'a checkout of {tree.ident}', 2500)
    part = path.with_name(path.name + '.part')
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    git(part, 'init', '-q')
    # Borrowed objects, by hand: git clone --shared refuses a shallow tree.
    source = tree.path / '.git'
    (part / '.git/objects/info/alternates').write_text(f'{source / "objects"}\n')
    if (source / 'shallow').exists():
        shutil.copy(source / 'shallow', part / '.git/shallow')
    git(part, 'tag', 'base', base)
    git(part, 'checkout', '-q', '--detach', 'base')
    # Objects made of an earlier import have the same times, and other contents.
    for old in cache.path('build', 'x').parent.glob(f'{path.name}-*'):
        shutil.rmtree(old)
    cache.replace(part, path)
    return dataclasses.replace(tree, path=path)


def published(opts):
    """Whether others can have the base commit; why not, if so."""
    if not opts.tree:
        return (f'base-commit is of this machine alone: the lab imported {opts.base.package}. Take '
                f'a clone of the tree that the patches are for: TREE=/path/to/linux '
                f'(make run TREE=... first), at {opts.base.upstream}')
    where = Path(opts.tree).expanduser()
    if not (where / '.git').exists():
        return f'TREE={where} is not a git tree, so nobody else knows its base commit'
    found = git(where, 'for-each-ref', '--count=1', '--contains', 'HEAD', 'refs/remotes',
                'refs/tags', env={'GIT_OPTIONAL_LOCKS': '0'})
    return '' if found else (f'HEAD of TREE={where} is in no tag and no remote branch, so nobody '
                             'else may have it')


def main():
    """make send TOPIC=..."""
    opts = Options.from_env()
    posting = load_postings().get(opts.topic)
    if not posting:
        raise LabError(f'patches/postings has no stanza for {opts.topic}', 'add one')
    name, address = identity()
    what = changes(opts)
    deps.ensure(dict(deps.RUN, **deps.SEND))
    cache.lock()
    series = bases.load_series(opts.base)
    with stage('fetch', f'{opts.base.name}: {opts.tree or opts.base.package}'):
        place = workplace(trees.get(opts.base, opts.tree))
    with stage('results', opts.results):
        commits = series_commits(place, series)
        runner._tests_are_current(place, series, commits[-1])
        tests, kerns, proved, numbers = proof(opts, place, series, commits)
        say(f'    proved by {proved["dir"]}, numbers of {numbers["dir"]}')
    with stage('posting', opts.topic):
        sign = Sign(place, name, address, opts.assisted)
        after, postings = depends(place, series, commits, opts, sign)
        mails = postings[-1]
        for mail in mails:
            say(f'    {mail.commit[:12]} {_name(place, mail)}')
        git(place.path, 'update-ref', f'refs/mmlab/posting-{opts.topic}', mails[-1].commit)
    log = []
    count = _repeats(numbers, tests)
    if count < 3:
        say(f'    n={count}: for ranges in the table, once more with RUNS=3 MUTANTS=0')
    with stage('builds', 'W=1 and sparse, after each patch'):
        log += builds(place, mails)
        builds_tests(place, mails[-1].commit, tests, opts.base)
        log.append(f'the tests build by themselves: {" ".join(t.name for t in tests)}')
    todo = []
    hidden = published(opts)
    if hidden:
        todo.append(hidden)
    blurb = cover(opts, posting, place, _measured(proved, numbers, kerns, tests, mails, opts),
                  what, todo)
    known = load_postings()
    prerequisites = [line for t, made in zip(after, postings) for line in
                     [f'prerequisite-change-id: {known[t].change_id}:v{opts.after[t]}'
                      if t in known else ''] + _patch_ids(place, made) if line]
    footer = _footer(opts, posting, git(place.path, 'rev-parse', 'base'), not hidden, prerequisites)
    label = f'v{opts.version}'
    final = OUT / opts.topic / (f'{label}-draft' if todo else label)
    part = OUT / opts.topic / 'part'
    shutil.rmtree(part, ignore_errors=True)
    with stage('mails', f'{final.relative_to(ROOT)}'):
        # get_maintainer.pl and checkpatch.pl are those of the base.
        trees.checkout(place, mails[0].parent)
        paths = write(place, opts, posting, sign, mails, blurb, footer, part, bool(todo))
        for path in paths[1:]:
            checkpatch(place, path)
        log.append(f'checkpatch --strict has nothing to say about {len(paths) - 1} patches')
    mbox = part.with_name('part.mbox')
    mbox.write_text(''.join(path.read_text().rstrip('\n') + '\n\n' for path in paths))
    with stage('round trip', 'b4 am, b4 shazam'):
        wanted = place.tree_of(mails[-1].commit)
        round_trip(place, mbox, mails[0].parent, wanted)
        log.append(f'b4 am and b4 shazam give tree {wanted}')
    for old in (final, final.with_name(f'{label}-draft')):
        shutil.rmtree(old, ignore_errors=True)
        old.with_name(f'{old.name}.mbox').unlink(missing_ok=True)
    os.rename(part, final)
    os.rename(mbox, final.with_name(f'{final.name}.mbox'))
    show(opts, final, log, todo)


def show(opts, final, log, todo):
    """What there is now, and what is left to do by hand."""
    (final / 'proof.txt').write_text('\n'.join(log) + '\n')
    where = final.relative_to(ROOT)
    print(f'\n{where}.mbox and {where}/:')
    for path in sorted(final.glob('*.patch')):
        print(f'    {path.name}')
    head = (final / '0000-cover-letter.patch').read_text() if opts.version == 1 else \
        next(final.glob('*-0000-cover-letter.patch')).read_text()
    for line in head.partition('\n\n')[0].splitlines():
        if re.match(r'(To|Cc|\t)', line) or line.startswith(' '):
            print(f'    {line.expandtabs(4)}')
    print('proved:')
    for line in log:
        print(f'    {line}')
    if todo:
        print('a DRAFT, and not to be sent. To do:')
        for line in todo:
            print(textwrap.fill(line, 96, initial_indent='  - ', subsequent_indent='    ',
                                break_on_hyphens=False, break_long_words=False))
        return
    print('nothing was sent. After reading the mails once more, by hand:')
    # The headers name who gets it; what the changelogs name is not to be added.
    print(f'    git send-email --no-thread --suppress-cc=body --suppress-cc=author '
          f'--confirm=always {where}/*.patch')
    print('or, on a branch of b4 prep with these patches: b4 send (Documentation/sending.md)')
