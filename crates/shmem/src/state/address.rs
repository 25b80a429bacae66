//! Addresses of a program: their offsets in the segment, and why an address is not symmetric.

use crate::state::fatal::die;
use crate::state::handle::Ctx;
use crate::state::library::State;
use crate::state::shared::Shared;
use crate::state::statics;
use memonet_core::unstable::segment::{Spot, page_size};
use std::ffi::{c_int, c_void};
use std::ops::Range;

impl State {
    /// The offset in the segment of `bytes` at an address, if all of them are symmetric.
    #[inline]
    pub fn offset(&self, address: usize, bytes: usize) -> Option<u64> {
        let within = |start: usize, len: usize, offset: u64| {
            let at = address.wrapping_sub(start);
            (at <= len && bytes <= len - at).then(|| offset + at as u64)
        };
        let heap = self.segment.heap();
        within(
            self.segment.local() as usize + heap.start as usize,
            (heap.end - heap.start) as usize,
            heap.start,
        )
        .or_else(|| {
            let in_statics =
                |shared: &Shared| within(shared.pages.start, shared.pages.len(), shared.offset);
            self.statics.iter().find_map(in_statics).filter(|_| self.no_statics.get().is_none())
        })
    }

    /// `bytes` at a symmetric address, in the memory of a PE of a context's team. Ends the job
    /// where there are none.
    pub fn spot(
        &'static self,
        call: &'static str,
        argument: &'static str,
        ctx: Ctx,
        address: usize,
        bytes: usize,
        pe: c_int,
    ) -> Spot<'static> {
        let pe = self.pe_of(call, "pe", ctx, pe);
        let offset = self.symmetric(call, argument, address, bytes);
        match self.at(pe, offset, bytes) {
            // SAFETY: `symmetric` has found that these bytes of this PE are mapped at `address`.
            Some(spot) if pe == self.job.pe() => unsafe { spot.as_seen_at(address as *mut u8) },
            Some(spot) => spot,
            None => die(
                call,
                format_args!(
                    "{argument}: there are no {bytes} bytes at {address:#x} in the memory of PE {pe}"
                ),
            ),
        }
    }

    /// With all checks on: ends the job where `bytes` at an address are not memory of this process.
    pub fn check_local(
        &self,
        call: &'static str,
        argument: &'static str,
        address: usize,
        bytes: usize,
    ) {
        if !self.check || bytes == 0 {
            return;
        }
        let start = address & !(page_size() - 1);
        let len = address.checked_add(bytes).map(|end| end - start);
        // SAFETY: `MS_ASYNC` changes no memory, and the kernel refuses a range that is not mapped.
        let is_mapped = |len| unsafe { libc::msync(start as *mut _, len, libc::MS_ASYNC) } == 0;
        if !len.is_some_and(is_mapped) {
            die(
                call,
                format_args!(
                    "{argument}: there are no {bytes} bytes of this program at {address:#x}: use an array of so many elements"
                ),
            );
        }
    }

    fn heap_contains(&self, address: usize) -> bool {
        let heap = self.segment.heap();
        let at = address.wrapping_sub(self.segment.local() as usize) as u64;
        heap.contains(&at)
    }

    /// The offset of a symmetric address. Ends the job, with the reason, if the address is not
    /// symmetric.
    #[inline]
    pub fn symmetric(
        &self,
        call: &'static str,
        argument: &'static str,
        address: usize,
        bytes: usize,
    ) -> u64 {
        match self.offset(address, bytes) {
            Some(offset) if !self.check => offset,
            offset => self.symmetric_checked(call, argument, address, bytes, offset),
        }
    }

    /// [`symmetric`](Self::symmetric) with all checks on, or of an address that is not symmetric.
    #[cold]
    #[inline(never)]
    fn symmetric_checked(
        &self,
        call: &'static str,
        argument: &'static str,
        address: usize,
        bytes: usize,
        offset: Option<u64>,
    ) -> u64 {
        if let Some(offset) = offset {
            if !self.heap_contains(address) {
                return offset;
            }
            return match block_around(self, offset) {
                Some(block) if offset + bytes as u64 <= block.end => offset,
                Some(block) => die(
                    call,
                    format_args!(
                        "{argument}: {bytes} bytes at {address:#x} go {} bytes beyond the end of the allocated block",
                        offset + bytes as u64 - block.end
                    ),
                ),
                None => die(
                    call,
                    format_args!(
                        "{argument}: {address:#x} lies in the symmetric heap, but in no allocated block; was it freed?"
                    ),
                ),
            };
        }
        let what = format!("{argument}: {bytes} bytes at {address:#x} are not symmetric");
        if let Some(why) = self.no_statics.get() {
            die(
                call,
                format_args!(
                    "{what}. Static variables are not symmetric in this job: {why}. Use shmem_malloc"
                ),
            );
        }
        if statics::is_constant(address) {
            die(
                call,
                format_args!(
                    "{what}: constants are never symmetric. Declare them without const, or use memory of shmem_malloc"
                ),
            );
        }
        die(
            call,
            format_args!(
                "{what}: use memory of shmem_malloc, or a static or global variable of the executable (of a library: name it in {}). \
             Variables on the stack and memory of malloc are not{}",
                statics::ENV_LIBS,
                statics::not_loaded()
            ),
        )
    }

    /// The offsets from a symmetric address to the end of its block, or of the heap, or of its
    /// range of static data. Ends the job if the address is not symmetric.
    pub fn room(&self, call: &'static str, argument: &'static str, address: usize) -> Range<u64> {
        let offset = self.symmetric(call, argument, address, 0);
        let end = if self.heap_contains(address) {
            let block = if self.check { block_around(self, offset) } else { None };
            block.map_or(self.segment.heap().end, |block| block.end)
        } else {
            let around = self.statics.iter().find(|shared| shared.pages.contains(&address));
            around.map_or(offset, |shared| shared.offset + shared.pages.len() as u64)
        };
        offset..end
    }

    /// Whether `address` is symmetric.
    pub fn is_symmetric(&self, address: usize) -> bool {
        self.offset(address, 1).is_some()
    }

    /// The address by which loads and stores of this PE reach a symmetric object of `pe`; null
    /// where they cannot.
    pub fn pointer(&self, address: usize, pe: usize) -> *mut c_void {
        if pe == self.job.pe() && self.is_symmetric(address) {
            return address as *mut c_void;
        }
        let spot = self.offset(address, 1).and_then(|offset| self.at(pe, offset, 1));
        spot.and_then(|spot| spot.near()).map_or(std::ptr::null_mut(), |near| near.cast())
    }
}

/// The requested bytes of the block that contains an offset or ends there, if there is one.
pub fn block_around(state: &State, offset: u64) -> Option<Range<u64>> {
    let ends_there = || state.job.block_around(offset.checked_sub(1)?);
    state.job.block_around(offset).or_else(ends_there)
}
