//! Waits of a program's threads for each other, in an attached process.
//!
//! Threads compute in real time, so waits for them take real time too. Their limits are times of
//! the machine's clocks, which the kernel does not know: such a wait lasts as long in real time;
//! after a timeout, as much time passes in the machine.
//!
//! A wait for a condition calls libc's own function, which is [moved](patch::elsewhere), with a
//! limit on the kernel's clock. A lock or a semaphore is tried again and again. Rust's threads wait
//! by `syscall`.

use super::clock::{self, SWITCHED_ON_S};
use super::{patch, process, replaced};
use libc::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, c_int, c_long, clockid_t, pthread_cond_t, pthread_mutex_t,
    pthread_rwlock_t, sem_t, timespec,
};
use std::sync::OnceLock;
use std::time::Duration;

type ClockWait = unsafe extern "C" fn(
    *mut pthread_cond_t,
    *mut pthread_mutex_t,
    clockid_t,
    *const timespec,
) -> c_int;

unsafe extern "C" {
    fn pthread_cond_clockwait(
        condition: *mut pthread_cond_t,
        mutex: *mut pthread_mutex_t,
        clock: clockid_t,
        limit: *const timespec,
    ) -> c_int;
    fn pthread_mutex_clocklock(
        mutex: *mut pthread_mutex_t,
        clock: clockid_t,
        limit: *const timespec,
    ) -> c_int;
    fn pthread_rwlock_timedrdlock(lock: *mut pthread_rwlock_t, limit: *const timespec) -> c_int;
    fn pthread_rwlock_clockrdlock(
        lock: *mut pthread_rwlock_t,
        clock: clockid_t,
        limit: *const timespec,
    ) -> c_int;
    fn pthread_rwlock_timedwrlock(lock: *mut pthread_rwlock_t, limit: *const timespec) -> c_int;
    fn pthread_rwlock_clockwrlock(
        lock: *mut pthread_rwlock_t,
        clock: clockid_t,
        limit: *const timespec,
    ) -> c_int;
    fn sem_clockwait(semaphore: *mut sem_t, clock: clockid_t, limit: *const timespec) -> c_int;
}

/// libc's wait for a condition, moved.
static CLOCK_WAIT: OnceLock<ClockWait> = OnceLock::new();

/// Functions of libc, each with its replacement, before any of them is replaced. `None` where
/// libc's wait for a condition cannot be moved.
pub(super) fn replacements() -> Option<[(usize, usize); 11]> {
    let theirs = patch::of_program(pthread_cond_clockwait as *const () as usize);
    // SAFETY: a function of libc that has not been replaced yet.
    let kept = unsafe { patch::elsewhere(&theirs) }?;
    // SAFETY: the moved function, with its signature.
    CLOCK_WAIT.get_or_init(|| unsafe { std::mem::transmute::<usize, ClockWait>(kept) });
    let all = [
        (pthread_cond_clockwait as *const (), cond_clockwait as *const ()),
        (libc::pthread_cond_timedwait as *const (), cond_timedwait as *const ()),
        (pthread_mutex_clocklock as *const (), mutex_clocklock as *const ()),
        (libc::pthread_mutex_timedlock as *const (), mutex_timedlock as *const ()),
        (pthread_rwlock_clockrdlock as *const (), rwlock_clockrdlock as *const ()),
        (pthread_rwlock_timedrdlock as *const (), rwlock_timedrdlock as *const ()),
        (pthread_rwlock_clockwrlock as *const (), rwlock_clockwrlock as *const ()),
        (pthread_rwlock_timedwrlock as *const (), rwlock_timedwrlock as *const ()),
        (sem_clockwait as *const (), semaphore_clockwait as *const ()),
        (libc::sem_timedwait as *const (), semaphore_timedwait as *const ()),
        (libc::syscall as *const (), syscall as *const ()),
    ];
    Some(all.map(|(theirs, ours)| (theirs as usize, ours as usize)))
}

/// Longer than any run; sums with it do not overflow.
const LONGEST: Duration = Duration::from_secs(1 << 32);

