# SPDX-License-Identifier: GPL-2.0
"""make send, on a small tree with two topics: what a posting is made of, and when there is none."""
import ast
import contextlib
import email
import json
import os
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from mmlab import bases, compose, markdown, proof, report, send, ui  # noqa: E402
import helpers  # noqa: E402
from helpers import git, kernel_tree, script, vmscan, write  # noqa: E402

SELFTESTS = "tools/testing/selftests/mm"
NEEDED = ("bash", "git", "patch", "perl", "rsync", "tar", "xz")

TESTS = """\
Name: aging
Topic: anon
Report: none
Memory: 256
Cpus: 1
Timeout: 60

Name: swapping
Topic: swap
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
# files: aging.c reclaim_util.c reclaim_util.h
patches/0002-test.patch
# topic: swap
# Expect-fail: swapping classic: the bug
# Expect-fail: swapping mglru: the bug
patches/0003-swap.patch
# files: swapping.c
patches/0004-test.patch
"""

POSTINGS = """\
Topic: anon
Subject: mm: the cover of anon
Change-id: 20260102-anon-0123456789ab
Cover: The fix; What it costs

Topic: swap
Subject: mm: the cover of swap
Change-id: 20260102-swap-ba9876543210
Cover: The fix; What it costs
"""

PAGE = """\
# a topic

## The fix

`can_age()` *asks*:

1. whether there is **any** swap, as [the page](other.md) says, in a line that is longer than mails are
2. nothing else

## What it costs

Nothing.
"""

MAKEFILE = "all:\n\nTESTS = old\nTESTS += last\n"

# After vmscan.c and Makefile: what each patch of the series makes of them.
FIRST = "all:\n\nTESTS = old\nTESTS += aging\nTESTS += last\n\naging: reclaim_util.c\n"
BOTH = ("all:\n\nTESTS = old\nTESTS += aging\nTESTS += swapping\nTESTS += last\n\naging: reclaim_util.c\n\n"
        "swapping: reclaim_util.c\n")

# Objects too; a line with WARN in a source gives a warning, of make and of sparse.
OBJECTS = """
        for arg; do
            case $arg in
            /*) ;;
            *.o) [ -z "$out" ] || { mkdir -p "$out/${arg%/*}"; : > "$out/$arg"
                echo "  CHECK   ${arg%.o}.c"
                sed -n "/WARN/s|.*|${arg%.o}.c:1:1: warning: unused|p" "$tree/${arg%.o}.c"
                grep -q 'syntax error' "$tree/${arg%.o}.c" && exit 2; } ;;
            esac
        done
        """

QEMU = helpers.TOOLS["qemu-system-x86_64"].replace("test=aging", "test=$test").replace(
    'lru=${append', "test=${append##*mmlab.test=}; test=${test%% *}\n        lru=${append").replace(
    "grep -q fixed", 'grep -q "$(case $test in aging) echo fixed ;; *) echo good ;; esac)"')

B4 = r"""
        cmd=$1; shift
        case $cmd in --*) cmd=$1; shift ;; esac
        echo "$cmd" >> "$dir/b4.log"
        while [ $# -gt 0 ]; do
            case $1 in -o) to=$2 ;; -m) mbox=$2 ;; esac
            shift
        done
        # What git am takes is without the cover letter.
        awk '/^From [0-9a-f]+ Mon Sep 17/ { n++ } n > 1' "$mbox" > "$dir/am.mbx"
        case $cmd in
        am) cp "$dir/am.mbx" "$to/posting.mbx" ;;
        shazam) [ ! -e "$dir/b4.bad" ] && git am -q "$dir/am.mbx" ;;
        esac
        """

lab = tree = None


