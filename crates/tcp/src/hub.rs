//! All that a PE shares with its peers: streams, what has come, what is to go. One lock is around
//! it.

use crate::broker::{Broker, Event};
use crate::memory::Memory;
use crate::peer::{Ended, Mark, Peer, State};
use crate::pollers::{Pollers, Ready};
use crate::socket::prepare;
use crate::wire::{Came, Role};
use memonet_core::unstable::Seat;
use memonet_core::unstable::fabric::Record;
use memonet_core::{Cause, Error, Result};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a stream has been broken when its peer counts as failed, though nobody says that it has
/// gone: longer than it takes until the loss of a host is known.
const SETTLED: Duration = Duration::from_secs(3);
/// So many streams to a PE may end before its hello: its process may have become another program.
const MOST_UNHEARD: u32 = 20;
/// Bytes that are read at once.
const BUFFER: usize = 64 << 10;
/// The most reads of a stream that is over: they take more than sockets hold.
const LAST_READS: u32 = 4096;
/// With several streams, all are looked at in every so manieth look at the one that was active
/// last.
const OTHERS: u32 = 4;
/// With one stream, the rest (the broker) is looked at as rarely as this.
const REST: u32 = 64;

pub(crate) struct Hub {
    pub(crate) seat: Seat,
    broker: Box<dyn Broker>,
    /// Why the broker says nothing any more, if so.
    no_broker: Option<String>,
    record: Record,
    pub(crate) memory: Memory,
    peers: Vec<Option<Box<Peer>>>,
    /// Links that were ever made.
    links: u64,
    pub(crate) pollers: Arc<Pollers>,
    /// Whether a pair has ever failed.
    pub(crate) has_failed: Arc<AtomicBool>,
    buffer: Box<[u8]>,
    /// Peers for which there is output.
    with_output: Vec<u32>,
    /// Whether there are such, for threads without the lock.
    pub(crate) keeps_back: std::sync::Arc<AtomicBool>,
    /// Peers that have not acknowledged all.
    pub(crate) awaited: Vec<u32>,
    /// Peers whose stream is broken, and nobody knows why yet.
    broken: Vec<u32>,
    /// The peer whose stream was active last.
    active: Option<u32>,
    /// Streams that there are.
    open: usize,
    looks: u32,
    /// What could not be returned to a caller: the first of each PE that it is about, and of none.
    late: Vec<(Option<u32>, Error)>,
    /// Whether the progress thread sleeps, or is about to, until something comes.
    pub(crate) thread_sleeps: bool,
}

impl Hub {
    pub(crate) fn new(seat: &Seat, broker: Box<dyn Broker>) -> Result<Self> {
        let (base, len) = seat.segment();
        Ok(Hub {
            // SAFETY: the seat, which the hub has, keeps the segment mapped.
            memory: unsafe { Memory::new(base, len) },
            seat: seat.clone(),
            peers: (0..seat.npes()).map(|_| None).collect(),
            links: 0,
            pollers: Pollers::new(broker.fd())?.into(),
            has_failed: Arc::default(),
            record: broker.record(),
            broker,
            no_broker: None,
            buffer: vec![0; BUFFER].into(),
            with_output: Vec::new(),
            keeps_back: Default::default(),
            awaited: Vec::new(),
            broken: Vec::new(),
            active: None,
            open: 0,
            looks: 0,
            late: Vec::new(),
            thread_sleeps: false,
        })
    }

    pub(crate) fn broker(&self) -> &dyn Broker {
        &*self.broker
    }

    fn me(&self) -> u32 {
        self.seat.pe() as u32
    }

    /// A peer, to which nothing needs to be sent.
    fn known(&mut self, pe: u32) -> &mut Peer {
        let (me, record, links) = (self.me(), &self.record, &mut self.links);
        let new = || {
            *links += 1;
            Box::new(Peer::new(me, pe, record.host(pe as usize), *links))
        };
        self.peers[pe as usize].get_or_insert_with(new)
    }

    /// A peer, of which this PE has something to ask: a stream to it is made.
    #[inline]
    pub(crate) fn peer(&mut self, pe: u32) -> &mut Peer {
        if self.existing(pe).is_none_or(Peer::is_lost) {
            self.ask(pe);
        }
        self.known(pe)
    }

