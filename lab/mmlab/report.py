# SPDX-License-Identifier: GPL-2.0
"""Reports of a lab run: matrix, before/after table, report.md.

All functions take the results dict of a run, as the lab stores it in JSON.
Keys that are missing are shown as unknown and never count as expected.
"""
import re
import statistics

# Which way is better for the same work: -1 lower, 1 higher. Left out is what
# depends on the case: to swap out (pswpout) can be what a row asks for, and
# pages reclaimed (pgsteal_*) are the work itself.
DIRECTION = {
    "allocstall": -1,
    "majflt": -1,
    "oom_kill": -1,
    "pgdeactivate": -1,
    "pgmajfault": -1,
    "pgrefill": -1,
    "pgscan_anon": -1,
    "pgscan_direct": -1,
    "pgscan_kswapd": -1,
    "pswpin": -1,
    "workingset_refault_anon": -1,
    "workingset_refault_file": -1,
}

# The vocabulary of mmtests, where it has a word.
LABELS = {
    "allocstall": "Allocation stalls",
    "majflt": "Major Faults",
    "minflt": "Minor Faults",
    "nr_vmscan_immediate_reclaim": "Page reclaim immediate",
    "nr_vmscan_write": "Page writes by reclaim",
    "pgdeactivate": "Pages deactivated (pgdeactivate)",
    "pgmajfault": "Major Faults",
    "pgrefill": "Active pages scanned (pgrefill)",
    "pgscan_direct": "Direct pages scanned",
    "pgscan_kswapd": "Kswapd pages scanned",
    "pgsteal_direct": "Direct pages reclaimed",
    "pgsteal_kswapd": "Kswapd pages reclaimed",
    "pswpin": "Swap Ins",
    "pswpout": "Swap Outs",
    "slabs_scanned": "Slabs scanned",
}

WIDTH = 100         # of the matrix: wider ones are split into blocks
TAIL_LINES = 20

PROVENANCE = (
    ("run", "Run"), ("date", "Date"), ("base", "Base"), ("version", "Source package"),
    ("upstream", "Upstream tag"), ("series", "Series"), ("series_tree", "Series tree hash"),
    ("config_hash", "Config hash"), ("compiler", "Compiler"), ("qemu", "QEMU"),
    ("accel", "Accelerator"), ("mode", "Mode"), ("host", "Host"),
)


def _unique(items):
    return list(dict.fromkeys(items))


def _grid(header, rows):
    """Lines of a text table with left-aligned columns."""
    widths = [max(len(row[i]) for row in [header] + rows) for i in range(len(header))]
    rule = ["-" * width for width in widths]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
            for row in [header, rule] + rows]


def _columns(results):
    """The (test, lru) pairs that were run, in order."""
    return _unique((run["test"], run["lru"]) for run in results.get("runs", []))


def _runs(results, kernel, column):
    return [run for run in results.get("runs", [])
            if run["kernel"] == kernel and (run["test"], run["lru"]) == column]


def _cell(run):
    """One run in a cell of the matrix."""
    status, rows = run["status"], run.get("rows") or []
    text = status.lower() if status in ("PASS", "SKIP") else status
    if status == "FAIL" and rows:
        text += " %d/%d" % (sum(row["status"] == "not ok" for row in rows), len(rows))
    if not run.get("as_expected"):
        return text + " !!"
    return text if status in ("PASS", "SKIP") else text + " (expected)"


def matrix(results):
    """Text table kernel x (test, lru), at most WIDTH columns where possible.

    Returns lines joined by newlines, without one at the end. "!!" marks what
    is not as expected, "-" what was not run, "x3" a cell of three runs.
    """
    columns = _columns(results)
    bad = {kernel["name"]: kernel.get("bad") for kernel in results.get("kernels", [])}
    kernels = _unique(list(bad) + [run["kernel"] for run in results.get("runs", [])])
    if not columns:
        return "nothing was run"

    def cell(kernel, column):
        cells = [_cell(run) for run in _runs(results, kernel, column)]
        if not cells:
            return "no kernel !!" if bad.get(kernel) else "-"
        counts = ["%s x%d" % (text, cells.count(text)) for text in _unique(cells)]
        return cells[0] if len(cells) == 1 else ", ".join(counts)

    grid = {column: [cell(kernel, column) for kernel in kernels] for column in columns}
    first = max(len(name) for name in kernels + ["kernel"])
    blocks, room = [], 0
    for column in columns:
        width = 2 + max(map(len, grid[column] + ["%s %s" % column]))
        if not blocks or width > room:
            blocks.append([])
            room = WIDTH - first
        blocks[-1].append(column)
        room -= width
    lines = []
    for block in blocks:
        rows = [[name] + [grid[column][i] for column in block] for i, name in enumerate(kernels)]
        # A mutant is run with the test it is for only: no rows of dashes.
        if len(blocks) > 1:
            rows = [row for row in rows if set(row[1:]) != {"-"}]
        lines += _grid(["kernel"] + ["%s %s" % column for column in block], rows) + [""]
    lines.append("!! not as expected   n/m rows not ok of all rows   - not run")
    return "\n".join(lines)


