# SPDX-License-Identifier: GPL-2.0
"""Configure and build kernels, the selftests, and the initramfs."""

import gzip
import json
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import cache, deps, tree as trees
from .bases import ROOT, touched
from .ui import LabError, git, run, say

JOBS = os.cpu_count() or 1

# What ARCH= of the kernel's make is called, and the tools that compile for it. A 32-bit kernel
# takes no library, and the compiler of the host makes it.
NATIVE = 'x86_64'
ARCHES = {NATIVE: '', 'i386': '', 'arm64': 'aarch64-linux-gnu-'}
# What QEMU boots, and where make leaves it.
IMAGES = {NATIVE: 'arch/x86/boot/bzImage', 'arm64': 'arch/arm64/boot/Image'}


@dataclass
class Kernel:
    """A kernel to boot. `bad` says why there is none."""
    name: str                   # base, patched, without-..., mutant:...
    desc: str
    commit: str
    expect: dict = field(default_factory=dict)      # {(test, lru): rows that must fail}
    tests: list = field(default_factory=list)       # the tests it boots for
    patches: list = field(default_factory=list)     # files applied, for blame
    key: str = ''
    image: Path = None
    bad: str = ''
    objects: list = field(default_factory=list)     # compiled when it was built
    seconds: float = 0
    changed: list = None        # files that differed from the build before; None: a first build
    warnings: list = field(default_factory=list)


def compiler(arch=NATIVE):
    """What compiles and links, in words: part of every kernel's key."""
    _, out = run([f'{ARCHES[arch]}gcc', '--version'])
    _, ld = run([f'{ARCHES[arch]}ld', '--version'])
    return f'{out.splitlines()[0]}, {ld.splitlines()[0]}'


def _make(tree, out, *args, arch=NATIVE):
    cc = f'{ARCHES[arch]}gcc'
    if shutil.which('ccache'):
        cc = f'ccache {cc}'
    cross = [] if arch == NATIVE else [f'ARCH={arch}', f'CROSS_COMPILE={ARCHES[arch]}']
    # The time stamp in the banner would make equal kernels differ.
    return ['make', '-C', str(tree.path), f'O={out}', f'CC={cc}', 'LOCALVERSION=',
            'KBUILD_BUILD_TIMESTAMP=2000-01-01', 'KBUILD_BUILD_USER=lab',
            'KBUILD_BUILD_HOST=mm-reclaim', *cross, *args]


def _env():
    """ccache works across trees, in the cache, and is not the user's."""
    return {'CCACHE_DIR': str(cache.path('ccache', 'x').parent),
            'CCACHE_BASEDIR': str(cache.CACHE), 'CCACHE_MAXSIZE': '2G'}


def options(fragments):
    """The options of configuration fragments: {symbol: line}; the last one counts."""
    wanted = {}
    for path in fragments:
        for line in path.read_text().splitlines():
            match = re.match(r'(CONFIG_\w+)=', line)
            if match:
                wanted[match.group(1)] = line
    return wanted


def lost(config, wanted):
    """The options that a finished .config does not honour: a list of text."""
    have = dict(line.split('=', 1) for line in config.splitlines() if line.startswith('CONFIG_'))
    missing = []
    for symbol, line in wanted.items():
        value = line.split('=', 1)[1]
        got = have.get(symbol, 'n')
        if got != value:
            missing.append(f'{symbol} is {got}, wanted {value}')
    return missing


def configure(tree, fragments=None, arch=''):
    """Make the build directory of a tree with its configuration: (directory, config hash).

    fragments, arch: others than those of the lab's kernels. A LabError names an option which
    olddefconfig does not keep.
    """
    fragments, arch = fragments or tree.base.config, arch or tree.base.arch
    want = cache.digest(*[p.read_bytes() for p in fragments], *([] if arch == NATIVE else [arch]))
    out = cache.path('build', f'{tree.ident}-{want}')
    config = out / '.config'
    done = out / '.mmlab-configured'
    # The Kconfig files of a user's tree may change under the same name.
    source = tree.tree_of('base')
    if not done.exists() or done.read_text() != source:
        trees.checkout(tree, 'base')
        out.mkdir(parents=True, exist_ok=True)
        run(_make(tree, out, 'tinyconfig', arch=arch), env=_env(), log=out / 'config.log')
        # Copies, as merge_config.sh does not take a path with a space in it.
        for nr, path in enumerate(fragments):
            shutil.copy(path, out / f'mmlab-{nr}.config')
        run([str(tree.path / 'scripts/kconfig/merge_config.sh'), '-m', '-O', str(out), '.config',
             *[f'mmlab-{nr}.config' for nr in range(len(fragments))]], cwd=out,
            log=out / 'merge.log')
        run(_make(tree, out, 'olddefconfig', arch=arch), env=_env(), log=out / 'config.log')
        bad = lost(config.read_text(), options(fragments))
        if bad:
            names = ' '.join(p.name for p in fragments)
            raise LabError(f'configuration of {tree.base.name}: {"; ".join(bad[:5])}',
                           f'a dependency is missing in {names}')
        done.write_text(source)
    return out, want


