# SPDX-License-Identifier: GPL-2.0
"""What the lab tells its user: errors of one line, progress, a time budget."""

import errno
import os
import signal
import subprocess
import sys
import time

START = time.monotonic()
# The make that calls the lab, and what would build another kernel than the key says.
CALLERS = ('GIT_', 'CCACHE_', 'KBUILD_', 'KCONFIG_', 'HOST', 'LLVM', 'MAKE', 'GNUMAKE', 'MFLAGS',
           'ARCH', 'CROSS_COMPILE', 'KCFLAGS', 'KCPPFLAGS', 'KAFLAGS', 'CPATH', 'C_INCLUDE_PATH',
           'LIBRARY_PATH')

_stages = []            # [name, seconds] of each stage, for the budget at the end
# Says that a tree may be another user's; with -c, upload-pack would not get to know.
GITCONFIG = os.path.join(os.path.dirname(__file__), 'gitconfig')
LOCK_FDS = []           # descriptors of the cache lock, which children inherit
_children = set()       # running process groups, to be killed on Ctrl-C


class LabError(Exception):
    """An error the user can act on: what happened where, and what to do about it."""

    def __init__(self, what, todo='', code=2):
        super().__init__(what)
        self.what, self.todo, self.code = what, todo, code

    def __str__(self):
        return self.what + (f': {self.todo}' if self.todo else '')


def say(text):
    """Print one progress line with the seconds since the start."""
    print(f'[{time.monotonic() - START:6.1f}] {text}', flush=True)


class stage:
    """Context manager: announces a stage and books its time for the budget."""

    def __init__(self, name, detail=''):
        self.name, self.detail = name, detail

    def __enter__(self):
        say(f'{self.name}: {self.detail}' if self.detail else self.name)
        self.start = time.monotonic()
        return self

    def __exit__(self, *exc):
        spent = time.monotonic() - self.start
        for entry in _stages:
            if entry[0] == self.name:
                entry[1] += spent
                break
        else:
            _stages.append([self.name, spent])


def budget():
    """The lines of the time budget: seconds spent in each stage."""
    lines = [f'  {seconds:7.1f} s  {name}' for name, seconds in _stages]
    lines.append(f'  {time.monotonic() - START:7.1f} s  in all')
    return ['time spent:'] + lines


def kill_children():
    """Kill the process groups of all running children."""
    for pid in list(_children):
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def popen(cmd, **kwargs):
    """Start a child in a process group of its own, so that Ctrl-C can end all of it."""
    try:
        proc = subprocess.Popen(cmd, start_new_session=True, pass_fds=LOCK_FDS, **kwargs)
    except FileNotFoundError as err:
        if err.filename != cmd[0]:
            raise
        raise LabError(f'{cmd[0]} is not installed',
                       'make deps (as root) installs what is missing') from err
    _children.add(proc.pid)
    return proc


def reap(proc, timeout=None):
    """Wait for a child of popen(); its exit code, or None after timeout seconds."""
    try:
        code = proc.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    _children.discard(proc.pid)
    return code


def run(cmd, cwd=None, log=None, env=None, check=True, stdin=None, ticker=None):
    """Run a command and return (exit code, output).

    The output goes to the file `log` as it comes, when one is given. With
    check, a non-zero exit is a LabError with the last line of the output.
    `ticker` is called with each line: for live progress.
    """
    full = {key: value for key, value in os.environ.items()
            if not key.startswith(CALLERS)}
    full.update(LC_ALL='C', **(env or {}))
    proc = popen(cmd, cwd=cwd, env=full, text=True, errors='replace',
                 stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out = []
    try:
        if stdin is not None:
            try:
                proc.stdin.write(stdin)
                proc.stdin.close()
            except BrokenPipeError:
                pass            # it says why it has ended
        with open(log or os.devnull, 'w', encoding='utf-8') as sink:
            for line in proc.stdout:
                out.append(line)
                sink.write(line)
                if ticker:
                    ticker(line)
    except BaseException:
        os.killpg(proc.pid, signal.SIGKILL)
        raise
    finally:
        proc.stdout.close()
        code = reap(proc)
    text = ''.join(out)
    if 'No space left on device' in text:
        raise LabError(f'no disk space left while running {cmd[0]}'
                       + (f' (log: {log})' if log else ''),
                       'free some space, then run the same command again')
    if check and code:
        last = next((line.strip() for line in reversed(out) if line.strip()), 'no output')
        raise LabError(f'{" ".join(map(str, cmd[:4]))} failed with {code}: {last}',
                       f'see {log}' if log else '')
    return code, text


def git(tree, *args, check=True, env=None, stdin=None):
    """Output of git in `tree`, stripped; no hooks, no user configuration."""
    clean = {'GIT_CONFIG_GLOBAL': GITCONFIG, 'GIT_CONFIG_SYSTEM': os.devnull,
             'GIT_AUTHOR_NAME': 'mm-reclaim series',
             'GIT_AUTHOR_EMAIL': 'series@mm-reclaim.invalid',
             'GIT_COMMITTER_NAME': 'mm-reclaim lab',
             'GIT_COMMITTER_EMAIL': 'lab@mm-reclaim.invalid'}
    clean.update(env or {})
    code, out = run(['git', '-C', str(tree), '-c', 'core.hooksPath=/dev/null',
                     '-c', 'core.abbrev=12', '-c', 'advice.detachedHead=false',
                     '-c', 'gc.auto=0', *args],
                    env=clean, check=check, stdin=stdin)
    return (code, out) if not check else out.strip()


def main_guard(func):
    """Run func() and turn LabError and Ctrl-C into one line and an exit code."""
    # SIGINT is ignored in what a script starts in the background; a run can be stopped there too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        return func() or 0
    except LabError as err:
        sys.stdout.flush()
        print(f'error: {err}', file=sys.stderr)
        return err.code
    except OSError as err:
        sys.stdout.flush()
        full = err.errno in (errno.ENOSPC, errno.EDQUOT)
        print(f'error: {err.filename or "while writing"}: {err.strerror}: '
              + ('free some space, then run the same command again' if full else
                 'is it there, and may it be read and written?'), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        kill_children()
        print('\ninterrupted: nothing is lost, the same command goes on from here',
              file=sys.stderr)
        return 130
    finally:
        kill_children()
