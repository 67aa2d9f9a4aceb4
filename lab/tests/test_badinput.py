# SPDX-License-Identifier: GPL-2.0
"""Bad input, missing things, accidents: one line that says what to do, and nothing is lost."""
import contextlib
import fcntl
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from mmlab import __main__ as verbs  # noqa: E402
from mmlab import bases, boot, build, cache, deps, refresh, tree as trees, ui  # noqa: E402
import helpers  # noqa: E402
from helpers import git, guarded, kernel_tree, listing, mbox, vmscan, write  # noqa: E402

# Two boots: the base and the patched kernel.
SHORT = {"LRU": "classic", "MUTANTS": 0}
NEEDED = ("bash", "git", "gzip", "patch", "rsync", "tar", "xz")
lab = None


def setUpModule():
    """One project for all tests, which has made its run: what fails below has its reason."""
    global lab
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        raise unittest.SkipTest(f"not installed: {' '.join(missing)}")
    lab = helpers.Project()
    unittest.addModuleCleanup(lab.close)
    res = lab.run()
    assert res.code == 0 and lab.boots() == 6, res.out + res.err
    # Of the tests within this process, none gets at the user's cache.
    patch = mock.patch.object(cache, "CACHE", lab.cache / "mm-reclaim")
    patch.start()
    unittest.addModuleCleanup(patch.stop)


class Case(unittest.TestCase):
    """A test that makes runs in the project."""

    def setUp(self):
        self.tmp = Path(tempfile.mkdtemp(dir=lab.tmp))
        shutil.rmtree(lab.cache / "mm-reclaim/runs", ignore_errors=True)

    def refused(self, res, *parts, code=2):
        """The run ended with one line of error, and took nothing out of the cache."""
        self.assertRegex(res.err, r"\Aerror: .*\n\Z", res.out)
        self.assertEqual(res.code, code, res.err)
        for part in parts:
            self.assertIn(str(part), res.err)
        self.assertEqual(res.lost, set())

    def passed(self, res, *parts):
        """The run was as expected, and said parts."""
        self.assertEqual((res.code, res.err), (0, ""), res.out)
        for part in parts:
            self.assertIn(str(part), res.out)

    def cold(self):
        """An empty cache for this test."""
        patch = mock.patch.object(lab, "cache", self.tmp / "cache")
        patch.start()
        self.addCleanup(patch.stop)


class Options(Case):
    def test_unknown(self):
        cold = self.tmp / "cache"
        for opts, line in (
                ({"BASE": "5.4"}, "BASE=5.4 is not declared: one of mainline, 6.1 or all"),
                ({"BASE": "mainline,5.4"}, "BASE=5.4 is not declared: one of"),
                ({"TESTS": "ageing"}, "TESTS=ageing is not declared: one of aging"),
                ({"TESTS": "aging, x"}, "TESTS=x is not declared: one of aging"),
                ({"LRU": "new"}, "LRU=new is not known: one of classic, mglru, both"),
                ({"MODE": "fast"}, "MODE=fast is not known: one of tcg, icount, kvm, auto"),
                ({"CPUS": "two"}, "CPUS=, RUNS= and MUTANTS= take numbers: invalid literal for int() "
                                  "with base 10: 'two'"),
                ({"RUNS": "1.5"}, "CPUS=, RUNS= and MUTANTS= take numbers: "),
                ({"RUNS": "0"}, "RUNS= starts at 1"), ({"CPUS": "9"}, "CPUS= goes to 8"),
                ({"CPUS": "-1"}, "CPUS= goes to 8"),
                ({"TREE": "/", "BASE": "all"},
                 "TREE= is one tree, and BASE= names several: pick one BASE")):
            with self.subTest(**opts):
                self.refused(lab.run(XDG_CACHE_HOME=cold, **opts), line)
                self.assertFalse(cold.exists())

    def test_verb(self):
        res = lab.run("rum")
        self.assertEqual(res.code, 2)
        self.assertRegex(res.err, r"\Ausage: mmlab run\|check\|.*\n\Z")

    def test_verbs_are_there(self):
        for name in verbs.VERBS.values():
            self.assertTrue(callable(importlib.import_module(f"mmlab.{name}").main), name)

    def icount(self, **opts):
        self.cold()
        tree = kernel_tree(self.tmp / "linux", "6.1")
        return lab.run(TREE=tree, BASE="6.1", MODE="icount", MUTANTS=0, LRU="classic", **opts)

    def test_icount(self):
        self.refused(self.icount(CPUS=2), 'MODE=icount with 2 vCPUs hangs on 6.1, at "Booting SMP '
                                          'configuration": take CPUS=1, or BASE=mainline')
        self.assertEqual(lab.boots(), 0)

    def test_icount_before_the_build(self):
        self.icount(CPUS=2)
        self.assertEqual(lab.finished(), set())

    def test_icount_default_is_one_cpu(self):
        self.passed(self.icount(), "boot: 2 boots, icount")

    def test_kvm(self):
        base = SimpleNamespace(line="7.3")
        with mock.patch.object(os.path, "exists", lambda path: False):
            with self.assertRaisesRegex(ui.LabError, "there is no /dev/kvm") as caught:
                boot.pick_mode("kvm", base, 2, None, None)
            self.assertIn("take MODE=tcg", str(caught.exception))
            res = guarded(lambda: print(boot.pick_mode("auto", base, 2, None, None)))
        self.assertEqual(res.out.splitlines()[-1], "tcg")
        self.assertIn("booting without KVM (there is no /dev/kvm)", res.out)

    def test_makeflags_of_the_caller(self):
        self.cold()
        self.passed(lab.run(MAKEFLAGS="B -- MODE=tcg"))
        self.assertEqual(set((lab.bin / "makeflags").read_text().split()), set())


