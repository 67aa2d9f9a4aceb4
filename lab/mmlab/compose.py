# SPDX-License-Identifier: GPL-2.0
"""A posting of one topic out of the series: commits, on the base or on other postings.

The series has the topics on top of each other: their tests share helpers, and the lines of a
Makefile. A posting has to stand alone. It is made of the patches to the kernel proper as they are;
of the files that tests share, as a patch of its own; and of the lines which this topic adds to files
that others add lines to as well: git blame knows whose they are.
"""

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import bases
from .bases import ROOT
from .ui import LabError, git, say


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
                if any(not name.startswith(f'{place.base.selftests}/')
                       for name in bases.touched(patch.path)):
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
                    commit((ROOT / 'patches/shared-selftest').read_text(), None, last)
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


def subject(place, mail):
    return git(place.path, 'log', '-1', '--format=%s', mail.commit)


def patch_ids(place, mails):
    """prerequisite-patch-id: of commits, as git format-patch --base has it."""
    ids = []
    for mail in mails:
        _, diff = git(place.path, 'diff-tree', '-p', '--no-renames', mail.commit, check=False)
        ids.append('prerequisite-patch-id: '
                   + git(place.path, 'patch-id', '--stable', stdin=diff).split()[0])
    return ids
