//! The recorder as the fabric of recorded addresses: it notes an operation, and makes it.

use super::{Kind, Place, Recorder};
use crate::base::error::Result;
use crate::base::shm::{self, AtomicOp};
use crate::endpoint::fabric::{Fabric, FarAddress, SignalOp};
use rustix::fd::BorrowedFd;

impl Recorder {
    /// The fabric of memory that is not mapped here.
    fn there(&self) -> &dyn Fabric {
        self.fabric.as_deref().expect("all memory that no fabric reaches is mapped here")
    }

    /// Updates the signal word at `p`, and wakes the PE that owns it, as a near signal does.
    ///
    /// # Safety
    /// `p` is an aligned word, mapped and writable.
    unsafe fn signal(&self, pe: u32, p: *mut u8, op: SignalOp, value: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            match op {
                SignalOp::Set => shm::store(p.cast::<u64>(), value),
                SignalOp::Add => drop(shm::fetch_op(p, 8, AtomicOp::Add, value)),
            }
        }
        let target = pe as usize;
        if self.control.doorbell(target).ring(self.control.membarrier()) && target == self.me {
            self.descriptor.nudge();
        }
    }

    /// Notes a put that a signal follows.
    fn put_before(&self, to: FarAddress, len: usize, signal: FarAddress, value: u64) -> Place {
        let place = self.operation(Kind::PutSignal, to, len, None);
        if self.is_on() {
            self.note_operation(Kind::Signal, signal, size_of::<u64>(), Some(value));
        }
        place
    }

    /// Reads a word for a [`Remote`](crate::Remote) or a front end.
    pub(in crate::endpoint) fn load(&self, from: FarAddress, size: usize) -> Result<u64> {
        match self.operation(Kind::Load, from, size, None) {
            // SAFETY: recorded addresses are resolved: aligned and mapped (step 1 of the proof).
            Place::Here(p) => Ok(unsafe { shm::load_sized(p, size) }),
            Place::There(from) => {
                let mut bits = 0u64;
                // SAFETY: `bits` has 8 bytes and `size` is at most 8; memonet runs on little-endian
                // processors only.
                unsafe { self.there().get(from, (&raw mut bits).cast(), size) }?;
                Ok(bits)
            }
        }
    }
}