class Tree(Case):
    """TREE="""

    def test_refused(self):
        good = kernel_tree(self.tmp / "good")
        no_version = write(self.tmp / "none/Makefile", "all:\n").parent
        cases = [({"TREE": kernel_tree(self.tmp / "old", "6.1")},
                  "old is Linux 6.1.0-rc7, and BASE=mainline needs 7.3: take another BASE, or "),
                 ({"TREE": good, "BASE": "6.1"}, "is Linux 7.3.0-rc7, and BASE=6.1 needs 6.1: "),
                 ({"TREE": self.tmp / "gone"}, "gone is not a kernel tree: no Makefile"),
                 ({"TREE": no_version}, "none is not a kernel tree: no VERSION in its Makefile")]
        for left in (".config", "vmlinux", "include/config/auto.conf"):
            tree = kernel_tree(self.tmp / f"built-{Path(left).name}")
            write(tree / left, "")
            cases.append(({"TREE": tree}, f"{tree} is not clean: it has {left}: make mrproper"))
        for name, staged in (("changed", False), ("staged", True)):
            tree = kernel_tree(self.tmp / name, repo=True)
            write(tree / "mm/vmscan.c", vmscan(("v3", "w3")))
            if staged:
                git(tree, "add", "-A")
            cases.append(({"TREE": tree}, f"{tree} has changes that are not committed: "
                          f"M{' ' * staged} mm/vmscan.c: commit or stash them"))
        before = listing(self.tmp)
        for opts, line in cases:
            with self.subTest(**opts):
                self.refused(lab.run(**opts), line)
        self.assertEqual(listing(self.tmp), before)

    def test_not_a_tree_says_what_to_do(self):
        self.refused(lab.run(TREE=self.tmp), "no Makefile: ")

    def never_written_to(self, repo):
        tree = kernel_tree(self.tmp / "linux", repo=repo)
        write(tree / "untracked", "")
        os.utime(tree / "mm/vmscan.c", (1, 1))      # git status would like to note that
        before = listing(self.tmp)
        self.passed(lab.run(TREE=tree), f"again:   make run BASE=mainline MODE=tcg TREE={tree}\n")
        self.assertEqual(listing(self.tmp), before)

    def test_plain_is_never_written_to(self):
        self.never_written_to(False)

    def test_git_is_never_written_to(self):
        self.never_written_to(True)

    def test_copy_follows_the_tree(self):
        tree = kernel_tree(self.tmp / "plain")
        opts = {"TREE": tree, **SHORT}
        self.passed(lab.run(**opts))
        write(tree / "mm/vmscan.c", vmscan(("v3", "syntax error")))
        self.refused(lab.run(**opts), "the base kernel does not build: compile error: ",
                     "mm/vmscan.c:3: expected ';' before 'error'")
        write(tree / "mm/vmscan.c", vmscan())
        self.passed(lab.run(**opts), "base: built before")

    def test_offsets_are_printed(self):
        tree = kernel_tree(self.tmp / "git", source=vmscan(shift=5), repo=True)
        self.passed(lab.run(TREE=tree, **SHORT),
                    "offset: 0001-fix.patch: mm/vmscan.c: Hunk #1 succeeded at 12 (offset 5 lines)")

    def test_offsets_are_printed_again(self):
        tree = kernel_tree(self.tmp / "git", source=vmscan(shift=5), repo=True)
        for _ in range(2):
            self.passed(lab.run(TREE=tree, **SHORT), "(offset 5 lines)")

    def test_no_fuzz(self):
        tree = kernel_tree(self.tmp / "git", source=vmscan(("v7", "w7")), repo=True)
        subprocess.run(["patch", "-p1", "--dry-run", "-f", "-d", str(tree), "-i",
                        str(lab.root / "patches/0001-fix.patch")], check=True, capture_output=True)
        self.refused(lab.run(TREE=tree),
                     "patches/0001-fix.patch does not apply to mainline 7.3.0-rc7 "
                     f"({git(tree, 'rev-parse', 'HEAD')[:12]}): mm/vmscan.c: Hunk #1 FAILED at 7",
                     ": rebase the patch, or take the tree it is made for")

    def test_goes_on_after_a_killed_copy(self):
        tree = kernel_tree(self.tmp / "plain")
        copy = lab.cache / "mm-reclaim/tree" / f"own-{cache.digest(str(tree))}"
        git(copy.parent, "init", "-q", str(copy))
        write(copy / ".git/index.lock", "")
        self.passed(lab.run(TREE=tree, **SHORT))

    def test_tag_named_base(self):
        tree = kernel_tree(self.tmp / "git", repo=True)
        git(tree, "tag", "base")
        self.passed(lab.run(TREE=tree, **SHORT))

    def test_shallow_and_linked(self):
        tree = kernel_tree(self.tmp / "git", repo=True)
        git(tree, "commit", "-q", "--allow-empty", "-m", "two")
        git(self.tmp, "clone", "-q", "--depth", "1", f"file://{tree}", "shallow")
        git(tree, "worktree", "add", "-q", "../linked")
        before = listing(self.tmp)
        for name in ("shallow", "linked"):
            with self.subTest(name):
                self.passed(lab.run(TREE=self.tmp / name, **SHORT))
        self.assertEqual(listing(self.tmp), before)

    @unittest.skipIf(os.geteuid(), "only root can make a tree that is somebody else's")
    def test_of_another_user(self):
        tree = kernel_tree(self.tmp / "git", repo=True)
        for name in listing(tree):
            os.lchown(name, 12345, 12345)
        self.passed(lab.run(TREE=tree, **SHORT))

    def test_relative_cache(self):
        tree = kernel_tree(self.tmp / "git", repo=True)
        self.addCleanup(shutil.rmtree, lab.root / "relative", True)
        lab.run(TREE=tree, **SHORT, XDG_CACHE_HOME="relative")
        self.assertEqual(os.listdir(self.tmp), ["git"])

    def test_git_environment_of_the_caller(self):
        one, two = (kernel_tree(self.tmp / name, repo=True) for name in ("one", "two"))
        git(two, "commit", "-q", "--allow-empty", "-m", "two")
        with mock.patch.dict(os.environ, {"GIT_DIR": str(one / ".git")}):
            self.assertEqual(ui.git(two, "rev-parse", "HEAD"), git(two, "rev-parse", "HEAD"))


