//! The pages that attached processes share with the machine: layout and access, for both sides.
//!
//! One memfd, which has no name:
//!
//! ```text
//! 0            Header              written before any process starts
//! 4096         Passage of PE 0     words, then room for blocks of up to 1 GiB; pages exist when touched
//! ...          Passage of PE k
//! ```
//!
//! A process maps its own passage; the machine maps all. [`turn`](super::turn) says which side may
//! touch a passage, and when. The machine trusts nothing that a process writes: it copies the words
//! once, and checks them by [`Ask::from_words`].
//!
//! A process passes its turn with a list of questions, of which the last alone may take a block.
//! The machine answers them one after the other, as if each had come when the one before was
//! answered, and passes the turn back after the last; or after one that it refuses, or a wait at
//! which the PE has to look by itself. The answer says how many questions before that have been
//! answered.
//!
//! Answer and questions share the room for blocks. In its turn, a process first reads the answer's
//! block, then overwrites it with those of its next questions. So when the machine gets the turn,
//! the room holds questions that are not read yet. The machine gives pages back after it has read
//! the last.
//!
//! One word has no turn: a process writes there that it [recalls](Recall) its questions.

use super::ask::{Ask, WORDS};
use super::fabric::MOST_BYTES;
use super::turn::{Came, Side, Turn};
use crate::base::error::{Error, Result};
use crate::base::memory::{self, Mapping, create_memfd};
use crate::base::settings::ENV_MACHINE_FD;
use crate::base::shm;
use crate::base::shows;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MAGIC: u64 = u64::from_le_bytes(*b"mnmachin");
/// Raised with every change to this file, or to the words of questions, that another version could
/// misread.
const VERSION: u32 = 6;

#[repr(C)]
struct Header {
    magic: u64,
    version: u32,
    npes: u32,
    /// How many times slower the simulated CPU is than this machine's, as bits of an `f64`; 0:
    /// computing takes no time.
    cpu_scale: u64,
    /// Seed of all chance in the run.
    seed: u64,
}

/// Parameters of the run that a process needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) cpu_scale: Option<f64>,
    pub(super) seed: u64,
    npes: usize,
}

/// Reads the header of a file; `None` if it is not that of a machine.
pub(super) fn peek(fd: &OwnedFd) -> Option<Run> {
    let size = memory::sealed_size(fd).ok().filter(|&size| size >= FIRST)?;
    let header = Mapping::part(fd, 0, FIRST).ok()?;
    let word = |offset: usize| header.at(offset as u64);
    // SAFETY: the offsets are those of aligned words, and the page is mapped.
    unsafe {
        let (magic, version): (u64, u32) = (
            shm::load(word(offset_of!(Header, magic)).cast()),
            shm::load(word(offset_of!(Header, version)).cast()),
        );
        let npes = shm::load::<u32>(word(offset_of!(Header, npes)).cast()) as usize;
        let scale = shm::load::<u64>(word(offset_of!(Header, cpu_scale)).cast());
        let ours = (magic, version, size) == (MAGIC, VERSION, FIRST + npes as u64 * STRIDE);
        ours.then(|| Run {
            cpu_scale: (scale != 0).then(|| f64::from_bits(scale)),
            seed: shm::load(word(offset_of!(Header, seed)).cast()),
            npes,
        })
    }
}

/// The words of a passage. Each cache line is written by one side, in its turn.
#[repr(C, align(64))]
struct Words {
    turn: u32,
    _pad: [u32; 15],
    /// Number of questions.
    count: u64,
    _pad2: [u64; 7],
    /// Not 0: the process recalls its questions.
    recalled: u64,
    _pad3: [u64; 7],
    reply: [u64; REPLY_WORDS],
    _pad4: [u64; 3],
    questions: [Question; MOST_ASKS],
}

/// A question in a list.
#[repr(C)]
struct Question {
    ask: [u64; WORDS],
    /// Nanoseconds that the process has computed since the question before, or since the last
    /// reply.
    spent: u64,
    /// Where its block begins, in the room for blocks.
    block: u64,
}

