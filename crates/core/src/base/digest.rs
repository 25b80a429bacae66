//! Digests by which PEs compare what each of them was given.
//!
//! PEs of one job may be built by different compilers: a Rust program beside a C program, or beside
//! a Python module. The standard library's hashers may change with each release. So these digests
//! are defined here: FNV-1a of 64 bits, over bytes in little-endian order.

/// A digest of what it was given so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self::new()
    }
}

impl Digest {
    /// The digest of nothing.
    pub const fn new() -> Self {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes. Their number is not added.
    #[must_use]
    pub fn bytes(self, bytes: impl IntoIterator<Item = u8>) -> Self {
        bytes.into_iter().fold(self, |Digest(hash), byte| {
            Digest((hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
        })
    }

    /// Adds a word.
    #[must_use]
    pub fn word(self, word: u64) -> Self {
        self.bytes(word.to_le_bytes())
    }

    /// Adds words, and how many there are.
    #[must_use]
    pub fn words(self, words: &[usize]) -> Self {
        let counted = self.word(words.len() as u64);
        words.iter().fold(counted, |digest, &word| digest.word(word as u64))
    }

    /// The digest as a word.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The published values of FNV-1a.
    #[test]
    fn digests_are_the_same_in_every_build() {
        assert_eq!(Digest::new().value(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Digest::new().bytes(*b"a").value(), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Digest::new().bytes(*b"foobar").value(), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn numbers_of_words_count() {
        let of = |words: &[usize]| Digest::new().words(words).words(&[]);
        assert_ne!(of(&[0]), of(&[0, 0]));
        assert_ne!(of(&[1, 2]), of(&[2, 1]));
        assert_ne!(Digest::new().words(&[1]).words(&[]), Digest::new().words(&[]).words(&[1]));
    }
}