def _patch_of(tree, kernel, path, line):
    """The patch that a line of a file comes from; None when it is of the base."""
    code, out = git(tree.path, 'blame', '-s', '-l', '-L', f'{line},{line}',
                    f'base..{kernel.commit}', '--', path, check=False)
    commits = git(tree.path, 'rev-list', '--reverse', f'base..{kernel.commit}').split()
    made = dict(zip(commits, kernel.patches))
    return None if code else made.get(out.split(' ')[0])


def _blame(output, kernel, tree):
    """Turn compiler errors into one line that names the patch."""
    for line in output.splitlines():
        match = re.search(r'(?:^|/)((?:[\w.-]+/)*[\w.-]+\.[chS]):(\d+):(?:\d+:)? (?:fatal )?error: (.*)',
                          line)
        if not match:
            continue
        name = match.group(1)
        for patch in reversed(kernel.patches):
            for path in touched(patch):
                if name.endswith(path) or path.endswith(name):
                    patch = _patch_of(tree, kernel, path, match.group(2)) or patch
                    return (f'compile error in {trees._relative(patch)}: {path}:{match.group(2)}: '
                            f'{match.group(3)}')
        return f'compile error: {name}:{match.group(2)}: {match.group(3)}'
    last = [line for line in output.splitlines() if line.strip()][-1:]
    return f'build failed: {last[0].strip() if last else "no output"}'


def _sources(tree):
    """The files of a tree that some patch of its base touches."""
    names = {name for path in tree.base.patches.glob('*.patch') for name in touched(path)}
    names |= {name for path in tree.base.mutants.glob('*.patch') for name in touched(path)}
    return sorted(name for name in names if (tree.path / name).is_file())


def _note_times(tree, config_dir):
    """Note contents and times of what patches touch, as the objects were made of it."""
    noted = {name: (cache.digest((tree.path / name).read_bytes()),
                    (tree.path / name).stat().st_mtime_ns) for name in _sources(tree)}
    (config_dir / '.mmlab-times').write_text(json.dumps(noted))


def _keep_times(tree, config_dir):
    """Give files that are what they were at the last build the time they had then.

    A checkout of another commit and back, as for the selftests, leaves contents as they were
    and makes them newer than the objects: one header costs 700 of those.
    """
    times = config_dir / '.mmlab-times'
    noted = json.loads(times.read_text()) if times.exists() else {}
    for name in _sources(tree):
        content, when = noted.get(name, ('', 0))
        if content == cache.digest((tree.path / name).read_bytes()):
            os.utime(tree.path / name, ns=(when, when))
    git(tree.path, 'update-index', '-q', '--refresh', check=False)


