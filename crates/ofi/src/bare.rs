//! What libfabric does without memonet: the limit beside which the bench measures this fabric.
//!
//! Two processes have an endpoint each, of the same kind as PEs have, and poll. One begins: it
//! sends a word and gets one back, or writes blocks and says when they are there.

use crate::net::{Event, Net, Posted, Region};
use crate::sys::{self, Room};
use std::ffi::c_void;
use std::net::IpAddr;

/// Bytes of a message.
const WORD: usize = 8;
/// Blocks that are under way at once.
pub const BLOCKS: usize = 8;
/// The places of operations: of what is received, of what is sent, and of blocks.
const RECEIVE: usize = 0;
const SEND: usize = 1;
const WRITES: usize = 2;

/// An endpoint with memory that the other end writes to.
pub struct Bare {
    begins: bool,
    /// The number of the other end, and address and key of its memory.
    peer: (u64, u64, u64),
    /// Bytes of a block.
    size: usize,
    rooms: Box<[Room]>,
    events: Vec<Event>,
    /// Words that came, words that were sent, and blocks that were written, for which nobody has
    /// waited yet: the next word may come while this end still waits until its own was sent.
    done: [usize; 3],
    /// Until the end. It ends before the network does.
    region: Option<Region>,
    net: Net,
    /// A word to receive, a word to send, then a block.
    memory: Box<[u64]>,
}

impl Bare {
    /// An endpoint of this provider, for blocks of `size` bytes. One of a provider that goes by
    /// sockets is at `source`.
    ///
    /// # Errors
    /// What is missing.
    pub fn open(provider: &str, source: IpAddr, size: usize, begins: bool) -> Result<Self, String> {
        let source = crate::net::goes_by_sockets(provider).then_some(source);
        let mut net = crate::thread::sheltered(|| Net::open(Some(provider), source))?;
        let memory = vec![1; 2 + size.div_ceil(8)].into_boxed_slice();
        let access = sys::SEND | sys::RECEIVE | sys::WRITE | sys::REMOTE_WRITE;
        // SAFETY: the memory belongs to the value, which drops the registration before.
        let region = unsafe { net.register(memory.as_ptr().cast(), memory.len() * 8, access) }?;
        let mut bare = Bare {
            begins,
            peer: (0, 0, 0),
            size,
            rooms: vec![[0; 8]; WRITES + BLOCKS].into(),
            events: Vec::new(),
            done: [0; 3],
            region: Some(region),
            net,
            memory,
        };
        bare.expect()?;
        Ok(bare)
    }

    /// What the other end needs: where this endpoint and its block are.
    ///
    /// # Errors
    /// The provider's.
    pub fn told(&self) -> Result<Vec<u8>, String> {
        let region = self.region();
        let block = region.base() + 2 * WORD as u64;
        let place = [block.to_le_bytes(), region.key().to_le_bytes()].concat();
        Ok([place, self.net.address()?].concat())
    }

    /// Learns where the other end is, from what it has [told](Self::told).
    ///
    /// # Errors
    /// The provider's.
    pub fn meet(&mut self, told: &[u8]) -> Result<(), String> {
        let word = |at: usize| told.get(at..at + 8).and_then(|word| word.try_into().ok());
        let (Some(at), Some(key), Some(address)) = (word(0), word(8), told.get(16..)) else {
            return Err("the other end has told no address".into());
        };
        let number = self.net.insert(address)?;
        self.peer = (number, u64::from_le_bytes(at), u64::from_le_bytes(key));
        Ok(())
    }

    /// Whether this end begins.
    pub fn begins(&self) -> bool {
        self.begins
    }

    fn region(&self) -> &Region {
        self.region.as_ref().expect("it is there until the end")
    }

    fn place(&mut self, room: usize) -> *mut c_void {
        (&raw mut self.rooms[room]).cast()
    }

    fn at(&mut self, word: usize) -> *mut u8 {
        self.memory[word..].as_mut_ptr().cast()
    }

    /// Tries until the provider takes an operation.
    fn start(
        &mut self,
        mut tried: impl FnMut(&mut Net) -> Result<Posted, String>,
    ) -> Result<(), String> {
        while let Posted::Later = tried(&mut self.net)? {
            self.look()?;
        }
        Ok(())
    }

    /// Waits until so many of one kind are complete.
    fn wait(&mut self, kind: usize, count: usize) -> Result<(), String> {
        while self.done[kind] < count {
            self.look()?;
        }
        self.done[kind] -= count;
        Ok(())
    }

    /// Prepares for the next word that comes.
    fn expect(&mut self) -> Result<(), String> {
        let (to, desc, context) = (self.at(0), self.region().desc(), self.place(RECEIVE));
        // SAFETY: memory and place belong to the value, which closes the endpoint first.
        let posted = |net: &mut Net| unsafe { net.receive(to, WORD, desc, context) };
        self.start(posted)
    }

    /// Counts what is complete.
    fn look(&mut self) -> Result<(), String> {
        let mut events = std::mem::take(&mut self.events);
        self.net.events(&mut events)?;
        for event in events.drain(..) {
            let context = match event {
                Event::Complete { context, .. } => context,
                Event::Failed { why, .. } => return Err(why),
            };
            let room = (context.addr() - self.rooms.as_ptr().addr()) / size_of::<Room>();
            self.done[room.min(WRITES)] += 1;
        }
        self.events = events;
        Ok(())
    }

    fn send(&mut self) -> Result<(), String> {
        let (from, desc, context) = (self.at(1), self.region().desc(), self.place(SEND));
        let to = self.peer.0;
        // SAFETY: as in `expect`.
        let posted = |net: &mut Net| unsafe { net.send(from, WORD, desc, to, context) };
        self.start(posted)
    }

    /// This end's half of a round trip of a word.
    ///
    /// # Errors
    /// The provider's.
    pub fn trip(&mut self) -> Result<(), String> {
        if self.begins {
            self.send()?;
        }
        self.wait(RECEIVE, 1)?;
        self.expect()?;
        if !self.begins {
            self.send()?;
        }
        self.wait(SEND, 1)
    }

    /// Writes up to [`BLOCKS`] blocks, or has them written. Returns when the other end has all.
    ///
    /// # Errors
    /// The provider's.
    pub fn blocks(&mut self, count: usize) -> Result<(), String> {
        if self.begins {
            for block in 0..count.min(BLOCKS) {
                let (from, desc, size) = (self.at(2), self.region().desc(), self.size);
                let ((to, at, key), context) = (self.peer, self.place(WRITES + block));
                // SAFETY: as in `expect`.
                let posted = |net: &mut Net| unsafe {
                    net.write((from, size, desc), to, (at, key), context)
                };
                self.start(posted)?;
            }
            self.wait(WRITES, count.min(BLOCKS))?;
        }
        // Its messages are for the end.
        self.trip()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // With some providers the endpoint stays open as long as the registration.
        let is_shut = self.net.shut() || {
            self.region = None;
            self.net.shut()
        };
        if !is_shut {
            // The provider may touch them still: they stay for ever.
            std::mem::forget(std::mem::take(&mut self.memory));
            std::mem::forget(std::mem::take(&mut self.rooms));
        }
    }
}