/// The limit of a wait.
struct Limit {
    /// The time left when the wait begins.
    left: Duration,
    /// The end, by the machine's time.
    end: Duration,
}

impl Limit {
    /// A limit so far from now.
    fn after(left: Duration) -> Limit {
        let left = left.min(LONGEST);
        Limit { left, end: clock::now() + left }
    }

    /// A limit on one of the machine's clocks; `None` for times and clocks that libc refuses.
    fn on(clock: clockid_t, limit: timespec) -> Option<Limit> {
        let nanos = u32::try_from(limit.tv_nsec).ok().filter(|nanos| *nanos < 1_000_000_000)?;
        let limit = Duration::new(limit.tv_sec.try_into().unwrap_or(0), nanos);
        matches!(clock, CLOCK_REALTIME | CLOCK_MONOTONIC)
            .then(|| Limit::after(clock::until(clock, limit)))
    }

    /// The limit on the kernel's monotonic clock.
    fn real(&self) -> Duration {
        clock::real() + self.left
    }

    /// Ends a wait. If the limit has ended it (`late`), the machine's time passes until then, too.
    fn reached(&self, late: bool) {
        if late && !self.left.is_zero() && !clock::are_kernels() {
            process::waited_until(self.end);
        }
    }
}

/// The clock of a condition's limit. libc does not reveal it, but the value does: the monotonic
/// clock of a run never reaches the year 2000, and the other clock is never before it.
fn clock_of(limit: &timespec) -> clockid_t {
    match u64::try_from(limit.tv_sec) {
        Ok(SWITCHED_ON_S..) => CLOCK_REALTIME,
        _ => CLOCK_MONOTONIC,
    }
}

unsafe extern "C" fn cond_timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the program's own arguments, passed on.
    unsafe { cond_clockwait(condition, mutex, clock_of(&*limit), limit) }
}

unsafe extern "C" fn cond_clockwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the program passes an address that it may read.
    let limit = Limit::on(clock, unsafe { *limit });
    let (Some(limit), Some(kept)) = (limit, CLOCK_WAIT.get()) else {
        return libc::EINVAL;
    };
    // SAFETY: the program's own call, with a limit on this stack frame.
    let waited = unsafe { kept(condition, mutex, CLOCK_MONOTONIC, &clock::timespec(limit.real())) };
    limit.reached(waited == libc::ETIMEDOUT);
    waited
}

/// Time between two tries.
static RETRY_INTERVAL: timespec = timespec { tv_sec: 0, tv_nsec: 50_000 };

/// Tries until the result is not `EBUSY`, until a limit on a clock, or with `signals` until a
/// signal.
///
/// # Safety
/// `limit` is readable.
unsafe fn tried(
    clock: clockid_t,
    limit: *const timespec,
    signals: bool,
    mut attempt: impl FnMut() -> c_int,
) -> c_int {
    let mut result = attempt();
    if result != libc::EBUSY {
        return result;
    }
    // SAFETY: the caller promises that it is readable.
    let Some(limit) = Limit::on(clock, unsafe { *limit }) else {
        return libc::EINVAL;
    };
    let end = limit.real();
    while result == libc::EBUSY && clock::real() < end {
        // SAFETY: the kernel only reads the static time.
        let paused = unsafe {
            kernel(libc::SYS_nanosleep, [&raw const RETRY_INTERVAL as c_long, 0, 0, 0, 0, 0])
        };
        result = attempt();
        if result == libc::EBUSY && signals && paused == c_long::from(-libc::EINTR) {
            return libc::EINTR;
        }
    }
    if result == libc::EBUSY {
        limit.reached(true);
        return libc::ETIMEDOUT;
    }
    result
}

unsafe extern "C" fn mutex_timedlock(mutex: *mut pthread_mutex_t, limit: *const timespec) -> c_int {
    // SAFETY: the program's own arguments, passed on.
    unsafe { mutex_clocklock(mutex, CLOCK_REALTIME, limit) }
}

