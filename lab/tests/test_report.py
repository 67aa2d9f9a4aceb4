# SPDX-License-Identifier: GPL-2.0
"""Tests of mmlab.report: matrix, before/after table, report.md."""
import copy
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from mmlab import report  # noqa: E402


def row(name, status="ok", **counters):
    return {"number": 1, "name": name, "status": status, "reason": "", "counters": counters}


def run(kernel, rows=(), status="PASS", good=True, test="anon_aging", lru="classic", n=1, **more):
    return dict({"kernel": kernel, "test": test, "lru": lru, "n": n, "status": status,
                 "reason": "", "expected": "PASS", "as_expected": good, "why": "",
                 "rows": list(rows), "seconds": 1.0, "wall": 2.0, "log": "logs/x.log",
                 "tail": []}, **more)


def results(*runs, kernels=("base", "patched")):
    return {"run": "20261130-101500", "reproduce": "make run BASE=mainline", "accel": "tcg",
            "version": "7.3~rc7-1~exp1", "config_hash": "c0ffee", "series_tree": "beef",
            "notes": ["a note"], "runs": list(runs),
            "kernels": [{"name": name, "desc": "d", "key": "k", "objects": 12, "seconds": 3.5,
                         "bad": ""} for name in kernels]}


def cells(text, first, header="kernel"):
    """{column: cell} of the line that starts with first."""
    lines = text.splitlines()
    head = next(line for line in lines if line.startswith(header))
    rule = lines[lines.index(head) + 1]
    line = next(line for line in lines if line.startswith(first))
    out, at = {}, 0
    for dashes in rule.split():
        out[head[at:at + len(dashes)].strip()] = line[at:at + len(dashes)].strip()
        at += len(dashes) + 2
    return out


class Matrix(unittest.TestCase):
    def test_cells(self):
        text = report.matrix(results(
            run("base", [row("a", "not ok"), row("b"), row("c")], "FAIL"),
            run("base", [row("a", "not ok"), row("b")], "FAIL", False, lru="mglru"),
            run("patched"), run("patched", status="SKIP", lru="mglru", good=False),
            run("mutant:x", good=False), run("mutant:x", status="CRASHED", good=False,
                                             lru="mglru")))
        self.assertEqual(cells(text, "base"), {
            "kernel": "base", "anon_aging classic": "FAIL 1/3 (expected)",
            "anon_aging mglru": "FAIL 1/2 !!"})
        self.assertEqual(list(cells(text, "patched").values()), ["patched", "pass", "skip !!"])
        self.assertEqual(list(cells(text, "mutant:x").values()),
                         ["mutant:x", "pass !!", "CRASHED !!"])

    def test_several_runs(self):
        text = report.matrix(results(run("base"), run("base", n=2),
                                     run("patched"), run("patched", n=2, status="HANG",
                                                         good=False)))
        self.assertEqual(cells(text, "base")["anon_aging classic"], "pass x2")
        self.assertEqual(cells(text, "patched")["anon_aging classic"], "pass x1, HANG !! x1")

    def test_kernel_without_runs(self):
        res = results(run("base"))
        self.assertEqual(cells(report.matrix(res), "patched")["anon_aging classic"], "-")
        res["kernels"][1]["bad"] = "does not build"
        self.assertEqual(cells(report.matrix(res), "patched")["anon_aging classic"],
                         "no kernel !!")

    def test_wide_is_split(self):
        runs = [run("base", test="test_number_%d" % i) for i in range(12)]
        runs.append(run("mutant:x", test="test_number_11"))
        text = report.matrix(results(*runs, kernels=("base", "mutant:x")))
        self.assertLessEqual(max(map(len, text.splitlines())), report.WIDTH)
        for i in range(12):
            self.assertEqual(text.count("test_number_%d classic" % i), 1)
        # In the one block that has its test only.
        self.assertEqual(text.count("mutant:x"), 1)

    def test_no_runs(self):
        self.assertEqual(report.matrix({}), "nothing was run")