def patches(where):
    """The series as git format-patch makes it, in the directory of a project."""
    work = Path(tempfile.mkdtemp(dir=lab.tmp))
    kernel_files(work)
    git(work, "init", "-q")
    git(work, "add", "-A")
    git(work, "commit", "-q", "-m", "base")
    main = '#include "reclaim_util.h"\nint main(void) { return 0; }\n'
    fixed, good = vmscan(("v5", "fixed")), vmscan(("v5", "fixed"), ("v15", "good"))
    for nr, (name, files) in enumerate((
            ("fix", {"mm/vmscan.c": fixed}),
            ("test", {f"{SELFTESTS}/Makefile": FIRST, f"{SELFTESTS}/aging.c": main,
                      f"{SELFTESTS}/reclaim_util.c": "int util;\n", f"{SELFTESTS}/reclaim_util.h": "\n"}),
            ("swap", {"mm/vmscan.c": good}),
            ("test", {f"{SELFTESTS}/Makefile": BOTH, f"{SELFTESTS}/swapping.c": main})), 1):
        for path, text in files.items():
            write(work / path, text)
            if path.endswith((".c", ".h")) and path.startswith(SELFTESTS):
                write(where / "selftests" / Path(path).name, text)
        git(work, "add", "-A")
        git(work, "commit", "-q", "--author=S <s@mm-reclaim.invalid>", "-m",
            f"mm: subject {nr}\n\nWhat patch {nr} does.")
        write(where / f"patches/000{nr}-{name}.patch",
              git(work, "format-patch", "-1", "--stdout", "--zero-commit", "--no-numbered") + "\n")
    shutil.rmtree(work)


def kernel_files(where):
    """A kernel tree that knows its maintainers."""
    kernel_tree(where)
    write(where / SELFTESTS / "Makefile", MAKEFILE)
    write(where / "scripts/checkpatch.pl",
          'for (@ARGV) { next unless /\\.patch$/; open F, $_; local $/; my $t = <F>;\n'
          'print "$_:1: ERROR: bad\\n" if $t =~ /^\\+.*TRAILING/m || $t !~ /^Signed-off-by: /m }\n')
    write(where / "scripts/get_maintainer.pl",
          'my %o = map { $_ => 1 } grep /^--/, @ARGV; my @f = grep !/^--/, @ARGV;\n'
          'die "no patch" unless @f == grep { -f } @f;\n'
          'print "\\"A. Maintainer\\" <a\\@k.org>\\n" unless $o{"--nom"};\n'
          'print "R\\xc3\\xa9 Viewer <r\\@k.org>\\n" unless $o{"--nor"};\n'
          'print "mm\\@lists.org\\n" unless $o{"--nol"};\n')
    write(where / "Documentation/process/generated-content.rst", "which tools?\n")
    write(where / "Documentation/process/coding-assistants.rst",
          "x::\n\n  Assisted-by: NAME [TOOL]\n")


def setUpModule():
    """A project with two topics, a tree of its own, and a run that proves both."""
    global lab, tree
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        raise unittest.SkipTest(f"not installed: {' '.join(missing)}")
    lab = helpers.Project()
    unittest.addModuleCleanup(lab.close)
    shutil.rmtree(lab.root / "patches")
    for name, text in {
            "lab/tests.conf": TESTS, "series": SERIES, "patches/postings": POSTINGS,
            "patches/shared-selftest": "selftests: helpers\n\nFor all.\n",
            "Documentation/anon.md": PAGE, "Documentation/swap.md": PAGE,
            "checkpatch.conf": "# why\n--ignore MISSING_SIGN_OFF\n",
            "../.gitconfig": "[user]\n\tname = Sub Mitter\n\temail = sub@k.org\n",
            "patches/mutants/mainline/half.patch": helpers.mbox(
                "half a fix", "mm/vmscan.c", vmscan(("v5", "fixed"), ("v15", "good")),
                vmscan(("v5", "half"), ("v15", "good")),
                "Test: aging\nExpect-fail: aging classic: the bug\n"
                "Expect-fail: aging mglru: the bug\n")}.items():
        write(lab.root / name, text)
    make = helpers.TOOLS["make"].replace('case " $* " in', OBJECTS + '\n        case " $* " in', 1)
    make = make.replace('cp "$tree/$targets/aging.c" "$inst/$targets/aging"',
                        'cp "$tree/$targets/aging.c" "$inst/$targets/aging"\n'
                        '            cp "$tree/$targets/swapping.c" "$inst/$targets/swapping"')
    for name, text in {"make": make, "qemu-system-x86_64": QEMU, "b4": B4,
                       "sparse": "echo 1", "sendmail": 'touch "$dir/sent"',
                       "git-send-email": 'touch "$dir/sent"'}.items():
        script(lab.bin / name, text)
    patches(lab.root)
    tree = lab.tmp / "linux"
    kernel_files(tree)
    git(tree, "init", "-q")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "v7.3")
    git(tree, "tag", "v7.3-rc7")
    res = lab.run(TREE=tree, RESULTS=lab.tmp / "proved")
    assert res.code == 0, res.out + res.err