class Patches(Case):
    """The series, the mutants and the other declarations."""

    def bad(self, name, text, *parts):
        with self.subTest(parts[0]), lab.having(name, text):
            self.refused(lab.run(), *parts)

    def test_does_not_apply(self):
        patch = mbox("t", "mm/vmscan.c", vmscan(("v15", "w15")), vmscan(("v15", "x15")))
        self.bad("patches/0002-test.patch", patch,
                 "patches/0002-test.patch does not apply to mainline 7.3~rc7-1: mm/vmscan.c: "
                 "Hunk #1 FAILED at 12", ": rebase the patch, or take the tree it is made for")
        self.bad("patches/0002-test.patch", patch.replace("vmscan.c", "vmscan2.c"),
                 "patches/0002-test.patch does not apply to mainline 7.3~rc7-1: can't find file ")
        self.bad("patches/mutants/mainline/half.patch",
                 mbox("m", "mm/vmscan.c", vmscan(), vmscan(("bug", "half")),
                      "Test: aging\nExpect-fail: aging classic: the bug\n"),
                 "patches/mutants/mainline/half.patch does not apply to the patched tree of "
                 "mainline: mm/vmscan.c: Hunk #1 FAILED at 7", ": rebase the mutant")
        self.bad("patches/0002-test.patch",
                 mbox("t", "mm/vmscan.c", vmscan(("bug", "fixed")), vmscan(("bug", "fixed2"))),
                 "patches/0001-fix.patch cannot be taken back out of the patched tree of mainline: "
                 "error: patch failed: mm/vmscan.c:7", ": write a mutant by hand")
        res = lab.run()
        self.passed(res)
        self.assertNotIn(" objects in ", res.out)

    def test_mutant_that_is_none(self):
        patch = mbox("m", "Documentation/mm.rst", "mm\n", "mm, mm\n",
                     "Test: aging\nExpect-fail: aging classic: the bug\n")
        with lab.having("patches/mutants/mainline/none.patch", patch):
            res = lab.run(LRU="classic")
        self.assertEqual(res.code, 3, res.out)
        self.assertIn("it is the same kernel as patched, but other rows have to fail", res.out)

    def test_declarations(self):
        half = (lab.root / "patches/mutants/mainline/half.patch").read_text()
        self.bad("patches/mutants/mainline/half.patch", half.replace("Test: aging", "Test: agin"),
                 "patches/mutants/mainline/half.patch: Test: and Expect-fail: have to name one test")
        self.bad("series", helpers.SERIES + "patches/0003-more.patch\n",
                 "series line 7: no such patch: patches/0003-more.patch")
        self.bad("series", helpers.SERIES + "# without-by-hand: third\n",
                 "series line 7: no such mutant: third")
        for field in ("Test: ", "Expect-fail: ", "Subject: "):
            self.bad("patches/mutants/mainline/half.patch", half.replace(field, "X-" + field),
                     "patches/mutants/mainline/half.patch: needs Subject:, Test: and Expect-fail:")
        self.bad("bases", helpers.BASES.replace("Line: 6.1\n", ""), "bases: a stanza lacks 'Line'")
        self.bad("bases", helpers.BASES + "Name 5.4\n", 'bases line 20: not "Key: value": Name 5.4')
        for memory in (512, 543):
            self.bad("lab/tests.conf", helpers.TESTS.replace("256", str(memory)),
                     f"tests.conf: aging: Memory: {memory} switches THP off: take 544 MiB or more")

    def test_tests_conf_lacks_a_field(self):
        self.bad("lab/tests.conf", helpers.TESTS.replace("Cpus: 1\n", ""), "tests.conf", "Cpus")

    def test_tests_conf_not_a_number(self):
        self.bad("lab/tests.conf", helpers.TESTS.replace("256", "lots"), "tests.conf", "lots")

    def test_series_expects_nonsense(self):
        self.bad("series", helpers.SERIES.replace("classic", "old"), "series", "aging old: the bug")

    def test_mutant_expects_nonsense(self):
        half = (lab.root / "patches/mutants/mainline/half.patch").read_text()
        self.bad("patches/mutants/mainline/half.patch", half.replace("classic", "old"),
                 "half.patch", "aging old: the bug")

    def test_no_series(self):
        self.bad("series", None, "series")


