//! Messages from any PE to any other, in order between two PEs: what `sendto` and `recvfrom` are
//! between processes.
//!
//! Each PE has a *receive area*: for each sender a ring of slots. A message is copied behind its
//! length into the sender's own buffer, and goes from there into the next slot by one put. The
//! put's signal *announces* it: it writes the message's number into a word of that slot, at which
//! the receiver looks. The receiver copies the message out, and *returns* the slot: it writes the
//! number into a word of the sender's. So a message costs one put with signal and one signal,
//! whether PEs are near or far, and a receiver looks at words alone until something has come.
//!
//! | word | where | written by | meaning |
//! |---|---|---|---|
//! | announced\[sender\]\[slot\] | receiver | the sender | number of the last message that is in the slot |
//! | returned\[receiver\]\[slot\] | sender | the receiver | number of the last message that was taken out |
//!
//! Messages of a sender to a receiver have the numbers 1, 2, 3, ...; number `n` goes into slot
//! `(n - 1) mod depth`.
//!
//! * **I1.** *A receiver sees whole messages.* The signal of a put comes after the put's data, and
//!   the receiver reads the slot only after it has seen the slot's word become `n`.
//! * **I2.** *No message is overwritten before it was taken.* The sender puts number `n` only after
//!   it has seen that number `n - depth` was returned, and a receiver returns a slot after it has
//!   copied the message.
//! * **I3.** *No word goes back.* Signals that set may overtake each other. But of one word, the
//!   next follows only after the other side has seen the one before: each slot has words of its
//!   own for that.
//! * **I4.** *Threads.* One thread at a time sends to a PE, and one takes what came from a PE: each
//!   such pair has a lock. A thread that waits holds neither, so the others keep their deadlines.

use crate::base::digest::Digest;
use crate::base::error::{Error, Result};
use crate::base::shm;
use crate::base::status::State;
use crate::base::{lock, shows, try_lock};
use crate::endpoint::ending;
use crate::endpoint::fabric::SignalOp;
use crate::endpoint::pe::Pe;
use crate::job::Job;
use crate::job::agree::KIND_MESSAGES;
use crate::wait::limit::Limit;
use crate::wait::{self, Awaiting, Terms};
use crate::window::{Window, WindowOptions, WindowTerms};
use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Bytes of the length before a message.
const HEADER: usize = size_of::<u64>();
/// Slots begin at multiples of a cache line.
const LINE: usize = 64;

/// Messages between the PEs of a job: each PE sends to any PE, and receives from all.
///
/// MPI: `MPI_Send`, `MPI_Recv` with `MPI_ANY_SOURCE`; sockets: `sendto`, `recvfrom`.
///
/// ```
/// # use memonet_core::{Job, Messages};
/// # Job::threads(3, |job| -> memonet_core::Result<()> {
/// let messages = Messages::new(&job, 1000, 4)?; // up to 1000 bytes; 4 under way between two PEs
/// if job.pe() > 0 {
///     messages.send(0, format!("from {}", job.pe()).as_bytes())?;
/// } else {
///     let mut message = Vec::new();
///     for _ in 1..job.npes() {
///         let sender = messages.recv(&mut message)?;
///         assert_eq!(message, format!("from {sender}").as_bytes());
///     }
/// }
/// # job.barrier()
/// # }).unwrap().into_iter().for_each(|r| r.unwrap());
/// ```
///
/// A receiver looks for messages by itself, in the call. A *detection thread* that does so beside
/// the program is a thread that calls [`recv`](Self::recv), and hands over what it gets: the
/// receiver then need not look, and each message waits for a change of threads.
///
/// Where all PEs are to get the same, a [`Multicast`](crate::Multicast) sends it once.
pub struct Messages {
    pe: Arc<Pe>,
    /// The receive area.
    area: Window<u8>,
    words: Window<u64>,
    most: usize,
    depth: usize,
    stride: usize,
    /// For each PE, what it takes to send to it.
    outboxes: Box<[Mutex<Outbox>]>,
    /// For each PE, how many of its messages were taken.
    taken: Box<[Taken]>,
    /// The PE at which the next search begins, so that none is served before all others for ever.
    next: AtomicUsize,
}

shows!([] Messages as "Messages", |it| most = it.most, depth = it.depth);

/// The bytes of a message, which can be read during the call that sends it.
#[derive(Clone, Copy)]
struct Contents {
    from: *const u8,
    bytes: usize,
}

impl From<&[u8]> for Contents {
    fn from(message: &[u8]) -> Self {
        Contents { from: message.as_ptr(), bytes: message.len() }
    }
}

#[derive(Default)]
struct Outbox {
    /// Number of the last message.
    sent: u64,
    /// Where a message and its length are put together.
    buffer: Vec<u8>,
}