class Table(unittest.TestCase):
    def lines(self, *runs):
        """Rows of the table as lists of cells."""
        text = report.table(results(*runs)).splitlines()
        rule = next(line for line in text if line.startswith("---"))
        start = text.index(rule)
        out = []
        for line in text[start + 1:]:
            if not line:
                break
            at, parts = 0, []
            for dashes in rule.split():
                parts.append(line[at:at + len(dashes)].strip())
                at += len(dashes) + 2
            out.append(parts)
        return out

    def test_verdicts(self):
        lines = self.lines(
            run("base", [row("fixed", "not ok", pgdeactivate=12160, active_anon=0),
                         row("control", pgrefill=10), row("broken", pgrefill=5),
                         row("still", "not ok", pgrefill=5)]),
            run("patched", [row("fixed", pgdeactivate=0, active_anon=64),
                            row("control", pgrefill=20), row("broken", "not ok", pgrefill=9),
                            row("still", "not ok", pgrefill=6)]))
        active = "Active pages scanned (pgrefill)"
        self.assertEqual(lines, [
            ["broken", active, "5", "9", "+4 (+80.0%)", "BROKEN, worse"],
            ["still", active, "5", "6", "+1 (+20.0%)", "still not ok, worse"],
            ["fixed", "Pages deactivated (pgdeactivate)", "12160", "0", "-12160 (-100.0%)",
             "fixed, better"],
            ["fixed", "active_anon", "0", "64", "+64", "fixed"],
            # Twice as much, but a control is not judged.
            ["control", active, "10", "20", "+10 (+100.0%)", "control"]])

    def test_worse_first(self):
        lines = self.lines(
            run("base", [row("a", "not ok", pgrefill=9, zzz=1, pswpin=0, x=1.5)]),
            run("patched", [row("a", pgrefill=9, zzz=1, pswpin=3, x=1.25)]))
        self.assertEqual([line[1:] for line in lines], [
            ["Swap Ins", "0", "3", "+3", "fixed, worse"],
            ["Active pages scanned (pgrefill)", "9", "9", "0", "fixed"],
            ["zzz", "1", "1", "0", "fixed"],
            ["x", "1.5", "1.25", "-0.25 (-16.7%)", "fixed"]])

    def test_broken_first(self):
        lines = self.lines(run("base", [row("a", "not ok", pswpin=1), row("b", x=1)]),
                           run("patched", [row("a", pswpin=2), row("b", "not ok", x=1)]))
        self.assertEqual([line[5] for line in lines], ["BROKEN", "fixed, worse"])

    def test_several_runs(self):
        base = [run("base", [row("a", "not ok", pgrefill=v, majflt=7)], n=i)
                for i, v in enumerate((100, 120, 110))]
        patched = [run("patched", [row("a", pgrefill=v, majflt=w)], n=i)
                   for i, (v, w) in enumerate(((10, 5), (12, 9)))]
        lines = self.lines(*base, *patched)
        self.assertEqual(lines[0][2:], ["100..120", "10..12", "-99 (-90.0%)", "fixed, better"])
        # The ranges overlap: neither better nor worse.
        self.assertEqual(lines[1][1:], ["Major Faults", "7", "5..9", "0", "fixed"])
        self.assertIn("anon_aging classic (base n=3, patched n=2)",
                      report.table(results(*base, *patched)))

    def test_flaky_row_is_not_fixed(self):
        base = [run("base", [row("a", "ok", x=1)]), run("base", [row("a", "not ok", x=1)], n=2)]
        patched = [run("patched", [row("a", x=1)])]
        self.assertEqual(self.lines(*base, *patched)[0][5], "not ok/ok -> ok")
        swapped = [dict(one, kernel="patched") for one in base]
        swapped.append(dict(patched[0], kernel="base"))
        self.assertEqual(self.lines(*swapped)[0][5], "BROKEN")

    def test_rows_on_one_side_only(self):
        lines = self.lines(
            run("base", [row("gone", x=1), row("was skipped: no zswap", "skip")]),
            run("patched", [row("was skipped", x=2), row("control without counters")]))
        self.assertEqual(lines, [
            ["gone", "x", "1", "-", "-", "ok -> missing"],
            ["was skipped", "x", "-", "2", "-", "skip -> ok"],
            ["control without counters", "-", "-", "-", "-", "missing -> ok"]])

    def test_rows_without_counters(self):
        lines = self.lines(run("base", [row("a", "not ok"), row("b")]),
                           run("patched", [row("a"), row("b")]))
        self.assertEqual(lines, [["a", "-", "-", "-", "-", "fixed"]])

    def test_nothing_to_compare(self):
        self.assertEqual(report.table(results()), "neither base nor patched was run")
        self.assertEqual(report.table(results(run("mutant:x"))),
                         "neither base nor patched was run")
        self.assertIn("not run on base", report.table(results(run("patched"))))
        self.assertIn("no counters", report.table(results(run("base"), run("patched"))))

    def test_directions_have_a_sign(self):
        self.assertLessEqual(set(report.DIRECTION.values()), {-1, 1})


