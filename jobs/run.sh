#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# usage: run.sh [TEST...]
#
# Runs installed selftests with both kinds of LRU, as root. KSELFTEST_PATH is where they are
# installed (/opt/kselftests), KSELFTEST_TESTS the tests if none is given. In LAVA each row is
# reported as a test case. Exit code: 1 with a failure, 4 when all was skipped, else 0.

path=${KSELFTEST_PATH:-/opt/kselftests}
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
passed=0 failed=0 skipped=0

# TEST LRU ROW RESULT
report() {
	echo "$1 $2: $3: $4"
	command -v lava-test-case >/dev/null || return 0
	# Names of test cases have no spaces; those of rows do.
	name=$(printf '%s' "$1-$2-$3" | tr -cs 'A-Za-z0-9_.=\n-' _)
	lava-test-case "$name" --result "$4"
}

run() {
	for dir in "$path/mm" "$path/vm" "$path"; do
		[ -x "$dir/$1" ] && break
	done
	if [ ! -x "$dir/$1" ]; then
		echo "run.sh: $1 is not installed in $path" >&2
		report "$1" "$2" program fail
		failed=$((failed + 1))
		return
	fi
	# No pipe: the exit code is that of the test.
	(cd "$dir" && "./$1" -l "$2") >"$out" 2>&1
	code=$?
	cat "$out"
	while read -r line; do
		case $line in
		*'# SKIP'*) result=skip ;;
		'not ok '*) result=fail ;;
		'ok '*) result=pass ;;
		*) continue ;;
		esac
		row=$(printf '%s' "$line" | sed -n 's/^\(not \)\{0,1\}ok [0-9]* \(.*\)/\2/p')
		row=${row#"$2: "}
		[ -z "$row" ] || report "$1" "$2" "${row%%' # SKIP'*}" "$result"
	done <"$out"
	case $code in
	0) report "$1" "$2" program pass; passed=$((passed + 1)) ;;
	4) report "$1" "$2" program skip; skipped=$((skipped + 1)) ;;
	*) report "$1" "$2" program fail; failed=$((failed + 1)) ;;
	esac
}

# shellcheck disable=SC2086 # a list of names
[ $# -gt 0 ] || set -- $KSELFTEST_TESTS
for test; do
	for lru in classic mglru; do
		run "$test" "$lru"
	done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ] || exit 1
[ $passed -gt 0 ] || exit 4
