//! The memory of the PEs, as the machine writes it.

use crate::host::Atomic;
use crate::op::Pe;
use crate::packet::Payload;
use memonet_core::unstable::fabric::FarAddress;

/// The memory that NICs deliver into. Addresses come from resolved remotes, whose bounds and rights
/// were checked. They are checked again here, because a kind may compute other addresses from them.
pub trait Memory {
    /// Writes bytes, with the rights of PE `by` in restricted windows. An error says why the bytes
    /// cannot be written.
    fn write(&mut self, by: Pe, to: FarAddress, data: &Payload) -> Result<(), String>;
    /// Reads bytes, with the rights of PE `by`.
    fn read(&mut self, by: Pe, from: FarAddress, len: usize) -> Result<Payload, String>;
    /// Changes a word, with the rights of PE `by`. Returns the word's old value.
    fn atomic(&mut self, by: Pe, at: FarAddress, size: usize, what: Atomic) -> Result<u64, String>;
}

/// Memory for each PE without a job: for tests of NIC kinds.
#[derive(Debug, Clone)]
pub struct PlainMemory {
    segments: Vec<Vec<u8>>,
}

impl PlainMemory {
    /// Memory for `pes` PEs, of `bytes` bytes each.
    pub fn new(pes: usize, bytes: usize) -> Self {
        PlainMemory { segments: vec![vec![0; bytes]; pes] }
    }

    /// A PE's memory.
    pub fn segment(&self, pe: Pe) -> &[u8] {
        &self.segments[pe.index()]
    }

    fn place(&mut self, at: FarAddress, len: usize) -> Result<&mut [u8], String> {
        let start = usize::try_from(at.offset).map_err(|e| e.to_string())?;
        self.segments
            .get_mut(at.pe as usize)
            .filter(|_| at.region == 0)
            .and_then(|segment| segment.get_mut(start..start.checked_add(len)?))
            .ok_or_else(|| format!("there are no {len} bytes at {at:?}"))
    }
}

impl Memory for PlainMemory {
    fn write(&mut self, _by: Pe, to: FarAddress, data: &Payload) -> Result<(), String> {
        let place = self.place(to, data.len())?;
        data.with(|bytes| place.copy_from_slice(bytes));
        Ok(())
    }

    fn read(&mut self, _by: Pe, from: FarAddress, len: usize) -> Result<Payload, String> {
        Ok(Payload::copy(self.place(from, len)?))
    }

    fn atomic(
        &mut self,
        _by: Pe,
        at: FarAddress,
        size: usize,
        what: Atomic,
    ) -> Result<u64, String> {
        let place = self.place(at, size)?;
        let mut word = [0; 8];
        word[..size].copy_from_slice(place);
        let old = u64::from_le_bytes(word);
        let new = what.result(old, size);
        place.copy_from_slice(&new.to_le_bytes()[..size]);
        Ok(old)
    }
}
