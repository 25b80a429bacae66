//! Initialising and finalising the library, and questions about the job.

use crate::calls::{
    active_set, barrier, memory, messages, multicast, mutex, region, rwlock, supersteps, transfer,
    window,
};
use crate::state::environment::{self, VENDOR};
use crate::state::lock::lock;
use crate::state::{check_result, contexts, current, die, get, join, or_die, set_current, teams};
use memonet_core::unstable::ending;
use memonet_core::unstable::launch::Participation;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

const MAX_NAME_LEN: usize = 64;
const MULTIPLE: c_int = 3;

/// The number of calls of `shmem_init` without a matching `shmem_finalize`.
static DEPTH: Mutex<usize> = Mutex::new(0);
static LEVEL: AtomicI32 = AtomicI32::new(0);

/// Runs when the library is loaded: a PE of a job joins the job before the program begins.
extern "C" fn load() {
    if memonet_core::unstable::launch::is_pe() {
        // `shmem_init` reports an error; a program that never calls it is not concerned.
        // SAFETY: the loader runs this before `main`, so the program has no other threads.
        let _ = unsafe { join() };
    }
}

/// The priority places it before the constructors of statically linked programs.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static LOAD: extern "C" fn() = load;

pub unsafe fn init(call: &'static str) {
    // SAFETY: the caller's promise.
    unsafe { init_thread(call, MULTIPLE, std::ptr::null_mut()) };
}

pub unsafe fn init_thread(call: &'static str, requested: c_int, provided: *mut c_int) -> c_int {
    if !(0..=MULTIPLE).contains(&requested) {
        die(call, format_args!("requested: {requested} is no thread level"));
    }
    let mut depth = lock(&DEPTH);
    // SAFETY: with a launcher, `load` has joined already, so this is not the first call. Without
    // one, any caller may call `join`.
    let state = unsafe { join() }.unwrap_or_else(|error| die(call, error));
    if *depth == 0 {
        LEVEL.store(requested, Ordering::Relaxed);
        or_die(call, state.job.take_part(Participation::Taking));
        or_die(call, state.compare_statics());
        or_die(call, state.meet_node());
        or_die(call, memory::begin(state));
        set_current(Some(state));
        environment::tell(state);
    }
    *depth += 1;
    if !provided.is_null() {
        // SAFETY: the program's variable.
        unsafe { *provided = LEVEL.load(Ordering::Relaxed) };
    }
    0
}

pub unsafe fn finalize(call: &'static str) {
    let state = get(call);
    if ending::is_under_way() {
        // This is an exit handler of a job that is ending, so the other PEs do not come here.
        return;
    }
    if state.job.refuse_child().is_err() {
        // A process that the PE has forked off has inherited the program's exit handler.
        return;
    }
    let mut depth = lock(&DEPTH);
    or_die(call, state.job.barrier());
    *depth -= 1;
    if *depth == 0 {
        // SAFETY: a program finalises the library when no thread uses it any more.
        unsafe {
            contexts::ALL.clear();
            transfer::ALL.clear();
            supersteps::ALL.clear();
            barrier::ALL.clear();
            teams::ALL.clear();
            window::ALL.clear();
            mutex::ALL.clear();
            rwlock::ALL.clear();
            region::ALL.clear();
            messages::ALL.clear();
            multicast::ALL.clear();
        }
        active_set::clear();
        set_current(None);
        // The other PEs must see the barrier even if this process ends at once.
        or_die(call, state.job.quiet());
        or_die(call, state.job.take_part(Participation::NoMore));
    }
}

pub unsafe fn global_exit(call: &'static str, status: c_int) -> ! {
    // The end writes out what is in C's buffers, after the launcher knows of it: that may wait for
    // a thread that uses a stream, and only the launcher ends this PE then.
    get(call).job.exit(status as u8)
}

pub unsafe fn query_initialized(call: &'static str, initialized: *mut c_int) {
    check_result(call, "initialized", initialized);
    // SAFETY: the program's variable.
    unsafe { *initialized = c_int::from(current().is_some()) };
}

pub unsafe fn query_thread(call: &'static str, provided: *mut c_int) {
    get(call);
    check_result(call, "provided", provided);
    // SAFETY: the program's variable.
    unsafe { *provided = LEVEL.load(Ordering::Relaxed) };
}

#[inline]
pub unsafe fn my_pe(call: &'static str) -> c_int {
    get(call).job.pe() as c_int
}

#[inline]
pub unsafe fn n_pes(call: &'static str) -> c_int {
    get(call).job.npes() as c_int
}

pub unsafe fn pe_accessible(call: &'static str, pe: c_int) -> c_int {
    c_int::from((pe as usize) < get(call).job.npes())
}

pub unsafe fn addr_accessible(call: &'static str, addr: *const c_void, pe: c_int) -> c_int {
    let state = get(call);
    c_int::from((pe as usize) < state.job.npes() && state.is_symmetric(addr as usize))
}

pub unsafe fn ptr(call: &'static str, dest: *const c_void, pe: c_int) -> *mut c_void {
    let state = get(call);
    state.check_pe(call, "pe", pe);
    state.pointer(dest as usize, pe as usize)
}

pub unsafe fn info_get_version(call: &'static str, major: *mut c_int, minor: *mut c_int) {
    check_result(call, "major", major);
    check_result(call, "minor", minor);
    // SAFETY: the program's variables.
    unsafe { (*major, *minor) = (1, 6) };
}

pub unsafe fn info_get_name(call: &'static str, name: *mut c_char) {
    const { assert!(VENDOR.len() < MAX_NAME_LEN) };
    check_result(call, "name", name);
    // SAFETY: the program has room for `SHMEM_MAX_NAME_LEN` characters.
    unsafe {
        std::ptr::copy_nonoverlapping(VENDOR.as_ptr().cast(), name, VENDOR.len());
        *name.add(VENDOR.len()) = 0;
    }
}

/// Does nothing: profiling tools define their own `shmem_pcontrol`.
pub unsafe fn pcontrol(_call: &'static str, _level: c_int) {}

pub unsafe fn wtime(_call: &'static str) -> f64 {
    memonet_core::unstable::monotonic().as_secs_f64()
}

pub unsafe fn nodename(_call: &'static str) -> *mut c_char {
    static NAME: std::sync::OnceLock<std::ffi::CString> = std::sync::OnceLock::new();
    NAME.get_or_init(|| rustix::system::uname().nodename().to_owned()).as_ptr().cast_mut()
}
