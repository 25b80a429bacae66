//! Shows the machine's time to the program of an attached process.
//!
//! Programs ask for the time, and sleep, by a few functions of the kernel and of libc. Their code
//! is [replaced](super::patch) in this process, whether they are linked statically or not. The
//! processor's cycle counter traps, and the handler gives the same time.
//!
//! | the program asks for | it gets |
//! |---|---|
//! | a clock, or cycles | a reading of the [machine's time](super::clock) |
//! | sleep | sleep in the machine's time, while other PEs run; also by waiting for [no descriptors](super::polls) |
//! | a wait for its other threads, with a limit | a wait in real time, as [long](super::threads) |
//! | another program in its place (`execve` and its kin) | that program, which sees real time |
//! | random bytes of the kernel | bytes from the run's seed and the PE's number, so that a run repeats itself |
//!
//! Where this cannot be done (another processor than x86-64, valgrind, a kernel that forbids to
//! write code), programs see real time, and each PE says so.

use super::clock::{self, errno, fail, timespec};
use super::{patch, process};
use crate::base::shm;
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// State of the random bytes.
static RANDOM: AtomicU64 = AtomicU64::new(0);
static SHOWN: AtomicBool = AtomicBool::new(false);

/// Makes the program see the machine's time, and get random bytes from `seed`. Takes effect once;
/// called before the program has threads.
pub(super) fn show(cpu_scale: Option<f64>, seed: u64) {
    if SHOWN.swap(true, Ordering::Relaxed) {
        return;
    }
    RANDOM.store(seed, Ordering::Relaxed);
    clock::start(cpu_scale);
    let kernels = [
        ("__vdso_clock_gettime", clock_gettime as *const () as usize),
        ("__vdso_gettimeofday", gettimeofday as *const () as usize),
        ("__vdso_time", time as *const () as usize),
    ];
    let found = kernels.map(|(name, ours)| Some((patch::of_kernel(name)?, ours)));
    // SAFETY: the kernel's functions for this process have these signatures; the process has no
    // other thread yet that could be in one.
    let clocks =
        found.iter().all(Option::is_some) && unsafe { patch::replace(found.into_iter().flatten()) };
    // SAFETY: as above, for functions of libc.
    let sleeps = of_libc().is_some_and(|all| unsafe {
        patch::replace(all.into_iter().map(|(theirs, ours)| (patch::of_program(theirs), ours)))
    });
    let cycles = sleeps && trap_cycles();
    let all = [(clocks, "its clocks"), (sleeps, "its sleeps"), (cycles, "its cycle counter")];
    REAL.get_or_init(|| {
        all.into_iter().filter(|(shown, _)| !shown).map(|(_, what)| what).collect()
    });
}

/// Functions of libc, each with its replacement. `None` where one cannot be replaced.
fn of_libc() -> Option<Vec<(usize, usize)>> {
    // `execve` among them: cycles must not trap in the next program.
    let mut all = vec![
        (libc::clock_nanosleep as *const () as usize, clock_nanosleep as *const () as usize),
        (libc::getrandom as *const () as usize, getrandom as *const () as usize),
        (libc::execve as *const () as usize, execve as *const () as usize),
    ];
    #[cfg(target_arch = "x86_64")]
    all.extend(super::polls::replacements());
    #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
    {
        all.extend(super::threads::replacements()?);
        all.push((libc::fexecve as *const () as usize, fexecve as *const () as usize));
        all.extend(execveat_of_libc().map(|theirs| (theirs, execveat as *const () as usize)));
    }
    Some(all)
}

/// Where libc has the function: glibc 2.34 or later; of a static program, if it uses it.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn execveat_of_libc() -> Option<usize> {
    let at: usize;
    // SAFETY: loads an address, which is 0 where nobody defines the symbol.
    unsafe {
        std::arch::asm!(
            ".weak execveat",
            "mov {}, qword ptr [rip + execveat@GOTPCREL]",
            out(reg) at,
            options(nostack, preserves_flags, readonly)
        );
    }
    Some(at).filter(|&at| at != 0)
}

