//! That a copy writes each byte once. A child copies, one instruction at a time; whenever a byte of the destination has changed, it is
//! counted and put back, as by one who waits for it and then writes there itself: a second store of it shows.

use super::{copy, portable};
use std::slice;

const GUARD: u8 = 0xA5;
const NEW: u8 = 0x5A;

type Copy = unsafe fn(*mut u8, *const u8, usize);

/// Memory that parent and child share.
struct Shared(*mut u8, usize);

impl Shared {
    fn new(bytes: usize) -> Self {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: the mapping made just now, which nobody else knows.
        unsafe { at.cast::<u8>().write_bytes(GUARD, bytes) };
        Shared(at.cast(), bytes)
    }

    /// What it holds while the child stands still.
    fn bytes(&self) -> &mut [u8] {
        // SAFETY: mapped for as long, and the child, which is stopped or gone, does not write.
        unsafe { slice::from_raw_parts_mut(self.0, self.1) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; the child is gone.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// How often each byte of the destination was written, from some before it to some behind.
fn writes(copy: Copy, to: usize, len: usize) -> Vec<u32> {
    let (source, shared) = (vec![NEW; len + 64], Shared::new(len + 128));
    let mut counts = vec![0; shared.1];
    // SAFETY: the child calls what may be called in one of a process with threads, copies private memory to the shared, which has room, and
    // ends. The parent lets it go on by one instruction after the other, until it has ended.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
            copy(shared.0.add(32 + to), source.as_ptr().add(3), len);
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
            assert_eq!(libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0), 0, "a child may be traced");
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
            3, 6, 7, 9, 12, 15, 17, 24, 31, 33, 48, 63, 65, 100, 129, 200, 255, 256, 257, 288, 383, 384, 1000,
        ],
    );
}

#[test]
fn portable_copies_write_each_byte_once() {
    once(portable::copy, &[3, 7, 12, 17, 33]);
}
