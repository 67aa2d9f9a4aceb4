# SPDX-License-Identifier: GPL-2.0
"""Tests of mmlab.ktap: what a serial log proves, and what it does not."""
import contextlib
import dataclasses
import io
import os
import sys
import unittest

LAB = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, LAB)

from mmlab import ktap  # noqa: E402

FIXTURES = os.path.join(LAB, "tests", "fixtures")
ZERO = "memory.swap.max=0: anon is not aged"
PARENT = "memory.swap.max=0 of the parent: anon is not aged"

# Fixture -> (status, part of the reason). hang is a log without a splat that
# the lab gave up on, all others ended by themselves.
STATUS = {
    "pass": ("PASS", "4 rows ok, 0 skipped"),
    "fail": ("FAIL", "2 of 4 rows not ok: " + ZERO),
    "truncated": ("CRASHED", "no 'MMLAB: end'"),
    "panic": ("PANIC", "Unable to mount root fs"),
    "warn": ("WARN", "mm/vmscan.c:2461"),
    "warn_old": ("WARN", "page_counter_cancel"),
    "lockdep": ("LOCKDEP", "possible circular locking"),
    "oops": ("OOPS", "NULL pointer dereference"),
    "hang": ("HANG", "timed out; last line: ok 3 classic"),
    "hung_task": ("HANG", "task anon_aging:87 blocked"),
    "plan_zero": ("NOPLAN", "a plan of nothing"),
    "skip_rows": ("SKIP", "all 3 rows skipped: no swap: anon is not aged: not compiled in"),
    "skip_all": ("SKIP", "swap is on; the test wants to decide that"),
    "no_plan": ("NOPLAN", "no plan line, 0 rows, exit 127"),
    "leak": ("LEAK", "leaked swap /dev/nullb0, cgroup /sys/fs/cgroup/ru_87"),
    "glued": ("FAIL", "1 of 4 rows not ok: " + ZERO),
    "few_rows": ("INCOMPLETE", "2 of 4 rows, exit 1, Bail out! cannot make a swap device"),
    "bad_exit": ("BADEXIT", "killed by signal 9"),
}


def fixture(name):
    with open(os.path.join(FIXTURES, name + ".log"), encoding="utf-8", newline="") as log:
        return log.read()


def log(*tap, exit="0", leaks=(), before=(), after=()):
    """A log of one test that printed the lines tap."""
    return "\n".join(["MMLAB: boot 7.3.0-rc7 cpus=2 mem_kb=1000", *before,
                      "MMLAB: begin test=t lru=classic", "TAP version 13", *tap,
                      "MMLAB: exit " + exit, *["MMLAB: leak " + leak for leak in leaks],
                      "MMLAB: seconds 1.5", *after, "MMLAB: end", ""])


def status(*tap, **kwargs):
    return ktap.parse_log(log(*tap, **kwargs)).status


