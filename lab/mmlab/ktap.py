#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Judge the serial log of one boot that ran one kselftest.

A run is CRASHED until its log proves something else: there has to be a plan,
a result line for each row of it, an exit code that agrees with the rows, and
the end marker of the guest's init. Whatever the rows say, a splat of the
kernel anywhere in the log wins.
"""
import re
import sys
from dataclasses import dataclass, field
from typing import Optional

# Process exit codes of a lab run; 0, 1 and 4 as in kselftest. 2 is bad usage.
EXIT_CODES = {
    "PASS": 0,
    "FAIL": 1,
    "SKIP": 4,
    "CRASHED": 10,
    "HANG": 11,
    "PANIC": 12,
    "OOPS": 13,
    "WARN": 14,
    "LOCKDEP": 15,
    "INCOMPLETE": 16,
    "NOPLAN": 17,
    "BADEXIT": 18,
    "LEAK": 19,
}

TAIL_LINES = 20
KSFT_SKIP = 4

# The first line of a splat in the log decides, so that a WARN which panics
# (panic_on_warn) is a WARN. Order matters for lines that match twice: lockdep
# says "WARNING: ..." and a soft lockup "BUG: ..." as well.
SPLATS = [(status, re.compile(regex)) for status, regex in (
    ("LOCKDEP",
     r"possible (?:circular locking|recursive locking|irq lock inversion)"
     r"|inconsistent lock state|suspicious RCU usage|Invalid wait context"
     r"|sleeping function called from invalid context|unsafe lock order detected"
     r"|bad unlock balance|held lock freed|lock held when returning to user space"
     r"|trying to register non-static key"
     # Lockdep is off from here on, so that it finding nothing says nothing.
     r"|BUG: MAX_(?:LOCK|STACK)"),
    ("HANG",
     r"INFO: task .+ blocked|BUG: soft lockup|hard LOCKUP"
     r"|rcu\w* (?:self-detected stall|detected (?:expedited )?stalls)"),
    ("OOPS",
     r"\bBUG: |Oops: |kernel BUG at|general protection fault|stack segment"
     r"|divide error|invalid opcode"),
    # "WARNING: CPU: 0 PID: 1 at file:line" before 6.19, "WARNING: file:line at
    # function" since, where "[condition] " may come before the file.
    ("WARN", r"WARNING: (?:CPU: |at |(?:\[.*\] )?\S+:\d+ at )"),
    ("PANIC", r"Kernel panic - not syncing"),
)]

_ANSI = re.compile(r"\x1b(?:\[[0-9;?=]*[A-Za-z]|[()][A-Z0-9]|[A-Za-z=>])")
# "[    1.234567]", and "[    1.234567][    T1]" with CONFIG_PRINTK_CALLER. No
# match for "[0.5]", which the name of a row may have.
_STAMP = re.compile(r"\[(?: +\d+\.\d+|\d+\.\d{6})\](?:\[ *[TC]\d+\])? ?")
_OOM = re.compile(r"[Oo]ut of memory: Killed process")
_PLAN = re.compile(r"1\.\.(\d{1,9})\s*(?:#\s*(.*))?")
_ROW = re.compile(r"(not ok|ok) (\d{1,9})(?: -)?(?:\s+(.*))?")
_DIRECTIVE = re.compile(r"(?:^|\s)#\s*(SKIP|XFAIL|TODO|error)\b:?\s*(.*)$", re.I)
_COUNTERS = re.compile(r"# (counters|sample)\[(.*)\]:\s*(.*)")
_VALUE = re.compile(r"(\S+)=(-?\d{1,30}(?:\.\d+)?)(?=\s|$)")
_PROFILE = re.compile(r"\S+ \d{1,18} \d{1,18}\.\d{3}")
_LRU_PREFIX = re.compile(r"(?:classic|mglru): ")
_EXPECT = re.compile(r"Expect-fail:\s*(\S+)\s+(classic|mglru):\s*(.*)")


@dataclass
class Row:
    """One result line; name is without the "classic: " or "mglru: " prefix."""
    number: int
    name: str
    status: str             # "ok", "not ok", "skip"
    reason: str = ""        # text of the SKIP, XFAIL, TODO or error directive
    counters: dict = field(default_factory=dict)    # name -> int or float
    parts: dict = field(default_factory=dict)       # part of the row -> counters
    samples: list = field(default_factory=list)     # of dict: "# sample[row]: ms=4 nr_dirty=7"
    seconds: Optional[float] = None     # since the result before, by the clock of the guest


@dataclass
class Result:
    """What a log says; see parse_log()."""
    status: str = "CRASHED"             # a key of EXIT_CODES
    reason: str = ""                    # one line
    test: str = ""
    lru: str = ""
    rows: list = field(default_factory=list)        # of Row
    plan: Optional[int] = None          # rows announced
    exit_code: Optional[int] = None     # of the test; -N: killed by signal N
    leaks: list = field(default_factory=list)       # "swap /dev/nullb0", ...
    boot: dict = field(default_factory=dict)        # release, cpus, mem_kb, ...
    seconds: Optional[float] = None     # the test, by the clock of the guest
    profile: dict = field(default_factory=dict)     # kernel function -> [calls, us]
    tail: list = field(default_factory=list)        # last non-empty lines
    notes: list = field(default_factory=list)       # worth a look, not a status


def _splat(text):
    """The (status, line) of a kernel line that starts a splat, or None."""
    # "traps: cat[7] general protection fault ip:..." is about user space.
    if not text.startswith("traps: "):
        for status, regex in SPLATS:
            if regex.search(text):
                return status, text
    return None


def _known(line):
    """Whether a line is a whole line of TAP or of the guest's init."""
    if line.startswith("#"):
        return not _DIRECTIVE.match(line)       # that would be the end of a row
    return bool(_PLAN.fullmatch(line) or _ROW.fullmatch(line)
                or line.startswith(("MMLAB: ", "TAP version ", "Bail out!")))


