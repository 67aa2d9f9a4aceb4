# SPDX-License-Identifier: GPL-2.0
"""Kernel trees in the cache: a git repository each, with the base and its variants.

One work tree serves all variants of a base. `git checkout` gives a new time
stamp to the files that differ and to no others, so that make compiles again
only what a variant's patches touch.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import cache, fetch
from .bases import ROOT
from .ui import LabError, git, popen, reap, run, say

# Loose objects without compression: importing is three times as fast.
IMPORT = ('-c', 'core.compression=0', '-c', 'core.bigFileThreshold=1')


@dataclass
class Tree:
    """A tree in the cache. `pinned`: whether it is the version that `bases` names."""
    base: object
    path: Path
    version: str
    pinned: bool

    @property
    def ident(self):
        return self.path.name

    def commit_of(self, name):
        return git(self.path, 'rev-parse', f'{name}^{{commit}}')

    def tree_of(self, commit):
        return git(self.path, 'rev-parse', f'{commit}^{{tree}}')


def _line(path):
    """VERSION.PATCHLEVEL of the tree at path; a LabError when it is not a kernel tree."""
    try:
        text = (path / 'Makefile').read_text(errors='replace')
    except OSError as err:
        raise LabError(f'{path} is not a kernel tree: no Makefile',
                       'TREE= is the directory that has Kbuild and MAINTAINERS') from err
    found = dict(re.findall(r'^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION) *= *(.*)$', text, re.M))
    if 'VERSION' not in found or 'PATCHLEVEL' not in found:
        raise LabError(f'{path} is not a kernel tree: no VERSION in its Makefile',
                       'TREE= is the directory that has Kbuild and MAINTAINERS')
    line = f'{found["VERSION"]}.{found["PATCHLEVEL"]}'
    return line, f'{line}.{found.get("SUBLEVEL", "0")}{found.get("EXTRAVERSION", "")}'


def _commit_all(path, message):
    git(path, *IMPORT, 'add', '-A', '-f', '.')
    git(path, 'commit', '-q', '--allow-empty', '-m', message)
    git(path, 'tag', '-f', 'base')


def _unpack(deb, target):
    """Unpack the source tarball inside a linux-source package to `target`."""
    part = target.with_name(target.name + '.part')
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    _, names = run(['sh', '-c', 'dpkg-deb --fsys-tarfile "$1" | tar tf - | grep "\\.tar\\.xz$"',
                    'sh', str(deb)], check=False)
    # bash for pipefail: a truncated package must not look like a small kernel.
    proc = popen(['bash', '-o', 'pipefail', '-c',
                  'dpkg-deb --fsys-tarfile "$1" | tar xOf - "$2" | xz -dcT0 |'
                  ' tar xf - --strip-components=1 -C "$3"',
                  'bash', str(deb), names.strip(), str(part)])
    if reap(proc) or not names.endswith('.tar.xz\n'):
        raise LabError(f'cannot unpack {deb}', 'is the disk full? remove the file to fetch it again')
    return part


def _imported(path):
    """Whether a tree is in the cache; git may have packed the tag away."""
    return (path / '.git').exists() and \
        not git(path, 'rev-parse', '-q', '--verify', 'refs/tags/base', check=False)[0]


def from_package(base):
    """The tree of a base from its Debian package."""
    path = cache.path('tree', f'{base.name}-{base.version.replace("~", "-")}')
    version = base.version
    if not _imported(path):
        deb, version = fetch.package(base)
        path = cache.path('tree', f'{base.name}-{version.replace("~", "-")}')
    if not _imported(path):
        cache.need_space(f'the tree of {base.name}', 5000)
        say(f'unpack {deb.name}')
        part = _unpack(deb, path)
        say(f'import {base.name} {version} into git, so that variants cost a checkout')
        git(part, 'init', '-q')
        _commit_all(part, f'{base.package} {version}')
        # Objects of an earlier import: its commits are gone, and the new files have old times.
        for old in cache.path('build', 'x').parent.glob(f'{path.name}-*'):
            shutil.rmtree(old)
        cache.replace(part, path)
    return Tree(base, path, version, version == base.version)


def from_user(base, where):
    """The user's own tree as a base: read, and never written to.

    A git tree is taken at its HEAD, and has to be clean; a plain one is copied.
    """
    where = Path(where).expanduser().resolve()
    line, version = _line(where)
    if line != base.line:
        raise LabError(f'TREE={where} is Linux {version}, and BASE={base.name} needs {base.line}',
                       'take another BASE, or another tree')
    if (where / '.git').exists():
        dirty = git(where, 'status', '--porcelain', '--untracked-files=no',
                    env={'GIT_OPTIONAL_LOCKS': '0'})
        if dirty:
            raise LabError(f'TREE={where} has changes that are not committed: '
                           f'{dirty.splitlines()[0].strip()}', 'commit or stash them')
        head = git(where, 'rev-parse', 'HEAD')
        path = cache.path('tree', f'own-{cache.digest(str(where), head)}')
        if not _imported(path):
            cache.need_space(f'a checkout of {where}', 3000)
            part = path.with_name(path.name + '.part')
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            git(part, 'init', '-q')
            # Not clone --shared: git gives an object of the user's that it makes again the time.
            git(part, 'fetch', '-q', '--depth=1', '--no-tags', str(where), head)
            git(part, 'checkout', '-q', '--detach', head)
            git(part, 'tag', 'base', head)
            cache.replace(part, path)
        return Tree(base, path, f'{version} ({head[:12]})', False)
    for left in ('.config', 'vmlinux', 'include/config/auto.conf'):
        if (where / left).exists():
            raise LabError(f'TREE={where} is not clean: it has {left}', 'make mrproper in it')
    path = cache.path('tree', f'own-{cache.digest(str(where))}')
    if not (path / '.git').exists():
        cache.need_space(f'a copy of {where}', 5000)
        path.mkdir(exist_ok=True)
        git(path, 'init', '-q')
    (path / '.git/index.lock').unlink(missing_ok=True)      # of a git that was killed
    git(path, 'checkout', '-q', '-f', 'base', check=False)
    # By content and without times: what changes is newer than the objects made of it, whatever
    # time it has in the user's tree.
    run(['rsync', '-rlpgoD', '--checksum', '--delete', '--exclude=/.git', f'{where}/', f'{path}/'])
    _commit_all(path, f'copy of {where}')
    return Tree(base, path, version, False)


def get(base, user_tree=''):
    """The tree of a base: the user's when TREE= is set, else the packaged one."""
    return from_user(base, user_tree) if user_tree else from_package(base)