class Fixtures(unittest.TestCase):
    def test_status(self):
        for name, (want, reason) in STATUS.items():
            with self.subTest(name):
                res = ktap.parse_log(fixture(name), timed_out=name == "hang")
                self.assertEqual(res.status, want, res.reason)
                self.assertIn(reason, res.reason)
                self.assertNotIn("\n", res.reason)

    def test_all_fixtures_and_all_statuses_are_covered(self):
        files = {name[:-len(".log")] for name in os.listdir(FIXTURES) if name.endswith(".log")}
        self.assertEqual(files, set(STATUS))
        self.assertEqual({want for want, _ in STATUS.values()}, set(ktap.EXIT_CODES))

    def test_pass_in_full(self):
        res = ktap.parse_log(fixture("pass"))
        self.assertEqual((res.test, res.lru, res.plan, res.exit_code, res.seconds),
                         ("anon_aging", "classic", 4, 0, 12.345))
        self.assertEqual(res.boot, {"release": "7.3.0-rc7", "cpus": 2, "mem_kb": 1012345})
        self.assertEqual([row.number for row in res.rows], [1, 2, 3, 4])
        self.assertEqual(res.rows[2].name, ZERO)
        self.assertEqual(res.rows[1].counters, {
            "pgdeactivate": 12160, "pgrefill": 12192, "pgscan_anon": 9123,
            "active_anon_mb": 17, "inactive_anon_mb": 47})
        self.assertEqual((res.leaks, res.notes), ([], []))
        self.assertEqual(len(res.tail), 20)
        self.assertEqual(res.tail[-2], "MMLAB: end")
        self.assertFalse([line for line in res.tail if "\r" in line or "\x1b" in line])

    def test_printk_glued_into_lines(self):
        rows = ktap.parse_log(fixture("glued")).rows
        self.assertEqual([row.status for row in rows], ["ok", "ok", "not ok", "ok"])
        self.assertEqual(rows[1].name, "swap: anon is aged")
        self.assertEqual([row.name for row in rows[2:]], [ZERO, PARENT])
        self.assertEqual(rows[3].counters, {"pgdeactivate": 128, "pgrefill": -3, "ratio": 0.25})

    def test_printk_anywhere_changes_nothing(self):
        printk = "[    9.123456] random: crng init done\r\n[    9.123999] x\r\n"
        for name in ("pass", "fail", "skip_rows", "skip_all", "leak", "bad_exit"):
            text = fixture(name)
            want = dataclasses.replace(ktap.parse_log(text), tail=[])
            for at in range(text.index("MMLAB: boot"), len(text)):
                res = ktap.parse_log(text[:at] + printk + text[at:])
                self.assertEqual(dataclasses.replace(res, tail=[]), want, text[at - 20:at + 20])

    def test_every_truncation_of_a_pass_is_no_pass(self):
        text = fixture("pass")
        for end in range(0, text.index("MMLAB: end"), 7):
            self.assertEqual(ktap.parse_log(text[:end]).status, "CRASHED")


