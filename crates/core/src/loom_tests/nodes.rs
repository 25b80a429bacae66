//! Barriers of PEs on several nodes, over a fabric that delivers at once: each notification is a
//! store into the target's memory, a fence, and a ring of its doorbell.

use super::barrier::{meet, stepwise, whole};
use super::*;
use crate::base::error::Result;
use crate::base::shm::AtomicOp;
use crate::endpoint::fabric::{Fabric, FarAddress, Record, SignalOp};
use rustix::fd::BorrowedFd;

/// The fabric of each PE. A barrier only notifies.
struct Delivering {
    control: Arc<Control>,
    record: Record,
}

impl Fabric for Delivering {
    fn name(&self) -> &'static str {
        "delivering"
    }

    fn record(&self) -> Record {
        self.record.clone()
    }

    unsafe fn put_signal(
        &self,
        _to: FarAddress,
        _src: *const u8,
        len: usize,
        signal: FarAddress,
        op: SignalOp,
        value: u64,
    ) -> Result<()> {
        assert_eq!((len, op, signal.region), (0, SignalOp::Set, 0));
        let (control, pe) = (&self.control, signal.pe as usize);
        let segment = control.geometry().segment(pe);
        let word = control.mapping().at(segment + signal.offset).cast::<u64>();
        // SAFETY: an aligned word of the job's mapping, which `control` keeps.
        unsafe { shm::store(word, value) };
        control.doorbell(pe).ring(control.membarrier());
        Ok(())
    }

    fn fence(&self) -> Result<()> {
        Ok(())
    }

    fn quiet(&self) -> Result<()> {
        Ok(())
    }

    fn is_quiet(&self) -> Result<bool> {
        Ok(true)
    }

    fn progress(&self) -> bool {
        false
    }

    fn store(&self, _to: FarAddress, _size: usize, _bits: u64) {
        unreachable!("a barrier only notifies")
    }

    unsafe fn put(&self, _to: FarAddress, _src: *const u8, _len: usize) -> Result<()> {
        unreachable!("a barrier only notifies")
    }

    unsafe fn put_nbi(&self, _to: FarAddress, _src: *const u8, _len: usize) -> Result<()> {
        unreachable!("a barrier only notifies")
    }

    unsafe fn get(&self, _from: FarAddress, _dst: *mut u8, _len: usize) -> Result<()> {
        unreachable!("a barrier only notifies")
    }

    fn fetch_op(&self, _at: FarAddress, _size: usize, _op: AtomicOp, _by: u64) -> Result<u64> {
        unreachable!("a barrier only notifies")
    }

    fn compare_swap(&self, _at: FarAddress, _size: usize, _old: u64, _new: u64) -> Result<u64> {
        unreachable!("a barrier only notifies")
    }

    unsafe fn map_region(
        &self,
        _pe: u32,
        _region: u32,
        _base: *mut u8,
        _len: usize,
        _file: BorrowedFd<'_>,
    ) -> Result<()> {
        unreachable!("a barrier has no restricted windows")
    }

    fn unmap_region(&self, _pe: u32, _region: u32) {}
}

/// One phase.
fn once(barrier: &Barrier, arriving: &dyn Fn(u64), passed: &dyn Fn(u64)) {
    arriving(1);
    barrier.pass().unwrap();
    passed(1);
}

/// A job whose PEs are on these nodes.
fn job_on(nodes: &[u32]) -> Vec<Arc<Pe>> {
    let cpus = vec![1; 1 + nodes.iter().copied().max().unwrap_or(0) as usize];
    let record = Record::nodes(nodes, &cpus);
    job_with(nodes.len(), |control| {
        Some(Box::new(Delivering { control: control.clone(), record: record.clone() }))
    })
}

macro_rules! nodes {
    ($($name:ident: $nodes:expr, $passes:ident, $preemptions:literal;)*) => {$(
        #[test]
        fn $name() {
            explore($preemptions, || meet(job_on(&$nodes), Algorithm::Nodes, $passes));
        }
    )*};
}

nodes! {
    a_leader_on_each: [0, 1], whole, 4;
    a_leader_on_each_stepwise: [0, 1], stepwise, 3;
    // N1, N3: the last arrival on a node, and the leader's message from another.
    a_leader_and_a_member: [0, 0, 1], whole, 1;
    a_leader_behind_a_member: [1, 0, 0], whole, 1;
    a_leader_and_a_member_stepwise: [0, 0, 1], stepwise, 1;
    // N3: both leaders sleep when the last member of their node arrives.
    two_leaders_and_two_members: [0, 0, 1, 1], once, 2;
    // N5: under loom, three nodes go in rounds.
    in_rounds: [0, 1, 2], once, 2;
}