/// Most questions of a list.
pub(super) const MOST_ASKS: usize = 200;
/// Blocks begin at multiples of this.
const ALIGNMENT: usize = 64;
/// Most bytes of blocks that a process keeps for a list.
const MOST_KEPT_BYTES: usize = 1 << 20;

/// A reply: whether it is a refusal, the time in nanoseconds, a number, the bytes of the block, and
/// how many questions were answered.
const REPLY_WORDS: usize = 5;
// In bytes: offset of the blocks in a passage, distance of passages, offset of the first passage.
const BLOCK: u64 = 5 * 4096;
const STRIDE: u64 = BLOCK + MOST_BYTES as u64;
const FIRST: u64 = 4096;
/// Pages of blocks from this length on are given back after use.
const KEPT_BYTES: usize = 4 << 20;

const _: () =
    assert!(size_of::<Header>() <= FIRST as usize && size_of::<Words>() <= BLOCK as usize);

/// Offset of a word of a question.
fn of_question(number: usize, field: usize) -> usize {
    offset_of!(Words, questions) + number * size_of::<Question>() + field
}

/// One PE's passage, mapped.
#[derive(Clone, Copy)]
struct Passage {
    base: *mut u8,
    turn: Turn,
}

// SAFETY: the address is used only through `crate::base::shm`, which any thread may use.
unsafe impl Send for Passage {}
// SAFETY: as above.
unsafe impl Sync for Passage {}

impl Passage {
    /// # Safety
    /// `base` is page-aligned, and a passage is mapped there as long as this value and its copies
    /// are used.
    unsafe fn at(base: *mut u8) -> Passage {
        // SAFETY: the caller promises the page, in which the word is aligned.
        let turn = unsafe { Turn::new(base.wrapping_add(offset_of!(Words, turn)).cast()) };
        Passage { base, turn }
    }

    fn word(self, offset: usize) -> *mut u64 {
        self.base.wrapping_add(offset).cast()
    }

    fn load(self, offset: usize) -> u64 {
        // SAFETY: `at`'s caller promised the page; the offsets are those of aligned words of
        // `Words`.
        unsafe { shm::load(self.word(offset)) }
    }

    fn store(self, offset: usize, value: u64) {
        // SAFETY: as above.
        unsafe { shm::store(self.word(offset), value) };
    }

    fn load_all<const N: usize>(self, offset: usize) -> [u64; N] {
        std::array::from_fn(|word| self.load(offset + 8 * word))
    }

    fn store_all<const N: usize>(self, offset: usize, words: [u64; N]) {
        words
            .into_iter()
            .enumerate()
            .for_each(|(word, value)| self.store(offset + 8 * word, value));
    }

    /// Has the words of a question fetched that will be read soon: another CPU wrote them.
    fn prefetch(self, question: usize) {
        for field in [0, size_of::<Question>() - 1] {
            shm::prefetch_to_read(self.base.wrapping_add(of_question(question, field)));
        }
    }

    /// The room for blocks, from a byte on.
    fn block(self, at: usize) -> *mut u8 {
        self.base.wrapping_add(BLOCK as usize + at)
    }
}

/// The machine's side: all passages.
pub struct Passages {
    mapping: Mapping,
    /// Which PEs have ended. Processes cannot write this.
    ended: Box<[AtomicBool]>,
}

shows!([] Passages as "Passages", |it| npes = it.ended.len());