class Case(unittest.TestCase):
    def send(self, topic="anon", **opts):
        """make send, with what makes its mails final."""
        shutil.rmtree(lab.root / "out", ignore_errors=True)
        return lab.run("send", **{"TOPIC": topic, "TREE": tree, "RESULTS": lab.tmp / "proved",
                                  "ASSISTED": "none", **opts})

    def refused(self, res, *parts):
        """One line of error, and no mail."""
        self.assertRegex(res.err, r"\Aerror: .*\n\Z", res.out)
        self.assertEqual(res.code, 2)
        for part in parts:
            self.assertIn(str(part), res.err)
        self.assertEqual([path for path in lab.root.glob("out/**/*") if path.is_file()], [])

    def mails(self, res, name="v1", topic="anon"):
        """The mails of a posting that was made."""
        self.assertEqual((res.code, res.err), (0, ""), res.out)
        found = sorted((lab.root / "out" / topic / name).glob("*.patch"))
        self.assertTrue(found)
        return [path.read_text() for path in found]

    def applied(self, mails, *, start="HEAD"):
        """A clone of the tree with patches applied, the cover letter left out."""
        work = Path(tempfile.mkdtemp(dir=lab.tmp))
        git(work, "clone", "-q", str(tree), ".")
        git(work, "reset", "-q", "--hard", start)
        for nr, mail in enumerate(mails[1:]):
            write(work / f".git/{nr}", mail)
            git(work, "am", "-q", str(work / f".git/{nr}"))
        return work


