//! Making a channel: all PEs agree on it, then each makes its own end.

use super::datagrams::{
    self, Carrier, Link, Receiving, ReceivingWork, Repeats, Sending, SendingWork,
};
use super::hosts::{self, Plan, Side};
use super::network::{self, Membership};
use super::position::{PositionLine, Upstream};
use super::reader::{Reader, Reporting};
use super::ring::Ring;
use super::sockets::{Group, Sockets};
use super::stream::{Gather, Lap};
use super::tree::{ARITY, Child, Node, Progress, children, parent};
use super::writer::{Onward, Peer, Writer};
use super::{Delivery, End, Forced, Multicast};
use crate::base::digest::Digest;
use crate::base::element::ElementName;
use crate::base::error::{Error, Result};
use crate::base::layout::ReaderLine;
use crate::base::log::log;
use crate::base::settings::ENV_MULTICAST;
use crate::base::shm::Plain;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use crate::endpoint::progress::Relay;
use crate::endpoint::recorder::objects::ObjectKind;
use crate::endpoint::route::Route;
use crate::job::Job;
use crate::job::agree::{Collective, KIND_MULTICAST};
use crate::wait;
use crate::window::{self, Inner, WindowOptions};
use memonet_repair as repair;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::panic::Location;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The number of channels over datagrams that a PE has made so far.
struct Channels(AtomicU32);

impl Layer for Channels {
    fn new(_pe: &Pe) -> Self {
        Channels(AtomicU32::new(0))
    }
}

/// Options of [`Job::multicast`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MulticastOptions {
    capacity: Option<usize>,
    drop_slow: Option<Duration>,
    survive: bool,
    element: ElementName,
}

/// The default capacity.
const CAPACITY_BYTES: usize = 512 << 10;
/// The default capacity where all PEs are near. Of blocks of 64 KiB it holds enough that writer and
/// readers need not run in step. Where they share a CPU they take turns, one ring moves in each
/// turn, and a turn begins with cold buffers of the processor. A turn of a larger ring would last
/// so long that it looks like interference, and then waits sleep.
const NEAR_CAPACITY_BYTES: usize = 2 << 20;
/// The part of it that short blocks use where PEs have CPUs of their own, but for streams: what
/// fits the caches of two cores is there soonest.
const LAP_BYTES: u64 = 512 << 10;

impl Default for MulticastOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl MulticastOptions {
    /// A capacity of 512 KiB, or of 2 MiB where all PEs are near; of these, blocks of less than 16
    /// KiB use 512 KiB, unless they come one behind the other, or PEs share CPUs. Slow readers stop
    /// the writer, and a reader's death is an error.
    pub fn new() -> Self {
        MulticastOptions {
            capacity: None,
            drop_slow: None,
            survive: false,
            element: ElementName::default(),
        }
    }

    /// Bytes that a reader may have unread before it stops the writer, rounded up to a power of two
    /// with room for four elements.
    pub fn capacity(mut self, bytes: usize) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// Drops a reader that has stopped the writer for this long.
    pub fn drop_slow(mut self, after: Duration) -> Self {
        self.drop_slow = Some(after);
        self
    }

    /// Goes on without readers that die. A reader that is a thread of the writer's process
    /// ([`Job::threads`]) counts only once its end is dropped: until then another thread may be
    /// reading.
    pub fn survive_readers(mut self, survive: bool) -> Self {
        self.survive = survive;
        self
    }

    /// What a front end calls the elements.
    pub fn elements(mut self, name: ElementName) -> Self {
        self.element = name;
        self
    }

    /// Whether the channel goes on without readers that die.
    pub(super) fn survives(&self) -> bool {
        self.survive
    }

    /// Whether no reader may depend on another one: all are the writer's children.
    pub(super) fn is_flat(&self) -> bool {
        self.drop_slow.is_some() || self.survive
    }

