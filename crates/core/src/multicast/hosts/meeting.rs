//! Making a channel between hosts: the heads are invited, and all PEs find out alike whether
//! datagrams pass.
//!
//! 1. The writer draws the channel's number and key, opens a way by each of its host's addresses,
//!    and writes the [`Invitation`] into its segment. *All meet.*
//! 2. The heads get the invitation and join the group. *All meet.*
//! 3. The writer sends probes again and again: by each way, as large as the interface takes, and as
//!    small as every network takes. Each head tells the writer by which ways they come. Once there
//!    is a way to all heads, the writer waits a little for earlier ways, and tells the heads to
//!    stop. Only the writer can: two heads that stopped by themselves might have heard different
//!    ways, though one way reaches both. Each head publishes which probes have come. *All meet.*
//! 4. All PEs read what the heads have published. The first way by which probes have come to all
//!    heads is that of the channel. If there is none, all take the tree.
//!
//! So the choice depends on words that all PEs read alike. It is kept for later channels with the
//! same writer and heads, which leave out step 3, or do not even try.

use super::seal::{self, KEY_BYTES, Place, Seal};
use super::wire::{MOST_ADDRESSES, Receiver, Sender, group};
use super::{LINE, Plan};
use crate::base::error::{Error, Result};
use crate::base::layout::ReaderLine;
use crate::base::lock;
use crate::base::settings::ENV_MULTICAST;
use crate::base::shm;
use crate::endpoint::fabric::SignalOp;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use crate::job::Job;
use crate::job::agree::Collective;
use crate::multicast::make::Places;
use crate::multicast::position::PositionLine;
use crate::wait::limit::Limit;
use crate::wait::{self, Awaiting, Terms};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// The time between two rounds of probes: a switch takes a while to learn who is of a group.
const ROUND: Duration = Duration::from_millis(5);
/// So many rounds in which a way has reached all heads, and the other ways are given up.
const LATE_ROUNDS: u32 = 3;
/// The time in which probes must have come: where they pass, the first round does it.
const PROBING: Duration = Duration::from_millis(150);
/// The time where datagrams are forced, so that their absence is an error.
const PROBING_IF_FORCED: Duration = Duration::from_secs(5);

/// What the writer tells the heads.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Invitation {
    /// The channel's number.
    number: u64,
    key: [u8; KEY_BYTES],
    port: u64,
    /// The number of ways; 0 if the writer has none.
    ways: u64,
    _pad: [u64; 9],
}

const _: () = assert!(size_of::<Invitation>() == LINE as usize);

/// Which ways serve which channels, by writer and heads; equal at all PEs.
struct Verdicts(Mutex<BTreeMap<Vec<usize>, Option<usize>>>);

impl Layer for Verdicts {
    fn new(_pe: &Pe) -> Self {
        Verdicts(Mutex::default())
    }
}

/// What a PE has opened for its end.
pub(in crate::multicast) enum Side {
    /// With the window.
    Writer(Seal, Sender, u64),
    Head(Seal, Receiver, u64),
    /// A PE that only reads near memory, or has no end.
    Other,
}

/// A channel that is being made.
struct Meeting<'a> {
    pe: &'a Arc<Pe>,
    writer: usize,
    heads: &'a [usize],
    /// The heads' numbers among the readers.
    numbers: Vec<usize>,
    places: &'a Places,
    /// The time for probes.
    time: Duration,
}

impl Job {
    /// Opens the ends of a channel between hosts, or gives nothing where datagrams do not pass.
    /// *Collective.*
    ///
    /// # Errors
    /// Of the agreement; [`Error::Environment`] where they are forced and do not pass.
    pub(in crate::multicast) fn meet_hosts(
        &self,
        plan: &Plan,
        writer: usize,
        readers: &[usize],
        places: &Places,
        forced: bool,
    ) -> Result<Option<Side>> {
        let heads: Vec<usize> = plan.hosts.iter().map(|host| readers[host[0]]).collect();
        let ends: Vec<usize> = std::iter::once(writer).chain(heads.iter().copied()).collect();
        let verdicts = self.pe.layer::<Verdicts>();
        let known = lock(&verdicts.0).get(&ends).copied();
        if known == Some(None) && !forced {
            return Ok(None);
        }
        let time = if forced { PROBING_IF_FORCED } else { PROBING };
        let numbers = plan.hosts.iter().map(|host| host[0]).collect();
        let meeting = Meeting { pe: &self.pe, writer, heads: &heads, numbers, places, time };
        let Outcome { opened, sent, heard, usable, failed } =
            meeting.hold(self, known.flatten())?;
        let window = usable.min(places.bytes);
        let common = heard.iter().fold(sent, |common, heard| common & heard);
        let way = known.flatten().filter(|&way| common >> way & 1 == 1).or_else(|| {
            let first = common.trailing_zeros() as usize;
            (first < 2 * MOST_ADDRESSES).then_some(first)
        });
        lock(&verdicts.0).insert(ends, way);
        if let Some(error) = failed {
            return Err(error);
        }
        match way {
            Some(way) => Ok(Some(opened.finish(way, window))),
            None if forced => Err(self.no_way(writer, &heads, &heard)),
            None => Ok(None),
        }
    }