impl Passages {
    /// Makes passages for so many PEs. With `cpu_scale`, computing takes its time on this machine's
    /// CPU, times that; otherwise none.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn create(npes: usize, seed: u64, cpu_scale: Option<f64>) -> Result<Passages> {
        let size = FIRST + npes as u64 * STRIDE;
        let fd = create_memfd("memonet-machine", size)?;
        let mapping = Mapping::new(fd, size as usize, true)?;
        // SAFETY: the offsets are those of aligned words in the mapping's first page, which no
        // other process has yet.
        unsafe {
            shm::store::<u64>(mapping.at(offset_of!(Header, magic) as u64).cast(), MAGIC);
            shm::store::<u32>(mapping.at(offset_of!(Header, version) as u64).cast(), VERSION);
            shm::store::<u32>(mapping.at(offset_of!(Header, npes) as u64).cast(), npes as u32);
            let scale = cpu_scale.map_or(0, f64::to_bits);
            shm::store::<u64>(mapping.at(offset_of!(Header, cpu_scale) as u64).cast(), scale);
            shm::store::<u64>(mapping.at(offset_of!(Header, seed) as u64).cast(), seed);
        }
        let ended = (0..npes).map(|_| AtomicBool::new(false)).collect();
        Ok(Passages { mapping, ended })
    }

    /// The variable by which a process finds the descriptor that it inherits.
    pub fn environment(&self) -> (&'static str, String) {
        (ENV_MACHINE_FD, self.mapping.fd().as_raw_fd().to_string())
    }

    /// The descriptor of the pages.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd()
    }

    fn passage(&self, pe: usize) -> Passage {
        assert!(pe < self.ended.len(), "there is no PE {pe} among {}", self.ended.len());
        // SAFETY: FIRST and STRIDE are multiples of pages, and the mapping has a passage for each
        // of `ended`. It lives as long as `self`, and only methods of `self` use the value.
        unsafe { Passage::at(self.mapping.at(FIRST + pe as u64 * STRIDE)) }
    }

    /// Sleeps until PE `pe` has passed its turn to the machine, or has ended, or until a spurious
    /// wake-up. It has no timeout: a timer would cost more than the rest of a hand-over. Only
    /// [`has_ended`](Self::has_ended) confirms an end that the word claims.
    pub fn wait(&self, pe: usize) -> Came {
        match self.has_ended(pe) {
            true => Came::Gone,
            false => self.passage(pe).turn.wait(Side::Machine),
        }
    }

    /// Whether it is the machine's turn, without waiting for it.
    pub fn look(&self, pe: usize) -> Came {
        self.passage(pe).turn.look(Side::Machine)
    }

    /// Whether PE `pe` has ended. Its process cannot fake this.
    pub fn has_ended(&self, pe: usize) -> bool {
        self.ended[pe].load(Ordering::Acquire)
    }

    /// Wakes PE `pe`, which has [got](Self::give) its turn while it slept. Otherwise this wakes a
    /// thread that waits for PE `pe`, or PE `pe` while it waits for its turn, spuriously; such a PE
    /// says what it waits for.
    pub fn wake(&self, pe: usize) {
        self.passage(pe).turn.wake();
    }

    /// PE `pe`'s questions will be read soon.
    pub fn expect(&self, pe: usize) {
        let passage = self.passage(pe);
        shm::prefetch_to_read(passage.word(offset_of!(Words, count)).cast());
        passage.prefetch(0);
    }

    /// How many questions PE `pe` asks; `None` for a number that can be none. Called in the
    /// machine's turn.
    pub fn count(&self, pe: usize) -> Option<usize> {
        let count = self.passage(pe).load(offset_of!(Words, count)) as usize;
        (1..=MOST_ASKS).contains(&count).then_some(count)
    }

    /// A question of PE `pe`; `None` for words that are none. Called in the machine's turn, with a
    /// number below [`count`](Self::count).
    pub fn ask(&self, pe: usize, number: usize) -> Option<Asked> {
        assert!(number < MOST_ASKS, "a list has no question {number}");
        let passage = self.passage(pe);
        passage.prefetch(number + 1);
        let load = |field| passage.load(of_question(number, field));
        let words = passage.load_all(of_question(number, offset_of!(Question, ask)));
        Some(Asked {
            ask: Ask::from_words(words)?,
            spent: Duration::from_nanos(load(offset_of!(Question, spent))),
            block: load(offset_of!(Question, block)) as usize,
        })
    }

    /// The block of `len` bytes that begins at `at`; `None` where a passage has no room for it.
    /// Called in the machine's turn.
    pub fn block(&self, pe: usize, at: usize, len: usize) -> Option<Vec<u8>> {
        let end = at.checked_add(len)?;
        let mut bytes = vec![0; Some(len).filter(|_| end <= MOST_BYTES)?];
        // SAFETY: a passage has room for `MOST_BYTES` bytes, and the vector has `len`.
        unsafe { shm::copy(bytes.as_mut_ptr(), self.passage(pe).block(at), len) };
        Some(bytes)
    }

    /// Whether PE `pe` recalls its questions. Called at any time.
    pub fn is_recalled(&self, pe: usize) -> bool {
        self.passage(pe).load(offset_of!(Words, recalled)) != 0
    }

    /// Gives pages back after long blocks: `len` is the longer of the last answer and all blocks of
    /// the questions. Called in the machine's turn, after the last question's
    /// [`block`](Self::block) was read.
    pub fn give_back(&self, pe: usize, len: usize) {
        if (KEPT_BYTES..=MOST_BYTES).contains(&len) {
            self.mapping.release(FIRST + pe as u64 * STRIDE + BLOCK, len as u64);
        }
    }

    /// Writes the answer for PE `pe`, whose time is `now`, after `made` of its questions: a number
    /// and bytes, or a refusal in words. Called in the machine's turn, before
    /// [`give`](Self::give).
    pub fn answer(
        &self,
        pe: usize,
        now: Duration,
        made: usize,
        answer: std::result::Result<(u64, &[u8]), &str>,
    ) {
        let passage = self.passage(pe);
        let (refused, value, bytes) = match answer {
            Ok((value, bytes)) => (0, value, bytes),
            Err(why) => (1, 0, why.as_bytes()),
        };
        assert!(bytes.len() <= MOST_BYTES, "an answer fits into a passage");
        // SAFETY: a passage has room for `MOST_BYTES` bytes.
        unsafe { shm::copy(passage.block(0), bytes.as_ptr(), bytes.len()) };
        passage.store_all(
            offset_of!(Words, reply),
            [refused, now.as_nanos() as u64, value, bytes.len() as u64, made as u64],
        );
    }

    /// Ends the machine's turn, so that PE `pe` runs on with its answer. Says whether the PE sleeps
    /// until somebody [wakes](Self::wake) it; nothing when the machine does not have the turn.
    pub fn give(&self, pe: usize) -> Option<bool> {
        self.passage(pe).turn.give(Side::Machine)
    }

    /// Records that PE `pe` has ended: [`wait`](Self::wait) says so from now on.
    pub fn left(&self, pe: usize) {
        self.ended[pe].store(true, Ordering::Release);
        self.passage(pe).turn.leave();
    }
}