def _explain(tree, patch):
    """Which hunk of a patch does not apply to the checked-out tree, in words."""
    _, out = run(['patch', '-p1', '-F0', '--dry-run', '-f', '-i', str(patch)],
                 cwd=tree.path, check=False)
    name = ''
    for line in out.splitlines():
        match = re.match(r'checking file (\S+)', line)
        if match:
            name = match.group(1)
        if 'FAILED' in line or "can't find file" in line or 'Reversed' in line:
            return f'{name}: {line.strip()}' if name else line.strip()
    return 'git am refuses it, patch would take it'


def offsets(tree, patch):
    """The hunks of a patch that apply to the checked-out tree at another line: a list of text."""
    _, out = run(['patch', '-p1', '-F0', '--dry-run', '-f', '-i', str(patch)],
                 cwd=tree.path, check=False)
    found, name = [], ''
    for line in out.splitlines():
        match = re.match(r'checking file (\S+)', line)
        if match:
            name = match.group(1)
        elif 'offset' in line or 'fuzz' in line:
            found.append(f'{patch.name}: {name}: {line.strip()}')
    return found


def checkout(tree, commit):
    """Make the work tree that of `commit`; only the files that differ are written."""
    lock = tree.path / '.git/index.lock'
    if lock.exists():           # of a git that was killed: the cache lock says none runs
        lock.unlink()
    shutil.rmtree(tree.path / '.git/rebase-apply', ignore_errors=True)
    git(tree.path, 'checkout', '-q', '-f', '--detach', commit)
    git(tree.path, 'clean', '-q', '-f', '-d')


