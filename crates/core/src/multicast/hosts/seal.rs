//! Datagrams of a channel between hosts, and the tags by which they are known.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | the channel's random number |
//! | 8 | position in the log of the first byte; or, with the highest bit, the number of a probe |
//! | 16 | tag: the first half of HMAC-SHA256, keyed with the channel's key, of all other bytes |
//! | rest | bytes of the log; of a probe, zeros |
//!
//! Numbers are little-endian.
//!
//! **What a tag shows.** The writer draws the key for the channel, and its hosts get it through the
//! fabric. So a right tag was made by the writer of this channel, or by a PE that receives it: a
//! datagram of strangers, of another channel or job, or one that was changed on the way has none,
//! but for one in 2^128. A replayed datagram has a right tag, and is harmless: a position has one
//! content for ever, and only missing bytes are stored.

use hmac::{Hmac, KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;

/// Bytes before those of the log.
pub(super) const HEADER: usize = TAG + TAG_BYTES;
const PLACE: usize = 8;
const TAG: usize = 16;
const TAG_BYTES: usize = 16;
/// Marks a probe among positions.
const PROBE: u64 = 1 << 63;
/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 32;

/// What a datagram says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Its bytes are those of the log from this position on.
    Log(u64),
    /// It is the probe of this number.
    Probe(u32),
}

/// Makes and checks the tags of a channel.
pub(in crate::multicast) struct Seal {
    number: u64,
    key: Hmac<Sha256>,
}

/// A new number of a channel, and its key.
pub(super) fn draw() -> rustix::io::Result<(u64, [u8; KEY_BYTES])> {
    let (mut number, mut key) = ([0; 8], [0; KEY_BYTES]);
    for bytes in [&mut number[..], &mut key[..]] {
        let len = bytes.len();
        match getrandom(bytes, GetRandomFlags::empty()) {
            Ok(got) if got == len => {}
            Ok(_) => unreachable!("so few bytes are never cut short"),
            Err(error) => return Err(error),
        }
    }
    Ok((u64::from_le_bytes(number), key))
}

impl Seal {
    pub(super) fn new(number: u64, key: &[u8; KEY_BYTES]) -> Self {
        Seal { number, key: Hmac::new_from_slice(key).expect("HMAC takes keys of any length") }
    }

    /// Writes the header of a datagram, whose bytes stand behind it already.
    pub(super) fn close(&self, place: Place, datagram: &mut [u8]) {
        let place = match place {
            Place::Log(position) => position,
            Place::Probe(number) => PROBE | u64::from(number),
        };
        let (header, bytes) = datagram.split_at_mut(HEADER);
        header[..PLACE].copy_from_slice(&self.number.to_le_bytes());
        header[PLACE..TAG].copy_from_slice(&place.to_le_bytes());
        let tag = self.tag(&header[..TAG], bytes).finalize().into_bytes();
        header[TAG..].copy_from_slice(&tag[..TAG_BYTES]);
    }

    /// What a datagram says, if it is of this channel and `wanted`, which is asked first as it
    /// costs less than a tag.
    pub(super) fn open<'a>(
        &self,
        datagram: &'a [u8],
        wanted: impl FnOnce(Place, usize) -> bool,
    ) -> Option<(Place, &'a [u8])> {
        let (header, bytes) = datagram.split_at_checked(HEADER)?;
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 bytes"));
        let place = match word(PLACE) {
            place if place & PROBE == 0 => Place::Log(place),
            place => Place::Probe(u32::try_from(place ^ PROBE).ok()?),
        };
        if word(0) != self.number || !wanted(place, bytes.len()) {
            return None;
        }
        let tag = self.tag(&header[..TAG], bytes);
        tag.verify_truncated_left(&header[TAG..]).is_ok().then_some((place, bytes))
    }

    fn tag(&self, header: &[u8], bytes: &[u8]) -> Hmac<Sha256> {
        let mut key = self.key.clone();
        key.update(header);
        key.update(bytes);
        key
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sealed(seal: &Seal, place: Place, bytes: &[u8]) -> Vec<u8> {
        let mut datagram = [&[0; HEADER], bytes].concat();
        seal.close(place, &mut datagram);
        datagram
    }

    proptest! {
        #[test]
        fn only_what_was_sent_is_opened(position in 0u64..1 << 63, bytes: Vec<u8>, bit: usize, cut: usize) {
            let seal = Seal::new(7, &[1; KEY_BYTES]);
            let datagram = sealed(&seal, Place::Log(position), &bytes);
            prop_assert_eq!(seal.open(&datagram, |_, _| true), Some((Place::Log(position), &bytes[..])));
            prop_assert!(seal.open(&datagram, |_, _| false).is_none());
            let mut changed = datagram.clone();
            changed[bit / 8 % datagram.len()] ^= 1 << (bit % 8);
            prop_assert!(seal.open(&changed, |_, _| true).is_none());
            prop_assert!(seal.open(&datagram[..cut % datagram.len()], |_, _| true).is_none());
            prop_assert!(seal.open(&[&datagram[..], &[0]].concat(), |_, _| true).is_none());
            for other in [Seal::new(8, &[1; KEY_BYTES]), Seal::new(7, &[2; KEY_BYTES])] {
                prop_assert!(other.open(&datagram, |_, _| true).is_none());
            }
        }
    }

    #[test]
    fn a_probe_is_no_part_of_the_log() {
        let (seal, zeros) = (Seal::new(7, &[1; KEY_BYTES]), [0; 100]);
        let datagram = sealed(&seal, Place::Probe(3), &zeros);
        assert_eq!(seal.open(&datagram, |_, _| true), Some((Place::Probe(3), &zeros[..])));
        assert!(seal.open(&datagram, |place, _| matches!(place, Place::Log(_))).is_none());
    }

    #[test]
    fn channels_have_numbers_and_keys_of_their_own() {
        let (one, other) = (draw().unwrap(), draw().unwrap());
        assert!(one.0 != other.0 && one.1 != other.1);
    }
}
