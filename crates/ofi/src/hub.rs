//! All that a PE shares with its peers: the endpoint, operations under way, what is to be sent. One
//! lock is around it.

use crate::buffers::{Buffer, Pool};
use crate::meeting::{Meeting, News};
use crate::memory::Memory;
use crate::message::{self, Head, Kind};
use crate::net::{Event, Net, Posted, Region};
use crate::peer::{Contact, Found, Goal, Peer, State, Way};
use crate::serve;
use crate::sys::Room;
use memonet_core::unstable::Seat;
use memonet_core::unstable::fabric::FarAddress;
use memonet_core::unstable::shm;
use memonet_core::{Cause, Error, Result};
use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a large buffer: blocks up to it are copied, larger ones are sent from where they lie.
pub const COPIED: usize = 64 << 10;
/// Receives that wait for messages.
const RECEIVES: usize = 64;
/// Small and large buffers, unless peers that have none need more.
const BUFFERS: [usize; 2] = [1024, 32];
/// Messages for a peer that wait to be sent, when calls that add one wait.
const QUEUED: usize = 64;
/// Signals of which it is not known whether the peer has done them, when calls that add one wait:
/// a provider may keep all that come faster than the peer takes them, and a flush comes after them.
const UNDONE: u64 = 1024;
/// How long an operation has failed when its peer counts as failed, though nobody says that it has
/// gone: longer than it takes until the loss of a host is known.
const SETTLED: Duration = Duration::from_secs(3);
/// How long the first message to a peer may take, before it is asked whether its process runs, and
/// again after it has said so.
const CONTACT: Duration = Duration::from_secs(5);
/// How long a PE that leaves sends what it owes to others.
const LAST_WAIT: Duration = Duration::from_millis(100);
/// Looks for what a PE has sent before it went.
const LAST_LOOKS: u32 = 1000;
/// Other PEs' addresses are looked for in every so manieth look, unless one is awaited.
const ADDRESSES: u32 = 64;

/// An operation that the provider has.
#[repr(C)]
struct Op {
    /// The provider's, while it has the operation. The first, as it gets the address of the whole.
    room: Room,
    index: usize,
    what: Option<What>,
}

#[derive(Clone, Copy)]
enum What {
    Receive(Buffer),
    Send { pe: u32, buffer: Buffer },
    Write { pe: u32, buffer: Option<(Buffer, Size)>, batch: u64, generation: u64 },
    Read { pe: u32, buffer: (Buffer, Size), batch: u64, to: *mut u8, len: usize },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

/// Operations that are complete together.
struct Batch {
    pe: u32,
    /// Those under way, and whether more are to come.
    left: usize,
    is_open: bool,
    has_failed: bool,
    /// Whether a call waits for it, and takes it away.
    is_waited_for: bool,
    /// The generation to which what follows belongs, as deferred: from when all operations were
    /// started. A fence before them would otherwise wait for it.
    deferred: Option<u64>,
    /// What is sent when all are complete.
    then: Option<(u32, Head)>,
    /// The registration of the source, which ends then.
    source: Option<Region>,
}

impl Batch {
    fn is_over(&self) -> bool {
        self.left == 0 && !self.is_open && !self.has_failed
    }
}

// SAFETY: addresses in it are of buffers that belong to the hub, or of memory that callers keep
// until the operations on it have ended.
unsafe impl Send for Hub {}

pub(crate) struct Hub {
    pub(crate) seat: Seat,
    pub(crate) memory: Memory,
    meeting: Box<dyn Meeting>,
    peers: Vec<Peer>,
    /// Boxed, as the provider has their addresses.
    #[allow(clippy::vec_box, reason = "the vector grows, and the operations stay where they are")]
    ops: Vec<Box<Op>>,
    free: Vec<usize>,
    batches: HashMap<u64, Batch>,
    /// What requests were answered with; nothing before, or where they were refused.
    answers: HashMap<u64, Option<Option<u64>>>,
    last: u64,
    small: Pool,
    large: Pool,
    /// Whether an operation had to wait for a buffer, since somebody looked who has them.
    lacks_buffers: bool,
    with_output: Vec<u32>,
    /// Peers for which a quiet may have to wait.
    awaited: Vec<u32>,
    broken: Vec<u32>,
    /// Peers to which something is being sent, and nothing has passed yet.
    doubtful: Vec<u32>,
    /// Peers that have ended, and since when, while the provider still reads for them what is the
    /// program's.
    borrowers: Vec<(u32, Instant)>,
    /// Whether a pair has ever failed, for threads without the lock.
    pub(crate) has_failed: Arc<AtomicBool>,
    /// Buffers for messages that the provider has not taken yet.
    unposted: Vec<Buffer>,
    /// Since when it has refused them, and why.
    refused: Option<(Instant, String)>,
    /// Since when a message may be missing, and why. Nobody knows of which peer.
    lost: Option<(Instant, String)>,
    /// When a PE was last seen to have gone.
    departure: Option<Instant>,
    /// Whether the endpoint is of no use any more: all pairs have failed.
    is_over: bool,
    unknown: usize,
    /// Whether the provider has not taken an operation since the last sleep.
    was_put_off: bool,
    pub(crate) fences: u64,
    /// What could not be returned to a caller.
    pub(crate) late: Option<Error>,
    events: Vec<Event>,
    looks: u32,
    mark: u32,
    /// The last: it is closed after what belongs to it.
    pub(crate) net: Net,
}

impl Hub {
    pub(crate) fn new(seat: &Seat, net: Net, meeting: Box<dyn Meeting>) -> Result<Self> {
        meeting.begin(&net.address().map_err(crate::error::failed)?)?;
        let (base, len) = seat.segment();
        let (job, record) = (meeting.job(), meeting.record());
        let peers = 0..seat.npes();
        let mut hub = Hub {
            // SAFETY: the seat, which the hub has, keeps the segment mapped.
            memory: unsafe { Memory::new(seat.pe() as u32, base, len) },
            seat: seat.clone(),
            meeting,
            peers: peers.map(|pe| Peer::new(pe as u32, record.host(pe))).collect(),
            ops: Vec::new(),
            free: Vec::new(),
            batches: HashMap::new(),
            answers: HashMap::new(),
            last: 0,
            small: Pool::new(message::MOST, RECEIVES, BUFFERS[Size::Small as usize]),
            large: Pool::new(COPIED, 4, BUFFERS[Size::Large as usize]),
            lacks_buffers: false,
            with_output: Vec::new(),
            awaited: Vec::new(),
            broken: Vec::new(),
            doubtful: Vec::new(),
            borrowers: Vec::new(),
            has_failed: Arc::default(),
            unposted: Vec::new(),
            refused: None,
            lost: None,
            departure: None,
            is_over: false,
            unknown: 0,
            was_put_off: false,
            fences: 0,
            late: None,
            events: Vec::new(),
            looks: 0,
            mark: (job ^ job >> 32) as u32,
            net,
        };
        for _ in 0..RECEIVES {
            let buffer = hub.buffer(Size::Small)?.expect("nobody has taken any");
            hub.receive(buffer);
        }
        Ok(hub)
    }

