//! Waits of a program's threads for each other, in an attached process.
//!
//! Other threads compute in real time, so who waits for them does. But how long at most, the program has said by the machine's clocks, which the kernel
//! knows nothing of: it is asked to wait for as long in real time; and where nothing has come, as much time has passed in the machine.
//!
//! The functions that name no clock are replaced, and pass on to those that do, which stay. Rust's threads wait by number.

use super::attached;
use super::clock::{self, SWITCHED_ON};
use libc::{c_int, c_long};
use std::time::Duration;

unsafe extern "C" {
    fn pthread_cond_clockwait(
        condition: *mut libc::pthread_cond_t,
        mutex: *mut libc::pthread_mutex_t,
        clock: c_int,
        limit: *const libc::timespec,
    ) -> c_int;
    fn pthread_mutex_clocklock(mutex: *mut libc::pthread_mutex_t, clock: c_int, limit: *const libc::timespec) -> c_int;
    fn sem_clockwait(semaphore: *mut libc::sem_t, clock: c_int, limit: *const libc::timespec) -> c_int;
}

/// libc's functions, and what stands in their places.
pub(super) fn replacements() -> [(usize, usize); 4] {
    [
        (
            libc::pthread_cond_timedwait as *const () as usize,
            cond_timedwait as *const () as usize,
        ),
        (
            libc::pthread_mutex_timedlock as *const () as usize,
            mutex_timedlock as *const () as usize,
        ),
        (libc::sem_timedwait as *const () as usize, sem_timedwait as *const () as usize),
        (libc::syscall as *const () as usize, syscall as *const () as usize),
    ]
}

/// Longer than any run: so sums with it are times.
const LONGEST: Duration = Duration::from_secs(1 << 32);

/// A limit to a wait.
struct Limit {
    /// How far ahead it is.
    ahead: Duration,
    /// Where the kernel's monotonic clock will be then.
    real: libc::timespec,
}

impl Limit {
    /// A time on one of the machine's clocks. What is no time is for libc to refuse.
    fn on(clock: c_int, limit: libc::timespec) -> Limit {
        let (Ok(seconds), Ok(nanos @ ..1_000_000_000)) = (u64::try_from(limit.tv_sec), u32::try_from(limit.tv_nsec)) else {
            return Limit {
                ahead: Duration::ZERO,
                real: limit,
            };
        };
        let ahead = clock::until(clock, Duration::new(seconds, nanos)).min(LONGEST);
        Limit {
            ahead,
            real: clock::timespec(clock::real() + ahead),
        }
    }

    /// A wait to it has ended; `late`: because of it.
    fn reached(&self, late: bool) {
        if late && !self.ahead.is_zero() {
            attached::sleep(self.ahead);
        }
    }
}

/// A condition knows its clock, and does not tell. But no time of a run is after 2000 on the monotonic one, nor before on the other.
fn clock_of(limit: &libc::timespec) -> c_int {
    match u64::try_from(limit.tv_sec) {
        Ok(SWITCHED_ON..) => libc::CLOCK_REALTIME,
        _ => libc::CLOCK_MONOTONIC,
    }
}

unsafe extern "C" fn cond_timedwait(
    condition: *mut libc::pthread_cond_t,
    mutex: *mut libc::pthread_mutex_t,
    limit: *const libc::timespec,
) -> c_int {
    // SAFETY: the program's, and its call, but for the clock.
    unsafe {
        let limit = Limit::on(clock_of(&*limit), *limit);
        let waited = pthread_cond_clockwait(condition, mutex, libc::CLOCK_MONOTONIC, &limit.real);
        limit.reached(waited == libc::ETIMEDOUT);
        waited
    }
}

unsafe extern "C" fn mutex_timedlock(mutex: *mut libc::pthread_mutex_t, limit: *const libc::timespec) -> c_int {
    // SAFETY: as above.
    unsafe {
        let limit = Limit::on(libc::CLOCK_REALTIME, *limit);
        let locked = pthread_mutex_clocklock(mutex, libc::CLOCK_MONOTONIC, &limit.real);
        limit.reached(locked == libc::ETIMEDOUT);
        locked
    }
}

unsafe extern "C" fn sem_timedwait(semaphore: *mut libc::sem_t, limit: *const libc::timespec) -> c_int {
    // SAFETY: as above.
    unsafe {
        let limit = Limit::on(libc::CLOCK_REALTIME, *limit);
        let waited = sem_clockwait(semaphore, libc::CLOCK_MONOTONIC, &limit.real);
        if waited != 0 && clock::errno() == libc::ETIMEDOUT {
            limit.reached(true);
            clock::fail(libc::ETIMEDOUT);
        }
        waited
    }
}

/// A call by number, of which only timed waits for a word are not passed on as they are.
unsafe extern "C" fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long {
    let mut given = [a, b, c, d, e, f];
    // SAFETY: the program's, or null.
    let timespec = || unsafe { (d as *const libc::timespec).as_ref() }.copied();
    let limit = match (number, b as c_int & libc::FUTEX_CMD_MASK) {
        (libc::SYS_futex, libc::FUTEX_WAIT) => timespec().map(|limit| Limit {
            ahead: clock::duration(limit),
            real: limit,
        }),
        (libc::SYS_futex, libc::FUTEX_WAIT_BITSET) => timespec().map(|limit| match b as c_int & libc::FUTEX_CLOCK_REALTIME {
            0 => Limit::on(libc::CLOCK_MONOTONIC, limit),
            _ => Limit::on(libc::CLOCK_REALTIME, limit),
        }),
        _ => None,
    };
    if let Some(limit) = &limit {
        given[1] = c_long::from(b as c_int & !libc::FUTEX_CLOCK_REALTIME);
        given[3] = &raw const limit.real as c_long;
    }
    // SAFETY: the program's call; a limit in its place lives until it returns.
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

/// The kernel's answer, an error as a negative number.
///
/// # Safety
/// That of the call.
unsafe fn kernel(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> c_long {
    let result;
    // SAFETY: the caller's promise; the kernel keeps all registers but these.
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