class Markdown(unittest.TestCase):
    def setUp(self):
        tail = ["line %d" % i for i in range(25)] + ["```"]
        self.results = results(
            run("base", [row("a", "not ok", pgrefill=5)], "FAIL", expected="FAIL"),
            run("patched", [row("a", pgrefill=1)], "OOPS", False, reason="BUG: a|b",
                why="expected PASS", log="logs/patched.log", tail=tail))

    def test_content(self):
        text = report.markdown(self.results)
        for part in ("# mm-reclaim: lab run 20261130-101500", "`make run BASE=mainline`",
                     "1 runs as expected, 1 not, 0 skipped", "| Config hash | c0ffee |",
                     "| Series tree hash | beef |", "| Accelerator | tcg |",
                     "| Compiler | unknown |", "Counters, not clocks", "not measured on hardware",
                     "- a note", "| base | d | 12 | 3.5 | built |",
                     "### patched: anon_aging classic, run 1", "- got: OOPS: BUG: a|b",
                     "- why: expected PASS", "- log: logs/patched.log"):
            self.assertIn(part, text)
        self.assertIn(report.matrix(self.results), text)
        self.assertIn(report.table(self.results), text)
        self.assertNotIn("### base", text)
        self.assertTrue(text.endswith("\n"))

    def test_tail_is_short_and_stays_in_its_fence(self):
        text = report.markdown(self.results)
        self.assertNotIn("line 5\n", text)
        self.assertIn("line 6\nline 7\n", text.replace("````text\n", ""))
        self.assertIn("\n```\n````\n", text)

    def test_bad_kernel_is_unexpected(self):
        self.results["kernels"][1]["bad"] = "does | not build"
        text = report.markdown(self.results)
        self.assertIn("- kernel patched: does | not build", text)
        self.assertIn("| does \\| not build |", text)

    def test_nothing_unexpected(self):
        self.results["runs"].pop()
        self.assertTrue(report.markdown(self.results).endswith("## Unexpected results\n\nNone.\n"))

    def test_empty_and_input_unchanged(self):
        self.assertIn("nothing was run", report.markdown({}))
        before = copy.deepcopy(self.results)
        report.markdown(json.loads(json.dumps(self.results)))
        report.markdown(self.results)
        self.assertEqual(self.results, before)

    def test_summary(self):
        self.assertEqual(report.summary(self.results), (1, 1, 0))
        self.results["runs"] += [run("base", status="SKIP"), run("base", status="SKIP", good=False)]
        self.assertEqual(report.summary(self.results), (1, 1, 2))
        self.assertEqual(report.summary({}), (0, 0, 0))


if __name__ == "__main__":
    unittest.main()
