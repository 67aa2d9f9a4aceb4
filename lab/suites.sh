#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs in the guest of `make suites`: upstream's own tests, as they are installed
# in /suites, on a disk with a file system and with swap, which they expect of a
# machine. What they print goes to the console as it is; between items is a line
#
#   MMLAB: suite begin|end|late SUITE ITEM [EXIT CODE]
#
# usage: suites.sh [-l classic|mglru] SUITE SECONDS EACH ITEM+ITEM...
#
# SUITE is mm, vm, cgroup, kunit or stress-ng. An item is a category of
# run_vmtests.sh, a program, or a stressor; none starts after SECONDS. No single
# test runs for longer than EACH seconds.

# No name here has a blank in it.
# shellcheck disable=SC2086,SC2046,SC2015
# shellcheck source=lab/guest.sh
. /tests/guest.sh
ln -sf /usr/bin/bash /bin/bash
echo -1000 > /proc/self/oom_score_adj
suite=$1
seconds=$2
each=$3
items=$(echo "$4" | tr + ' ')

# cannot TEXT: nothing was tested, and that is not a result
cannot()
{
	echo "MMLAB: cannot $1"
	exit 1
}

# bounded COMMAND...: with the group of its processes gone after EACH seconds, and
# what the OOM killer takes first when memory is out.
bounded()
{
	sh -c 'echo 0 > /proc/self/oom_score_adj; exec "$@"' sh \
		timeout -k 5 $each "$@" < /dev/null 2>&1
}

# runner FILE: run_vmtests.sh with a time-out for each test, as kselftest's runner
# has one, and without what comes with the series: that fails on the base.
runner()
{
	sed -i -e 's|("\$@" 2>&1)|(timeout -k 5 '$each' "$@" < /dev/null 2>\&1)|' \
		-e 's|^	"\$@"$|	timeout -k 5 '$each' "$@" < /dev/null|' \
		-e '/run_test \.\/\(anon_aging\|dirty_limit\|readonce\|swap_targets\|thp_deferred_split\)/d' \
		$1
	grep -q "timeout -k 5 $each" $1 || cannot "find where $1 starts a test"
	! grep -q "run_test ./anon_aging" $1 || cannot "take the series' own tests out of $1"
}

# one ITEM: run it
one()
{
	case $suite in
	mm)
		cd /mnt/mm && sh -c 'echo 0 > /proc/self/oom_score_adj; exec "$@"' sh \
			bash ./run_vmtests.sh -t $1 < /dev/null 2>&1 ;;
	vm)
		cd /mnt/vm && sh -c 'echo 0 > /proc/self/oom_score_adj; exec "$@"' sh \
			bash ./$1 < /dev/null 2>&1 ;;
	cgroup)
		cd /mnt || return
		# What two of them want to have been switched on.
		[ $1 != test_zswap ] || echo 1 > /sys/module/zswap/parameters/enabled
		[ $1 != test_hugetlb_memcg ] ||
			mount -o remount,memory_hugetlb_accounting -t cgroup2 cgroup2 /sys/fs/cgroup
		bounded ./cgroup/$1 ;;
	kunit)
		cat /sys/kernel/debug/kunit/$1/results ;;
	stress-ng)
		cd /mnt && bounded stress-ng --$1 1 --timeout 2 --metrics-brief --oomable \
			--temp-path /mnt --no-rand-seed ;;
	esac
	code=$?
	if [ $suite = cgroup ]; then
		echo 0 > /sys/module/zswap/parameters/enabled
		mount -o remount -t cgroup2 cgroup2 /sys/fs/cgroup
	fi
	# What those have not taken away that were killed.
	rm -rf /dev/shm/stress-ng-* /mnt/tmp-stress-ng-*
	return $code
}

select_lru
if [ $suite != kunit ]; then
	swap=$(disk t_swap 384)
	fs=$(disk t_fs 320)
	mkswap $swap > /dev/null && swapon $swap || cannot "swap on $swap"
	mkdir -p /mnt
	mkfs.ext4 -q -F $fs && mount -t ext4 $fs /mnt || cannot "mount $fs"
	# They run from a file system, whose pages reclaim can take; an initramfs has none of those.
	chmod 755 /mnt
	[ ! -d /suites ] || cp -a /suites/. /mnt/ || cannot "copy the tests to $fs"
	# on-fault-limit wants to be nobody.
	echo "root:x:0:0::/:/bin/sh" > /etc/passwd
	echo "nobody:x:65534:65534::/:/bin/sh" >> /etc/passwd
	mkdir -p /usr/bin
	# sudo -u nobody COMMAND is all that they say.
	printf '#!/bin/sh\nshift 2\nexec setuidgid nobody "$@"\n' > /usr/bin/sudo
	chmod 755 /usr/bin/sudo
fi
case $suite in
mm)
	runner /mnt/mm/run_vmtests.sh ;;
vm)
	runner /mnt/vm/run_vmtests.sh
	# Built and installed, but of no run: these have to do with huge pages and migration.
	{
		sed '/^# Usage: run_test/,/^}/!d' /mnt/vm/run_vmtests.sh
		echo 'run_test ./split_huge_page_test'
		echo 'run_test ./khugepaged'
		echo 'run_test ./transhuge-stress -d 20'
		echo 'run_test ./migration'
	} | sed '1iksft_skip=4' > /mnt/vm/more.sh
	grep -q "timeout -k 5 $each" /mnt/vm/more.sh || cannot "make more.sh" ;;
kunit)
	items=$(ls /sys/kernel/debug/kunit) || cannot "read the results of KUnit" ;;
stress-ng)
	[ "$items" != all ] || items=$(stress-ng --class 'vm?' 2>&1 | sed 's/.*: //')
	[ -n "$items" ] || cannot "list the stressors" ;;
esac
end=$(( $(date +%s) + seconds ))
for item in $items; do
	if [ $(date +%s) -ge $end ]; then
		echo "MMLAB: suite late $suite $item"
		continue
	fi
	start=$(date +%s)
	echo "MMLAB: suite begin $suite $item"
	one $item
	code=$?
	# A test may end without the end of its line.
	echo
	echo "MMLAB: suite end $suite $item $code $(( $(date +%s) - start ))"
done
exit 0