/// Whether this process is the `memonet` command, or another one that is no PE.
static HIDDEN: AtomicBool = AtomicBool::new(false);

/// Shows this process the kernel's clocks after all: it is no PE, though a PE has started it. Its
/// sleeps and random bytes are the kernel's then, too.
pub fn see_real_time() {
    if SHOWN.load(Ordering::Relaxed) && !HIDDEN.swap(true, Ordering::Relaxed) {
        clock::show_kernels();
        set_cycles(libc::PR_TSC_ENABLE);
    }
}

/// Means by which this process still sees real time.
static REAL: OnceLock<Vec<&str>> = OnceLock::new();

/// The warning for the user, if the process sees real time by any means.
pub(super) fn complaint(pe: usize) -> Option<String> {
    let real = REAL.get().filter(|real| !real.is_empty())?.join(", ");
    Some(format!(
        "memonet: PE {pe} sees real time by {real}, not the simulated machine's: what it measures by that is wrong. The code of the kernel's and libc's functions \
         could not be replaced, or PR_SET_TSC is refused (valgrind, a kernel without vDSO, a container or a policy that forbids writable code, a processor \
         other than x86-64): run it without these, or have it measure by `Job` and shmem calls alone"
    ))
}

/// Replaces the kernel's function, which reports errors as negative numbers.
unsafe extern "C" fn clock_gettime(clock: c_int, to: *mut libc::timespec) -> c_int {
    match clock::on(clock) {
        Some(_) if to.is_null() => -libc::EFAULT,
        Some(time) => {
            // SAFETY: the program passes an address that it may write.
            unsafe { to.write(timespec(time)) };
            0
        }
        // SAFETY: the program's own call, passed on.
        None => match unsafe { libc::syscall(libc::SYS_clock_gettime, clock, to) } {
            0 => 0,
            _ => -errno(),
        },
    }
}