class Verdict(unittest.TestCase):
    def test_nothing_is_proven_by_nothing(self):
        self.assertEqual(ktap.parse_log("").status, "CRASHED")
        self.assertEqual(ktap.parse_log("\x1b[2Jnoise\0\xff\n").status, "CRASHED")
        text = log("1..1", "ok 1 a")
        self.assertEqual(ktap.parse_log(text.replace("MMLAB: begin", "x")).status, "CRASHED")
        self.assertEqual(ktap.parse_log(text.replace("MMLAB: exit", "x")).status, "CRASHED")
        self.assertEqual(ktap.parse_log("MMLAB: boot x\n" + text).reason,
                         "the guest booted 2 times")

    def test_plan(self):
        self.assertEqual(status("1..1", "ok 1 a"), "PASS")
        self.assertEqual(status("ok 1 a", "1..1"), "PASS")
        self.assertEqual(status("ok 1 a"), "NOPLAN")
        self.assertEqual(status("1..1", "ok 1 a", "1..1"), "NOPLAN")
        self.assertEqual(status("1..0"), "NOPLAN")
        self.assertEqual(status("1..0 # SKIP no swap", exit="4"), "SKIP")
        self.assertEqual(status("1..0 # SKIP no swap"), "NOPLAN")
        self.assertEqual(status("1..0 # SKIP no swap", "ok 1 a", exit="4"), "NOPLAN")
        self.assertEqual(status("1..0", exit="4"), "NOPLAN")

    def test_rows_have_to_be_those_of_the_plan(self):
        self.assertEqual(status("1..2", "ok 1 a"), "INCOMPLETE")
        self.assertEqual(status("1..2", "not ok 1 a", exit="1"), "INCOMPLETE")
        self.assertEqual(status("1..1", "ok 1 a", "ok 2 b"), "INCOMPLETE")
        self.assertEqual(status("1..2", "ok 1 a", "ok 1 a"), "INCOMPLETE")
        self.assertEqual(status("1..1", "  ok 1 nested"), "INCOMPLETE")
        self.assertEqual(status("1..1", before=["ok 1 a"]), "INCOMPLETE")

    def test_exit_code_has_to_agree(self):
        self.assertEqual(status("1..1", "ok 1 a", exit="1"), "BADEXIT")
        self.assertEqual(status("1..1", "ok 1 a", exit="4"), "BADEXIT")
        self.assertEqual(status("1..1", "ok 1 a", exit="signal 11"), "BADEXIT")
        for code, says in (("0", "yet exit 0"), ("signal 9", "yet killed by signal 9")):
            res = ktap.parse_log(log("1..1", "not ok 1 a", exit=code))
            self.assertEqual(res.status, "FAIL")
            self.assertIn(says, res.reason)

    def test_skipped_rows(self):
        self.assertEqual(status("1..2", "ok 1 a", "ok 2 # SKIP b"), "PASS")
        self.assertEqual(status("1..2", "ok 1 a # SKIP x", "ok 2 # SKIP b", exit="4"), "SKIP")
        self.assertEqual(status("1..1", "ok 1 # SKIP b"), "BADEXIT")
        self.assertEqual(status("1..1", "ok 1 # SKIP b", exit="1"), "BADEXIT")
        row = ktap.parse_log(log("1..1", "ok 1 - classic: a # skip no swap")).rows[0]
        self.assertEqual((row.name, row.status, row.reason), ("a", "skip", "no swap"))
        row = ktap.parse_log(log("1..1", "ok 1 # SKIP classic: a: no swap")).rows[0]
        self.assertEqual((row.name, row.status, row.reason),
                         ("a: no swap", "skip", "a: no swap"))

    def test_other_directives(self):
        self.assertEqual(status("1..1", "ok 1 # XFAIL a"), "PASS")
        self.assertEqual(status("1..1", "not ok 1 a # XFAIL known"), "PASS")
        self.assertEqual(status("1..1", "not ok 1 a # TODO later", exit="1"), "FAIL")
        self.assertEqual(status("1..1", "not ok 1 a # SKIP x", exit="1"), "FAIL")
        row = ktap.parse_log(log("1..1", "not ok 1 # error classic: a", exit="1")).rows[0]
        self.assertEqual((row.name, row.status), ("a", "not ok"))

    def test_leaks(self):
        self.assertEqual(status("1..1", "ok 1 a", leaks=["swap /dev/nullb0"]), "LEAK")
        self.assertEqual(status("1..0 # SKIP x", exit="4", leaks=["cgroup c"]), "LEAK")
        res = ktap.parse_log(log("1..1", "not ok 1 a", exit="1", leaks=["cgroup c"]))
        self.assertEqual((res.status, res.leaks), ("FAIL", ["cgroup c"]))
        self.assertIn("leaked cgroup c", res.reason)

    def test_counters(self):
        res = ktap.parse_log(log(
            "1..2", "# counters[mglru: a]: x=1 bad=n/a", "# counters[a]: y=-2.5",
            "ok 1 mglru: a", "# counters[c]: x=1", "ok 2 b"))
        self.assertEqual(res.rows[0].counters, {"x": 1, "y": -2.5})
        self.assertEqual(res.rows[1].counters, {})
        self.assertEqual(res.notes, ["counters of a row that has no result: c"])

    def test_row_with_stamp_in_it(self):
        for line in ("ok 1 classic: foo[   12.3] sda: x", "ok 1 foo[12345.678901][  T1] sda: x"):
            res = ktap.parse_log(log("1..1", line))
            self.assertEqual((res.status, res.rows[0].name), ("PASS", "foo"))
        # Looks like a stamp, is the name of a row.
        self.assertEqual(ktap.parse_log(log("1..1", "ok 1 ratio [0.5]")).rows[0].name,
                         "ratio [0.5]")

    def test_cut_not_ok_never_passes(self):
        line = "not ok 1 classic: foo"
        for at in range(1, len(line)):
            tap = [line[:at] + "[    1.234567] sda: x", "[    1.234570] y", line[at:]]
            res = ktap.parse_log(log("1..1", *tap, exit="1"))
            self.assertEqual((res.status, [row.name for row in res.rows]), ("FAIL", ["foo"]))


