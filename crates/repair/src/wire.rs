//! The layout of datagrams, and nothing else. All numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0..7 | checksum: 56 bits of a CRC-64 of all that is sent, and of what both ends know without being told |
//! | 7 | kind: 1 data, 2 heartbeat, 3 status, 4 NAK, 5 bye |
//! | 8..12 | the low half of: data: the position of its first byte; all others: a serial number, higher in each that this end sends, from 1 on |
//! | 12.. | data: bytes of the log, at least one |
//! | | heartbeat: u64, the position up to which data has been sent |
//! | | status: u16, number of the reader; 3 u64, positions up to which it has received, seen, consumed |
//! | | NAK: u16, number of the reader; pairs of u64, start and end of ranges that it misses, ascending, at least one |
//! | | bye: u64, number of the reader that is none any more |
//!
//! **What both ends know** is not sent, but is in the checksum: protocol and version, job, channel
//! and epoch, and the high half of positions and serial numbers, which the receiver takes from
//! where it is itself. So what belongs elsewhere, or is older by a whole turn of the low half, is
//! refused as what was damaged is; that it is not happens to one in 2^56. Where a switch copies
//! packets of 2 KiB, every byte here is one that is copied for each reader.

use crate::config::Config;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Protocol and version: the first of what both ends know.
const MAGIC: [u8; 4] = *b"mnR2";
/// Bytes before the body.
pub const HEADER: usize = size_of::<Header>();
/// Room for any body but data of more than a few bytes.
pub const LEAST_DATAGRAM: usize = HEADER + size_of::<U16>() + size_of::<Status>();
/// Most bytes between positions that are told apart by their low half.
pub const MOST_APART: u64 = 1 << 31;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    check: [u8; CHECK],
    kind: u8,
    /// Low half of position or serial number.
    place: U32,
}

/// Bytes of the checksum.
const CHECK: usize = 7;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Status {
    pub(crate) received: U64,
    pub(crate) seen: U64,
    pub(crate) consumed: U64,
}

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Range {
    pub(crate) start: U64,
    pub(crate) end: U64,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Header>() == 12 && align_of::<Header>() == 1);
    assert!(offset_of!(Header, kind) == 7);
    assert!(offset_of!(Header, place) == 8);
    assert!(size_of::<Status>() == 24 && size_of::<Range>() == 16);
};

const DATA: u8 = 1;
const HEARTBEAT: u8 = 2;
const STATUS: u8 = 3;
const NAK: u8 = 4;
const BYE: u8 = 5;

/// Why a datagram was not taken. It has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// No memonet datagram, or one that was cut off.
    #[error("not a datagram of this protocol")]
    Foreign,
    /// Damaged on the way; or of another job, channel or epoch.
    #[error("it was damaged, or belongs to another channel")]
    Checksum,
    /// From somebody who does not send such datagrams to this end, or is not in the channel.
    #[error("its sender does not send that")]
    Sender,
    /// Its body is not what its kind has.
    #[error("it is malformed")]
    Malformed,
    /// It says what cannot be: positions that fall, or lie beyond what was sent or has room.
    #[error("it says what cannot be")]
    Impossible,
    /// A replay, or overtaken by a later one.
    #[error("it is old")]
    Old,
    /// It would open more gaps than are kept; it will be sent again.
    #[error("there are too many gaps before it")]
    Scattered,
    /// This end has been dropped, or the sender was.
    #[error("its sender or this reader was dropped")]
    Dropped,
}

/// What a datagram's place is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// Positions of the log.
    Positions,
    /// Serial numbers of the writer,
    Writers,
    /// or of a reader: of its statuses,
    Statuses(u16),
    /// and, in the same count, of its NAKs.
    Naks(u16),
}

/// A datagram of this channel. Positions in it have not been looked at.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Data { position: u64, bytes: &'a [u8] },
    Heartbeat { serial: u64, sent: u64 },
    Status { reader: u16, serial: u64, status: &'a Status },
    Nak { reader: u16, serial: u64, ranges: &'a [Range] },
    Bye { reader: u64 },
}

/// The checksum of a datagram at this place.
fn check(config: &Config, kind: u8, place: u64, body: &[u8]) -> [u8; CHECK] {
    let known = Known {
        magic: MAGIC,
        channel: config.channel.into(),
        epoch: config.epoch.into(),
        kind: u32::from(kind).into(),
        job: config.job.into(),
        place: place.into(),
    };
    let mut digest = crc64fast::Digest::new();
    digest.write(known.as_bytes());
    digest.write(body);
    let [check @ .., _] = digest.sum64().to_le_bytes();
    check
}

/// What the checksum begins with.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct Known {
    magic: [u8; 4],
    channel: U32,
    epoch: U32,
    kind: U32,
    job: U64,
    place: U64,
}

