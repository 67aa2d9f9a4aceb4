#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs in the guest of `make loads`: one load, with what the kernel counted meanwhile.
#
# usage: loads.sh [-l classic|mglru] LOAD
#
#   readonce, readtwice  what the cases lru-file-readonce and lru-file-readtwice of
#                    vm-scalability do, at the size of a guest: 16 tasks read sparse
#                    files on XFS, 4 KiB at a time, each once, or twice at the same
#                    time; together they are twice as large as RAM. On one CPU kswapd
#                    would keep up with them, as it does not with 120 of them: it has
#                    the lowest priority meanwhile
#   mix              the same readers, each in a control group of its own, while a
#                    task goes through a third of RAM of tmpfs, with swap
#   fio, fio-group   a writer in order, one at random and one that calls fsync, on ext4
#                    on a disk of 1 ms; in no group, and in one of 96 MiB
#   madvise, mremap  so many operations of that stressor of stress-ng
#   madvise-rate, mremap-rate  how many it gets done, on all CPUs
#   thp-locks        huge pages that are faulted and freed, never split, and how often
#                    the lock of the deferred split queue is taken (CONFIG_LOCK_STAT)
#
# shellcheck disable=SC2015,SC2086,SC2046,SC2116
# shellcheck source=lab/guest.sh
. /tests/guest.sh
load=$1
cg=/sys/fs/cgroup
thp=/sys/kernel/mm/transparent_hugepage

# cannot TEXT: nothing was measured
cannot()
{
	echo "not ok 1 $lru: $load # cannot $1"
	exit 1
}

# counter NAME...: their sum in /proc/vmstat
counter()
{
	awk -v names="$*" 'BEGIN{split(names, list, " "); for (i in list) want[list[i]] = 1}
			   $1 in want{sum += $2} END{print sum + 0}' /proc/vmstat
}
# uptime in ms: virtual time, under icount
now()
{
	awk '{print int($1 * 1000)}' /proc/uptime
}
names="allocstall pgscan_direct pgsteal_direct pgscan_kswapd pgsteal_kswapd
       workingset_refault_file workingset_refault_anon pswpin pswpout pgmajfault thp_fault_alloc
       thp_split_page"
snap()
{
	for name in $names; do
		case $name in
		allocstall) counter allocstall_dma allocstall_dma32 allocstall_normal allocstall_movable ;;
		*) counter $name ;;
		esac
	done
	now
}

# files_up: a file system for sparse files, and those of $readers tasks
files_up()
{
	mkdir -p /tmp/back /mnt
	mount -t tmpfs -o size=400m,huge=never none /tmp/back
	truncate -s 1G /tmp/back/image
	loop=$(losetup -f)
	losetup $loop /tmp/back/image
	mkfs.xfs -q -f $loop && mount -t xfs $loop /mnt || cannot "make a file system"
	pages=$(awk '/^MemTotal/{print int($2 / 4)}' /proc/meminfo)
	readers=16
	kswapd=$(pidof kswapd0) && renice -n 19 -p $kswapd || cannot "renice kswapd"
	each=$(( 2 * pages / readers ))
	n=0
	while [ $n -lt $readers ]; do
		n=$((n + 1))
		truncate -s $(( each * 4096 )) /mnt/sparse-$n
	done
}

files_down()
{
	renice -n -19 -p $kswapd
	umount /mnt
	losetup -d $loop
	umount /tmp/back
	rmdir /tmp/back
}

# read_files TIMES [GROUP]: all readers, with what they do in groups GROUP1...
read_files()
{
	pids=
	n=0
	while [ $n -lt $readers ]; do
		n=$((n + 1))
		t=0
		while [ $t -lt $1 ]; do
			t=$((t + 1))
			(
				[ -z "$2" ] || sh -c "echo \$PPID > $cg/$2$n/cgroup.procs"
				exec dd if=/mnt/sparse-$n of=/dev/null bs=4k 2> /dev/null
			) &
			pids="$pids $!"
		done
	done
	more="read=$(( each * readers * $1 ))"
}

# all_of PID...: whether they all went well
all_of()
{
	bad=0
	for pid in "$@"; do
		wait $pid || bad=1
	done
	return $bad
}

# stressor NAME ARGS...: stress-ng, and of it the metric MORE, or only that it ran
stressor()
{
	name=$1
	shift
	stress-ng --no-rand-seed --temp-path /tmp --metrics --yaml /tmp/yaml "$@" > /tmp/out 2>&1
	code=$?
	more="ops=$(awk '/bogo-ops:/{print $2; exit}' /tmp/yaml)"
	rate=$(awk '/bogo-ops-per-second-real-time:/{print int($2 * 100)}' /tmp/yaml)
	rm -f /tmp/yaml
	[ $code = 0 ] && [ "$more" != ops= ]
}

# locks: how often locks of the kind that the queue has were taken
locks()
{
	awk '/&l->lock|split_queue_lock/ && !/\[</{
		for (i = 2; i <= NF; i++) if ($i ~ /^[0-9.]+$/) { sum += $(i + 7); break }
	} END{print sum + 0}' /proc/lock_stat
}

# faults N: N processes that fault 64 MiB and are gone
faults()
{
	n=0
	while [ $n -lt $1 ]; do
		n=$((n + 1))
		dd if=/dev/zero of=/dev/null bs=64M count=1 2> /dev/null
	done
}

