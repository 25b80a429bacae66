//! The reader's end of a channel.

use crate::caller::{Outgoing, Store, To};
use crate::config::{Config, Nanos, Timing};
use crate::dice::Dice;
use crate::gaps::{Gap, Gaps, MAX_GAPS};
use crate::wire::{self, Body, Count, HEADER, Message, Range, Refused, Status};

/// A reader of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reader {
    config: Config,
    number: u16,
    gaps: Gaps,
    consumed: u64,
    /// The contents of the last status.
    told_seen: u64,
    told_consumed: u64,
    /// Whether a heartbeat has asked for a status.
    asked: bool,
    /// The time of the next status, which shows the writer that this reader lives.
    status_at: Nanos,
    serial: u64,
    writer_serial: u64,
    /// The serial number of the last NAK of each other reader.
    reader_serials: Vec<u64>,
    /// The time at which this reader last took a datagram of the writer.
    heard_at: Nanos,
    dropped: bool,
    naks: u64,
    dice: Dice,
}

impl Reader {
    /// Makes reader `number`, which has received nothing.
    ///
    /// # Panics
    /// If no channel can work with this configuration, or the channel has no such reader.
    pub fn new(config: &Config, number: u16, now: Nanos) -> Self {
        config.check();
        assert!(number < config.readers, "there is no reader {number} among {}", config.readers);
        Reader {
            config: *config,
            number,
            gaps: Gaps::new(),
            consumed: 0,
            told_seen: 0,
            told_consumed: 0,
            asked: false,
            status_at: now,
            serial: 0,
            writer_serial: 0,
            reader_serials: vec![0; config.readers.into()],
            heard_at: now,
            dropped: false,
            naks: 0,
            dice: Dice::new(config, number),
        }
    }

    /// The position up to which the log has arrived, in order.
    #[inline]
    pub fn received(&self) -> u64 {
        self.gaps.received()
    }

    /// The position up to which the caller has consumed the log.
    #[inline]
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Notes that the caller needs no bytes below `position` any more.
    ///
    /// # Panics
    /// If `position` falls, or lies beyond what was [received](Self::received).
    pub fn consume(&mut self, position: u64) {
        assert!(
            self.consumed <= position && position <= self.received(),
            "consumed goes from {} to {position}, of {} received",
            self.consumed,
            self.received()
        );
        self.consumed = position;
    }

    /// The number of NAKs sent so far.
    pub fn naks(&self) -> u64 {
        self.naks
    }

    /// A number that grows with all that this reader learns of the log. While it stays the same, no
    /// datagram has brought anything new.
    pub fn learnt(&self) -> u64 {
        self.gaps.learnt()
    }

    /// Whether the writer has dropped this reader. Bytes received until then stay valid.
    pub fn is_dropped(&self) -> bool {
        self.dropped
    }

    /// Whether the writer has been silent for [`dead_after`](crate::Timing::dead_after).
    pub fn is_writer_silent(&self, now: Nanos) -> bool {
        now.saturating_sub(self.heard_at) >= self.config.timing.dead_after
    }

    /// Takes a datagram, and gives bytes of the log that were missing to `store`.
    ///
    /// # Errors
    /// If the reader refuses the datagram, which then has changed nothing.
    pub fn receive(
        &mut self,
        datagram: &[u8],
        now: Nanos,
        store: &mut impl Store,
    ) -> Result<(), Refused> {
        let near = |count| match count {
            Count::Positions => Some(self.received()),
            Count::Writers => Some(self.writer_serial),
            Count::Naks(reader) if reader != self.number => {
                Some(self.reader_serials[usize::from(reader)])
            }
            Count::Naks(_) | Count::Statuses(_) => None,
        };
        let message = wire::parse(&self.config, datagram, near)?;
        if self.dropped {
            return Err(Refused::Dropped);
        }
        match message {
            Message::Data { position, bytes } => self.data(position, bytes, now, store),
            Message::Heartbeat { serial, sent } => self.heartbeat(serial, sent, now),
            Message::Nak { reader, serial, ranges } => self.overhear(reader, serial, ranges, now),
            Message::Bye { reader } => {
                self.dropped = reader == u64::from(self.number);
                Ok(())
            }
            Message::Status { .. } => Err(Refused::Sender),
        }
    }

    fn backoff(&mut self, now: Nanos) -> Nanos {
        let timing = &self.config.timing;
        now + self.dice.between(timing.backoff_least, timing.backoff_most)
    }

    /// The position up to which there is room.
    fn room(&self) -> u64 {
        self.consumed + self.config.capacity
    }

    fn data(
        &mut self,
        position: u64,
        bytes: &[u8],
        now: Nanos,
        store: &mut impl Store,
    ) -> Result<(), Refused> {
        let end = position.checked_add(bytes.len() as u64).ok_or(Refused::Impossible)?;
        if end > self.room() {
            return Err(Refused::Impossible);
        }
        if end <= self.received() {
            return Err(Refused::Old);
        }
        // Only a new gap draws a random number.
        let due = if position > self.gaps.highest() { self.backoff(now) } else { now };
        let mut kept = false;
        self.gaps.fill(position, end, due, |from, to| {
            store.write(from, &bytes[(from - position) as usize..(to - position) as usize]);
            kept = true;
        })?;
        if !kept {
            return Err(Refused::Old);
        }
        self.heard_at = now;
        Ok(())
    }