def kernel(tree, kern, config_dir, config_hash):
    """Build one kernel into the cache; sets image, or bad, and what was compiled."""
    arch = tree.base.arch
    kern.key = cache.digest(trees.kernel_key(tree, kern.commit), config_hash, compiler(arch))
    done = cache.path('kernel', kern.key)
    target = IMAGES[arch].rsplit('/', 1)[1]
    if not (done / 'meta.json').exists():
        cache.need_space(f'building {kern.name}', 1500)
        trees.checkout(tree, kern.commit)
        if kern.name == 'base' and arch == NATIVE:
            say('    a first build compiles some 1100 objects: about 16 CPU-minutes')
        count = [0, time.monotonic()]
        objects, warnings = [], []

        def tick(line):
            match = re.match(r'  (?:CC|AS) +(\S+)', line)
            if match:
                objects.append(match.group(1))
                if time.monotonic() - count[1] > 20:
                    count[1] = time.monotonic()
                    say(f'    {len(objects)} objects, now {match.group(1)}')
            if re.search(r': warning: ', line):
                warnings.append(line.strip())

        # What the build directory holds objects of: the difference to it is recompiled.
        last = config_dir / '.mmlab-commit'
        before = last.read_text() if last.exists() else ''
        changed = commit_files(tree, before, kern.commit) if before else None
        if not before:
            # The build before was cut off: its warnings are lost, and an object may be half done.
            for name in commit_files(tree, 'base', kern.commit):
                if (tree.path / name).exists():
                    os.utime(tree.path / name)
            # Else the next checkout takes them for changed, writes them and has all compiled again.
            git(tree.path, 'update-index', '-q', '--refresh', check=False)
        else:
            _keep_times(tree, config_dir)
        last.write_text('')
        start = time.monotonic()
        log = cache.path('log', f'build-{tree.ident}-{kern.name.replace(":", "-")}.log')
        code, out = run(_make(tree, config_dir, f'-j{JOBS}', target, arch=arch), env=_env(),
                        check=False, log=log, ticker=tick)
        if code:
            kern.bad = _blame(out, kern, tree)
            return kern
        last.write_text(kern.commit)
        _note_times(tree, config_dir)
        # Patches may change Kconfig files, and make takes defaults without a word.
        bad = lost((config_dir / '.config').read_text(), options(tree.base.config))
        if bad:
            kern.bad = f'configuration: {"; ".join(bad[:5])}'
            return kern
        part = done.with_name(kern.key + '.part')
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        shutil.copy(config_dir / IMAGES[arch], part)
        shutil.copy(config_dir / '.config', part / 'config')
        shutil.copy(config_dir / 'System.map', part)
        (part / 'meta.json').write_text(json.dumps(
            {'name': kern.name, 'objects': objects, 'warnings': warnings,
             'seconds': round(time.monotonic() - start, 1), 'commit': kern.commit,
             'changed': changed}, indent=1))
        cache.replace(part, done)
        say(f'    {kern.name}: {len(objects)} objects in {time.monotonic() - start:.0f} s')
    else:
        say(f'    {kern.name}: built before')
    meta = json.loads((done / 'meta.json').read_text())
    kern.objects, kern.seconds = meta['objects'], meta['seconds']
    kern.changed, kern.warnings = meta['changed'], meta['warnings']
    kern.image = done / target
    return kern


def own_tests():
    """The names of the programs in selftests/ that a tree's Makefile is to build."""
    return sorted(p.stem for p in (ROOT / 'selftests').glob('*.c') if p.stem != 'reclaim_util')


def selftests(tree, commit, config_dir, more=()):
    """Build the selftests of a patched tree with its own Makefile and install them.

    That is what a user runs: make headers, then make install of the directory.
    The directory that holds them is returned; those of `more` are beside it.
    """
    target = Path(tree.base.selftests).name
    key = cache.digest(trees.selftests_key(tree, commit), compiler(), target, *more)
    done = cache.path('selftests', key)
    if (done / 'install').exists():
        say('    built before')
        return done / 'install' / target
    cache.need_space('building the selftests', 500)
    trees.checkout(tree, commit)
    part = done.with_name(key + '.part')
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    run(_make(tree, config_dir, f'-j{JOBS}', 'headers'), env=_env(), log=part / 'headers.log')
    obj = part / 'obj'
    obj.mkdir()
    # The objects are apart from those of the kernel; the headers are the ones just made.
    code, out = run(['make', '-k', '-C', str(tree.path / 'tools/testing/selftests'),
                     f'-j{JOBS}', f'O={obj}', f'TARGETS={" ".join([target, *more])}', 'install',
                     f'INSTALL_PATH={part}/install',
                     f'KHDR_INCLUDES=-isystem {config_dir}/usr/include'],
                    log=part / 'build.log', check=False)
    missing = [name for name in own_tests() if not (part / 'install' / target / name).exists()]
    if missing:
        error = next((line for line in out.splitlines() if 'error' in line.lower()), f'make: {code}')
        raise LabError(f'{tree.base.selftests} did not build {", ".join(missing)}: {error.strip()}',
                       f'see {part}/build.log')
    noise = [line for line in out.splitlines()
             if re.search(r'(?:^|/)(?:' + '|'.join(own_tests() + ['reclaim_util']) + r')\.[ch]:\d+.*warning', line)]
    if noise:
        raise LabError(f'the selftests build with a warning: {noise[0]}')
    shutil.rmtree(obj)
    cache.replace(part, done)
    return done / 'install' / target


