//! The layout of a file of records, and nothing else.
//!
//! One memfd for the PEs of a host. The launcher, or the host's agent, makes it before any PE
//! starts, and reads it when all have ended: so what a killed PE has recorded is there.
//!
//! ```text
//! 0          FileHeader        one page, written by the maker alone
//! 4096       part of PE first  whole pages; pages exist when touched
//!              PartHeader        one page
//!              calls             CallRecord[CALLS]
//!              objects           ObjectRecord[OBJECTS]
//!              cells             Cell[npes][KINDS]: row by row, a row for each target
//!              events            `events` bytes
//! ...        part of PE first + 1
//! ```
//!
//! A PE maps its own part, and alone writes it. Nobody believes what another has written:
//! `Geometry::of` compares the header with the length of the file before anything is mapped, and
//! the reader of a part checks each length that stands in it.
//!
//! As in [`base::layout`](crate::base::layout), the types exist for their sizes and offsets, and
//! [`shm`](crate::base::shm) does the accesses.

use crate::base::layout::MAX_PES;
use std::mem::size_of;

/// First eight bytes of the file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"mnrecord");
/// Raised with every change to this file that another version could misread.
pub const VERSION: u32 = 2;
/// Names of calls that a PE counts one by one. All further ones share the first record.
pub const CALLS: usize = 512;
/// Bytes of a name that are kept: more than any call's has.
pub const NAME_BYTES: usize = 88;
/// Kinds of operations: those of [`Kind::ALL`](super::Kind::ALL).
pub const KINDS: usize = 8;
/// Shared objects and channels that a PE reports.
pub const OBJECTS: usize = 256;
/// Counters of an object: those of [`Stats`](crate::dsm::Stats), with misses in place of hits.
pub const COUNTERS: usize = 5;
/// Where parts begin, and what they are rounded up to. No page of a supported machine is larger.
const PAGE: u64 = 4096;

/// The head of the file.
#[derive(Debug)]
#[repr(C)]
pub(super) struct FileHeader {
    pub(super) magic: u64,
    pub(super) version: u32,
    /// PEs of the job.
    pub(super) npes: u32,
    /// The first PE that has a part.
    pub(super) first: u32,
    /// How many have one, from that on.
    pub(super) parts: u32,
    /// Bytes for events in each part: whole pages.
    pub(super) events: u64,
}

/// The head of a part.
#[derive(Debug)]
#[repr(C)]
pub(super) struct PartHeader {
    /// 1 once a process has mapped the part to record into it.
    pub(super) is_used: u64,
}

/// What a PE has spent in the calls of one name.
#[derive(Debug)]
#[repr(C)]
pub(super) struct CallRecord {
    /// Bytes of the name; 0: the record is free. Written after the name.
    pub(super) len: u64,
    pub(super) calls: u64,
    pub(super) nanos: u64,
    pub(super) waits: u64,
    pub(super) wait_nanos: u64,
    pub(super) name: [u8; NAME_BYTES],
}

/// A shared object, or an end of a channel.
#[derive(Debug)]
#[repr(C)]
pub(super) struct ObjectRecord {
    /// 1 more than the [`ObjectKind`](super::objects::ObjectKind); 0: the record is free.
    pub(super) kind: u64,
    pub(super) counters: [u64; COUNTERS],
}

/// The operations of one kind on one target.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Cell {
    pub(super) operations: u64,
    pub(super) bytes: u64,
}

const _: () = assert!(size_of::<FileHeader>() <= PAGE as usize);
const _: () = assert!(size_of::<PartHeader>() <= PAGE as usize);
const _: () = assert!(size_of::<CallRecord>() == 128 && size_of::<Cell>() == 16);
const _: () = assert!(size_of::<ObjectRecord>() == 48);

/// Where everything is in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// PEs of the job.
    pub npes: usize,
    /// The first PE that has a part.
    pub first: usize,
    /// How many have one.
    pub parts: usize,
    /// Bytes for events in each part.
    pub events: u64,
}

impl Geometry {
    /// The geometry of a file with parts for `parts` PEs from `first` on, each with room for
    /// `events` bytes; `None` where there can be no such file.
    pub fn new(npes: usize, first: usize, parts: usize, events: u64) -> Option<Geometry> {
        let fits = npes <= MAX_PES && first.checked_add(parts)? <= npes && events < 1 << 40;
        fits.then(|| Geometry { npes, first, parts, events: events.next_multiple_of(PAGE) })
    }

