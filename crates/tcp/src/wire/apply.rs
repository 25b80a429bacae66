//! What comes: records are checked, and applied one after the other.

use super::inbox::{LONGEST, Then};
use super::limits::{COPIED, COPIED_ANSWER, REQUESTS, ROOM};
use super::link::{Link, Place};
use super::record::{Bad, HEADER, Header, Kind, VERSION, op_of};
use memonet_core::Access;
use memonet_core::unstable::shm::{self, AtomicOp};
use std::sync::atomic::{Ordering, fence};

/// The memory of the PE at which records arrive.
///
/// # Safety
/// What [`place`](Self::place) gives stays mapped, readable and writable, as long as the link may
/// use it: until its region is taken back, and then no operation on it is under way.
pub unsafe trait Home {
    /// Where `len` bytes from `offset` of a region on lie, if all of them are there, and PE `by`
    /// may do with them what it `wants`.
    fn place(&self, by: u32, wants: Access, region: u16, offset: u64, len: u64) -> Option<*mut u8>;
}

/// What has changed by the bytes that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Came {
    /// This PE's memory.
    pub memory: bool,
    /// Answers have come, or acknowledgements.
    pub answers: bool,
    /// The peer has refused something that was written.
    pub refused: bool,
}

/// Bytes of a record but for its block.
#[inline]
fn length(kind: Kind) -> usize {
    if kind == Kind::CompareSwap { LONGEST } else { HEADER }
}

/// What a record does with the memory that it names.
#[inline]
fn wants(kind: Kind) -> Access {
    match kind {
        Kind::Get => Access::Read,
        Kind::Update | Kind::CompareSwap => Access::ReadWrite,
        _ => Access::Write,
    }
}

impl Link {
    /// Applies what has come: the first `direct` bytes have been put where
    /// [`direct`](Self::direct) said, and `bytes` follow. Says what has changed.
    ///
    /// # Errors
    /// Of the first record that is wrong. The link is not to be used any more.
    pub fn received(
        &mut self,
        direct: usize,
        mut bytes: &[u8],
        home: &impl Home,
    ) -> Result<Came, Bad> {
        let mut came = Came::default();
        if direct > 0 {
            self.got_payload(direct, &mut came);
        }
        while !bytes.is_empty() {
            if let Some((to, left, _)) = self.inbox.rest {
                let some = left.min(bytes.len());
                if !to.is_null() {
                    // SAFETY: the payload's place was checked and has `left` bytes left; `bytes`
                    // are private memory.
                    unsafe { shm::copy(to, bytes.as_ptr(), some) };
                }
                bytes = &bytes[some..];
                self.got_payload(some, &mut came);
                continue;
            }
            match self.next_record(&mut bytes)? {
                Some((header, new)) => self.apply_record(header, new, home, &mut came)?,
                None => break,
            }
        }
        if came.memory || self.inbox.owed {
            // W6.
            fence(Ordering::SeqCst);
        }
        self.tell_refusal();
        if self.inbox.owed {
            self.inbox.owed = false;
            let applied = self.inbox.applied;
            self.push(Kind::Ack, 0, Place { region: 0, offset: 0 }, applied);
        }
        Ok(came)
    }

    /// Takes the next record but for its block, and a word that follows its header; nothing where
    /// not all of that has come.
    #[inline]
    fn next_record(&mut self, bytes: &mut &[u8]) -> Result<Option<(Header, u64)>, Bad> {
        let inbox = &mut self.inbox;
        if inbox.has == 0
            && let Some((first, rest)) = bytes.split_first_chunk::<HEADER>()
        {
            let header = Header::from_bytes(first)?;
            if header.kind != Kind::CompareSwap {
                *bytes = rest;
                return Ok(Some((header, 0)));
            }
        }
        // A record that was cut, or the long one.
        if !inbox.fill(HEADER, bytes) {
            return Ok(None);
        }
        let header = Header::from_bytes(inbox.begun.first_chunk().expect("a header"))?;
        if !inbox.fill(length(header.kind), bytes) {
            return Ok(None);
        }
        inbox.has = 0;
        let new = u64::from_le_bytes(*inbox.begun.last_chunk().expect("8 bytes"));
        Ok(Some((header, new)))
    }