def _user_lines(lines):
    """Lines without kernel messages, those cut in two by one joined again.

    Of "not [    1.234567] sda: ..." the rest is on the next line. To drop the
    start and to take "ok 3 ..." for a line of its own would make a pass of it.
    """
    out = []
    cut = None
    for line in lines:
        stamp = _STAMP.search(line)
        text = line[:stamp.start()] if stamp else line
        if stamp and not text:
            continue
        if cut is not None:
            if (_known(cut) and _known(text)) or not _known(cut + text):
                out.append(cut)
            else:
                text = cut + text
        cut = text if stamp else None
        if not stamp:
            out.append(text)
    if cut is not None:
        out.append(cut)
    return out


def _parse_row(match):
    """Row of a match of _ROW, without counters."""
    status, number, name = match.group(1), int(match.group(2)), match.group(3) or ""
    reason = ""
    directive = _DIRECTIVE.search(name)
    if directive:
        kind, reason = directive.group(1).upper(), directive.group(2).strip()
        name = name[:directive.start()]
        if not name.strip():
            # kselftest prints what the row is called after the directive.
            name = reason = _LRU_PREFIX.sub("", reason, count=1)
        if kind == "SKIP" and status == "ok":
            status = "skip"
        elif kind != "SKIP":
            reason = (kind + " " + reason).strip()
            # TODO stays what it says: nobody has promised that it fails.
            if kind == "XFAIL":
                status = "ok"
    name = _LRU_PREFIX.sub("", name.strip(), count=1)
    return Row(number, name, status, reason)


def _number(text):
    return float(text) if "." in text else int(text)


def _exit_text(code):
    return "killed by signal %d" % -code if code < 0 else "exit %d" % code


def _verdict(res, plans, bail):
    """The (status, reason) of a run that came to its end without a splat."""
    ran = _exit_text(res.exit_code) + bail
    if len(plans) != 1:
        return "NOPLAN", "%s plan line, %d rows, %s" % (len(plans) or "no", len(res.rows), ran)
    if res.plan == 0:
        skip = re.match(r"SKIP\b:?\s*(.*)", plans[0][1], re.I)
        if skip and res.exit_code == KSFT_SKIP and not res.rows:
            return "SKIP", skip.group(1) or "no reason given"
        return "NOPLAN", "a plan of nothing, %d rows, %s" % (len(res.rows), ran)
    numbers = [row.number for row in res.rows]
    if len(numbers) != res.plan:
        return "INCOMPLETE", "%d of %d rows, %s" % (len(numbers), res.plan, ran)
    if numbers != list(range(1, res.plan + 1)):
        return "INCOMPLETE", "rows numbered %s, %s" % (",".join(map(str, numbers)), ran)
    failed = [row.name for row in res.rows if row.status == "not ok"]
    skipped = [row for row in res.rows if row.status == "skip"]
    if failed:
        odd = "" if res.exit_code > 0 else ", yet " + ran
        return "FAIL", "%d of %d rows not ok%s: %s" % (
            len(failed), res.plan, odd, "; ".join(failed))
    if len(skipped) == res.plan:
        if res.exit_code == KSFT_SKIP:
            return "SKIP", "all %d rows skipped: %s" % (res.plan, skipped[0].reason)
        return "BADEXIT", "all %d rows skipped, yet %s" % (res.plan, ran)
    if res.exit_code != 0:
        return "BADEXIT", "no row is not ok, yet " + ran
    return "PASS", "%d rows ok, %d skipped" % (res.plan - len(skipped), len(skipped))


