# SPDX-License-Identifier: GPL-2.0
# make run     fetch, build, boot base, patched and mutant kernels, print the table
# make field   the tests on kernels as Debian built them
# make check   the project's tests
# make report  base against patched with statistics, as report.md and report.html
# make profile calls of kernel functions, base against patched
# make send    the mails of one topic, as files; make jobs the tests as jobs for bigger machines
# make matrix  what the series touches, compiled in many configurations
# README.md says more.

export BASE TESTS LRU MODE TREE CPUS RUNS MUTANTS RESULTS FROM FLAVOUR MINUTES MUTANT
export CONFIGS WITH BOOT
export TOPIC VERSION CHANGES AFTER ASSISTED DISCLOSE KERNELS SUITES LOADS

PY := PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=lab python3

help:
	@sed -n '/^## Commands/,/^## /p' README.md | sed '1d;$$d'

run check report profile suites torture bisect prefixes loads matrix refresh deps send jobs field: python
	@$(PY) -m mmlab $@

# Everything else is installed by the lab itself.
python:
	@command -v python3 >/dev/null || { \
		if [ "$$(id -u)" = 0 ]; then \
			apt-get install -y --no-install-recommends python3 || \
			{ apt-get update && apt-get install -y --no-install-recommends python3; }; \
		else \
			echo "error: missing: python3: as root: apt-get install -y python3" >&2; exit 2; \
		fi; }

clean:
	rm -rf results out
	$(MAKE) -C selftests clean

.PHONY: help run check report field profile suites torture bisect prefixes loads matrix refresh deps send jobs python clean
