//! A PE's calls of the library as requests to the machine, and the port of a PE that is a
//! coroutine.

use crate::coroutine::Port;
use crate::host::{Answer, GroupOp, HostOp, Wanted};
use crate::packet::Payload;
use crate::program::Request;
use crate::time::Ps;
use memonet_core::unstable::fabric::FarAddress;
use memonet_core::unstable::hosted::{self, Ask, Hosted, refused};
use memonet_core::unstable::shm;
use memonet_core::{Error, Result};
use rustix::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const NOT_HERE: Error = Error::misuse(
    "a simulated PE has one thread: its job was used by another, or after its program had ended",
);

/// Turns a PE's questions into requests. Each PE has its own, which remembers the group of all PEs
/// for collectives.
pub(crate) struct Asks {
    /// All PEs. The whole job shares one list.
    everybody: Arc<[u32]>,
    /// The group of all PEs for collectives; 0 until the PE has joined it.
    all_for_collectives: AtomicU32,
}

impl Asks {
    pub(crate) fn new(everybody: Arc<[u32]>) -> Self {
        Asks { everybody, all_for_collectives: AtomicU32::new(0) }
    }

    /// The request for a question. `block` is the data that goes with the question.
    pub(crate) fn request(&self, ask: Ask, block: Payload) -> Request {
        Request::Host(match ask {
            Ask::Store { to, size, bits } => {
                HostOp::Store { to, word: Payload::word(size.into(), bits) }
            }
            Ask::Put { to, reuse, signal, .. } => HostOp::Put { to, data: block, signal, reuse },
            Ask::Command { to, len, signal, step } => HostOp::Prepare { to, len, signal, step },
            Ask::Key { pe, region, key, step } => HostOp::Key { pe, region, key, step },
            Ask::Get { from, len } => HostOp::Get { from, len },
            Ask::Atomic { at, size, what } => HostOp::Atomic { at, size, what },
            Ask::Fence => HostOp::Fence,
            Ask::Quiet => HostOp::Quiet,
            Ask::Join { len: 0 } => self.join_all(Wanted::Barrier),
            Ask::Join { .. } => HostOp::Group(GroupOp::Join {
                members: members(&block).into(),
                wanted: Wanted::Barrier,
            }),
            Ask::Arrive { group } => HostOp::Group(GroupOp::Arrive(group)),
            Ask::Step { group } => HostOp::Group(GroupOp::Step(group)),
            Ask::Phase { group } => HostOp::Group(GroupOp::Phase(group)),
            Ask::JoinCollectives => self.join_all(Wanted::Collectives),
            Ask::Collective { what, .. } => HostOp::Group(GroupOp::Collective {
                group: self.all_for_collectives.load(Ordering::Relaxed),
                what,
                data: block,
            }),
            Ask::Collected { .. } => {
                HostOp::Group(GroupOp::Result(self.all_for_collectives.load(Ordering::Relaxed)))
            }
            Ask::JoinCopies { len: 0 } => self.join_all(Wanted::Multicast),
            Ask::JoinCopies { .. } => HostOp::Group(GroupOp::Join {
                members: members(&block).into(),
                wanted: Wanted::Multicast,
            }),
            Ask::WriteAll { group, to, .. } => HostOp::Group(GroupOp::Multicast {
                group,
                to: FarAddress { pe: 0, region: 0, offset: to },
                data: block,
            }),
            Ask::JoinDatagrams { purpose, .. } => HostOp::Group(GroupOp::Join {
                members: members(&block).into(),
                wanted: Wanted::Datagrams(purpose),
            }),
            Ask::Send { group, to, .. } => HostOp::Group(GroupOp::Send { group, to, data: block }),
            Ask::Receive { group, .. } => HostOp::Group(GroupOp::Receive(group)),
            Ask::Leave { group } => HostOp::Group(GroupOp::Leave(group)),
            Ask::IsQuiet => return Request::IsQuiet,
            Ask::Look => return Request::Look,
            Ask::Park { due, what } => {
                let vain = due.is_some_and(|due| due.vain);
                // No run lasts until a deadline beyond the end of time.
                let due =
                    due.map(|due| Ps::from_duration(due.at)).filter(|&at| at < Ps::END_OF_TIME);
                return Request::Park { due, vain, what };
            }
            Ask::Compute { time } => return Request::Compute(Ps::from_duration(time)),
            // These questions take no time, or are no requests.
            Ask::Begin
            | Ask::Map { .. }
            | Ask::Unmap { .. }
            | Ask::Mark { .. }
            | Ask::Await { .. } => return Request::Compute(Ps::ZERO),
        })
    }

