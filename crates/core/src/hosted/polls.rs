//! Waits for descriptors, in an attached process.
//!
//! Without descriptors such a wait is a sleep, in the machine's time. With descriptors it waits for
//! events outside of the machine, in real time; after a timeout, as much time passes in the
//! machine.

use super::{clock, process};
use libc::{c_int, c_long, c_void};
use std::ptr::{null, null_mut};
use std::time::Duration;

/// Functions of libc, each with its replacement.
pub(super) fn replacements() -> [(usize, usize); 6] {
    [
        (libc::poll as *const () as usize, poll as *const () as usize),
        (libc::ppoll as *const () as usize, ppoll as *const () as usize),
        (libc::select as *const () as usize, select as *const () as usize),
        (libc::pselect as *const () as usize, pselect as *const () as usize),
        (libc::epoll_wait as *const () as usize, epoll_wait as *const () as usize),
        (libc::epoll_pwait as *const () as usize, epoll_pwait as *const () as usize),
    ]
}

/// Waits for at most `timeout` by `ask`, which makes the kernel's call: 0 after a timeout. With
/// `for_nothing` there is nothing to wait for but time.
fn wait(timeout: Option<Duration>, for_nothing: bool, ask: impl FnOnce() -> c_long) -> c_int {
    let Some(time) = timeout.filter(|_| !clock::are_kernels()) else { return ask() as c_int };
    let end = clock::now().saturating_add(time);
    if for_nothing && process::sleep(time) {
        return 0;
    }
    let found = ask() as c_int;
    if found == 0 && !time.is_zero() {
        process::waited_until(end);
    }
    found
}

/// `None` for a wait without end.
fn millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

unsafe extern "C" fn poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the program's own call, passed on.
    wait(millis(timeout), count == 0, || unsafe {
        libc::syscall(libc::SYS_poll, fds, count, timeout)
    })
}

unsafe extern "C" fn ppoll(
    fds: *mut libc::pollfd,
    count: libc::nfds_t,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: the program passes an address that it may read, or null.
    let mut time = unsafe { timeout.as_ref() }.copied();
    // The kernel refuses an invalid time at once.
    let wished = time.and_then(clock::valid);
    // The kernel changes its time; libc's function does not, so
    // it gets a copy.
    let left = time.as_mut().map_or(null_mut(), |time| &raw mut *time);
    // SAFETY: the program's own call, passed on.
    wait(wished, count == 0 && mask.is_null(), || unsafe {
        libc::syscall(libc::SYS_ppoll, fds, count, left, mask, KERNEL_MASK_BYTES)
    })
}

/// Size of the kernel's set of signals.
const KERNEL_MASK_BYTES: usize = 8;

/// The kernel's `pselect`. `time` becomes the time left.
fn selected(
    count: c_int,
    sets: [*mut libc::fd_set; 3],
    time: Option<&mut libc::timespec>,
    mask: *const libc::sigset_t,
) -> c_int {
    // The kernel refuses an invalid time at once.
    let wished = time.as_deref().copied().and_then(clock::valid);
    let for_nothing = mask.is_null() && (count == 0 || sets.iter().all(|set| set.is_null()));
    let left = time.map_or(null_mut(), |time| &raw mut *time);
    let mask = [mask as usize, KERNEL_MASK_BYTES];
    let [read, write, other] = sets;
    // SAFETY: the program's own call, passed on; the kernel reads `mask` and writes `left`.
    wait(wished, for_nothing, || unsafe {
        libc::syscall(libc::SYS_pselect6, count, read, write, other, left, mask.as_ptr())
    })
}

/// A length of time as libc's `select` takes it, with any number of microseconds; `None` for what
/// that refuses.
fn time_of(time: libc::timeval) -> Option<libc::timespec> {
    if time.tv_sec < 0 || time.tv_usec < 0 {
        return None;
    }
    let nanos = time.tv_usec % 1_000_000 * 1000;
    let whole = time.tv_sec.checked_add(time.tv_usec / 1_000_000);
    let longest = libc::timespec { tv_sec: libc::time_t::MAX, tv_nsec: 999_999_999 };
    Some(whole.map_or(longest, |seconds| libc::timespec { tv_sec: seconds, tv_nsec: nanos }))
}

unsafe extern "C" fn select(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    other: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: the program passes an address that it may write, or null.
    let timeout = unsafe { timeout.as_mut() };
    let mut time = match timeout.as_deref().copied().map(time_of) {
        Some(None) => return clock::fail(libc::EINVAL),
        time => time.flatten(),
    };
    let found = selected(count, [read, write, other], time.as_mut(), null());
    if let (Some(timeout), Some(time), 0..) = (timeout, time, found) {
        let left = if found == 0 { (0, 0) } else { (time.tv_sec, time.tv_nsec / 1000) };
        (timeout.tv_sec, timeout.tv_usec) = left;
    }
    found
}

unsafe extern "C" fn pselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    other: *mut libc::fd_set,
    timeout: *const libc::timespec,
    mask: *const libc::sigset_t,
) -> c_int {
    // SAFETY: the program passes an address that it may read, or null.
    let mut time = unsafe { timeout.as_ref() }.copied();
    selected(count, [read, write, other], time.as_mut(), mask)
}

unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the program's own arguments, passed on.
    unsafe { epoll_pwait(epoll, events, most, timeout, null()) }
}

unsafe extern "C" fn epoll_pwait(
    epoll: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout: c_int,
    mask: *const libc::sigset_t,
) -> c_int {
    let mask = mask.cast::<c_void>();
    // SAFETY: the program's own call, passed on.
    wait(millis(timeout), false, || unsafe {
        libc::syscall(libc::SYS_epoll_pwait, epoll, events, most, timeout, mask, KERNEL_MASK_BYTES)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn microseconds_may_be_seconds() {
        let of = |tv_sec, tv_usec| {
            time_of(libc::timeval { tv_sec, tv_usec }).map(|time| (time.tv_sec, time.tv_nsec))
        };
        assert_eq!(of(0, 0), Some((0, 0)));
        assert_eq!(of(3, 2_500_001), Some((5, 500_001_000)));
        assert_eq!(of(i64::MAX, 1_000_000), Some((i64::MAX, 999_999_999)));
        assert_eq!((of(-1, 5), of(5, -1)), (None, None));
    }
}