/// The number with this low half that is nearest to `near`.
fn whole(low: u32, near: u64) -> u64 {
    near.wrapping_add_signed(i64::from(low.wrapping_sub(near as u32) as i32))
}

/// Reads a datagram, believing nothing. `near` says where this end is in a count, or that it takes
/// no such datagrams.
pub(crate) fn parse<'a>(
    config: &Config,
    datagram: &'a [u8],
    near: impl FnOnce(Count) -> Option<u64>,
) -> Result<Message<'a>, Refused> {
    let (header, body) = Header::ref_from_prefix(datagram).map_err(|_| Refused::Foreign)?;
    let from = |body: &'a [u8]| -> Result<(u16, &'a [u8]), Refused> {
        let (reader, rest) = U16::ref_from_prefix(body).map_err(|_| Refused::Malformed)?;
        match reader.get() {
            reader if reader < config.readers => Ok((reader, rest)),
            _ => Err(Refused::Sender),
        }
    };
    let (count, reader, content) = match header.kind {
        DATA => (Count::Positions, 0, body),
        HEARTBEAT | BYE => (Count::Writers, 0, body),
        STATUS => from(body).map(|(reader, rest)| (Count::Statuses(reader), reader, rest))?,
        NAK => from(body).map(|(reader, rest)| (Count::Naks(reader), reader, rest))?,
        _ => return Err(Refused::Foreign),
    };
    let place = whole(header.place.get(), near(count).ok_or(Refused::Sender)?);
    if header.check != check(config, header.kind, place, body) {
        return Err(Refused::Checksum);
    }
    let word =
        || U64::ref_from_bytes(content).map(|word| word.get()).map_err(|_| Refused::Malformed);
    match header.kind {
        DATA if !content.is_empty() => Ok(Message::Data { position: place, bytes: content }),
        HEARTBEAT => Ok(Message::Heartbeat { serial: place, sent: word()? }),
        STATUS => Ok(Message::Status {
            reader,
            serial: place,
            status: Status::ref_from_bytes(content).map_err(|_| Refused::Malformed)?,
        }),
        NAK if !content.is_empty() => Ok(Message::Nak {
            reader,
            serial: place,
            ranges: <[Range]>::ref_from_bytes(content).map_err(|_| Refused::Malformed)?,
        }),
        BYE => Ok(Message::Bye { reader: word()? }),
        _ => Err(Refused::Malformed),
    }
}

/// What can be sent, but for data, whose bytes are already in place.
pub(crate) enum Body<'a> {
    Data { position: u64, len: usize },
    Heartbeat { serial: u64, sent: u64 },
    Status { reader: u16, serial: u64, status: Status },
    Nak { reader: u16, serial: u64, ranges: &'a [Range] },
    Bye { serial: u64, reader: u16 },
}

/// Writes a datagram into `out`, where the bytes of data already stand behind the header; its
/// length.
pub(crate) fn write(config: &Config, body: Body<'_>, out: &mut [u8]) -> usize {
    let mut fill = |parts: [&[u8]; 2]| {
        let mut len = 0;
        for part in parts {
            out[HEADER + len..][..part.len()].copy_from_slice(part);
            len += part.len();
        }
        len
    };
    let (kind, place, length) = match body {
        Body::Data { position, len } => (DATA, position, len),
        Body::Heartbeat { serial, sent } => {
            (HEARTBEAT, serial, fill([U64::new(sent).as_bytes(), &[]]))
        }
        Body::Status { reader, serial, status } => {
            (STATUS, serial, fill([U16::new(reader).as_bytes(), status.as_bytes()]))
        }
        Body::Nak { reader, serial, ranges } => {
            (NAK, serial, fill([U16::new(reader).as_bytes(), ranges.as_bytes()]))
        }
        Body::Bye { serial, reader } => {
            (BYE, serial, fill([U64::new(reader.into()).as_bytes(), &[]]))
        }
    };
    let len = HEADER + length;
    out[CHECK] = kind;
    seal(config, place, &mut out[..len]);
    len
}

/// Says of a datagram at which place it is, and sets its checksum. Public for tests, which forge
/// some.
///
/// # Panics
/// When there is no room for a header.
pub fn seal(config: &Config, place: u64, datagram: &mut [u8]) {
    let (header, body) = datagram.split_at_mut(HEADER);
    let kind = header[CHECK];
    let whole =
        Header { check: check(config, kind, place, body), kind, place: (place as u32).into() };
    header.copy_from_slice(whole.as_bytes());
}

/// The kind of a datagram. Public for tests.
pub fn kind(datagram: &[u8]) -> u8 {
    datagram[CHECK]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_low_half_is_enough(near in 0u64.., off in -(1i64 << 31)..1 << 31) {
            if let Some(number) = near.checked_add_signed(off) {
                prop_assert_eq!(whole(number as u32, near), number);
            }
        }
    }
}