    /// The error where datagrams are forced and do not pass.
    fn no_way(&self, writer: usize, heads: &[usize], heard: &[u64]) -> Error {
        let host = |pe: usize| match self.pe.record().host(pe) {
            Some(host) => format!("PE {pe} on {host}"),
            None => format!("PE {pe}"),
        };
        let deaf = heads.iter().zip(heard).find(|&(_, &heard)| heard == 0);
        let problem = match deaf {
            Some((&head, _)) => format!(
                "asks for UDP multicast between hosts, and none passes from {} to {}",
                host(writer),
                host(head)
            ),
            None => format!(
                "asks for UDP multicast between hosts, and no network takes it from {} to all",
                host(writer)
            ),
        };
        Error::Environment {
            name: ENV_MULTICAST,
            value: std::env::var(ENV_MULTICAST).unwrap_or_default(),
            problem,
            fix: "Let switches and firewalls pass UDP to 239.192.0.0/14 at the ports of MEMONET_PORTS (`memonet doctor --hosts` tests multicast), or use tree, or unset it",
        }
    }
}

/// What a PE has opened while the way is not known.
enum Opened {
    Writer(Seal, Vec<Sender>),
    /// With the number of ways.
    Head(Seal, Receiver, u64),
    Other,
}

/// What a PE knows after the last meeting.
struct Outcome {
    opened: Opened,
    /// Which ways the writer has, and which each head has heard, as bits. Equal at all PEs, as is
    /// the next field.
    sent: u64,
    heard: Vec<u64>,
    /// What the smallest receive buffer of a head can hold.
    usable: u64,
    /// This PE's own failure, of which the others know only that it has heard nothing.
    failed: Option<Error>,
}

impl Opened {
    /// Keeps what the channel needs.
    fn finish(self, way: usize, window: u64) -> Side {
        match self {
            Opened::Writer(seal, mut ways) => {
                Side::Writer(seal, ways.swap_remove(way).cut(), window)
            }
            Opened::Head(seal, receiver, _) => Side::Head(seal, receiver, window),
            Opened::Other => Side::Other,
        }
    }
}