    /// Whether the record is the greeting. Nothing comes before that, and nothing after the end.
    #[inline]
    fn greets(&mut self, header: &Header) -> Result<bool, Bad> {
        let kind = header.kind;
        if header.pe != self.me {
            Err(Bad::Pe(kind, header.pe))
        } else if !self.inbox.greeted {
            self.inbox.greeted = kind == Kind::Hello && header.value == VERSION;
            self.inbox.greeted.then_some(true).ok_or(Bad::Hello)
        } else if self.inbox.closed || kind == Kind::Hello {
            Err(Bad::Time(kind))
        } else {
            Ok(false)
        }
    }

    /// Applies a record, or begins to; `new` is the word that follows the header of a compare and
    /// swap.
    fn apply_record(
        &mut self,
        header: Header,
        new: u64,
        home: &impl Home,
        came: &mut Came,
    ) -> Result<(), Bad> {
        if self.greets(&header)? {
            came.answers = true;
            return Ok(());
        }
        let (peer, wants) = (self.peer, wants(header.kind));
        let Header { kind, region, offset, value, .. } = header;
        // Of the segment, all may be reached. Whatever else is not there was taken back.
        let place = |len: usize| match home.place(peer, wants, region, offset, len as u64) {
            None if region == 0 => Err(Bad::Range(kind, offset, len as u64)),
            at => Ok(at),
        };
        match kind {
            Kind::Store => {
                let size = header.word_size(&[1, 2, 4, 8])?;
                match place(size)? {
                    // SAFETY: W7: the place is there, and aligned.
                    Some(to) => unsafe { shm::store_sized(to, size, value) },
                    None => self.inbox.refuses = true,
                }
                self.applied(came);
            }
            Kind::Apply => {
                let op = op_of(header.aux).ok_or(header.bad_word())?;
                let size = header.word_size(&[4, 8])?;
                match place(size)? {
                    // SAFETY: as above.
                    Some(to) => _ = unsafe { shm::fetch_op(to, size, op, value) },
                    None => self.inbox.refuses = true,
                }
                self.applied(came);
            }
            Kind::Put => {
                let len = in_memory(&header)?;
                match place(len)? {
                    Some(to) => self.begin_payload(to, len, Then::Applied, came),
                    None => self.begin_payload(std::ptr::null_mut(), len, Then::Refused, came),
                }
            }
            Kind::Get => {
                let len = in_memory(&header)?;
                self.check_answers()?;
                match place(len)? {
                    Some(from) => self.answer_get(from, len, came),
                    None => self.refuse_request(),
                }
            }
            Kind::Update | Kind::CompareSwap => self.update_word(&header, new, place, came)?,
            Kind::Flush => {
                self.check_answers()?;
                self.inbox.owed = true;
            }
            Kind::Ack => self.take_acknowledgement(value, came)?,
            Kind::Data | Kind::Word => self.take_answer(&header, came)?,
            Kind::Refused => self.take_refusal(&header, came)?,
            Kind::Close => self.inbox.closed = true,
            Kind::Hello => unreachable!("refused above"),
        }
        Ok(())
    }

    /// So many records of this PE are visible.
    fn take_acknowledgement(&mut self, count: u64, came: &mut Came) -> Result<(), Bad> {
        if count > self.counted || count < self.acknowledged {
            return Err(Bad::Ack(count));
        }
        self.acknowledged = count;
        came.answers = true;
        Ok(())
    }

    #[inline]
    fn applied(&mut self, came: &mut Came) {
        self.inbox.applied += 1;
        came.memory = true;
    }

    /// A peer that keeps to the protocol has at most so many answers due (W8).
    fn check_answers(&self) -> Result<(), Bad> {
        let most = 2 * ROOM + COPIED + REQUESTS * (HEADER + COPIED_ANSWER);
        let right = self.out.buffered() <= most && self.out.parts() <= 4 * REQUESTS;
        right.then_some(()).ok_or(Bad::Requests)
    }

    /// Says that a write was refused. Whatever acknowledges that write comes later: a quiet that it
    /// completes knows.
    #[inline]
    fn tell_refusal(&mut self) {
        if std::mem::take(&mut self.inbox.refuses) {
            self.push(Kind::Refused, 0, Place { region: 0, offset: 0 }, 0);
        }
    }

    /// A request that is not allowed is answered by that.
    fn refuse_request(&mut self) {
        self.tell_refusal();
        self.inbox.applied += 1;
        self.push(Kind::Refused, 1, Place { region: 0, offset: 0 }, 0);
    }