class Splats(unittest.TestCase):
    def check(self, want, *messages):
        for message in messages:
            with self.subTest(message):
                kernel = "[    1.234567] " + message
                res = ktap.parse_log(log("1..1", "ok 1 a", kernel))
                self.assertEqual(res.status, want)
                if want != "PASS":
                    self.assertEqual(res.reason, message)
                    # A splat is more than a time-out, and than a missing end.
                    self.assertEqual(ktap.parse_log(kernel, timed_out=True).status, want)
                # The same said by the test is no splat.
                self.assertEqual(status("1..1", "# " + message, "ok 1 a"), "PASS")

    def test_lockdep(self):
        self.check("LOCKDEP", "WARNING: possible circular locking dependency detected",
                   "WARNING: possible recursive locking detected",
                   "WARNING: inconsistent lock state", "WARNING: suspicious RCU usage",
                   "WARNING: possible irq lock inversion dependency detected",
                   "BUG: sleeping function called from invalid context at mm/swapfile.c:2",
                   "BUG: MAX_LOCKDEP_ENTRIES too low!")

    def test_oops(self):
        self.check("OOPS", "BUG: unable to handle page fault for address: ffff88",
                   "BUG: kernel NULL pointer dereference, address: 0",
                   "Oops: Oops: 0002 [#1] SMP", "kernel BUG at mm/swap.c:1!",
                   "Oops: general protection fault, probably for non-canonical address",
                   "general protection fault: 0000 [#1] SMP",
                   "BUG: KASAN: slab-use-after-free in folio_lruvec+0x1/0x2",
                   "BUG: Bad page state in process cat  pfn:00001",
                   "stack segment: 0000 [#1] SMP", "divide error: 0000 [#1] SMP",
                   "invalid opcode: 0000 [#1] SMP")

    def test_warn(self):
        self.check("WARN", "WARNING: CPU: 0 PID: 1 at mm/vmscan.c:1 shrink_node+0x1/0x2",
                   "WARNING: mm/vmscan.c:1 at shrink_node+0x1/0x2, CPU#1: kswapd0/46",
                   "WARNING: [nr < 0] mm/vmscan.c:1 at shrink_node+0x1/0x2, CPU#1: kswapd0/46",
                   "WARNING: at shrink_node+0x1/0x2, CPU#1: kswapd0/46")

    def test_hang_and_panic(self):
        self.check("HANG", "INFO: task kswapd0:46 blocked for more than 120 seconds.",
                   "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [anon_aging:87]",
                   "rcu: INFO: rcu_preempt self-detected stall on CPU",
                   "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:")
        self.check("PANIC", "Kernel panic - not syncing: Attempted to kill init!")

    def test_no_splat(self):
        self.check("PASS", "traps: anon_aging[87] general protection fault ip:401136 sp:7ff",
                   "Spectre V2 : WARNING: Unprivileged eBPF is enabled",
                   "rcu: RCU CPU stall warnings timeout set to 21000")

    def test_first_cause_wins(self):
        lines = ["[    1.000000] Kernel panic - not syncing: panic_on_warn set",
                 "[    2.000000] WARNING: CPU: 0 PID: 1 at kernel/smp.c:1 f+0x1/0x2"]
        self.assertEqual(ktap.parse_log("\n".join(lines)).status, "PANIC")
        self.assertEqual(ktap.parse_log("\n".join(lines[::-1])).status, "WARN")
        glued = "ok 1 cla[    1.000000] BUG: KASAN: use-after-free in f+0x1/0x2"
        self.assertEqual(status("1..1", glued, "ssic: a"), "OOPS")

    def test_splat_before_and_after_the_test(self):
        kernel = ["[    1.000000] WARNING: CPU: 0 PID: 1 at kernel/smp.c:1 f+0x1/0x2"]
        self.assertEqual(status("1..1", "ok 1 a", before=kernel), "WARN")
        self.assertEqual(status("1..1", "ok 1 a", after=kernel), "WARN")

    def test_oom_is_a_note(self):
        kernel = "Memory cgroup out of memory: Killed process 87 (anon_aging)"
        res = ktap.parse_log(log("1..1", "[    1.000000] " + kernel, "ok 1 a"))
        self.assertEqual((res.status, res.notes), ("PASS", [kernel]))

    def test_time_out(self):
        text = log("1..1", "ok 1 a")
        self.assertEqual(ktap.parse_log(text, timed_out=True).status, "HANG")
        self.assertEqual(ktap.parse_log("", timed_out=True).status, "HANG")


