//! The fabric of memonet over libfabric: remote memory access by the network's own hardware.
//!
//! Remote memory access, completion, registration and addressing are libfabric's. What is ours:
//! requests to the owner's CPU, waits, and failure. libfabric is loaded when a job asks for it
//! (`sys.rs`); a PE has one reliable datagram endpoint (`net.rs`).
//!
//! ```text
//! Ofi (fabric.rs)    calls of the library, and what they wait for
//!   Hub (hub.rs)     operations under way, peers, buffers, behind one lock
//!     Net            endpoint, completion queue, address table
//!     Peer           address, keys, messages to send, what it has not completed
//!     Memory         this PE's own memory: registrations, rights
//!     serve          what others ask of this PE's CPU
//!   Shared           the lock, and how a thread sleeps until something comes
//!   thread.rs        lets the provider work while no thread of the PE does
//!   Meeting          where addresses come from: between PEs of one machine, local datagrams;
//!                    between hosts, streams of their agents
//! ```
//!
//! # What becomes of each operation
//!
//! | operation | becomes |
//! |---|---|
//! | store | a write of the word; with a provider in software a message, as those may write a word in two pieces |
//! | put | writes. Up to [`COPIED`] bytes are copied into a registered buffer, and the call returns; more are sent from where they lie, registered for the call where the provider wants that. The last of them are copied, so that the network has work between one put and the next |
//! | get | reads into registered buffers, of at most [`COPIED`] bytes each, several under way at once |
//! | signal | a message to the owner's CPU |
//! | put and signal | one message with block and signal where both fit; otherwise writes, and the message once these are complete |
//! | atomics | a message to the owner's CPU, and its answer |
//! | key of a range | a message when a PE first needs it, and its answer; kept until the range goes out of use |
//!
//! # The proof
//!
//! * O1. **Completion.** Each write asks for `FI_DELIVERY_COMPLETE`: when it is complete, its bytes
//!   are visible at the target.
//! * O2. **Messages** of a pair are sent in one order (a queue for each peer) and taken in it: the
//!   endpoint is asked for `FI_ORDER_SAS`. The owner's CPU does them one after the other. So once a
//!   flush is answered, all signals before it have been done.
//! * O3. **A signal comes after its block.** Either one message has both, and the owner writes the
//!   block first; or the message is queued when all writes of the block are complete (O1).
//! * O4. **Fence.** It is a number, and a call keeps the number with which it began. The first
//!   access of a peer after a fence has a goal: all writes and deferred signals that had begun are
//!   to be complete, and all signals queued by then flushed. A message waits for the former alone,
//!   as messages keep their order (O2). What other threads add meanwhile is not in the goal, and a
//!   goal is kept until it is reached, so a fence ends whatever they do.
//! * O5. **Quiet** has such a goal at each peer from when it begins: all writes (O1), then deferred
//!   signals queued, then an answer to a flush (O2). So all is visible.
//! * O6. **Atomics** are done by the owner's CPU, each by one message that is taken once. Near PEs
//!   use the same instructions on the same words, so near and far atomics are one kind.
//! * O7. **Waking.** The owner's CPU rings the sleeper when it has done a message. Nobody sees what
//!   the network writes: a wait that polls finds it, and for a sleeper the progress thread rings
//!   whenever the completion queue has ended its sleep. A sleeper looks from time to time anyway.
//! * O8. **Rights.** The key that a PE gets of a part of a restricted window is of a registration
//!   with that PE's right, so the network refuses more. Messages are checked against the right, the
//!   bounds and the alignment before anything is written. A signal that is refused is an error of
//!   the sender's quiet.
//! * O9. **Keys end.** A range is deregistered before its pages go, and each PE drops all keys of
//!   its offsets then. An allocation at the same offsets involves all PEs, so nobody asks for the
//!   new key before the owner has the new range.
//! * O10. **Death.** When a PE is gone, nothing is sent to it, all that waits for it ends, and
//!   registrations of sources end. A read goes to a buffer of the fabric and is copied by the call
//!   that waits, so a late answer never writes to the caller's memory; the buffer is not used again
//!   before the provider has given it back. A write reads the caller's memory where it is not
//!   copied. Its put or quiet does not return before a registration of the source has ended, or,
//!   where the provider needs none, before the provider has given the write back. If that takes
//!   longer than three seconds after the peer has gone, the endpoint is closed, and all pairs have
//!   failed. An operation that fails makes the peer's state uncertain: it is gone if the job says
//!   so within three seconds, and otherwise the pair has failed. A receive that fails tells nothing
//!   of its sender: if no PE is gone by then, all pairs have failed. They have at once where the
//!   completion queue itself fails.
//! * O11. **Every wait ends.** A call that waits lets the provider work, serves others, and looks
//!   whether its peer has gone, however much others send. A PE that waits for room to send still
//!   serves, so no two PEs wait for each other. Whoever works on and on with the lock gives way to
//!   threads that wait for it. A thousand signals at most are not known to be done, so what comes
//!   after them is not kept waiting by ever more of them.
//! * O12. **Contact.** A provider may try for ever to reach an endpoint. Where nothing has passed
//!   for five seconds, the peer is asked for its address again, by the meeting. Its process answers
//!   only while it runs: one that is stopped has all the time. Where nothing has passed five
//!   seconds after the answer, the pair has failed.
//!
//! # Trade-offs
//!
//! * One lock for all of a PE's operations, and an endpoint that relies on it. A call holds it for
//!   about as long as libfabric takes; a call that waits gives it back between two looks.
//! * Gets are copied once, whatever their length: no buffer of the program is ever written late.
//! * Providers in software (`tcp;ofi_rxm`) need the target's CPU to work; the progress thread gives
//!   it. They are for tests: over plain sockets the fabric `tcp` is faster.
//!
//! * libfabric proves nothing about who sends. Addresses are told to PEs of the job alone, and
//!   messages carry a mark of it, but whoever guesses an address and a key can write. Where that
//!   matters, the network has to be the cluster's own.
//!
//! Tested with `tcp;ofi_rxm` of libfabric 1.17 and 2.5 alone: no network with remote memory access
//! in hardware was at hand.