class Posting(Case):
    def test_mails(self):
        res = self.send()
        mails = self.mails(res)
        heads = [email.message_from_string(mail) for mail in mails]
        self.assertEqual([head["Subject"] for head in heads],
                         ["[PATCH 0/2] mm: the cover of anon", "[PATCH 1/2] mm: subject 1",
                          "[PATCH 2/2] mm: subject 2"])
        for head in heads:
            self.assertEqual(head["From"], "Sub Mitter <sub@k.org>")
            self.assertEqual(head["To"], '"A. Maintainer" <a@k.org>')
            self.assertIn("=?utf-8?", head["Cc"])
            self.assertIn("mm@lists.org", head["Cc"])
        for head in heads[1:]:
            self.assertEqual(head["In-Reply-To"], heads[0]["Message-Id"])
            self.assertIn("\n\nSigned-off-by: Sub Mitter <sub@k.org>\n---\n", head.get_payload())
            self.assertNotIn("Assisted-by", head.get_payload())
        cover = heads[0].get_payload()
        self.assertIn(f"\n---\nbase-commit: {git(tree, 'rev-parse', 'HEAD')}\n"
                      "change-id: 20260102-anon-0123456789ab\n", cover)
        for part in ("can_age() \"asks\":\n", "1. whether there is any swap, as the page says, in a "
                     "line that is longer\n   than mails are\n", "aging, classic LRU (base n=1",
                     "the bug: fixed", "half a fix", "Nothing.\n", " mm/vmscan.c "):
            self.assertIn(part, cover)
        self.assertNotIn(send.FILL, cover)
        self.assertIn("git send-email", res.out)
        self.assertEqual(stored_signoffs(), [])

    def test_applies_to_the_base(self):
        work = self.applied(self.mails(self.send()))
        self.assertIn("int fixed;", (work / "mm/vmscan.c").read_text())
        self.assertNotIn("int good;", (work / "mm/vmscan.c").read_text())
        self.assertEqual((work / SELFTESTS / "Makefile").read_text(), FIRST)

    def test_stands_alone(self):
        mails = self.mails(self.send("swap"), topic="swap")
        self.assertEqual(len(mails), 4)
        self.assertIn("selftests: helpers", mails[2])
        work = self.applied(mails)
        self.assertIn("int good;", (work / "mm/vmscan.c").read_text())
        self.assertNotIn("int fixed;", (work / "mm/vmscan.c").read_text())
        self.assertEqual((work / SELFTESTS / "Makefile").read_text(),
                         "all:\n\nTESTS = old\nTESTS += swapping\nTESTS += last\n\n"
                         "swapping: reclaim_util.c\n")
        self.assertEqual({p.name for p in (work / SELFTESTS).iterdir()},
                         {"Makefile", "swapping.c", "reclaim_util.c", "reclaim_util.h"})

    def test_after_another_topic(self):
        mails = self.mails(self.send("swap", AFTER="anon:3"), topic="swap")
        self.assertEqual(len(mails), 3)
        self.assertIn("\nprerequisite-change-id: 20260102-anon-0123456789ab:v3\n"
                      "prerequisite-patch-id: ", mails[0])
        work = self.applied(self.mails(self.send()))
        wanted = [line.split()[-1] for line in mails[0].splitlines() if "-patch-id: " in line]
        have = []
        for commit in ("HEAD~1", "HEAD"):
            diff = git(work, "diff-tree", "-p", "--no-renames", commit)
            have.append(ui.git(work, "patch-id", "--stable", stdin=diff + "\n").split()[0])
        self.assertEqual(wanted, have)

    def test_depends_on_another_topic(self):
        near = helpers.mbox("near", "mm/vmscan.c", vmscan(("v5", "fixed")),
                            vmscan(("v5", "fixed"), ("v6", "near"), ("v15", "good")))
        where = Path(tempfile.mkdtemp(dir=lab.tmp))
        with lab.having("patches/0003-swap.patch", near):
            res = lab.run(TREE=tree, RESULTS=where, TESTS="swapping")
            self.assertEqual(res.code, 0, res.out + res.err)
            res = self.send("swap", RESULTS=where)
        self.assertIn("0003-swap.patch does not apply", res.out)
        self.assertIn("so it comes after anon, which has to be posted before", res.out)
        mails = self.mails(res, topic="swap")
        self.assertEqual(mails[0].count("\nprerequisite-patch-id: "), 2)
        self.assertIn("\nprerequisite-change-id: 20260102-anon-0123456789ab:v1\n", mails[0])

    def test_draft(self):
        res = self.send(ASSISTED="")
        mails = self.mails(res, "v1-draft")
        self.assertTrue(all("\nSubject: [DRAFT PATCH " in mail for mail in mails))
        self.assertIn(f"{send.FILL} Assisted-by: NAME [TOOL]", mails[0])
        self.assertIn("To do:", res.out)
        self.assertIn("Documentation/process/coding-assistants.rst", res.out)
        self.assertNotIn("git send-email", res.out)

    def test_assisted_without_saying_how(self):
        res = self.send(ASSISTED="LLM sparse")
        self.assertIn(send.FILL, self.mails(res, "v1-draft")[0])
        self.assertIn("DISCLOSE=FILE is not set", res.out)

    def test_assisted(self):
        note = write(lab.tmp / "note", "A tool wrote patch 2.\n")
        mails = self.mails(self.send(ASSISTED="LLM sparse", DISCLOSE=note))
        self.assertIn("A tool wrote patch 2.", mails[0])
        for mail in mails[1:]:
            self.assertIn("\nAssisted-by: LLM sparse\nSigned-off-by: Sub Mitter", mail)

    def test_version(self):
        note = write(lab.tmp / "changes", "Changes in v2:\n- all of it\n")
        mails = self.mails(self.send(VERSION=2, CHANGES=note), "v2")
        self.assertIn("Subject: [PATCH v2 0/2] ", mails[0])
        self.assertIn("Changes in v2:\n- all of it\n", mails[0])

    def test_private_base(self):
        git(tree, "commit", "-q", "--allow-empty", "-m", "private")
        self.addCleanup(git, tree, "reset", "-q", "--hard", "HEAD~1")
        res = self.send()
        self.assertIn(send.FILL, self.mails(res, "v1-draft")[0])
        self.assertIn("in no tag and no remote branch", res.out)

    def test_nothing_is_sent(self):
        self.mails(self.send())
        self.assertFalse((lab.bin / "sent").exists())
        calls = [node for module in (compose, proof, send)
                 for node in ast.walk(ast.parse(Path(module.__file__).read_text()))
                 if isinstance(node, ast.Call)]
        words = [const.value for call in calls
                 if getattr(call.func, "id", getattr(call.func, "attr", "")) in ("run", "git", "popen")
                 for const in ast.walk(call) if isinstance(const, ast.Constant)]
        self.assertIn("shazam", words)
        self.assertFalse([w for w in words if isinstance(w, str) and re.match("send|.*smtp", w)])

    @unittest.skipUnless(os.path.exists("/usr/bin/b4"), "b4 is not installed")
    def test_round_trip_with_b4(self):
        os.rename(lab.bin / "b4", lab.bin / "no-b4")
        self.addCleanup(os.rename, lab.bin / "no-b4", lab.bin / "b4")
        res = self.send("swap")
        self.mails(res, topic="swap")
        self.assertRegex(res.out, r"b4 am and b4 shazam give tree [0-9a-f]{40}")