unsafe extern "C" fn gettimeofday(to: *mut libc::timeval, zone: *mut libc::timezone) -> c_int {
    let time = clock::since_1970();
    // SAFETY: the program passes addresses that it may write, or null.
    unsafe {
        if !to.is_null() {
            to.write(libc::timeval {
                tv_sec: time.as_secs() as libc::time_t,
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
    let time = clock::since_1970().as_secs() as libc::time_t;
    if !to.is_null() {
        // SAFETY: the program passes an address that it may write.
        unsafe { to.write(time) };
    }
    time
}

/// Replaces libc's function, which reports errors as positive numbers. libc's other sleeps call it.
unsafe extern "C" fn clock_nanosleep(
    clock: c_int,
    flags: c_int,
    wish: *const libc::timespec,
    left: *mut libc::timespec,
) -> c_int {
    if clock::are_kernels() {
        // SAFETY: the program's own call, passed on.
        return match unsafe { libc::syscall(libc::SYS_clock_nanosleep, clock, flags, wish, left) } {
            0 => 0,
            _ => errno(),
        };
    }
    // SAFETY: the program passes an address that it may read.
    let Some(wished) = clock::valid(unsafe { wish.read() }) else { return libc::EINVAL };
    let time = match (flags & libc::TIMER_ABSTIME, clock::on(clock)) {
        (0, _) => wished,
        (_, Some(now)) => wished.saturating_sub(now),
        (_, None) => return libc::EINVAL,
    };
    match process::sleep(time) {
        true => 0,
        // SAFETY: the program passes an address that it may write, or null.
        false => really_sleep(time, unsafe { left.as_mut() }),
    }
}

/// Sleeps in real time. As much passes on the clocks that the program sees.
fn really_sleep(time: Duration, left: Option<&mut libc::timespec>) -> c_int {
    let wish = timespec(time);
    let mut rest = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let (wish, of_rest) = (&raw const wish, &raw mut rest);
    // SAFETY: the kernel reads and writes times on this stack frame.
    let slept = unsafe {
        libc::syscall(libc::SYS_clock_nanosleep, libc::CLOCK_MONOTONIC, 0, wish, of_rest)
    };
    let error = if slept == 0 { 0 } else { errno() };
    clock::passed(time.saturating_sub(clock::duration(rest)));
    if let Some(left) = left.filter(|_| error == libc::EINTR) {
        *left = rest;
    }
    error
}

unsafe extern "C" fn getrandom(to: *mut c_void, len: usize, flags: u32) -> isize {
    if HIDDEN.load(Ordering::Relaxed) {
        // SAFETY: the program's own call, passed on.
        return unsafe { libc::syscall(libc::SYS_getrandom, to, len, flags) } as isize;
    }
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
        // SAFETY: the program's buffer has `len` bytes, and no byte behind them is written.
        unsafe { shm::copy(to.cast::<u8>().add(at), bytes.as_ptr(), (len - at).min(8)) };
    }
    len as isize
}

unsafe extern "C" fn execve(
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the program's own call, passed on.
    become_another(|| unsafe {
        libc::syscall(libc::SYS_execve, path, argv, envp);
        errno()
    })
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
unsafe extern "C" fn execveat(
    folder: c_int,
    path: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: as above.
    become_another(|| unsafe {
        libc::syscall(libc::SYS_execveat, folder, path, argv, envp, flags);
        errno()
    })
}

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
unsafe extern "C" fn fexecve(
    file: c_int,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    if file < 0 || argv.is_null() || envp.is_null() {
        return fail(libc::EINVAL);
    }
    // SAFETY: as above.
    unsafe { execveat(file, c"".as_ptr(), argv, envp, libc::AT_EMPTY_PATH) }
}

/// Has another program take the place of this one by `call`, which gives its error if it fails.
/// Turns the trap of cycles off: the next program would inherit it without a handler.
pub(super) fn become_another(call: impl FnOnce() -> c_int) -> c_int {
    set_cycles(libc::PR_TSC_ENABLE);
    let failed = call();
    if !HIDDEN.load(Ordering::Relaxed) {
        set_cycles(libc::PR_TSC_SIGSEGV);
    }
    fail(failed)
}

fn set_cycles(how: c_int) -> bool {
    // SAFETY: changes this thread's access to its cycle counter alone.
    unsafe { libc::prctl(libc::PR_SET_TSC, how as c_long, 0, 0, 0) == 0 }
}

/// The handler before ours, for faults that are not ours.
#[cfg(target_arch = "x86_64")]
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

#[cfg(not(target_arch = "x86_64"))]
fn trap_cycles() -> bool {
    false
}

/// Makes readings of the cycle counter show the machine's time.
#[cfg(target_arch = "x86_64")]
fn trap_cycles() -> bool {
    // SAFETY: all zeros is a valid value of the structure; the handler has the signature that the
    // flags ask for, and stays loaded as long as the program.
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

/// The two instructions that read the counter; the second gives the CPU's number too.
#[cfg(target_arch = "x86_64")]
const READ_CYCLES: [u8; 2] = [0x0F, 0x31];
#[cfg(target_arch = "x86_64")]
const READ_CYCLES_AND_CPU: [u8; 3] = [0x0F, 0x01, 0xF9];

#[cfg(target_arch = "x86_64")]
unsafe extern "C" fn trapped(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO the thread's state, to which nothing else
    // refers.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize] as *const u8;
    // SI_KERNEL excludes faults of addresses. SAFETY: the kernel describes the signal in `info`.
    // The thread stopped at an instruction that it may not use, so that instruction is mapped. Its
    // third byte is read only if the first two begin an instruction of three.
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
    if length > 0 && clock::are_kernels() {
        // The instruction is tried again.
        set_cycles(libc::PR_TSC_ENABLE);
        return;
    }
    if length > 0 {
        let cycles = clock::read().as_nanos() as u64;
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
            // SAFETY: the handler that was installed before, called as the kernel would; handlers
            // of one and of three arguments find these in the same registers.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(before.sa_sigaction) };
            handler(signal, info, context);
        }
        // The fault comes again, and ends the process.
        // SAFETY: as in `trap_cycles`.
        _ => unsafe {
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(libc::SIGSEGV, &default, std::ptr::null_mut());
        },
    }
}
