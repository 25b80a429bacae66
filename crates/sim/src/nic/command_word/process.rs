//! What each process has for itself, also where several share a NIC: its CPU, its command words,
//! the keys of its memory and of its words, and what it waits for.

use super::keys::Keys;
use super::{CommandWord, DONE, REFUSED, RUNNING};
use crate::host::{KeyStep, Op};
use crate::nic::Unit;
use crate::time::Ps;
use std::collections::BTreeMap;

/// A transfer of the library's: PE, region, offset and length, and the offset of the flag.
pub(super) type Transfer = (u32, u32, u64, u32, Option<u64>);

/// A command word in its place, and the state of its last start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    pub(super) word: CommandWord,
    /// Number of starts that the receiver has not answered.
    pub(super) unanswered: u32,
    pub(super) refused: bool,
    /// The transfer that the library built the word for; nothing for a program's word.
    pub(super) used_for: Option<Transfer>,
    /// Number of the program's prepared transfers that keep the word in its place.
    pub(super) kept: u32,
}

impl Placed {
    pub(super) fn new(word: CommandWord, used_for: Option<Transfer>) -> Placed {
        Placed { word, unanswered: 0, refused: false, used_for, kept: 0 }
    }

    pub(super) fn refusal(&self) -> String {
        format!(
            "the NIC of PE {} refused a write: its memory there has another key. Rights to a \
             window's part end when they are revoked; attach with a new key",
            self.word.to.pe
        )
    }

    /// The answer to a test of the word.
    pub(super) fn status(&self) -> u64 {
        match (self.unanswered, self.refused) {
            (_, true) => REFUSED,
            (0, false) => DONE,
            _ => RUNNING,
        }
    }

    /// Number of writes that a start of the word promises.
    pub(super) fn writes(&self, packet: usize) -> u64 {
        u64::from(self.word.len).div_ceil(packet as u64).max(1)
            + u64::from(self.word.flag.is_some())
    }
}

/// A call that has waited since `from` for the transfers of these words.
#[derive(Debug, Clone)]
pub(super) struct Completion {
    pub(super) op: Op,
    pub(super) from: Ps,
    pub(super) places: Vec<usize>,
}

/// A process, which is a PE.
#[derive(Debug, Clone, Default)]
pub(super) struct Process {
    pub(super) cpu: Unit,
    /// Its command words, in kernel space.
    pub(super) words: Vec<Placed>,
    /// Places of the library's words, by their transfers.
    pub(super) known: BTreeMap<Transfer, usize>,
    /// The place from which on the next word of the library's to replace is sought.
    oldest: usize,
    pub(super) keys: Keys,
    /// Number of the library's transfers that have not been answered.
    pub(super) unanswered: u64,
    /// Calls that wait until all of those are answered, and since when.
    pub(super) quiets: Vec<(Op, Ps)>,
    /// Calls that wait until the transfers of some words are answered.
    pub(super) completions: Vec<Completion>,
    /// A refusal since the last such call returned.
    pub(super) refused: Option<String>,
}

impl Process {
    /// Puts a command word among the process's, of which there are at most `limit`. Returns its
    /// place, if there is room.
    pub(super) fn place(&mut self, placed: Placed, limit: usize) -> Option<usize> {
        if self.words.len() < limit {
            self.words.push(placed);
            return Some(self.words.len() - 1);
        }
        // Only places of the library's words are used again, and only when no transfer of the word
        // is under way or prepared.
        let place = (0..limit).map(|step| (self.oldest + step) % limit).find(|&place| {
            let old = &self.words[place];
            old.used_for.is_some() && old.unanswered == 0 && old.kept == 0
        })?;
        self.oldest = (place + 1) % limit;
        let old = std::mem::replace(&mut self.words[place], placed);
        self.known.remove(&old.used_for.expect("only the library's are used again"));
        Some(place)
    }

    /// The calls whose words' transfers are all answered: each with when it began to wait, and why
    /// a receiver has refused one of them.
    pub(super) fn completed(&mut self) -> Vec<(Op, Ps, Option<String>)> {
        let words = &self.words;
        let over = |it: &mut Completion| it.places.iter().all(|&at| words[at].unanswered == 0);
        let over: Vec<_> = self.completions.extract_if(.., over).collect();
        over.into_iter().map(|it| (it.op, it.from, self.refusal_of(&it.places))).collect()
    }

    /// Why the receiver has refused the last transfer of one of these words, if it has.
    pub(super) fn refusal_of(&self, places: &[usize]) -> Option<String> {
        places.iter().map(|&place| &self.words[place]).find(|it| it.refused).map(Placed::refusal)
    }

    /// Admits or carries a key. Whether the kernel has to change anything for that: an area, or
    /// words that it has built.
    pub(super) fn key(&mut self, pe: u32, region: u32, key: u64, step: KeyStep) -> bool {
        let key = (key ^ key >> 32) as u32;
        if step != KeyStep::Carry {
            return self.keys.admit_new(region, key, step == KeyStep::AdmitOnly);
        }
        self.keys.carry(pe, region, key);
        let to_region = self.words.iter_mut().filter(|placed| {
            let to = placed.word.to;
            placed.used_for.is_some() && (to.pe, to.region) == (pe, region)
        });
        let stale: Vec<_> = to_region.filter(|placed| placed.word.key != key).collect();
        let changes = !stale.is_empty();
        stale.into_iter().for_each(|placed| placed.word.key = key);
        changes
    }
}
