//! Which parts of restricted windows are mapped here. What is recorded in them is told by region
//! and offset, which are the same at all PEs, as addresses are not.

use crate::base::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The parts that a PE has mapped: by address, the bytes and the region.
#[derive(Default)]
pub(super) struct Mapped(Mutex<BTreeMap<usize, (usize, u16)>>);

impl Mapped {
    /// Adds a part; without bytes, removes it.
    pub(super) fn set(&self, region: u16, base: usize, len: usize) {
        let mut parts = lock(&self.0);
        match len {
            0 => parts.remove(&base),
            _ => parts.insert(base, (len, region)),
        };
    }

    /// Region and offset of the byte at an address.
    pub(super) fn place(&self, address: usize) -> Option<(u16, u64)> {
        let parts = lock(&self.0);
        let (base, &(len, region)) = parts.range(..=address).next_back()?;
        (address - base < len).then_some((region, (address - base) as u64))
    }
}
