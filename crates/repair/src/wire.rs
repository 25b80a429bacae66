//! The layout of datagrams, and nothing else. All numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0..7 | checksum: 56 bits of a CRC-64 of the datagram and of what both ends know |
//! | 7 | kind: 1 data, 2 heartbeat, 3 status, 4 NAK, 5 bye |
//! | 8..12 | the low half of: data: the position of its first byte; all others: a serial number, higher in each that this end sends, from 1 on |
//! | 12.. | data: bytes of the log, at least one |
//! | | heartbeat: u64, the position up to which data has been sent |
//! | | status: u16, number of the reader; 3 u64, positions up to which it has received, seen, consumed |
//! | | NAK: u16, number of the reader; pairs of u64, start and end of ranges that it misses, ascending, at least one |
//! | | bye: u64, number of the reader that the writer has dropped |
//!
//! **What both ends know** is part of the checksum and is not sent: protocol and version, job,
//! channel, epoch, and the high half of positions and serial numbers. The receiver takes the high
//! half from its own position. So a receiver refuses a datagram of another channel, or one that is
//! older by a whole turn of the low half, just as it refuses a damaged one; it accepts one in 2^56
//! by mistake. The header is short because a switch that copies packets of 2 KiB copies each byte
//! for each reader.

use crate::config::Config;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Protocol and version, the first of what both ends know.
const MAGIC: [u8; 4] = *b"mnR2";
/// The number of bytes before the body.
pub const HEADER: usize = size_of::<Header>();
/// The least size of a datagram in bytes: it holds each kind of body, and data of a few bytes.
pub const LEAST_DATAGRAM: usize = HEADER + size_of::<U16>() + size_of::<Status>();
/// The largest distance in bytes of two positions that their low halves distinguish.
pub const MOST_APART: u64 = 1 << 31;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    check: [u8; CHECK],
    kind: u8,
    /// The low half of a position or of a serial number.
    place: U32,
}

/// The number of bytes of the checksum.
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

/// The reason why an end refuses a datagram, which then has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refused {
    /// It is not a datagram of this protocol, or it was cut off.
    #[error("not a datagram of this protocol")]
    Foreign,
    /// It was damaged on the way, or belongs to another job, channel or epoch.
    #[error("it was damaged, or belongs to another channel")]
    Checksum,
    /// Its sender does not send such datagrams to this end, or is not in the channel.
    #[error("its sender does not send that")]
    Sender,
    /// Its body does not fit its kind.
    #[error("it is malformed")]
    Malformed,
    /// Its contents are impossible: positions fall, or lie beyond what was sent or has room.
    #[error("its contents are impossible")]
    Impossible,
    /// It is a replay, or a later datagram has overtaken it.
    #[error("it is old")]
    Old,
    /// It would open more gaps than a reader keeps; the writer will send it again.
    #[error("there are too many gaps before it")]
    Scattered,
    /// The writer has dropped this reader, or the sender.
    #[error("its sender or this reader was dropped")]
    Dropped,
}

/// The count to which the place of a datagram belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    /// Positions of the log.
    Positions,
    /// Serial numbers of the writer.
    Writers,
    /// Serial numbers of a reader's statuses.
    Statuses(u16),
    /// Serial numbers of a reader's NAKs, in one count with its statuses.
    Naks(u16),
}

/// A datagram of this channel. Its positions are not checked yet.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Data { position: u64, bytes: &'a [u8] },
    Heartbeat { serial: u64, sent: u64 },
    Status { reader: u16, serial: u64, status: &'a Status },
    Nak { reader: u16, serial: u64, ranges: &'a [Range] },
    Bye { reader: u64 },
}

/// The checksum of a datagram with this place.
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

/// The state of the checksum before the datagram's bytes.
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

/// The number with this low half that lies nearest to `near`.
fn whole(low: u32, near: u64) -> u64 {
    near.wrapping_add_signed(i64::from(low.wrapping_sub(near as u32) as i32))
}

/// Reads a datagram and checks everything but its positions. `near` gives the place of this end in
/// a count, or `None` if this end takes no datagrams of that count.
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

/// The body of a datagram to send; the bytes of data are in place already.
pub(crate) enum Body<'a> {
    Data { position: u64, len: usize },
    Heartbeat { serial: u64, sent: u64 },
    Status { reader: u16, serial: u64, status: Status },
    Nak { reader: u16, serial: u64, ranges: &'a [Range] },
    Bye { serial: u64, reader: u16 },
}

/// Writes a datagram into `out` and gives its length. The bytes of data already stand behind the
/// header.
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

/// Sets the place of a datagram and its checksum. It is public for tests, which forge datagrams.
///
/// # Panics
/// If there is no room for a header.
pub fn seal(config: &Config, place: u64, datagram: &mut [u8]) {
    let (header, body) = datagram.split_at_mut(HEADER);
    let kind = header[CHECK];
    let whole =
        Header { check: check(config, kind, place, body), kind, place: (place as u32).into() };
    header.copy_from_slice(whole.as_bytes());
}

/// The kind of a datagram. It is public for tests.
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
