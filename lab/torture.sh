#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs in the guest of `make torture`: everything at once that reclaim has to get
# along with, for a bounded time, on a kernel that checks itself. What the
# kernel finds is in its log; the rows here are about contents and leftovers.
#
# usage: torture.sh [-l classic|mglru] SECONDS
#
# Each row gets an equal part of SECONDS. Contents are verified by the programs
# that wrote them (stress-ng --verify, fio --verify); a row whose program
# could not start is "not ok", as nothing was checked.

# No name here has a blank in it.
# shellcheck disable=SC2086,SC2046
# shellcheck source=lab/guest.sh
. /tests/guest.sh
# This shell is not what has to go.
echo -1000 > /proc/self/oom_score_adj
part=$(( ${1:-600} / 6 ))

cg=/sys/fs/cgroup
fault=/sys/kernel/debug
rows=0
failed=0

# result NAME 0|1: one row
result()
{
	rows=$((rows + 1))
	if [ "$2" = 0 ]; then
		echo "ok $rows $lru: $1"
	else
		echo "not ok $rows $lru: $1"
		failed=1
	fi
}

# group NAME BYTES: a group with a limit
group()
{
	mkdir -p $cg/$1
	echo $2 > $cg/$1/memory.max
}

# within NAME COMMAND...: runs it in a group
within()
{
	name=$1
	shift
	sh -c "echo 0 > $cg/$name/cgroup.procs; echo 0 > /proc/self/oom_score_adj
	       exec \"\$@\"" sh "$@"
}

# verified FILE: whether stress-ng ran, and no stressor found what it had not written.
# Its exit code says more: stressors that lack something or run out of memory.
# A counter of one that the OOM killer ended is not a content, nor is ENOSYS.
verified()
{
	grep -a "successful run\|run completed" "$1" | tail -1 | sed 's/^/# /'
	# What those have not taken away that were killed.
	rm -rf /dev/shm/stress-ng-* /mnt/tmp-stress-ng-*
	grep -aq "run completed" "$1" || { echo "# stress-ng did not come to its end"; return 1; }
	! grep -aE "fail:" "$1" | grep -avE "bogo-ops|metrics-check|errno=38" | sed 's/^/# /' | grep .
}

# lines of fio that say what is wrong
say()
{
	grep -aE "fail|error|verify|bad|unexpected" "$1" | tail -5 | sed 's/^/# /'
}

# The background: swap devices that come and go, groups likewise, limits that move.
# The program of util-linux: that of busybox takes no priority.
churn_swap()
{
	while [ ! -e /tmp/stop ]; do
		/usr/bin/swapon -p 5 "$1" 2>/dev/null
		sleep 2
		swapoff "$1" 2>/dev/null
		sleep 1
	done
}

churn_groups()
{
	n=0
	while [ ! -e /tmp/stop ]; do
		n=$((n + 1))
		mkdir $cg/churn$n
		echo 24M > $cg/churn$n/memory.max
		sh -c "echo 0 > $cg/churn$n/cgroup.procs
		       dd if=/dev/zero of=/mnt/churn$n bs=64k count=256 2>/dev/null
		       head -c 16m /dev/zero | tail -c 1 >/dev/null; rm -f /mnt/churn$n" 2>/dev/null
		rmdir $cg/churn$n
	done
}

churn_limits()
{
	while [ ! -e /tmp/stop ]; do
		for limit in 64M 200M 40M 256M; do
			echo $limit > $cg/load/memory.max 2>/dev/null
			echo 8M > $cg/load/memory.reclaim 2>/dev/null
			sleep 1
		done
	done
}

# Settings that it changes, to be put back: what is left over is a leak.
settings="/proc/sys/vm/min_free_kbytes /sys/kernel/mm/lru_gen/enabled
	  /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/kernel/hung_task_timeout_secs"
for file in $settings; do
	[ -e $file ] && eval "old_$(echo $file | tr -c 'a-z_\n' _)=\"\$(sed 's/.*\[\(.*\)\].*/\1/' $file)\""
done

