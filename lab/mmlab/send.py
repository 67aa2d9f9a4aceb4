# SPDX-License-Identifier: GPL-2.0
"""make send: the mails of one topic, ready to be looked at. Nothing in here sends anything.

compose.py makes the patches, proof.py what is checked before a mail is written; Documentation/
sending.md says it all in words.
"""

import dataclasses
import datetime
import email.utils
import os
import re
import secrets
import shutil
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from . import bases, cache, compose, deps, markdown, proof, refresh, report, runner
from . import tree as trees
from .bases import ROOT
from .ui import LabError, git, run, say, stage

OUT = ROOT / 'out'
PROCESS = 'Documentation/process'       # of the kernel
FILL = '*** TO BE FILLED IN ***'


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
        slug = f'{datetime.date.today():%Y%m%d}-{opts.topic}-{secrets.token_hex(6)}'
        raise LabError(f'patches/postings has no stanza for {opts.topic}',
                       f'add one; "Change-id: {slug}" would be free')
    label = f'v{opts.version}'
    for old in (OUT / opts.topic / label, OUT / opts.topic / f'{label}-draft'):
        # Whatever comes out of this: what is there afterwards is of now.
        shutil.rmtree(old, ignore_errors=True)
        old.with_name(f'{old.name}.mbox').unlink(missing_ok=True)
    name, address = identity()
    what = changes(opts)
    sections(posting)
    if opts.disclose:
        _text(opts.disclose, 'DISCLOSE=')
    deps.ensure(dict(deps.RUN, **deps.SEND))
    cache.lock()
    series = bases.load_series(opts.base)
    with stage('fetch', f'{opts.base.name}: {opts.tree or opts.base.package}'):
        place = workplace(trees.get(opts.base, opts.tree))
    with stage('results', opts.results):
        commits = compose.series_commits(place, series)
        runner._tests_are_current(place, series, commits[-1])
        tests, kerns, proved, numbers = proof.by_results(opts, place, series, commits)
        say(f'    proved by {proved["dir"]}, numbers of {numbers["dir"]}')
    with stage('posting', opts.topic):
        sign = compose.Sign(place, name, address, opts.assisted)
        after, made = compose.depends(place, series, commits, opts, sign)
        mails = made[-1]
        for mail in mails:
            say(f'    {mail.commit[:12]} {compose.subject(place, mail)}')
        git(place.path, 'update-ref', f'refs/mmlab/posting-{opts.topic}', mails[-1].commit)
    log = []
    count = proof.repeats(numbers, tests)
    if count < 3:
        say(f'    n={count}: for ranges in the table, once more with RUNS=3 MUTANTS=0')
    with stage('builds', 'W=1 and sparse, after each patch'):
        log += proof.builds(place, mails)
        proof.builds_tests(place, mails[-1].commit, tests, opts.base)
        log.append(f'the tests build by themselves: {" ".join(t.name for t in tests)}')
    todo = []
    hidden = published(opts)
    if hidden:
        todo.append(hidden)
    blurb = cover(opts, posting, place, _measured(proved, numbers, kerns, tests, mails, opts),
                  what, todo)
    known = load_postings()
    prerequisites = [line for t, other in zip(after, made) for line in
                     [f'prerequisite-change-id: {known[t].change_id}:v{opts.after[t]}'
                      if t in known else ''] + compose.patch_ids(place, other) if line]
    footer = _footer(opts, posting, git(place.path, 'rev-parse', 'base'), not hidden, prerequisites)
    final = OUT / opts.topic / (f'{label}-draft' if todo else label)
    # Not in out/ before all is proved.
    part = cache.path('send', f'mails-{opts.topic}')
    shutil.rmtree(part, ignore_errors=True)
    with stage('mails', f'{final.relative_to(ROOT)}'):
        # get_maintainer.pl and checkpatch.pl are those of the base.
        trees.checkout(place, mails[0].parent)
        paths = write(place, opts, posting, sign, mails, blurb, footer, part, bool(todo))
        for path in paths[1:]:
            proof.checkpatch(place, path)
        log.append(f'checkpatch --strict has nothing to say about {len(paths) - 1} patches')
    mbox = part.with_name(f'{part.name}.mbox')
    mbox.write_text(''.join(path.read_text().rstrip('\n') + '\n\n' for path in paths))
    with stage('round trip', 'b4 am, b4 shazam'):
        wanted = place.tree_of(mails[-1].commit)
        proof.round_trip(place, mbox, mails[0].parent, wanted)
        log.append(f'b4 am and b4 shazam give tree {wanted}')
    final.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(str(part), str(final))
    shutil.move(str(mbox), str(final.with_name(f'{final.name}.mbox')))
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