    fn join_all(&self, wanted: Wanted) -> HostOp {
        let members = self.everybody.clone();
        HostOp::Group(GroupOp::Join { members, wanted })
    }

    /// Remembers what the answer to `ask` says.
    pub(crate) fn answered(&self, ask: Ask, answer: &Answer) {
        if let Ask::JoinCollectives = ask {
            self.all_for_collectives.store(answer.value as u32, Ordering::Relaxed);
        }
    }
}

/// The members that a block names.
pub(crate) fn members(block: &Payload) -> Vec<u32> {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
    block.with(|bytes| bytes.chunks_exact(4).map(word).collect())
}

/// The port of a PE that is a coroutine.
pub(crate) struct OfCoroutine {
    port: Arc<Port>,
    hosted: Arc<Hosted>,
    asks: Asks,
}

impl OfCoroutine {
    pub(crate) fn new(port: Arc<Port>, hosted: Arc<Hosted>, everybody: Arc<[u32]>) -> Self {
        let asks = Asks::new(everybody);
        OfCoroutine { port, hosted, asks }
    }
}

impl hosted::Port for OfCoroutine {
    fn pe(&self) -> u32 {
        self.port.pe()
    }

    fn now(&self) -> Duration {
        self.port.now().to_duration()
    }

    unsafe fn call(&self, ask: Ask, block: *mut u8) -> Result<u64> {
        let data = match ask.gives() {
            len @ 1.. => {
                let mut bytes = vec![0; len];
                // SAFETY: the caller promises the source. The vector was made with this length.
                unsafe { shm::copy(bytes.as_mut_ptr(), block, bytes.len()) };
                Payload::copy(&bytes)
            }
            0 => Payload::EMPTY,
        };
        let time = match ask {
            Ask::Compute { time } => Ps::from_duration(time),
            _ => Ps::ZERO,
        };
        (self.port.now() + time).in_time().map_err(refused)?;
        let answer = self.port.call(self.asks.request(ask, data)).ok_or(NOT_HERE)?.answer;
        self.asks.answered(ask, &answer);
        if let Some(problem) = answer.refused {
            return Err(refused(problem));
        }
        if ask.takes() > 0 {
            let (came, most) = (answer.data.len(), ask.takes());
            let all = if matches!(ask, Ask::Get { .. }) { came == most } else { came <= most };
            assert!(all, "{ask:?} is answered with {came} bytes");
            // SAFETY: the caller promises a destination for `most` bytes. The answer has no more
            // than that, as was asserted above.
            answer.data.with(|bytes| unsafe { shm::copy(block, bytes.as_ptr(), bytes.len()) });
        }
        Ok(answer.value)
    }

    unsafe fn map_region(
        &self,
        pe: u32,
        region: u32,
        base: *mut u8,
        len: usize,
        _file: BorrowedFd<'_>,
    ) -> Result<()> {
        // SAFETY: the caller's promise is what `map_region` requires.
        unsafe { self.hosted.map_region(self.port.pe(), pe, region, base, len) };
        Ok(())
    }

    fn unmap_region(&self, pe: u32, region: u32) {
        self.hosted.unmap_region(self.port.pe(), pe, region);
    }
}