    /// A digest of all that PEs must ask for alike. What a reader may refer to in place, and what
    /// the writer may write over, depends on it.
    fn digest<T>(&self, writer: usize, readers: &[usize], choice: &Choice) -> [u64; 2] {
        let MulticastOptions { capacity, drop_slow, survive, element } = *self;
        let nanos = drop_slow.map(|after| after.as_nanos().to_le_bytes());
        let ([name, row], [way, group]) = (element.words(), choice.words());
        Digest::new()
            .words(capacity.as_slice())
            .word(u64::from(nanos.is_some()))
            .bytes(nanos.into_iter().flatten())
            .word(u64::from(survive))
            .word(name)
            .word(row)
            .words(readers)
            .words(&[writer, size_of::<T>(), align_of::<T>()])
            .word(way)
            .word(group)
            .pair()
    }
}

/// Offsets of a channel's parts in each segment, and lengths.
pub(super) struct Places {
    pub(super) lines: u64,
    /// Lines of this PE's host, on a channel between hosts.
    pub(super) front: u64,
    pub(super) ring: u64,
    pub(super) bytes: u64,
    pub(super) unit: u64,
    /// Bytes of a lap of short blocks.
    pub(super) lap: u64,
}

impl Places {
    /// The ring at `base`.
    ///
    /// # Safety
    /// As for [`Ring::new`].
    unsafe fn ring_at(&self, base: *mut u8) -> Ring {
        // SAFETY: as the caller promises.
        unsafe { Ring::new(base, self.bytes, self.unit) }.with_laps(self.lap)
    }
}

impl Job {
    /// Makes a channel on which PE `writer` publishes blocks of `T` to `readers`, other PEs in any
    /// order. *Collective* over all PEs of the job; ends with a barrier.
    ///
    /// # Errors
    /// [`Error::NoSuchPe`]; [`Error::Misuse`] when the writer is a reader, or a PE is one twice, or
    /// `T` has no size; [`Error::OutOfMemory`], [`Error::Unequal`], [`Error::TooMany`],
    /// [`Error::PeerFailed`].
    #[track_caller]
    pub fn multicast<T: Plain>(
        &self,
        writer: usize,
        readers: &[usize],
        options: MulticastOptions,
    ) -> Result<Multicast<T>> {
        let made = Location::caller();
        self.pe.waiting_call("Job::multicast", None, || {
            self.make_multicast(writer, readers, options, made)
        })
    }

    fn make_multicast<T: Plain>(
        &self,
        writer: usize,
        readers: &[usize],
        options: MulticastOptions,
        made: &'static Location<'static>,
    ) -> Result<Multicast<T>> {
        let request = match self.request::<T>(writer, readers, &options) {
            Ok(request) => request,
            // The other PEs must not wait for this one.
            Err(error) => return Err(self.refuse_window(error)),
        };
        let terms = window::WindowTerms {
            kind: KIND_MULTICAST,
            shape: (size_of::<T>() as u64) << 16 | align_of::<T>() as u64,
            more: writer as u64 & 0xff_ffff | (readers.len() as u64) << 24,
            digest: options.digest::<T>(writer, readers, &request.choice),
            made,
        };
        let named = WindowOptions::new().elements(options.element);
        let window = self.window_of::<ReaderLine>(terms, request.lines, named, |_| {})?;
        let start = window.inner.heap_offset().expect("not a restricted window");
        let lap = match (&request.choice, options.capacity) {
            (Choice::Near, None) if !self.pe.record().is_crowded(writer) => LAP_BYTES,
            _ => request.bytes,
        };
        let places = request.places(start, readers.len(), lap);
        let bytes = request.bytes;
        let (delivery, means) = self.means(request.choice, writer, readers, &places)?;
        let (me, count) = (self.pe(), readers.len());
        log!(Debug, me, "channel of {bytes} bytes from PE {writer} to {count}: {delivery}");
        let channel = Channel {
            pe: &self.pe,
            writer,
            readers,
            options: &options,
            places,
            arity: if options.is_flat() { usize::MAX } else { ARITY },
            window: window.inner.clone(),
        };
        let end = match readers.iter().position(|&reader| reader == self.pe()) {
            _ if writer == self.pe() => End::Writer(Box::new(channel.writers_end(delivery, means))),
            Some(number) => End::Reader(Box::new(channel.readers_end(delivery, number, means))),
            None => End::Neither,
        };
        Ok(Multicast {
            pe: self.pe(),
            end,
            delivery,
            block: Vec::new(),
            assembled: false,
            element: PhantomData,
        })
    }

