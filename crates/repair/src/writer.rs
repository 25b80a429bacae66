//! The writer's end of a channel.

use crate::caller::{Log, Outgoing, To};
use crate::config::{Config, Nanos};
use crate::gaps::MAX_GAPS;
use crate::limits::SAFE_PAYLOAD;
use crate::wire::{self, Body, Count, HEADER, Message, Range, Refused, Status};
use std::collections::VecDeque;

/// The largest number of ranges that wait for a repair. Readers ask again for ranges beyond it.
const MOST_REPAIRS: usize = 4 * MAX_GAPS;

/// The number of NAKs for one range after which the writer takes its datagrams for too large for a
/// link. With a loss of 30 %, one range in ten thousand needs as many by chance; then datagrams are
/// small without need, and all bytes still arrive.
const STUCK: u32 = 8;

/// The writer of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Writer {
    config: Config,
    readers: Vec<Peer>,
    /// The position up to which the caller has written the log.
    end: u64,
    /// The position up to which the log was sent once.
    sent: u64,
    /// The least positions that a live reader has consumed, and seen.
    floor: u64,
    seen: u64,
    /// The ranges to send again.
    repairs: VecDeque<(u64, u64)>,
    /// Ranges that were sent again, with the time.
    repaired: VecDeque<(u64, u64, Nanos)>,
    heartbeat_at: Nanos,
    heartbeat_after: Nanos,
    serial: u64,
    /// The largest number of bytes of the log in one datagram that all links take, as far as the
    /// writer knows.
    payload: usize,
}

/// The state of a reader, as far as the writer knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Peer {
    received: u64,
    seen: u64,
    consumed: u64,
    serial: u64,
    heard_at: Nanos,
    dropped: bool,
    /// Whether the writer must send it a bye.
    bye: bool,
    /// The start of the range whose NAKs are counted.
    stuck_at: u64,
    /// The number of NAKs for the range at `stuck_at`.
    stuck: u32,
}

impl Peer {
    /// Whether it asks for one range again and again.
    fn is_stuck(&mut self, ranges: &[Range]) -> bool {
        if ranges.iter().any(|range| range.start.get() == self.stuck_at) {
            self.stuck += 1;
        } else if ranges[0].start.get() < self.stuck_at || self.stuck_at < self.received {
            (self.stuck_at, self.stuck) = (ranges[0].start.get(), 1);
        }
        self.stuck >= STUCK
    }
}

impl Writer {
    /// Makes a writer with an empty log.
    ///
    /// # Panics
    /// If no channel can work with this configuration.
    pub fn new(config: &Config, now: Nanos) -> Self {
        config.check();
        let reader = Peer {
            received: 0,
            seen: 0,
            consumed: 0,
            serial: 0,
            heard_at: now,
            dropped: false,
            bye: false,
            stuck_at: 0,
            stuck: 0,
        };
        Writer {
            config: *config,
            readers: vec![reader; config.readers.into()],
            end: 0,
            sent: 0,
            floor: 0,
            seen: 0,
            repairs: VecDeque::with_capacity(MOST_REPAIRS),
            repaired: VecDeque::with_capacity(MOST_REPAIRS),
            heartbeat_at: now,
            heartbeat_after: config.timing.heartbeat_first,
            serial: 0,
            payload: config.payload(),
        }
    }