    /// Whether a record for a peer can be added at once.
    #[inline]
    pub(crate) fn is_ready(&self, pe: u32) -> bool {
        let is_ready = |peer: &Peer| {
            matches!(peer.state, State::Alive) && !peer.is_lost() && peer.link.has_room()
        };
        self.existing(pe).is_some_and(is_ready)
    }

    /// A peer, if there has been anything between it and this PE.
    pub(crate) fn existing(&self, pe: u32) -> Option<&Peer> {
        self.peers[pe as usize].as_deref()
    }

    /// A peer, while its link is the one of that number.
    pub(crate) fn link(&mut self, pe: u32, number: u64) -> Option<&mut Peer> {
        self.peers[pe as usize].as_deref_mut().filter(|peer| peer.number == number)
    }

    fn ask(&mut self, pe: u32) {
        let refused = match &self.no_broker {
            Some(why) => Err(why.clone()),
            None => self.broker.connect(pe).map_err(|error| error.to_string()),
        };
        match refused {
            Ok(()) => self.known(pe).asked = true,
            Err(why) => self.fail(pe, Some(why)),
        }
    }

    /// Keeps an error that cannot be returned for the next quiet.
    pub(crate) fn surface_later(&mut self, pe: Option<u32>, error: Error) {
        if self.late.iter().all(|(about, _)| *about != pe) {
            self.late.push((pe, error));
        }
    }

    /// The first such error. The others are told with it, as those of one PE are.
    pub(crate) fn take_late(&mut self) -> Option<Error> {
        self.late.drain(..).next().map(|(_, error)| error)
    }

    /// Such an error, once, about this PE.
    pub(crate) fn take_late_of(&mut self, pe: u32) -> Option<Error> {
        let index = self.late.iter().position(|(about, _)| *about == Some(pe))?;
        Some(self.late.remove(index).1)
    }

    /// The broker says nothing any more: whoever waits for a stream gets none.
    fn lose_broker(&mut self, error: Error) {
        // Its end is readable for ever.
        self.pollers.forget(self.broker.fd());
        let why = error.to_string();
        self.no_broker = Some(why.clone());
        self.surface_later(None, error);
        for pe in 0..self.peers.len() as u32 {
            if self.existing(pe).is_some_and(|peer| peer.asked && peer.is_wanted()) {
                self.fail(pe, Some(why.clone()));
            }
        }
    }

    /// Records have been added for a peer: they are sent at once, or when there are enough of
    /// them.
    #[inline]
    pub(crate) fn added(&mut self, pe: u32, now: bool) {
        let peer = self.peers[pe as usize].as_mut().expect("records were added");
        if !peer.is_awaited && peer.link.is_needed() {
            peer.is_awaited = true;
            self.awaited.push(pe);
        }
        let many = now || peer.link.buffered() >= peer.sends_at;
        if many {
            self.write(pe);
        }
        // The thread may have gone to sleep when what was there before could not be sent yet.
        let is_new = |peer: &Peer| !peer.has_output || self.thread_sleeps;
        if self.existing(pe).is_some_and(|peer| !peer.link.is_empty() && is_new(peer)) {
            self.note_output(pe);
        }
    }

    /// There is something to send to a peer. The first such thing has the progress thread look
    /// after it.
    pub(crate) fn note_output(&mut self, pe: u32) {
        let peer = self.peers[pe as usize].as_mut().expect("a peer with output");
        if !peer.has_output {
            peer.has_output = true;
            self.with_output.push(pe);
            self.keeps_back.store(true, Ordering::Relaxed);
        }
        if self.thread_sleeps {
            self.thread_sleeps = false;
            self.pollers.ring();
        }
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.with_output.is_empty()
    }

    /// Sends what a peer's stream takes.
    pub(crate) fn write(&mut self, pe: u32) -> bool {
        let Some(peer) = &mut self.peers[pe as usize] else { return false };
        match peer.write() {
            Ok(moved) => {
                if peer.wants_to_write && !peer.link.has_output() {
                    peer.wants_to_write = false;
                    let socket = peer.socket.as_ref().expect("it has written");
                    self.pollers.want_to_write(pe, socket.as_fd(), false);
                }
                moved
            }
            Err(ended) => {
                self.read_rest(pe);
                // Reading may have found its end, too.
                if self.existing(pe).is_some_and(|peer| peer.socket.is_some()) {
                    self.ended(pe, ended);
                }
                true
            }
        }
    }