echo "TAP version 13"
echo "1..6"
select_lru
echo always > /sys/kernel/mm/transparent_hugepage/enabled
echo "+memory +io" > $cg/cgroup.subtree_control
# They are in memory, all of them; XFS wants 300 MiB.
ssd=$(disk t_ssd 128)
hdd=$(disk t_hdd 128)
come=$(disk t_come 64)
fs=$(disk t_fs 320)
echo 1 > /sys/block/${hdd#/dev/}/queue/rotational
echo 0 > /sys/block/${ssd#/dev/}/queue/rotational
mkswap $ssd > /dev/null
mkswap $hdd > /dev/null
mkswap $come > /dev/null
/usr/bin/swapon -p 5 $ssd && /usr/bin/swapon -p 5 $hdd || echo "# no swap"
mkfs.xfs -q -f $fs && mkdir -p /mnt && mount -t xfs $fs /mnt || echo "# no file system"
group load 256M
(churn_swap $come) & swap_pid=$!
(churn_groups) & groups_pid=$!
(churn_limits) & limits_pid=$!

# 1: the vm class of stress-ng, one after the other
count=$(stress-ng --class 'vm?' 2>&1 | sed 's/.*: //' | wc -w)
[ "$count" -gt 0 ] || count=50
within load stress-ng --class vm --sequential 2 --timeout $(( part / count > 1 ? part / count : 1 )) \
	--verify --oomable --temp-path /mnt --no-rand-seed > /tmp/out 2>&1
verified /tmp/out
result "stress-ng --class vm: no stressor fails or finds other contents than it wrote" $?

# 2: huge pages, mapped, split, moved, and collapsed again
within load stress-ng --madvise 2 --mremap 2 --fork 1 --bigheap 1 --bigheap-growth 64k \
	--vm 2 --vm-bytes 160M --vm-keep --mmap 1 --mmap-bytes 64M --timeout $part --verify --oomable \
	--temp-path /mnt > /tmp/out 2>&1
verified /tmp/out
result "stress-ng --madvise --mremap --vm --mmap: contents are what was written" $?

# 3: files written and read back by checksum, in a group at its limit
within load fio --name=mixed --directory=/mnt --size=96m --numjobs=2 --rw=randrw --bs=4k \
	--ioengine=psync --verify=crc32c --verify_fatal=1 --time_based --runtime=$part \
	--fsync=64 --group_reporting --output=/tmp/out > /dev/null 2>&1
code=$?
[ $code = 0 ] || say /tmp/out
grep -q "IO=\|io=" /tmp/out || code=1
rm -f /mnt/mixed* /mnt/mapped*
result "fio randrw in a group: checksums are right" $code

# 4: the same for a mapping, which dirties without writing
within load fio --name=mapped --directory=/mnt --size=96m --numjobs=2 --rw=randwrite --bs=4k \
	--ioengine=mmap --verify=crc32c --verify_fatal=1 --time_based --runtime=$part \
	--group_reporting --output=/tmp/out > /dev/null 2>&1
code=$?
[ $code = 0 ] || say /tmp/out
grep -q "IO=\|io=" /tmp/out || code=1
rm -f /mnt/mixed* /mnt/mapped*
result "fio on a mapping in a group: checksums are right" $code

# 5: allocations that fail, in tasks of the group only
if [ -d $fault/failslab ] && [ -d $fault/fail_page_alloc ]; then
	for kind in failslab fail_page_alloc; do
		echo Y > $fault/$kind/task-filter
		echo 5 > $fault/$kind/probability
		echo 50 > $fault/$kind/interval
		echo -1 > $fault/$kind/times
		echo 0 > $fault/$kind/verbose
	done
	echo N > $fault/failslab/ignore-gfp-wait 2>/dev/null
	echo N > $fault/fail_page_alloc/ignore-gfp-wait 2>/dev/null
	echo 0 > $fault/fail_page_alloc/min-order
	end=$(( $(date +%s) + part ))
	n=0
	while [ $(date +%s) -lt $end ]; do
		# They may fail, and the kernel may not. What they write is not verified.
		sh -c "echo 0 > $cg/load/cgroup.procs; echo 1 > /proc/self/make-it-fail
		       exec stress-ng --vm 2 --vm-bytes 200M --madvise 1 --mmap 1 --timeout 5 \
			--oomable --temp-path /mnt" > /tmp/out 2>&1
		n=$((n + 1))
	done
	for kind in failslab fail_page_alloc; do
		echo 0 > $fault/$kind/probability
	done
	echo "# $n times 5 s with injected faults"
	result "allocations that fail: the kernel does not" $([ $n -gt 0 ] && echo 0 || echo 1)
else
	echo "# no failslab, no fail_page_alloc in this kernel"
	result "allocations that fail: the kernel does not # SKIP no CONFIG_FAILSLAB" 0
fi

# 6: nothing is left over
touch /tmp/stop
wait $swap_pid $groups_pid $limits_pid
find /mnt -mindepth 1 -maxdepth 1 -exec rm -rf {} +
sync
bad=0
end=$(( $(date +%s) + 60 ))
while :; do
	rmdir $cg/load 2>/dev/null
	dirty=$(awk '/^nr_dirty |^nr_writeback /{n += $2} END{print n}' /proc/vmstat)
	used=$(awk 'NR > 1{n += $4} END{print n + 0}' /proc/swaps)	# KiB
	# What is left in swap are pages of this shell and of init.
	[ ! -d $cg/load ] && [ $dirty -lt 64 ] && [ $used -lt 1024 ] && break
	[ $(date +%s) -ge $end ] && { bad=1; break; }
	echo 3 > /proc/sys/vm/drop_caches
	sleep 1
done
echo "# counters[left]: dirty=$dirty swap_kb=$used"
swapoff $ssd || bad=1
swapoff $hdd || bad=1
umount /mnt || bad=1
for d in t_ssd t_hdd t_come t_fs; do
	no_disk $d || bad=1
done
# Groups that are gone and still charged: they go with the last reference.
end=$(( $(date +%s) + 60 ))
while :; do
	dying=$(awk '/^nr_dying_descendants /{print $2}' $cg/cgroup.stat)
	[ "$dying" = 0 ] && break
	[ $(date +%s) -ge $end ] && { bad=1; break; }
	echo 3 > /proc/sys/vm/drop_caches
	sleep 1
done
echo "# counters[groups]: dying=$dying"
echo "-memory -io" > $cg/cgroup.subtree_control
for file in $settings; do
	[ -e $file ] && eval "echo \"\$old_$(echo $file | tr -c 'a-z_\n' _)\"" > $file
done
rm -f /tmp/out /tmp/stop
result "nothing is left: groups, swap entries, dirty pages" $bad
exit $failed