def apply(tree, start, patches, cached=None):
    """Apply mbox patches with git am on top of `start`; the resulting commit.

    `cached` names the result: it is used again while the patches stay the same.
    Applying does not need a checkout of its own: done in the work tree, where
    only what changes is written.
    """
    key = cache.digest(tree.commit_of(start), *[p.read_bytes() for p in patches])
    ref = f'refs/mmlab/{cached}-{key}' if cached else None
    moved = cache.path('offsets', f'{tree.ident}-{key}')
    if ref:
        code, out = git(tree.path, 'rev-parse', '-q', '--verify', ref, check=False)
        if not code:
            if moved.exists():
                print(moved.read_text(), end='', flush=True)
            return out.strip()
    checkout(tree, start)
    moved.unlink(missing_ok=True)
    for patch in patches:
        if not tree.pinned:
            for text in offsets(tree, patch):
                say(f'offset: {text}')
                with open(moved, 'a', encoding='utf-8') as out:
                    out.write(f'offset: {text}\n')
        code, out = git(tree.path, 'am', '-q', '--keep-non-patch', '--committer-date-is-author-date',
                        str(patch), check=False)
        if code:
            git(tree.path, 'am', '--abort', check=False)
            raise LabError(f'{_relative(patch)} does not apply to {tree.base.name} {tree.version}: '
                           f'{_explain(tree, patch)}',
                           'rebase the patch, or take the tree it is made for')
    head = git(tree.path, 'rev-parse', 'HEAD')
    if ref:
        git(tree.path, 'update-ref', ref, head)
    return head


def _relative(path):
    try:
        return path.relative_to(ROOT)
    except ValueError:
        return path


def apply_plain(tree, start, patch, reverse=False, cached=None):
    """Apply (or take back) the diff of one patch on top of `start`; the resulting commit."""
    key = cache.digest(tree.commit_of(start), patch.read_bytes(), str(reverse))
    ref = f'refs/mmlab/{cached}-{key}' if cached else None
    if ref:
        code, out = git(tree.path, 'rev-parse', '-q', '--verify', ref, check=False)
        if not code:
            return out.strip()
    checkout(tree, start)
    args = ['-R'] if reverse else []
    code, out = git(tree.path, 'apply', '--index', *args, str(patch), check=False)
    if code:
        what = 'cannot be taken back out of' if reverse else 'does not apply to'
        detail = out.strip().splitlines()[0] if reverse else _explain(tree, patch)
        raise LabError(f'{_relative(patch)} {what} the patched tree of {tree.base.name}: {detail}',
                       'write a mutant by hand' if reverse else 'rebase the mutant')
    git(tree.path, 'commit', '-q', '-m', f'{"without" if reverse else "with"} {patch.name}',
        env={'GIT_AUTHOR_DATE': '2000-01-01T00:00:00Z', 'GIT_COMMITTER_DATE': '2000-01-01T00:00:00Z'})
    head = git(tree.path, 'rev-parse', 'HEAD')
    if ref:
        git(tree.path, 'update-ref', ref, head)
    return head


def kernel_key(tree, commit):
    """A key over all of a commit that a kernel is built from.

    Selftests and documentation are not part of it: a change there leaves the
    kernel as it is.
    """
    top = [line for line in git(tree.path, 'ls-tree', commit).splitlines()
           if line.split('\t')[1] not in ('tools', 'Documentation', 'MAINTAINERS', 'samples')]
    tools = [line for line in git(tree.path, 'ls-tree', commit, 'tools/').splitlines()
             if line.split('\t')[1] != 'tools/testing']
    return cache.digest('\n'.join(top + tools))


def selftests_key(tree, commit):
    """A key over what the selftests are built from."""
    lines = git(tree.path, 'ls-tree', commit, 'tools/', 'include/', 'arch/x86/', 'Makefile',
                'scripts/')
    return cache.digest(lines)


def series_hash(paths):
    """A hash over the series: the names and contents of its patches."""
    return cache.digest(*[p.name for p in paths], *[p.read_bytes() for p in paths])


def disk_usage():
    """MiB that the cache takes."""
    _, out = run(['du', '-sm', str(cache.CACHE)], check=False)
    return int(out.split()[0]) if out.split() and os.path.isdir(cache.CACHE) else 0
