//! Collectives that the network makes: broadcasts of a few bytes, and reductions and scans of a few
//! numbers, of all PEs.
//!
//! They are used where the fabric offers them ([`NetworkCollectives`]), and cost no message. They
//! use no lines, no eager buffers and no steps, at any member: which way a collective goes depends
//! on arguments that all members give alike. What is longer than the network takes at once is cut
//! into parts, up to [`MOST_PARTS`], one after the other.
//!
//! Integers travel as words of 64 bits. Sums, ands and ors of words have the same low bits as those
//! of the elements. For minimum and maximum, a signed element is sign-extended and its sign bit
//! flipped, so that unsigned words have the order of the elements.
//!
//! Floating-point numbers travel as words, too. For minimum and maximum they become integers of the
//! same order: the sign bit of a positive number is flipped, and all bits of a negative one. A NaN
//! becomes the word that loses against all others, as these operators take the other number. Sums
//! are the network's: it adds in the order of ranks, as every other algorithm does, so the bits of
//! the result are theirs.
//!
//! **Before one begins, the team's barrier that is under way is ended**, as before a step: both may
//! use the same wires.
//!
//! **When members leave.** Each member writes into a word of its own, before it begins a
//! collective, how many it has begun. A member that waits reads this word of those that have left.
//! A member whose wait has ended in an error uses the network no more: its later collectives fail
//! by the other algorithms.

use super::operator::{Elements, Goal, NumberKind, Numbers};
use super::{Broadcast, SymmetricRange};
use crate::base::error::Quick;
use crate::base::layout::BarrierSlot;
use crate::base::shm;
use crate::endpoint::fabric::{NetworkCollective, WordOperator};
use crate::endpoint::pe::Pe;
use crate::team::Team;
use crate::wait::{self, Awaiting, Terms};
use std::mem::offset_of;
use std::sync::atomic::Ordering;

/// The most parts into which a collective is cut. On SCC, 16 parts of a broadcast to one other PE
/// take 236 us, and 282 by messages; 32 parts take 469 us, and 409 by messages. On more PEs
/// messages gain later.
const MOST_PARTS: usize = 16;

/// Bytes of a word of the network.
const WORD_BYTES: usize = 8;

/// Bytes of a reduction's elements as words of the network, if they can be such.
pub(super) fn as_words(elements: &Elements<'_>, goal: Goal, bytes: usize) -> Option<usize> {
    // A program's own operator may claim that elements of any size are numbers.
    let Numbers { operator, kind } = elements.numbers?;
    let has_words = match (kind, operator) {
        (NumberKind::Float, WordOperator::AddSingle) => elements.size == 4,
        (NumberKind::Float, WordOperator::AddDouble) => elements.size == 8,
        (NumberKind::Float, WordOperator::Min | WordOperator::Max) => {
            matches!(elements.size, 4 | 8)
        }
        (NumberKind::Float, _) | (_, WordOperator::AddSingle | WordOperator::AddDouble) => false,
        (NumberKind::Unsigned | NumberKind::Signed, _) => matches!(elements.size, 1 | 2 | 4 | 8),
    };
    let fits = has_words && (goal != Goal::Exclusive || operator == WordOperator::Add);
    fits.then_some(bytes / elements.size * WORD_BYTES)
}

impl Team {
    /// The most bytes of a broadcast that the network makes for this team; 0 where it makes none.
    /// It makes reductions and scans of an eighth as many numbers. They are cut into as many
    /// collectives of the network as they need.
    pub fn most_in_network(&self) -> usize {
        self.network().most.saturating_mul(MOST_PARTS)
    }

    /// Broadcasts by the network.
    pub(super) fn broadcast_in_network(&self, broadcast: Broadcast) -> Quick<()> {
        let Broadcast { root, from, .. } = broadcast;
        let to = broadcast.own_to(self.rank());
        let mut part = vec![0; from.bytes];
        // SAFETY: `check_places` has found the place inside of this PE's segment; the vector is as
        // long.
        unsafe { shm::copy(part.as_mut_ptr(), self.here(from), from.bytes) };
        let what = NetworkCollective::Broadcast { root: root as u32 };
        let result = self.in_network(what, &part)?;
        // SAFETY: as above; the result is as long as the part.
        unsafe { shm::copy(self.here(to), result.as_ptr(), to.bytes) };
        Ok(())
    }

