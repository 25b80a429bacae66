//! All-to-all between elements at strides.
//!
//! Blocks and elements are those of a plain all-to-all; element i of source or destination lies at
//! i times its stride. The gaps between elements are neither read nor written.

use super::choice::{Algorithm, Call};
use super::{BLOCK_BYTES, EAGER_BYTES, Scratch, Span, SymmetricRange};
use crate::base::error::{Error, Quick, Result};
use crate::base::shm::{self, Plain};
use crate::endpoint::route::Route;
use crate::team::Team;
use std::ops::Range;

/// The longest stride at which a fabric moves elements with their gaps in less time than one by
/// one.
const MOST_FETCHED_STRIDE_BYTES: usize = 1 << 10;

/// Elements at a stride.
#[derive(Clone, Copy)]
struct Strided {
    /// From the first byte of the first element to the last byte of the last.
    extent: SymmetricRange,
    /// Bytes of an element.
    size: usize,
    /// Bytes from the start of an element to the start of the next.
    stride: usize,
}

impl Strided {
    /// `count` elements at the beginning of a place, which must have room for them.
    fn new(place: SymmetricRange, size: usize, stride: usize, count: usize) -> Quick<Self> {
        if stride == 0 || size == 0 {
            return Err(
                Error::misuse("elements have a size, and strides of at least one element").into()
            );
        }
        let bytes = match count.checked_sub(1) {
            None => Some(0),
            Some(others) => others
                .checked_mul(stride)
                .and_then(|last| last.checked_add(1))
                .and_then(|elements| elements.checked_mul(size)),
        };
        match bytes {
            Some(bytes) if bytes <= place.bytes => Ok(Strided {
                extent: place.part(0, bytes),
                size,
                // The product only matters for two elements or more: these lie in the place, so it
                // does not overflow.
                stride: stride.saturating_mul(size),
            }),
            _ => Err(Error::Length {
                what: "bytes that the strides reach, and bytes there are",
                left: bytes.unwrap_or(usize::MAX),
                right: place.bytes,
                call: None,
            }
            .into()),
        }
    }

    fn is_contiguous(self) -> bool {
        self.stride == self.size
    }

    fn element(self, index: usize) -> SymmetricRange {
        self.extent.part(index * self.stride, self.size)
    }

    /// Some of the elements, at least one, with their gaps.
    fn run(self, range: Range<usize>) -> SymmetricRange {
        self.extent.part(range.start * self.stride, (range.len() - 1) * self.stride + self.size)
    }

    /// Whether no element of one overlaps an element of the other. Elements of one may lie in gaps
    /// of the other.
    fn is_apart(self, other: Strided) -> bool {
        if !self.extent.overlaps(other.extent) || self.extent.bytes == 0 || other.extent.bytes == 0
        {
            return true;
        }
        let (low, high) = match self.extent.offset <= other.extent.offset {
            true => (self, other),
            false => (other, self),
        };
        let between = ((high.extent.offset - low.extent.offset) % low.stride as u64) as usize;
        self.stride == other.stride && between >= low.size && low.stride - between >= high.size
    }
}

impl Team {
    /// [`all_to_all_into`](Self::all_to_all_into) of `count` elements for each member, with
    /// strides: the i-th element that a member receives lies at `i * to_stride` of `to`, and the
    /// i-th element that it sends lies at `i * from_stride` of `from`. *Collective.*
    ///
    /// OpenSHMEM: `shmem_alltoalls`; MPI: `MPI_Alltoall` with vector types.
    ///
    /// # Errors
    /// [`Length`](Error::Length) when a span is too short, [`Misuse`](Error::Misuse) for a stride
    /// of 0, or when elements of source and destination overlap; else as for
    /// [`broadcast_into`](Self::broadcast_into).
    #[track_caller]
    pub fn all_to_alls_into<T: Plain>(
        &self,
        to: Span<'_, T>,
        to_stride: usize,
        from: Span<'_, T>,
        from_stride: usize,
        count: usize,
    ) -> Result<()> {
        self.collective("Team::all_to_alls_into", || {
            let strides = [
                ("count", count as u64),
                ("to_stride", to_stride as u64),
                ("from_stride", from_stride as u64),
            ];
            let (to, from) = (self.own(to)?, self.own(from)?);
            self.check_call("all_to_alls_into", &strides)?;
            let all = count.saturating_mul(self.len());
            let strided = |place: SymmetricRange, stride: usize| {
                Strided::new(place, size_of::<T>(), stride, all)
            };
            if !strided(to, to_stride)?.is_apart(strided(from, from_stride)?) {
                return Err(Error::misuse(
                    "source and destination of this collective overlap: they must not",
                )
                .into());
            }
            Ok(self.all_to_alls_places(
                (to, to_stride),
                (from, from_stride),
                size_of::<T>(),
                count,
            )?)
        })
    }

