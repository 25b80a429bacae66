//! The layout of a part's events, and nothing else.
//!
//! ```text
//! 0        page of words: records taken, bytes of texts taken, threads
//! 4096     texts     a length of 4 bytes, then the text; rounded up to 4 bytes
//! ...      records   RECORD_BYTES each
//! ```

use super::{Deed, Event, Sort, Spot, TextId};
use crate::base::compare::Cmp;
use crate::endpoint::awaiting::Awaited;
use crate::endpoint::recorder::Kind;

/// Words of a record.
pub(super) const WORDS: usize = 8;
/// Bytes of a record.
pub const RECORD_BYTES: u64 = 8 * WORDS as u64;
/// Where the word is that counts the records taken. It may count more than there are.
pub(super) const TAKEN: u64 = 0;
/// Where the word is that counts the bytes of texts taken.
pub(super) const TEXTS_TAKEN: u64 = 64;
/// Where the word is that counts threads.
pub(super) const THREADS: u64 = 128;
/// Bytes that all words of the page lie in.
pub(super) const HEADER_BYTES: u64 = 192;
/// Bytes of the page of words.
const PAGE: u64 = 4096;
/// The most bytes for texts.
const MOST_TEXTS: u64 = 1 << 20;

/// The word of a record that holds the end of its event, and its first word.
pub(super) const END: usize = 2;
pub(super) const HEAD: usize = 0;

/// Where everything is in a part's room for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Areas {
    /// Bytes of texts.
    pub(super) texts: u64,
    /// Records.
    pub(super) capacity: u64,
}

impl Areas {
    /// Bytes of room for so many events.
    pub fn bytes_for(events: u64) -> u64 {
        // Texts get an eighth of the sum, so a seventh of the records' bytes, and a little more.
        let records = events.saturating_mul(RECORD_BYTES);
        records.saturating_add(PAGE + MOST_TEXTS.min(records / 7 + PAGE))
    }

    /// The areas of so many bytes; `None` where there is room for no event.
    pub fn of(bytes: u64) -> Option<Areas> {
        let rest = bytes.checked_sub(PAGE)?;
        let texts = (rest / 8).min(MOST_TEXTS) / RECORD_BYTES * RECORD_BYTES;
        let capacity = (rest - texts) / RECORD_BYTES;
        (texts > 0 && capacity > 0).then_some(Areas { texts, capacity })
    }

    /// The number of events for which there is room.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Where a byte of the texts is.
    pub(super) fn text_at(&self, offset: u64) -> u64 {
        PAGE + offset
    }

    /// Where a record begins.
    pub(super) fn record_at(&self, record: u64) -> u64 {
        PAGE + self.texts + record * RECORD_BYTES
    }
}

const VALUE_IS_KNOWN: u64 = 1;
const SPOT_IS_KNOWN: u64 = 2;

const COMPARISONS: [Cmp; 6] = [Cmp::Eq, Cmp::Ne, Cmp::Lt, Cmp::Le, Cmp::Gt, Cmp::Ge];
const SORTS: [Sort; 4] = [Sort::Call, Sort::Operation, Sort::Wait, Sort::Thread];

fn place_in<T: PartialEq>(all: &[T], one: &T) -> u64 {
    all.iter().position(|each| each == one).expect("all are listed") as u64
}

/// What stands in the words of a deed: tag, subordinate number and flags; region; the upper half of
/// the fifth word; the last three words.
type Packed = ((u64, u64, u64), u64, u32, [u64; 3]);

fn pack(deed: &Deed) -> Packed {
    let spot = |at: &Spot| match at.offset {
        Some((region, offset)) => (SPOT_IS_KNOWN, u64::from(region), offset),
        None => (0, 0, 0),
    };
    match *deed {
        Deed::None => ((0, 0, 0), 0, 0, [0; 3]),
        Deed::Operation { kind, at, bytes, value } => {
            let (known, region, offset) = spot(&at);
            let flags = known | value.map_or(0, |_| VALUE_IS_KNOWN);
            ((1, kind as u64, flags), region, at.pe, [offset, bytes, value.unwrap_or(0)])
        }
        Deed::Word { at, bytes, cmp, value } => {
            let (known, region, offset) = spot(&at);
            ((2, place_in(&COMPARISONS, &cmp), known), region, at.pe, [offset, bytes, value])
        }
        Deed::Team { slot, members, bytes } => ((3, 0, 0), 0, members.0, [slot.into(), bytes, 0]),
        Deed::Phase { slot, members, arrives } => {
            ((5, arrives.into(), 0), 0, members.0, [slot.into(), 0, 0])
        }
        Deed::Wait(what) => ((4, place_in(&Awaited::ALL, &what), 0), 0, 0, [0; 3]),
    }
}

fn unpack(((tag, sub, flags), region, high, [offset, bytes, value]): Packed) -> Option<Deed> {
    let known = flags & SPOT_IS_KNOWN != 0;
    let at = Spot { pe: high, offset: known.then_some((region as u16, offset)) };
    Some(match tag {
        0 => Deed::None,
        1 => Deed::Operation {
            kind: *Kind::ALL.get(sub as usize)?,
            at,
            bytes,
            value: (flags & VALUE_IS_KNOWN != 0).then_some(value),
        },
        2 => Deed::Word { at, bytes, cmp: *COMPARISONS.get(sub as usize)?, value },
        3 => Deed::Team { slot: u32::try_from(offset).ok()?, members: TextId(high), bytes },
        4 => Deed::Wait(*Awaited::ALL.get(sub as usize)?),
        5 => Deed::Phase {
            slot: u32::try_from(offset).ok()?,
            members: TextId(high),
            arrives: sub != 0,
        },
        _ => return None,
    })
}

