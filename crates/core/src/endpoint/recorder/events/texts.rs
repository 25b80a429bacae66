//! Which numbers the texts of a program have that it uses again and again.
//!
//! They are parts of its code, so each is known by its address. A table that only grows finds a
//! text without a lock; a new one takes a mutex.

use super::TextId;
use crate::base::lock;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Entries of the table: a power of two. What does not get one of its two entries takes the mutex
/// each time.
const ENTRIES: usize = 4096;

pub(super) struct Texts {
    table: Box<[Entry]>,
    all: Mutex<HashMap<u64, TextId>>,
}

/// A text that was found before.
#[derive(Default)]
struct Entry {
    /// Its address and length; 0: the entry is free. Written after `id`, with the mutex, and never
    /// again.
    key: AtomicU64,
    id: AtomicU32,
}

impl Default for Texts {
    fn default() -> Self {
        let table = (0..ENTRIES).map(|_| Entry::default()).collect();
        Texts { table, all: Mutex::default() }
    }
}

impl Texts {
    /// The number of the text at an address of the program's code; `add` makes it if it is new.
    #[inline]
    pub(super) fn find(&self, address: usize, len: usize, add: impl FnOnce() -> TextId) -> TextId {
        // Addresses of programs have 47 bits. A longer text would only be taken for another one at
        // the same address.
        let key = address as u64 | (len as u64) << 48;
        for entry in self.entries(key) {
            if entry.key.load(Ordering::Acquire) == key {
                return TextId(entry.id.load(Ordering::Relaxed));
            }
        }
        self.find_slowly(key, add)
    }

    #[cold]
    fn find_slowly(&self, key: u64, add: impl FnOnce() -> TextId) -> TextId {
        let mut all = lock(&self.all);
        let id = *all.entry(key).or_insert_with(add);
        let mut entries = self.entries(key);
        let is_known = entries.iter().any(|entry| entry.key.load(Ordering::Relaxed) == key);
        let free = entries.iter_mut().find(|entry| entry.key.load(Ordering::Relaxed) == 0);
        if let Some(free) = free.filter(|_| !is_known) {
            free.id.store(id.0, Ordering::Relaxed);
            free.key.store(key, Ordering::Release);
        }
        id
    }

    /// The entries in which a text may be.
    fn entries(&self, key: u64) -> [&Entry; 2] {
        let first = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % ENTRIES;
        [&self.table[first], &self.table[first ^ 1]]
    }
}