    /// What the channel needs: the same at all PEs, before any of them allocates.
    fn request<T: Plain>(
        &self,
        writer: usize,
        readers: &[usize],
        options: &MulticastOptions,
    ) -> Result<Request> {
        self.check_channel::<T>(writer, readers)?;
        let unit = align_of::<T>().max(8) as u64;
        let ring = |default: usize| {
            let capacity = options.capacity.unwrap_or(default);
            let bytes = Ring::bytes(capacity, size_of::<T>(), unit);
            bytes.ok_or(Error::Overflow { index: capacity, size: 1, call: None })
        };
        let by_datagrams = ring(CAPACITY_BYTES)?;
        let choice = self.choice(writer, readers, options, by_datagrams)?;
        let bytes = match choice {
            Choice::Near => ring(NEAR_CAPACITY_BYTES)?,
            _ => by_datagrams,
        };
        // Room to align the ring, as windows are aligned to less.
        let slack = if unit > LINE { unit } else { 0 };
        let before = LINE * (readers.len() as u64 + extra_lines(&choice));
        // `Ring::bytes` is far below the end of the numbers.
        let whole = bytes + slack + before;
        Ok(Request { choice, unit, bytes, lines: whole.div_ceil(LINE) as usize })
    }

    /// How blocks go from the writer to the readers, and what this PE needs for that. *Collective.*
    fn means(
        &self,
        choice: Choice,
        writer: usize,
        readers: &[usize],
        places: &Places,
    ) -> Result<(Delivery, Means)> {
        // Behind the allocation: where there is too little memory, that is the error.
        Ok(match limited(choice, readers.len(), places.bytes)? {
            Choice::Near => (Delivery::Near, Means::Memory),
            Choice::Tree => (Delivery::Tree, Means::Memory),
            Choice::Hosts { forced, plan } => {
                match self.meet_hosts(&plan, writer, readers, places, forced)? {
                    Some(side) => (Delivery::Hosts, Means::Hosts(plan, side)),
                    None => (Delivery::Tree, Means::Memory),
                }
            }
            choice @ (Choice::Network | Choice::Sockets(_)) => {
                self.open(&choice, writer, readers, places.bytes)?
            }
        })
    }

    /// Chooses alike at all PEs: from the job's record, and from the fabric's offers to all.
    /// `bytes`: of the ring, with datagrams.
    fn choice(
        &self,
        writer: usize,
        readers: &[usize],
        options: &MulticastOptions,
        bytes: u64,
    ) -> Result<Choice> {
        let record = self.pe.record();
        let near = record.are_near(std::iter::once(writer).chain(readers.iter().copied()));
        let plan = Plan::new(record, writer, readers);
        let count = readers.len();
        // Where a reader may be dropped or die, no other reader may depend on it.
        let between_hosts = !options.is_flat() && !plan.hosts.is_empty();
        Ok(match Forced::read()? {
            Some(Forced::Tree) => Choice::Tree,
            Some(Forced::Sockets(group)) => Choice::Sockets(group),
            Some(Forced::Network) if self.pe.has_fabric() => Choice::Network,
            None if beyond_datagrams(count, bytes).is_none() && network::wins(&self.pe, count) => {
                Choice::Network
            }
            Some(Forced::Hosts) if between_hosts => Choice::Hosts { forced: true, plan },
            None if between_hosts && plan.wins(record, writer) => {
                Choice::Hosts { forced: false, plan }
            }
            _ if near => Choice::Near,
            _ => Choice::Tree,
        })
    }

