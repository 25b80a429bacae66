//! Data that many threads read at a time, or one changes, an extension.

use super::mutex::{Data, copy_in, in_time, insert, limit, zeros};
use crate::state::handle::{RwLock, Stats, Table};
use crate::state::lock::lock;
use crate::state::{check_result, die, get as state, or_die};
use memonet_core::dsm;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::thread::ThreadId;

/// The table of locks. It is static because most of its pages are never touched.
pub static ALL: Table<Made, 65536> = Table::new();

/// A guard of a lock.
enum Held {
    Reading(dsm::ReadGuard<'static, Data>),
    Writing(dsm::WriteGuard<'static, Data>),
}

/// A lock, with the guards that threads of this PE hold. The guards borrow from the `Arc`, whose
/// contents do not move.
pub struct Made {
    // The first field, so that the guards are dropped before the lock.
    held: std::sync::Mutex<Vec<(ThreadId, Held)>>,
    lock: Arc<dsm::RwLock<Data>>,
}

impl Made {
    /// Keeps a guard until this thread releases it, and gives the address of the data.
    fn hold(&self, guard: Held) -> *mut c_void {
        lock(&self.held).push((std::thread::current().id(), guard));
        self.lock.data_ptr().cast()
    }

    fn read(&self, guard: dsm::ReadGuard<'static, Data>) -> *const c_void {
        self.hold(Held::Reading(guard))
    }

    fn write(&self, mut guard: dsm::WriteGuard<'static, Data>) -> *mut c_void {
        // A guard that gives its data to be changed is one that may have changed them.
        let _: &mut Data = &mut guard;
        self.hold(Held::Writing(guard))
    }
}

fn made(call: &'static str, rwlock: RwLock) -> &'static Made {
    // SAFETY: programs do not destroy locks that they use.
    match unsafe { ALL.get(rwlock.0) } {
        Some(made) => made,
        None => die(call, "rwlock: this is no reader-writer lock, or it was destroyed before"),
    }
}

/// Collective over all PEs. The data begin as the `initial` of one PE, or as zeros.
pub unsafe fn create(
    call: &'static str,
    initial: *const c_void,
    bytes: usize,
    rwlock: *mut RwLock,
) -> c_int {
    let state = state(call);
    check_result(call, "rwlock", rwlock);
    let mut data = zeros(call, bytes);
    // SAFETY: the program's source has `bytes` bytes, and the vector has room for them.
    unsafe { copy_in(&mut data, 0, initial.cast(), bytes) };
    let handle = insert(call, &ALL, dsm::RwLock::new(&state.job, &data[..]), |lock| Made {
        held: Default::default(),
        lock: Arc::new(lock),
    });
    // SAFETY: the program's variable.
    unsafe { *rwlock = RwLock(handle.unwrap_or(0)) };
    c_int::from(handle.is_none())
}

/// Waits until the data may be read. Gives their address, which is valid until the release.
pub unsafe fn acquire_read(call: &'static str, rwlock: RwLock) -> *const c_void {
    let _state = state(call);
    let made = made(call, rwlock);
    made.read(or_die(call, made.lock.read()))
}

/// As `acquire_read`, or null if that needs waiting for other threads.
pub unsafe fn try_acquire_read(call: &'static str, rwlock: RwLock) -> *const c_void {
    let _state = state(call);
    let made = made(call, rwlock);
    or_die(call, made.lock.try_read()).map_or(std::ptr::null(), |guard| made.read(guard))
}

/// As `acquire_read`, or null if `seconds` pass before.
pub unsafe fn timed_acquire_read(
    call: &'static str,
    rwlock: RwLock,
    seconds: f64,
) -> *const c_void {
    let _state = state(call);
    let (made, limit) = (made(call, rwlock), limit(call, seconds));
    in_time(call, made.lock.read_timeout(limit)).map_or(std::ptr::null(), |guard| made.read(guard))
}

/// Waits until the data may be changed. Gives their address, which is valid until the release.
pub unsafe fn acquire_write(call: &'static str, rwlock: RwLock) -> *mut c_void {
    let _state = state(call);
    let made = made(call, rwlock);
    made.write(or_die(call, made.lock.write()))
}

/// As `acquire_write`, or null if that needs waiting for other threads.
pub unsafe fn try_acquire_write(call: &'static str, rwlock: RwLock) -> *mut c_void {
    let _state = state(call);
    let made = made(call, rwlock);
    or_die(call, made.lock.try_write()).map_or(std::ptr::null_mut(), |guard| made.write(guard))
}

/// As `acquire_write`, or null if `seconds` pass before.
pub unsafe fn timed_acquire_write(call: &'static str, rwlock: RwLock, seconds: f64) -> *mut c_void {
    let _state = state(call);
    let (made, limit) = (made(call, rwlock), limit(call, seconds));
    in_time(call, made.lock.write_timeout(limit))
        .map_or(std::ptr::null_mut(), |guard| made.write(guard))
}

/// Releases what this thread holds.
pub unsafe fn release(call: &'static str, rwlock: RwLock) {
    let _state = state(call);
    let made = made(call, rwlock);
    let held = {
        let mut held = lock(&made.held);
        let me = std::thread::current().id();
        held.iter().position(|&(thread, _)| thread == me).map(|place| held.swap_remove(place).1)
    };
    match held {
        Some(Held::Reading(guard)) => or_die(call, guard.release()),
        Some(Held::Writing(guard)) => or_die(call, guard.release()),
        None => die(
            call,
            "rwlock: this thread has not acquired it; call shmemx_rwlock_acquire_read or shmemx_rwlock_acquire_write before",
        ),
    }
}

pub unsafe fn stats(call: &'static str, rwlock: RwLock, stats: *mut Stats) {
    let _state = state(call);
    check_result(call, "stats", stats);
    // SAFETY: the program's variable.
    unsafe { *stats = made(call, rwlock).lock.stats().into() };
}

/// Each PE destroys the lock when no PE uses it any more. The memory is free when all have.
pub unsafe fn destroy(call: &'static str, rwlock: RwLock) {
    let _state = state(call);
    made(call, rwlock);
    // SAFETY: programs do not destroy locks that they use.
    drop(unsafe { ALL.remove(rwlock.0) });
}