class Build(Case):
    def compile_error(self):
        """A run with an error in the last patch: (result, the line about it)."""
        with lab.having("series", helpers.SERIES + "patches/0003-more.patch\n"), lab.having(
                "patches/0003-more.patch",
                mbox("t", "mm/vmscan.c", vmscan(("bug", "fixed")),
                     vmscan(("bug", "fixed"), ("v18", "syntax error")))):
            return lab.run(LRU="classic"), ("compile error in patches/0003-more.patch: "
                                            "mm/vmscan.c:18: expected ';' before 'error'")

    def test_compile_error(self):
        res, line = self.compile_error()
        self.assertIn(f"!!! patched: {line}", res.out)
        self.assertIn(f"!!! without:0001: {line}", res.out)
        # Nothing of it is in the base, which is booted.
        self.assertRegex(res.out, r"\npatched +no kernel !!\n")
        self.assertRegex(res.out, r"\nbase +FAIL 1/2 \(expected\)\n")
        self.assertEqual((res.code, res.err, res.lost), (3, "", set()))

    def test_compile_error_is_not_the_mutants(self):
        res, line = self.compile_error()
        self.assertIn(f"!!! mutant:half: {line}", res.out)

    def test_compile_error_of_a_mutant(self):
        patch = lab.root / "patches/mutants/mainline/half.patch"
        with lab.having(str(patch.relative_to(lab.root)),
                        patch.read_text().replace("int half;", "syntax error;")):
            res = lab.run(LRU="classic")
        self.assertIn("!!! mutant:half: compile error in patches/mutants/mainline/half.patch: "
                      "mm/vmscan.c:10: ", res.out)
        self.assertRegex(res.out, r"\npatched +pass\n")
        self.assertEqual(res.code, 3)
        res = lab.run(LRU="classic")
        self.passed(res, "mutant:half aging classic: FAIL\n")

    def test_config_symbol_is_lost(self):
        with lab.having("lab/config/mainline.config", "CONFIG_SWAP=y\nCONFIG_LOST=m\n"):
            self.refused(lab.run(), "configuration of mainline: CONFIG_LOST is n, wanted m: "
                                    "a dependency is missing in common.config mainline.config")
        self.passed(lab.run(LRU="classic"), "base: built before")

    def test_options_and_lost(self):
        one = write(self.tmp / "1", "# CONFIG_C=y\nCONFIG_A=y\nCONFIG_B=n\nCONFIG_N=12\n")
        two = write(self.tmp / "2", 'CONFIG_A=m\nCONFIG_S="a=b"\n')
        wanted = build.options([one, two])
        self.assertEqual(wanted, {"CONFIG_A": "CONFIG_A=m", "CONFIG_B": "CONFIG_B=n",
                                  "CONFIG_N": "CONFIG_N=12", "CONFIG_S": 'CONFIG_S="a=b"'})
        self.assertEqual(build.lost('CONFIG_A=m\n# CONFIG_B is not set\nCONFIG_N=12\n'
                                    'CONFIG_S="a=b"\n', wanted), [])
        self.assertEqual(build.lost("CONFIG_A=y\nCONFIG_B=y\nCONFIG_N=13\n", wanted),
                         ["CONFIG_A is y, wanted m", "CONFIG_B is y, wanted n",
                          "CONFIG_N is 13, wanted 12", 'CONFIG_S is n, wanted "a=b"'])

    def test_kernel_key(self):
        where = kernel_tree(self.tmp / "linux", repo=True)
        tree = trees.Tree(None, where, "7.3", True)
        first = trees.kernel_key(tree, "HEAD")
        for name, same in (("tools/testing/selftests/mm/aging.c", True), ("Documentation/x", True),
                           ("MAINTAINERS", True), ("samples/x.c", True), ("mm/vmscan.c", False),
                           ("tools/objtool/x.c", False), ("Kconfig", False)):
            with self.subTest(name):
                write(where / name, "changed\n")
                git(where, "add", "-A")
                git(where, "commit", "-q", "-m", name)
                self.assertEqual(trees.kernel_key(tree, "HEAD") == first, same)
                git(where, "reset", "-q", "--hard", "HEAD~")

    def test_a_selftest_changes_no_kernel(self):
        patch = (lab.root / "patches/0002-test.patch").read_text()
        test = (lab.root / "selftests/aging.c").read_text()
        with lab.having("patches/0002-test.patch", patch.replace("return 0", "return 1")):
            self.refused(lab.run(**SHORT), "selftests/aging.c is not what 0002-test.patch has",
                         ": make refresh")
            with lab.having("selftests/aging.c", test.replace("return 0", "return 1")):
                res = lab.run(LRU="classic")
        self.passed(res, "patched: built before", "mutant:half: built before")
        self.assertNotIn(" objects in ", res.out)
        self.assertRegex(res.out, r"selftests: .*\n.*image\n")