    /// Opens the carriers of a channel's datagrams at all PEs that take part, or at none, and finds
    /// the largest datagram that reaches all. Gives a tree where the network does not serve the
    /// channel. *Collective.*
    fn open(
        &self,
        choice: &Choice,
        writer: usize,
        readers: &[usize],
        bytes: u64,
    ) -> Result<(Delivery, Means)> {
        let call = Collective::begin(&self.pe, self.world())?;
        // All PEs make the same channels in the same order.
        let number = self.pe.layer::<Channels>().0.fetch_add(1, Ordering::Relaxed);
        let takes_part = writer == self.pe() || readers.contains(&self.pe());
        let opened = takes_part.then(|| open_carrier(&self.pe, choice, number, writer, readers));
        let (most, address) = match &opened {
            None => (u64::MAX, 0),
            Some(Ok(Some((carrier, most)))) => (*most as u64, carrier.address()),
            Some(Ok(None)) => (NOT_SERVED, 0),
            Some(Err(_)) => (FAILED, 0),
        };
        call.publish(0, most);
        call.publish(1, address);
        call.meet()?;
        let mosts = (0..self.npes()).map(|pe| call.outcome(0, pe)).collect::<Result<Vec<u64>>>()?;
        let address = call.outcome(1, writer)?;
        call.close()?;
        let opened = opened.transpose()?;
        let Some(datagram) = agreed(&mosts)? else {
            return Ok((Delivery::Tree, Means::Memory));
        };
        // `limited` has checked that the number of readers fits.
        let config = datagrams::config(&self.pe, number, readers.len() as u16, bytes, datagram);
        let link = opened.flatten().map_or(Means::Memory, |(mut carrier, _)| {
            carrier.set_writer(address);
            Means::Link(Link::new(config, wait::nanos(&self.pe), carrier))
        });
        Ok((Delivery::Datagrams, link))
    }

    fn check_channel<T>(&self, writer: usize, readers: &[usize]) -> Result<()> {
        window::element_bytes::<T>(0)?;
        let mut seen = vec![false; self.npes()];
        for &pe in std::iter::once(&writer).chain(readers) {
            self.pe.check_pe(pe)?;
            if std::mem::replace(&mut seen[pe], true) {
                return Err(Error::misuse(
                    "a PE is in a multicast channel twice: readers are other PEs than the writer, each named once",
                ));
            }
        }
        Ok(())
    }
}

/// The way in which a channel is made.
#[derive(Debug)]
enum Choice {
    Near,
    Tree,
    Network,
    Hosts { forced: bool, plan: Plan },
    Sockets(Group),
}

impl Choice {
    /// What tells it from others, at all PEs. Each host may have an interface of its own.
    fn words(&self) -> [u64; 2] {
        match self {
            Choice::Near => [1, 0],
            Choice::Tree => [2, 0],
            Choice::Network => [3, 0],
            Choice::Hosts { forced, .. } => [4, u64::from(*forced)],
            Choice::Sockets(group) => {
                let (address, port) = (u32::from(*group.address.ip()), group.address.port());
                [5, u64::from(address) << 16 | u64::from(port)]
            }
        }
    }
}

/// What a channel needs of each segment, in the way in which it is made.
struct Request {
    choice: Choice,
    /// Alignment of blocks in the ring.
    unit: u64,
    /// Bytes of the ring.
    bytes: u64,
    /// Cache lines of the whole.
    lines: usize,
}

impl Request {
    /// The parts of an allocation that begins at `start`.
    fn places(&self, start: u64, readers: usize, lap: u64) -> Places {
        let front = start + LINE * readers as u64;
        let ring = (front + LINE * extra_lines(&self.choice)).next_multiple_of(self.unit);
        Places { lines: start, front, ring, bytes: self.bytes, unit: self.unit, lap }
    }
}

