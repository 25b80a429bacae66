//! One end of a stream: what this PE sends, and what it waits for.

use super::inbox::{Inbox, Role};
use super::limits::{COPIED, PIECES, REQUESTS, ROOM};
use super::outbox::{Outbox, Piece};
use super::record::{HEADER, Header, Kind, VERSION, aux_of};
use memonet_core::SignalOp;
use memonet_core::unstable::shm::{self, AtomicOp};
use std::collections::VecDeque;

/// A place in the peer's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// As in a `FarAddress`.
    pub region: u16,
    /// As in a `FarAddress`.
    pub offset: u64,
}

/// The word that a block is, if it is an aligned one (W2).
///
/// # Safety
/// `src` is readable for `len` bytes.
#[inline(always)]
pub unsafe fn word(at: Place, src: *const u8, len: usize) -> Option<u64> {
    if !matches!(len, 1 | 2 | 4 | 8) || !at.offset.is_multiple_of(len as u64) {
        return None;
    }
    let mut bits = [0; 8];
    // SAFETY: the caller promises the source, and `bits` has room.
    unsafe { shm::copy(bits.as_mut_ptr(), src, len) };
    Some(u64::from_le_bytes(bits))
}

/// A request without an answer yet.
pub(super) struct Request {
    /// The kind of its answer.
    pub(super) answer: Kind,
    /// Where the answer goes.
    pub(super) into: *mut u8,
    pub(super) len: usize,
    /// The counted records sent, with it.
    pub(super) counted: u64,
}

/// One end of a stream between this PE and a peer.
pub struct Link {
    pub(super) me: u32,
    pub(super) peer: u32,
    pub(super) out: Outbox,
    pub(super) inbox: Inbox,
    pub(super) requests: VecDeque<Request>,
    /// Requests that were made, and answered.
    made: u64,
    pub(super) answered: u64,
    /// Counted records that were sent, acknowledged, and asked to be acknowledged.
    pub(super) counted: u64,
    pub(super) acknowledged: u64,
    flushed: u64,
    /// Counted records that a quiet completes: all up to the last that is not a notification.
    needed: u64,
    /// Counted records whose loss a quiet reports: all up to the last write. Callers of requests
    /// are told by themselves.
    reported: u64,
    /// Requests that were refused, by the numbers of their answers, until their callers know.
    pub(super) refused: Vec<u64>,
    /// Whether the peer has refused something that was written.
    pub(super) refused_write: bool,
}

// SAFETY: the addresses of requests belong to callers that wait for the answer, or until the link
// is ended, in whatever thread that happens.
unsafe impl Send for Link {}

impl Link {
    /// This PE's end, before any byte.
    pub fn new(me: u32, peer: u32, role: Role) -> Self {
        let mut link = Link {
            me,
            peer,
            out: Outbox::default(),
            inbox: Inbox::new(role),
            requests: VecDeque::new(),
            made: 0,
            answered: 0,
            counted: 0,
            acknowledged: 0,
            flushed: 0,
            needed: 0,
            reported: 0,
            refused: Vec::new(),
            refused_write: false,
        };
        link.out.push(&link.hello());
        link
    }

    fn hello(&self) -> [u8; HEADER] {
        let (kind, value) = (Kind::Hello, VERSION);
        Header { kind, aux: 0, region: 0, pe: self.peer, offset: 0, value }.to_bytes()
    }

    /// The stream is another one than before, of that role. On the one before, nothing was sent.
    pub fn restart(&mut self, role: Role) {
        debug_assert_eq!(self.out.sent(), 0, "a stream that was used is not replaced");
        self.inbox = Inbox::new(role);
    }

    pub(super) fn push(&mut self, kind: Kind, aux: u8, at: Place, value: u64) {
        let Place { region, offset } = at;
        let header = Header { kind, aux, region, pe: self.peer, offset, value };
        self.out.push(&header.to_bytes());
    }

    /// Whether there is room for another record of this PE's own (W8).
    #[inline]
    pub fn has_room(&self) -> bool {
        self.out.buffered() < ROOM && self.out.parts() < PIECES
    }

    /// Whether another request may be made (W8).
    pub fn may_ask(&self) -> bool {
        self.requests.len() < REQUESTS && self.has_room()
    }

    /// Counts a write, which a quiet completes.
    #[inline]
    fn count(&mut self) {
        self.counted += 1;
        (self.needed, self.reported) = (self.counted, self.counted);
    }