class Guest(Case):
    """What QEMU and the guest may do, to the boot of the patched kernel."""

    def boots(self, mode, **opts):
        """A run of base and patched with lines of qemu.mode."""
        with lab.having("bin/qemu.mode", mode + "\n"):
            return lab.run(**{**SHORT, **opts})

    def judged(self, res, code, status, why):
        self.assertEqual((res.code, res.err), (code, ""), res.out)
        self.assertIn(f"2/2 patched aging classic: {status} !!! {status}: {why}\n", res.out)
        self.assertRegex(res.out, rf"\npatched +{status} !!\n")
        self.assertIn("\npatched aging classic: " f"{status}: {why}; the log ends:\n", res.out)
        where = Path(res.out.rpartition("results: ")[2].split("  (")[0])
        self.assertIn(why, (where / "report.md").read_text())
        self.assertEqual(len(list((where / "logs").glob("*.log"))), 2)

    def test_panics(self):
        self.judged(self.boots("panic 2"), 12, "PANIC", "Kernel panic - not syncing: no init found")

    def test_prints_no_plan(self):
        self.judged(self.boots("noplan 2"), 17, "NOPLAN", "no plan line, 0 rows, exit 127")

    def test_hangs(self):
        with lab.having("lab/tests.conf", helpers.TESTS.replace("60", "2")):
            res = self.boots("hang 2")
        self.judged(res, 11, "HANG", "timed out; last line: ok 1 classic: control")
        pids = (lab.bin / "sleepers").read_text().split()
        self.assertTrue(helpers.wait_for(lambda: not any(map(helpers.alive, pids))))

    def test_hang_is_not_forgotten(self):
        with lab.having("lab/tests.conf", helpers.TESTS.replace("60", "2")):
            self.refused(self.boots("hang 1\nnostart 2"), "QEMU does not start")
            self.assertIn("base aging classic: HANG", self.boots("").out)

    def test_qemu_does_not_start(self):
        self.refused(self.boots("nostart 2"), "QEMU does not start: qemu: could not load kernel '")
        # The boot that was made is not made again.
        res = self.boots("")
        self.passed(res, "going on with an interrupted run: 1 of 2 boots are done")
        self.assertEqual(lab.boots(), 1)

    def test_qemu_does_not_start_says_what_to_do(self):
        self.assertRegex(self.boots("nostart 2").err, "bzImage': .")

    def test_memory_counts(self):
        self.refused(self.boots("nostart 2"), "QEMU does not start")
        with lab.having("lab/tests.conf", helpers.TESTS.replace("256", "320")):
            self.assertNotIn("going on", self.boots("").out)

    def test_no_qemu(self):
        with mock.patch.dict(os.environ, PATH="/nowhere"):
            res = guarded(boot.qemu_version)
        self.refused(res, "qemu-system-x86_64 is not installed: make deps (as root) installs what")


