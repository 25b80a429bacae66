//! Messages between PEs, an extension.

use super::mutex::{in_time, insert, limit};
use crate::state::handle::{Messages, Table};
use crate::state::{State, check_result, die, get as state, or_die};
use std::ffi::{c_int, c_void};

/// The table of messages. It is static because most of its pages are never touched.
pub static ALL: Table<Made, 256> = Table::new();

/// The messages of a handle.
pub type Made = memonet_core::Messages;

fn made(call: &'static str, messages: Messages) -> &'static Made {
    // SAFETY: programs do not destroy messages that they use.
    match unsafe { ALL.get(messages.0) } {
        Some(made) => made,
        None => die(call, "messages: these are no messages, or they were destroyed before"),
    }
}

/// Collective over all PEs.
pub unsafe fn create(
    call: &'static str,
    bytes: usize,
    depth: usize,
    messages: *mut Messages,
) -> c_int {
    let state = state(call);
    check_result(call, "messages", messages);
    let new = memonet_core::Messages::new(&state.job, bytes, depth);
    let handle = insert(call, &ALL, new, |made| made);
    // SAFETY: the program's variable.
    unsafe { *messages = Messages(handle.unwrap_or(0)) };
    c_int::from(handle.is_none())
}

/// A message of the program's. Ends the job where it cannot be one.
///
/// # Safety
/// The program's source has `bytes` bytes, and no thread writes them during the call.
unsafe fn message<'a>(
    call: &'static str,
    state: &State,
    made: &Made,
    source: *const c_void,
    bytes: usize,
    pe: c_int,
) -> &'a [u8] {
    state.check_pe(call, "pe", pe);
    if bytes > made.most() {
        die(
            call,
            format_args!(
                "bytes: a message of {bytes} bytes, where shmemx_messages_create was given {}",
                made.most()
            ),
        );
    }
    if bytes == 0 {
        return &[];
    }
    if source.is_null() {
        die(call, format_args!("source: NULL has no {bytes} bytes; give the address of an array"));
    }
    state.check_local(call, "source", source as usize, bytes);
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(source.cast(), bytes) }
}

pub unsafe fn send(
    call: &'static str,
    messages: Messages,
    source: *const c_void,
    bytes: usize,
    pe: c_int,
) {
    let (state, made) = (state(call), made(call, messages));
    // SAFETY: the program's source.
    let message = unsafe { message(call, state, made, source, bytes, pe) };
    or_die(call, made.send(pe as usize, message));
}

/// Gives 0, or 1 while there is no room.
pub unsafe fn try_send(
    call: &'static str,
    messages: Messages,
    source: *const c_void,
    bytes: usize,
    pe: c_int,
) -> c_int {
    let (state, made) = (state(call), made(call, messages));
    // SAFETY: the program's source.
    let message = unsafe { message(call, state, made, source, bytes, pe) };
    c_int::from(!or_die(call, made.try_send(pe as usize, message)))
}

/// The program's room for a message.
struct Room {
    call: &'static str,
    dest: *mut c_void,
    bytes: usize,
}

impl Room {
    fn new(
        call: &'static str,
        state: &State,
        made: &Made,
        dest: *mut c_void,
        bytes: usize,
    ) -> Self {
        if dest.is_null() && made.most() > 0 {
            die(call, "dest: NULL has no room for a message; give the address of an array");
        }
        if bytes > 0 {
            state.check_local(call, "dest", dest as usize, bytes);
        }
        Room { call, dest, bytes }
    }

    /// Copies a message to the program; gives its length.
    fn fill(&self, message: &[u8]) -> usize {
        if message.len() > self.bytes {
            die(
                self.call,
                format_args!(
                    "bytes: a message of {} bytes has come, and dest has room for {}",
                    message.len(),
                    self.bytes
                ),
            );
        }
        // SAFETY: the program's destination has room for `bytes` bytes, which no other thread uses
        // during the call; the message is private.
        unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), self.dest.cast(), message.len()) };
        message.len()
    }
}

/// Tells the program who has sent a message.
///
/// # Safety
/// `pe` is null, or the program's variable.
unsafe fn tell(pe: *mut c_int, sender: usize) {
    if !pe.is_null() {
        // SAFETY: the program's variable.
        unsafe { *pe = sender as c_int };
    }
}

pub unsafe fn recv(
    call: &'static str,
    messages: Messages,
    dest: *mut c_void,
    bytes: usize,
    pe: *mut c_int,
) -> usize {
    let (state, made) = (state(call), made(call, messages));
    let (room, mut message) = (Room::new(call, state, made, dest, bytes), Vec::new());
    let sender = or_die(call, made.recv(&mut message));
    // SAFETY: the program's variable.
    unsafe { tell(pe, sender) };
    room.fill(&message)
}

pub unsafe fn recv_from(
    call: &'static str,
    messages: Messages,
    dest: *mut c_void,
    bytes: usize,
    pe: c_int,
) -> usize {
    let (state, made) = (state(call), made(call, messages));
    state.check_pe(call, "pe", pe);
    let (room, mut message) = (Room::new(call, state, made, dest, bytes), Vec::new());
    or_die(call, made.recv_from(pe as usize, &mut message));
    room.fill(&message)
}

/// Gives 0, or 1 while no message is there.
pub unsafe fn try_recv(
    call: &'static str,
    messages: Messages,
    dest: *mut c_void,
    bytes: usize,
    length: *mut usize,
    pe: *mut c_int,
) -> c_int {
    let (state, made) = (state(call), made(call, messages));
    check_result(call, "length", length);
    let (room, mut message) = (Room::new(call, state, made, dest, bytes), Vec::new());
    let sender = or_die(call, made.try_recv(&mut message));
    // SAFETY: the program's variables.
    unsafe { came(&room, &message, sender, length, pe) }
}

/// Gives 0, or 1 if `seconds` pass without a message.
pub unsafe fn timed_recv(
    call: &'static str,
    messages: Messages,
    dest: *mut c_void,
    bytes: usize,
    length: *mut usize,
    pe: *mut c_int,
    seconds: f64,
) -> c_int {
    let (state, made) = (state(call), made(call, messages));
    check_result(call, "length", length);
    let limit = limit(call, seconds);
    let (room, mut message) = (Room::new(call, state, made, dest, bytes), Vec::new());
    let sender = in_time(call, made.recv_timeout(&mut message, limit));
    // SAFETY: the program's variables.
    unsafe { came(&room, &message, sender, length, pe) }
}

/// Gives the program a message, if one has come: then 0, else 1.
///
/// # Safety
/// `length` and `pe` are the program's variables; `pe` may be null.
unsafe fn came(
    room: &Room,
    message: &[u8],
    sender: Option<usize>,
    length: *mut usize,
    pe: *mut c_int,
) -> c_int {
    let Some(sender) = sender else { return 1 };
    // SAFETY: the caller's promise.
    unsafe {
        tell(pe, sender);
        *length = room.fill(message);
    }
    0
}

/// Each PE destroys them when no PE uses them any more. The memory is free when all have.
pub unsafe fn destroy(call: &'static str, messages: Messages) {
    let _state = state(call);
    made(call, messages);
    // SAFETY: programs do not destroy messages that they use.
    drop(unsafe { ALL.remove(messages.0) });
}
