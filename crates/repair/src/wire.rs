//! The layout of datagrams, and nothing else. All numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | [`MAGIC`]: protocol and version |
//! | 4..8 | CRC-32 of everything behind it |
//! | 8..16 | number of the job |
//! | 16..20 | channel |
//! | 20..24 | epoch |
//! | 24..26 | who sends: 0 the writer, n + 1 reader n |
//! | 26 | kind: 1 data, 2 heartbeat, 3 status, 4 NAK, 5 bye |
//! | 27 | zero |
//! | 28..32 | length of what follows the header |
//! | 32..40 | data: position of its first byte; all others: serial number, higher in each that this end sends, from 1 on |
//! | 40.. | data: bytes of the log, at least one |
//! | | heartbeat: u64, the position up to which data has been sent |
//! | | status: 3 u64, positions up to which the reader has received, seen, consumed |
//! | | NAK: pairs of u64, start and end of ranges that the reader misses, ascending, at least one |
//! | | bye: u64, number of the reader that is none any more |

use crate::Config;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of every datagram.
pub const MAGIC: [u8; 4] = *b"mnR1";
/// Bytes before the body.
pub const HEADER: usize = size_of::<Header>();
/// Room for any body but data of more than a few bytes.
pub const LEAST_DATAGRAM: usize = HEADER + size_of::<Status>();

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    magic: [u8; 4],
    crc: U32,
    job: U64,
    channel: U32,
    epoch: U32,
    from: U16,
    kind: u8,
    zero: u8,
    length: U32,
    /// Position or serial number.
    place: U64,
}

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
    assert!(size_of::<Header>() == 40 && align_of::<Header>() == 1);
    assert!(offset_of!(Header, crc) == 4);
    assert!(offset_of!(Header, job) == 8);
    assert!(offset_of!(Header, channel) == 16);
    assert!(offset_of!(Header, epoch) == 20);
    assert!(offset_of!(Header, from) == 24);
    assert!(offset_of!(Header, kind) == 26);
    assert!(offset_of!(Header, length) == 28);
    assert!(offset_of!(Header, place) == 32);
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
    /// No memonet datagram of this version, or one that was cut off.
    #[error("not a datagram of this protocol")]
    Foreign,
    /// Damaged on the way.
    #[error("its checksum is wrong")]
    Checksum,
    /// Of another job.
    #[error("it belongs to another job")]
    Job,
    /// Of another channel of this job.
    #[error("it belongs to another channel")]
    Channel,
    /// Of a channel that had the same number before, or will have it.
    #[error("it belongs to another epoch of this channel")]
    Epoch,
    /// From somebody who does not send such datagrams, or is not in the channel.
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

/// Number of the writer in the header's `from`.
const WRITER: u16 = 0;

/// A datagram of this channel. Positions in it have not been looked at.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Data { position: u64, bytes: &'a [u8] },
    Heartbeat { serial: u64, sent: u64 },
    Status { reader: u16, serial: u64, status: &'a Status },
    Nak { reader: u16, serial: u64, ranges: &'a [Range] },
    Bye { reader: u64 },
}

/// Reads a datagram, believing nothing.
pub(crate) fn parse<'a>(config: &Config, datagram: &'a [u8]) -> Result<Message<'a>, Refused> {
    let (header, body) = Header::ref_from_prefix(datagram).map_err(|_| Refused::Foreign)?;
    if header.magic != MAGIC {
        return Err(Refused::Foreign);
    }
    if header.crc.get() != crc32fast::hash(&datagram[8..]) {
        return Err(Refused::Checksum);
    }
    if header.job.get() != config.job {
        return Err(Refused::Job);
    }
    if header.channel.get() != config.channel {
        return Err(Refused::Channel);
    }
    if header.epoch.get() != config.epoch {
        return Err(Refused::Epoch);
    }
    if header.length.get() as usize != body.len() || header.zero != 0 {
        return Err(Refused::Malformed);
    }
    let (from, place) = (header.from.get(), header.place.get());
    let writers = matches!(header.kind, DATA | HEARTBEAT | BYE);
    if writers != (from == WRITER) || from > config.readers {
        return Err(Refused::Sender);
    }
    let reader = from.wrapping_sub(1);
    let word = || U64::ref_from_bytes(body).map(|word| word.get()).map_err(|_| Refused::Malformed);
    match header.kind {
        DATA if !body.is_empty() => Ok(Message::Data {
            position: place,
            bytes: body,
        }),
        HEARTBEAT => Ok(Message::Heartbeat {
            serial: place,
            sent: word()?,
        }),
        STATUS => Ok(Message::Status {
            reader,
            serial: place,
            status: Status::ref_from_bytes(body).map_err(|_| Refused::Malformed)?,
        }),
        NAK if !body.is_empty() => Ok(Message::Nak {
            reader,
            serial: place,
            ranges: <[Range]>::ref_from_bytes(body).map_err(|_| Refused::Malformed)?,
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

/// Writes a datagram into `out`, where the bytes of data already stand behind the header; its length.
pub(crate) fn write(config: &Config, body: Body<'_>, out: &mut [u8]) -> usize {
    let mut fill = |bytes: &[u8]| {
        out[HEADER..][..bytes.len()].copy_from_slice(bytes);
        bytes.len()
    };
    let (kind, from, place, length) = match body {
        Body::Data { position, len } => (DATA, WRITER, position, len),
        Body::Heartbeat { serial, sent } => (HEARTBEAT, WRITER, serial, fill(U64::new(sent).as_bytes())),
        Body::Status { reader, serial, status } => (STATUS, reader + 1, serial, fill(status.as_bytes())),
        Body::Nak { reader, serial, ranges } => (NAK, reader + 1, serial, fill(ranges.as_bytes())),
        Body::Bye { serial, reader } => (BYE, WRITER, serial, fill(U64::new(reader.into()).as_bytes())),
    };
    let header = Header {
        magic: MAGIC,
        crc: U32::ZERO,
        job: config.job.into(),
        channel: config.channel.into(),
        epoch: config.epoch.into(),
        from: from.into(),
        kind,
        zero: 0,
        length: (length as u32).into(),
        place: place.into(),
    };
    out[..HEADER].copy_from_slice(header.as_bytes());
    let len = HEADER + length;
    seal(&mut out[..len]);
    len
}

/// Sets the checksum of a datagram. Public for tests, which forge some.
pub fn seal(datagram: &mut [u8]) {
    let crc = crc32fast::hash(&datagram[8..]);
    datagram[4..8].copy_from_slice(&crc.to_le_bytes());
}