    /// The peer has refused the oldest request, or a write.
    fn take_refusal(&mut self, header: &Header, came: &mut Came) -> Result<(), Bad> {
        if header.aux == 0 {
            self.refused_write = true;
            came.refused = true;
        } else if self.requests.is_empty() {
            return Err(Bad::Answer(header.kind));
        } else {
            self.answer(came);
            self.refused.push(self.answered);
        }
        Ok(())
    }

    fn answer_get(&mut self, from: *const u8, len: usize, came: &mut Came) {
        if came.memory {
            // W6.
            fence(Ordering::SeqCst);
        }
        self.tell_refusal();
        self.push(Kind::Data, 0, Place { region: 0, offset: 0 }, len as u64);
        // SAFETY: W7: the place is there, and by W9 it stays.
        unsafe { self.payload(from, len, COPIED_ANSWER) };
        self.inbox.applied += 1;
    }

    fn update_word(
        &mut self,
        header: &Header,
        new: u64,
        place: impl Fn(usize) -> Result<Option<*mut u8>, Bad>,
        came: &mut Came,
    ) -> Result<(), Bad> {
        self.check_answers()?;
        let old = if header.kind == Kind::CompareSwap {
            let size = header.word_size(&[1, 2, 4, 8])?;
            if header.aux >> 4 != 0 {
                return Err(header.bad_word());
            }
            let Some(at) = place(size)? else {
                self.refuse_request();
                return Ok(());
            };
            // SAFETY: W7: the place is there, and aligned.
            unsafe { shm::compare_swap_sized(at, size, header.value, new) }
        } else {
            let op = op_of(header.aux).ok_or(header.bad_word())?;
            let swaps = op == AtomicOp::Swap;
            let size = header.word_size(if swaps { &[1, 2, 4, 8] } else { &[4, 8] })?;
            let Some(at) = place(size)? else {
                self.refuse_request();
                return Ok(());
            };
            // SAFETY: as above.
            unsafe { shm::fetch_op(at, size, op, header.value) }
        };
        self.applied(came);
        self.tell_refusal();
        self.push(Kind::Word, 0, Place { region: 0, offset: 0 }, old);
        Ok(())
    }

    fn take_answer(&mut self, header: &Header, came: &mut Came) -> Result<(), Bad> {
        let wrong = Bad::Answer(header.kind);
        let request = self.requests.front().ok_or(wrong)?;
        let (into, len) = (request.into, request.len);
        if request.answer != header.kind || header.kind == Kind::Data && header.value != len as u64
        {
            return Err(wrong);
        }
        if header.kind == Kind::Data {
            self.begin_payload(into, len, Then::Answered, came);
        } else {
            // SAFETY: whoever asked keeps the word until it is answered.
            unsafe { into.cast::<u64>().write(header.value) };
            self.answer(came);
        }
        Ok(())
    }

    /// The oldest request has its answer (W5).
    fn answer(&mut self, came: &mut Came) {
        let request = self.requests.pop_front().expect("it was looked at");
        self.answered += 1;
        self.acknowledged = self.acknowledged.max(request.counted);
        came.answers = true;
    }

    fn begin_payload(&mut self, to: *mut u8, len: usize, then: Then, came: &mut Came) {
        self.inbox.large = len > COPIED;
        self.inbox.rest = Some((to, len, then));
        if len == 0 {
            self.got_payload(0, came);
        }
    }

    fn got_payload(&mut self, bytes: usize, came: &mut Came) {
        let (to, left, then) = self.inbox.rest.take().expect("a payload is being read");
        if left > bytes {
            // One that goes nowhere stays there.
            let next = if to.is_null() { to } else { to.wrapping_add(bytes) };
            self.inbox.rest = Some((next, left - bytes, then));
            return;
        }
        match then {
            Then::Refused => {
                self.inbox.refuses = true;
                self.applied(came);
            }
            Then::Applied => self.applied(came),
            Then::Answered => self.answer(came),
        }
    }
}

/// The bytes of a block, where memory can have as many.
fn in_memory(header: &Header) -> Result<usize, Bad> {
    let len = usize::try_from(header.value).ok().filter(|&len| len <= isize::MAX as usize);
    len.ok_or(Bad::Range(header.kind, header.offset, header.value))
}