class Interrupted(Case):
    def hanging(self, nr, **opts):
        """Start a run whose boot number nr hangs: (process, the sleeper of the guest)."""
        for name in ("boots", "sleepers"):
            (lab.bin / name).unlink(missing_ok=True)
        write(lab.bin / "qemu.mode", f"hang {nr}\n")
        self.addCleanup(write, lab.bin / "qemu.mode", "")
        proc = lab.start(**opts)
        sleepers = lab.bin / "sleepers"
        if not helpers.wait_for(lambda: sleepers.exists() and sleepers.read_text().endswith("\n")):
            self.fail(lab.end(proc).err)
        pid = int(sleepers.read_text())
        self.assertTrue(helpers.alive(pid))
        self.addCleanup(lambda: helpers.alive(pid) and os.kill(pid, signal.SIGKILL))
        return proc, pid

    def test_interrupt_and_second_run(self):
        proc, pid = self.hanging(3)
        self.refused(lab.run(), f"the cache {lab.cache}/mm-reclaim is in use by process {proc.pid} "
                     "(run): wait for it, or set XDG_CACHE_HOME to another directory")
        proc.send_signal(signal.SIGINT)
        res = lab.end(proc)
        self.assertEqual((res.code, res.err), (
            130, "\ninterrupted: nothing is lost, the same command goes on from here\n"))
        self.assertIn("time spent:", res.out)
        self.assertTrue(helpers.wait_for(lambda: not helpers.alive(pid)))
        write(lab.bin / "qemu.mode", "")
        res = lab.run()
        self.passed(res, "going on with an interrupted run: 2 of 6 boots are done", "6/6 ")
        self.assertEqual(lab.boots(), 4)

    def terminated(self, number):
        proc, pid = self.hanging(2, **SHORT)
        proc.send_signal(number)
        res = lab.end(proc)
        self.assertTrue(helpers.wait_for(lambda: not helpers.alive(pid), 2))
        self.assertEqual(res.code, 130)
        write(lab.bin / "qemu.mode", "")
        self.passed(lab.run(**SHORT), "1 of 2 boots are done")

    def test_terminated(self):
        self.terminated(signal.SIGTERM)

    def test_hung_up(self):
        self.terminated(signal.SIGHUP)

    def test_lock(self):
        path = lab.cache / "mm-reclaim/lock"
        with open(path, "r+", encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            held.truncate(0)
            held.write("process 4711 (check)")
            held.flush()
            self.refused(lab.run(), f"the cache {lab.cache}/mm-reclaim is in use by process 4711 "
                                    "(check): wait for it, or set XDG_CACHE_HOME")
            self.assertEqual(path.read_text(), "process 4711 (check)")
        self.passed(lab.run(**SHORT))


class Fetch(Case):
    """The package of a base; each test begins with an empty cache."""

    def setUp(self):
        super().setUp()
        self.cold()
        self.addCleanup(lab.offer, helpers.VERSION)

    def test_no_network(self):
        with lab.having("bin/offline", ""):
            self.refused(lab.run(), "cannot fetch linux-source-7.3 7.3~rc7-1: E: Failed to fetch "
                         "the lists: Temporary failure resolving 'mirror.invalid': check the "
                         "network, or use TREE=/path/to/linux")
        # It goes on once there is one, and does not need it again.
        self.passed(lab.run(**SHORT))
        with lab.having("bin/offline", ""):
            self.passed(lab.run(**SHORT), "base: built before")
            self.assertFalse((lab.bin / "apt").exists())

    def test_no_mirror(self):
        with lab.having("bin/mirrors", "jammy http://mirror.invalid/ubuntu/\n"):
            self.refused(lab.run(), "no Debian mirror in the apt configuration of this system: "
                                    "add one to its sources, or use TREE=/path/to/linux")

    def test_no_apt(self):
        with mock.patch.object(cache, "need_space"), \
                mock.patch.dict(os.environ, PATH="/nowhere"):
            self.refused(guarded(trees.get, bases.load_bases(lab.root / "bases")["6.1"]),
                         "this is not a Debian system: there is no apt-get to fetch "
                         "linux-source-6.1 6.1.9-1 with: use TREE=/path/to/linux")

    def test_pinned_version_is_gone(self):
        lab.offer("7.3-1", "7.3~rc8-1", source=vmscan(shift=2))
        res = lab.run(**SHORT)
        self.passed(res, "!!! linux-source-7.3 7.3~rc7-1 IS GONE: taking 7.3-1 instead.",
                    "offset: 0001-fix.patch: mm/vmscan.c: Hunk #1 succeeded at 9 (offset 2 lines)",
                    "base: 7.3-1 as it is")
        self.assertIn("download -q linux-source-7.3=7.3-1\n", (lab.bin / "apt").read_text())
        self.passed(lab.run(**SHORT), "IS GONE", "base: built before")

    def test_refresh_wants_the_pinned_version(self):
        tree = SimpleNamespace(pinned=False, version="7.3-1")
        with mock.patch.object(cache, "CACHE", self.tmp), mock.patch.object(deps, "ensure"), \
                mock.patch.object(trees, "get", return_value=tree), \
                mock.patch.object(bases.load_bases, "__defaults__", (lab.root / "bases",)), \
                mock.patch.dict(os.environ, BASE="mainline"):
            res = guarded(refresh.main)
        cache._lock.close()
        self.refused(res, "mainline: 7.3~rc7-1 cannot be had any more, and refreshing on 7.3-1 "
                          "would move the hunks: pin that version first")

    def test_package_is_gone(self):
        lab.offer()
        self.refused(lab.run(), "linux-source-7.3 is in none of: sid: change the stanza in the "
                                "file bases, or use TREE=/path/to/linux")

    def test_download_fails(self):
        (lab.bin / "source.deb").unlink()
        self.refused(lab.run(), "apt-get download -q linux-source-7.3=7.3~rc7-1 failed with 1: ",
                     "source.deb", f"see {lab.cache}/mm-reclaim/apt/download.log")

    def truncated(self, size):
        deb = lab.bin / "source.deb"
        deb.write_bytes(deb.read_bytes()[:size])
        res = lab.run()
        self.assertEqual(res.code, 2)
        self.assertRegex(res.err, r"(?m)^error: cannot unpack .*/linux-source-7\.3_7\.3~rc7-1\.deb"
                                  r": is the disk full\? remove the file to fetch it again$")

    def test_truncated_tarball(self):
        self.truncated(1700)

    def test_truncated_package(self):
        self.truncated(100)


class Deps(Case):
    def ensure(self, there, root=False, tools=()):
        """deps.ensure() with only `there` installed."""
        with mock.patch.object(deps, "_there", there), \
                mock.patch.object(os, "geteuid", lambda: 0 if root else 1000), \
                mock.patch.dict(os.environ, lab.env()):
            return guarded(deps.ensure, deps.RUN, tools)

    def test_not_root(self):
        self.refused(self.ensure(lambda mark: mark not in ("qemu-system-x86_64", "fio"),
                                 tools=["fio"]),
                     "missing: fio qemu-system-x86: as root: apt-get install -y "
                     "--no-install-recommends fio qemu-system-x86")

    def test_all_there(self):
        self.assertEqual(self.ensure(lambda mark: True).code, 0)

    def test_path_without_qemu(self):
        with mock.patch.object(deps, "sbin", lambda: "/nowhere"):
            self.assertFalse(deps._there("qemu-system-x86_64"))
            self.assertFalse(deps._there("/nowhere/*.h"))
            self.assertTrue(deps._there(__file__))

    def test_root_without_network(self):
        with lab.having("bin/offline", ""):
            res = self.ensure(lambda mark: mark != "qemu-system-x86_64", root=True)
        self.refused(res, "cannot install qemu-system-x86: E: Failed to fetch the lists: ",
                     ": check the network")

    def test_root(self):
        have = iter([False, True])
        res = self.ensure(lambda mark: mark != "bc" or next(have), root=True)
        self.passed(res, "installing bc")
        self.refused(self.ensure(lambda mark: mark != "bc", root=True),
                     "still missing after installing: bc")


class Disk(Case):
    def run_with(self, free, **opts):
        """A run with so many MiB left."""
        with lab.having("bin/free", str(free)):
            return lab.run(**opts)

    def test_need_space(self):
        self.cold()
        self.refused(self.run_with(299), "the source package of mainline needs 300 MiB in "
                     f"{lab.cache}/mm-reclaim, and 299 MiB are free: free some space, or set "
                     "XDG_CACHE_HOME to a larger file system")
        self.refused(self.run_with(4000), "the tree of mainline needs 5000 MiB")
        self.assertEqual(len(lab.finished()), 1)
        for repo in (False, True):
            tree = kernel_tree(self.tmp / f"linux{repo}", repo=repo)
            self.refused(self.run_with(2000, TREE=tree), f"of {tree} needs ")

    def test_full_while_building(self):
        self.cold()
        with lab.having("bin/make.full", ""):
            self.refused(lab.run(), "no disk space left while running make (log: ",
                         "build-mainline-7.3-rc7-1-base.log): free some space, then run the same "
                         "command again")
        self.passed(lab.run(**SHORT))

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no /dev/full")
    def test_log_cannot_be_written(self):
        self.refused(guarded(lambda: ui.run(["echo", "x"], log="/dev/full")), "space")

    def test_no_space_in_any_output(self):
        res = guarded(lambda: ui.run(["sh", "-c", "echo x: No space left on device"], check=False))
        self.refused(res, "no disk space left while running sh: free some space, then run the same")

    def test_cache_cannot_be_written(self):
        self.cold()
        (lab.cache / "mm-reclaim/lock").mkdir(parents=True)
        self.refused(lab.run(), "lock")

    def test_cache_cannot_be_made(self):
        self.refused(lab.run(XDG_CACHE_HOME=write(self.tmp / "file", "")),
                     f"cannot make {self.tmp}/", ": set XDG_CACHE_HOME to a directory you can ")

    def small_disk(self, size):
        """A cache on a tmpfs."""
        if os.geteuid():
            self.skipTest("only root can mount a tmpfs")
        self.cold()
        lab.cache.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(lab.cache)],
                          capture_output=True, check=False).returncode:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", str(lab.cache)], check=False)

    def fill(self, left):
        """Fill the small disk up to some KiB; the file that does so."""
        path = lab.cache / "filler"
        with contextlib.suppress(OSError), open(path, "wb", buffering=0) as out:
            while out.write(bytes(65536)):
                pass
        os.truncate(path, path.stat().st_size - (left << 10))
        return path

    def test_real_small_disk(self):
        self.small_disk("8m")
        self.refused(self.run_with("real"), "the source package of mainline needs 300 MiB in "
                     f"{lab.cache}/mm-reclaim, and 7 MiB are free: ")
        self.fill(0)
        res = guarded(lambda: ui.run(["cp", __file__, str(lab.cache / "x")]))
        self.refused(res, "no disk space left while running cp: ")

    def test_real_full_disk(self):
        self.small_disk("8m")
        for left in (0, 64):
            with self.subTest(left=left):
                filler = self.fill(left)
                self.refused(lab.run(**SHORT), "space")
                filler.unlink()
        self.passed(lab.run(**SHORT))

    def test_full_disk_cuts_a_log(self):
        self.addCleanup(write, lab.bin / "free", "100000")
        with lab.having("bin/qemu.mode", "full 2\n"):
            self.refused(lab.run(**SHORT), "free")
        write(lab.bin / "free", "100000")
        self.passed(lab.run(**SHORT), "1 of 2 boots are done")


