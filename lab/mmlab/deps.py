# SPDX-License-Identifier: GPL-2.0
"""What the lab needs from Debian, and installing it."""

import glob
import os
import shutil
import subprocess

from .ui import LabError, run, say


def sbin():
    """PATH with the sbin directories, which it has not after su."""
    return os.environ.get('PATH', '') + ':/usr/sbin:/sbin'


# Debian package: the program, or the file, that shows it is there.
RUN = {
    'gcc': 'gcc', 'libc6-dev': '/usr/include/stdio.h', 'make': 'make', 'flex': 'flex',
    'bison': 'bison', 'bc': 'bc', 'perl': 'perl', 'git': 'git', 'patch': 'patch',
    'xz-utils': 'xz', 'rsync': 'rsync', 'kmod': 'modprobe', 'python3': 'python3',
    'libelf-dev': '/usr/include/gelf.h', 'libcap-dev': '/usr/include/sys/capability.h',
    'libnuma-dev': '/usr/include/numa.h', 'linux-libc-dev': '/usr/include/linux/types.h',
    'qemu-system-x86': 'qemu-system-x86_64', 'busybox-static': 'busybox',
    'debian-archive-keyring': '/usr/share/keyrings/debian-archive-keyring.gpg',
    'ccache': 'ccache', 'libc-bin': 'ldd', 'libarchive-tools': 'bsdtar',
}
CHECK = {'quilt': 'quilt', 'shellcheck': 'shellcheck',
         'python3-ply': '/usr/lib/python3/dist-packages/ply/lex.py',
         'python3-git': '/usr/lib/python3/dist-packages/git/__init__.py',
         'lava-common': '/usr/lib/python3/dist-packages/lava_common/schemas/__init__.py'}
SEND = {'b4': 'b4', 'sparse': 'sparse'}
# Two of the scripts for coccinelle are compiled. gcc-multilib and the compilers for other
# architectures exclude each other: 32-bit programs are made by one of those as well.
MATRIX = {'sparse': 'sparse', 'coccinelle': 'spatch', 'ocaml-nox': 'ocamlopt',
          'gcc-aarch64-linux-gnu': 'aarch64-linux-gnu-gcc',
          'libc6-dev-arm64-cross': '/usr/aarch64-linux-gnu/include/stdio.h',
          'gcc-i686-linux-gnu': 'i686-linux-gnu-gcc',
          'libc6-dev-i386-cross': '/usr/i686-linux-gnu/include/stdio.h'}
ARM64 = {'qemu-system-arm': 'qemu-system-aarch64'}

# Test stanzas name programs; these are their packages.
TOOLS = {'mkfs.xfs': 'xfsprogs', 'mkfs.ext4': 'e2fsprogs', 'fio': 'fio', 'stress-ng': 'stress-ng',
         'swapon': 'mount', 'bash': 'bash', 'timeout': 'coreutils'}


def _there(mark):
    if mark.startswith('/'):
        return bool(glob.glob(mark))
    found = shutil.which(mark, path=sbin())
    if found and mark == 'busybox':
        # Only a static one runs in an initramfs without libraries.
        return subprocess.run(['ldd', found], capture_output=True, check=False).returncode != 0
    return bool(found)


def ensure(wanted, tools=()):
    """Install what is missing of `wanted` when root, else say how and fail."""
    unknown = [tool for tool in tools if tool not in TOOLS]
    if unknown:
        raise LabError(f'no package is known for: {" ".join(unknown)}', 'add it to TOOLS in deps.py')
    wanted = dict(wanted, **{TOOLS[t]: t for t in tools})
    missing = sorted(package for package, mark in wanted.items() if not _there(mark))
    if not missing:
        return
    line = f'apt-get install -y --no-install-recommends {" ".join(missing)}'
    if os.geteuid() or not shutil.which('apt-get'):
        raise LabError(f'missing: {" ".join(missing)}', f'as root: {line}')
    say(f'installing {" ".join(missing)}')
    # dpkg insists on sbin.
    env = {'DEBIAN_FRONTEND': 'noninteractive', 'PATH': sbin()}
    code, _ = run(line.split(), env=env, check=False)
    if code:
        # A fresh machine may have no package lists, or old ones.
        run(['apt-get', 'update', '-q'], env=env, check=False)
        code, out = run(line.split(), env=env, check=False)
        if code:
            why = next((t for t in out.splitlines() if t.startswith('E:')), f'apt-get: {code}')
            raise LabError(f'cannot install {" ".join(missing)}: {why}', 'check the network')
    left = sorted(package for package in missing if not _there(wanted[package]))
    if left:
        raise LabError(f'still missing after installing: {" ".join(left)}')


def main():
    """make deps: install all that make run, make check and make send need."""
    ensure(dict(RUN, **CHECK, **SEND), TOOLS)
    say('all packages are there')
