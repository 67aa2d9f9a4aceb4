# SPDX-License-Identifier: GPL-2.0
"""make jobs: the YAML that is written, what is in it, and jobs/run.sh with programs that stand in."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from mmlab import bases, jobs, ui  # noqa: E402
from helpers import script  # noqa: E402


class Yaml(unittest.TestCase):
    def test_round_trip(self):
        data = {"a": 1, "b": None, "c": "yes", "d": 'with "quotes": # and marks', "e": True,
                "f": ["x", "1", {"g": ["h"], "i": {"j": "k"}}, "-l"], "l": {"m": {"n": "o p"}},
                "q": "2G", "r": "s.t/u", "v": "", "w": "back\\slash", "x.y+": "z"}
        self.assertEqual(jobs.parse("\n".join(jobs.dump(data)) + "\n"), [data])

    def test_documents(self):
        text = jobs._file(["why"], {"a": 1}, {"b": [2]})
        self.assertEqual(jobs.parse(text), [{"a": 1}, {"b": [2]}])

    def test_bad(self):
        for text in ("a: 1\na: 2\n", "a:\n  - b\n c: d\n", "a: [b]\n", "a\n", "a: b: c\n",
                     "- a\nb: c\n", "a: 1\n   b: 2\n", "a: {b: c}\n", 'a: "b\n'):
            with self.subTest(text=text), self.assertRaises(ValueError):
                jobs.parse(text)

    def test_same_as_pyyaml(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("PyYAML is not installed")
        for name, text in jobs.generate().items():
            if name.endswith(".yaml"):
                self.assertEqual(jobs.parse(text), list(yaml.safe_load_all(text)), name)


class Files(unittest.TestCase):
    def test_each_test_is_in_each_format(self):
        files = jobs.generate()
        for test in bases.load_tests().values():
            listed = [name for part in jobs.parse(files["lkp/mm-reclaim.yaml"])
                      for name in part["kselftests"]["test"]]
            self.assertEqual(listed.count(test.name), 1)
            for lru in jobs.LRUS:
                self.assertIn(f'\nboot {test.name} {lru} "{test.cmdline}" ', files["tuxrun.sh"])
            self.assertIn(f" {test.name} ", files["mmtests/config-mm-reclaim"].replace('"', " "))
            job, = jobs.parse(files[f"lava/{test.name}.job.yaml"])
            deploy, _, run = (list(action.values())[0] for action in job["actions"])
            self.assertIn(test.cmdline, deploy["images"]["kernel"]["image_arg"])
            self.assertEqual(run["definitions"][0]["path"], f"jobs/lava/{test.name}.yaml")
            self.assertGreaterEqual(job["context"]["memory"], test.memory)

    def test_kernel_options(self):
        found = jobs.config(bases.pick_bases("mainline")[0])
        self.assertEqual((found["MEMCG"], found["BLK_DEV_NULL_BLK"]), ("y", "m"))

    def test_command_lines_come_last(self):
        base = bases.pick_bases("mainline")[0]
        tests = [mock.Mock(cmdline=c, cpus=2) for c in ("b", "", "a")]
        for test, name in zip(tests, "xyz"):
            test.name = name
        parts = jobs.parse(jobs.lkp(tests, base))
        self.assertEqual([part.get("kernel_cmdline") for part in parts], [None, "a", "b"])

    def test_stale(self):
        with tempfile.TemporaryDirectory() as tmp, mock.patch.object(jobs, "JOBS", Path(tmp)), \
                mock.patch.object(jobs, "say"):
            self.assertEqual(jobs.stale(), sorted(jobs.generate()))
            jobs.main()
            self.assertEqual(jobs.stale(), [])
            (Path(tmp) / "tuxrun.sh").write_text("other")
            (Path(tmp) / "lava/old.yaml").write_text("a: 1\n")
            self.assertEqual(jobs.stale(), ["lava/old.yaml", "tuxrun.sh"])
            jobs.main()
            self.assertEqual(jobs.stale(), [])

    def test_yaml_is_checked_before_it_is_written(self):
        with tempfile.TemporaryDirectory() as tmp, mock.patch.object(jobs, "JOBS", Path(tmp)), \
                mock.patch.object(jobs, "generate", lambda: {"a.yaml": "a\n"}):
            with self.assertRaisesRegex(ui.LabError, "jobs/a.yaml: "):
                jobs.main()
            self.assertEqual(os.listdir(tmp), [])


@unittest.skipUnless(shutil.which("sed"), "sed is not installed")
class Run(unittest.TestCase):
    def setUp(self):
        self.tmp = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.tmp)
        script(self.tmp / "bin/lava-test-case", 'echo "$*" >> "$dir/cases"')
        self.program("good", "printf '%s\\n' 'TAP version 13' 1..1 \"ok 1 $2: a: row\"")
        self.program("bad", "printf '%s\\n' 1..3 \"not ok 1 $2: x\" 'ok 2 y # SKIP no z'; exit 1")
        self.program("skip", "echo '1..0 # SKIP not root'; exit 4")

    def program(self, name, text):
        script(self.tmp / "kst/mm" / name, text)

    def run_sh(self, *names, **env):
        """jobs/run.sh: exit code, last line, and the test cases that LAVA was told."""
        done = subprocess.run(
            ["sh", str(bases.ROOT / "jobs/run.sh"), *names], capture_output=True, text=True,
            check=False, env={"PATH": f"{self.tmp}/bin:{os.environ['PATH']}",
                              "KSELFTEST_PATH": str(self.tmp / "kst"), **env})
        cases = self.tmp / "bin/cases"
        told = cases.read_text().splitlines() if cases.exists() else []
        cases.unlink(missing_ok=True)
        return done.returncode, done.stdout.splitlines()[-1], told

    def test_good(self):
        self.assertEqual(self.run_sh("good"), (0, "2 passed, 0 failed, 0 skipped", [
            f"good-{lru}-{row} --result pass" for lru in jobs.LRUS for row in ("a_row", "program")]))

    def test_bad(self):
        code, last, told = self.run_sh("good", "bad", "skip")
        self.assertEqual((code, last), (1, "2 passed, 2 failed, 2 skipped"))
        self.assertIn("bad-classic-x --result fail", told)
        self.assertIn("bad-mglru-y --result skip", told)
        self.assertIn("skip-mglru-program --result skip", told)

    def test_all_skipped(self):
        self.assertEqual(self.run_sh("skip")[:2], (4, "0 passed, 0 failed, 2 skipped"))

    def test_not_installed(self):
        self.assertEqual(self.run_sh("none")[0], 1)

    def test_from_the_environment(self):
        self.assertEqual(self.run_sh(KSELFTEST_TESTS="good skip")[:2],
                         (0, "2 passed, 0 failed, 2 skipped"))

    def test_nothing_to_run(self):
        self.assertEqual(self.run_sh()[0], 4)


if __name__ == "__main__":
    unittest.main()
