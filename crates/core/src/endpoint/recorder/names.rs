//! Which record of calls a name has.
//!
//! Names are strings of the program's code, so a name is nearly always found by its address, in a
//! table that only grows. A new address takes a mutex and compares the strings: one name may stand
//! at several addresses.

use super::layout::CALLS;
use super::part::Part;
use crate::base::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The record of calls that have none of their own, and of waits outside of all calls.
pub(super) const OTHER: usize = 0;
/// Its name.
const OTHER_NAME: &str = "(other)";

/// Entries of the table: a power of two. When it is full, new addresses are compared each time.
const ENTRIES: usize = 2 * CALLS;

/// The names of a PE's calls.
pub(super) struct Names {
    table: Box<[Entry]>,
    /// By number of their records.
    all: Mutex<Vec<String>>,
}

/// A name that was found before.
#[derive(Default)]
struct Entry {
    /// Its address and length; 0: the entry is free. Written after `slot`, with the mutex.
    key: AtomicU64,
    slot: AtomicU32,
}

/// Addresses of programs have 47 bits; a longer length only costs a comparison of strings.
fn key(name: &'static str) -> Option<u64> {
    let (at, len) = (name.as_ptr() as u64, name.len() as u64);
    (at < 1 << 48 && len < 1 << 16).then_some(at | len << 48)
}

impl Names {
    pub(super) fn of(part: &Part) -> Names {
        let mut all = part.names();
        if all.is_empty() {
            part.name(OTHER, OTHER_NAME);
            all.push(OTHER_NAME.into());
        }
        Names { table: (0..ENTRIES).map(|_| Entry::default()).collect(), all: Mutex::new(all) }
    }

    /// The record of a name. Makes one where there is none yet and one is free.
    #[inline]
    pub(super) fn slot(&self, part: &Part, name: &'static str) -> usize {
        let Some(key) = key(name) else { return self.compare(part, name, None) };
        for at in places(key) {
            match self.table[at].key.load(Ordering::Acquire) {
                0 => break,
                found if found == key => {
                    return self.table[at].slot.load(Ordering::Relaxed) as usize;
                }
                _ => {}
            }
        }
        self.compare(part, name, Some(key))
    }

    #[cold]
    fn compare(&self, part: &Part, name: &'static str, key: Option<u64>) -> usize {
        let mut all = lock(&self.all);
        let slot = match all.iter().position(|known| known == name) {
            Some(slot) => slot,
            None if all.len() < CALLS => {
                part.name(all.len(), name);
                all.push(name.to_owned());
                all.len() - 1
            }
            None => OTHER,
        };
        let is_free = |&at: &usize| self.table[at].key.load(Ordering::Relaxed) == 0;
        if let Some(key) = key
            && let Some(at) = places(key).find(is_free)
        {
            self.table[at].slot.store(slot as u32, Ordering::Relaxed);
            self.table[at].key.store(key, Ordering::Release);
        }
        slot
    }
}

/// The entries in which a key may be, in the order in which they are tried.
fn places(key: u64) -> impl Iterator<Item = usize> {
    let first = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize;
    (0..ENTRIES).map(move |step| first.wrapping_add(step) % ENTRIES)
}
