//! The NIC's own memory: LLCM, which both sides see, and the two banks, of which each side sees
//! one.

use super::header::PAGE;
use std::collections::BTreeMap;

/// The physical address at which each side sees its own bank. LLCM begins at 0.
pub const BANK: u64 = 1 << 32;
/// From this address on there is what the driver alone reads and writes: header table, TLBs, and
/// the registers with the process groups.
pub const CONTROL: u64 = 1 << 48;

/// The side that reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Through the slot.
    Host,
    /// From the link.
    Network,
}

#[derive(Debug, Clone, Default)]
struct Sparse {
    pages: BTreeMap<u64, Box<[u8; PAGE as usize]>>,
}

impl Sparse {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        let (mut at, mut bytes) = (at, bytes);
        while !bytes.is_empty() {
            let (page, offset) = (at / PAGE, (at % PAGE) as usize);
            let (here, rest) = bytes.split_at(bytes.len().min(PAGE as usize - offset));
            self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE as usize]))
                [offset..offset + here.len()]
                .copy_from_slice(here);
            (at, bytes) = (at + here.len() as u64, rest);
        }
    }

    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = at + bytes.len() as u64;
            let offset = (at % PAGE) as usize;
            let here = (len - bytes.len()).min(PAGE as usize - offset);
            match self.pages.get(&(at / PAGE)) {
                Some(page) => bytes.extend_from_slice(&page[offset..offset + here]),
                None => bytes.resize(bytes.len() + here, 0),
            }
        }
        bytes
    }
}

/// The memory of one NIC.
#[derive(Debug, Clone, Default)]
pub struct NicMemory {
    llcm: Sparse,
    banks: [Sparse; 2],
    /// The bank on the network's side.
    network: usize,
}

impl NicMemory {
    /// Whether these bytes exist.
    pub fn has(llcm: u64, bank: u64, at: u64, len: u64) -> bool {
        let inside =
            |start: u64, size: u64| at >= start && at - start <= size && len <= size - (at - start);
        inside(0, llcm) || inside(BANK, bank)
    }

    fn part(&mut self, side: Side, at: u64) -> (&mut Sparse, u64) {
        let bank = match side {
            Side::Network => self.network,
            Side::Host => 1 - self.network,
        };
        match at.checked_sub(BANK) {
            None => (&mut self.llcm, at),
            Some(at) => (&mut self.banks[bank], at),
        }
    }

    /// Writes bytes that [exist](Self::has).
    pub fn write(&mut self, side: Side, at: u64, bytes: &[u8]) {
        let (part, at) = self.part(side, at);
        part.write(at, bytes);
    }

    /// Reads bytes that exist.
    pub fn read(&mut self, side: Side, at: u64, len: usize) -> Vec<u8> {
        let (part, at) = self.part(side, at);
        part.read(at, len)
    }

    /// The FET switches turn: each side gets the other's bank.
    pub fn switch(&mut self) {
        self.network = 1 - self.network;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_arrives_in_a_bank_is_seen_after_a_switch() {
        let mut memory = NicMemory::default();
        memory.write(Side::Network, BANK + 100, b"news");
        memory.write(Side::Network, 100, b"now");
        assert_eq!(memory.read(Side::Host, 100, 3), b"now", "LLCM has no sides");
        assert_eq!(memory.read(Side::Host, BANK + 100, 4), [0; 4]);
        memory.switch();
        assert_eq!(memory.read(Side::Host, BANK + 100, 4), b"news");
        assert_eq!(memory.read(Side::Network, BANK + 100, 4), [0; 4]);
        memory.switch();
        assert_eq!(memory.read(Side::Host, BANK + 100, 4), [0; 4]);
    }

    #[test]
    fn bounds() {
        let has = |at, len| NicMemory::has(1 << 17, 1 << 26, at, len);
        assert!(has(0, 1 << 17) && has(BANK, 1 << 26) && has(BANK + (1 << 26) - 1, 1));
        assert!(
            !has(1, 1 << 17)
                && !has(1 << 17, 1)
                && !has(BANK - 1, 2)
                && !has(BANK + (1 << 26), 1)
                && !has(u64::MAX, 2)
        );
    }

    proptest! {
        #[test]
        fn against_plain_arrays(steps in proptest::collection::vec((any::<bool>(), 0u64..9000, 0usize..5000, any::<u8>()), 1..30)) {
            let mut memory = NicMemory::default();
            let mut plain = [vec![0u8; 16384], vec![0u8; 16384]];
            for (switch, at, len, byte) in steps {
                if switch {
                    memory.switch();
                    plain.swap(0, 1);
                }
                memory.write(Side::Network, BANK + at, &vec![byte; len]);
                plain[0][at as usize..at as usize + len].fill(byte);
                for (side, plain) in [(Side::Network, &plain[0]), (Side::Host, &plain[1])] {
                    prop_assert_eq!(&memory.read(side, BANK, 16384), plain);
                }
            }
        }
    }
}