def stored_signoffs():
    """Patches of the project that are signed off: none should be."""
    return [path for path in (lab.root / "patches").rglob("*.patch")
            if "Signed-off-by" in path.read_text()]


class Refused(Case):
    def test_options(self):
        for opts, line in (
                ({"TOPIC": ""}, "TOPIC= says what is to be posted: one of anon, swap"),
                ({"TOPIC": "thp"}, "TOPIC=thp has no patches in series: one of anon, swap"),
                ({"BASE": "6.1"}, "BASE=6.1 is LTS"), ({"BASE": "all"}, "BASE=all are several"),
                ({"VERSION": "x"}, "VERSION= takes a number"), ({"VERSION": "0"}, "starts at 1"),
                ({"AFTER": "x"}, "AFTER=x: no other topic"),
                ({"ASSISTED": "Assisted-by: x"}, "in one line"),
                ({"ASSISTED": "x", "DISCLOSE": "/nowhere"}, "DISCLOSE=/nowhere cannot be read"),
                ({"VERSION": "2"}, "there is no Documentation/changelog/anon"),
                ({"CHANGES": "/x"}, "VERSION=1 is all new"),
                ({"VERSION": "2", "CHANGES": lab.root / "bases"}, 'no line "Changes in v2:"')):
            with self.subTest(**opts):
                self.refused(self.send(**opts), line)

    def test_no_stanza(self):
        with lab.having("patches/postings", POSTINGS.split("\n\n")[1]):
            res = self.send()
        self.refused(res, "patches/postings has no stanza for anon: add one")
        self.assertRegex(res.err, "Change-id: 20[0-9]{6}-anon-[0-9a-f]{12}\"")

    def test_identity(self):
        for text in ("", "[user]\n\tname = S\n", "[user]\n\tname = S\n\temail = s@x.invalid\n"):
            with mock.patch.object(lab, "env", lambda old=lab.env, **kw: old(
                    **{**kw, "HOME": lab.tmp / "home"})):
                write(lab.tmp / "home/.gitconfig", text)
                self.refused(self.send(), "git config user.email")

    def test_no_result(self):
        self.refused(self.send(RESULTS=lab.tmp / "none"),
                     "none has no result for the series as it is now (tree ",
                     f"make run BASE=mainline TESTS=aging TREE={tree}")

    def test_nothing_old_is_left(self):
        self.mails(self.send())
        with mock.patch.object(shutil, "rmtree"):
            res = self.send(RESULTS=lab.tmp / "none")
        self.refused(res, "has no result")

    def test_stale(self):
        patch = (lab.root / "patches/0001-fix.patch").read_text()
        with lab.having("patches/0001-fix.patch", patch.replace("+int fixed;", "+int fixed2;")):
            self.refused(self.send(), "has no result for the series as it is now")

    @contextlib.contextmanager
    def changed(self, *changes):
        """The result that proves the topics, with a change; several of these, older to newer."""
        with tempfile.TemporaryDirectory(dir=lab.tmp) as tmp:
            source = next((lab.tmp / "proved").glob("*/results.json"))
            for nr, change in enumerate(changes, 1):
                results = json.loads(source.read_text())
                change(results)
                write(Path(tmp) / f"{nr}/results.json", json.dumps(results))
            yield Path(tmp)

    def test_mutant_not_caught(self):
        def escape(results):
            for run in results["runs"]:
                if run["kernel"] == "mutant:half" and run["lru"] == "mglru":
                    run.update(as_expected=False, why="passed",
                               rows=[dict(row, status="ok") for row in run["rows"]])
        with self.changed(escape) as where:
            self.refused(self.send(RESULTS=where), "1: mutant:half aging mglru was not caught")
            # It is no matter of the other topic.
            self.mails(self.send("swap", RESULTS=where), topic="swap")

    def test_the_newest_run_counts(self):
        def good(results):
            del results

        def bad(results):
            next(run for run in results["runs"] if run["kernel"] == "patched" and
                 run["test"] == "aging").update(as_expected=False, why="a panic")
            # Not even all of it was run.
            results["runs"] = [run for run in results["runs"] if "mutant" not in run["kernel"]]
        with self.changed(good, bad) as where:
            self.refused(self.send(RESULTS=where), "2: patched aging classic is not as expected: a "
                                                   "panic")
        with self.changed(bad, good) as where:
            self.mails(self.send(RESULTS=where))

    def test_numbers_of_another_run(self):
        def thrice(results):
            results["runs"] = [dict(run, n=n) for run in results["runs"] for n in (1, 2, 3)
                               if run["kernel"] in ("base", "patched")]
            results["kernels"] = [k for k in results["kernels"] if k["name"] in ("base", "patched")]
        with self.changed(thrice, lambda results: None) as where:
            mails = self.mails(self.send(RESULTS=where))
        self.assertIn("aging, classic LRU (base n=3, patched n=3)", mails[0])

    def test_not_all_booted(self):
        for kernel, lru in (("base", "mglru"), ("without:0001", "classic"), ("mutant:half", "mglru")):
            def drop(results, kernel=kernel, lru=lru):
                results["runs"] = [run for run in results["runs"]
                                   if (run["kernel"], run["lru"]) != (kernel, lru)]
            with self.subTest(kernel=kernel), self.changed(drop) as where:
                self.refused(self.send(RESULTS=where),
                             f"{kernel} was not booted for aging {lru}: make run")

    def test_other_rows(self):
        series = SERIES.replace("aging classic: the bug", "aging classic: another bug")
        with lab.having("series", series):
            self.refused(self.send(), "base aging classic is not as expected")

    def test_mutant_changed(self):
        name = "patches/mutants/mainline/half.patch"
        text = (lab.root / name).read_text().replace("int half;", "int third;")
        with lab.having(name, text):
            self.refused(self.send(), "mutant:half has changed since: make run")

    def test_configuration_changed(self):
        with lab.having("lab/config/common.config", "CONFIG_MM=y\nCONFIG_NEW=y\n"):
            self.refused(self.send(), "has another kernel configuration")

    def proved_again(self, comment):
        """The series with a comment in its first patch, and a run that proves it."""
        for name in ("patches/0001-fix.patch", "patches/mutants/mainline/half.patch"):
            text = (lab.root / name).read_text()
            change = lab.having(name, re.sub("^([-+])int fixed;", rf"\1int fixed; {comment}", text,
                                             flags=re.M))
            change.__enter__()
            self.addCleanup(change.__exit__, None, None, None)
        where = Path(tempfile.mkdtemp(dir=lab.tmp))
        res = lab.run(TREE=tree, RESULTS=where, TESTS="aging")
        self.assertEqual(res.code, 0, res.out + res.err)
        return where

    def test_warning(self):
        where = self.proved_again("/* WARN */")
        self.refused(self.send(RESULTS=where), 'patch 1, "mm: subject 1", adds a warning: '
                                               'mm/vmscan.c: warning: unused')

    def test_checkpatch(self):
        where = self.proved_again("/* TRAILING */")
        self.refused(self.send(RESULTS=where), "checkpatch: 0001-mm-subject-1.patch:1: ERROR: bad")

    def test_round_trip(self):
        with lab.having("bin/b4.bad", ""):
            self.refused(self.send(), "gives tree")

    def test_section(self):
        with lab.having("Documentation/anon.md", "# x\n"):
            self.refused(self.send(), 'Documentation/anon.md has no section "The fix"')