pub mod bare;
mod buffers;
mod error;
mod fabric;
mod hub;
mod meeting;
mod memory;
mod message;
mod net;
mod peer;
mod serve;
mod shared;
mod spec;
mod sys;
mod thread;

pub use error::NAME;
pub use fabric::Ofi;
pub use hub::COPIED;
pub use meeting::{Local, Meeting, News};
pub use spec::{Spec, USAGE};

/// What network cards with remote memory access show to programs: InfiniBand, RoCE, EFA;
/// Slingshot; Omni-Path.
const DEVICES: [&str; 3] = ["/sys/class/infiniband", "/sys/class/cxi", "/sys/class/hfi1"];

/// Whether this machine has a network card with remote memory access, for all that is seen without
/// libfabric.
pub fn has_card() -> bool {
    let has_some = |folder| std::fs::read_dir(folder).is_ok_and(|mut all| all.next().is_some());
    DEVICES.into_iter().any(has_some)
}

/// The provider that drives hardware of this machine; or why there is none. libfabric is not loaded
/// where there is no such card.
///
/// # Errors
/// What is missing.
pub fn hardware() -> Result<String, String> {
    if !has_card() {
        return Err(format!("there is no card in {}", DEVICES.join(", ")));
    }
    provider(None)
}

/// The provider of that name, or one with hardware, as libfabric finds it here; or why there is
/// none.
///
/// # Errors
/// What is missing.
pub fn provider(name: Option<&str>) -> Result<String, String> {
    thread::sheltered(|| net::Net::open(name, None)).map(|net| net.provider.clone())
}
