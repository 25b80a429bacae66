//! The data-line twist: boards that permute the 64 data lines between north bridge and slot.
//!
//! The NIC works on the words that it is sent (a header, an address, a length), and hosts with
//! other boards read them. So software has to undo the permutation before it writes and after it
//! reads. Plain memory would not need that: it returns words as they came, twisted twice.

/// The wiring: the data line of the bus for each data line of the slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Twist {
    /// Bit `i` at the NIC is bit `line[i]` at the host.
    line: [u8; 64],
}

impl Twist {
    /// The wiring without a permutation.
    pub fn straight() -> Twist {
        Twist { line: std::array::from_fn(|bit| bit as u8) }
    }

    /// The wiring of boards whose resistor packs are reversed: the lines of each group of four are
    /// crossed.
    pub fn crossed_fours() -> Twist {
        Twist { line: std::array::from_fn(|bit| (bit as u8) ^ 3) }
    }

    /// Whether software has nothing to undo.
    pub fn is_straight(&self) -> bool {
        *self == Twist::straight()
    }

    /// A host's word as the NIC gets it. Software applies this to words that it has read.
    pub fn to_nic(&self, word: u64) -> u64 {
        let bits = self.line.iter().enumerate();
        bits.fold(0, |seen, (bit, &line)| seen | (word >> line & 1) << bit)
    }

    /// A NIC's word as the host gets it. Software applies this to words before it writes them. In
    /// the machine that takes the time of `host.twist_word`, and needs no computing.
    #[cfg(test)]
    pub fn to_host(&self, word: u64) -> u64 {
        let bits = self.line.iter().enumerate();
        bits.fold(0, |sent, (bit, &line)| sent | (word >> bit & 1) << line)
    }

    /// Applies `turn` to a block, word by word. The last word is filled up with zeros.
    pub fn each(&self, bytes: &[u8], turn: impl Fn(&Twist, u64) -> u64) -> Vec<u8> {
        let words = bytes.chunks(8).flat_map(|part| {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            turn(self, u64::from_le_bytes(word)).to_le_bytes()
        });
        words.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_twist() -> impl Strategy<Value = Twist> {
        Just(std::array::from_fn::<u8, 64, _>(|bit| bit as u8))
            .prop_map(|lines| lines.to_vec())
            .prop_shuffle()
            .prop_map(|lines| Twist { line: lines.try_into().unwrap() })
    }

    proptest! {
        #[test]
        fn software_undoes_the_wires(twist in any_twist(), word: u64, other: u64) {
            prop_assert_eq!(twist.to_nic(twist.to_host(word)), word);
            prop_assert_eq!(twist.to_host(twist.to_nic(word)), word);
            prop_assert_eq!(twist.to_nic(word) == twist.to_nic(other), word == other);
            prop_assert_eq!(twist.to_nic(word).count_ones(), word.count_ones());
        }

        #[test]
        fn blocks_too(twist in any_twist(), bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let seen = twist.each(&twist.each(&bytes, Twist::to_host), Twist::to_nic);
            prop_assert_eq!(&seen[..bytes.len()], &bytes[..]);
        }
    }

    #[test]
    fn what_is_not_undone_arrives_twisted() {
        assert_eq!(Twist::crossed_fours().to_nic(0b0001), 0b1000);
        assert!(Twist::straight().is_straight() && !Twist::crossed_fours().is_straight());
    }
}
