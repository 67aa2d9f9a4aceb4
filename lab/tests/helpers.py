# SPDX-License-Identifier: GPL-2.0
"""A project, kernel trees and programs that stand in for the real ones, in a temporary directory.

The kernel is mm/vmscan.c, "built" by copying it; QEMU prints what a guest
would that has the bug or not. What runs in between is the lab itself.
"""
import contextlib
import difflib
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

LAB = Path(__file__).resolve().parents[1]
VERSION = "7.3~rc7-1"

BASES = """\
Name: mainline
Line: 7.3
Package: linux-source-7.3
Version: 7.3~rc7-1
Suites: sid
Upstream: v7.3-rc7
Selftests: tools/testing/selftests/mm
Series: series
Status: development

Name: 6.1
Line: 6.1
Package: linux-source-6.1
Version: 6.1.9-1
Suites: stable stable-security
Upstream: v6.1.9
Selftests: tools/testing/selftests/mm
Series: series
Status: LTS
"""

TESTS = """\
Name: aging
Topic: anon
Report: none
Memory: 256
Cpus: 1
Timeout: 60
"""

SERIES = """\
# topic: anon
# Expect-fail: aging classic: the bug
# Expect-fail: aging mglru: the bug
patches/0001-fix.patch
# files: aging.c
patches/0002-test.patch
"""

# Each reads how it has to behave from a file beside it.
TOOLS = {
    "gcc": r"""
        case $1 in --version) echo 'gcc (stand-in) 1.0'; exit ;; esac
        while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
        [ "$1" = - ] && cat > /dev/null
        printf '#!/bin/sh\necho 1000000\n' > "$out" && chmod +x "$out"
        """,
    "make": r"""
        echo "$MAKEFLAGS" >> "$dir/makeflags"
        for arg; do
            case $arg in
            O=*) out=${arg#O=} ;;
            INSTALL_PATH=*) inst=${arg#*=} ;;
            TARGETS=*) targets=${arg#*=} ;;
            esac
            [ "$prev" = -C ] && tree=$arg
            prev=$arg
        done
        case " $* " in
        *" tinyconfig "*) echo '# tiny' > "$out/.config" ;;
        *" olddefconfig "*)
            grep -v CONFIG_LOST "$out/.config" > "$out/.config.new"
            mv "$out/.config.new" "$out/.config" ;;
        *" bzImage "*)
            if [ -e "$dir/make.full" ]; then
                echo 'as: mm/vmscan.o: No space left on device'; exit 2
            fi
            echo '  CC      mm/vmscan.o'
            if line=$(grep -n 'syntax error' "$tree/mm/vmscan.c"); then
                echo "$tree/mm/vmscan.c:${line%%:*}:5: error: expected ';' before 'error'"
                echo 'make[2]: *** [scripts/Makefile.build:250: mm/vmscan.o] Error 1'
                exit 2
            fi
            mkdir -p "$out/arch/x86/boot"
            cp "$tree/mm/vmscan.c" "$out/arch/x86/boot/bzImage" && : > "$out/System.map" ;;
        *" headers "*)
            mkdir -p "$out/usr" ;;
        *" install "*)
            mkdir -p "$inst/$targets"
            cp "$tree/$targets/aging.c" "$inst/$targets/aging" ;;
        esac
        """,
    # Lines "KIND N" in qemu.mode: what the boot number N does.
    "qemu-system-x86_64": r"""
        case $1 in --version) echo 'QEMU emulator version 0 (stand-in)'; exit ;; esac
        echo $$ >> "$dir/boots"
        while [ $# -gt 1 ]; do
            case $1 in -kernel) kernel=$2 ;; -append) append=$2 ;; esac
            shift
        done
        kind=
        while read -r what nr; do
            [ "$(wc -l < "$dir/boots")" -eq "$nr" ] && kind=$what
        done < "$dir/qemu.mode"
        [ "$kind" = nostart ] && { echo "qemu: could not load kernel '$kernel'"; exit 1; }
        echo '[    0.000000] Linux version 7.3.0-rc7'
        [ "$kind" = panic ] &&
            { echo '[    0.732410] Kernel panic - not syncing: no init found'; exit 0; }
        [ "$kind" = full ] && { printf 0 > "$dir/free"; exit 0; }
        lru=${append##*mmlab.lru=}
        lru=${lru%% *}
        echo "MMLAB: boot 7.3.0-rc7 cpus=1 mem_kb=1"
        echo "MMLAB: begin test=aging lru=$lru"
        [ "$kind" = noplan ] && { printf 'MMLAB: %s\n' 'exit 127' end; exit 0; }
        printf '%s\n' 'TAP version 13' 1..2 "ok 1 $lru: control"
        [ "$kind" = hang ] && { sleep 60 & echo $! >> "$dir/sleepers"; wait; }
        if grep -q fixed "$kernel"; then not= code=0; else not='not ' code=1; fi
        printf '%s\n' "${not}ok 2 $lru: the bug" "MMLAB: exit $code" \
            'MMLAB: seconds 1.0' 'MMLAB: end'
        """,
    "apt-get": r"""
        echo "$*" >> "$dir/apt"
        case $1 in
        indextargets) cat "$dir/mirrors" ;;
        update | install)
            if [ -e "$dir/offline" ]; then
                echo "E: Failed to fetch the lists: Temporary failure resolving 'mirror.invalid'"
                exit 100
            fi ;;
        download)
            for arg; do name=$arg; done
            cp "$dir/source.deb" "$(echo "$name" | tr = _)_all.deb" ;;
        esac
        """,
    "apt-cache": 'cat "$dir/madison"',
    "dpkg-deb": 'cat "$2"',
    "busybox": ":",
}