#[derive(Default)]
struct Taken {
    taking: Mutex<()>,
    /// Grows under the lock; waits read it without.
    count: AtomicU64,
}

impl Messages {
    /// Makes the receive areas. *Collective.* A message has up to `most` bytes; up to `depth`
    /// messages from one PE to another may be under way before the sender waits for the receiver.
    /// Each PE has `depth` times `most` bytes for each PE.
    ///
    /// # Errors
    /// As for [`Job::window`]; [`Misuse`](Error::Misuse) for a `depth` of 0;
    /// [`Unequal`](Error::Unequal) when PEs give different numbers.
    #[track_caller]
    pub fn new(job: &Job, most: usize, depth: usize) -> Result<Self> {
        let made = Location::caller();
        job.pe.waiting_call("Messages::new", None, || {
            let npes = job.npes();
            let sizes = sizes(npes, most, depth).map_err(|error| job.refuse_window(error))?;
            let terms = WindowTerms {
                kind: KIND_MESSAGES,
                shape: most as u64,
                more: depth as u64,
                digest: Digest::new().words(&[most, depth]).pair(),
                made,
            };
            Ok(Messages {
                pe: job.pe.clone(),
                area: job.window_of(terms, sizes.area, WindowOptions::new(), |_| {})?,
                words: job.window(sizes.words)?,
                most,
                depth,
                stride: sizes.stride,
                outboxes: (0..npes).map(|_| Mutex::default()).collect(),
                taken: (0..npes).map(|_| Taken::default()).collect(),
                next: AtomicUsize::new(0),
            })
        })
    }

    /// The most bytes of a message.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Sends a message to `pe`, which may be this PE. Waits while `depth` messages to that PE have
    /// not been received. The message may be changed at once.
    ///
    /// MPI: `MPI_Send`; sockets: `sendto`.
    ///
    /// # Errors
    /// [`NoSuchPe`](Error::NoSuchPe); [`Misuse`](Error::Misuse) for a message of more than
    /// [`most`](Self::most) bytes; [`PeerFailed`](Error::PeerFailed) when there is no room and that
    /// PE dies.
    #[track_caller]
    pub fn send(&self, pe: usize, message: &[u8]) -> Result<()> {
        self.pe.waiting_call("Messages::send", None, || {
            self.send_within(pe, message.into(), &Limit::none())
        })
    }

    /// [`send`](Self::send), if there is room and no other thread of this PE is sending to that PE;
    /// false otherwise.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    #[track_caller]
    pub fn try_send(&self, pe: usize, message: &[u8]) -> Result<bool> {
        self.pe.call("Messages::try_send", None, || self.send_at_once(pe, message.into()))
    }

    /// [`send`](Self::send) that gives up after `timeout`.
    ///
    /// # Errors
    /// As for [`send`](Self::send), and [`Timeout`](Error::Timeout).
    #[track_caller]
    pub fn send_timeout(&self, pe: usize, message: &[u8], timeout: Duration) -> Result<()> {
        self.pe.waiting_call("Messages::send_timeout", None, || {
            self.send_within(pe, message.into(), &Limit::new(timeout))
        })
    }

    /// For front ends: [`send`](Self::send) of `bytes` bytes that other threads or PEs may write
    /// meanwhile, so that there can be no reference to them. Gives up after `timeout`, if there is
    /// one.
    ///
    /// # Errors
    /// As for [`send_timeout`](Self::send_timeout).
    ///
    /// # Safety
    /// `from` can be read for so many bytes.
    #[track_caller]
    pub unsafe fn send_from(
        &self,
        pe: usize,
        from: *const u8,
        bytes: usize,
        timeout: Option<Duration>,
    ) -> Result<()> {
        self.pe.waiting_call("Messages::send", None, || {
            self.send_within(pe, Contents { from, bytes }, &timeout.into())
        })
    }

    /// For front ends: [`try_send`](Self::try_send), as [`send_from`](Self::send_from).
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    ///
    /// # Safety
    /// As for [`send_from`](Self::send_from).
    #[track_caller]
    pub unsafe fn try_send_from(&self, pe: usize, from: *const u8, bytes: usize) -> Result<bool> {
        self.pe.call("Messages::try_send", None, || self.send_at_once(pe, Contents { from, bytes }))
    }

    /// Receives the next message of any PE into `message`, whose contents it replaces; gives its
    /// sender. Messages of one sender come in the order in which they were sent.
    ///
    /// MPI: `MPI_Recv` with `MPI_ANY_SOURCE`; sockets: `recvfrom`.
    ///
    /// # Errors
    /// [`PeerFailed`](Error::PeerFailed) when none is there, and any PE dies.
    #[track_caller]
    pub fn recv(&self, message: &mut Vec<u8>) -> Result<usize> {
        self.pe.waiting_call("Messages::recv", None, || self.recv_within(message, &Limit::none()))
    }

