//! The shared pages by which attached processes and the machine talk: layout and access, for both
//! sides.
//!
//! One memfd, which only descriptors reach:
//!
//! ```text
//! 0            Header              written before any process starts
//! 4096         Passage of PE 0     one page of words, then room for a block of up to 1 GiB; pages exist when touched
//! ...          Passage of PE k
//! ```
//!
//! A process maps its own passage, the machine all. Who may touch what, and when, says
//! [`turn`](super::turn). The machine believes nothing that is written there: it copies the words
//! once, and reads what they say with [`Ask::from_words`].
//!
//! Answer and question share the room for a block. In its turn, a process first reads the answer's
//! block, then overwrites it with that of its next question. So when the machine has the turn, the
//! room holds a question that is not read yet. The machine gives pages back after it has read that.

use super::ask::{Ask, WORDS};
use super::fabric::MOST;
use super::turn::{Came, Side, Turn};
use crate::base::error::{Error, Result};
use crate::base::memory::{self, Mapping, create_memfd};
use crate::base::settings::ENV_MACHINE_FD;
use crate::base::shm;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MAGIC: u64 = u64::from_le_bytes(*b"mnmachin");
/// Raised with every change to this file, or to the words of questions, that another version could
/// misread.
const VERSION: u32 = 2;

#[repr(C)]
struct Header {
    magic: u64,
    version: u32,
    npes: u32,
    /// How much slower than this machine's CPU the simulated one is, as the bits of an `f64`; 0
    /// where computing takes no time.
    cpu_scale: u64,
    /// Of all chance in the run.
    seed: u64,
}

/// What a process must know of the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) cpu_scale: Option<f64>,
    pub(super) seed: u64,
    npes: usize,
}

/// Reads the header of a file that may be one of ours, as the environment says.
pub(super) fn peek(fd: &OwnedFd) -> Option<Run> {
    let size = memory::sealed_size(fd).ok().filter(|&size| size >= FIRST)?;
    let header = Mapping::part(fd, 0, FIRST).ok()?;
    let word = |offset: usize| header.at(offset as u64);
    // SAFETY: aligned words of the mapped page.
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

/// The first page of a passage. Each line is written by one side in its turn.
#[repr(C, align(64))]
struct Words {
    turn: u32,
    _pad: [u32; 15],
    ask: [u64; WORDS],
    /// Nanoseconds that the process has computed since the last reply.
    spent: u64,
    _pad2: [u64; 7],
    reply: [u64; REPLY],
}

/// Words of a reply: whether it is refused, the time in nanoseconds, a number, and the bytes in the
/// block.
const REPLY: usize = 4;
const BLOCK: u64 = 4096;
const STRIDE: u64 = BLOCK + MOST as u64;
const FIRST: u64 = 4096;
/// Pages of longer blocks are given back after use.
const KEPT: usize = 4 << 20;

const _: () =
    assert!(size_of::<Header>() <= FIRST as usize && size_of::<Words>() <= BLOCK as usize);

/// One PE's passage, mapped.
#[derive(Clone, Copy)]
struct Passage {
    base: *mut u8,
    turn: Turn,
}

// SAFETY: an address in a mapping, used only through `crate::base::shm`.
unsafe impl Send for Passage {}
// SAFETY: as above.
unsafe impl Sync for Passage {}

impl Passage {
    /// # Safety
    /// `base` is that of a page, and a passage is mapped there for as long as this value and its
    /// copies are used.
    unsafe fn at(base: *mut u8) -> Passage {
        // SAFETY: the caller promises the page, which begins with the word.
        let turn = unsafe { Turn::new(base.wrapping_add(offset_of!(Words, turn)).cast()) };
        Passage { base, turn }
    }

    fn word(self, offset: usize) -> *mut u64 {
        self.base.wrapping_add(offset).cast()
    }

    fn load(self, offset: usize) -> u64 {
        // SAFETY: `at`'s caller promised the page; the offsets used are those of aligned words of
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

    fn block(self) -> *mut u8 {
        self.base.wrapping_add(BLOCK as usize)
    }
}

/// The pages, as the machine has them: mapped whole.
pub struct Passages {
    mapping: Mapping,
    /// Which PEs have ended, where no process can write it.
    ended: Box<[AtomicBool]>,
}

impl Passages {
    /// For so many PEs. With `cpu_scale`, what they compute takes as much time as on this machine's
    /// CPU, times that.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn create(npes: usize, seed: u64, cpu_scale: Option<f64>) -> Result<Passages> {
        let size = FIRST + npes as u64 * STRIDE;
        let fd = create_memfd("memonet-machine", size)?;
        let mapping = Mapping::new(fd, size as usize, true)?;
        // SAFETY: aligned words of the mapping's first page, which nobody else knows yet.
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

    /// What a process needs in its environment to find them; the descriptor it inherits.
    pub fn environment(&self) -> (&'static str, String) {
        (ENV_MACHINE_FD, self.mapping.fd().as_raw_fd().to_string())
    }

    /// Their descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.mapping.fd()
    }

    fn passage(&self, pe: usize) -> Passage {
        assert!(pe < self.ended.len(), "there is no PE {pe} among {}", self.ended.len());
        // SAFETY: FIRST and STRIDE are multiples of pages, and there is a passage for each of
        // `ended` in the mapping, which lives as long as `self`, in whose methods alone the value
        // is used.
        unsafe { Passage::at(self.mapping.at(FIRST + pe as u64 * STRIDE)) }
    }

    /// Sleeps until PE `pe` has passed its turn to the machine, or has ended; or until woken for
    /// nothing. Without a limit of time: a timer would cost more than all the rest of a hand-over.
    /// What the word says of an end, [`has_ended`](Self::has_ended) knows.
    pub fn wait(&self, pe: usize) -> Came {
        match self.has_ended(pe) {
            true => Came::Gone,
            false => self.passage(pe).turn.wait(Side::Machine),
        }
    }

    /// Whether PE `pe` has ended, whatever its process has written.
    pub fn has_ended(&self, pe: usize) -> bool {
        self.ended[pe].load(Ordering::Acquire)
    }

    /// Wakes whoever waits for PE `pe`, for nothing.
    pub fn nudge(&self, pe: usize) {
        self.passage(pe).turn.wake();
    }

    /// What it asks, and how long it has computed before; nothing where no question is written. In
    /// the machine's turn.
    pub fn ask(&self, pe: usize) -> Option<(Ask, Duration)> {
        let passage = self.passage(pe);
        let ask = Ask::from_words(passage.load_all(offset_of!(Words, ask)))?;
        Some((ask, Duration::from_nanos(passage.load(offset_of!(Words, spent)))))
    }

    /// The block of `len` bytes that goes with what it asks; nothing where a passage has no room
    /// for so many. In the machine's turn.
    pub fn block(&self, pe: usize, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; Some(len).filter(|&len| len <= MOST)?];
        // SAFETY: a passage has room for `MOST` bytes, and the vector was made for `len`.
        unsafe { shm::copy(bytes.as_mut_ptr(), self.passage(pe).block(), len) };
        Some(bytes)
    }

    /// Gives pages back after a long block: `len` is the longer of the last answer and the
    /// question. In the machine's turn, after it has read the question's [`block`](Self::block).
    pub fn give_back(&self, pe: usize, len: usize) {
        if (KEPT..=MOST).contains(&len) {
            self.mapping.release(FIRST + pe as u64 * STRIDE + BLOCK, len as u64);
        }
    }

    /// Answers PE `pe`, whose time is `now`: with a number and bytes, or with a refusal in words.
    /// Ends the machine's turn; false when that is not the machine's.
    pub fn answer(
        &self,
        pe: usize,
        now: Duration,
        answer: std::result::Result<(u64, &[u8]), &str>,
    ) -> bool {
        let passage = self.passage(pe);
        let (refused, value, bytes) = match answer {
            Ok((value, bytes)) => (0, value, bytes),
            Err(why) => (1, 0, why.as_bytes()),
        };
        assert!(bytes.len() <= MOST, "an answer fits into a passage");
        // SAFETY: a passage has room for `MOST` bytes.
        unsafe { shm::copy(passage.block(), bytes.as_ptr(), bytes.len()) };
        passage.store_all(
            offset_of!(Words, reply),
            [refused, now.as_nanos() as u64, value, bytes.len() as u64],
        );
        passage.turn.pass(Side::Machine)
    }

    /// PE `pe` has ended: [`wait`](Self::wait) says so from now on.
    pub fn left(&self, pe: usize) {
        self.ended[pe].store(true, Ordering::Release);
        self.passage(pe).turn.leave();
    }
}

