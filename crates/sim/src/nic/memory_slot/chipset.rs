//! Address recovery: chipsets split an address into bank, row and column, each by its own rule.
//!
//! A slot never sees an address. It sees a row and then a column, on the same few lines. The NIC
//! needs the address that the CPU has used, so it has a rule for each chipset that its version
//! supports, and the driver tells it which. By a wrong rule it takes one address for another.
//!
//! That rules differ, and for which chipsets the NIC has one, is published. **The rules are not:**
//! those here are assumed. They differ in where a rule takes the bank's two bits from, and in the
//! order of the row's lines, as real ones do. The lowest ten bits that are left are the column.

use crate::machine::{MachineError, Section};

/// Lines of a column, a bank and a row of the modules of the time; and the bits of an address that
/// name a byte in a word, which go by lines of their own.
const COLUMN: u32 = 10;
const BANK: u32 = 2;
const ROW: u32 = 13;
const BYTE: u32 = 3;
/// Bits of an address within a module. Those above choose the module, and are not split.
const BITS: u32 = BYTE + COLUMN + BANK + ROW;

/// A chipset's north bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chipset {
    /// Intel 440BX.
    Bx,
    /// Intel i810.
    I810,
    /// Intel i815.
    I815,
    /// Intel i845, for which only the second version of the NIC's chip has a rule.
    I845,
    /// VIA Pro133, and Pro133A.
    Pro133,
    /// VIA Pro266.
    Pro266,
    /// VIA KT133.
    Kt133,
    /// VIA KT266.
    Kt266,
    /// VIA P4X266.
    P4x266,
    /// VIA P4M266.
    P4m266,
}

use Chipset::{Bx, I810, I815, I845, Kt133, Kt266, P4m266, P4x266, Pro133, Pro266};

/// All chipsets, by the names that machine files give them.
pub(super) const CHIPSETS: [(&str, Chipset); 10] = [
    ("BX", Bx),
    ("i810", I810),
    ("i815", I815),
    ("i845", I845),
    ("Pro133", Pro133),
    ("Pro266", Pro266),
    ("KT133", Kt133),
    ("KT266", Kt266),
    ("P4X266", P4x266),
    ("P4M266", P4m266),
];

/// What a slot sees of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Split {
    /// Bits that are not split: which module, and which byte of a word.
    rest: u64,
    column: u64,
    bank: u64,
    row: u64,
}

impl Chipset {
    /// From which bit on the bank is taken, and by how many lines the row is turned.
    fn rule(self) -> (u32, u32) {
        match self {
            Bx => (13, 0),
            I810 => (12, 0),
            I815 => (12, 1),
            I845 => (14, 1),
            Pro133 => (26, 0),
            Pro266 => (26, 1),
            Kt133 => (25, 0),
            Kt266 => (25, 1),
            P4x266 => (24, 0),
            P4m266 => (24, 1),
        }
    }

    /// An address as the chipset puts it on the slot's lines.
    pub(super) fn split(self, address: u64) -> Split {
        let (bank_at, turn) = self.rule();
        let (below, bank) = (address & mask(bank_at), address >> bank_at & mask(BANK));
        // The address without the bank's bits, and without the byte's.
        let left = (below | address >> (bank_at + BANK) << bank_at) >> BYTE;
        let row = left >> COLUMN & mask(ROW);
        Split {
            rest: address & (!mask(BITS) | mask(BYTE)),
            column: left & mask(COLUMN),
            bank,
            row: (row << turn | row >> (ROW - turn)) & mask(ROW),
        }
    }

    /// The address that the slot's lines name, if this is the chipset.
    pub(super) fn join(self, Split { rest, column, bank, row }: Split) -> u64 {
        let (bank_at, turn) = self.rule();
        let row = (row >> turn | row << (ROW - turn)) & mask(ROW);
        let left = (column | row << COLUMN) << BYTE;
        let (below, above) = (left & mask(bank_at), left >> bank_at << (bank_at + BANK));
        rest | above | bank << bank_at | below
    }

    /// Why a version of the NIC's chip cannot recover this chipset's addresses, if it cannot.
    pub(super) fn refused_by(self, first_version: bool) -> Option<String> {
        let all = CHIPSETS.iter().filter(|(_, other)| *other != I845);
        let names: Vec<_> = all.map(|(name, _)| *name).collect();
        (first_version && self == I845).then(|| {
            format!(
                "is i845, for which the first version of the NIC's chip (send.version) has no rule; it has them for {}",
                names.join(", ")
            )
        })
    }

    /// The chipset of a host, and whether the NIC's chip is the first version. It must have a rule
    /// for the chipset.
    pub(super) fn read(
        host: &Section<'_>,
        send: &Section<'_>,
    ) -> Result<(Chipset, bool), MachineError> {
        let chipset = host.choice("chipset_rule", &CHIPSETS)?;
        let first = send.choice("version", &[("first", true), ("second", false)])?;
        match chipset.refused_by(first) {
            Some(problem) => Err(host.error("chipset_rule", problem)),
            None => Ok((chipset, first)),
        }
    }
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_chipset() -> impl Strategy<Value = Chipset> {
        (0..CHIPSETS.len()).prop_map(|place| CHIPSETS[place].1)
    }

    proptest! {
        #[test]
        fn the_right_rule_recovers_every_address(chipset in any_chipset(), address: u64) {
            let split = chipset.split(address);
            prop_assert_eq!(chipset.join(split), address);
            prop_assert!(split.column <= mask(COLUMN) && split.bank <= mask(BANK));
            prop_assert!(split.row <= mask(ROW));
        }

        /// Lines name one address each, also by the wrong rule, and a word stays a word.
        #[test]
        fn a_wrong_rule_permutes(board in any_chipset(), nic in any_chipset(), one: u64, other: u64) {
            let seen = |address| nic.join(board.split(address));
            prop_assert_eq!(seen(one) == seen(other), one == other);
            prop_assert_eq!(seen(one) & 7, one & 7);
            prop_assert_eq!(seen(one).count_ones(), one.count_ones());
        }
    }

    #[test]
    fn no_two_rules_are_alike() {
        for (nic, one) in CHIPSETS {
            for (board, other) in CHIPSETS.into_iter().filter(|(_, other)| *other != one) {
                let scrambled =
                    (BYTE..BITS).filter(|bit| one.join(other.split(1 << bit)) != 1 << bit);
                assert!(scrambled.count() >= 2, "{nic} on {board}");
            }
        }
    }

    /// A row is 1024 words: who reads on stays in it, or changes the bank.
    #[test]
    fn neighbours_share_a_row() {
        for (name, chipset) in CHIPSETS {
            let rows = (0..4096u64).map(|address| chipset.split(address).row);
            assert!(rows.into_iter().all(|row| row == 0), "{name}");
        }
    }
}