class OtherTests(unittest.TestCase):
    """proof.only_other_tests()"""

    def trees(self, *changes):
        """A work place, and two trees of it that differ in some files."""
        path = Path(tempfile.mkdtemp(dir=self.tmp))
        git(path, "init", "-q", ".")
        out = []
        for text, names in (("a", ("mm/vmscan.c", "st/readonce.c", "st/dirty_limit.c",
                                   "st/reclaim_util.c")), ("b", changes)):
            for name in names:
                (path / name).parent.mkdir(exist_ok=True)
                write(path / name, text)
            git(path, "add", "-A")
            out.append(git(path, "write-tree").strip())
        return SimpleNamespace(path=path, base=SimpleNamespace(selftests="st")), *out

    def setUp(self):
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.tmp = tmp.name

    def test_the_test_of_another_topic(self):
        place, old, new = self.trees("st/readonce.c")
        self.assertTrue(proof.only_other_tests(place, "dirty", old, new))
        self.assertFalse(proof.only_other_tests(place, "readonce", old, new))

    def test_what_tests_share(self):
        for name in ("st/reclaim_util.c", "mm/vmscan.c"):
            place, old, new = self.trees("st/readonce.c", name)
            self.assertFalse(proof.only_other_tests(place, "dirty", old, new))

    def test_a_tree_that_is_not_there(self):
        place, old, _ = self.trees("st/readonce.c")
        self.assertFalse(proof.only_other_tests(place, "dirty", "0" * 40, old))