# Replaces what the host may not have, and what would take long. The lab is not changed.
SITE = """
import os, shutil, types
from pathlib import Path
from mmlab import boot, deps, fetch
deps.RUN = deps.SEND = {}
boot.BOOT_SECONDS = 0
fetch.KEYRING = os.devnull
free = Path(os.environ['STAND_INS'], 'free')
if free.read_text() != 'real':
    shutil.disk_usage = lambda path: types.SimpleNamespace(free=int(free.read_text()) << 20)
"""


def write(path, text, mode=0o644):
    """Write a file, and make its parents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def script(path, text):
    """Write a shell script that knows its directory as $dir."""
    body = "\n".join(line[8:] if line.startswith(" " * 8) else line for line in text.splitlines())
    return write(path, '#!/bin/sh\ndir=${0%/*}\n' + body + "\n", 0o755)


def vmscan(*changes, shift=0):
    """mm/vmscan.c, with lines replaced as in ("bug", "fixed")."""
    lines = ["/* %d */" % i for i in range(shift)] + ["int v%d;" % i for i in range(1, 21)]
    lines[shift + 9] = "int bug;"
    text = "\n".join(lines) + "\n"
    for old, new in changes:
        assert f"int {old};" in text, old
        text = text.replace(f"int {old};", f"int {new};")
    return text


def mbox(subject, name, old, new, head=""):
    """A patch as git format-patch makes it; old is empty for a new file."""
    diff = difflib.unified_diff(old.splitlines(True), new.splitlines(True),
                                f"a/{name}" if old else "/dev/null", f"b/{name}")
    return (f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: S <s@mm-reclaim.invalid>\n"
            f"Date: Mon, 30 Nov 2026 12:00:00 +0000\nSubject: [PATCH] {subject}\n\n{head}---\n"
            f"diff --git a/{name} b/{name}\n" + ("" if old else "new file mode 100644\n")
            + "".join(diff) + "-- \n2\n")


def git(where, *args):
    """git without anybody's configuration."""
    return subprocess.run(
        ["git", "-C", str(where), "-c", "user.name=u", "-c", "user.email=u@invalid", *args],
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull,
             "GIT_CONFIG_SYSTEM": os.devnull, "GIT_TEST_FSYNC": "0", "HOME": str(where)},
        check=True, capture_output=True, text=True).stdout.strip()


def kernel_tree(where, line="7.3", source=None, repo=False):
    """A kernel tree, in git if repo."""
    version, patchlevel = line.split(".")
    write(where / "Makefile", f"VERSION = {version}\nPATCHLEVEL = {patchlevel}\nSUBLEVEL = 0\n"
                              "EXTRAVERSION = -rc7\n")
    write(where / "mm/vmscan.c", source or vmscan())
    write(where / "tools/testing/selftests/mm/Makefile", "all:\n")
    write(where / "Documentation/mm.rst", "mm\n")
    script(where / "scripts/kconfig/merge_config.sh", 'shift 3; to=$1; shift; cat "$@" >> "$to"')
    if repo:
        git(where, "init", "-q")
        git(where, "add", "-A")
        git(where, "commit", "-q", "-m", "v7.3")
    return where


def listing(where):
    """{name: what would differ if it had been written to} of all below a directory."""
    found = {}
    for top, dirs, files in os.walk(where):
        for name in [".", *dirs, *files]:
            st = os.lstat(os.path.join(top, name))
            found[os.path.join(top, name)] = (st.st_ino, st.st_mode, st.st_size, st.st_mtime_ns,
                                              st.st_ctime_ns)
    return found


def alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(check, seconds=20):
    """Poll check() until it is true; its last value."""
    end = time.monotonic() + seconds
    while not check() and time.monotonic() < end:
        time.sleep(0.02)
    return check()