    /// [`recv`](Self::recv) of the next message of one PE.
    ///
    /// # Errors
    /// [`NoSuchPe`](Error::NoSuchPe); [`PeerFailed`](Error::PeerFailed) when none is there, and
    /// that PE dies.
    #[track_caller]
    pub fn recv_from(&self, pe: usize, message: &mut Vec<u8>) -> Result<()> {
        self.pe.waiting_call("Messages::recv_from", None, || {
            self.recv_from_within(pe, message, &Limit::none())
        })
    }

    /// [`recv_from`](Self::recv_from) that gives up after `timeout`.
    ///
    /// # Errors
    /// As for [`recv_from`](Self::recv_from), and [`Timeout`](Error::Timeout).
    #[track_caller]
    pub fn recv_from_timeout(
        &self,
        pe: usize,
        message: &mut Vec<u8>,
        timeout: Duration,
    ) -> Result<()> {
        self.pe.waiting_call("Messages::recv_from_timeout", None, || {
            self.recv_from_within(pe, message, &Limit::new(timeout))
        })
    }

    /// [`recv_from`](Self::recv_from), if a message is there; false otherwise.
    ///
    /// # Errors
    /// [`NoSuchPe`](Error::NoSuchPe); what the fabric reports.
    #[track_caller]
    pub fn try_recv_from(&self, pe: usize, message: &mut Vec<u8>) -> Result<bool> {
        self.pe.call("Messages::try_recv_from", None, || {
            self.check(pe, 0)?;
            let has_come = wait::test(&self.pe, || self.has_come(pe).then_some(())).is_some();
            Ok(has_come && self.take(pe, message)?)
        })
    }

    /// [`recv`](Self::recv), if a message is there; `None` otherwise.
    ///
    /// # Errors
    /// What the fabric reports.
    #[track_caller]
    pub fn try_recv(&self, message: &mut Vec<u8>) -> Result<Option<usize>> {
        self.pe.call("Messages::try_recv", None, || {
            ending::refuse_child(&self.pe)?;
            while let Some(pe) = wait::test(&self.pe, || self.find()) {
                if self.take(pe, message)? {
                    return Ok(Some(pe));
                }
            }
            Ok(None)
        })
    }

    /// [`recv`](Self::recv) that gives up after `timeout`.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv), and [`Timeout`](Error::Timeout).
    #[track_caller]
    pub fn recv_timeout(&self, message: &mut Vec<u8>, timeout: Duration) -> Result<usize> {
        self.pe.waiting_call("Messages::recv_timeout", None, || {
            self.recv_within(message, &Limit::new(timeout))
        })
    }

    fn check(&self, pe: usize, bytes: usize) -> Result<()> {
        ending::refuse_child(&self.pe)?;
        if pe >= self.pe.npes() {
            return Err(Error::NoSuchPe { pe, npes: self.pe.npes(), call: None });
        }
        if bytes > self.most {
            return Err(Error::misuse(
                "a message is longer than the most bytes with which its Messages were made",
            ));
        }
        Ok(())
    }

    /// Number of a slot among those of all PEs: that of a message from or to `pe`.
    fn slot(&self, pe: usize, number: u64) -> usize {
        pe * self.depth + ((number - 1) % self.depth as u64) as usize
    }

    fn announced(&self, pe: usize, number: u64) -> usize {
        self.slot(pe, number)
    }

    fn returned(&self, pe: usize, number: u64) -> usize {
        self.pe.npes() * self.depth + self.slot(pe, number)
    }

    fn at(&self, pe: usize, number: u64) -> usize {
        self.slot(pe, number) * self.stride
    }

    /// I2: whether message `number` may be put.
    fn has_room(&self, pe: usize, number: u64) -> Option<()> {
        let before = number.saturating_sub(self.depth as u64);
        (self.words.look(self.returned(pe, number)) >= before).then_some(())
    }