class Parts(unittest.TestCase):
    def test_change_ids(self):
        with tempfile.TemporaryDirectory() as tmp:
            path = write(Path(tmp) / "postings", POSTINGS.replace("0123456789ab", "0123"))
            with self.assertRaisesRegex(ui.LabError, "Change-id: 20260102-anon-0123 is not one"):
                send.load_postings(path)

    def test_postings_of_the_project(self):
        postings = send.load_postings(bases.ROOT / "patches/postings")
        self.assertEqual(len({p.change_id for p in postings.values()}), len(postings))
        for posting in postings.values():
            for text in send.sections(posting):
                self.assertLessEqual(max(map(len, text.splitlines())), 80, posting.topic)

    def test_markdown(self):
        text = ("a\nb\n\n- one\n  two\n- [x](https://x.invalid) `y`\n\n| a | b |\n|---|---|\n"
                "| long | c |\n\n```\nas  it is\n```\n\n### Head\n\n    also  as is\n")
        self.assertEqual(markdown.plain(text),
                         "a b\n\n- one two\n- x <https://x.invalid> y\n\na     b\nlong  c\n\n"
                         "    as  it is\n\nHead\n----\n\n    also  as is")

    def test_wide_table(self):
        text = markdown.plain("| a | b |\n|---|---|\n| " + "word " * 30 + "| 2 |\n")
        self.assertLessEqual(max(map(len, text.splitlines())), markdown.TABLE)
        self.assertEqual(text.count("word"), 30)
        self.assertRegex(text, r"word {2,}2\n")

    def test_section(self):
        page = "# t\n\n## a\n\n1\n\n### b\n\n2\n\n## c\n\n3\n"
        self.assertEqual(markdown.section(page, "a"), "1\n\n### b\n\n2")
        self.assertEqual(markdown.section(page, "b"), "2")
        self.assertEqual(markdown.section(page, "c"), "3")
        self.assertIsNone(markdown.section(page, "d"))

    def test_narrow(self):
        def run(kernel, lru, status, faults, other):
            return {"kernel": kernel, "test": "t", "lru": lru, "rows": [
                {"name": "control", "status": "ok", "counters": {"x": 1}},
                {"name": "better", "status": status, "counters": {"pgrefill": faults}},
                {"name": "mixed", "status": status, "counters": {"pgrefill": faults,
                                                                 "pswpin": other}}]}
        runs = [run("base", "classic", "not ok", 9, 1), run("patched", "classic", "ok", 2, 3),
                run("base", "mglru", "not ok", 9, 1), run("patched", "mglru", "ok", 2, 3)]
        lines = report.narrow({"runs": runs}, ["t"]).splitlines()
        self.assertEqual(lines[0], "t, classic LRU (base n=1, patched n=1)")
        self.assertEqual(lines[1], "  mixed: fixed")        # something in it got worse
        self.assertRegex(lines[2], r"^    Swap Ins +1 -> 3, worse$")
        self.assertIn("  1 more rows are ok on both", lines)
        self.assertEqual(lines[-1], "  as above")
        self.assertEqual(report.narrow({"runs": runs}, ["other"]), "")


if __name__ == "__main__":
    unittest.main()
