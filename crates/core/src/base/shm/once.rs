//! That a copy writes each byte once. A child copies, one instruction at a time; whenever a byte of
//! the destination has changed, it is counted and put back, as by one who waits for it and then
//! writes there itself: a second store of it shows.

use super::{copy, portable};
use crate::base::memory::{Mapping, create_memfd};
use std::slice;

const GUARD: u8 = 0xA5;
const NEW: u8 = 0x5A;

type Copy = unsafe fn(*mut u8, *const u8, usize);

/// Memory that parent and child share.
struct OncePage(Mapping);

impl OncePage {
    fn new(bytes: usize) -> Self {
        let mut shared = OncePage(
            Mapping::new(create_memfd("memonet-once", bytes as u64).unwrap(), bytes, true).unwrap(),
        );
        shared.bytes().fill(GUARD);
        shared
    }

    /// What it holds while no child runs.
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped for as long as `self`; a child that writes there is stopped, or gone.
        unsafe { slice::from_raw_parts_mut(self.0.at(0), self.0.len()) }
    }
}

/// How often each byte of the destination was written, from some before it to some behind.
fn writes(copy: Copy, to: usize, len: usize) -> Vec<u32> {
    let (source, mut shared) = (vec![NEW; len + 64], OncePage::new(len + 128));
    let (target, mut counts) = (shared.0.at(32 + to as u64), vec![0; shared.0.len()]);
    // SAFETY: the child calls what may be called in one of a process with threads, copies private
    // memory to the shared, which has room, and ends. The parent lets it go on by one instruction
    // after the other, until it has ended.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            copy(target, source.as_ptr().add(3), len);
            libc::_exit(0);
        }
        let mut status = 0;
        while libc::waitpid(child, &mut status, 0) == child && libc::WIFSTOPPED(status) {
            for (byte, count) in shared.bytes().iter_mut().zip(&mut counts) {
                if *byte != GUARD {
                    *count += 1;
                    *byte = GUARD;
                }
            }
            assert_eq!(
                libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0),
                0,
                "a child may be traced"
            );
        }
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
    }
    counts
}

#[track_caller]
fn once(copy: Copy, lengths: &[usize]) {
    for &len in lengths {
        for to in [0, 1, 4, 28] {
            let counts = writes(copy, to, len);
            let expected = |at: usize| u32::from((32 + to..32 + to + len).contains(&at));
            let wrong = (0..counts.len()).find(|&at| counts[at] != expected(at));
            let what = wrong.map(|at| (at as isize - 32 - to as isize, counts[at]));
            assert_eq!(what, None, "{len} bytes to {to}: byte, and how often it was written");
        }
    }
}

#[test]
fn copies_write_each_byte_once() {
    // What is asked of the processor is asked before.
    let (source, mut target) = (vec![0; 100_000], vec![0; 100_000]);
    // SAFETY: two vectors of so many bytes.
    unsafe { copy(target.as_mut_ptr(), source.as_ptr(), source.len()) };
    once(
        copy,
        &[
            3, 6, 7, 9, 12, 15, 17, 24, 31, 33, 48, 63, 65, 100, 129, 200, 255, 256, 257, 288, 383,
            384, 1000,
        ],
    );
}

#[test]
fn portable_copies_write_each_byte_once() {
    once(portable::copy, &[3, 7, 12, 17, 33]);
}
