//! The time that an attached process sees: that of the machine.
//!
//! However a program asks for the time or sleeps, it ends in a few functions of the kernel's and of
//! libc's; their code is [replaced](super::patch) in this process, be it linked statically or not.
//! The processor's cycle counter is made to trap, and its trap shows the same time.
//!
//! | the program asks for | it gets |
//! |---|---|
//! | any of its clocks, also those of CPU time | the time since the start of the run; since 1970, if the machine had been switched on at the beginning of 2000 |
//! | cycles | nanoseconds: the processor runs at 1 GHz, on every machine |
//! | sleep | sleep in the machine's time, while others run; also by waiting for [no descriptors](super::polls) |
//! | wait for its other threads, so long at most | a wait in real time, as [long](super::threads) |
//! | random bytes of the kernel | bytes from the run's seed and the PE's number, so that a run repeats itself |
//!
//! The time stands still while a process computes, unless it was started with `--cpu-scale`. A
//! program that waits for time to pass by reading a clock again and again would wait for ever: so
//! after [`FREE`] readings without a call between them, each takes [`READING`].
//!
//! Where this cannot be done (another processor than x86-64, valgrind, a kernel that keeps code
//! from being written), programs see real time, and each PE says so.

use super::attached;
use super::patch;
use crate::base::shm;
use std::ffi::{c_char, c_int, c_long, c_void};
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The beginning of 2000, in seconds since 1970.
pub(super) const SWITCHED_ON: u64 = 946_684_800;
/// Readings of a clock in a row that take no time: more than a program needs to measure something.
const FREE: u32 = 100;
/// Nanoseconds that each further one takes.
const READING: u64 = 1000;

/// The process's time when it last went on, in nanoseconds.
static NOW: AtomicU64 = AtomicU64::new(0);
/// What its readings have taken since.
static READ_FOR: AtomicU64 = AtomicU64::new(0);
static READINGS: AtomicU32 = AtomicU32::new(0);
/// The factor of CPU time, as bits of an `f64`; 0: none.
static CPU_SCALE: AtomicU64 = AtomicU64::new(0);
/// The process's CPU time when it last went on, in nanoseconds.
static CPU_SINCE: AtomicU64 = AtomicU64::new(0);
/// Where the random bytes come from.
static RANDOM: AtomicU64 = AtomicU64::new(0);
static SHOWN: AtomicBool = AtomicBool::new(false);

/// What it has computed since it last went on.
pub(super) fn computed() -> Duration {
    let scale = f64::from_bits(CPU_SCALE.load(Ordering::Relaxed));
    let computed = match scale > 0.0 {
        true => {
            (cpu_time().saturating_sub(CPU_SINCE.load(Ordering::Relaxed)) as f64 * scale) as u64
        }
        false => 0,
    };
    Duration::from_nanos(computed + READ_FOR.load(Ordering::Relaxed))
}

/// It goes on.
pub(super) fn went_on(now: Duration) {
    NOW.store(now.as_nanos() as u64, Ordering::Relaxed);
    READ_FOR.store(0, Ordering::Relaxed);
    READINGS.store(0, Ordering::Relaxed);
    if CPU_SCALE.load(Ordering::Relaxed) != 0 {
        CPU_SINCE.store(cpu_time(), Ordering::Relaxed);
    }
}

/// Its time.
pub(super) fn now() -> Duration {
    Duration::from_nanos(NOW.load(Ordering::Relaxed)) + computed()
}

/// The program reads a clock.
fn read() -> Duration {
    if READINGS.fetch_add(1, Ordering::Relaxed) >= FREE {
        READ_FOR.fetch_add(READING, Ordering::Relaxed);
    }
    now()
}

/// The real CPU time of this process, in nanoseconds.
fn cpu_time() -> u64 {
    kernels(libc::CLOCK_PROCESS_CPUTIME_ID).as_nanos() as u64
}

/// The real time, by the kernel's monotonic clock.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
pub(super) fn real() -> Duration {
    kernels(libc::CLOCK_MONOTONIC)
}

/// What the kernel's clock shows.
fn kernels(clock: c_int) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes the structure on this stack frame. By number, as the function is
    // one of those replaced.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) };
    duration(time)
}

/// How far ahead a time is on one of the machine's clocks: a reading of that clock.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
pub(super) fn until(clock: c_int, limit: Duration) -> Duration {
    on(clock).map_or(Duration::ZERO, |now| limit.saturating_sub(now))
}