    /// The position up to which the caller may write the log without overwriting bytes that a
    /// reader needs.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.floor + self.config.capacity
    }

    /// The position below which no bytes are needed any more.
    #[inline]
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Notes that the caller has written the log up to `end`.
    ///
    /// # Panics
    /// If `end` falls, or lies beyond the [limit](Self::limit).
    #[inline]
    pub fn commit(&mut self, end: u64) {
        assert!(
            self.end <= end && end <= self.limit(),
            "the log goes from {} to {end}, with a limit of {}",
            self.end,
            self.limit()
        );
        self.end = end;
        if self.live().next().is_none() {
            self.look_around();
        }
    }

    /// Whether each live reader has received all that was committed.
    pub fn is_complete(&self) -> bool {
        self.sent == self.end && self.live().all(|reader| reader.received == self.end)
    }

    /// A number that grows with each byte that is sent for the first time, and with each position
    /// that readers report. While it stays the same, no datagram has brought anything new.
    pub fn learnt(&self) -> u64 {
        let told = |reader: &Peer| {
            reader.received + reader.seen + reader.consumed + u64::from(reader.dropped)
        };
        self.sent + self.readers.iter().map(told).sum::<u64>()
    }

    /// The live reader that has consumed least, if there is a live reader.
    pub fn slowest(&self) -> Option<u16> {
        let live = (0..self.config.readers).filter(|&reader| !self.is_dropped(reader));
        live.min_by_key(|&reader| self.readers[usize::from(reader)].consumed)
    }

    /// A live reader that has been silent for [`dead_after`](crate::Timing::dead_after).
    pub fn silent(&self, now: Nanos) -> Option<u16> {
        let silent = |reader: &Peer| {
            !reader.dropped && now.saturating_sub(reader.heard_at) >= self.config.timing.dead_after
        };
        self.readers.iter().position(silent).map(|reader| reader as u16)
    }

    /// Drops a reader and sends it a bye.
    pub fn drop_reader(&mut self, reader: u16) {
        let peer = &mut self.readers[usize::from(reader)];
        (peer.dropped, peer.bye) = (true, true);
        self.look_around();
    }

    /// Whether a reader was dropped.
    pub fn is_dropped(&self, reader: u16) -> bool {
        self.readers[usize::from(reader)].dropped
    }

    fn live(&self) -> impl Iterator<Item = &Peer> {
        self.readers.iter().filter(|reader| !reader.dropped)
    }

    /// Computes the least positions of the live readers.
    fn look_around(&mut self) {
        self.floor = self.live().map(|reader| reader.consumed).min().unwrap_or(self.end);
        self.seen = self.live().map(|reader| reader.seen).min().unwrap_or(self.end);
    }

    /// Takes a datagram.
    ///
    /// # Errors
    /// If the writer refuses the datagram, which then has changed nothing. One exception: a dropped
    /// reader that still sends gets another bye.
    pub fn receive(&mut self, datagram: &[u8], now: Nanos) -> Result<(), Refused> {
        let near = |count| match count {
            Count::Statuses(reader) | Count::Naks(reader) => {
                Some(self.readers[usize::from(reader)].serial)
            }
            // The writer receives its own datagrams too.
            Count::Positions | Count::Writers => None,
        };
        match wire::parse(&self.config, datagram, near)? {
            Message::Status { reader, serial, status } => self.status(reader, serial, status, now),
            Message::Nak { reader, serial, ranges } => self.nak(reader, serial, ranges, now),
            Message::Data { .. } | Message::Heartbeat { .. } | Message::Bye { .. } => {
                Err(Refused::Sender)
            }
        }
    }

    /// The live reader that sent this, unless a later datagram of it has arrived before.
    fn talking(&mut self, reader: u16, serial: u64) -> Result<&mut Peer, Refused> {
        let peer = &mut self.readers[usize::from(reader)];
        if serial <= peer.serial {
            return Err(Refused::Old);
        }
        if peer.dropped {
            (peer.serial, peer.bye) = (serial, true);
            return Err(Refused::Dropped);
        }
        Ok(peer)
    }

    fn status(
        &mut self,
        reader: u16,
        serial: u64,
        status: &Status,
        now: Nanos,
    ) -> Result<(), Refused> {
        let sent = self.sent;
        let peer = self.talking(reader, serial)?;
        let (received, seen, consumed) =
            (status.received.get(), status.seen.get(), status.consumed.get());
        let grows = peer.received <= received && peer.seen <= seen && peer.consumed <= consumed;
        if !(grows && consumed <= received && received <= seen && seen <= sent) {
            return Err(Refused::Impossible);
        }
        (peer.received, peer.seen, peer.consumed) = (received, seen, consumed);
        (peer.serial, peer.heard_at) = (serial, now);
        self.look_around();
        Ok(())
    }

    fn nak(
        &mut self,
        reader: u16,
        serial: u64,
        ranges: &[Range],
        now: Nanos,
    ) -> Result<(), Refused> {
        let (sent, small) = (self.sent, self.payload <= SAFE_PAYLOAD);
        let peer = self.talking(reader, serial)?;
        if ranges.len() > MAX_GAPS {
            return Err(Refused::Malformed);
        }
        let mut before = peer.received;
        for range in ranges {
            let (start, end) = (range.start.get(), range.end.get());
            if !(before <= start && start < end && end <= sent) {
                return Err(Refused::Impossible);
            }
            before = end;
        }
        (peer.serial, peer.heard_at) = (serial, now);
        if !small && peer.is_stuck(ranges) {
            self.payload = SAFE_PAYLOAD;
        }
        while self
            .repaired
            .front()
            .is_some_and(|&(.., at)| now.saturating_sub(at) >= self.config.timing.linger)
        {
            self.repaired.pop_front();
        }
        for range in ranges {
            self.repair(range.start.get(), range.end.get());
        }
        Ok(())
    }

    /// Queues a range for repair, except for parts that were just sent again or are queued already.
    fn repair(&mut self, start: u64, end: u64) {
        let mut wanted = vec![(start, end)];
        let under_way = self.repaired.iter().map(|&(from, to, _)| (from, to));
        for (from, to) in under_way.chain(self.repairs.iter().copied()) {
            wanted = wanted
                .into_iter()
                .flat_map(|(a, b)| [(a, b.min(from)), (a.max(to), b)])
                .filter(|(a, b)| a < b)
                .collect();
        }
        let room = MOST_REPAIRS - self.repairs.len();
        self.repairs.extend(wanted.into_iter().take(room));
    }

    /// Moves all stored times back by `by`, for a clock that was set back by as much.
    pub fn rebase(&mut self, by: Nanos) {
        self.heartbeat_at = self.heartbeat_at.saturating_sub(by);
        for reader in &mut self.readers {
            reader.heard_at = reader.heard_at.saturating_sub(by);
        }
        for (.., at) in &mut self.repaired {
            *at = at.saturating_sub(by);
        }
    }

    /// Writes the next datagram to send now into `out`, which has room for [`Config::datagram`]
    /// bytes. The caller calls it until there is none: after each call that changes something, and
    /// at the [deadline](Self::deadline).
    pub fn next(&mut self, now: Nanos, log: &impl Log, out: &mut [u8]) -> Option<Outgoing> {
        self.goodbye(out)
            .or_else(|| self.next_repair(now, log, out))
            .or_else(|| self.next_data(now, log, out))
            .or_else(|| self.heartbeat(now, out))
            .map(|len| Outgoing { len, to: To::All })
    }

    /// The time at which [`next`](Self::next) has a datagram even if nothing else happens.
    pub fn deadline(&self) -> Nanos {
        self.heartbeat_at
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn goodbye(&mut self, out: &mut [u8]) -> Option<usize> {
        let reader = self.readers.iter().position(|reader| reader.bye)?;
        self.readers[reader].bye = false;
        let (serial, reader) = (self.next_serial(), reader as u16);
        Some(wire::write(&self.config, Body::Bye { serial, reader }, out))
    }

    fn next_repair(&mut self, now: Nanos, log: &impl Log, out: &mut [u8]) -> Option<usize> {
        while let Some((start, end)) = self.repairs.pop_front() {
            // All readers have consumed these bytes, and the caller may overwrite them.
            let start = start.max(self.floor);
            if start < end {
                let upto = end.min(start + self.payload as u64);
                if upto < end {
                    self.repairs.push_front((upto, end));
                }
                if self.repaired.len() == MOST_REPAIRS {
                    self.repaired.pop_front();
                }
                self.repaired.push_back((start, upto, now));
                return Some(self.data(start, upto, log, out));
            }
        }
        None
    }

    fn next_data(&mut self, now: Nanos, log: &impl Log, out: &mut [u8]) -> Option<usize> {
        let allowed = self.end.min(self.seen.saturating_add(self.config.window));
        let upto = allowed.min(self.sent + self.payload as u64);
        if upto <= self.sent {
            return None;
        }
        let start = std::mem::replace(&mut self.sent, upto);
        self.heartbeat_after = self.config.timing.heartbeat_first;
        self.heartbeat_at = now + self.heartbeat_after;
        Some(self.data(start, upto, log, out))
    }

    fn data(&self, position: u64, end: u64, log: &impl Log, out: &mut [u8]) -> usize {
        let len = (end - position) as usize;
        log.read(position, &mut out[HEADER..HEADER + len]);
        wire::write(&self.config, Body::Data { position, len }, out)
    }

    fn heartbeat(&mut self, now: Nanos, out: &mut [u8]) -> Option<usize> {
        if now < self.heartbeat_at {
            return None;
        }
        let timing = &self.config.timing;
        let content = self.live().all(|reader| reader.received == self.sent);
        self.heartbeat_after = if content {
            timing.heartbeat_most
        } else {
            (2 * self.heartbeat_after).min(timing.heartbeat_most)
        };
        self.heartbeat_at = now + self.heartbeat_after;
        let (serial, sent) = (self.next_serial(), self.sent);
        Some(wire::write(&self.config, Body::Heartbeat { serial, sent }, out))
    }
}