    /// Stores a word.
    #[inline]
    pub fn store(&mut self, at: Place, size: usize, bits: u64) {
        self.count();
        self.push(Kind::Store, size as u8, at, bits);
    }

    /// Writes a block. Gives the number of bytes [written](Self::written) from which on the source
    /// may change; 0 where it was copied.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes, until then or until the link is [ended](Self::end).
    pub unsafe fn put(&mut self, at: Place, src: *const u8, len: usize) -> u64 {
        self.count();
        // SAFETY: the caller promises the source.
        if let Some(bits) = unsafe { word(at, src, len) } {
            self.push(Kind::Store, len as u8, at, bits);
            return 0;
        }
        self.push(Kind::Put, 0, at, len as u64);
        // SAFETY: the caller promises the source.
        unsafe { self.payload(src, len, COPIED) }
    }

    /// # Safety
    /// As for [`put`](Self::put).
    pub(super) unsafe fn payload(&mut self, src: *const u8, len: usize, copied: usize) -> u64 {
        if len <= copied {
            // SAFETY: the caller promises the source.
            unsafe { self.out.push_copy(src, len) };
            0
        } else {
            // SAFETY: the caller promises the source, until it was sent (W9).
            unsafe { self.out.push_piece(src, len) }
        }
    }

    /// Updates a signal word.
    #[inline]
    pub fn signal(&mut self, at: Place, op: SignalOp, value: u64) {
        match op {
            SignalOp::Set => self.store(at, 8, value),
            SignalOp::Add => self.apply(at, 8, AtomicOp::Add, value),
        }
    }

    /// Updates a word, and asks for no answer.
    #[inline]
    pub fn apply(&mut self, at: Place, size: usize, op: AtomicOp, operand: u64) {
        self.count();
        self.push(Kind::Apply, aux_of(size, op), at, operand);
    }

    /// Notifies the peer: writes a block, and then a word. A quiet need not complete it (W11).
    /// Gives what [`put`](Self::put) gives for the block.
    ///
    /// # Safety
    /// As for [`put`](Self::put).
    pub unsafe fn notify(
        &mut self,
        block: Option<(Place, *const u8, usize)>,
        word: (Place, usize),
        bits: u64,
    ) -> u64 {
        let (needed, reported) = (self.needed, self.reported);
        // SAFETY: the caller promises the source.
        let end = block.map_or(0, |(to, src, len)| unsafe { self.put(to, src, len) });
        self.store(word.0, word.1, bits);
        (self.needed, self.reported) = (needed, reported);
        end
    }

    /// From now on a quiet completes the notifications so far, too.
    pub fn need_all(&mut self) {
        self.needed = self.counted;
    }

    fn request(&mut self, answer: Kind, into: *mut u8, len: usize) -> u64 {
        self.counted += 1;
        self.needed = self.counted;
        self.made += 1;
        self.requests.push_back(Request { answer, into, len, counted: self.counted });
        self.made
    }

    /// Reads a block. Gives the number of [answers](Self::answered) with which it is there.
    ///
    /// # Safety
    /// `dst` is writable for `len` bytes, until then or until the link is [ended](Self::end).
    pub unsafe fn get(&mut self, from: Place, dst: *mut u8, len: usize) -> u64 {
        self.push(Kind::Get, 0, from, len as u64);
        self.request(Kind::Data, dst, len)
    }

    /// Updates a word, and has what it held written to `old`. Gives what [`get`](Self::get) gives.
    ///
    /// # Safety
    /// As for [`get`](Self::get).
    pub unsafe fn update(
        &mut self,
        at: Place,
        size: usize,
        op: AtomicOp,
        operand: u64,
        old: *mut u64,
    ) -> u64 {
        self.push(Kind::Update, aux_of(size, op), at, operand);
        self.request(Kind::Word, old.cast(), 8)
    }

    /// Stores `new` in a word that holds `expected`, as [`update`](Self::update).
    ///
    /// # Safety
    /// As for [`get`](Self::get).
    pub unsafe fn compare_swap(
        &mut self,
        at: Place,
        size: usize,
        expected: u64,
        new: u64,
        old: *mut u64,
    ) -> u64 {
        self.push(Kind::CompareSwap, size as u8, at, expected);
        self.out.push(&new.to_le_bytes());
        self.request(Kind::Word, old.cast(), 8)
    }

    /// Asks for an acknowledgement of all that was sent, where a quiet needs one that is not under
    /// way (W4).
    pub fn flush(&mut self) {
        if self.needed > self.acknowledged.max(self.flushed) {
            self.flushed = self.counted;
            self.push(Kind::Flush, 0, Place { region: 0, offset: 0 }, 0);
        }
    }

