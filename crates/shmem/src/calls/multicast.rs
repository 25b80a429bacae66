//! Multicast channels, an extension: one PE publishes blocks, and each of some others receives all
//! of them.

use crate::state::handle::{Multicast, Table};
use crate::state::lock::lock;
use crate::state::{State, bytes, check_result, die, fail, get as state, or_die};
use memonet_core::{Delivery, Error, MulticastOptions};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;

/// The table of channels. It is static because most of its pages are never touched.
pub static ALL: Table<Made, 4096> = Table::new();

/// This PE's end of a channel, and the block that it has received last, whose memory is used again.
pub struct Made {
    end: Mutex<(memonet_core::Multicast<u8>, Vec<u8>)>,
}

/// A block has come.
const CAME: c_int = 1;
/// No block has come yet.
const NOTHING: c_int = 0;
/// The writer has destroyed its end, and all of its blocks have been received.
const ENDED: c_int = -1;

fn made(call: &'static str, channel: Multicast) -> &'static Made {
    // SAFETY: programs do not destroy channels that they use.
    match unsafe { ALL.get(channel.0) } {
        Some(made) => made,
        None => die(call, "channel: this is no multicast channel, or it was destroyed before"),
    }
}

/// Collective over all PEs.
pub unsafe fn create(
    call: &'static str,
    writer: c_int,
    readers: *const c_int,
    nreaders: usize,
    capacity: usize,
    channel: *mut Multicast,
) -> c_int {
    let state = state(call);
    check_result(call, "channel", channel);
    state.check_pe(call, "writer", writer);
    if nreaders >= state.job.npes() {
        die(
            call,
            format_args!(
                "nreaders: a writer and {nreaders} readers are more PEs than are in a job of {}",
                state.job.npes()
            ),
        );
    }
    if readers.is_null() && nreaders > 0 {
        die(call, format_args!("readers: NULL has no {nreaders} PEs"));
    }
    state.check_local(call, "readers", readers as usize, nreaders * size_of::<c_int>());
    let readers: Vec<usize> = match nreaders {
        0 => Vec::new(),
        // SAFETY: the program's list has `nreaders` PEs.
        _ => unsafe { std::slice::from_raw_parts(readers, nreaders) }
            .iter()
            .map(|&pe| {
                state.check_pe(call, "readers", pe);
                pe as usize
            })
            .collect(),
    };
    let options = match capacity {
        0 => MulticastOptions::new(),
        bytes => MulticastOptions::new().capacity(bytes),
    };
    let handle = match state.job.multicast::<u8>(writer as usize, &readers, options) {
        Ok(end) => ALL.insert(Made { end: Mutex::new((end, Vec::new())) }),
        // All PEs get these errors alike.
        Err(Error::TooMany { .. } | Error::OutOfMemory { .. }) => None,
        Err(error) => fail(call, error),
    };
    // SAFETY: the program's variable.
    unsafe { *channel = Multicast(handle.unwrap_or(0)) };
    c_int::from(handle.is_none())
}

/// Publishes a block. The program may change the source at once.
pub unsafe fn publish(call: &'static str, channel: Multicast, source: *const c_void, bytes: usize) {
    let state = state(call);
    let made = made(call, channel);
    self::bytes::<u8>(call, bytes);
    if source.is_null() && bytes > 0 {
        die(call, format_args!("source: NULL has no {bytes} bytes"));
    }
    state.check_local(call, "source", source as usize, bytes);
    let block = match bytes {
        0 => &[],
        // SAFETY: the program's source has `bytes` bytes, and nobody changes them during the call.
        _ => unsafe { std::slice::from_raw_parts(source.cast::<u8>(), bytes) },
    };
    or_die(call, lock(&made.end).0.publish(block));
}

/// Copies a block to the program, which must have room for it.
unsafe fn hand_over(
    call: &'static str,
    state: &State,
    block: &[u8],
    dest: *mut c_void,
    room: usize,
    bytes: *mut usize,
) -> c_int {
    if block.len() > room {
        die(
            call,
            format_args!(
                "room: the block has {} bytes, and there is room for {room}; give room for the longest",
                block.len()
            ),
        );
    }
    if dest.is_null() && !block.is_empty() {
        die(call, format_args!("dest: NULL has no {} bytes", block.len()));
    }
    state.check_local(call, "dest", dest as usize, block.len());
    if !block.is_empty() {
        // SAFETY: the program's destination has `room` bytes, which is enough, as tested above.
        unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), dest.cast(), block.len()) };
    }
    // SAFETY: the program's variable.
    unsafe { *bytes = block.len() };
    CAME
}

/// Waits for the next block.
pub unsafe fn receive(
    call: &'static str,
    channel: Multicast,
    dest: *mut c_void,
    room: usize,
    bytes: *mut usize,
) -> c_int {
    let state = state(call);
    check_result(call, "bytes", bytes);
    let mut end = lock(&made(call, channel).end);
    let (channel, block) = &mut *end;
    match channel.recv(block) {
        // SAFETY: as the program promises.
        Ok(()) => unsafe { hand_over(call, state, block, dest, room, bytes) },
        Err(Error::Closed { .. }) => ENDED,
        Err(error) => fail(call, error),
    }
}

/// Takes the next block, if it has come.
pub unsafe fn try_receive(
    call: &'static str,
    channel: Multicast,
    dest: *mut c_void,
    room: usize,
    bytes: *mut usize,
) -> c_int {
    let state = state(call);
    check_result(call, "bytes", bytes);
    let mut end = lock(&made(call, channel).end);
    let (channel, block) = &mut *end;
    match channel.try_recv(block) {
        // SAFETY: as the program promises.
        Ok(true) => unsafe { hand_over(call, state, block, dest, room, bytes) },
        Ok(false) => NOTHING,
        Err(Error::Closed { .. }) => ENDED,
        Err(error) => fail(call, error),
    }
}

/// How blocks travel, in a word.
pub unsafe fn delivery(call: &'static str, channel: Multicast) -> *const c_char {
    let _state = state(call);
    let word: &CStr = match lock(&made(call, channel).end).0.delivery() {
        Delivery::Near => c"near",
        Delivery::Tree => c"tree",
        Delivery::Datagrams => c"datagrams",
        Delivery::Hosts => c"hosts",
    };
    word.as_ptr()
}

/// Each PE destroys its end.
pub unsafe fn destroy(call: &'static str, channel: Multicast) {
    let _state = state(call);
    made(call, channel);
    // SAFETY: programs do not destroy channels that they use.
    drop(unsafe { ALL.remove(channel.0) });
}