impl Fabric for Recorder {
    fn name(&self) -> &'static str {
        self.fabric.as_ref().map_or("recorder", |fabric| fabric.name())
    }

    fn store(&self, to: FarAddress, size: usize, bits: u64) {
        match self.operation(Kind::Store, to, size, Some(bits)) {
            // SAFETY: recorded addresses are resolved, for this access: aligned, mapped, writable.
            // This holds for all accesses here.
            Place::Here(p) => unsafe { shm::store_sized(p, size, bits) },
            Place::There(to) => self.there().store(to, size, bits),
        }
    }

    unsafe fn put(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()> {
        match self.operation(Kind::Put, to, len, None) {
            // SAFETY: as in `store`; the caller promises the source.
            Place::Here(p) => unsafe { shm::copy_overlapping(p, src, len) },
            // SAFETY: the caller promises the source.
            Place::There(to) => return unsafe { self.there().put(to, src, len) },
        }
        Ok(())
    }

    unsafe fn put_nbi(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()> {
        match self.operation(Kind::Put, to, len, None) {
            // SAFETY: as in `store`; the caller promises the source.
            Place::Here(p) => unsafe { shm::copy_overlapping(p, src, len) },
            // SAFETY: the caller promises the source.
            Place::There(to) => return unsafe { self.there().put_nbi(to, src, len) },
        }
        Ok(())
    }

    unsafe fn get(&self, from: FarAddress, dst: *mut u8, len: usize) -> Result<()> {
        match self.operation(Kind::Get, from, len, None) {
            // SAFETY: as in `store`; the caller promises the destination.
            Place::Here(p) => unsafe { shm::copy_overlapping(dst, p, len) },
            // SAFETY: the caller promises the destination.
            Place::There(from) => return unsafe { self.there().get(from, dst, len) },
        }
        Ok(())
    }

    unsafe fn put_signal(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: FarAddress,
        op: SignalOp,
        value: u64,
    ) -> Result<()> {
        // A signal alone is a block of no bytes at its word.
        let place = match to == signal {
            true => self.operation(Kind::Signal, to, size_of::<u64>(), Some(value)),
            false => self.put_before(to, len, signal, value),
        };
        match (place, Place::of(signal)) {
            (Place::There(to), Place::There(at)) => {
                // SAFETY: the caller promises the source.
                unsafe { self.there().put_signal(to, src, len, at, op, value) }
            }
            (Place::Here(to), Place::Here(at)) => {
                // SAFETY: as in `store`; the caller promises the source. A near copy is visible
                // before every later store.
                unsafe {
                    if len > 0 {
                        shm::copy_overlapping(to, src, len);
                    }
                    self.signal(signal.pe, at, op, value);
                }
                Ok(())
            }
            _ => unreachable!("a PE is either near or far"),
        }
    }

    unsafe fn put_signal_nbi(
        &self,
        to: FarAddress,
        src: *const u8,
        len: usize,
        signal: FarAddress,
        op: SignalOp,
        value: u64,
    ) -> Result<()> {
        match (Place::of(to), Place::of(signal)) {
            (Place::There(there), Place::There(at)) => {
                self.put_before(to, len, signal, value);
                // SAFETY: the caller promises the source.
                unsafe { self.there().put_signal_nbi(there, src, len, at, op, value) }
            }
            // SAFETY: the caller promises more than this asks for.
            _ => unsafe { self.put_signal(to, src, len, signal, op, value) },
        }
    }

    fn fetch_op(&self, at: FarAddress, size: usize, op: AtomicOp, operand: u64) -> Result<u64> {
        match self.operation(Kind::FetchAtomic, at, size, Some(operand)) {
            // SAFETY: as in `store`.
            Place::Here(p) => Ok(unsafe { shm::fetch_op(p, size, op, operand) }),
            Place::There(at) => self.there().fetch_op(at, size, op, operand),
        }
    }

    fn apply(&self, at: FarAddress, size: usize, op: AtomicOp, operand: u64) -> Result<()> {
        match self.operation(Kind::Atomic, at, size, Some(operand)) {
            // SAFETY: as in `store`.
            Place::Here(p) => drop(unsafe { shm::fetch_op(p, size, op, operand) }),
            Place::There(at) => self.there().apply(at, size, op, operand)?,
        }
        Ok(())
    }

    fn compare_swap(&self, at: FarAddress, size: usize, expected: u64, new: u64) -> Result<u64> {
        match self.operation(Kind::FetchAtomic, at, size, Some(new)) {
            // SAFETY: as in `store`.
            Place::Here(p) => Ok(unsafe { shm::compare_swap_sized(p, size, expected, new) }),
            Place::There(at) => self.there().compare_swap(at, size, expected, new),
        }
    }

    fn fence(&self) -> Result<()> {
        self.fabric.as_ref().map_or(Ok(()), |fabric| fabric.fence())
    }

    fn quiet(&self) -> Result<()> {
        self.fabric.as_ref().map_or(Ok(()), |fabric| fabric.quiet())
    }

    fn is_quiet(&self) -> Result<bool> {
        self.fabric.as_ref().map_or(Ok(true), |fabric| fabric.is_quiet())
    }

    fn progress(&self) -> bool {
        self.fabric.as_ref().is_some_and(|fabric| fabric.progress())
    }

    unsafe fn map_region(
        &self,
        _pe: u32,
        _region: u32,
        _base: *mut u8,
        _len: usize,
        _file: BorrowedFd<'_>,
    ) -> Result<()> {
        unreachable!("parts of windows are announced to the PE's own fabric")
    }

    fn unmap_region(&self, _pe: u32, _region: u32) {
        unreachable!("parts of windows are announced to the PE's own fabric")
    }
}