def _status(runs, name):
    """Status of a row in all runs: "ok", "missing", "not ok/ok" if they differ."""
    found = set()
    for run in runs:
        # A skipped row has its reason appended to its name.
        found.add(next((row["status"] for row in run.get("rows") or []
                        if row["name"] == name or row["status"] == "skip"
                        and row["name"].startswith(name + ":")), "missing"))
    return "/".join(sorted(found))


def _row_verdict(base, patched):
    if base == patched:
        return {"ok": "control", "not ok": "still not ok"}.get(base, base + " on both")
    if base == "not ok" and patched == "ok":
        return "fixed"
    if base == "ok" and "not ok" in patched.split("/"):
        return "BROKEN"
    return "%s -> %s" % (base, patched)


def _metrics(runs, name):
    """{metric: values} of a row, a value for each run that has it."""
    out = {}
    for run in runs:
        for row in run.get("rows") or []:
            if row["name"] == name:
                for metric, value in (row.get("counters") or {}).items():
                    out.setdefault(metric, []).append(value)
    return out


def _fmt(value, sign=""):
    text = format(value, sign + ".3f")
    return re.sub(r"\.?0+$", "", text)


def _range(values):
    if not values:
        return "-"
    low, high = min(values), max(values)
    return _fmt(low) if low == high else "%s..%s" % (_fmt(low), _fmt(high))


def _delta(base, patched):
    """Signed difference of the medians, with percent where base is not 0."""
    if not base or not patched:
        return "-"
    before, after = statistics.median(base), statistics.median(patched)
    if after == before:
        return "0"
    text = _fmt(after - before, "+")
    return text + " (%+.1f%%)" % (100.0 * (after - before) / abs(before)) if before else text


def _judge(metric, base, patched):
    """"better", "worse" or "" where that is not known, or ranges overlap."""
    direction = DIRECTION.get(metric, 0)
    if not direction or not base or not patched:
        return ""
    if min(patched) > max(base):
        return "better" if direction > 0 else "worse"
    if max(patched) < min(base):
        return "worse" if direction > 0 else "better"
    return ""


def _block(base, patched):
    """Lines of the table for one test and LRU, broken and worse ones first."""
    names = _unique(row["name"] for run in base + patched for row in run.get("rows") or []
                    if row["status"] != "skip")
    entries = []
    for name in names:
        before, after = _status(base, name), _status(patched, name)
        verdict = _row_verdict(before, after)
        old, new = _metrics(base, name), _metrics(patched, name)
        lost = before == "ok" and after != "ok"
        for metric in _unique(list(old) + list(new)):
            b, p = old.get(metric, []), new.get(metric, [])
            # Of a control that holds, and of a row that was not run on both,
            # less or more is neither good nor bad.
            judged = verdict in ("fixed", "BROKEN", "still not ok")
            word = _judge(metric, b, p) if judged else ""
            entries.append((not lost, word != "worse",
                            [name, LABELS.get(metric, metric), _range(b), _range(p),
                             _delta(b, p), verdict + (word and ", " + word)]))
        if not old and not new and verdict != "control":
            entries.append((not lost, True, [name, "-", "-", "-", "-", verdict]))
    entries.sort(key=lambda entry: entry[:2])       # stable: else in log order
    if not entries:
        return ["no counters"]
    return _grid(["row", "metric", "base", "patched", "delta", "verdict"],
                 [cells for _, _, cells in entries])


def table(results):
    """Before/after table of the counters of the kernels base and patched.

    One block for each test and LRU, metrics in the unit the test counts in.
    Returns lines joined by newlines, without one at the end.
    """
    lines, several = [], False
    for column in _columns(results):
        base = _runs(results, "base", column)
        patched = _runs(results, "patched", column)
        if not base and not patched:
            continue
        head = "%s %s" % column
        if len(base) > 1 or len(patched) > 1:
            several = True
            head += " (base n=%d, patched n=%d)" % (len(base), len(patched))
        lines.append(head)
        if base and patched:
            lines += _block(base, patched)
        else:
            lines.append("nothing to compare with: not run on " + ("patched" if base else "base"))
        lines.append("")
    if several:
        lines.append("n > 1: min..max of the runs, delta of the medians; better or worse only\n"
                     "where the ranges do not overlap.")
    return "\n".join(lines).rstrip() or "neither base nor patched was run"


