# SPDX-License-Identifier: GPL-2.0
"""Boot a kernel in QEMU for one test, with the serial console as the result."""

import contextlib
import fcntl
import os
import platform
import re
import subprocess
import tempfile
import time
from pathlib import Path

from . import cache, ktap
from .ui import LabError, popen, reap, run, say

# The machine type is part of a result: pinned, so that a newer QEMU gives the same machine.
MACHINE = 'pc-q35-7.2'

# A guest that goes wrong ends, and has no device but those that a test makes.
QUIET = ['loglevel=5', 'panic=-1', 'panic_on_warn=1', 'oops=panic', 'null_blk.nr_devices=0']

# A guest under load may print nothing for long; the time-out of the test counts.
BOOT_SECONDS = 30

TSC_SOURCE = r'''
#include <stdio.h>
#include <time.h>
/* What QEMU's TCG hands the guest as its time stamp counter. */
static unsigned long long ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	unsigned long long v;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r" (v));
	return v;
#else
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
#endif
}
int main(void)
{
	struct timespec a, b, pause = { .tv_nsec = 200000000 };
	unsigned long long t;
	clock_gettime(CLOCK_MONOTONIC, &a);
	t = ticks();
	nanosleep(&pause, NULL);
	clock_gettime(CLOCK_MONOTONIC, &b);
	t = ticks() - t;
	printf("%.0f\n", t / ((b.tv_sec - a.tv_sec) * 1e3 + (b.tv_nsec - a.tv_nsec) / 1e6));
	return 0;
}
'''


def tsc_khz():
    """kHz of the counter that a TCG guest sees as its TSC.

    The guest cannot find out: it has no HPET and no PM timer without ACPI, and
    QEMU's PIT is too slow to calibrate against.
    """
    prog = cache.path('init', f'tsc-{cache.digest(TSC_SOURCE)}')
    if not prog.exists():
        run(['gcc', '-O1', '-x', 'c', '-o', f'{prog}.part', '-'], stdin=TSC_SOURCE)
        os.rename(f'{prog}.part', prog)
    _, out = run([str(prog)])
    return int(out)


def qemu_version():
    """First line of qemu --version."""
    _, out = run(['qemu-system-x86_64', '--version'])
    return out.splitlines()[0]


def host():
    """What the lab runs on, in words."""
    model = platform.processor() or platform.machine()
    try:
        text = Path('/proc/cpuinfo').read_text()
        model = re.search(r'model name\s*: (.*)', text).group(1)
    except (OSError, AttributeError):
        pass
    return f'{os.cpu_count()} x {model}'


def _asked(test, lru, append):
    """What the kernel command line says of the test."""
    line = [test.cmdline] if test and test.cmdline else []
    if test:
        line += [f'mmlab.test={test.name}', f'mmlab.lru={lru}']
    return line + ([append] if append else [])


def command_arm64(kernel, image, test, lru, cpus, plugin, append=''):
    """The same for arm64, emulated always. plugin: of QEMU, with its arguments."""
    # A core without range invalidation, so that an instruction is for a page.
    return ['qemu-system-aarch64', '-machine', 'virt-7.2', '-accel', 'tcg,thread=multi', '-cpu',
            'cortex-a72', '-m', str(test.memory), '-smp', str(cpus), '-nodefaults', '-display',
            'none', '-serial', 'stdio', '-no-reboot', '-plugin', plugin, '-kernel', str(kernel),
            '-initrd', str(image),
            '-append', ' '.join(['console=ttyAMA0', *QUIET, *_asked(test, lru, append)])]


def command(kernel, image, test, lru, mode, cpus, khz, append=''):
    """The QEMU command line of a boot."""
    line = ['console=ttyS0', *QUIET, 'zram.num_devices=0']
    if mode == 'icount':
        # Nothing of the host gets in: no RDRAND, a clock that counts instructions.
        accel = ['-accel', 'tcg', '-icount', 'shift=0,sleep=off', '-rtc', 'base=2024-01-01,clock=vm',
                 '-cpu', 'max,-rdrand,-rdseed']
        line += ['tsc_early_khz=1000000', 'tsc=reliable', 'nokaslr', 'norandmaps',
                 'mitigations=off', 'random.trust_cpu=off', 'random.trust_bootloader=off']
    elif mode == 'kvm':
        accel = ['-accel', 'kvm', '-cpu', 'host']
    else:
        accel = ['-accel', 'tcg,thread=multi', '-cpu', 'max']
        # 6.1 takes long to find entropy here, and mkfs waits three seconds for it each time.
        line += [f'tsc_early_khz={khz}', 'tsc=reliable', 'random.trust_cpu=on']
    line += _asked(test, lru, append)
    memory = test.memory if test else 768
    # One socket a vCPU: the firmware's MP table lists sockets only.
    return ['qemu-system-x86_64', '-machine', MACHINE, *accel, '-m', str(memory),
            '-smp', f'{cpus},sockets={cpus}', '-nodefaults', '-display', 'none',
            '-serial', 'stdio', '-no-reboot', '-kernel', str(kernel), '-initrd', str(image),
            '-append', ' '.join(line)]