/// A question, as a process has written it.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// The question.
    pub ask: Ask,
    /// Time that the process has computed before it.
    pub spent: Duration,
    /// Where its block begins.
    pub block: usize,
}

/// A process's side: its own passage.
pub(super) struct Own {
    passage: Passage,
    /// The mapping that `passage` lies in.
    _mapping: Mapping,
    kept: Kept,
}

/// The questions that are to be asked.
#[derive(Clone, Copy, Default)]
struct Kept {
    count: usize,
    bytes: usize,
    spent: Duration,
}

/// By which a process recalls its questions, at any time.
#[derive(Clone, Copy)]
pub(super) struct Recall(Passage);

impl Recall {
    /// Recalls them, or no longer.
    pub(super) fn set(self, recalled: bool) {
        self.0.store(offset_of!(Words, recalled), recalled.into());
    }
}

/// A reply without its block.
pub(super) struct Reply {
    pub(super) now: Duration,
    /// How many of the last questions were answered; not those that were kept before them.
    pub(super) made: usize,
    pub(super) answer: std::result::Result<u64, String>,
}

impl Own {
    /// The passage of PE `me` behind an inherited descriptor, which may be of any file.
    pub(super) fn attach(fd: OwnedFd, me: usize, npes: usize) -> Result<(Own, Run)> {
        let run = peek(&fd).filter(|run| run.npes == npes).ok_or_else(|| Error::Environment {
            name: ENV_MACHINE_FD,
            value: fd.as_raw_fd().to_string(),
            problem: format!(
                "is not that of a simulated machine of {npes} PEs, or of another version of memonet"
            ),
            fix: "Start the program with `memonet run --machine`, or unset it",
        })?;
        let mapping = Mapping::part(&fd, FIRST + me as u64 * STRIDE, STRIDE)?;
        mapping.keep_from_children();
        // SAFETY: the mapping holds a whole passage, and lives as long as this value.
        let passage = unsafe { Passage::at(mapping.at(0)) };
        let own = Own { passage, _mapping: mapping, kept: Kept::default() };
        Ok((own, run))
    }