/// From now on the program sees the machine's time, and gets random bytes from `seed`. Once; before
/// the program has threads.
pub(super) fn show(cpu_scale: Option<f64>, seed: u64) {
    if SHOWN.swap(true, Ordering::Relaxed) {
        return;
    }
    CPU_SCALE.store(cpu_scale.map_or(0, f64::to_bits), Ordering::Relaxed);
    RANDOM.store(seed, Ordering::Relaxed);
    went_on(Duration::ZERO);
    let kernels = [
        ("__vdso_clock_gettime", clock_gettime as *const () as usize),
        ("__vdso_gettimeofday", gettimeofday as *const () as usize),
        ("__vdso_time", time as *const () as usize),
    ];
    let clocks = kernels.into_iter().all(|(name, ours)| {
        // SAFETY: the kernel's function for this process, of the same signature; it has no threads
        // yet that could be in it.
        patch::of_kernel(name).is_some_and(|theirs| unsafe { patch::replace(&theirs, ours) })
    });
    let libcs = [
        (libc::clock_nanosleep as *const () as usize, clock_nanosleep as *const () as usize),
        (libc::getrandom as *const () as usize, getrandom as *const () as usize),
        (libc::execve as *const () as usize, execve as *const () as usize),
    ];
    // SAFETY: as above, for libc's.
    let replaced = |(theirs, ours)| unsafe { patch::replace(&patch::of_program(theirs), ours) };
    // The last is needed where cycles trap: other programs' must not.
    let sleeps = libcs.into_iter().all(replaced);
    #[cfg(target_arch = "x86_64")]
    let sleeps = sleeps && super::polls::replacements().into_iter().all(replaced);
    // SAFETY: as above.
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    let sleeps = sleeps && unsafe { super::threads::replace() };
    let cycles = sleeps && trap_cycles();
    let all = [(clocks, "its clocks"), (sleeps, "its sleeps"), (cycles, "its cycle counter")];
    REAL.get_or_init(|| {
        all.into_iter().filter(|(shown, _)| !shown).map(|(_, what)| what).collect()
    });
}

/// What of this process is in real time, though it should not be.
static REAL: OnceLock<Vec<&str>> = OnceLock::new();

/// What to tell the user, where not all could be done.
pub(super) fn complaint(pe: usize) -> Option<String> {
    let real = REAL.get().filter(|real| !real.is_empty())?.join(", ");
    Some(format!(
        "memonet: PE {pe} sees real time by {real}, not the simulated machine's: what it measures by that is wrong. The code of the kernel's and libc's functions \
         could not be replaced, or PR_SET_TSC is refused (valgrind, a kernel without vDSO, a container or a policy that forbids writable code, a processor \
         other than x86-64): run it without these, or have it measure by `Job` and shmem calls alone"
    ))
}

pub(super) fn fail(errno: c_int) -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

pub(super) fn errno() -> c_int {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

/// Zero for what is no length of time.
pub(super) fn duration(time: libc::timespec) -> Duration {
    match (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (Ok(seconds), Ok(nanos @ ..1_000_000_000)) => Duration::new(seconds, nanos),
        _ => Duration::ZERO,
    }
}

pub(super) fn timespec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() }
}

/// The time on a clock; nothing for one that is not this process's.
fn on(clock: c_int) -> Option<Duration> {
    match clock {
        libc::CLOCK_REALTIME
        | libc::CLOCK_REALTIME_COARSE
        | libc::CLOCK_REALTIME_ALARM
        | libc::CLOCK_TAI => Some(read() + Duration::from_secs(SWITCHED_ON)),
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_BOOTTIME
        | libc::CLOCK_BOOTTIME_ALARM
        | libc::CLOCK_PROCESS_CPUTIME_ID
        | libc::CLOCK_THREAD_CPUTIME_ID => Some(read()),
        _ => None,
    }
}

/// The kernel's, by whose convention an error is a negative number.
unsafe extern "C" fn clock_gettime(clock: c_int, to: *mut libc::timespec) -> c_int {
    match on(clock) {
        Some(_) if to.is_null() => -libc::EFAULT,
        Some(time) => {
            // SAFETY: the program's.
            unsafe { to.write(timespec(time)) };
            0
        }
        // SAFETY: the program's call, as it is.
        None => match unsafe { libc::syscall(libc::SYS_clock_gettime, clock, to) } {
            0 => 0,
            _ => -errno(),
        },
    }
}

unsafe extern "C" fn gettimeofday(to: *mut libc::timeval, zone: *mut libc::timezone) -> c_int {
    let time = read();
    // SAFETY: the program's, where they are not null.
    unsafe {
        if !to.is_null() {
            to.write(libc::timeval {
                tv_sec: (time.as_secs() + SWITCHED_ON) as libc::time_t,
                tv_usec: time.subsec_micros().into(),
            });
        }
        if !zone.is_null() {
            zone.cast::<[c_int; 2]>().write([0, 0]);
        }
    }
    0
}

unsafe extern "C" fn time(to: *mut libc::time_t) -> libc::time_t {
    let time = (read().as_secs() + SWITCHED_ON) as libc::time_t;
    if !to.is_null() {
        // SAFETY: the program's.
        unsafe { to.write(time) };
    }
    time
}

