# SPDX-License-Identifier: GPL-2.0
"""make refresh: bring the diffs of the patches up to date; messages stay as they are.

selftests/ is where test sources are edited. Each patch that carries some of
them (its `# files:` line in the series says which) is made again from there;
what else it has, Makefile lines for example, is kept. The other patches come
out as git format-patch prints them on the pinned base: no fuzz, no offset.
"""

import os
import shutil

from . import bases, cache, deps, tree as trees
from .bases import ROOT
from .ui import LabError, git, say

FORMAT = ('format-patch', '-1', '--stdout', '--zero-commit', '--no-signature', '--no-numbered',
          '--abbrev=12', '--stat=72', '--no-renames', '--diff-algorithm=myers')


def printed(path):
    """The last commit of a repository, as the patch files have it."""
    # Not stripped: a hunk may end with an empty line of context, which is one space.
    _, text = git(path, *FORMAT, check=False)
    return text.rstrip('\n') + '\n'


def regenerate(tree):
    """What the patches of a base should be: [(path, text)], in the order of the series."""
    series = bases.load_series(tree.base)
    trees.checkout(tree, 'base')
    result = []
    for patch in series.patches:
        code, out = git(tree.path, 'am', '-q', str(patch.path), check=False)
        if code:
            git(tree.path, 'am', '--abort', check=False)
            raise LabError(f'{patch.path.relative_to(ROOT)} does not apply: '
                           f'{trees._explain(tree, patch.path)}', 'mend it by hand first')
        for name in patch.files:
            source = ROOT / 'selftests' / name
            if not source.is_file():
                raise LabError(f'{tree.base.series}: files: {name} is not in selftests/')
            target = tree.path / tree.base.selftests / name
            shutil.copyfile(source, target)
            os.chmod(target, source.stat().st_mode & 0o777)
            git(tree.path, 'add', '-f', str(target))
        if patch.files:
            git(tree.path, 'commit', '-q', '--amend', '--no-edit')
        result.append((patch.path, printed(tree.path)))
    return result


def drift(tree):
    """The patches which are not what regenerate() makes of them."""
    return [path for path, text in regenerate(tree) if path.read_text() != text]


def main():
    """make refresh [BASE=]"""
    deps.ensure(deps.RUN)
    cache.lock()
    for base in bases.pick_bases(os.environ.get('BASE') or 'all'):
        tree = trees.get(base)
        if not tree.pinned:
            raise LabError(f'{base.name}: {base.version} cannot be had any more, and refreshing '
                           f'on {tree.version} would move the hunks', 'pin that version first')
        for path, text in regenerate(tree):
            if path.read_text() != text:
                path.write_text(text)
                say(f'{path.relative_to(ROOT)}: refreshed')
    say('patches are up to date')
