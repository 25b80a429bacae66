//! Finds changes: compares memory with its twin, an earlier copy.

use crate::base::shm;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Compared at once, in a few registers. Only steps that differ are looked at byte by byte.
const STEP_BYTES: usize = 64;
/// Read at once; fits into the first-level cache.
const PIECE_BYTES: usize = 4096;

/// A private copy of a piece of memory that a stray store may change.
struct Piece([MaybeUninit<u8>; PIECE_BYTES]);

impl Piece {
    /// # Safety
    /// `from` is readable for `len` bytes.
    ///
    /// # Panics
    /// When these are more than [`PIECE_BYTES`].
    unsafe fn read(&mut self, from: *const u8, len: usize) -> &[u8] {
        let piece = &mut self.0[..len];
        // SAFETY: the caller promises the source; the destination is private, `len` bytes long, and
        // filled by the copy.
        unsafe {
            shm::copy(piece.as_mut_ptr().cast(), from, len);
            std::slice::from_raw_parts(piece.as_ptr().cast(), len)
        }
    }
}

/// Whether two steps differ. It compares words, which compilers turn into vectors.
#[inline(always)]
fn differs(a: &[u8; STEP_BYTES], b: &[u8; STEP_BYTES]) -> bool {
    let mut difference = 0;
    for at in (0..STEP_BYTES).step_by(8) {
        let word = |bytes: &[u8; STEP_BYTES]| {
            u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes of 64"))
        };
        difference |= word(a) ^ word(b);
    }
    difference != 0
}

/// Whether two slices of one length are equal.
#[inline(always)]
fn equal(a: &[u8], b: &[u8]) -> bool {
    let ((a_steps, a_rest), (b_steps, b_rest)) =
        (a.as_chunks::<STEP_BYTES>(), b.as_chunks::<STEP_BYTES>());
    a_rest == b_rest && !a_steps.iter().zip(b_steps).any(|(a, b)| differs(a, b))
}

/// Calls `changed` for each block of `block` bytes in which `data` differs from `twin`.
///
/// # Safety
/// Both are readable for `len` bytes.
pub(super) unsafe fn changed_blocks(
    data: *const u8,
    twin: *const u8,
    len: usize,
    block: usize,
    mut changed: impl FnMut(usize),
) {
    let (mut now, mut before) =
        (Piece([MaybeUninit::uninit(); PIECE_BYTES]), Piece([MaybeUninit::uninit(); PIECE_BYTES]));
    // Whole blocks at once, or one block in pieces.
    let many = (PIECE_BYTES / block).max(1) * block;
    for start in (0..len).step_by(many) {
        let end = (start + many).min(len);
        let mut last = None;
        for at in (start..end).step_by(PIECE_BYTES) {
            let n = PIECE_BYTES.min(end - at);
            // SAFETY: `at + n <= len`, so both sources lie in what the caller promises.
            let (now, before) =
                unsafe { (now.read(data.add(at), n), before.read(twin.add(at), n)) };
            if equal(now, before) {
                continue;
            }
            for (place, (now, before)) in now.chunks(block).zip(before.chunks(block)).enumerate() {
                let number = at / block + place;
                if last != Some(number) && !equal(now, before) {
                    last = Some(number);
                    changed(number);
                }
            }
        }
    }
}

/// Which bytes of two steps differ: bit i for byte i.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn differing(a: &[u8; STEP_BYTES], b: &[u8; STEP_BYTES]) -> u64 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
    let mut mask = 0;
    for at in (0..STEP_BYTES).step_by(16) {
        // SAFETY: each load reads 16 bytes inside of a step; all x86-64 processors have SSE2.
        let same = unsafe {
            let (a, b) = (
                _mm_loadu_si128(a[at..].as_ptr().cast()),
                _mm_loadu_si128(b[at..].as_ptr().cast()),
            );
            _mm_movemask_epi8(_mm_cmpeq_epi8(a, b))
        };
        mask |= u64::from(!same as u16) << at;
    }
    mask
}

/// Which bytes of two steps differ: bit i for byte i.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn differing(a: &[u8; STEP_BYTES], b: &[u8; STEP_BYTES]) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    let mut mask = 0;
    for at in 0..STEP_BYTES / 8 {
        let word = |bytes: &[u8; STEP_BYTES]| {
            u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("8 bytes of 64"))
        };
        let difference = word(a) ^ word(b);
        // The top bit of each byte that is not 0; the multiplication gathers the eight bits.
        let tops = (((difference & LOW) + LOW) | difference) & !LOW;
        mask |= ((tops >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * at);
    }
    mask
}