/// A passage, as its process has it.
pub(super) struct Own {
    passage: Passage,
    /// What `passage` lies in.
    _mapping: Mapping,
}

/// A reply, without its bytes.
pub(super) struct Reply {
    pub(super) now: Duration,
    pub(super) answer: std::result::Result<u64, String>,
}

impl Own {
    /// Takes the passage of PE `me` from an inherited descriptor, believing nothing.
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
        // SAFETY: a whole passage was mapped just now, and lives as long as this value.
        let passage = unsafe { Passage::at(mapping.at(0)) };
        let own = Own { passage, _mapping: mapping };
        Ok((own, run))
    }

    /// Asks, and waits for the answer.
    ///
    /// # Safety
    /// As for [`Port::call`](super::fabric::Port::call).
    pub(super) unsafe fn call(&self, ask: Ask, spent: Duration, block: *mut u8) -> Option<Reply> {
        let passage = self.passage;
        if ask.gives() > 0 {
            debug_assert!(ask.gives() <= MOST);
            // SAFETY: the caller promises the source; a passage has room for `MOST` bytes.
            unsafe { shm::copy(passage.block(), block, ask.gives()) };
        }
        passage.store_all(offset_of!(Words, ask), ask.to_words());
        passage.store(offset_of!(Words, spent), spent.as_nanos() as u64);
        if !passage.turn.pass(Side::Pe) {
            return None;
        }
        loop {
            match passage.turn.wait(Side::Pe) {
                Came::Mine => break,
                Came::Gone => return None,
                Came::Late => {}
            }
        }
        let [refused, now, value, len] = passage.load_all::<REPLY>(offset_of!(Words, reply));
        let len = (len as usize).min(MOST);
        let answer = if refused != 0 {
            let mut words = vec![0; len];
            // SAFETY: a passage has room for `MOST` bytes, and the vector was made for `len`.
            unsafe { shm::copy(words.as_mut_ptr(), passage.block(), len) };
            Err(String::from_utf8_lossy(&words).into_owned())
        } else {
            if ask.takes() > 0 {
                let all = if matches!(ask, Ask::Get { .. }) {
                    len == ask.takes()
                } else {
                    len <= ask.takes()
                };
                assert!(all, "{ask:?} is answered with {len} bytes");
                // SAFETY: the caller promises the destination, for that many bytes at least.
                unsafe { shm::copy(block, passage.block(), len) };
            }
            Ok(value)
        };
        let now = Duration::from_nanos(now);
        Some(Reply { now, answer })
    }
}