/// What a channel has too much of for datagrams: so many readers, with rings of so many bytes.
fn beyond_datagrams(readers: usize, bytes: u64) -> Option<String> {
    let most_bytes = repair::wire::MOST_APART;
    if readers > datagrams::MOST_READERS {
        return Some(format!(
            "asks for datagrams, which number at most {} readers, and there are {readers}",
            datagrams::MOST_READERS
        ));
    }
    (bytes > most_bytes).then(|| {
        format!(
            "asks for datagrams, which serve rings of at most {most_bytes} bytes, and the channel's capacity takes {bytes}"
        )
    })
}

/// Checks that datagrams, if chosen, can carry the channel.
fn limited(choice: Choice, readers: usize, bytes: u64) -> Result<Choice> {
    let problem = match choice {
        Choice::Network | Choice::Sockets(_) => beyond_datagrams(readers, bytes),
        _ => None,
    };
    problem.map_or(Ok(choice), |problem| {
        Err(Error::Environment {
            name: ENV_MULTICAST,
            value: std::env::var(ENV_MULTICAST).unwrap_or_default(),
            problem,
            fix: "Use tree, or unset it, or make the channel smaller",
        })
    })
}

/// The purpose of channels' groups. All PEs make the same channels in the same order, so one
/// purpose does for all.
const FOR_CHANNELS: u32 = 0;
/// What a PE publishes instead of a datagram's length: it could not open its end.
const FAILED: u64 = 0;
/// The network cannot serve the channel.
const NOT_SERVED: u64 = 1;

/// What PEs have opened together, from what each of them has published: the most bytes of a
/// datagram that reaches all; `None` where the network does not serve the channel.
///
/// All PEs come to the same result, but for the text of an error. So one PE that has failed ends
/// the call at all, also where others were told that the network does not serve them.
fn agreed(mosts: &[u64]) -> Result<Option<usize>> {
    let too_short = |most: u64| most < repair::wire::LEAST_DATAGRAM as u64 + 64;
    let failed = mosts.iter().position(|&most| most != NOT_SERVED && too_short(most));
    if let Some(pe) = failed {
        let there = std::io::Error::other(format!(
            "PE {pe} could not open its end; its own error says why"
        ));
        return Err(Error::system("making a multicast channel", there, ""));
    }
    let least = mosts.iter().copied().min().unwrap_or_default();
    Ok((least != NOT_SERVED).then_some(least as usize))
}

/// A carrier, and the most bytes of a datagram.
type Opened = (Box<dyn Carrier>, usize);

fn open_carrier(
    pe: &Arc<Pe>,
    choice: &Choice,
    channel: u32,
    writer: usize,
    readers: &[usize],
) -> Result<Option<Opened>> {
    match choice {
        Choice::Sockets(group) => {
            let (sockets, most) = Sockets::open(pe, group, channel)?;
            Ok(Some((Box::new(sockets), most)))
        }
        _ => {
            let members: Vec<usize> =
                std::iter::once(writer).chain(readers.iter().copied()).collect();
            let opened = |membership: Membership| {
                let most = membership.group().most;
                (Box::new(membership) as Box<dyn Carrier>, most)
            };
            Ok(Membership::join(pe, &members, FOR_CHANNELS)?.map(opened))
        }
    }
}

/// Lines behind those of the readers.
fn extra_lines(choice: &Choice) -> u64 {
    if matches!(choice, Choice::Hosts { .. }) { hosts::LINES } else { 0 }
}

/// What an end needs beside memory.
pub(super) enum Means {
    Memory,
    Link(Link),
    Hosts(Plan, Side),
}

/// All that the ends of a channel are made from.
pub(super) struct Channel<'a> {
    pub(super) pe: &'a Arc<Pe>,
    pub(super) writer: usize,
    pub(super) readers: &'a [usize],
    pub(super) options: &'a MulticastOptions,
    pub(super) places: Places,
    /// Children of each PE in the tree.
    pub(super) arity: usize,
    pub(super) window: Arc<Inner>,
}