    pub(crate) fn meeting(&self) -> &dyn Meeting {
        &*self.meeting
    }

    fn me(&self) -> u32 {
        self.seat.pe() as u32
    }

    pub(crate) fn peer(&mut self, pe: u32) -> &mut Peer {
        &mut self.peers[pe as usize]
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn pool(&mut self, size: Size) -> &mut Pool {
        match size {
            Size::Small => &mut self.small,
            Size::Large => &mut self.large,
        }
    }

    fn buffer(&mut self, size: Size) -> Result<Option<Buffer>> {
        let Hub { small, large, net, .. } = self;
        let pool = if size == Size::Small { small } else { large };
        pool.take(net).map_err(crate::error::failed)
    }

    /// A buffer for an operation of a peer; nothing where that has to be tried again. One that has
    /// stopped keeps its buffers. So no peer has more than half, and one that has none gets one,
    /// whatever others keep: beyond the limit there is at most one for each peer.
    fn buffer_for(&mut self, pe: u32, size: Size) -> Result<Option<Buffer>> {
        let held = self.peers[pe as usize].held[size as usize];
        let buffer = match held {
            0 => {
                let Hub { small, large, net, .. } = self;
                let pool = if size == Size::Small { small } else { large };
                Some(pool.grant(net).map_err(crate::error::failed)?)
            }
            held if held < BUFFERS[size as usize] / 2 => self.buffer(size)?,
            _ => None,
        };
        match buffer {
            Some(_) => self.peers[pe as usize].held[size as usize] += 1,
            None => self.lacks_buffers = true,
        }
        Ok(buffer)
    }

    /// An operation of a peer does not need its buffer any more.
    fn give_back(&mut self, pe: u32, (buffer, size): (Buffer, Size)) {
        self.peers[pe as usize].held[size as usize] -= 1;
        self.pool(size).give_back(buffer);
    }

    /// An operation, and what the provider knows it by.
    fn op(&mut self, what: What) -> (usize, *mut c_void) {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.ops.len();
            self.ops.push(Box::new(Op { room: [0; 8], index, what: None }));
            index
        });
        let op = &mut *self.ops[index];
        op.what = Some(what);
        (index, (&raw mut *op).cast())
    }

    /// The provider has not taken it.
    fn not_taken(&mut self, index: usize) {
        self.ops[index].what = None;
        self.free.push(index);
        self.was_put_off = true;
    }

    /// Has the next message come into this buffer. False where that has to be tried again.
    fn receive(&mut self, buffer: Buffer) -> bool {
        let (index, context) = self.op(What::Receive(buffer));
        // SAFETY: buffer and operation are the hub's, which closes the endpoint before it frees
        // them.
        let posted = unsafe { self.net.receive(buffer.at, message::MOST, buffer.desc, context) };
        match posted {
            Ok(Posted::Yes) => return true,
            Ok(Posted::Later) => {}
            // It may be taken later: memory may be short.
            Err(why) => _ = self.refused.get_or_insert_with(|| (Instant::now(), why)),
        }
        self.not_taken(index);
        self.unposted.push(buffer);
        false
    }