def parse_log(text, timed_out=False):
    """Judge the whole serial log of one boot.

    text is the log, in any state: nothing in it raises an error. timed_out
    says that the lab had to kill the guest. Returns a Result; its seconds are
    those of the guest's clock, its counters have the units of the test.
    """
    res = Result()
    lines = [_ANSI.sub("", line) for line in re.sub("[\r\0]", "", text).split("\n")]
    res.tail = [line for line in lines if line.strip()][-TAIL_LINES:]

    splat = None
    for line in lines:
        stamp = _STAMP.search(line)
        if stamp:
            message = line[stamp.end():].strip()
            splat = splat or _splat(message)
            if _OOM.search(message):
                res.notes.append(message)

    plans, pending, samples, bail = [], {}, {}, ""
    came, before = None, 0.0        # when the next result came, and the one before
    boots, ended = 0, False
    for line in _user_lines(lines):
        if line.startswith("MMLAB: "):
            key, _, value = line[len("MMLAB: "):].strip().partition(" ")
            if key == "boot":
                boots += 1
                release, *pairs = value.split() or [""]
                res.boot = dict(pair.partition("=")[::2] for pair in pairs)
                res.boot = {k: int(v) if re.fullmatch(r"\d{1,18}", v) else v
                            for k, v in res.boot.items()}
                res.boot["release"] = release
            elif key == "begin":
                begin = dict(re.findall(r"(\w+)=(\S+)", value))
                res.test, res.lru = begin.get("test", ""), begin.get("lru", "")
            elif key == "exit" and re.fullmatch(r"(signal )?\d{1,9}", value):
                res.exit_code = int(value.replace("signal ", "-"))
            elif key == "cannot":       # init lacks something: then it cannot see leaks there
                res.leaks.append("init: cannot " + value)
            elif key == "leak":
                res.leaks.append(value)
            elif key == "at" and re.fullmatch(r"\d+(\.\d+)?", value):
                came = float(value)
            elif key == "seconds" and re.fullmatch(r"\d+(\.\d+)?", value):
                res.seconds = float(value)
            elif key == "profile" and _PROFILE.fullmatch(value):
                name, hits, us = value.split()
                entry = res.profile.setdefault(name, [0, 0.0])
                entry[0] += int(hits)
                entry[1] = round(entry[1] + float(us), 3)
            elif key == "end":
                ended = True
            continue
        if not res.test:
            continue        # noise of the firmware or of init, not of the test
        plan, row, counters = (r.fullmatch(line) for r in (_PLAN, _ROW, _COUNTERS))
        if plan:
            plans.append((int(plan.group(1)), plan.group(2) or ""))
        elif row:
            res.rows.append(_parse_row(row))
            name = res.rows[-1].name
            res.rows[-1].counters = pending.pop(name, {})
            res.rows[-1].samples = [s for s in samples.pop(name, []) if len(s) > 1]
            # "counters[a row, device 2]: ..." before "ok 1 a row"
            for part in [key for key in pending if key.startswith(name + ", ")]:
                res.rows[-1].parts[part[len(name) + 2:]] = pending.pop(part)
            if came is not None:
                res.rows[-1].seconds = round(came - before, 9)
                came, before = None, came
        elif counters:
            values = {k: _number(v) for k, v in _VALUE.findall(counters.group(3))}
            name = _LRU_PREFIX.sub("", counters.group(2), count=1)
            if counters.group(1) == "sample":
                samples.setdefault(name, []).append(values)
            else:
                pending.setdefault(name, {}).update(values)
        elif line.startswith("Bail out!"):
            bail = ", " + line.strip()
    if len(plans) == 1:
        res.plan = plans[0][0]
    res.notes += ["counters of a row that has no result: " + name for name in pending]

    last = res.tail[-1].strip() if res.tail else "none, the log is empty"
    if splat:
        res.status, res.reason = splat
    elif timed_out:
        res.status, res.reason = "HANG", "timed out; last line: " + last
    elif boots > 1:
        res.reason = "the guest booted %d times" % boots
    elif not ended:
        res.reason = "no 'MMLAB: end'; last line: " + last
    elif not res.test or res.exit_code is None:
        res.reason = "no 'MMLAB: %s'" % ("exit" if res.test else "begin")
    else:
        res.status, res.reason = _verdict(res, plans, bail)
    if res.leaks:
        leaked = "leaked " + ", ".join(res.leaks)
        if res.status in ("PASS", "SKIP"):
            res.status, res.reason = "LEAK", "%s; but for that %s: %s" % (
                leaked, res.status, res.reason)
        else:
            res.reason += "; " + leaked
    return res