    /// Reduces or scans elements that can be [words](as_words).
    pub(super) fn combine_in_network(
        &self,
        size: usize,
        numbers: Numbers,
        goal: Goal,
        to: SymmetricRange,
        from: SymmetricRange,
    ) -> Quick<()> {
        let operator = numbers.operator;
        let what = match goal {
            Goal::All => NetworkCollective::AllReduce(operator),
            Goal::Root(root) => NetworkCollective::Reduce { root: root as u32, operator },
            // An exclusive scan is an inclusive sum from which each member subtracts its own
            // elements.
            Goal::Inclusive | Goal::Exclusive => NetworkCollective::Scan(operator),
        };
        let widening = Widening::new(size, numbers);
        let mut bytes = vec![0; from.bytes];
        // SAFETY: `check_places` has found the place inside of this PE's segment; the vector is as
        // long.
        unsafe { shm::copy(bytes.as_mut_ptr(), self.here(from), from.bytes) };
        let words: Vec<u64> =
            bytes.chunks_exact(size).map(|element| widening.widen(element)).collect();
        let part: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let result = self.in_network(what, &part)?;
        if matches!(goal, Goal::Root(root) if root != self.rank()) {
            return Ok(());
        }
        for ((result, element), own) in
            result.chunks_exact(WORD_BYTES).zip(bytes.chunks_exact_mut(size)).zip(words)
        {
            let word = u64::from_le_bytes(result.try_into().expect("a word's bytes"));
            let word = if goal == Goal::Exclusive { word.wrapping_sub(own) } else { word };
            widening.narrow(word, element);
        }
        // SAFETY: as above.
        unsafe { shm::copy(self.here(to), bytes.as_ptr(), to.bytes) };
        Ok(())
    }

    /// Lets the network make a collective, in parts that it takes, one after the other. Gives its
    /// result, which is as long as `given`.
    fn in_network(&self, what: NetworkCollective, given: &[u8]) -> Quick<Vec<u8>> {
        let parts = given.chunks(self.network().most);
        let results = parts.map(|part| self.part_in_network(what, part));
        Ok(results.collect::<Quick<Vec<_>>>()?.concat())
    }

    /// Lets the network make a collective of one part.
    fn part_in_network(&self, what: NetworkCollective, part: &[u8]) -> Quick<Vec<u8>> {
        let (pe, network) = (self.pe(), self.network());
        let offered = pe.fabric().collectives().expect("what the team has joined");
        self.split_barrier().complete_for_collective()?;
        let number = network.begun.load(Ordering::Relaxed) + 1;
        network.begun.store(number, Ordering::Relaxed);
        let begun = Pe::barrier_slot(self.slot()) + offset_of!(BarrierSlot, collectives) as u64;
        // SAFETY: an aligned word of this PE's own slot.
        unsafe { shm::store(pe.local(begun).cast::<u64>(), number) };
        let has_begun = |other: usize| {
            let word = pe.route(other, begun).load::<u64>(pe);
            matches!(word, Ok(at) if at >= number)
        };
        let terms = Terms::forever(Awaiting::Step {
            members: self.members(),
            done: &has_begun,
            meeting: self.meeting(),
        });
        let mut result = vec![0; part.len()];
        let ended = offered.begin(what, part).and_then(|()| {
            wait::until(pe, terms, || match offered.end(&mut result) {
                Ok(false) => None,
                Ok(true) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            })?
        });
        if let Err(error) = &ended {
            network.failed.store(true, Ordering::Relaxed);
            self.split_barrier().end_if_interrupted(error);
        }
        Ok(ended.map(|()| result)?)
    }
}

/// How elements become words of the network.
#[derive(Debug, Clone, Copy)]
enum Widening {
    /// Integers of this size, zero-extended or sign-extended.
    Integer { size: usize, signed: bool },
    /// Signed integers of this size, in the order of unsigned words.
    SignedInOrder { size: usize },
    /// The bits of floating-point numbers of this size.
    Bits { size: usize },
    /// Floating-point numbers of this size, in the order of unsigned words, with the word of NaN.
    FloatInOrder { size: usize, nan: u64 },
}

const SIGN: u64 = 1 << 63;