    /// The value lives as long as the process: see [`process`](super::process).
    pub(super) fn recall(&self) -> Recall {
        Recall(self.passage)
    }

    /// Whether this process counts as ended.
    pub(super) fn has_ended(&self) -> bool {
        self.passage.turn.look(Side::Pe) == Came::Gone
    }

    /// Whether questions are kept.
    pub(super) fn keeps(&self) -> bool {
        self.kept.count > 0
    }

    /// Whether there is room for so many questions without blocks.
    pub(super) fn has_room_for(&self, asks: usize) -> bool {
        self.kept.count + asks <= MOST_ASKS
    }

    /// Whether there is room to keep a question, and one to ask after it.
    pub(super) fn has_room(&self, ask: Ask) -> bool {
        self.kept.count + 1 < MOST_ASKS && self.kept.bytes + ask.gives() <= MOST_KEPT_BYTES
    }

    /// Adds a question to the list. `computed` is the time that the process has computed since the
    /// last reply.
    ///
    /// # Safety
    /// `block` is readable for the bytes that the question [gives](Ask::gives).
    pub(super) unsafe fn keep(&mut self, ask: Ask, computed: Duration, block: *const u8) {
        let (passage, Kept { count, bytes, spent }) = (self.passage, self.kept);
        assert!(count < MOST_ASKS && bytes + ask.gives() <= MOST_BYTES, "there is room");
        if ask.gives() > 0 {
            // SAFETY: the caller promises the source; a passage has room for `MOST_BYTES` bytes.
            unsafe { shm::copy(passage.block(bytes), block, ask.gives()) };
        }
        let store = |field, value| passage.store(of_question(count, field), value);
        passage.store_all(of_question(count, offset_of!(Question, ask)), ask.to_words());
        store(offset_of!(Question, spent), computed.saturating_sub(spent).as_nanos() as u64);
        store(offset_of!(Question, block), bytes as u64);
        self.kept = Kept {
            count: count + 1,
            bytes: (bytes + ask.gives()).next_multiple_of(ALIGNMENT),
            spent: computed,
        };
    }

    /// Asks the questions of the list, and waits for the answer to the last, which is `ask`. The
    /// last `asked` of them are those that the caller wants to know about. `woken` is called when
    /// the process was woken without an answer. Nothing, where this process counts as ended.
    ///
    /// # Safety
    /// `block` is writable for the bytes that the question [takes](Ask::takes).
    pub(super) unsafe fn call(
        &mut self,
        ask: Ask,
        asked: usize,
        block: *mut u8,
        woken: impl Fn(),
    ) -> Option<Reply> {
        let (passage, count) = (self.passage, std::mem::take(&mut self.kept).count);
        passage.store(offset_of!(Words, count), count as u64);
        if !passage.turn.pass(Side::Pe) {
            return None;
        }
        loop {
            match passage.turn.wait(Side::Pe) {
                Came::Mine => break,
                Came::Gone => return None,
                Came::Late => woken(),
            }
        }
        let [refused, now, value, len, made] =
            passage.load_all::<REPLY_WORDS>(offset_of!(Words, reply));
        let (len, made) = ((len as usize).min(MOST_BYTES), (made as usize).min(count));
        let answer = if refused != 0 {
            let mut words = vec![0; len];
            // SAFETY: a passage has room for `MOST_BYTES` bytes, and the vector has `len`.
            unsafe { shm::copy(words.as_mut_ptr(), passage.block(0), len) };
            Err(String::from_utf8_lossy(&words).into_owned())
        } else {
            if ask.takes() > 0 {
                let all = if matches!(ask, Ask::Get { .. }) {
                    len == ask.takes()
                } else {
                    len <= ask.takes()
                };
                assert!(all, "{ask:?} is answered with {len} bytes");
                // SAFETY: the caller promises the destination for at least so many bytes.
                unsafe { shm::copy(block, passage.block(0), len) };
            }
            Ok(value)
        };
        let now = Duration::from_nanos(now);
        Some(Reply { now, made: made.saturating_sub(count - asked), answer })
    }
}
