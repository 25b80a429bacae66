//! Waits for descriptors, in an attached process.
//!
//! Programs sleep by them too: with no descriptors, they wait for nothing but time, and that is the
//! machine's. With some, they wait for what is outside of the machine, in real time; and where
//! nothing has come for so long, as much time has passed in the machine.

use super::{attached, clock};
use libc::{c_int, c_long, c_void};
use std::ptr::{null, null_mut};
use std::time::Duration;

/// libc's functions, and what stands in their places.
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

/// Waits for so long, or without end, by `ask`, which asks the kernel for just that: with 0 when
/// nothing has come in that time.
fn wait(timeout: Option<Duration>, for_nothing: bool, ask: impl FnOnce() -> c_long) -> c_int {
    match timeout {
        Some(time) if for_nothing && attached::sleep(time) => 0,
        Some(time) => {
            let found = ask() as c_int;
            if found == 0 && !time.is_zero() {
                attached::sleep(time);
            }
            found
        }
        None => ask() as c_int,
    }
}

/// Nothing for no end.
fn millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

unsafe extern "C" fn poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the program's call, as it is.
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
    // SAFETY: the program's, or null.
    let mut time = unsafe { timeout.as_ref() }.copied();
    let wished = time.map(clock::duration);
    // A time that is none is for the kernel to refuse, which it does at once. It changes the time;
    // libc's does not.
    let left = time.as_mut().map_or(null_mut(), |time| &raw mut *time);
    // SAFETY: the program's call, as it is.
    wait(wished, count == 0 && mask.is_null(), || unsafe {
        libc::syscall(libc::SYS_ppoll, fds, count, left, mask, KERNEL_MASK)
    })
}

/// Bytes of a set of signals, as the kernel has it.
const KERNEL_MASK: usize = 8;

/// `time` becomes what is left of it.
fn selected(
    count: c_int,
    sets: [*mut libc::fd_set; 3],
    time: Option<&mut libc::timespec>,
    mask: *const libc::sigset_t,
) -> c_int {
    let wished = time.as_deref().copied().map(clock::duration);
    let for_nothing = mask.is_null() && (count == 0 || sets.iter().all(|set| set.is_null()));
    let left = time.map_or(null_mut(), |time| &raw mut *time);
    let mask = [mask as usize, KERNEL_MASK];
    let [read, write, other] = sets;
    // SAFETY: the program's call, as it is; the kernel reads `mask` and writes `left`.
    wait(wished, for_nothing, || unsafe {
        libc::syscall(libc::SYS_pselect6, count, read, write, other, left, mask.as_ptr())
    })
}

unsafe extern "C" fn select(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    other: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: the program's, or null.
    let timeout = unsafe { timeout.as_mut() };
    let mut time = timeout.as_ref().map(|time| libc::timespec {
        tv_sec: time.tv_sec,
        tv_nsec: time.tv_usec.saturating_mul(1000),
    });
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
    // SAFETY: the program's, or null.
    let mut time = unsafe { timeout.as_ref() }.copied();
    selected(count, [read, write, other], time.as_mut(), mask)
}

unsafe extern "C" fn epoll_wait(
    epoll: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: as the caller's.
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
    // SAFETY: the program's call, as it is.
    wait(millis(timeout), false, || unsafe {
        libc::syscall(libc::SYS_epoll_pwait, epoll, events, most, timeout, mask, KERNEL_MASK)
    })
}
