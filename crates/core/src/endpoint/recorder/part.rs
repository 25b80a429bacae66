//! A PE's part of the file of records, mapped: counting.

use super::Kind;
use super::events::log::Log;
use super::layout::{CALLS, CallRecord, Cell, FileHeader, Geometry, NAME_BYTES, PartHeader};
use crate::base::memory::{self, Mapping};
use crate::base::shm::{self, AtomicOp};
use rustix::fd::OwnedFd;
use std::mem::offset_of;

/// The part of one PE. Threads of the PE count at once.
pub(crate) struct Part {
    mapping: Mapping,
    npes: usize,
    /// Where the events begin in it.
    events_at: u64,
}

/// What is known of the file before a part of it is mapped.
fn peek(fd: &OwnedFd) -> Result<Geometry, String> {
    let bytes = memory::sealed_size(fd)?;
    let no_file = || "is no file of records of this version of memonet".to_owned();
    if bytes < Geometry::HEADER_BYTES {
        return Err(no_file());
    }
    let page = Mapping::part(fd, 0, Geometry::HEADER_BYTES).map_err(|error| error.to_string())?;
    let mut header = std::mem::MaybeUninit::<FileHeader>::uninit();
    // SAFETY: both have room for a header, and any bytes are one.
    let header = unsafe {
        shm::copy(header.as_mut_ptr().cast(), page.at(0), size_of::<FileHeader>());
        header.assume_init()
    };
    Geometry::of(&header, bytes).ok_or_else(no_file)
}

impl Part {
    /// Maps the part of PE `me` of a job of `npes`, for counting. The file may be anything.
    pub(crate) fn attach(fd: &OwnedFd, me: usize, npes: usize) -> Result<Part, String> {
        let geometry = peek(fd)?;
        if geometry.npes != npes {
            return Err(format!("is that of a job of {} PEs, not of {npes}", geometry.npes));
        }
        let at = geometry.part_of(me).ok_or_else(|| format!("has no part for PE {me}"))?;
        let mapping =
            Mapping::part(fd, at, geometry.part_bytes()).map_err(|error| error.to_string())?;
        let part = Part { mapping, npes, events_at: geometry.events_at() };
        // SAFETY: an aligned word at the start of the mapped part.
        unsafe { shm::store(part.word(offset_of!(PartHeader, is_used) as u64), 1) };
        Ok(part)
    }

    /// Its events, if there is room for any.
    pub(super) fn log(&self) -> Option<Log> {
        let bytes = self.mapping.len() as u64 - self.events_at;
        // SAFETY: the events begin at a page of the part, and are mapped to its end, as long as the
        // part. The recorder, which has the log, has the part too.
        unsafe { Log::at(self.mapping.at(self.events_at), bytes) }
    }

    /// Address of a word of the part.
    pub(super) fn word(&self, at: u64) -> *mut u64 {
        self.mapping.at(at).cast()
    }

    /// Adds to a word of the part. `at` is the offset of an aligned word in it.
    fn add(&self, at: u64, more: u64) {
        let word = self.word(at);
        // SAFETY: an aligned word of the mapped part. Only threads of this process write it, so
        // with one thread there is nothing between the load and the store.
        unsafe {
            if shm::is_single_threaded() {
                shm::store(word, shm::load(word).wrapping_add(more));
            } else {
                shm::fetch_op(word.cast(), 8, AtomicOp::Add, more);
            }
        }
    }

    /// Counts an operation.
    ///
    /// # Panics
    /// When there is no such target.
    pub(super) fn count(&self, kind: Kind, target: usize, bytes: usize) {
        assert!(target < self.npes, "there is no PE {target}");
        let cell = Geometry::cell_at(target, kind as usize);
        self.add(cell + offset_of!(Cell, operations) as u64, 1);
        self.add(cell + offset_of!(Cell, bytes) as u64, bytes as u64);
    }

    /// Counts a call that took so many nanoseconds.
    pub(super) fn called(&self, slot: usize, nanos: u64) {
        let record = Geometry::call_at(slot);
        self.add(record + offset_of!(CallRecord, calls) as u64, 1);
        self.add(record + offset_of!(CallRecord, nanos) as u64, nanos);
    }

    /// Counts a wait of so many nanoseconds in a call.
    pub(super) fn waited(&self, slot: usize, nanos: u64) {
        let record = Geometry::call_at(slot);
        self.add(record + offset_of!(CallRecord, waits) as u64, 1);
        self.add(record + offset_of!(CallRecord, wait_nanos) as u64, nanos);
    }

    /// The names of all records, for a process that goes on where another has ended: one that has
    /// become this program by exec, or was forked off before it took part.
    pub(super) fn names(&self) -> Vec<String> {
        let name = |slot| {
            let at = Geometry::call_at(slot);
            // SAFETY: an aligned word of the mapped part.
            let len = unsafe { shm::load(self.word(at + offset_of!(CallRecord, len) as u64)) };
            let mut name = vec![0; (len as usize).min(NAME_BYTES)];
            let from = self.mapping.at(at + offset_of!(CallRecord, name) as u64);
            // SAFETY: the name's bytes are mapped, and `name` has at most as many.
            unsafe { shm::copy(name.as_mut_ptr(), from, name.len()) };
            (len > 0).then(|| String::from_utf8_lossy(&name).into_owned())
        };
        (0..CALLS).map_while(name).collect()
    }

    /// Names a free record. Names that are too long are cut.
    pub(super) fn name(&self, slot: usize, name: &str) {
        assert!(slot < CALLS);
        let kept = &name[..name.floor_char_boundary(NAME_BYTES)];
        let at = Geometry::call_at(slot);
        // SAFETY: the name's bytes and the aligned word are mapped, and there are `NAME_BYTES`.
        unsafe {
            let to = self.mapping.at(at + offset_of!(CallRecord, name) as u64);
            shm::copy(to, kept.as_ptr(), kept.len());
            shm::store(self.word(at + offset_of!(CallRecord, len) as u64), kept.len() as u64);
        }
    }
}