    /// Tries what the provider has not taken.
    fn receive_all(&mut self) {
        while let Some(buffer) = self.unposted.pop() {
            if !self.receive(buffer) {
                return;
            }
        }
        self.refused = None;
    }

    /// A message may be missing, and nobody knows of which peer: of one that has gone, or else all
    /// pairs have failed.
    pub(crate) fn has_lost(&mut self, why: String) {
        if self.departure.is_none_or(|since| since.elapsed() > SETTLED) {
            let why = || (Instant::now(), format!("a receive failed: {why}"));
            self.lost.get_or_insert_with(why);
        }
    }

    /// Whether an operation of a call that came after this fence may be started now. What it waits
    /// for is under way.
    pub(crate) fn is_ready(&mut self, pe: u32, way: Way, fence: u64) -> bool {
        if self.address(pe).is_none() {
            return false;
        }
        let last = self.fences;
        let peer = &mut self.peers[pe as usize];
        if !peer.is_alive() || peer.queue.len() >= QUEUED {
            return false;
        }
        if way == Way::Message && peer.undone() >= UNDONE {
            return false;
        }
        if peer.has_passed(way, fence) || peer.pass(way, fence, last) {
            return true;
        }
        self.flush(pe);
        false
    }

    /// The number of a peer's endpoint. Where its address is not known, it is asked for.
    fn address(&mut self, pe: u32) -> Option<u64> {
        let peer = &mut self.peers[pe as usize];
        if peer.address.is_none() && !peer.asked && peer.is_alive() {
            peer.asked = true;
            self.unknown += 1;
            if let Err(error) = self.meeting.ask(pe) {
                self.fail(pe, error.to_string());
            }
        }
        self.peers[pe as usize].address
    }

    pub(crate) fn take_addresses(&mut self) -> bool {
        let mut some = false;
        loop {
            match self.meeting.next() {
                Ok(None) => return some,
                Ok(Some(News::Address { pe, address })) => self.meet(pe, &address),
                Ok(Some(News::Refused { pe, why })) => self.refused(pe, why),
                Err(error) => {
                    self.late.get_or_insert(error);
                    return some;
                }
            }
            some = true;
        }
    }

    fn meet(&mut self, pe: u32, address: &[u8]) {
        let Some(peer) = self.peers.get_mut(pe as usize) else { return };
        if peer.address.is_some() {
            if peer.contact == Contact::Doubted {
                peer.contact = Contact::Runs(Instant::now());
            }
            return;
        }
        if std::mem::take(&mut peer.asked) {
            self.unknown -= 1;
        }
        if let State::Broken(..) = peer.state {
            // This PE was refused, but the other one has got through.
            peer.state = State::Alive;
        }
        match self.net.insert(address) {
            Ok(number) => self.peers[pe as usize].address = Some(number),
            Err(why) => self.fail(pe, why),
        }
    }

    /// A peer's address will not come. Its agent may know that it has gone before this host's does.
    fn refused(&mut self, pe: u32, why: String) {
        let Some(peer) = self.peers.get_mut(pe as usize) else { return };
        if std::mem::take(&mut peer.asked) {
            self.unknown -= 1;
        }
        self.has_broken(pe, why);
    }

    /// A message for a peer: sent now, or as soon as can be.
    pub(crate) fn post(&mut self, pe: u32, head: &Head, block: &[u8]) {
        let peer = &mut self.peers[pe as usize];
        if peer.has_ended() {
            return;
        }
        if head.kind == Kind::Signal {
            peer.signals += 1;
        }
        let mut bytes = Vec::with_capacity(message::HEAD + block.len());
        bytes.extend_from_slice(&head.encode(self.mark));
        bytes.extend_from_slice(block);
        peer.queue.push_back(bytes);
        if peer.queue.len() == 1 && !self.with_output.contains(&pe) {
            self.with_output.push(pe);
        }
        self.send(pe);
        if head.kind == Kind::Signal && self.peers[pe as usize].wants_flush_after(UNDONE / 2) {
            self.flush(pe);
        }
    }

