#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs in the guest of `make lru-file`: what the cases lru-file-readonce and
# lru-file-readtwice of vm-scalability do, at the size of a guest. READERS tasks
# read sparse files on XFS, 4 KiB at a time, TIMES each at the same time; together
# the files are twice as large as RAM.
#
# usage: lru-file.sh [-l classic|mglru] READERS TIMES
#
# shellcheck disable=SC2015,SC2086,SC2046
/bin/busybox --install -s /bin
lru=classic
[ "$1" = -l ] && { lru=$2; shift 2; }
readers=$1
times=$2
case $times in 1) case=readonce ;; *) case=readtwice ;; esac

gen=/sys/kernel/mm/lru_gen/enabled
if [ -e $gen ]; then
	old=$(cat $gen)
	[ $lru = mglru ] && echo 7 > $gen || echo 0 > $gen
fi
echo "TAP version 13"
echo "1..1"
mkdir -p /tmp/back /mnt
mount -t tmpfs -o size=400m,huge=never none /tmp/back
truncate -s 1G /tmp/back/image
loop=$(losetup -f)
losetup $loop /tmp/back/image
mkfs.xfs -q -f $loop && mount -t xfs $loop /mnt || {
	echo "not ok 1 $lru: lru-file-$case, $readers readers # no file system"
	exit 1
}
pages=$(awk '/^MemTotal/{print int($2 / 4)}' /proc/meminfo)
each=$(( 2 * pages / readers ))
n=0
while [ $n -lt $readers ]; do
	n=$((n + 1))
	truncate -s $(( each * 4096 )) /mnt/sparse-$n
done

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
names="allocstall pgscan_direct pgsteal_direct pgscan_kswapd pgsteal_kswapd refault"
snap()
{
	echo $(counter allocstall_dma allocstall_dma32 allocstall_normal allocstall_movable) \
		$(counter pgscan_direct) $(counter pgsteal_direct) $(counter pgscan_kswapd) \
		$(counter pgsteal_kswapd) $(counter workingset_refault_file) $(now)
}
before=$(snap)
pids=
n=0
while [ $n -lt $readers ]; do
	n=$((n + 1))
	t=0
	while [ $t -lt $times ]; do
		t=$((t + 1))
		dd if=/mnt/sparse-$n of=/dev/null bs=4k 2> /dev/null &
		pids="$pids $!"
	done
done
bad=0
for pid in $pids; do
	wait $pid || bad=1
done
after=$(snap)
umount /mnt
losetup -d $loop
umount /tmp/back
rmdir /tmp/back
[ ! -e $gen ] || echo $old > $gen
line=$(echo "$before $after" | awk -v names="$names ms" '{
	n = split(names, name, " ")
	for (i = 1; i <= n; i++)
		printf " %s=%d", name[i], $(i + n) - $i
}')
echo "# counters[lru-file-$case, $readers readers]: read=$(( each * readers * times ))$line"
[ $bad = 0 ] && echo "ok 1 $lru: lru-file-$case, $readers readers" ||
	echo "not ok 1 $lru: lru-file-$case, $readers readers # a reader failed"
exit $bad