    /// Sends to all peers what their streams take.
    pub(crate) fn write_all(&mut self) -> bool {
        let (mut moved, mut index) = (false, 0);
        while let Some(&pe) = self.with_output.get(index) {
            moved |= self.write(pe);
            match &mut self.peers[pe as usize] {
                Some(peer) if !peer.link.is_empty() => index += 1,
                peer => {
                    if let Some(peer) = peer {
                        peer.has_output = false;
                    }
                    self.with_output.swap_remove(index);
                }
            }
        }
        self.keeps_back.store(self.has_output(), Ordering::Relaxed);
        moved
    }

    /// Before a sleep on the descriptors: those whose streams are full are to end it.
    pub(crate) fn want_writes(&mut self) {
        for &pe in &self.with_output {
            let Some(peer) = &mut self.peers[pe as usize] else { continue };
            if peer.link.has_output()
                && !peer.wants_to_write
                && let Some(socket) = &peer.socket
            {
                peer.wants_to_write = true;
                self.pollers.want_to_write(pe, socket.as_fd(), true);
            }
        }
    }

    /// Reads what has come from a peer, and answers.
    pub(crate) fn read(&mut self, pe: u32) -> bool {
        let came = self.read_once(pe);
        if came {
            self.active = Some(pe);
            let has_output = self.existing(pe).is_some_and(|peer| peer.link.has_output());
            if has_output {
                self.write(pe);
                if self.existing(pe).is_some_and(|peer| peer.link.has_output()) {
                    self.note_output(pe);
                }
            }
        }
        came
    }

    /// Applies what had come before a stream ended. One that counts as gone, and lives, may never
    /// stop sending.
    fn read_rest(&mut self, pe: u32) {
        let _ = (0..LAST_READS).all(|_| self.read_once(pe));
    }

    /// Reads once.
    fn read_once(&mut self, pe: u32) -> bool {
        let Some(peer) = &mut self.peers[pe as usize] else { return false };
        match peer.read(&mut self.buffer, &self.memory) {
            Ok(None) => false,
            Ok(Some(Came { memory, refused, .. })) => {
                let was_refused = refused && peer.link.was_write_refused();
                if peer.aside.is_some() && peer.link.is_greeted() {
                    // S2: its own is there.
                    peer.aside = None;
                }
                if was_refused {
                    self.surface_later(Some(pe), crate::errors::refused(pe));
                }
                if memory {
                    self.seat.wake();
                }
                true
            }
            Err(ended) => {
                self.ended(pe, ended);
                // Records before the end may have been applied.
                self.seat.wake();
                true
            }
        }
    }

    /// Sends, and reads from `wanted`, or else from the peer that was active last; now and then
    /// from all. Says whether anything moved.
    pub(crate) fn pump(&mut self, wanted: Option<u32>) -> bool {
        let mut moved = self.has_output() && self.write_all();
        if let Some(pe) = wanted.or(self.active) {
            moved |= self.read(pe);
        }
        self.looks = self.looks.wrapping_add(1);
        let every = if self.open <= 1 && self.active.is_some() { REST } else { OTHERS };
        if self.looks.is_multiple_of(every) {
            moved |= self.look_at_all();
        }
        moved
    }

    /// Reads from all that have something. Says whether any had.
    pub(crate) fn look_at_all(&mut self) -> bool {
        let mut moved = false;
        for ready in self.pollers.ready() {
            moved |= match ready {
                // It is silenced by the thread for which it is rung.
                Ready::Bell => false,
                Ready::Broker => self.take_events(),
                Ready::Peer(pe) => self.write(pe) | self.read(pe),
            };
        }
        moved
    }

    fn take_events(&mut self) -> bool {
        let mut some = false;
        loop {
            match self.broker.next() {
                Ok(None) => return some,
                Ok(Some(event)) => self.take_event(event),
                Err(error) => {
                    self.lose_broker(error);
                    return true;
                }
            }
            some = true;
        }
    }