    /// Sends what the provider takes.
    fn send(&mut self, pe: u32) -> bool {
        let mut moved = false;
        while self.peers[pe as usize].is_alive() && !self.peers[pe as usize].queue.is_empty() {
            let Some(to) = self.address(pe) else { break };
            let buffer = match self.buffer_for(pe, Size::Small) {
                Ok(Some(buffer)) => buffer,
                Ok(None) => break,
                Err(error) => {
                    self.has_broken(pe, error.to_string());
                    break;
                }
            };
            if self.peers[pe as usize].contact == Contact::None {
                self.peers[pe as usize].contact = Contact::Tried(Instant::now());
                self.doubtful.push(pe);
            }
            let bytes = &self.peers[pe as usize].queue[0];
            let len = bytes.len();
            // SAFETY: a message fits into a buffer, which nobody else has.
            unsafe { shm::copy(buffer.at, bytes.as_ptr(), len) };
            let (index, context) = self.op(What::Send { pe, buffer });
            // SAFETY: as in `receive`.
            match unsafe { self.net.send(buffer.at, len, buffer.desc, to, context) } {
                Ok(Posted::Yes) => {
                    let peer = &mut self.peers[pe as usize];
                    peer.queue.pop_front();
                    peer.others += 1;
                    moved = true;
                    continue;
                }
                Ok(Posted::Later) => {}
                Err(why) => self.has_broken(pe, why),
            }
            self.not_taken(index);
            self.give_back(pe, (buffer, Size::Small));
            break;
        }
        moved
    }

    fn send_all(&mut self) -> bool {
        let (mut moved, mut index) = (false, 0);
        while let Some(&pe) = self.with_output.get(index) {
            moved |= self.send(pe);
            if self.peers[pe as usize].queue.is_empty() {
                self.with_output.swap_remove(index);
            } else {
                index += 1;
            }
        }
        moved
    }

    /// A quiet has to look after the peer.
    pub(crate) fn note_written(&mut self, pe: u32) {
        let peer = &mut self.peers[pe as usize];
        if !peer.is_awaited {
            peer.is_awaited = true;
            self.awaited.push(pe);
        }
    }

    /// What a quiet that begins now waits for. All peers are asked whether they have done all
    /// signals: others may wait for them at the same time.
    pub(crate) fn goals(&mut self) -> Vec<(u32, Goal)> {
        let awaited = self.awaited.clone();
        let goal = |pe: u32| {
            let mut goal = self.peer(pe).goal();
            self.has_reached(pe, &mut goal);
            (pe, goal)
        };
        awaited.into_iter().map(goal).collect()
    }

    /// Whether a goal is reached at a peer, which is asked what has to be known for that.
    pub(crate) fn has_reached(&mut self, pe: u32, goal: &mut Goal) -> bool {
        let has = self.peer(pe).has_reached(goal);
        if !has {
            self.flush(pe);
        }
        has
    }

    /// Nothing is awaited of those where all is visible, or never will be: of those that have
    /// failed, once the caller is `told`.
    pub(crate) fn forget_quiet(&mut self, told: &[u32]) {
        let peers = &mut self.peers;
        self.awaited.retain(|&pe| {
            let peer = &mut peers[pe as usize];
            let is_open = if peer.has_failed() { !told.contains(&pe) } else { !peer.is_quiet() };
            peer.is_awaited = is_open || peer.borrowed > 0;
            peer.is_awaited
        });
    }