@contextlib.contextmanager
def turn():
    """One guest at a time for a user, also with several clones and caches: waits its turn.

    Two guests on two cores starve each other's timers, and what they count is worth nothing.
    """
    name = os.path.join(tempfile.gettempdir(), f'mm-reclaim-boot-{os.getuid()}.lock')
    with open(name, 'a', encoding='utf-8') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def boot(cmd, log, timeout):
    """Run QEMU until it ends or `timeout` seconds are over: a ktap.Result."""
    log.parent.mkdir(parents=True, exist_ok=True)
    part = log.with_suffix('.part')
    with turn(), open(part, 'wb') as out:
        proc = popen(cmd, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        code = reap(proc, timeout)
        timed_out = code is None
        if timed_out:
            os.killpg(proc.pid, 9)
            reap(proc)
    # A log that a full disk has cut would look like a crash.
    cache.need_space('the log of a boot', 4)
    text = part.read_text(errors='replace')
    if not timed_out and code and 'MMLAB:' not in text and 'Linux version' not in text:
        tail = text.strip().splitlines()[-1:] or [f'exit code {code}']
        raise LabError(f'QEMU does not start: {tail[0]}', f'see {part}; is it {MACHINE[-3:]} or newer?')
    log.with_suffix('.hang').unlink(missing_ok=True)
    if timed_out:
        log.with_suffix('.hang').touch()
    os.rename(part, log)
    return judge(log)


def judge(log):
    """The ktap.Result of a boot that was made."""
    return ktap.parse_log(log.read_text(errors='replace'),
                          timed_out=log.with_suffix('.hang').exists())


def refuse_mode(mode, base, cpus):
    """A LabError for a MODE= that cannot be, before anything is built for it."""
    if mode not in ('tcg', 'icount', 'kvm', 'auto'):
        raise LabError(f'MODE={mode} is not known', 'one of tcg, icount, kvm, auto')
    if mode == 'icount' and base.line == '6.1' and cpus > 1:
        raise LabError(f'MODE=icount with {cpus} vCPUs hangs on 6.1, at "Booting SMP configuration"',
                       'take CPUS=1, or BASE=mainline')
    if mode == 'kvm' and no_kvm():
        raise LabError(f'MODE=kvm: {no_kvm()}', 'take MODE=tcg')


def no_kvm():
    """Why KVM cannot be used, as far as the device tells."""
    if not os.path.exists('/dev/kvm'):
        return 'there is no /dev/kvm'
    if not os.access('/dev/kvm', os.R_OK | os.W_OK):
        return '/dev/kvm may not be opened'
    return ''


def pick_mode(mode, base, cpus, kernel, image):
    """What MODE= comes to here: tcg, icount or kvm. `auto` takes KVM if a guest really boots."""
    refuse_mode(mode, base, cpus)
    if mode in ('tcg', 'icount'):
        return mode
    why = no_kvm()
    if not why:
        # Where virtualization is nested, KVM may be there and a guest still get nowhere.
        boot_id = Path('/proc/sys/kernel/random/boot_id').read_text().strip()
        verdict = cache.path('kvm', cache.digest(boot_id, qemu_version()))
        if not verdict.exists():
            say('KVM is there: trying whether a guest boots with it')
            start = time.monotonic()
            try:
                works = bool(boot(command(kernel, image, None, None, 'kvm', cpus, 0),
                                  cache.path('log', 'kvm-probe.log'), 20).boot)
            except LabError:    # QEMU cannot even open it
                works = False
            verdict.write_text('yes' if works else 'no')
            say(f'    {"yes" if works else "no"}, after {time.monotonic() - start:.0f} s')
        if verdict.read_text() != 'yes':
            why = 'a guest does not get through its boot with KVM within 20 s'
    if not why:
        return 'kvm'
    if mode == 'kvm':
        raise LabError(f'MODE=kvm: {why}', 'take MODE=tcg')
    say(f'booting without KVM ({why}): QEMU translates every instruction, TCG')
    return 'tcg'
