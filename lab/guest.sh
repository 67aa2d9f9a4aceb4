# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh disable=SC2034,SC2086,SC2046
#
# What the scripts share that run in a guest: sourced first, with their arguments.
# Afterwards $lru is the kind of LRU, and the kernel's is that one.
/bin/busybox --install -s /bin
lru=classic
[ "$1" = -l ] && { lru=$2; shift 2; }
nullb=/sys/kernel/config/nullb
gen=/sys/kernel/mm/lru_gen/enabled
old_gen=

# select_lru: the kind of LRU that was asked for
select_lru()
{
	[ -e $gen ] || return 0
	old_gen=$(cat $gen)
	if [ $lru = mglru ]; then echo 7 > $gen; else echo 0 > $gen; fi
}

# restore_lru: the kind that it was
restore_lru()
{
	[ -z "$old_gen" ] || echo $old_gen > $gen
}

# disk NAME MIB [NS]: a memory-backed null_blk, which takes that long for a request;
# prints its node
disk()
{
	mkdir $nullb/$1
	echo $2 > $nullb/$1/size
	echo 4096 > $nullb/$1/blocksize
	echo 1 > $nullb/$1/memory_backed
	[ -z "$3" ] || { echo 2 > $nullb/$1/irqmode; echo $3 > $nullb/$1/completion_nsec; }
	echo 1 > $nullb/$1/power
	if [ -e /dev/$1 ]; then echo /dev/$1; else echo /dev/nullb$(cat $nullb/$1/index); fi
}

# no_disk NAME: it is gone
no_disk()
{
	echo 0 > $nullb/$1/power
	rmdir $nullb/$1
}