    fn take_event(&mut self, event: Event) {
        let me = self.me();
        let (Event::Connected { pe, .. }
        | Event::Accepted { pe, .. }
        | Event::Refused { pe, .. }
        | Event::Unreached { pe }) = event;
        if pe as usize >= self.peers.len() || pe == me {
            return;
        }
        match event {
            Event::Connected { pe, socket } => {
                let peer = self.known(pe);
                peer.asked = false;
                if peer.is_wanted() {
                    self.attach(pe, socket, Role::Asked);
                }
            }
            Event::Accepted { pe, socket } => {
                let peer = self.known(pe);
                if let State::Broken(_, Some(_)) = peer.state {
                    // This PE was refused, but the other one gets through.
                    peer.state = State::Alive;
                }
                let asked = peer.asked || peer.socket.is_some();
                if !peer.is_wanted() {
                } else if asked && me < pe {
                    peer.aside = Some(socket); // S2
                } else {
                    self.attach(pe, socket, Role::Accepted); // S1
                }
            }
            Event::Refused { pe, why } => {
                let peer = self.known(pe);
                peer.asked = false;
                if !peer.is_wanted() {
                    return;
                }
                match peer.aside.take() {
                    Some(socket) => self.attach(pe, socket, Role::Accepted), // S2
                    // Its agent may know that it has gone before this host's does.
                    None => {
                        self.has_broken(pe, Some(why));
                        self.seat.wake();
                    }
                }
            }
            // This direction may pass. If it does not, this PE learns why.
            Event::Unreached { pe } => {
                let peer = self.known(pe);
                if peer.is_lost() && peer.aside.is_none() {
                    self.ask(pe);
                }
            }
        }
    }

    /// A stream carries a peer's link from now on.
    fn attach(&mut self, pe: u32, socket: OwnedFd, role: Role) {
        self.detach(pe);
        prepare(&socket);
        if let Err(error) = self.pollers.watch(pe, socket.as_fd()) {
            return self.fail(pe, Some(format!("epoll_ctl: {error}")));
        }
        self.open += 1;
        let peer = self.known(pe);
        peer.link.restart(role);
        peer.socket = Some(socket);
        self.note_output(pe);
        self.write(pe);
    }

    /// A peer's stream is no more.
    fn detach(&mut self, pe: u32) {
        let Some(peer) = &mut self.peers[pe as usize] else { return };
        if let Some(socket) = peer.socket.take() {
            self.pollers.forget(socket.as_fd());
            peer.wants_to_write = false;
            self.open -= 1;
        }
        if self.active == Some(pe) {
            self.active = None;
        }
    }

    /// A peer's stream cannot be read on.
    fn ended(&mut self, pe: u32, ended: Ended) {
        self.detach(pe);
        let Some(peer) = &mut self.peers[pe as usize] else { return };
        let in_order = peer.link.is_over();
        match ended {
            _ if !matches!(peer.state, State::Alive) => {}
            Ended::Bad(bad) => {
                let why = format!(
                    "PE {pe} sent {bad}; the stream to it is closed. Look there for another version of memonet, or for memory that was overwritten"
                );
                self.surface_later(Some(pe), crate::errors::failed(why.clone()));
                self.fail(pe, Some(why));
            }
            Ended::Stream if peer.link.has_said_nothing() => {
                peer.link.begin_again();
                peer.unheard += 1;
                if peer.unheard > MOST_UNHEARD {
                    let why = format!(
                        "PE {pe} has ended {MOST_UNHEARD} streams before it said anything: it has given up this PE, it has no room for a descriptor (`ulimit -n`), or another process took its place"
                    );
                    self.fail(pe, Some(why));
                } else if !peer.asked {
                    self.ask(pe);
                }
            }
            // Another is made when there is something to send.
            Ended::Stream if in_order => self.peers[pe as usize] = None,
            Ended::Stream => self.has_broken(pe, None),
        }
    }

    /// There is no stream to a peer: `settle` finds out why.
    fn has_broken(&mut self, pe: u32, why: Option<String>) {
        self.known(pe).state = State::Broken(Instant::now(), why);
        if !self.broken.contains(&pe) {
            self.broken.push(pe);
        }
    }

    /// The pair has failed.
    fn fail(&mut self, pe: u32, why: Option<String>) {
        self.detach(pe);
        let peer = self.known(pe);
        peer.state = State::Failed(why);
        peer.aside = None;
        let loses = peer.link.acknowledged() < peer.link.reported();
        peer.link.end();
        let error = peer.error();
        if loses {
            self.surface_later(Some(pe), error);
        }
        self.has_failed.store(true, Ordering::Relaxed);
        // Waits that depend on it end.
        self.seat.wake();
    }