class Series(unittest.TestCase):
    """The declarations as the modules read them."""

    def setUp(self):
        self.base = bases.load_bases(lab.root / "bases")["mainline"]
        for patch in (mock.patch.object(bases, "ROOT", lab.root),
                      mock.patch.object(bases.load_tests, "__defaults__",
                                        (lab.root / "lab/tests.conf",))):
            patch.start()
            self.addCleanup(patch.stop)

    def load(self, text):
        with lab.having("series", text):
            return bases.load_series(self.base)

    def test_comments(self):
        bug = {("aging", "classic"): {"a", "b"}, ("aging", "mglru"): {"c"}}
        series = self.load("""
            # topic: nothing the lab reads, topic: other
            # topic: anon
            # files: aging.c aging.h
            # Expect-fail: aging classic: a; b
            patches/0001-fix.patch   -p1
            # Expect-fail-without: aging classic: b
            # without-by-hand: half
            #topic:other
            patches/0002-test.patch
            # Expect-fail: aging mglru: c
            """)
        first, second = series.patches
        self.assertEqual(series.expect, bug)
        self.assertEqual((first.name, first.files, first.by_hand, first.expect),
                         ("0001-fix.patch", ["aging.c", "aging.h"], "half",
                          {("aging", "classic"): {"b"}}))
        self.assertEqual((second.topic, second.files, second.by_hand, second.expect),
                         ("other", [], "", {}))
        self.assertTrue(first.is_fix)
        self.assertFalse(second.is_fix)

    def test_default_is_what_fails_on_the_base(self):
        patch = self.load(helpers.SERIES).patches[0]
        self.assertEqual(patch.expect, {("aging", "classic"): {"the bug"},
                                        ("aging", "mglru"): {"the bug"}})

    def test_stanzas(self):
        path = write(lab.tmp / "stanzas", "# c\nA: 1\n# c\nB:  x: y \n\n\n# c\n\nA:\n")
        self.assertEqual(list(bases.stanzas(path)), [{"A": "1", "B": "x: y"}, {"A": ""}])
        write(path, "A: 1\n\nB: 2\nno colon\n")
        with self.assertRaisesRegex(ui.LabError, 'stanzas line 4: not "Key: value": no colon'):
            list(bases.stanzas(path))

    def test_mutants(self):
        self.assertEqual([(m.name, m.test, m.subject) for m in bases.load_mutants(self.base)],
                         [("half", "aging", "[PATCH] half a fix")])


if __name__ == "__main__":
    unittest.main()