unsafe extern "C" fn mutex_clocklock(
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the program's own arguments, passed on.
    unsafe { tried(clock, limit, false, || libc::pthread_mutex_trylock(mutex)) }
}

unsafe extern "C" fn rwlock_timedrdlock(
    lock: *mut pthread_rwlock_t,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the program's own arguments, passed on.
    unsafe { rwlock_clockrdlock(lock, CLOCK_REALTIME, limit) }
}

unsafe extern "C" fn rwlock_clockrdlock(
    lock: *mut pthread_rwlock_t,
    clock: clockid_t,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the program's own arguments, passed on.
    unsafe { tried(clock, limit, false, || libc::pthread_rwlock_tryrdlock(lock)) }
}

unsafe extern "C" fn rwlock_timedwrlock(
    lock: *mut pthread_rwlock_t,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the program's own arguments, passed on.
    unsafe { rwlock_clockwrlock(lock, CLOCK_REALTIME, limit) }
}

unsafe extern "C" fn rwlock_clockwrlock(
    lock: *mut pthread_rwlock_t,
    clock: clockid_t,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the program's own arguments, passed on.
    unsafe { tried(clock, limit, false, || libc::pthread_rwlock_trywrlock(lock)) }
}

unsafe extern "C" fn semaphore_timedwait(semaphore: *mut sem_t, limit: *const timespec) -> c_int {
    // SAFETY: the program's own arguments, passed on.
    unsafe { semaphore_clockwait(semaphore, CLOCK_REALTIME, limit) }
}

unsafe extern "C" fn semaphore_clockwait(
    semaphore: *mut sem_t,
    clock: clockid_t,
    limit: *const timespec,
) -> c_int {
    // SAFETY: the program's own semaphore.
    let attempt = || match unsafe { libc::sem_trywait(semaphore) } {
        0 => 0,
        _ if clock::errno() == libc::EAGAIN => libc::EBUSY,
        _ => clock::errno(),
    };
    // SAFETY: the program's own arguments, passed on.
    match unsafe { tried(clock, limit, true, attempt) } {
        0 => 0,
        error => clock::fail(error),
    }
}

/// A system call by number. Only the limits of futex waits are changed, and the trap of cycles is
/// turned off before another program begins.
unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let mut given = [a, b, c, d, e, f];
    if matches!(number, libc::SYS_execve | libc::SYS_execveat) {
        // SAFETY: the program's own call.
        return replaced::become_another(|| unsafe { -kernel(number, given) } as c_int).into();
    }
    // SAFETY: called only for futex waits, where `d` is an address that the program may read, or
    // null.
    let wished = || unsafe { (d as *const timespec).as_ref() }.copied();
    let real;
    let limit = match (number, b as c_int & libc::FUTEX_CMD_MASK) {
        // This limit is a length of time.
        (libc::SYS_futex, libc::FUTEX_WAIT) => {
            wished().map(|time| Limit::after(clock::duration(time)))
        }
        (libc::SYS_futex, libc::FUTEX_WAIT_BITSET) => {
            let clock = match b as c_int & libc::FUTEX_CLOCK_REALTIME {
                0 => CLOCK_MONOTONIC,
                _ => CLOCK_REALTIME,
            };
            let limit = wished().and_then(|limit| Limit::on(clock, limit));
            if let Some(limit) = &limit {
                real = clock::timespec(limit.real());
                given[1] = c_long::from(b as c_int & !libc::FUTEX_CLOCK_REALTIME);
                given[3] = &raw const real as c_long;
            }
            limit
        }
        _ => None,
    };
    // SAFETY: the program's own call; a replaced limit outlives it.
    let result = unsafe { kernel(number, given) };
    match result {
        -4095..0 => {
            if let Some(limit) = limit {
                limit.reached(result == c_long::from(-libc::ETIMEDOUT));
            }
            clock::fail(-result as c_int).into()
        }
        _ => result,
    }
}

/// A system call; errors are negative numbers.
///
/// # Safety
/// The arguments are right for the call.
unsafe fn kernel(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    let result;
    // SAFETY: the caller promises the arguments; the kernel keeps all registers but these.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}