impl Channel<'_> {
    /// Offset of the line of the `number`-th reader.
    pub(super) fn line(&self, number: usize) -> u64 {
        self.places.lines + LINE * number as u64
    }

    /// The line of the `number`-th reader in this PE's segment.
    pub(super) fn own_line(&self, number: usize) -> PositionLine {
        PositionLine(self.pe.local(self.line(number)))
    }

    pub(super) fn own_ring(&self) -> Ring {
        // SAFETY: the ring lies in this PE's part of the window, which the end of the channel
        // keeps; `Ring::bytes` gave its length.
        unsafe { self.places.ring_at(self.pe.local(self.places.ring)) }
    }

    /// The node in the tree of the `number`-th of writer (0) and readers.
    fn node(&self, number: usize, upstream: Option<Upstream>) -> Arc<Node> {
        let child = |number: usize| Child {
            pe: self.readers[number],
            line: self.own_line(number),
            sent: 0,
            ended: false,
            lost: false,
        };
        let children = children(number, self.readers.len(), self.arity).map(child).collect();
        self.node_of(self.own_ring(), children, upstream, true)
    }

    /// A node without children, for a reader that reads in this ring, of another PE or this one.
    pub(super) fn leaf(&self, ring: Ring, upstream: Upstream) -> Arc<Node> {
        self.node_of(ring, Vec::new(), Some(upstream), false)
    }

    fn node_of(
        &self,
        ring: Ring,
        children: Vec<Child>,
        upstream: Option<Upstream>,
        cleans: bool,
    ) -> Arc<Node> {
        let node = Arc::new(Node {
            pe: self.pe.clone(),
            ring,
            offset: self.places.ring,
            writer: self.writer,
            readers: self.readers.into(),
            upstream,
            options: *self.options,
            at: AtomicU64::new(0),
            left: AtomicBool::new(false),
            progress: Mutex::new(Progress { children, reported: 0, ended: false, shown: false }),
            keep: Mutex::new(None),
            cleans,
            _window: self.window.clone(),
        });
        self.register(node.clone());
        node
    }

    pub(super) fn sending(&self, link: Link) -> Arc<Sending> {
        let machine = repair::Writer::new(&link.config, link.now(self.pe));
        let lines = self
            .readers
            .iter()
            .enumerate()
            .map(|(number, &reader)| (reader, self.own_line(number)));
        let sending = Arc::new(Sending {
            pe: self.pe.clone(),
            ring: self.own_ring(),
            readers: lines.collect(),
            limit: AtomicU64::new(machine.limit()),
            wanted: AtomicU64::new(0),
            complete: AtomicBool::new(true),
            silent: AtomicU64::new(0),
            has_lost: AtomicBool::new(false),
            survive: self.options.survive,
            work: Mutex::new(SendingWork {
                machine,
                link,
                end: 0,
                ended: false,
                received_at: 0,
                lost: Vec::new(),
                ended_by: None,
                repeats: Repeats::default(),
            }),
            _window: self.window.clone(),
        });
        self.register(sending.clone());
        sending
    }

    pub(super) fn receiving(&self, number: usize, link: Link) -> Arc<Receiving> {
        let receiving = Arc::new(Receiving {
            pe: self.pe.clone(),
            upstream: Upstream {
                pe: self.writer,
                word: self.pe.route(
                    self.writer,
                    self.line(number) + offset_of!(ReaderLine, position) as u64,
                ),
            },
            received: AtomicU64::new(0),
            consumed: AtomicU64::new(0),
            dropped: AtomicBool::new(false),
            left: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            work: Mutex::new(ReceivingWork {
                machine: repair::Reader::new(&link.config, number as u16, link.now(self.pe)),
                ring: self.own_ring(),
                link,
                repeats: Repeats::default(),
            }),
            _window: self.window.clone(),
        });
        self.register(receiving.clone());
        receiving
    }

    /// Lets all waits of this PE move the channel on.
    pub(super) fn register(&self, relay: Arc<dyn Relay>) {
        self.pe.register_relay(Arc::downgrade(&relay));
    }

    pub(super) fn writers_end(&self, delivery: Delivery, means: Means) -> Writer {
        let all: Vec<usize> = (0..self.readers.len()).collect();
        match (delivery, means) {
            (Delivery::Near, _) => self.writer(delivery, &all, Onward::Here),
            (Delivery::Tree, _) => {
                let own = children(0, self.readers.len(), self.arity);
                self.writer(delivery, &all[own], Onward::Tree(self.node(0, None)))
            }
            (Delivery::Datagrams, Means::Link(link)) => {
                self.writer(delivery, &[], Onward::Datagrams(self.sending(link)))
            }
            (Delivery::Hosts, Means::Hosts(plan, side)) => self.hosts_writer(&plan, side),
            _ => unreachable!("`multicast` has opened what the delivery needs"),
        }
    }

    /// The writer's end, with the numbers of the readers that read its ring.
    pub(super) fn writer(&self, delivery: Delivery, here: &[usize], onward: Onward) -> Writer {
        let pe = self.pe;
        // A dropped reader looks beside the ring that it reads.
        let home = |reader: usize| if delivery == Delivery::Near { pe.me() } else { reader };
        let peer = |&number: &usize| {
            let reader = self.readers[number];
            let word = self.line(number) + offset_of!(ReaderLine, dropped) as u64;
            Peer {
                pe: reader,
                bell: pe.control().doorbell(reader),
                line: self.own_line(number),
                dropped: Upstream { pe: reader, word: pe.route(home(reader), word) },
            }
        };
        Writer {
            pe: pe.clone(),
            counters: pe.count_channel(ObjectKind::Writer),
            ring: self.own_ring(),
            lap: Lap::FIRST,
            position: 0,
            limit: 0,
            at_once: 0,
            readers: here.iter().map(peer).collect(),
            watched: self.readers.to_vec(),
            onward,
            dropped: Vec::new(),
            drop_slow: self.options.drop_slow,
            survive: self.options.survive,
            _window: self.window.clone(),
        }
    }

    pub(super) fn readers_end(&self, delivery: Delivery, number: usize, means: Means) -> Reader {
        let pe = self.pe;
        let position = self.line(number) + offset_of!(ReaderLine, position) as u64;
        let near = |offset: u64| match pe.route(self.writer, offset) {
            Route::Near(place) => place,
            Route::Far(_) => unreachable!("only near PEs read in place"),
        };
        match (delivery, means) {
            (Delivery::Datagrams, Means::Link(link)) => {
                let reporting = Reporting::Datagrams(self.receiving(number, link));
                self.reader(self.own_ring(), None, reporting, vec![self.writer])
            }
            (Delivery::Near, _) => {
                // SAFETY: the ring lies in the writer's part of the window, which is mapped as long
                // as the job; `Ring::bytes` gave its length.
                let ring = unsafe { self.places.ring_at(near(self.places.ring)) };
                let reporting = Reporting::Writer(
                    pe.route(self.writer, position),
                    pe.control().doorbell(self.writer),
                );
                let line = PositionLine(near(self.line(number)));
                self.reader(ring, Some(line), reporting, vec![self.writer])
            }
            (Delivery::Tree, _) => {
                let pe_of = |number: usize| {
                    if number == 0 { self.writer } else { self.readers[number - 1] }
                };
                let path: Vec<usize> =
                    std::iter::successors(Some(parent(number + 1, self.arity)), |&at| {
                        (at > 0).then(|| parent(at, self.arity))
                    })
                    .map(pe_of)
                    .collect();
                let upstream = Upstream { pe: path[0], word: pe.route(path[0], position) };
                let node = self.node(number + 1, Some(upstream));
                let line = Some(self.own_line(number));
                self.reader(self.own_ring(), line, Reporting::Node(node), path)
            }
            (Delivery::Hosts, Means::Hosts(plan, side)) => self.hosts_reader(&plan, side, number),
            _ => unreachable!("`multicast` has opened what the delivery needs"),
        }
    }

    pub(super) fn reader(
        &self,
        ring: Ring,
        line: Option<PositionLine>,
        reporting: Reporting,
        sources: Vec<usize>,
    ) -> Reader {
        let counters = self.pe.count_channel(ObjectKind::Reader);
        let drops = self.options.drop_slow.is_some();
        let watched = drops || counters.is_some() || self.pe.recorder().is_some();
        Reader {
            plain: !watched
                && !self.pe.is_simulated()
                && matches!(reporting, Reporting::Writer(..)),
            pe: self.pe.clone(),
            counters,
            ring,
            position: 0,
            reported: 0,
            reporting,
            line: line.filter(|_| drops),
            sources,
            writer: self.writer,
            gather: Gather::default(),
            _window: self.window.clone(),
        }
    }
}

