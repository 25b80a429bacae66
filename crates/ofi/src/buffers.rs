//! Buffers that the provider may use: of messages, and between programs' memory and the network.

use crate::net::{Net, Region};
use crate::sys;
use std::ffi::c_void;
use std::ptr::null_mut;

/// A buffer of a pool.
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) at: *mut u8,
    pub(crate) desc: *mut c_void,
}

/// Buffers of one size, made in lots when they are needed.
pub(crate) struct Pool {
    size: usize,
    lot: usize,
    /// So many may be in use, but for those that are granted beyond it.
    most: usize,
    made: usize,
    free: Vec<Buffer>,
    /// Registrations first: they end before the memory does.
    regions: Vec<Region>,
    memory: Vec<Box<[u64]>>,
}

// SAFETY: the pool's memory belongs to it alone, and moves with it.
unsafe impl Send for Pool {}

impl Pool {
    pub(crate) fn new(size: usize, lot: usize, most: usize) -> Self {
        let (free, regions, memory) = (Vec::new(), Vec::new(), Vec::new());
        Pool { size, lot, most, made: 0, free, regions, memory }
    }

    /// A buffer, if one may be taken.
    pub(crate) fn take(&mut self, net: &mut Net) -> Result<Option<Buffer>, String> {
        if self.made - self.free.len() >= self.most {
            return Ok(None);
        }
        self.grant(net).map(Some)
    }

    /// A buffer, however many are in use.
    pub(crate) fn grant(&mut self, net: &mut Net) -> Result<Buffer, String> {
        if self.free.is_empty() {
            self.grow(net)?;
        }
        Ok(self.free.pop().expect("a lot was made"))
    }

    fn grow(&mut self, net: &mut Net) -> Result<(), String> {
        let mut memory = vec![0u64; self.size / 8 * self.lot].into_boxed_slice();
        let (start, len) = (memory.as_mut_ptr().cast::<u8>(), self.size * self.lot);
        let mut desc = null_mut();
        if net.needs_local() {
            let access = sys::SEND | sys::RECEIVE | sys::READ | sys::WRITE;
            // SAFETY: the memory lives as long as the pool, whose registrations end before.
            let region = unsafe { net.register(start, len, access) }?;
            desc = region.desc();
            self.regions.push(region);
        }
        self.memory.push(memory);
        self.made += self.lot;
        let buffer = |index| Buffer { at: start.wrapping_add(index * self.size), desc };
        self.free.extend((0..self.lot).map(buffer));
        Ok(())
    }

    pub(crate) fn give_back(&mut self, buffer: Buffer) {
        self.free.push(buffer);
    }

    /// The registrations end. The memory stays, for a provider that still has buffers.
    pub(crate) fn end_registrations(&mut self) {
        self.regions.clear();
    }

    /// The memory stays for ever.
    pub(crate) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.memory));
    }

    /// So many may never come back: others take their place.
    pub(crate) fn lose(&mut self, count: usize) {
        self.most += count;
    }
}