    fn heartbeat(&mut self, serial: u64, sent: u64, now: Nanos) -> Result<(), Refused> {
        if serial <= self.writer_serial {
            return Err(Refused::Old);
        }
        if sent > self.room() {
            return Err(Refused::Impossible);
        }
        self.writer_serial = serial;
        self.heard_at = now;
        self.asked = true;
        let due = if sent > self.gaps.highest() { self.backoff(now) } else { now };
        // If there are too many gaps, a later heartbeat opens this one.
        let _opened = self.gaps.know(sent, due);
        Ok(())
    }

    /// Delays the NAKs for a range that another reader has asked for: the repair is on its way.
    fn overhear(
        &mut self,
        reader: u16,
        serial: u64,
        ranges: &[Range],
        now: Nanos,
    ) -> Result<(), Refused> {
        let before = &mut self.reader_serials[usize::from(reader)];
        if serial <= *before {
            return Err(Refused::Old);
        }
        *before = serial;
        let timing = self.config.timing;
        for gap in self.gaps.list() {
            if ranges
                .iter()
                .any(|range| range.start.get() <= gap.start && gap.end <= range.end.get())
            {
                gap.due = gap.due.max(now + retry(&timing, gap));
            }
        }
        Ok(())
    }

    /// Moves all stored times back by `by`, for a clock that was set back by as much.
    pub fn rebase(&mut self, by: Nanos) {
        for moment in [&mut self.status_at, &mut self.heard_at] {
            *moment = moment.saturating_sub(by);
        }
        for gap in self.gaps.list() {
            gap.due = gap.due.saturating_sub(by);
        }
    }

    /// Writes the next datagram to send now into `out`, which has room for [`Config::datagram`]
    /// bytes. The caller calls it until there is none: after each call that changes something, and
    /// at the [deadline](Self::deadline).
    pub fn next(&mut self, now: Nanos, out: &mut [u8]) -> Option<Outgoing> {
        if self.dropped {
            return None;
        }
        if self.gaps.first_due() <= now {
            return Some(self.ask(now, out));
        }
        let news = self.gaps.highest() - self.told_seen >= (self.config.window / 4).max(1)
            || self.consumed - self.told_consumed >= (self.config.capacity / 8).max(1);
        if self.asked || news || self.status_at <= now {
            return Some(self.tell(now, out));
        }
        None
    }

    /// The time at which [`next`](Self::next) has a datagram even if nothing else happens.
    pub fn deadline(&self) -> Nanos {
        if self.dropped {
            return Nanos::MAX;
        }
        self.status_at.min(self.gaps.first_due())
    }

    /// The time of the next NAK; [`Nanos::MAX`] if there is no gap. It is the part of the
    /// [deadline](Self::deadline) that the arrival of missing bytes depends on.
    pub fn asks_at(&self) -> Nanos {
        if self.dropped { Nanos::MAX } else { self.gaps.first_due() }
    }

    fn ask(&mut self, now: Nanos, out: &mut [u8]) -> Outgoing {
        let timing = self.config.timing;
        let most =
            ((self.config.datagram - HEADER - size_of::<u16>()) / size_of::<Range>()).min(MAX_GAPS);
        let mut ranges = [Range { start: 0.into(), end: 0.into() }; MAX_GAPS];
        let mut count = 0;
        for gap in self.gaps.list().iter_mut().filter(|gap| gap.due <= now).take(most) {
            ranges[count] = Range { start: gap.start.into(), end: gap.end.into() };
            count += 1;
            gap.due = now + retry(&timing, gap);
            gap.asked += 1;
        }
        self.serial += 1;
        self.naks += 1;
        let body = Body::Nak { reader: self.number, serial: self.serial, ranges: &ranges[..count] };
        let len = wire::write(&self.config, body, out);
        Outgoing { len, to: To::All }
    }

    fn tell(&mut self, now: Nanos, out: &mut [u8]) -> Outgoing {
        self.asked = false;
        self.status_at = now + self.config.timing.heartbeat_most;
        (self.told_seen, self.told_consumed) = (self.gaps.highest(), self.consumed);
        self.serial += 1;
        let status = Status {
            received: self.received().into(),
            seen: self.told_seen.into(),
            consumed: self.consumed.into(),
        };
        let body = Body::Status { reader: self.number, serial: self.serial, status };
        let len = wire::write(&self.config, body, out);
        Outgoing { len, to: To::Writer }
    }
}

/// The time to wait for a repair after the NAK that is sent now.
fn retry(timing: &Timing, gap: &Gap) -> Nanos {
    timing.retry_first.saturating_mul(1 << gap.asked.min(32)).min(timing.retry_most)
}
