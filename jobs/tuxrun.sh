#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Made by "make jobs" from lab/tests.conf: not to be edited.
# usage: KERNEL=URL KSELFTEST=URL [ROOTFS=URL] jobs/tuxrun.sh [option of tuxrun...]
#
# KERNEL is a bzImage, KSELFTEST the tarball of
# make -C tools/testing/selftests TARGETS=mm gen_tar: both as URL, or file:///path.
# A test that skips all counts as failed here; its log says why.
set -eu
: "${KERNEL:?}" "${KSELFTEST:?}"
code=0

# name, kind of LRU, kernel parameters, minutes; then options of tuxrun
boot() {
	name=$1 lru=$2 args=$3 minutes=$4
	shift 4
	tuxrun --device qemu-x86_64 --kernel "$KERNEL" ${ROOTFS:+--rootfs "$ROOTFS"} \
		--overlay "$KSELFTEST" /opt/kselftests \
		${args:+--boot-args "$args"} --timeouts commands="$minutes" \
		--parameters command-name="$name-$lru" "$@" \
		-- "/opt/kselftests/mm/$name -l $lru" || code=1
}

boot anon_aging classic "" 7 "$@"
boot anon_aging mglru "" 7 "$@"
boot swap_targets classic "" 9 "$@"
boot swap_targets mglru "" 9 "$@"
boot dirty_limit classic "" 9 "$@"
boot dirty_limit mglru "" 9 "$@"
boot thp_deferred_split classic "numa=fake=2" 11 "$@"
boot thp_deferred_split mglru "numa=fake=2" 11 "$@"
boot readonce classic "" 11 "$@"
boot readonce mglru "" 11 "$@"
exit $code