    /// What a header of these words describes, if the file has that length.
    pub(super) fn of(header: &FileHeader, file_bytes: u64) -> Option<Geometry> {
        let FileHeader { magic, version, npes, first, parts, events } = *header;
        let geometry = Geometry::new(npes as usize, first as usize, parts as usize, events)?;
        let ours = (magic, version, events) == (MAGIC, VERSION, geometry.events);
        (ours && geometry.file_bytes() == file_bytes).then_some(geometry)
    }

    pub(super) fn header(&self) -> FileHeader {
        let (npes, first, parts) = (self.npes as u32, self.first as u32, self.parts as u32);
        FileHeader { magic: MAGIC, version: VERSION, npes, first, parts, events: self.events }
    }

    /// Bytes of the page with the file's header.
    pub(super) const HEADER_BYTES: u64 = PAGE;

    /// Bytes of the file.
    pub fn file_bytes(&self) -> u64 {
        Self::HEADER_BYTES + self.parts as u64 * self.part_bytes()
    }

    /// Bytes of a part.
    pub fn part_bytes(&self) -> u64 {
        self.events_at() + self.events
    }

    /// Where the part of a PE begins in the file, if it has one.
    pub fn part_of(&self, pe: usize) -> Option<u64> {
        let index = pe.checked_sub(self.first).filter(|&index| index < self.parts)?;
        Some(Self::HEADER_BYTES + index as u64 * self.part_bytes())
    }

    /// Where a record of calls begins in a part.
    pub(super) fn call_at(slot: usize) -> u64 {
        PAGE + (slot * size_of::<CallRecord>()) as u64
    }

    /// Where the record of an object begins in a part.
    pub(super) fn object_at(number: usize) -> u64 {
        Self::call_at(CALLS) + (number * size_of::<ObjectRecord>()) as u64
    }

    /// Where the cell of a target and a kind begins in a part.
    pub(super) fn cell_at(target: usize, kind: usize) -> u64 {
        Self::object_at(OBJECTS) + ((target * KINDS + kind) * size_of::<Cell>()) as u64
    }

    /// Where the events begin in a part.
    pub fn events_at(&self) -> u64 {
        Self::cell_at(self.npes, 0).next_multiple_of(PAGE)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_two_things_share_bytes(
            npes in 1..=MAX_PES, first in 0..MAX_PES, parts in 0..MAX_PES, events in 0..1u64 << 30,
        ) {
            let Some(geometry) = Geometry::new(npes, first, parts, events) else {
                prop_assert!(first + parts > npes);
                return Ok(());
            };
            let [calls, objects] = [Geometry::call_at(0), Geometry::object_at(0)];
            let cells = Geometry::cell_at(0, 0);
            prop_assert!(size_of::<PartHeader>() as u64 <= calls);
            prop_assert!(Geometry::call_at(CALLS - 1) + size_of::<CallRecord>() as u64 <= objects);
            let object = size_of::<ObjectRecord>() as u64;
            prop_assert!(Geometry::object_at(OBJECTS - 1) + object <= cells);
            let last = Geometry::cell_at(npes - 1, KINDS - 1) + size_of::<Cell>() as u64;
            prop_assert!(last <= geometry.events_at());
            prop_assert!(geometry.events_at() + events <= geometry.part_bytes());
            for pe in [0, first, (first + parts).saturating_sub(1), first + parts] {
                let part = geometry.part_of(pe);
                prop_assert_eq!(part.is_some(), pe >= first && pe < first + parts);
                if let Some(part) = part {
                    prop_assert!(part % 4096 == 0);
                    prop_assert!(part + geometry.part_bytes() <= geometry.file_bytes());
                }
            }
            prop_assert_eq!(
                Geometry::of(&geometry.header(), geometry.file_bytes()), Some(geometry)
            );
        }

        /// Nothing that stands in a header leads beyond the file.
        #[test]
        fn no_header_is_believed(
            npes: u32, first: u32, parts: u32, events: u64, bytes: u64, version in 0..3u32,
        ) {
            let header = FileHeader { magic: MAGIC, version, npes, first, parts, events };
            if let Some(geometry) = Geometry::of(&header, bytes) {
                prop_assert_eq!(geometry.file_bytes(), bytes);
                prop_assert_eq!(version, VERSION);
            }
        }
    }
}
