# SPDX-License-Identifier: GPL-2.0
"""The cache outside of the clone: where everything lives, who holds it, is there room."""

import fcntl
import hashlib
import os
import re
import shutil
import sys
from pathlib import Path

from . import ui
from .ui import LabError

CACHE = Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache').absolute() / 'mm-reclaim'

_lock = None


def digest(*parts):
    """A short key over strings, bytes and files (by content)."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            part = part.read_bytes()
        elif isinstance(part, str):
            part = part.encode()
        sha.update(len(part).to_bytes(8, 'little') + part)
    return sha.hexdigest()[:16]


def path(*parts):
    """A path in the cache; its parent directory is made."""
    target = CACHE.joinpath(*parts)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise LabError(f'cannot make {target.parent}: {err.strerror}',
                       'set XDG_CACHE_HOME to a directory you can write to') from err
    return target


def lock():
    """Hold the cache for this process; a LabError when another one has it."""
    global _lock
    if re.search(r'[\s:]', str(CACHE)):
        raise LabError(f'the cache {CACHE} has a space or a colon in its path, which kernel builds '
                       'do not take', 'set XDG_CACHE_HOME to another directory')
    _lock = open(path('lock'), 'a+', encoding='utf-8')
    try:
        fcntl.flock(_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as err:
        _lock.seek(0)
        holder = _lock.read().strip() or 'another process'
        raise LabError(f'the cache {CACHE} is in use by {holder}',
                       'wait for it, or set XDG_CACHE_HOME to another directory') from err
    _lock.truncate(0)
    _lock.write(f'process {os.getpid()} ({" ".join(sys.argv[1:])[:200]})')
    _lock.flush()
    # Children hold it too: should this process be killed, nobody builds beside its make.
    ui.LOCK_FDS.append(_lock.fileno())


def need_space(what, mib):
    """A LabError unless the cache's file system has `mib` MiB left for `what`."""
    free = shutil.disk_usage(path('x').parent).free >> 20
    if free < mib:
        raise LabError(f'{what} needs {mib} MiB in {CACHE}, and {free} MiB are free',
                       'free some space, or set XDG_CACHE_HOME to a larger file system')


def replace(source, target):
    """Move a finished directory into its place, so that it is there whole or not at all."""
    if target.exists():
        shutil.rmtree(target)
    os.rename(source, target)