def narrow(results, tests):
    """The before/after table of some tests for a mail: 72 columns, no control rows.

    What got worse comes first, then what is fixed, in log order.
    """
    lines, printed = [], {}
    for column in _columns(results):
        base, patched = _runs(results, "base", column), _runs(results, "patched", column)
        if column[0] not in tests or not base or not patched:
            continue
        names = _unique(row["name"] for run in base + patched for row in run.get("rows") or []
                        if row["status"] != "skip")
        entries, controls = [], 0
        for name in names:
            before, after = _status(base, name), _status(patched, name)
            verdict = _row_verdict(before, after)
            if verdict == "control":
                controls += 1
                continue
            old, new = _metrics(base, name), _metrics(patched, name)
            cells = []
            for metric in _unique(list(old) + list(new)):
                b, p = old.get(metric, []), new.get(metric, [])
                if sorted(b) != sorted(p):
                    word = _judge(metric, b, p)
                    cells.append((word != "worse", "    %-38s %12s -> %s%s" % (
                        LABELS.get(metric, metric), _range(b), _range(p),
                        ", worse" if word == "worse" else "")))
            cells.sort(key=lambda cell: cell[0])
            entries.append((verdict != "BROKEN" and all(better for better, _ in cells),
                            ["  %s: %s" % (name, verdict)] + [text for _, text in cells]))
        entries.sort(key=lambda entry: entry[0])
        lines.append("%s, %s LRU (base n=%d, patched n=%d)" % (
            column[0], {"mglru": "multi-gen"}.get(column[1], column[1]), len(base), len(patched)))
        block = [line for _, text in entries for line in text]
        block += ["  %d more rows are ok on both" % controls]
        same = printed.setdefault(column[0], block) if entries else block
        lines += (block if same is block else
                  ["  as above"] if same == block else block) + [""]
    return "\n".join(lines).rstrip()


def caught(results, tests, names):
    """How many rows of some tests fail on kernels: {name in the results: name to show}."""
    columns = [column for column in _columns(results) if column[0] in tests]
    rows = []
    for kernel, label in names.items():
        cells = []
        for column in columns:
            runs = _runs(results, kernel, column)
            failed = sum(row["status"] == "not ok" for row in runs[0].get("rows") or []) \
                if runs else 0
            cells.append("%d/%d" % (failed, len(runs[0].get("rows") or [])) if runs else "-")
        rows.append([label] + cells)
    return "\n".join(_grid([""] + [column[1] if len(tests) == 1 else "%s %s" % column
                                   for column in columns], rows))


def summary(results):
    """Returns (passed, failed, skipped), numbers of runs.

    A run with status SKIP is skipped, expected or not; of the others, those as
    expected have passed. A kernel that could not be built has no runs.
    """
    runs = results.get("runs", [])
    skipped = sum(run["status"] == "SKIP" for run in runs)
    passed = sum(bool(run.get("as_expected")) for run in runs if run["status"] != "SKIP")
    return passed, len(runs) - skipped - passed, skipped


def _fenced(text):
    # A fence longer than any in the text: a log may hold anything.
    fence = "`" * max([3] + [len(ticks) + 1 for ticks in re.findall("`{3,}", text)])
    return "%stext\n%s\n%s" % (fence, text, fence)


def _md_table(header, rows):
    rows = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return "\n".join("| %s |" % " | ".join(row)
                     for row in [header, ["---"] * len(header)] + rows)


def _unexpected(results):
    parts = ["- kernel %s: %s" % (kernel["name"], kernel["bad"])
             for kernel in results.get("kernels", []) if kernel.get("bad")]
    for run in results.get("runs", []):
        if run.get("as_expected"):
            continue
        parts.append("### %s: %s %s, run %s" % (
            run["kernel"], run["test"], run["lru"], run.get("n", 1)))
        facts = [("got", "%s: %s" % (run["status"], run.get("reason", ""))),
                 ("expected", run.get("expected")), ("why", run.get("why")),
                 ("log", run.get("log"))]
        parts.append("\n".join("- %s: %s" % fact for fact in facts if fact[1]))
        parts.append(_fenced("\n".join((run.get("tail") or ["(no log)"])[-TAIL_LINES:])))
    return parts or ["None."]


def markdown(results):
    """report.md of a run. Returns the text, with a newline at its end."""
    kernels = [[kernel["name"], kernel.get("desc", ""), kernel.get("objects", ""),
                kernel.get("seconds", ""), kernel.get("bad") or "built"]
               for kernel in results.get("kernels", [])]
    parts = [
        "# mm-reclaim: lab run %s" % results.get("run", "unknown"),
        "Reproduce: `%s`" % results.get("reproduce", "unknown"),
        "%d runs as expected, %d not, %d skipped." % summary(results),
        "## Provenance",
        _md_table(["What", "Value"], [[label, results.get(key) or "unknown"]
                                      for key, label in PROVENANCE]),
        "Counters, not clocks: all of this ran in QEMU (accelerator: %s) and was not measured on "
        "hardware. What is compared are counts of pages and events. Emulation cannot show "
        "cache and TLB misses, lock contention or device latency: no time in here is a result."
        % (results.get("accel") or "unknown"),
        "\n".join("- " + note for note in results.get("notes") or []),
        "## Kernels",
        _md_table(["Kernel", "What it is", "Objects built", "Build (s)", "State"], kernels),
        "## Matrix",
        _fenced(matrix(results)),
        "## Before and after",
        _fenced(table(results)),
        "## Unexpected results",
    ] + _unexpected(results)
    return "\n\n".join(part for part in parts if part) + "\n"
