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
    match timeout {
        Some(time) if for_nothing && process::sleep(time) => 0,
        Some(time) => {
            let found = ask() as c_int;
            if found == 0 && !time.is_zero() {
                process::sleep(time);
            }
            found
        }
        None => ask() as c_int,
    }
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
    let wished = time.map(clock::duration);
    // The kernel refuses an invalid time at once. It changes its time; libc's function does not, so
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
    let wished = time.as_deref().copied().map(clock::duration);
    let for_nothing = mask.is_null() && (count == 0 || sets.iter().all(|set| set.is_null()));
    let left = time.map_or(null_mut(), |time| &raw mut *time);
    let mask = [mask as usize, KERNEL_MASK_BYTES];
    let [read, write, other] = sets;
    // SAFETY: the program's own call, passed on; the kernel reads `mask` and writes `left`.
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
    // SAFETY: the program passes an address that it may write, or null.
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