/// The words of an event. The first one is never 0.
pub(super) fn to_words(event: &Event) -> [u64; WORDS] {
    let sort = place_in(&SORTS, &event.sort) + 1;
    let two = |low: TextId, high: TextId| u64::from(low.0) | u64::from(high.0) << 32;
    let mut words = [
        sort | u64::from(event.thread) << 32,
        event.start,
        event.end.unwrap_or(0),
        two(event.name, event.place),
        event.window.0.into(),
        0,
        0,
        0,
    ];
    describe(&mut words, &event.deed);
    words
}

/// Puts a deed into the words of an event.
pub(super) fn describe(words: &mut [u64; WORDS], deed: &Deed) {
    let ((tag, sub, flags), region, high, deed) = pack(deed);
    let kept = words[HEAD] & 0x0000_ffff_0000_00ff;
    words[HEAD] = kept | tag << 8 | sub << 16 | flags << 24 | region << 48;
    words[4] = u64::from(words[4] as u32) | u64::from(high) << 32;
    words[5..].copy_from_slice(&deed);
}

/// The event that words are; `None` for words that are none.
pub(super) fn from_words(words: &[u64; WORDS]) -> Option<Event> {
    let byte = |at: u32| words[HEAD] >> (8 * at) & 0xff;
    let low = |word: usize| words[word] as u32;
    let high = |word: usize| (words[word] >> 32) as u32;
    let (region, rest) = (words[HEAD] >> 48, [words[5], words[6], words[7]]);
    Some(Event {
        sort: *SORTS.get((byte(0) as usize).checked_sub(1)?)?,
        thread: (words[HEAD] >> 32) as u16,
        start: words[1],
        end: Some(words[END]).filter(|&end| end != 0),
        name: TextId(low(3)),
        place: TextId(high(3)),
        window: TextId(low(4)),
        deed: unpack(((byte(1), byte(2), byte(3)), region, high(4), rest))?,
    })
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spot() -> impl Strategy<Value = Spot> {
        any::<(u32, Option<(u16, u64)>)>().prop_map(|(pe, offset)| Spot { pe, offset })
    }

    fn deed() -> impl Strategy<Value = Deed> {
        let kind = proptest::sample::select(&Kind::ALL[..]);
        let cmp = proptest::sample::select(&COMPARISONS[..]);
        let what = proptest::sample::select(&Awaited::ALL[..]);
        prop_oneof![
            Just(Deed::None),
            (kind, spot(), any::<u64>(), any::<Option<u64>>())
                .prop_map(|(kind, at, bytes, value)| Deed::Operation { kind, at, bytes, value }),
            (spot(), any::<u64>(), cmp, any::<u64>())
                .prop_map(|(at, bytes, cmp, value)| Deed::Word { at, bytes, cmp, value }),
            any::<(u32, u32, u64)>().prop_map(|(slot, members, bytes)| Deed::Team {
                slot,
                members: TextId(members),
                bytes
            }),
            any::<(u32, u32, bool)>().prop_map(|(slot, members, arrives)| Deed::Phase {
                slot,
                members: TextId(members),
                arrives
            }),
            what.prop_map(Deed::Wait),
        ]
    }

    pub(in crate::endpoint::recorder::events) fn event() -> impl Strategy<Value = Event> {
        let sort = proptest::sample::select(&SORTS[..]);
        let numbers = any::<(u16, u64, Option<std::num::NonZeroU64>, u32, u32, u32)>();
        (sort, numbers, deed()).prop_map(|(sort, numbers, deed)| Event {
            sort,
            thread: numbers.0,
            start: numbers.1,
            end: numbers.2.map(u64::from),
            name: TextId(numbers.3),
            place: TextId(numbers.4),
            window: TextId(numbers.5),
            deed,
        })
    }

    proptest! {
        #[test]
        fn events_are_read_as_they_were_written(event in event()) {
            let words = to_words(&event);
            prop_assert!(words[HEAD] != 0);
            prop_assert_eq!(from_words(&words), Some(event));
        }

        /// Whatever stands there: no event, or one that is written as itself.
        #[test]
        fn garbage_is_no_event_or_one(words: [u64; WORDS]) {
            if let Some(event) = from_words(&words) {
                prop_assert_eq!(from_words(&to_words(&event)), Some(event));
            }
        }

        #[test]
        fn areas_lie_in_their_bytes(bytes in 0..1u64 << 36, events in 1..1u64 << 28) {
            if let Some(areas) = Areas::of(bytes) {
                prop_assert!(areas.text_at(areas.texts) <= areas.record_at(0));
                prop_assert!(areas.record_at(areas.capacity) <= bytes);
            }
            // Often few: in large rooms texts have all that they may, and not an eighth.
            let events = if events % 2 == 0 { events } else { events % 100_000 + 1 };
            let areas = Areas::of(Areas::bytes_for(events)).expect("room for an event");
            prop_assert!(areas.capacity() >= events);
        }

        /// More events never have less room, however many they are.
        #[test]
        fn rooms_grow_with_their_events(events: u64, more: u64) {
            let [room, larger] = [events, events.saturating_add(more)].map(Areas::bytes_for);
            prop_assert!(room <= larger);
        }
    }
}