    /// The right to put the next message to `pe`, if there is room for it and no other thread puts
    /// one at this moment.
    fn room(&self, pe: usize) -> Option<MutexGuard<'_, Outbox>> {
        let outbox = try_lock(&self.outboxes[pe])?;
        self.has_room(pe, outbox.sent + 1).map(|()| outbox)
    }

    fn send_within(&self, pe: usize, message: Contents, limit: &Limit) -> Result<()> {
        self.check(pe, message.bytes)?;
        let of = [pe];
        let terms = Terms::new(Awaiting::WordOf(&of, None), limit.patience());
        let mut outbox = wait::until(&self.pe, terms, || self.room(pe))?;
        self.put(pe, &mut outbox, message)
    }

    fn send_at_once(&self, pe: usize, message: Contents) -> Result<bool> {
        self.check(pe, message.bytes)?;
        match wait::test(&self.pe, || self.room(pe)) {
            Some(mut outbox) => self.put(pe, &mut outbox, message).map(|()| true),
            None => Ok(false),
        }
    }

    /// Puts a message into its slot, which is free, and announces it.
    fn put(&self, pe: usize, outbox: &mut Outbox, message: Contents) -> Result<()> {
        let number = outbox.sent + 1;
        let buffer = &mut outbox.buffer;
        buffer.resize(HEADER + message.bytes, 0);
        buffer[..HEADER].copy_from_slice(&(message.bytes as u64).to_ne_bytes());
        // SAFETY: whoever has made `message` promises its bytes; the buffer is private, and has
        // room for them.
        unsafe { shm::copy(buffer[HEADER..].as_mut_ptr(), message.from, message.bytes) };
        let (me, set) = (self.pe.me(), SignalOp::Set);
        let (at, announced) = (self.at(me, number), self.announced(me, number));
        // I1
        self.area.put_signal(pe, at, buffer, &self.words, announced, set, number)?;
        outbox.sent = number;
        Ok(())
    }

    fn recv_from_within(&self, pe: usize, message: &mut Vec<u8>, limit: &Limit) -> Result<()> {
        self.check(pe, 0)?;
        while !self.take(pe, message)? {
            let of = [pe];
            let terms = Terms::new(Awaiting::WordOf(&of, None), limit.patience());
            wait::until(&self.pe, terms, || self.has_come(pe).then_some(()))?;
        }
        Ok(())
    }

    fn recv_within(&self, message: &mut Vec<u8>, limit: &Limit) -> Result<usize> {
        ending::refuse_child(&self.pe)?;
        loop {
            let terms = Terms::new(Awaiting::Word(None), limit.patience());
            let pe = wait::until(&self.pe, terms, || self.find())?;
            if self.take(pe, message)? {
                return Ok(pe);
            }
        }
    }

    /// A PE of which a message is here.
    fn find(&self) -> Option<usize> {
        let (npes, first) = (self.pe.npes(), self.next.load(Ordering::Relaxed));
        (0..npes).map(|place| (first + place) % npes).find(|&pe| self.has_come(pe))
    }

    /// Whether the next message of `pe` is here.
    fn has_come(&self, pe: usize) -> bool {
        let number = self.taken[pe].count.load(Ordering::Relaxed) + 1;
        self.words.look(self.announced(pe, number)) == number
    }

    /// Takes the next message of `pe`; false if there is none, or another thread has taken it.
    fn take(&self, pe: usize, message: &mut Vec<u8>) -> Result<bool> {
        let taken = &self.taken[pe];
        let _taking = lock(&taken.taking);
        if !self.has_come(pe) {
            return Ok(false);
        }
        let number = taken.count.load(Ordering::Relaxed) + 1;
        let at = self.at(pe, number);
        let mut length = [0; HEADER];
        self.area.read_into(at, &mut length);
        let length = u64::from_ne_bytes(length) as usize;
        if length > self.most {
            return Err(Error::misuse(
                "the length of a message in the receive area was overwritten: something writes to memory that is not its own",
            ));
        }
        message.resize(length, 0);
        self.area.read_into(at + HEADER, message);
        taken.count.store(number, Ordering::Relaxed);
        self.next.store((pe + 1) % self.pe.npes(), Ordering::Relaxed);
        // I2
        let returned = self.returned(self.pe.me(), number);
        if let Err(error) = self.words.signal(pe, returned, SignalOp::Set, number) {
            // The message is taken all the same. A sender that has died needs no room.
            if !matches!(self.pe.control().state(pe), State::Dead(_)) {
                self.pe.surface_later(error);
            }
        }
        Ok(true)
    }
}

/// What is allocated on each PE.
struct Sizes {
    /// Bytes from a slot to the next.
    stride: usize,
    /// Bytes of the receive area.
    area: usize,
    words: usize,
}

fn sizes(npes: usize, most: usize, depth: usize) -> Result<Sizes> {
    if depth == 0 {
        return Err(Error::misuse("a depth of 0 has no room for any message; give 1 or more"));
    }
    let sizes = || {
        let stride = most.checked_add(HEADER)?.checked_next_multiple_of(LINE)?;
        let slots = npes.checked_mul(depth)?;
        let area = slots.checked_mul(stride).filter(|&area| area <= isize::MAX as usize)?;
        Some(Sizes { stride, area, words: slots.checked_mul(2)? })
    };
    sizes().ok_or(Error::Overflow { index: depth, size: most, call: None })
}