    /// The pairs that have failed, with their errors.
    pub(crate) fn failed(&self) -> Vec<(u32, Error)> {
        let peers = self.peers.iter().flatten();
        let failed = peers.filter(|peer| peer.has_failed());
        failed.map(|peer| (peer.pe, peer.error())).collect()
    }

    /// A peer is gone: what it has written is applied, and nothing waits for it any more.
    pub(crate) fn departed(&mut self, pe: u32, cause: Cause) {
        self.read_rest(pe);
        self.detach(pe);
        let peer = self.known(pe);
        peer.state = State::Gone(cause);
        peer.aside = None;
        peer.link.end();
        self.broken.retain(|&other| other != pe);
    }

    /// Whether there are broken streams of which nobody knows why.
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.broken.is_empty()
    }

    /// Finds out why streams are broken: their PEs have gone, or, after a while, the pairs have
    /// failed.
    pub(crate) fn settle(&mut self) {
        for index in (0..self.broken.len()).rev() {
            let pe = self.broken[index];
            let Some(State::Broken(since, why)) = self.existing(pe).map(|peer| &peer.state) else {
                self.broken.swap_remove(index);
                continue;
            };
            let late = since.elapsed() > SETTLED;
            let why = why.clone().filter(|_| late);
            if let Some(cause) = self.seat.departed(pe as usize) {
                self.departed(pe, cause);
            } else if late {
                self.broken.swap_remove(index);
                self.fail(pe, why);
            }
        }
    }

    /// Looks whether a PE that a call waits for has gone.
    pub(crate) fn look_after(&mut self, pe: u32) {
        self.settle();
        let alive = self.existing(pe).is_some_and(|peer| matches!(peer.state, State::Alive));
        if alive && let Some(cause) = self.seat.departed(pe as usize) {
            self.departed(pe, cause);
        }
    }

    /// Memory goes out of use. A peer to which some of it is still to be sent has gone, or was
    /// given up by its own call: the pair ends.
    pub(crate) fn forget_memory(&mut self, start: *const u8, len: usize) {
        for pe in 0..self.peers.len() as u32 {
            let peer = self.peers[pe as usize].as_mut();
            if peer.is_some_and(|peer| peer.link.withdraw(start, len)) {
                self.fail(pe, None);
            }
        }
    }

    /// Asks all peers for acknowledgements that are missing. Says whether there are such.
    pub(crate) fn flush(&mut self) -> bool {
        self.forget_quiet();
        for index in 0..self.awaited.len() {
            let pe = self.awaited[index];
            self.flush_to(pe);
        }
        !self.awaited.is_empty()
    }

    /// Asks a peer for an acknowledgement, if that is missing.
    pub(crate) fn flush_to(&mut self, pe: u32) {
        let Some(peer) = &mut self.peers[pe as usize] else { return };
        if peer.has_ended() {
            return;
        }
        peer.link.flush();
        if !peer.link.is_empty() {
            self.note_output(pe);
        }
    }

    /// What was not needed is from now on.
    pub(crate) fn need_all(&mut self) {
        for peer in self.peers.iter_mut().flatten() {
            peer.link.need_all();
            let alive = matches!(peer.state, State::Alive | State::Broken(..));
            if alive && !peer.is_awaited && peer.link.is_needed() {
                peer.is_awaited = true;
                self.awaited.push(peer.pe);
            }
        }
    }

    /// What peers have to acknowledge.
    pub(crate) fn goals(&self) -> impl Iterator<Item = Mark> {
        self.awaited.iter().filter_map(|&pe| self.existing(pe).map(Peer::mark))
    }

    /// Nothing is awaited of those that have acknowledged all, or never will.
    pub(crate) fn forget_quiet(&mut self) {
        let peers = &mut self.peers;
        self.awaited.retain(|&pe| {
            let Some(peer) = &mut peers[pe as usize] else { return false };
            peer.is_awaited = !peer.has_ended() && peer.link.is_needed();
            peer.is_awaited
        });
    }

    /// Says to all peers that this PE's streams end.
    pub(crate) fn close(&mut self) {
        for peer in self.peers.iter_mut().flatten().filter(|peer| peer.socket.is_some()) {
            peer.link.close();
            // A peer that cannot be told sees the end of the stream.
            while let Ok(true) = peer.write() {}
        }
    }
}