impl Widening {
    fn new(size: usize, Numbers { operator, kind }: Numbers) -> Widening {
        // The word that loses, whose bits as a number are a NaN.
        let loser = match operator {
            WordOperator::Min => Some(u64::MAX),
            WordOperator::Max => Some(0),
            _ => None,
        };
        match (kind, loser) {
            (NumberKind::Float, Some(nan)) => Widening::FloatInOrder { size, nan },
            (NumberKind::Float, None) => Widening::Bits { size },
            (NumberKind::Signed, Some(_)) => Widening::SignedInOrder { size },
            (NumberKind::Signed | NumberKind::Unsigned, _) => {
                Widening::Integer { size, signed: kind == NumberKind::Signed }
            }
        }
    }

    fn widen(self, element: &[u8]) -> u64 {
        match self {
            Widening::Integer { size, signed } => extended(&element[..size], signed),
            Widening::SignedInOrder { size } => extended(&element[..size], true) ^ SIGN,
            Widening::Bits { size } => extended(&element[..size], false),
            Widening::FloatInOrder { size, nan } => {
                let number = float(&element[..size]);
                let bits = number.to_bits();
                match number {
                    _ if number.is_nan() => nan,
                    _ if number.is_sign_negative() => !bits,
                    _ => bits ^ SIGN,
                }
            }
        }
    }

    fn narrow(self, word: u64, element: &mut [u8]) {
        let (size, word) = match self {
            Widening::Integer { size, .. } | Widening::Bits { size } => (size, word),
            Widening::SignedInOrder { size } => (size, word ^ SIGN),
            Widening::FloatInOrder { size, .. } => {
                let bits = if word & SIGN == 0 { !word } else { word ^ SIGN };
                let single = || u64::from((f64::from_bits(bits) as f32).to_bits());
                (size, if size == WORD_BYTES { bits } else { single() })
            }
        };
        element.copy_from_slice(&word.to_le_bytes()[..size]);
    }
}

/// An integer as a word.
fn extended(element: &[u8], signed: bool) -> u64 {
    let negative = signed && element.last().is_some_and(|last| last & 0x80 != 0);
    let mut word = if negative { [0xff; WORD_BYTES] } else { [0; WORD_BYTES] };
    word[..element.len()].copy_from_slice(element);
    u64::from_le_bytes(word)
}

/// A floating-point number of 4 or 8 bytes, which a double holds without loss.
fn float(element: &[u8]) -> f64 {
    match element.try_into().map(u32::from_le_bytes) {
        Ok(single) => f32::from_bits(single).into(),
        Err(_) => f64::from_bits(extended(element, false)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn numbers(operator: WordOperator, kind: NumberKind) -> Numbers {
        Numbers { operator, kind }
    }

    #[test]
    fn words_have_the_order_of_elements() {
        let widening = Widening::new(2, numbers(WordOperator::Min, NumberKind::Signed));
        let values = [i16::MIN, -2, -1, 0, 1, i16::MAX];
        let words = values.map(|value| widening.widen(&value.to_le_bytes()));
        assert!(words.is_sorted_by(|a, b| a < b));
        for (word, value) in words.into_iter().zip(values) {
            let mut element = [0; 2];
            widening.narrow(word, &mut element);
            assert_eq!(i16::from_le_bytes(element), value);
        }
    }

    #[test]
    fn words_have_the_order_of_floats_and_nan_loses() {
        for operator in [WordOperator::Min, WordOperator::Max] {
            let single = Widening::new(4, numbers(operator, NumberKind::Float));
            let double = Widening::new(8, numbers(operator, NumberKind::Float));
            let values = [f32::NEG_INFINITY, f32::MIN, -1.5, -f32::MIN_POSITIVE, -1e-45, -0.0];
            let values = values.into_iter().chain(values.into_iter().rev().map(|value| -value));
            let mut last = None;
            for value in values {
                let word = single.widen(&value.to_le_bytes());
                assert_eq!(word, double.widen(&f64::from(value).to_le_bytes()));
                assert!(last.replace(word).is_none_or(|last| last < word), "{value}");
                let (mut of_4, mut of_8) = ([0; 4], [0; 8]);
                single.narrow(word, &mut of_4);
                double.narrow(word, &mut of_8);
                assert_eq!(f32::from_le_bytes(of_4).to_bits(), value.to_bits());
                assert_eq!(f64::from_le_bytes(of_8).to_bits(), f64::from(value).to_bits());
            }
            let nan = double.widen(&(-f64::NAN).to_le_bytes());
            assert_eq!(nan, if operator == WordOperator::Min { u64::MAX } else { 0 });
            let mut element = [0; 4];
            single.narrow(nan, &mut element);
            assert!(f32::from_le_bytes(element).is_nan());
        }
    }
}
