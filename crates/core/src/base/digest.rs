//! Digests by which PEs compare what each of them was given.
//!
//! PEs of one job may be built by different compilers: a Rust program beside a C program, or beside
//! a Python module. The standard library's hashers may change with each release. So these digests
//! are defined here: SHA-256, over bytes in little-endian order. Nobody can find two unlike things
//! of which 128 bits of it are alike, not even a program that looks for them.

use sha2::{Digest as _, Sha256};

/// A digest of what it was given so far.
#[derive(Debug, Clone, Default)]
pub struct Digest(Sha256);

impl Digest {
    /// The digest of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes. Their number is not added.
    #[must_use]
    pub fn bytes(mut self, bytes: impl IntoIterator<Item = u8>) -> Self {
        bytes.into_iter().for_each(|byte| self.0.update([byte]));
        self
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

    /// The digest as a word, where a program that looks for two of the same harms only itself.
    pub fn value(self) -> u64 {
        self.pair()[0]
    }

    /// The digest as two words.
    pub fn pair(self) -> [u64; 2] {
        let bytes = self.0.finalize();
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[8 * at + byte]));
        [word(0), word(1)]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The published values of SHA-256.
    #[test]
    fn digests_are_the_same_in_every_build() {
        let of = |bytes: &str| Digest::new().bytes(bytes.bytes()).pair().map(u64::swap_bytes);
        assert_eq!(of(""), [0xe3b0_c442_98fc_1c14, 0x9afb_f4c8_996f_b924]);
        assert_eq!(of("abc"), [0xba78_16bf_8f01_cfea, 0x4141_40de_5dae_2223]);
    }

    #[test]
    fn numbers_of_words_count() {
        let of = |some: &[usize], more: &[usize]| Digest::new().words(some).words(more).pair();
        assert_ne!(of(&[0], &[]), of(&[0, 0], &[]));
        assert_ne!(of(&[1, 2], &[]), of(&[2, 1], &[]));
        assert_ne!(of(&[1], &[]), of(&[], &[1]));
    }
}