/// Widens a mask of differing bytes to whole units. Works for sizes that are powers of two and
/// divide a step.
#[derive(Clone, Copy)]
struct Units {
    size: usize,
    /// `one` has a bit for each byte of a unit; `firsts` has the first bit of each unit.
    one: u64,
    firsts: u64,
}

impl Units {
    fn of(size: usize) -> Option<Self> {
        let one = u64::MAX >> (STEP_BYTES - size.clamp(1, STEP_BYTES));
        (size.is_power_of_two() && size <= STEP_BYTES).then_some(Units {
            size,
            one,
            firsts: u64::MAX / one,
        })
    }

    #[inline(always)]
    fn widen(self, mut mask: u64) -> u64 {
        let mut shift = self.size / 2;
        while shift > 0 {
            mask |= mask >> shift;
            shift /= 2;
        }
        (mask & self.firsts).wrapping_mul(self.one)
    }
}

/// Joins runs of bytes, given in order, into runs of whole units.
struct Runs<F> {
    unit: usize,
    len: usize,
    /// The run of bytes that may still grow.
    open: Range<usize>,
    changed: F,
}

impl<F: FnMut(Range<usize>)> Runs<F> {
    fn end(&self) -> usize {
        self.open.end.next_multiple_of(self.unit).min(self.len)
    }

    #[inline(always)]
    fn add(&mut self, bytes: Range<usize>) {
        // Joins bytes of the open run's last unit, or of the next. The first comparison saves the
        // second, which divides, where everything has changed.
        if bytes.start == self.open.end || bytes.start < self.end() + self.unit {
            self.open.end = bytes.end;
        } else {
            self.close();
            self.open = bytes.start / self.unit * self.unit..bytes.end;
        }
    }

    fn close(&mut self) {
        let run = self.open.start..self.end();
        if !run.is_empty() {
            (self.changed)(run);
        }
    }
}

/// Calls `changed` for each run of units of `unit` bytes in which `now` differs from `twin`, which
/// is as long. Units between runs are left out, even single ones: another PE may write them.
pub(super) fn changed_runs(
    now: &[u8],
    twin: &[u8],
    unit: usize,
    changed: impl FnMut(Range<usize>),
) {
    let mut runs = Runs { unit, len: now.len(), open: 0..0, changed };
    // Often only some bytes of a number change: many runs of bytes, but few of units.
    let units = Units::of(unit);
    let ((steps, rest), (twins, twin_rest)) =
        (now.as_chunks::<STEP_BYTES>(), twin.as_chunks::<STEP_BYTES>());
    for (number, (now, twin)) in steps.iter().zip(twins).enumerate() {
        let (mut at, mut mask) = (number * STEP_BYTES, differing(now, twin));
        if mask == 0 {
            continue;
        }
        if let Some(units) = units {
            mask = units.widen(mask);
        }
        while mask != 0 {
            let (skip, run) =
                (mask.trailing_zeros(), (mask >> mask.trailing_zeros()).trailing_ones());
            at += skip as usize;
            runs.add(at..at + run as usize);
            at += run as usize;
            mask = mask.checked_shr(skip + run).unwrap_or(0);
        }
    }
    let start = steps.len() * STEP_BYTES;
    (0..rest.len())
        .filter(|&at| rest[at] != twin_rest[at])
        .for_each(|at| runs.add(start + at..start + at + 1));
    runs.close();
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_and_runs_are_what_differs(len in 1usize..20_000, block in 1usize..700, changes in proptest::collection::vec(any::<(prop::sample::Index, u8)>(), 0..20)) {
            let twin: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            let mut now = twin.clone();
            for (at, value) in changes {
                now[at.index(len)] = value;
            }
            let mut blocks = Vec::new();
            let block = block * 8;
            // SAFETY: both vectors have `len` bytes.
            unsafe { changed_blocks(now.as_ptr(), twin.as_ptr(), len, block, |number| blocks.push(number)) };
            let expected: Vec<_> = (0..len.div_ceil(block)).filter(|b| now.chunks(block).nth(*b) != twin.chunks(block).nth(*b)).collect();
            prop_assert_eq!(blocks, expected);
            for unit in [1, 2, 4, 8, 12, 16, 64, 128] {
                let mut patched = twin.clone();
                let mut last = None;
                changed_runs(&now, &twin, unit, |run| {
                    assert!(last.is_none_or(|last| last < run.start), "runs are apart, and in order");
                    assert!(run.start % unit == 0 && (run.end % unit == 0 || run.end == len));
                    assert!(now[run.clone()].chunks(unit).zip(twin[run.clone()].chunks(unit)).all(|(now, twin)| now != twin));
                    last = Some(run.end);
                    patched[run.clone()].copy_from_slice(&now[run]);
                });
                prop_assert!(patched == now);
            }
        }
    }
}