    /// Whether nothing is awaited of any peer.
    pub(crate) fn is_quiet(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Asks a peer whether it has done all signals, where that is to be known.
    fn flush(&mut self, pe: u32) {
        let me = self.me();
        if let Some(signals) = self.peers[pe as usize].take_flush() {
            self.post(pe, &Head { value: signals, ..Head::new(Kind::Flush, me) }, &[]);
        }
    }

    /// The key of a peer's place; nothing yet where it has to be asked for.
    fn key(&mut self, at: FarAddress, len: usize) -> Result<Option<(u64, u64)>> {
        let me = self.me();
        let peer = &mut self.peers[at.pe as usize];
        match peer.key(at.region, at.offset, len as u64) {
            Found::At(address, key) => return Ok(Some((address, key))),
            Found::Refused => {
                let what = format!(
                    "PE {} refuses access to {len} bytes at offset {} of its region {}",
                    at.pe, at.offset, at.region
                );
                return Err(crate::error::failed(what));
            }
            Found::Unknown => {}
        }
        let asked = (at.region, at.offset);
        if !peer.keys_asked.contains(&asked) {
            peer.keys_asked.push(asked);
            self.post(at.pe, &Head::new(Kind::Key, me).at(at), &[]);
        }
        Ok(None)
    }

    /// Operations that are complete together, and what follows them.
    pub(crate) fn batch(
        &mut self,
        pe: u32,
        then: Option<(u32, Head)>,
        source: Option<Region>,
        is_waited_for: bool,
    ) -> u64 {
        let number = self.number();
        let batch = Batch {
            pe,
            left: 0,
            is_open: true,
            has_failed: false,
            is_waited_for,
            deferred: None,
            then,
            source,
        };
        self.batches.insert(number, batch);
        number
    }

    /// No more operations belong to it.
    pub(crate) fn close_batch(&mut self, number: u64) {
        let Some(batch) = self.batches.get_mut(&number) else { return };
        batch.is_open = false;
        if let Some((to, _)) = batch.then {
            let peer = &mut self.peers[to as usize];
            batch.deferred = Some(peer.defer());
            self.note_written(to);
        }
        self.end_batch(number);
    }

    /// Whether all its operations are complete: asked by the call that waits for it.
    pub(crate) fn take_batch(&mut self, number: u64) -> bool {
        let is_over = self.batches.get(&number).is_some_and(Batch::is_over);
        is_over && self.batches.remove(&number).is_some()
    }

    /// Not all its operations could be started: nothing follows those that were.
    pub(crate) fn cut_batch(&mut self, number: u64) {
        if let Some(batch) = self.batches.get_mut(&number) {
            batch.then = None;
        }
        self.close_batch(number);
    }

    /// Its operations' results are not wanted any more, nor what follows them.
    pub(crate) fn drop_batch(&mut self, number: u64) {
        let batch = self.batches.remove(&number);
        if let Some(Batch { then: Some((to, _)), deferred: Some(generation), .. }) = batch {
            self.peers[to as usize].end_deferred(generation);
        }
    }

    fn end_batch(&mut self, number: u64) {
        let Some(batch) = self.batches.get_mut(&number).filter(|batch| batch.is_over()) else {
            return;
        };
        let (then, deferred, keeps) = (batch.then.take(), batch.deferred, batch.is_waited_for);
        if !keeps {
            self.batches.remove(&number);
        }
        if let (Some((to, head)), Some(generation)) = (then, deferred) {
            // It is queued before it ends as deferred, so that whoever waits for it counts it.
            self.post(to, &head, &[]);
            self.peers[to as usize].end_deferred(generation);
        }
    }

    /// Starts a write; false where that has to be tried again.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes: during the call if it is copied, otherwise until the
    /// batch is done.
    pub(crate) unsafe fn write(
        &mut self,
        to: FarAddress,
        src: (*const u8, usize),
        copied: bool,
        (batch, fence): (u64, u64),
    ) -> Result<bool> {
        let (src, len) = src;
        if !self.is_ready(to.pe, Way::Access, fence) {
            return Ok(false);
        }
        let Some(place) = self.key(to, len)? else { return Ok(false) };
        let Some(number) = self.address(to.pe) else { return Ok(false) };
        let (from, desc, buffer) = if copied {
            let size = if len > message::MOST { Size::Large } else { Size::Small };
            let Some(buffer) = self.buffer_for(to.pe, size)? else { return Ok(false) };
            // SAFETY: the caller promises the source; the buffer is long enough, and nobody else's.
            unsafe { shm::copy(buffer.at, src, len) };
            (buffer.at.cast_const(), buffer.desc, Some((buffer, size)))
        } else {
            let source = self.batches.get(&batch).and_then(|batch| batch.source.as_ref());
            (src, source.map_or(null_mut(), Region::desc), None)
        };
        let generation = self.peers[to.pe as usize].pending.begin();
        let (index, context) = self.op(What::Write { pe: to.pe, buffer, batch, generation });
        // SAFETY: the buffer is the hub's, as the operation is; a source that is not copied is kept
        // by the caller.
        match unsafe { self.net.write((from, len, desc), number, place, context) } {
            Ok(Posted::Yes) => {
                let borrows = self.borrows(buffer);
                let peer = &mut self.peers[to.pe as usize];
                peer.writes += 1;
                peer.borrowed += usize::from(borrows);
                if let Some(batch) = self.batches.get_mut(&batch) {
                    batch.left += 1;
                }
                self.note_written(to.pe);
                return Ok(true);
            }
            Ok(Posted::Later) => {}
            Err(why) => self.has_broken(to.pe, why),
        }
        self.peers[to.pe as usize].pending.end(generation);
        self.not_taken(index);
        if let Some(buffer) = buffer {
            self.give_back(to.pe, buffer);
        }
        Ok(false)
    }

    /// Whether the provider reads the program's memory by a write that has this buffer, and no
    /// registration ends that.
    fn borrows(&self, buffer: Option<(Buffer, Size)>) -> bool {
        buffer.is_none() && !self.net.needs_local()
    }

    /// Starts a read of at most [`COPIED`] bytes; false where that has to be tried again.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes until the batch is done or dropped.
    pub(crate) unsafe fn read(
        &mut self,
        from: FarAddress,
        (to, len): (*mut u8, usize),
        batch: u64,
    ) -> Result<bool> {
        if self.address(from.pe).is_none() || !self.peers[from.pe as usize].is_alive() {
            return Ok(false);
        }
        let Some(place) = self.key(from, len)? else { return Ok(false) };
        let Some(number) = self.address(from.pe) else { return Ok(false) };
        let size = if len > message::MOST { Size::Large } else { Size::Small };
        let Some(buffer) = self.buffer_for(from.pe, size)? else { return Ok(false) };
        let what = What::Read { pe: from.pe, buffer: (buffer, size), batch, to, len };
        let (index, context) = self.op(what);
        // SAFETY: buffer and operation are the hub's.
        match unsafe { self.net.read((buffer.at, len, buffer.desc), number, place, context) } {
            Ok(Posted::Yes) => {
                self.peers[from.pe as usize].others += 1;
                if let Some(batch) = self.batches.get_mut(&batch) {
                    batch.left += 1;
                }
                return Ok(true);
            }
            Ok(Posted::Later) => {}
            Err(why) => self.has_broken(from.pe, why),
        }
        self.not_taken(index);
        self.give_back(from.pe, (buffer, size));
        Ok(false)
    }

    /// Asks a peer's CPU; gives what the answer is known by.
    pub(crate) fn ask(&mut self, pe: u32, head: Head) -> u64 {
        let ticket = self.number();
        self.answers.insert(ticket, None);
        self.post(pe, &Head { ticket, ..head }, &[]);
        ticket
    }

    /// The answer, once: a value, or that it was refused.
    pub(crate) fn answer(&mut self, ticket: u64) -> Option<Option<u64>> {
        let answer = (*self.answers.get(&ticket)?)?;
        self.answers.remove(&ticket);
        Some(answer)
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn drop_answer(&mut self, ticket: u64) {
        self.answers.remove(&ticket);
    }

    /// Lets the provider work, takes what has come, and sends. Says whether anything moved.
    pub(crate) fn pump(&mut self) -> bool {
        if self.is_over {
            return false;
        }
        let mut events = std::mem::take(&mut self.events);
        if let Err(why) = self.net.events(&mut events) {
            self.fail_all(&why);
        }
        let mut moved = !events.is_empty();
        for event in events.drain(..) {
            self.take_event(event);
        }
        self.events = events;
        if !self.unposted.is_empty() {
            self.receive_all();
        }
        if !self.with_output.is_empty() {
            moved |= self.send_all();
        }
        self.looks = self.looks.wrapping_add(1);
        if self.unknown > 0 || self.looks.is_multiple_of(ADDRESSES) {
            moved |= self.take_addresses();
        }
        moved
    }

    /// Whether nothing has come, so that the next thing that comes ends a sleep.
    pub(crate) fn may_sleep(&mut self) -> bool {
        self.is_over || self.net.may_sleep()
    }

    /// Whether nothing comes any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the provider may have to be called though nothing comes.
    pub(crate) fn is_restless(&mut self) -> bool {
        std::mem::take(&mut self.was_put_off) || self.unknown > 0 || !self.with_output.is_empty()
    }

    /// Whether anything is under way that may need this PE.
    pub(crate) fn is_busy(&self) -> bool {
        let waits = |peer: &Peer| peer.is_alive() && peer.writes + peer.others > 0;
        self.unknown > 0 || !self.with_output.is_empty() || self.peers.iter().any(waits)
    }

    /// What this PE owes to others is sent, before its endpoint is closed.
    pub(crate) fn drain(&mut self) {
        let start = Instant::now();
        while self.is_busy() && start.elapsed() < LAST_WAIT {
            self.pump();
            self.settle();
        }
    }

    fn take_event(&mut self, event: Event) {
        let (Event::Complete { context, .. } | Event::Failed { context, .. }) = event;
        if context.is_null() {
            if let Event::Failed { why, .. } = event {
                self.late.get_or_insert(crate::error::failed(why));
            }
            return;
        }
        // SAFETY: the provider gives back what it was given: an operation, which the hub keeps.
        let index = unsafe { (*context.cast::<Op>()).index };
        let Some(what) = self.ops[index].what.take() else { return };
        self.free.push(index);
        let (failed, len) = match event {
            Event::Complete { len, .. } => (None, len),
            Event::Failed { why, .. } => (Some(why), 0),
        };
        match what {
            What::Receive(buffer) => {
                match failed {
                    Some(why) => self.has_lost(why),
                    None => self.take_message(buffer, len),
                }
                self.receive(buffer);
            }
            What::Send { pe, buffer } => {
                self.give_back(pe, (buffer, Size::Small));
                self.peers[pe as usize].others -= 1;
                match failed {
                    Some(why) => self.has_broken(pe, why),
                    None => self.peers[pe as usize].contact = Contact::Proved,
                }
            }
            What::Write { pe, buffer, batch, generation } => {
                let borrows = self.borrows(buffer);
                if let Some(buffer) = buffer {
                    self.give_back(pe, buffer);
                }
                let peer = &mut self.peers[pe as usize];
                peer.borrowed -= usize::from(borrows);
                // It counts as failed until it is known why.
                if !peer.has_ended() && failed.is_none() {
                    peer.writes -= 1;
                    peer.pending.end(generation);
                }
                self.ended(pe, batch, failed);
            }
            What::Read { pe, buffer, batch, to, len } => {
                let wanted = self.batches.contains_key(&batch) && failed.is_none();
                if wanted {
                    // SAFETY: the caller keeps the destination until the batch is done or dropped.
                    unsafe { shm::copy(to, buffer.0.at, len) };
                }
                self.give_back(pe, buffer);
                self.peers[pe as usize].others -= 1;
                self.ended(pe, batch, failed);
            }
        }
    }

    /// An operation of a batch has ended.
    fn ended(&mut self, pe: u32, batch: u64, failed: Option<String>) {
        if let Some(batch) = self.batches.get_mut(&batch) {
            batch.left -= 1;
            batch.has_failed |= failed.is_some();
        }
        if let Some(why) = failed {
            self.has_broken(pe, why);
        }
        self.end_batch(batch);
    }

    fn take_message(&mut self, buffer: Buffer, len: usize) {
        let len = len.min(message::MOST);
        // SAFETY: the provider has written so many bytes, and has the buffer no more.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.at, len) };
        let Some(head) = Head::decode(bytes, self.mark) else { return };
        let Some(peer) = self.peers.get_mut(head.from as usize) else { return };
        peer.contact = Contact::Proved;
        match head.kind {
            Kind::Held | Kind::Refused => {
                let held = (head.kind == Kind::Held).then_some(head.value);
                if let Some(answer) = self.answers.get_mut(&head.ticket) {
                    *answer = Some(held);
                }
            }
            Kind::Flushed => {
                let peer = &mut self.peers[head.from as usize];
                if head.value <= peer.signals {
                    peer.flushed = peer.flushed.max(head.value);
                }
                if head.other != 0 {
                    let why = format!("PE {} has refused a signal to its memory", head.from);
                    self.late.get_or_insert(crate::error::failed(why));
                }
            }
            Kind::KeyIs => {
                let peer = &mut self.peers[head.from as usize];
                peer.learn(head.region, head.ticket, serve::granted(&head));
            }
            _ => self.serve(head, &bytes[message::HEAD..]),
        }
    }

    fn serve(&mut self, head: Head, block: &[u8]) {
        let Hub { memory, net, peers, seat, late, .. } = self;
        let refused = &mut peers[head.from as usize].has_refused;
        let said = serve::serve(seat.pe() as u32, memory, net, (&head, block), refused);
        seat.wake();
        let said = said.unwrap_or_else(|(head, why)| {
            late.get_or_insert(crate::error::failed(why));
            Some(head)
        });
        if let Some(said) = said {
            self.post(head.from, &said, &[]);
        }
    }

    fn has_broken(&mut self, pe: u32, why: String) {
        if self.peers[pe as usize].is_alive() {
            self.peers[pe as usize].state = State::Broken(Instant::now(), why);
            if !self.broken.contains(&pe) {
                self.broken.push(pe);
            }
        }
    }

    /// The pair has failed.
    fn fail(&mut self, pe: u32, why: String) {
        if !self.peers[pe as usize].has_ended() {
            self.end(pe, State::Failed(why));
            self.has_failed.store(true, Ordering::Relaxed);
            // Waits that depend on it end.
            self.seat.wake();
        }
    }

    /// The endpoint is of no use any more.
    fn fail_all(&mut self, why: &str) {
        self.is_over = true;
        let others = (0..self.peers.len() as u32).filter(|&pe| pe != self.me());
        others.collect::<Vec<_>>().into_iter().for_each(|pe| self.fail(pe, why.to_owned()));
    }

    /// The pairs that have failed, with their errors.
    pub(crate) fn failed(&self) -> Vec<(u32, Error)> {
        let failed = self.peers.iter().filter(|peer| peer.has_failed());
        failed.map(|peer| (peer.pe, peer.error())).collect()
    }

    fn end(&mut self, pe: u32, state: State) {
        let peer = &mut self.peers[pe as usize];
        // One that has failed may be said to have gone, too.
        if !peer.has_ended() {
            // What was started has buffers that may not come back.
            let [small, large] = peer.held;
            self.small.lose(small);
            self.large.lose(large);
            if peer.borrowed > 0 {
                self.borrowers.push((pe, Instant::now()));
            }
        }
        peer.end(state);
        if std::mem::take(&mut peer.asked) {
            self.unknown -= 1;
        }
        self.broken.retain(|&other| other != pe);
        self.with_output.retain(|&other| other != pe);
        let mut others = Vec::new();
        self.batches.retain(|_, batch| {
            if batch.pe != pe {
                return true;
            }
            let to = batch.then.take().map(|(to, _)| to).filter(|&to| to != pe);
            others.extend(to.zip(batch.deferred));
            false
        });
        // Their blocks are gone; they may have arrived.
        for (to, generation) in others {
            self.peers[to as usize].end_deferred(generation);
        }
    }

    /// A peer is gone: what it has sent is taken, and nothing waits for it any more.
    pub(crate) fn departed(&mut self, pe: u32, cause: Cause) {
        let mut looks = 0;
        while looks < LAST_LOOKS && self.pump() {
            looks += 1;
        }
        // If a message is missing, it was this peer's.
        (self.lost, self.departure) = (None, Some(Instant::now()));
        if !matches!(self.peers[pe as usize].state, State::Gone(_)) {
            self.end(pe, State::Gone(cause));
        }
    }

    /// Whether there is something to [settle](Self::settle).
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.broken.is_empty()
            || !self.doubtful.is_empty()
            || self.lost.is_some()
            || self.refused.is_some()
            || !self.borrowers.is_empty()
    }

    /// Finds out why operations have failed, or do not begin: their PEs have gone, or, after a
    /// while, the pairs have failed.
    pub(crate) fn settle(&mut self) {
        self.settle_doubtful();
        self.settle_lost();
        self.settle_borrowers();
        for index in (0..self.broken.len()).rev() {
            // One that has gone is taken away with what it has sent, and perhaps others with it.
            let Some(&pe) = self.broken.get(index) else { continue };
            let State::Broken(since, why) = self.peers[pe as usize].state.clone() else {
                self.broken.swap_remove(index);
                continue;
            };
            if let Some(cause) = self.seat.departed(pe as usize) {
                self.departed(pe, cause);
            } else if since.elapsed() > SETTLED {
                self.fail(pe, why);
            }
        }
    }

    /// A message may be missing. Where a PE has gone meanwhile, it was of that one.
    fn settle_lost(&mut self) {
        if let Some((_, why)) = self.refused.take_if(|(since, _)| since.elapsed() > SETTLED) {
            self.fail_all(&format!("the provider takes no buffers for messages: {why}"));
        }
        if self.lost.as_ref().is_none_or(|(since, _)| since.elapsed() < SETTLED) {
            return;
        }
        (0..self.peers.len() as u32).for_each(|pe| self.look_at(pe));
        if let Some((_, why)) = self.lost.take() {
            self.fail_all(&why);
        }
    }

    /// No operation can be taken back from the provider, and no call returns while the provider
    /// reads its source. One that keeps an operation for a peer that has ended gives it back when
    /// its endpoint is closed. That is the end of all pairs, so it has some time before.
    fn settle_borrowers(&mut self) {
        let peers = &self.peers;
        self.borrowers.retain(|&(pe, _)| peers[pe as usize].borrowed > 0);
        let Some(late) = self.borrowers.iter_mut().find(|(_, since)| since.elapsed() > SETTLED)
        else {
            return;
        };
        late.1 = Instant::now();
        let why = format!(
            "the provider did not give back what was being sent to PE {}, which had ended, so this \
             PE's endpoint was closed",
            late.0
        );
        let (is_shut, was_over) = (self.shut(), self.is_over);
        self.fail_all(&why);
        if is_shut {
            self.peers.iter_mut().for_each(|peer| peer.borrowed = 0);
        } else {
            // The provider may still give it back by itself.
            self.is_over = was_over;
        }
    }

    /// A provider may try for ever to reach a peer. One that has not been reached for a while is
    /// asked whether its process runs: one that is stopped gives no answer, and has all the time.
    fn settle_doubtful(&mut self) {
        for index in (0..self.doubtful.len()).rev() {
            let pe = self.doubtful[index];
            let peer = &mut self.peers[pe as usize];
            match peer.contact {
                Contact::Tried(since) if peer.is_alive() => {
                    if since.elapsed() > CONTACT {
                        peer.contact = Contact::Doubted;
                        if let Err(error) = self.meeting.ask(pe) {
                            self.fail(pe, error.to_string());
                        }
                    }
                }
                Contact::Doubted if peer.is_alive() => {}
                Contact::Runs(since) if peer.is_alive() => {
                    if since.elapsed() > CONTACT {
                        self.fail(pe, self.net.why_not_reached());
                    }
                }
                _ => _ = self.doubtful.swap_remove(index),
            }
        }
    }

    /// Looks whether a PE that a call waits for has gone.
    pub(crate) fn look_after(&mut self, pe: u32) {
        self.settle();
        self.look_at(pe);
        if std::mem::take(&mut self.lacks_buffers) {
            // Those of PEs that have gone are lost, and others take their place.
            (0..self.peers.len() as u32).for_each(|pe| self.look_at(pe));
        }
    }

    /// Looks whether a PE has gone.
    fn look_at(&mut self, pe: u32) {
        if self.peers[pe as usize].is_alive()
            && let Some(cause) = self.seat.departed(pe as usize)
        {
            self.departed(pe, cause);
        }
    }

    /// Closes the endpoint: from then on the provider touches no memory of an operation. False
    /// where the provider refuses.
    fn shut(&mut self) -> bool {
        // Some providers bind registrations to the endpoint, and do not close it before these.
        // First those by which others reach this PE: no operation of its own needs them.
        self.memory.end_registrations();
        if self.net.shut() {
            return true;
        }
        // Then those of sources and buffers, whose memory stays where it is.
        self.batches.values_mut().for_each(|batch| batch.source = None);
        self.small.end_registrations();
        self.large.end_registrations();
        self.net.shut()
    }

    /// Keys of these offsets are good no more, at any peer.
    pub(crate) fn forget_keys(&mut self, region: u32, start: u64, end: u64) {
        self.peers.iter_mut().for_each(|peer| peer.forget(region, start, end));
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if !self.shut() {
            // The provider may touch them still: they stay for ever.
            self.small.leak();
            self.large.leak();
            std::mem::forget(std::mem::take(&mut self.ops));
        }
    }
}