/// libc's, by whose convention an error is a positive number. All its other sleeps end here.
unsafe extern "C" fn clock_nanosleep(
    clock: c_int,
    flags: c_int,
    wish: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    // SAFETY: the program's.
    let wished = unsafe { wish.read() };
    let (Ok(seconds), Ok(nanos @ ..1_000_000_000)) =
        (u64::try_from(wished.tv_sec), u32::try_from(wished.tv_nsec))
    else {
        return libc::EINVAL;
    };
    let wished = Duration::new(seconds, nanos);
    let time = match (flags & libc::TIMER_ABSTIME, on(clock)) {
        (0, _) => wished,
        (_, Some(now)) => wished.saturating_sub(now),
        (_, None) => return libc::EINVAL,
    };
    if attached::sleep(time) {
        return 0;
    }
    let time = timespec(time);
    // Another process than the PE, or before it has joined.
    // SAFETY: the program's call, but for the clock, which shows another time.
    match unsafe {
        libc::syscall(libc::SYS_clock_nanosleep, libc::CLOCK_MONOTONIC, 0, &raw const time, left)
    } {
        0 => 0,
        _ => errno(),
    }
}

unsafe extern "C" fn getrandom(to: *mut c_void, len: usize, _flags: u32) -> isize {
    // SplitMix64.
    let next = || {
        let state = RANDOM
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed)
            .wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31).to_le_bytes()
    };
    for at in (0..len).step_by(8) {
        let bytes = next();
        // SAFETY: the program's buffer of `len` bytes, of which at most the rest is written.
        unsafe { shm::copy(to.cast::<u8>().add(at), bytes.as_ptr(), (len - at).min(8)) };
    }
    len as isize
}

/// Another program has no handler for the trap of its cycles, which it would inherit.
unsafe extern "C" fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    set_cycles(libc::PR_TSC_ENABLE);
    // SAFETY: the program's call, as it is.
    unsafe { libc::syscall(libc::SYS_execve, path, argv, envp) };
    let failed = errno();
    set_cycles(libc::PR_TSC_SIGSEGV);
    fail(failed)
}

fn set_cycles(how: c_int) -> bool {
    // SAFETY: concerns this thread's cycle counter alone.
    unsafe { libc::prctl(libc::PR_SET_TSC, how as c_long, 0, 0, 0) == 0 }
}

/// Who handled what our handler does not.
#[cfg(target_arch = "x86_64")]
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

#[cfg(not(target_arch = "x86_64"))]
fn trap_cycles() -> bool {
    false
}

/// Has readings of the cycle counter show the machine's time.
#[cfg(target_arch = "x86_64")]
fn trap_cycles() -> bool {
    // SAFETY: all zeros is a value of the structure; the handler has the signature that the flags
    // ask for, and stays loaded as long as the program.
    unsafe {
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = trapped as *const () as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGSEGV, &ours, &mut before) != 0 {
            return false;
        }
        let _ = BEFORE.set(before);
    }
    set_cycles(libc::PR_TSC_SIGSEGV)
}

/// The two instructions that read it; the second tells the CPU's number too.
#[cfg(target_arch = "x86_64")]
const READ_CYCLES: [u8; 2] = [0x0F, 0x31];
#[cfg(target_arch = "x86_64")]
const READ_CYCLES_AND_CPU: [u8; 3] = [0x0F, 0x01, 0xF9];

#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn trapped(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO the state of the thread, which nobody else
    // has.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize] as *const u8;
    // Of the kernel's own, not of an address that cannot be reached: then what the thread was at is
    // an instruction that could be read. SAFETY: the kernel's description of the signal; and where
    // the thread stopped at an instruction that it may not use, that is mapped. Its third byte is
    // looked at only where the first two begin an instruction of three.
    let length = unsafe {
        match (*info).si_code {
            libc::SI_KERNEL if at.cast::<[u8; 2]>().read() == READ_CYCLES => 2,
            libc::SI_KERNEL
                if at.cast::<[u8; 2]>().read() == READ_CYCLES_AND_CPU[..2]
                    && at.add(2).read() == READ_CYCLES_AND_CPU[2] =>
            {
                3
            }
            _ => 0,
        }
    };
    if length > 0 {
        let cycles = read().as_nanos() as u64;
        registers[libc::REG_RAX as usize] = (cycles & 0xFFFF_FFFF) as i64;
        registers[libc::REG_RDX as usize] = (cycles >> 32) as i64;
        if length == 3 {
            registers[libc::REG_RCX as usize] = 0;
        }
        registers[libc::REG_RIP as usize] += length;
        return;
    }
    let before = BEFORE.get().copied();
    match before {
        Some(before)
            if before.sa_sigaction != libc::SIG_DFL && before.sa_sigaction != libc::SIG_IGN =>
        {
            // SAFETY: the handler that was there before, as the kernel would have called it; both
            // conventions pass these three in the same registers.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(before.sa_sigaction) };
            handler(signal, info, context);
        }
        // The fault comes again, and then ends the process.
        // SAFETY: as in `trap_cycles`.
        _ => unsafe {
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(libc::SIGSEGV, &default, std::ptr::null_mut());
        },
    }
}