    /// Says that nothing follows.
    pub fn close(&mut self) {
        self.push(Kind::Close, 0, Place { region: 0, offset: 0 }, 0);
    }

    /// A quiet is complete once so many records are [acknowledged](Self::acknowledged).
    #[inline]
    pub fn needed(&self) -> u64 {
        self.needed
    }

    /// Whether a quiet has to wait.
    #[inline]
    pub fn is_needed(&self) -> bool {
        self.needed > self.acknowledged
    }

    /// The requests that the peer has not answered, and the records that it has not acknowledged.
    pub fn outstanding(&self) -> (u64, u64) {
        (self.made - self.answered, self.counted - self.acknowledged)
    }

    /// How many counted records are visible.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Requests that have been answered.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// Whether the request with that answer was refused; its caller asks once.
    pub fn was_refused(&mut self, ticket: u64) -> bool {
        let index = self.refused.iter().position(|&refused| refused == ticket);
        index.map(|index| self.refused.swap_remove(index)).is_some()
    }

    /// Whether something that was written has been refused, since this was last asked.
    pub fn was_write_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused_write)
    }

    /// Bytes that were ever sent.
    pub fn written(&self) -> u64 {
        self.out.sent()
    }

    /// Bytes here that are to be sent.
    #[inline]
    pub fn buffered(&self) -> usize {
        self.out.buffered()
    }

    /// Whether there is something that may be sent.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.out.is_empty() && self.inbox.may_send()
    }

    /// Whether there is nothing to send, now or later.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Whether this stream is the link: the end that asked for it has had the other's hello.
    #[inline]
    pub fn may_send(&self) -> bool {
        self.inbox.may_send()
    }

    /// Whether nothing is lost with this stream: the other end has said nothing, and this one no
    /// more than its hello.
    pub fn has_said_nothing(&self) -> bool {
        !self.inbox.is_greeted() && self.out.sent() <= HEADER as u64
    }

    /// A stream on which [nothing was said](Self::has_said_nothing) is over; another one may come.
    pub fn begin_again(&mut self) {
        debug_assert!(self.has_said_nothing());
        let hello = self.hello();
        self.out.send_again(&hello[..self.out.sent() as usize]);
        self.inbox = Inbox::new(Role::Asked);
    }

    /// Whether the other end's hello has come.
    pub fn is_greeted(&self) -> bool {
        self.inbox.is_greeted()
    }

    /// Whether the other end has said that nothing follows.
    pub fn is_closed(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Whether the stream may end here: nothing is waited for, and no record is cut off.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty() && self.counted == self.acknowledged && !self.inbox.is_within()
    }

    /// A quiet reports a stream that ends before so many records were
    /// [acknowledged](Self::acknowledged).
    pub fn reported(&self) -> u64 {
        self.reported
    }

    /// Whether nobody needs this link any more: it is over, and callers know what was refused.
    pub fn is_over(&self) -> bool {
        self.is_closed() && self.is_idle() && self.is_empty() && self.refused.is_empty()
    }

    /// The first pieces to send; gives how many.
    pub fn output(&self, into: &mut [Piece]) -> usize {
        if self.inbox.may_send() { self.out.pieces(into) } else { 0 }
    }

    /// So many bytes of [`output`](Self::output) have been sent.
    pub fn sent(&mut self, bytes: usize) {
        self.out.consume(bytes);
    }

    /// Where the next bytes of the stream go, if they belong to a block; the others go to
    /// [`received`](Self::received).
    #[inline]
    pub fn direct(&self) -> Option<(*mut u8, usize)> {
        self.inbox.direct()
    }

    /// Whether large blocks come: a caller that reads few bytes where there is nothing
    /// [direct](Self::direct) has most of them go where they belong.
    #[inline]
    pub fn expects_blocks(&self) -> bool {
        self.inbox.expects_blocks()
    }

    /// Memory goes out of use: a block that goes there goes nowhere. Says whether an answer that
    /// lies there is still to be sent; then the link has to end.
    pub fn withdraw(&mut self, start: *const u8, len: usize) -> bool {
        self.inbox.withdraw(start as usize..start as usize + len);
        self.out.refers_to(start, len)
    }

    /// Forgets what is to be sent, and the requests; the stream is over. What was not answered, or
    /// not acknowledged, never will be.
    pub fn end(&mut self) {
        self.out.clear();
        self.requests.clear();
        self.inbox = Inbox::new(Role::Asked);
    }
}
