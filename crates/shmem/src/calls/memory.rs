//! The symmetric heap. All calls are collective over all PEs, and contain a barrier where the
//! standard says so.

use crate::state::environment::{self, ENV_LIMIT};
use crate::state::lock::lock;
use crate::state::{State, die, fail, get, or_die};
use memonet_core::Error;
use memonet_core::unstable::launch::parse_standard_size;
use memonet_core::unstable::segment::Allowance;
use std::ffi::{c_long, c_void};
use std::sync::{Mutex, MutexGuard, Once};

/// The memory in use and its limit.
static HEAP: Mutex<Heap> = Mutex::new(Heap { used: 0, limit: None });

struct Heap {
    /// Allocated bytes, as the program asked for them. Equal on all PEs.
    used: u64,
    /// From this PE's environment: allocations compare it between all PEs.
    limit: Option<u64>,
}

fn heap() -> MutexGuard<'static, Heap> {
    lock(&HEAP)
}

/// Begins with an empty heap: frees the blocks that an earlier use of the library has left.
/// *Collective.*
///
/// # Errors
/// As for [`Job::release`](memonet_core::Job::release); [`Error::Environment`].
pub fn begin(state: &State) -> Result<(), Error> {
    let mut heap = heap();
    for offset in state.job.blocks() {
        state.job.release(offset)?;
    }
    heap.used = 0;
    heap.limit = None;
    if let Some((name, value)) = environment::standard(ENV_LIMIT) {
        let value = value.to_string_lossy().into_owned();
        let limit = parse_standard_size(&value).ok_or(Error::Environment {
            name,
            value,
            problem: "is not a size".into(),
            fix: "Give bytes, or a number with K, M, G or T, such as 512M or 1.5G; or unset it: no limit is needed",
        })?;
        heap.limit = Some(limit);
    }
    Ok(())
}

fn allocate(call: &'static str, bytes: usize, align: usize, zeroed: bool) -> *mut c_void {
    allocate_instead(call, 0, bytes, align, zeroed)
}

/// As [`allocate`], but for a block that replaces one of `old` bytes: the limit does not count
/// both.
fn allocate_instead(
    call: &'static str,
    old: usize,
    bytes: usize,
    align: usize,
    zeroed: bool,
) -> *mut c_void {
    let state = get(call);
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    // The lock on `HEAP` is not kept: other PEs may need calls of other threads of this PE before
    // they come here, and those threads may lock `HEAP`.
    let (limit, in_use) = {
        let heap = heap();
        (heap.limit, heap.used)
    };
    let allowance = Allowance { limit, used: in_use - old as u64 };
    match state.job.allocate_within(bytes, align, zeroed, allowance) {
        Ok(Some(offset)) => {
            heap().used += bytes as u64;
            state.segment.local().wrapping_add(offset as usize).cast()
        }
        Ok(None) => {
            tell_limit(state, call, bytes, in_use, limit.unwrap_or_default());
            std::ptr::null_mut()
        }
        Err(error @ Error::OutOfMemory { .. }) => {
            tell_once(state, call, error);
            std::ptr::null_mut()
        }
        Err(error) => fail(call, error),
    }
}

#[cold]
fn tell_limit(state: &State, call: &'static str, bytes: usize, used: u64, limit: u64) {
    let (name, value) = environment::standard(ENV_LIMIT).unwrap_or((ENV_LIMIT[0], "unset".into()));
    let value = value.to_string_lossy();
    tell_once(
        state,
        call,
        format_args!(
            "{bytes} bytes beside the {used} in use are more than {name}={value} allows, {limit} bytes: raise it, or unset it"
        ),
    );
}

/// Prints why a call gives NULL, the first time: many programs do not check. All PEs fail alike, so
/// only PE 0 prints.
#[cold]
fn tell_once(state: &State, call: &'static str, why: impl std::fmt::Display) {
    static TOLD: Once = Once::new();
    if state.job.pe() == 0 {
        TOLD.call_once(|| eprintln!("memonet: {call} gives NULL: {why}"));
    }
}

/// The offset and size of the block that begins at an address. Ends the job if there is none.
fn block(state: &State, call: &'static str, address: *mut c_void) -> (u64, usize) {
    let offset = (address as usize).wrapping_sub(state.segment.local() as usize) as u64;
    match state.job.block_around(offset).filter(|block| block.start == offset) {
        Some(block) => (offset, (block.end - offset) as usize),
        None => die(
            call,
            format_args!(
                "ptr: no allocated block begins at {address:p}; was it freed before, or is it not of shmem_malloc?"
            ),
        ),
    }
}

fn release(state: &State, call: &'static str, address: *mut c_void) {
    let (offset, bytes) = block(state, call, address);
    or_die(call, state.job.quiet());
    or_die(call, state.job.release(offset));
    heap().used -= bytes as u64;
}

/// Gives a block of `old` bytes another size that fits where it is. Gives its address, or NULL
/// where it is over the limit.
fn resize(
    state: &State,
    call: &'static str,
    (offset, old): (u64, usize),
    bytes: usize,
) -> *mut c_void {
    let (limit, in_use) = {
        let heap = heap();
        (heap.limit, heap.used)
    };
    let allowance = Allowance { limit, used: in_use - old as u64 };
    // The end of the block may be another's after this.
    or_die(call, state.job.quiet());
    if !or_die(call, state.job.resize(offset, bytes, allowance)) {
        tell_limit(state, call, bytes, in_use, limit.unwrap_or_default());
        return std::ptr::null_mut();
    }
    let mut heap = heap();
    heap.used = heap.used - old as u64 + bytes as u64;
    state.segment.local().wrapping_add(offset as usize).cast()
}

pub unsafe fn malloc(call: &'static str, size: usize) -> *mut c_void {
    allocate(call, size, 16, false)
}

/// Hints change nothing: all symmetric memory is equally good for everything.
pub unsafe fn malloc_with_hints(call: &'static str, size: usize, _hints: c_long) -> *mut c_void {
    allocate(call, size, 16, false)
}

pub unsafe fn calloc(call: &'static str, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        Some(bytes) => allocate(call, bytes, 16, true),
        None => {
            get(call);
            std::ptr::null_mut()
        }
    }
}

pub unsafe fn align(call: &'static str, alignment: usize, size: usize) -> *mut c_void {
    get(call);
    // The standard asks for at least the alignment of a pointer, but programs use smaller ones.
    if !alignment.is_power_of_two() || alignment as u64 > memonet_core::unstable::layout::ALIGNMENT
    {
        return std::ptr::null_mut();
    }
    allocate(call, size, alignment, false)
}

pub unsafe fn free(call: &'static str, ptr: *mut c_void) {
    let state = get(call);
    if !ptr.is_null() {
        release(state, call, ptr);
    }
}

pub unsafe fn realloc(call: &'static str, ptr: *mut c_void, size: usize) -> *mut c_void {
    let state = get(call);
    if ptr.is_null() {
        return allocate(call, size, 16, false);
    }
    let (offset, old) = block(state, call, ptr);
    if size == 0 {
        release(state, call, ptr);
        return std::ptr::null_mut();
    }
    if state.job.fits(offset, size) {
        return resize(state, call, (offset, old), size);
    }
    let new = allocate_instead(call, old, size, 16, false);
    if !new.is_null() {
        // All PEs have come here, so their puts into the old block have arrived. SAFETY: `block`
        // and the allocation give two separate blocks of this PE's segment, of `old` and `size`
        // bytes.
        unsafe { memonet_core::unstable::shm::copy(new.cast(), ptr.cast(), old.min(size)) };
        release(state, call, ptr);
    }
    new
}