def _libraries(program):
    """The shared libraries of a program, as the dynamic linker finds them."""
    code, out = run(['ldd', str(program)], check=False)
    return [] if code else re.findall(r'(/\S+) \(0x', out)


def find_tool(name):
    """Full path of a tool; sbin directories are looked at too."""
    found = shutil.which(name, path=deps.sbin())
    if not found:
        raise LabError(f'{name} is not installed', 'make deps (as root) installs what is missing')
    return found


def archive(files, links=()):
    """An initramfs, not compressed: files {path in the guest: path here} and links [(path, target)].

    bsdtar makes it of a list, so that the device node takes no root.
    """
    dirs = {'/dev', '/proc', '/sys', '/tmp', '/tests', '/bin', '/sbin', '/usr', '/usr/bin', '/etc'}
    for dest in files:
        dirs |= {str(parent) for parent in Path(dest).parents} - {'/'}

    def entry(path, **keys):
        line = ' '.join(f'{key}={re.sub(r"[^!-~]|[#]", _octal, str(value))}'
                        for key, value in keys.items())
        return f'.{path} uid=0 gid=0 time=0 nlink=1 {line}\n'

    spec = ['#mtree\n', *[entry(name, type='dir', mode='0755') for name in sorted(dirs)],
            entry('/dev/console', type='char', mode='0600', device='native,5,1')]
    spec += [entry(name, type='link', mode='0777', link=target) for name, target in links]
    spec += [entry(dest, type='file', mode='0755', contents=Path(source).resolve())
             for dest, source in sorted(files.items())]
    with tempfile.TemporaryDirectory() as tmp:
        Path(tmp, 'spec').write_text(''.join(spec))
        code, out = run(['bsdtar', '--format=newc', '-cf', f'{tmp}/image', f'@{tmp}/spec'],
                        check=False)
        if code:
            raise LabError(f'bsdtar cannot make an initramfs: {out.strip()}')
        return Path(tmp, 'image').read_bytes()


def _octal(match):
    return ''.join(f'\\{byte:03o}' for byte in match.group().encode())


def init_program(arch=NATIVE):
    """The guest's init."""
    init = cache.path('init', cache.digest(ROOT / 'lab/init.c', compiler(arch)))
    if not init.exists():
        run([f'{ARCHES[arch]}gcc', '-static', '-Os', '-Wall', '-Wextra', '-Werror', '-o',
             f'{init}.part', str(ROOT / 'lab/init.c')])
        os.rename(f'{init}.part', init)
    return init


def image(tests_dir, tests, tools=(), extra=None):
    """Build an initramfs with init, busybox, the tests and their tools; its path.

    tools: more programs; extra: more files, {path in the guest: path here}.
    """
    busybox = find_tool('busybox')
    files = {'/init': init_program(), '/bin/busybox': Path(busybox)}
    for test in own_tests():
        files[f'/tests/{test}'] = tests_dir / test
    files.update(extra or {})
    for tool in sorted({tool for test in tests for tool in test.tools} | set(tools)):
        files[f'/usr/bin/{tool}'] = Path(find_tool(tool))
    for source in [files[dest] for dest in list(files) if not dest.startswith('/bin/busybox')]:
        for lib in _libraries(source):
            files[lib] = Path(lib)
    return pack(files)


def pack(files):
    """An initramfs of some files, {path in the guest: path here}: its path."""
    data = archive(files, [('/bin/sh', 'busybox')])
    done = cache.path('image', f'{cache.digest(data)}.gz')
    if not done.exists():
        part = Path(f'{done}.part')
        part.write_bytes(gzip.compress(data, 1, mtime=0))
        os.rename(part, done)
    return done


def commit_files(tree, old, new):
    """The files that differ between two commits; None when the old one is no more."""
    code, out = git(tree.path, 'diff', '--name-only', old, new, check=False)
    return None if code else out.splitlines()