def parse_expect(text):
    """Rows that have to fail, from "Expect-fail: TEST LRU: ROW; ROW" lines.

    Other lines are ignored, several lines for one test and LRU add up. Returns
    {(test, lru): set of row names}. Raises ValueError for an Expect-fail line
    that is not of that form: to ignore it would mean to expect a pass.
    """
    expect = {}
    for line in text.splitlines():
        if not line.startswith("Expect-fail:"):
            continue
        match = _EXPECT.fullmatch(line.strip())
        names = {name.strip() for name in match.group(3).split(";")} - {""} if match else None
        if not names:
            raise ValueError("not 'Expect-fail: TEST classic|mglru: ROW; ...': " + line.strip())
        expect.setdefault(match.group(1, 2), set()).update(names)
    return expect


def compare(result, expected_fail_rows):
    """Whether a Result is what was expected of it.

    expected_fail_rows is a set of row names. If empty, the run has to PASS. If
    not, it has to FAIL with exactly these rows not ok, without leaks and
    without a signal or an exit code that denies it. Returns (ok, text), text
    being one line that says what differed, or what was as expected.
    """
    expected = set(expected_fail_rows)
    if not expected:
        return result.status == "PASS", "%s: %s" % (result.status, result.reason)
    if result.status == "PASS":
        return False, "PASS, expected to fail: " + "; ".join(sorted(expected))
    if result.status != "FAIL":
        return False, "expected FAIL, got %s: %s" % (result.status, result.reason)
    wrong = []
    for name in sorted(expected):
        rows = [row for row in result.rows if row.name == name]
        # A skipped row has its reason appended to its name.
        skipped = [row for row in result.rows
                   if row.status == "skip" and (row.name + ":").startswith(name + ":")]
        if skipped:
            wrong.append("expected to fail but skipped: " + name)
        elif not rows:
            wrong.append("no such row: " + name)
        elif any(row.status != "not ok" for row in rows):
            wrong.append("expected to fail but ok: " + name)
    wrong += ["failed unexpectedly: " + row.name for row in result.rows
              if row.status == "not ok" and row.name not in expected]
    if result.leaks:
        wrong.append("leaked " + ", ".join(result.leaks))
    if result.exit_code is not None and result.exit_code <= 0:
        wrong.append("rows not ok, yet " + _exit_text(result.exit_code))
    if wrong:
        return False, "; ".join(wrong)
    return True, "failed as expected: " + "; ".join(sorted(expected))


def main(argv=None):
    """Print a summary of the log named in argv; returns a value of EXIT_CODES.

    Returns 2, as argparse would, for bad usage or a log that cannot be read.
    """
    argv = sys.argv[1:] if argv is None else argv
    if len(argv) != 1:
        print("usage: ktap.py LOG", file=sys.stderr)
        return 2
    try:
        with open(argv[0], encoding="utf-8", errors="replace", newline="") as log:
            res = parse_log(log.read())
    except OSError as err:
        print("ktap.py: %s" % err, file=sys.stderr)
        return 2
    print("%s %s: %s: %s" % (res.test or "?", res.lru or "?", res.status, res.reason))
    print("boot: " + (" ".join("%s=%s" % pair for pair in res.boot.items()) or "none"))
    if res.seconds is not None:
        print("seconds (guest clock): %.3f" % res.seconds)
    for row in res.rows:
        print("%3d %-6s %s" % (row.number, row.status, row.name))
    for note in res.notes:
        print("note: " + note)
    if res.status not in ("PASS", "FAIL", "SKIP"):
        print("\n".join(["last lines:"] + ["  " + line for line in res.tail]))
    return EXIT_CODES[res.status]


if __name__ == "__main__":
    sys.exit(main())
