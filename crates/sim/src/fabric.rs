//! The machine as the fabric of one PE.

use crate::coroutine::Port;
use crate::engine::Request;
use crate::host::{Answer, Atomic, GroupOp, HostOp, Signal, Wanted};
use crate::packet::Payload;
use crate::time::Ps;
use memonet_core::fabric::{Fabric, FarAddress, HardwareBarrier, VirtualClock};
use memonet_core::hosted::Hosted;
use memonet_core::shm::{self, AtomicOp};
use memonet_core::{Error, Result, SignalOp};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longer blocks are several.
const MOST: usize = 1 << 30;
const NOT_HERE: Error = Error::Misuse("a simulated PE has one thread: its job was used by another, or after its program had ended");

/// All peers behind the machine.
pub(crate) struct SimFabric {
    port: Arc<Port>,
    hosted: Arc<Hosted>,
    /// Why a store was refused.
    late: Mutex<Option<String>>,
    /// PEs of the job, if the machine has hardware for groups of them.
    groups: Option<u32>,
    /// The group of all, for their barrier.
    all: AtomicU32,
}

impl SimFabric {
    pub(crate) fn new(port: Arc<Port>, hosted: Arc<Hosted>, groups: Option<u32>) -> Self {
        SimFabric {
            port,
            hosted,
            late: Mutex::default(),
            groups,
            all: AtomicU32::new(0),
        }
    }

    fn call(&self, what: HostOp) -> Result<Answer> {
        let reply = self.port.call(Request::Host(what)).ok_or(NOT_HERE)?;
        match reply.answer.refused {
            None => Ok(reply.answer),
            Some(problem) => Err(refused(problem)),
        }
    }

    /// # Safety
    /// `src` is readable for `len` bytes.
    unsafe fn write(&self, to: FarAddress, src: *const u8, len: usize, reuse: bool, signal: Option<Signal>) -> Result<()> {
        let mut done = 0;
        loop {
            let part = (len - done).min(MOST);
            let data = if part == 0 {
                Payload::EMPTY
            } else {
                let mut bytes = vec![0; part];
                // SAFETY: the caller promises the source; the vector was made for so many bytes.
                unsafe { shm::copy(bytes.as_mut_ptr(), src.add(done), part) };
                Payload::copy(&bytes)
            };
            let to = FarAddress {
                offset: to.offset + done as u64,
                ..to
            };
            done += part;
            let signal = signal.filter(|_| done == len);
            self.call(HostOp::Put { to, data, signal, reuse })?;
            if done == len {
                return Ok(());
            }
        }
    }
}

fn refused(problem: String) -> Error {
    Error::Fabric {
        fabric: "simulated machine",
        problem,
    }
}

impl Fabric for SimFabric {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn store(&self, to: FarAddress, size: usize, bits: u64) {
        let word = Payload::word(size, bits);
        if let Err(error) = self.call(HostOp::Store { to, word }) {
            *self.late.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        }
    }

    unsafe fn put(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()> {
        // SAFETY: the caller promises the source.
        unsafe { self.write(to, src, len, true, None) }
    }

    unsafe fn put_nbi(&self, to: FarAddress, src: *const u8, len: usize) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.write(to, src, len, false, None) }
    }

    unsafe fn get(&self, from: FarAddress, dst: *mut u8, len: usize) -> Result<()> {
        let mut done = 0;
        while done < len {
            let part = (len - done).min(MOST);
            let from = FarAddress {
                offset: from.offset + done as u64,
                ..from
            };
            let answer = self.call(HostOp::Get { from, len: part as u32 })?;
            assert_eq!(answer.data.len(), part, "a get is answered with all that it asked for");
            // SAFETY: the caller promises the destination; the answer has so many bytes, just asserted.
            answer.data.with(|bytes| unsafe { shm::copy(dst.add(done), bytes.as_ptr(), part) });
            done += part;
        }
        Ok(())
    }

    unsafe fn put_signal(&self, to: FarAddress, src: *const u8, len: usize, signal: FarAddress, op: SignalOp, value: u64) -> Result<()> {
        let signal = Signal { at: signal, op, value };
        // SAFETY: the caller promises the source.
        unsafe { self.write(to, src, len, true, Some(signal)) }
    }

    fn fetch_op(&self, at: FarAddress, size: usize, op: AtomicOp, operand: u64) -> Result<u64> {
        let what = Atomic::Op(op, operand);
        Ok(self
            .call(HostOp::Atomic {
                at,
                size: size as u8,
                what,
            })?
            .value)
    }

    fn compare_swap(&self, at: FarAddress, size: usize, expected: u64, new: u64) -> Result<u64> {
        let what = Atomic::CompareSwap { expected, new };
        Ok(self
            .call(HostOp::Atomic {
                at,
                size: size as u8,
                what,
            })?
            .value)
    }

    fn fence(&self) -> Result<()> {
        self.call(HostOp::Fence).map(drop)
    }

    fn quiet(&self) -> Result<()> {
        self.call(HostOp::Quiet)?;
        let late = self.late.lock().unwrap_or_else(PoisonError::into_inner).take();
        late.map_or(Ok(()), |problem| Err(refused(problem)))
    }

    fn is_quiet(&self) -> Result<bool> {
        self.look();
        let reply = self.port.call(Request::IsQuiet);
        Ok(reply.is_none_or(|reply| reply.answer.value != 0))
    }

    fn progress(&self) {
        self.look();
    }

    unsafe fn map_region(&self, pe: u32, region: u32, base: *mut u8, len: usize) {
        // SAFETY: the caller promises what the host asks for.
        unsafe { self.hosted.map_region(self.port.pe(), pe, region, base, len) };
    }

    fn unmap_region(&self, pe: u32, region: u32) {
        self.hosted.unmap_region(self.port.pe(), pe, region);
    }

    fn clock(&self) -> Option<&dyn VirtualClock> {
        Some(self)
    }

    fn barrier(&self) -> Option<&dyn HardwareBarrier> {
        self.groups.map(|_| self as &dyn HardwareBarrier)
    }

    fn outlives_pes(&self) -> bool {
        true
    }
}

impl HardwareBarrier for SimFabric {
    fn join(&self) -> Result<bool> {
        let join = GroupOp::Join {
            members: (0..self.groups.unwrap_or(0)).collect(),
            wanted: Wanted::Barrier,
        };
        let group = self.call(HostOp::Group(join))?.value as u32;
        self.all.store(group, Ordering::Relaxed);
        Ok(group != 0)
    }

    fn arrive(&self) -> Result<()> {
        self.call(HostOp::Group(GroupOp::Arrive(self.all.load(Ordering::Relaxed))))
            .map(drop)
    }

    fn complete(&self) -> Result<u64> {
        Ok(self.call(HostOp::Group(GroupOp::Phase(self.all.load(Ordering::Relaxed))))?.value)
    }
}

impl VirtualClock for SimFabric {
    fn now(&self) -> Duration {
        self.port.now().to_duration()
    }

    fn look(&self) {
        self.port.call(Request::Look);
    }

    fn park(&self, deadline: Option<Duration>, what: &'static str) -> Result<()> {
        let deadline = deadline.map(Ps::from_duration);
        self.port.call(Request::Park { deadline, what }).map(drop).ok_or(NOT_HERE)
    }

    fn compute(&self, time: Duration) {
        self.port.call(Request::Compute(Ps::from_duration(time)));
    }
}