/// Bytes of a reader's line.
const LINE: u64 = size_of::<ReaderLine>() as u64;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_opened_at_all_pes_or_at_none() {
        const ANY: u64 = u64::MAX;
        assert_eq!(agreed(&[1400, ANY, 9000]).unwrap(), Some(1400));
        assert_eq!(agreed(&[1400, NOT_SERVED, ANY]).unwrap(), None);
        for mosts in [[FAILED, 1400, ANY], [NOT_SERVED, FAILED, ANY], [FAILED, NOT_SERVED, 1400]] {
            let why = agreed(&mosts).expect_err("a PE has failed").to_string();
            let pe = mosts.iter().position(|&most| most == FAILED).unwrap();
            assert!(why.contains(&format!("PE {pe} could not open")), "{why}");
        }
        assert!(agreed(&[1400, 10]).is_err(), "too short for the protocol");
    }

    /// PEs may be built by different compilers.
    #[test]
    fn a_digest_is_of_all_that_is_asked_for() {
        let (plain, other) = (MulticastOptions::new(), ElementName::new("float64", 1));
        let second = Duration::from_secs(1);
        let all = [
            plain.digest::<u64>(0, &[1, 2], &Choice::Near),
            plain.digest::<u32>(0, &[1, 2], &Choice::Near),
            plain.digest::<u64>(1, &[0, 2], &Choice::Near),
            plain.digest::<u64>(0, &[2, 1], &Choice::Near),
            plain.digest::<u64>(0, &[1], &Choice::Near),
            plain.capacity(0).digest::<u64>(0, &[1, 2], &Choice::Near),
            plain.capacity(4096).digest::<u64>(0, &[1, 2], &Choice::Near),
            plain.drop_slow(Duration::ZERO).digest::<u64>(0, &[1, 2], &Choice::Near),
            plain.drop_slow(second).digest::<u64>(0, &[1, 2], &Choice::Near),
            plain.survive_readers(true).digest::<u64>(0, &[1, 2], &Choice::Near),
            plain.digest::<u64>(0, &[1, 2], &Choice::Tree),
            plain.elements(other).digest::<u64>(0, &[1, 2], &Choice::Near),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "number {at}");
        }
    }

    #[test]
    fn datagrams_number_their_readers_in_sixteen_bits() {
        let limited = |choice: Choice, readers: usize| limited(choice, readers, 4096);
        assert!(matches!(limited(Choice::Network, 65_535), Ok(Choice::Network)));
        let refused =
            limited(Choice::Network, 65_536).expect_err("no number for the last").to_string();
        assert!(
            refused.contains("at most 65535")
                && refused.contains("65536")
                && refused.contains("tree"),
            "{refused}"
        );
        assert!(matches!(limited(Choice::Tree, 65_536), Ok(Choice::Tree)));
    }

    /// Else the rest of the ring would be unused, and the longest blocks never had room.
    #[test]
    fn datagrams_serve_rings_whose_positions_they_tell_apart() {
        let most = repair::wire::MOST_APART;
        assert!(matches!(limited(Choice::Network, 2, most), Ok(Choice::Network)));
        let refused = limited(Choice::Network, 2, 2 * most).expect_err("too long").to_string();
        for said in ["2147483648 bytes", "4294967296", "capacity", "tree"] {
            assert!(refused.contains(said), "{said}: {refused}");
        }
        assert!(matches!(limited(Choice::Tree, 2, 2 * most), Ok(Choice::Tree)));
    }
}