echo "TAP version 13"
echo "1..1"
select_lru
case $load in
readonce | readtwice | mix)
	files_up ;;
fio | fio-group)
	node=$(disk t_fio 512 1000000)
	mkdir -p /mnt
	mkfs.ext4 -q $node && mount -t ext4 $node /mnt || cannot "make a file system" ;;
esac
case $load in
mix)
	swap=$(disk t_swap 384)
	mkswap $swap > /dev/null && swapon $swap || cannot "swap"
	echo "+memory" > $cg/cgroup.subtree_control || cannot "have groups"
	n=0
	while [ $n -lt $readers ]; do
		n=$((n + 1))
		mkdir $cg/r$n
	done
	mkdir $cg/anon
	mkdir -p /anon
	mount -t tmpfs -o size=400m,huge=never none /anon
	sh -c "echo 0 > $cg/anon/cgroup.procs
	       exec dd if=/dev/zero of=/anon/file bs=4k count=$((pages / 3)) 2> /dev/null" ||
		cannot "write to tmpfs" ;;
fio-group)
	echo "+memory +io" > $cg/cgroup.subtree_control
	mkdir $cg/fio && echo 96M > $cg/fio/memory.max || cannot "have groups" ;;
thp-locks)
	[ -e /proc/lock_stat ] || cannot "find /proc/lock_stat"
	old_thp=$(sed 's/.*\[\(.*\)\].*/\1/' $thp/enabled)
	# What takes such locks whether there are huge pages or not.
	echo never > $thp/enabled
	echo 1 > /proc/sys/kernel/lock_stat
	faults 2
	echo 0 > /proc/lock_stat
	faults 64
	others=$(locks)
	echo always > $thp/enabled
	faults 2
	echo 0 > /proc/lock_stat
	huge=$(counter thp_fault_alloc) ;;
esac

before=$(snap)
more=
ok=1
case $load in
readonce)
	read_files 1
	all_of $pids || ok=0 ;;
readtwice)
	read_files 2
	all_of $pids || ok=0 ;;
mix)
	read_files 1 r
	# More rounds than the readers take: so many that both end about together.
	sh -c "echo 0 > $cg/anon/cgroup.procs
	       for i in 1 2 3 4 5 6; do dd if=/anon/file of=/dev/null bs=4k 2> /dev/null || exit 1; done" &
	pids="$pids $!"
	all_of $pids || ok=0 ;;
fio | fio-group)
	group=
	[ $load = fio ] || group="echo 0 > $cg/fio/cgroup.procs;"
	sh -c "$group exec fio --output-format=terse --terse-version=3 --output=/tmp/out \
		--directory=/mnt --time_based --runtime=12 --ioengine=psync --size=48m --fallocate=none \
		--name=order --rw=write --bs=64k --name=random --rw=randwrite --bs=4k \
		--name=fsync --rw=write --bs=4k --fsync=8" > /dev/null 2>&1 || ok=0
	start=$(now)
	sync
	more=$(awk -F';' '$1 == 3{
		p99 = 0
		for (i = 59; i <= 78; i++)
			if (split($i, part, "%=") == 2 && part[1] == 99) p99 = part[2]
		printf " %s_kbs=%d %s_p99us=%d %s_maxus=%d", $3, $48, $3, p99, $3, $56
	}' /tmp/out)
	more="$more sync_after=$(( $(now) - start ))"
	[ "$(echo $more | wc -w)" = 10 ] || ok=0 ;;
madvise)
	stressor madvise --madvise 1 --madvise-ops 40 || ok=0 ;;
mremap)
	stressor mremap --mremap 1 --mremap-ops 40 || ok=0 ;;
madvise-rate | mremap-rate)
	stressor ${load%-rate} --${load%-rate} 2 --timeout 10 || ok=0
	# Of a hundredth of an operation each.
	more="ops_100s=$rate" ;;
thp-locks)
	faults 64
	taken=$(( $(locks) - others ))
	huge=$(( $(counter thp_fault_alloc) - huge ))
	[ $huge -gt 1000 ] || ok=0
	more="locks_taken=$taken locks_per_1000=$(( taken * 1000 / (huge + 1) ))" ;;
*)
	cannot "find that load" ;;
esac
after=$(snap)
[ $ok = 1 ] || tail -3 /tmp/out 2> /dev/null | sed 's/^/# /'
rm -f /tmp/out

case $load in
readonce | readtwice)
	files_down ;;
mix)
	umount /anon
	files_down
	swapoff $swap
	no_disk t_swap
	rmdir $cg/anon $cg/r*
	echo "-memory" > $cg/cgroup.subtree_control ;;
fio | fio-group)
	umount /mnt
	no_disk t_fio
	[ $load = fio ] || { rmdir $cg/fio; echo "-memory -io" > $cg/cgroup.subtree_control; } ;;
thp-locks)
	echo 0 > /proc/sys/kernel/lock_stat
	echo $old_thp > $thp/enabled ;;
esac
restore_lru
line=$(echo $before $after | awk -v names="$(echo $names) ms" '{
	n = split(names, name, " ")
	for (i = 1; i <= n; i++)
		printf " %s=%d", name[i], $(i + n) - $i
}')
echo "# counters[$load]: $more$line"
[ $ok = 1 ] && echo "ok 1 $lru: $load" || echo "not ok 1 $lru: $load"
[ $ok = 1 ]