class Project:
    """A copy of the lab with two small patches, a mutant, and a cache of its own."""

    def __init__(self):
        self.tmp = Path(tempfile.mkdtemp(prefix="mmlab-test-")).resolve()
        self.root, self.bin, self.cache = self.tmp / "lab", self.tmp / "bin", self.tmp / "cache"
        self.results = self.tmp / "results"
        self.results.mkdir()
        shutil.copytree(LAB / "mmlab", self.root / "lab/mmlab",
                        ignore=shutil.ignore_patterns("__pycache__"))
        test = "int main(void) { return 0; }\n"
        for name, text in {
                "bases": BASES, "series": SERIES, "lab/tests.conf": TESTS, "lab/init.c": "init\n",
                "lab/config/common.config": "CONFIG_MM=y\n",
                "lab/config/mainline.config": "CONFIG_SWAP=y\n", "lab/config/6.1.config": "",
                "selftests/aging.c": test,
                "patches/0001-fix.patch": mbox("fix", "mm/vmscan.c", vmscan(),
                                               vmscan(("bug", "fixed"))),
                "patches/0002-test.patch": mbox("test", "tools/testing/selftests/mm/aging.c", "",
                                                test),
                "patches/mutants/mainline/half.patch": mbox(
                    "half a fix", "mm/vmscan.c", vmscan(("bug", "fixed")), vmscan(("bug", "half")),
                    "Test: aging\nExpect-fail: aging classic: the bug\n"
                    "Expect-fail: aging mglru: the bug\n"),
                "../site/sitecustomize.py": SITE}.items():
            write(self.root / name, text)
        for name, text in TOOLS.items():
            script(self.bin / name, text)
        write(self.bin / "mirrors", "sid http://mirror.invalid/debian/\n"
                                    "stable-security http://mirror.invalid/debian-security/\n")
        write(self.bin / "qemu.mode", "")
        write(self.bin / "free", "100000")
        self.offer(VERSION)

    def close(self):
        """Remove all of it."""
        shutil.rmtree(self.tmp, ignore_errors=True)

    def offer(self, *versions, source=None):
        """The versions that the mirror has, the newest first, all with the same source."""
        write(self.bin / "madison", "".join(
            f"linux-source-7.3 | {v} | http://mirror.invalid/debian sid/main Packages\n"
            for v in versions))
        with tempfile.TemporaryDirectory() as tmp:
            kernel_tree(Path(tmp) / "linux-source-7.3", source=source)
            ball = Path(tmp) / "linux-source-7.3.tar.xz"
            for name, mode, arc in ((ball, "w:xz", "linux-source-7.3"),
                                    (self.bin / "source.deb", "w", f"./usr/src/{ball.name}")):
                with tarfile.open(name, mode) as tar:
                    tar.add(Path(tmp) / Path(arc).name, arc)

    def env(self, **opts):
        """An environment that has nothing of the caller's but the PATH."""
        path = os.pathsep.join([str(self.bin), os.environ.get("PATH", "/usr/bin:/bin")])
        return {"PATH": path, "PYTHONPATH": f"{self.tmp}/site:lab", "HOME": str(self.tmp),
                "GIT_TEST_FSYNC": "0", "XDG_CACHE_HOME": str(self.cache),
                "STAND_INS": str(self.bin), "RESULTS": tempfile.mkdtemp(dir=self.results),
                "TMPDIR": str(self.tmp),        # of the lock that lets one guest boot at a time
                "MODE": "tcg",
                **{key: str(value) for key, value in opts.items()}}

    def start(self, verb="run", **opts):
        """Start python3 -m mmlab VERB."""
        # As a shell without job control leaves it, a child would ignore SIGINT.
        return subprocess.Popen(
            [sys.executable, "-m", "mmlab", verb], cwd=self.root, env=self.env(**opts), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def end(self, proc):
        """What a process of start() has said: code, out, err."""
        try:
            out, err = proc.communicate(timeout=60)
        finally:
            proc.kill()
        return SimpleNamespace(code=proc.returncode, out=out, err=err, lost=set())

    def run(self, verb="run", **opts):
        """start() and end(); `lost` are the finished things which it took out of the cache."""
        for name in ("boots", "sleepers", "apt", "makeflags"):
            (self.bin / name).unlink(missing_ok=True)
        before = self.finished()
        result = self.end(self.start(verb, **opts))
        result.lost = before - self.finished()
        return result

    def finished(self):
        """Names of what is finished in the cache: it has to survive any error."""
        top = self.cache / "mm-reclaim"
        return {str(path) for sub in ("deb", "tree", "kernel", "selftests", "image", "runs")
                for path in (top / sub).glob("**/*" if sub == "runs" else "*")
                if path.suffix not in (".part", ".list") and (sub != "runs" or path.is_file())}

    def boots(self):
        """How many times QEMU was started in the last run()."""
        path = self.bin / "boots"
        return len(path.read_text().split()) if path.exists() else 0

    @contextlib.contextmanager
    def having(self, name, text):
        """A file of the project, or of the stand-ins ("bin/..."), that is other for a while."""
        path = (self.tmp if name.startswith("bin/") else self.root) / name
        old = path.read_text() if path.exists() else None
        if text is None:
            path.unlink()
        else:
            write(path, text)
        try:
            yield path
        finally:
            if old is None:
                path.unlink(missing_ok=True)
            else:
                write(path, old)


def guarded(func, *args):
    """func() under main_guard(): its exit code, and what it printed."""
    from mmlab import ui
    out, err = io.StringIO(), io.StringIO()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = ui.main_guard(lambda: func(*args))
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)
    return SimpleNamespace(code=code, out=out.getvalue(), err=err.getvalue(), lost=set())