impl Meeting<'_> {
    /// Steps 1 to 4. With a known way, heads are taken to have heard that.
    fn hold(&self, job: &Job, known: Option<usize>) -> Result<Outcome> {
        let call = Collective::begin(self.pe, job.world())?;
        let me = self.pe.me();
        let invites = me == self.writer;
        let mut opened = if invites { self.invite() } else { Opened::Other };
        // The other PEs must not wait for one that has an error.
        let mut failed = None;
        call.meet()?;
        if self.heads.contains(&me) {
            (opened, failed) = match self.accept() {
                Ok(opened) => (opened, None),
                Err(error) => (Opened::Other, Some(error)),
            };
        }
        call.meet()?;
        let heard = match (&mut opened, known) {
            (Opened::Writer(seal, ways), None) => self.probe(seal, ways).map(|()| u64::MAX),
            (Opened::Writer(..), Some(_)) => Ok(u64::MAX),
            (Opened::Head(seal, receiver, ways), None) => self.listen(seal, receiver, *ways),
            (Opened::Head(.., ways), Some(way)) if (way as u64) < *ways => Ok(1 << way),
            _ => Ok(0),
        };
        let heard = heard.unwrap_or_else(|error| {
            failed = Some(error);
            0
        });
        call.publish(0, heard);
        let usable = match &opened {
            Opened::Head(_, receiver, _) => receiver.usable() as u64,
            _ => 0,
        };
        call.publish(1, usable);
        call.meet()?;
        let of_heads = |step: usize| {
            self.heads.iter().map(|&head| call.outcome(step, head)).collect::<Result<Vec<u64>>>()
        };
        let (heard, usable) = (of_heads(0)?, of_heads(1)?.into_iter().min().unwrap_or_default());
        let sent = call.outcome(0, self.writer)?;
        call.close()?;
        Ok(Outcome { opened, sent, heard, usable, failed })
    }

    /// The offset of the invitation in every segment.
    fn invitation(&self) -> u64 {
        self.places.front + LINE
    }

    /// The offset of a head's line in every segment.
    fn line(&self, head: usize) -> u64 {
        let number = self.heads.iter().position(|&other| other == head);
        self.places.lines + LINE * self.numbers[number.expect("one of the heads")] as u64
    }

    /// Step 1. Where the writer can send nothing, it invites nobody.
    fn invite(&self) -> Opened {
        let addresses = self.pe.fabric().host_addresses();
        let (Some(first), Ok((number, key))) = (addresses.first(), seal::draw()) else {
            return Opened::Other;
        };
        let group = group(number, first.port());
        let open = |address: &SocketAddrV4| Sender::open(*address.ip(), group).ok();
        let large: Vec<Sender> = addresses.iter().take(MOST_ADDRESSES).filter_map(open).collect();
        let small: Vec<Sender> = large.iter().filter_map(|way| way.small().ok()).collect();
        let ways: Vec<Sender> = large.into_iter().chain(small).collect();
        let invitation = Invitation {
            number,
            key,
            port: first.port().into(),
            ways: ways.len() as u64,
            _pad: [0; 9],
        };
        let line = self.pe.local(self.invitation());
        // SAFETY: the line of this PE's segment behind the channel's other lines; nobody reads it
        // before the next meeting.
        unsafe { shm::copy(line, invitation.as_bytes().as_ptr(), size_of::<Invitation>()) };
        Opened::Writer(Seal::new(number, &key), ways)
    }

    /// Step 2. A head that can join nothing hears nothing.
    fn accept(&self) -> Result<Opened> {
        let mut invitation = Invitation::new_zeroed();
        let (to, len) = (invitation.as_mut_bytes().as_mut_ptr(), size_of::<Invitation>());
        let from = self.pe.route(self.writer, self.invitation());
        // SAFETY: private memory of that size.
        unsafe { from.get(self.pe, to, len) }?;
        let Invitation { number, key, port, ways, .. } = invitation;
        if !(1..=2 * MOST_ADDRESSES as u64).contains(&ways) {
            return Ok(Opened::Other);
        }
        let addresses = self.pe.fabric().host_addresses();
        let own = addresses.iter().take(MOST_ADDRESSES).map(|address| *address.ip());
        Ok(match Receiver::open(self.pe, group(number, port as u16), own) {
            Ok(receiver) => Opened::Head(Seal::new(number, &key), receiver, ways),
            Err(_) => Opened::Other,
        })
    }

    /// Waits as long as there is time for probes, for what another end does.
    fn wait<R>(
        &self,
        ends: &[usize],
        limit: &Limit,
        look: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>> {
        let awaiting = Awaiting::Channel { ends, done: &|_| false };
        match wait::until(self.pe, Terms::new(awaiting, limit.patience()), look) {
            Ok(found) => Ok(Some(found)),
            Err(error) => match *error {
                Error::Timeout { .. } => Ok(None),
                error => Err(error),
            },
        }
    }

    /// Step 3, at the writer.
    fn probe(&self, seal: &Seal, ways: &mut [Sender]) -> Result<()> {
        let sent = self.send_probes(seal, ways);
        let stop =
            |&head: &usize| self.tell(head, head, offset_of!(ReaderLine, probed), SignalOp::Set, 1);
        self.heads.iter().map(stop).fold(sent, Result::and)
    }

    /// Sends probes until all ways have reached all heads, or no more can be expected to.
    fn send_probes(&self, seal: &Seal, ways: &mut [Sender]) -> Result<()> {
        let limit = Limit::new(self.time);
        let line = |&head: &usize| PositionLine(self.pe.local(self.line(head)));
        let lines: Vec<PositionLine> = self.heads.iter().map(line).collect();
        let all = all_of(ways.len() as u64);
        let common = || lines.iter().fold(all, |common, line| common & line.heard());
        let mut rounds_left = LATE_ROUNDS;
        while rounds_left > 0 && !limit.is_over(self.pe) {
            for (number, way) in ways.iter_mut().enumerate() {
                let mut datagram = vec![0; way.most];
                seal.close(Place::Probe(number as u32), &mut datagram);
                way.send(&datagram);
            }
            let by_all_ways = || (common() == all).then_some(());
            if self.wait(self.heads, &Limit::new(ROUND), by_all_ways)?.is_some() {
                break;
            }
            if common() != 0 {
                rounds_left -= 1;
            }
        }
        Ok(())
    }

    /// Step 3, at a head. Gives which ways it has heard, as bits.
    fn listen(&self, seal: &Seal, receiver: &mut Receiver, ways: u64) -> Result<u64> {
        let me = self.pe.me();
        let line = PositionLine(self.pe.local(self.line(me)));
        let limit = Limit::new(self.time);
        let mut heard = 0;
        loop {
            let mut new = 0;
            let look = || {
                let over = line.is_probed();
                while let Some(datagram) = receiver.receive() {
                    let is_probe = |place, _| matches!(place, Place::Probe(_));
                    if let Some((Place::Probe(way), _)) = seal.open(datagram, is_probe) {
                        new |= 1u64.checked_shl(way).unwrap_or(0) & all_of(ways) & !heard;
                    }
                }
                (over || new != 0).then_some(over)
            };
            let over = self.wait(&[self.writer], &limit, look)?.unwrap_or(true);
            if new != 0 {
                heard |= new;
                self.tell(self.writer, me, offset_of!(ReaderLine, heard), SignalOp::Add, new)?;
            }
            if over || heard == all_of(ways) {
                return Ok(heard);
            }
        }
    }

    /// Changes a word of `head`'s line in a PE's segment.
    fn tell(&self, pe: usize, head: usize, word: usize, op: SignalOp, value: u64) -> Result<()> {
        let word = self.pe.route(pe, self.line(head) + word as u64);
        Ok(word.signal(self.pe, pe, op, value)?)
    }
}

/// The bits of so many ways, at most twice [`MOST_ADDRESSES`].
fn all_of(ways: u64) -> u64 {
    (1 << ways) - 1
}