class Expectations(unittest.TestCase):
    def test_parse(self):
        self.assertEqual(ktap.parse_expect(
            "Subject: mutant\n"
            "Expect-fail: anon_aging classic: %s; %s;\n"
            "Expect-fail: anon_aging mglru: a\n"
            "Expect-fail: anon_aging classic: no swap: x\n"
            "Not Expect-fail: at all\n" % (ZERO, PARENT)),
            {("anon_aging", "classic"): {ZERO, PARENT, "no swap: x"},
             ("anon_aging", "mglru"): {"a"}})
        self.assertEqual(ktap.parse_expect(""), {})

    def test_malformed(self):
        for line in ("Expect-fail: anon_aging: a", "Expect-fail: anon_aging clasic: a",
                     "Expect-fail: anon_aging classic:", "Expect-fail: anon_aging classic: ;"):
            with self.subTest(line), self.assertRaises(ValueError):
                ktap.parse_expect(line)

    def compare(self, expected, *tap, **kwargs):
        ok, text = ktap.compare(ktap.parse_log(log(*tap, **kwargs)), expected)
        self.assertNotIn("\n", text)
        return ok, text

    def test_expected_pass(self):
        self.assertTrue(self.compare(set(), "1..1", "ok 1 a")[0])
        self.assertFalse(self.compare(set(), "1..1", "ok 1 a", leaks=["x"])[0])
        self.assertEqual(self.compare(set(), "1..0 # SKIP no swap", exit="4"),
                         (False, "SKIP: no swap"))
        self.assertEqual(self.compare(set(), "1..1", "not ok 1 a", exit="1"),
                         (False, "FAIL: 1 of 1 rows not ok: a"))

    def test_expected_fail(self):
        tap = ["1..3", "not ok 1 classic: a", "ok 2 classic: b", "ok 3 # SKIP classic: c: why"]
        self.assertEqual(self.compare({"a"}, *tap, exit="1"), (True, "failed as expected: a"))
        for expected, text in (
                ({"a", "b"}, "expected to fail but ok: b"),
                ({"a", "c"}, "expected to fail but skipped: c"),
                ({"a", "d"}, "no such row: d"),
                ({"b"}, "expected to fail but ok: b; failed unexpectedly: a")):
            self.assertEqual(self.compare(expected, *tap, exit="1"), (False, text))
        self.assertEqual(self.compare({"a"}, *tap, exit="1", leaks=["swap x"]),
                         (False, "leaked swap x"))
        self.assertEqual(self.compare({"a"}, *tap),
                         (False, "rows not ok, yet exit 0"))
        self.assertEqual(self.compare({"a"}, *tap, exit="signal 9"),
                         (False, "rows not ok, yet killed by signal 9"))

    def test_expected_fail_got_something_else(self):
        self.assertEqual(self.compare({"a"}, "1..1", "ok 1 a"),
                         (False, "PASS, expected to fail: a"))
        self.assertEqual(self.compare({"a"}, "1..2", "not ok 1 a", exit="1"),
                         (False, "expected FAIL, got INCOMPLETE: 1 of 2 rows, exit 1"))

    def test_fixture(self):
        res = ktap.parse_log(fixture("fail"))
        self.assertTrue(ktap.compare(res, {ZERO, PARENT})[0])
        self.assertFalse(ktap.compare(res, {ZERO})[0])
        self.assertFalse(ktap.compare(res, set())[0])


class Main(unittest.TestCase):
    def run_main(self, *argv):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = ktap.main(list(argv))
        return code, out.getvalue()

    def test_exit_codes(self):
        codes = ktap.EXIT_CODES
        self.assertEqual((codes["PASS"], codes["FAIL"], codes["SKIP"]), (0, 1, 4))
        self.assertEqual(len(set(codes.values())), len(codes))
        self.assertTrue(all(code >= 10 for status, code in codes.items()
                            if status not in ("PASS", "FAIL", "SKIP")))

    def test_main(self):
        for name, (want, _) in STATUS.items():
            if name != "hang":
                code, out = self.run_main(os.path.join(FIXTURES, name + ".log"))
                self.assertEqual(code, ktap.EXIT_CODES[want])
                self.assertIn(": %s: " % want, out)

    def test_usage(self):
        self.assertEqual(self.run_main()[0], 2)
        self.assertEqual(self.run_main(os.path.join(FIXTURES, "no such log"))[0], 2)


if __name__ == "__main__":
    unittest.main()
