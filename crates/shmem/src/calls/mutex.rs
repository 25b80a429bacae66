//! Data that belong to a lock, an extension.

use crate::state::handle::{Mutex, Table};
use crate::state::lock::lock;
use crate::state::{check_result, die, get as state, or_die};
use memonet_core::dsm;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, MutexGuard};

/// The data of a mutex, aligned for any C type.
type Data = [u128];

/// The table of mutexes. It is static because most of its pages are never touched.
pub static ALL: Table<Made, 65536> = Table::new();

/// A mutex, with its guard while this PE holds it. The guard borrows from the `Arc`, whose contents
/// do not move.
pub struct Made {
    // The first field, so that the guard is dropped before the mutex.
    held: std::sync::Mutex<Option<dsm::Guard<'static, Data>>>,
    mutex: Arc<dsm::Mutex<Data>>,
}

impl Made {
    fn held(&self) -> MutexGuard<'_, Option<dsm::Guard<'static, Data>>> {
        lock(&self.held)
    }
}

fn made(call: &'static str, mutex: Mutex) -> &'static Made {
    // SAFETY: programs do not destroy mutexes that they use.
    match unsafe { ALL.get(mutex.0) } {
        Some(made) => made,
        None => die(call, "mutex: this is no mutex, or it was destroyed before"),
    }
}

/// Collective over all PEs. The data begin as the `initial` of one PE, or as zeros.
pub unsafe fn create(
    call: &'static str,
    initial: *const c_void,
    bytes: usize,
    mutex: *mut Mutex,
) -> c_int {
    let state = state(call);
    check_result(call, "mutex", mutex);
    let mut data = Vec::new();
    let count = bytes.div_ceil(size_of::<u128>());
    if data.try_reserve_exact(count).is_err() {
        die(call, format_args!("bytes: there is no memory for {bytes} bytes of data"));
    }
    data.resize(count, 0u128);
    if !initial.is_null() {
        // SAFETY: the program's source has `bytes` bytes, and the vector has room for them; any
        // bytes are a value of `u128`.
        unsafe {
            std::ptr::copy_nonoverlapping(initial.cast::<u8>(), data.as_mut_ptr().cast(), bytes)
        };
    }
    let handle = match dsm::Mutex::new(&state.job, &data[..]) {
        Ok(mutex) => ALL.insert(Made { held: Default::default(), mutex: Arc::new(mutex) }),
        // All PEs get these errors alike.
        Err(memonet_core::Error::TooMany { .. } | memonet_core::Error::OutOfMemory { .. }) => None,
        Err(error) => die(call, error),
    };
    // SAFETY: the program's variable.
    unsafe { *mutex = Mutex(handle.unwrap_or(0)) };
    c_int::from(handle.is_none())
}

/// Waits for the data. Gives their address, which is valid until the release.
pub unsafe fn acquire(call: &'static str, mutex: Mutex) -> *mut c_void {
    let _state = state(call);
    let made = made(call, mutex);
    let mut guard = or_die(call, made.mutex.lock());
    let data = guard.as_mut_ptr().cast();
    *made.held() = Some(guard);
    data
}

pub unsafe fn release(call: &'static str, mutex: Mutex) {
    let _state = state(call);
    let held = made(call, mutex).held().take();
    match held {
        Some(guard) => or_die(call, guard.release()),
        None => die(call, "mutex: this PE has not acquired it; call shmemx_mutex_acquire before"),
    }
}

/// Each PE destroys the mutex when no PE uses it any more. The memory is free when all have.
pub unsafe fn destroy(call: &'static str, mutex: Mutex) {
    let _state = state(call);
    made(call, mutex);
    // SAFETY: programs do not destroy mutexes that they use.
    drop(unsafe { ALL.remove(mutex.0) });
}