    /// [`all_to_alls_into`](Self::all_to_alls_into) of elements of `size` bytes between places with
    /// strides in elements, for front ends. *Collective.*
    ///
    /// # Errors
    /// As for [`all_to_alls_into`](Self::all_to_alls_into).
    #[doc(hidden)]
    pub fn all_to_alls_places(
        &self,
        to: (SymmetricRange, usize),
        from: (SymmetricRange, usize),
        size: usize,
        count: usize,
    ) -> Result<()> {
        self.check_places(to.0, from.0)?;
        self.note_call(from.0.bytes);
        let all = count.checked_mul(self.len()).ok_or(Error::Overflow {
            index: count,
            size,
            call: None,
        })?;
        let (to, from) =
            (Strided::new(to.0, size, to.1, all)?, Strided::new(from.0, size, from.1, all)?);
        // The elements of a rank's block.
        let block = |rank: usize| rank * count..(rank + 1) * count;
        let mine = block(self.rank());
        let algorithm = self.choose(Call::Strided { all: all * size });
        if algorithm != Algorithm::Direct {
            let mut memory = [super::Aligned([0; 64]); EAGER_BYTES / 64];
            let memory = memory.as_mut_ptr().cast::<u8>();
            if algorithm == Algorithm::Pushed {
                // SAFETY: the memory is as long as an eager buffer, and the elements fit one.
                unsafe { self.pack(from, 0..all, memory) };
                let eager_buffer =
                    self.swap(count * size, |rank| memory.wrapping_add(rank * count * size))?;
                // SAFETY: the eager buffer holds all elements.
                unsafe { self.unpack(self.here(eager_buffer), size, to, 0..all) };
                return Ok(());
            }
            let eager_buffer = self.publish(|eager_buffer| {
                // SAFETY: the eager buffer has room for all elements.
                unsafe { self.pack(from, 0..all, self.here(eager_buffer)) };
                Ok(())
            })?;
            let published = eager_buffer.part(mine.start * size, count * size);
            for rank in 0..self.len() {
                // SAFETY: the memory is as long as an eager buffer.
                unsafe {
                    self.fetch(rank, published, memory)?;
                    self.unpack(memory, size, to, block(rank));
                }
            }
            return Ok(());
        }
        Ok(self.all_to_alls_directly(to, from, size, count)?)
    }

    /// Between the members' windows: each member delivers where the destination is contiguous,
    /// reads where the source is near, and else fetches or gives.
    fn all_to_alls_directly(
        &self,
        to: Strided,
        from: Strided,
        size: usize,
        count: usize,
    ) -> Quick<()> {
        let block = |rank: usize| rank * count..(rank + 1) * count;
        let mine = block(self.rank());
        self.pass_barrier()?;
        let mut scratch = Scratch::new(BLOCK_BYTES.max(size));
        // Each member begins with itself: so not all access one member at once.
        for step in 0..self.len() {
            let rank = (self.rank() + step) % self.len();
            if to.is_contiguous() {
                for (here, there) in pieces(block(rank), mine.clone(), BLOCK_BYTES / size) {
                    // SAFETY: the scratch memory has room for a piece: a block, or one element.
                    unsafe {
                        self.pack(from, here, scratch.ptr());
                        self.deliver(rank, to.run(there), scratch.ptr())?;
                    }
                }
            } else if let Route::Near(first) = self.there(rank, from.extent) {
                for (there, here) in mine.clone().zip(block(rank)) {
                    // SAFETY: both elements lie in the segments; where they overlap, any mixture of
                    // their bytes arrives.
                    unsafe {
                        shm::copy(
                            self.here(to.element(here)),
                            first.wrapping_add(there * from.stride),
                            size,
                        )
                    };
                }
            } else if from.stride <= MOST_FETCHED_STRIDE_BYTES {
                for (there, here) in pieces(mine.clone(), block(rank), BLOCK_BYTES / from.stride) {
                    // SAFETY: the scratch memory has room for a piece with its gaps.
                    unsafe {
                        self.fetch(rank, from.run(there), scratch.ptr())?;
                        self.unpack(scratch.ptr(), from.stride, to, here);
                    }
                }
            } else {
                for (here, there) in block(rank).zip(mine.clone()) {
                    self.give(rank, from.element(here), to.element(there))?;
                }
            }
        }
        self.pass_barrier()?;
        // D1 of the module's head.
        self.check_given(&|_| true)
    }

    /// Copies elements of this PE to `to`, where they lie without gaps.
    ///
    /// # Safety
    /// `to` is writable for all of the elements, and does not overlap with them.
    unsafe fn pack(&self, from: Strided, range: Range<usize>, to: *mut u8) {
        for (place, index) in range.enumerate() {
            // SAFETY: the element lies in this PE's segment; the caller promises the destination.
            unsafe {
                shm::copy(to.add(place * from.size), self.here(from.element(index)), from.size)
            };
        }
    }

    /// Copies elements at a stride in private memory to elements of this PE.
    ///
    /// # Safety
    /// `from` is readable for all of the elements.
    unsafe fn unpack(&self, from: *const u8, stride: usize, to: Strided, range: Range<usize>) {
        for (place, index) in range.enumerate() {
            // SAFETY: the element lies in this PE's segment; the caller promises the source.
            unsafe { shm::copy(self.here(to.element(index)), from.add(place * stride), to.size) };
        }
    }
}

/// Two equally long ranges, cut into pieces of at most `most`, or 1 where that is 0.
fn pieces(
    a: Range<usize>,
    b: Range<usize>,
    most: usize,
) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
    let (most, count) = (most.max(1), a.len());
    (0..count).step_by(most).map(move |done| {
        let next = most.min(count - done);
        (a.start + done..a.start + done + next, b.start + done..b.start + done + next)
    })
}
