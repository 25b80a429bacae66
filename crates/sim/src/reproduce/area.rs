//! Memory of a PE that experiments write by its address, without the library.

use crate::host::{Answer, HostOp};
use crate::run::Host;
use memonet_core::unstable::fabric::FarAddress;
use memonet_core::unstable::shm;
use memonet_core::{Job, SymmetricRange};

/// A block at the same offset of every PE.
pub struct Area {
    job: Job,
    offset: u64,
    bytes: usize,
}

impl Area {
    /// A block that all PEs allocate together.
    pub fn new(job: &Job, bytes: usize) -> Area {
        let offset = job.allocate(bytes, 64, true).expect("room for an experiment");
        Area { job: job.clone(), offset, bytes }
    }

    /// A block at the start of the heap, for programs that allocate nothing. On very many PEs a
    /// collective allocation takes too long.
    pub fn at_the_start(job: &Job, bytes: usize) -> Area {
        let heap = job.segment().heap();
        assert!(heap.start + bytes as u64 <= heap.end, "room for an experiment");
        Area { job: job.clone(), offset: heap.start, bytes }
    }

    /// Address of a byte of the area at a PE.
    pub fn at(&self, pe: u32, byte: usize) -> FarAddress {
        assert!(byte < self.bytes, "experiments stay in their areas");
        FarAddress { pe, region: 0, offset: self.offset + byte as u64 }
    }

    /// The word at this byte, for the library's collectives.
    pub fn place(&self, byte: usize) -> SymmetricRange {
        // SAFETY: the word lies in the area, which is allocated, or lies in an empty heap.
        let place = unsafe { self.job.segment().place(self.offset + byte as u64, 8) };
        place.expect("the area lies in the segment")
    }

    fn word(&self, byte: usize) -> *mut u64 {
        assert!(byte + 8 <= self.bytes && byte.is_multiple_of(8), "words lie in the area, aligned");
        self.job.segment().local().wrapping_add(self.offset as usize + byte).cast()
    }

    /// Reads this PE's word.
    pub fn load(&self, byte: usize) -> u64 {
        // SAFETY: `new` and `at_the_start` made sure that the area lies in the heap of this PE's
        // segment, which the job keeps mapped. `word` checks that the word lies in the area, and
        // that it is aligned.
        unsafe { shm::load(self.word(byte)) }
    }

    /// Waits until this PE's word has this value.
    pub fn wait_for(&self, byte: usize, value: u64) {
        let seen = self.job.segment().wait(|| (self.load(byte) == value).then_some(()));
        seen.expect("nobody dies in an experiment");
    }

    /// Waits until this PE's word has this value, then clears it.
    pub fn wait_and_clear(&self, byte: usize, value: u64) {
        self.wait_for(byte, value);
        // SAFETY: the word is mapped and aligned, for the reasons given in `load`.
        unsafe { shm::store(self.word(byte), 0) };
    }
}

/// Gives this PE's NIC an operation.
pub fn ask(what: HostOp) -> Answer {
    // SAFETY: the NIC writes only to the experiment's own area.
    let answer = unsafe { Host::here().ask(what) };
    answer.expect("the NIC does what its own experiments ask for")
}
