//! The first of a word's writes that may have ended a wait, without a look at each of them.

use std::collections::HashMap;

use memonet_core::Cmp;

/// A word of so many bytes as a signed number.
pub(super) fn signed(bits: u64, bytes: u64) -> i64 {
    let unused = 64 - 8 * bytes.clamp(1, 8) as u32;
    (bits << unused) as i64 >> unused
}

/// What a word was, by the numbers of its writes.
pub(super) struct Firsts {
    bytes: u64,
    /// The first write of which nobody knows what it wrote: it may have ended any wait.
    unknown: Option<usize>,
    /// The first write of each value.
    of_value: HashMap<i64, usize>,
    /// The first known value, and the first one that differs from it.
    known: Option<(usize, u64)>,
    other: Option<usize>,
    /// Values above all before them: unsigned, and signed.
    above: [Records; 2],
    /// Values below all before them.
    below: [Records; 2],
}

/// Values above all before them, and the numbers of their writes: both grow.
#[derive(Default)]
struct Records(Vec<(i128, usize)>);

impl Records {
    fn add(&mut self, value: i128, number: usize) {
        if self.0.last().is_none_or(|&(highest, _)| value > highest) {
            self.0.push((value, number));
        }
    }

    /// The first write of at least that value.
    fn reached(&self, value: i128) -> Option<usize> {
        let at = self.0.partition_point(|&(one, _)| one < value);
        Some(self.0.get(at)?.1)
    }
}

impl Firsts {
    /// Of a word of so many bytes, and what each write has written, where that is known.
    pub(super) fn new(values: impl Iterator<Item = Option<u64>>, bytes: u64) -> Firsts {
        let mut firsts = Firsts {
            bytes,
            unknown: None,
            of_value: HashMap::new(),
            known: None,
            other: None,
            above: Default::default(),
            below: Default::default(),
        };
        for (number, value) in values.enumerate() {
            match value {
                None => drop(firsts.unknown.get_or_insert(number)),
                Some(value) => firsts.add(number, value),
            }
        }
        firsts
    }

    /// Both views of a value: the word does not say which is right.
    fn views(&self, value: u64) -> [i128; 2] {
        [value.into(), signed(value, self.bytes).into()]
    }

    fn add(&mut self, number: usize, value: u64) {
        self.of_value.entry(signed(value, self.bytes)).or_insert(number);
        let (_, first) = *self.known.get_or_insert((number, value));
        if value != first {
            self.other.get_or_insert(number);
        }
        let views = self.views(value);
        for (at, view) in views.into_iter().enumerate() {
            self.above[at].add(view, number);
            self.below[at].add(-view, number);
        }
    }

    /// The first write whose value is not known to fail the comparison with this one.
    pub(super) fn first(&self, cmp: Cmp, value: u64) -> Option<usize> {
        let reached = |records: &[Records; 2], sign: i128, more: i128| {
            let views = self.views(value).into_iter().zip(records);
            views.filter_map(|(view, all)| all.reached(sign * view + more)).min()
        };
        let known = match cmp {
            Cmp::Eq => self.of_value.get(&signed(value, self.bytes)).copied(),
            Cmp::Ne => match self.known {
                Some((number, first)) if first != value => Some(number),
                _ => self.other,
            },
            Cmp::Ge => reached(&self.above, 1, 0),
            Cmp::Gt => reached(&self.above, 1, 1),
            Cmp::Le => reached(&self.below, -1, 0),
            Cmp::Lt => reached(&self.below, -1, 1),
        };
        known.into_iter().chain(self.unknown).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = u64> {
        prop_oneof![0..6u64, 0xfc..0x103u64, Just(u64::MAX), Just(1 << 63)]
    }

    proptest! {
        #[test]
        fn it_is_the_first_of_all(
            written in prop::collection::vec(prop::option::weighted(0.9, values()), 0..12),
            wanted in values(),
            bytes in prop::sample::select(vec![1u64, 2, 4, 8]),
        ) {
            let firsts = Firsts::new(written.iter().copied(), bytes);
            for cmp in [Cmp::Eq, Cmp::Ne, Cmp::Lt, Cmp::Le, Cmp::Gt, Cmp::Ge] {
                let holds = |value: &Option<u64>| value.is_none_or(|value| {
                    let [value_, wanted_] = [value, wanted].map(|bits| signed(bits, bytes));
                    cmp.holds(value, wanted) || cmp.holds(value_, wanted_)
                });
                let first = written.iter().position(holds);
                prop_assert_eq!(firsts.first(cmp, wanted), first, "{:?}", cmp);
            }
        }
    }
}
