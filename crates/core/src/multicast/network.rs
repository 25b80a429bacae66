//! A fabric's own datagrams as a carrier, where a switch of the network copies them.

use super::datagrams::{Carrier, MOST_AT_ONCE};
use crate::base::error::Result;
use crate::base::unwinding::unwinds;
use crate::endpoint::fabric::{DATAGRAMS_AT_ONCE, DatagramGroup, Datagrams};
use crate::endpoint::pe::Pe;
use memonet_repair::To;
use std::sync::Arc;

/// The number of readers from which on copies by the network beat one put for each.
const LEAST_READERS: usize = 2;

/// Whether the network may carry blocks to so many readers.
pub(super) fn serves(pe: &Pe, readers: usize) -> bool {
    pe.has_fabric() && readers >= LEAST_READERS && pe.fabric().datagrams().is_some()
}

/// Whether the network brings blocks to so many readers faster than PEs that pass them on.
pub(super) fn wins(pe: &Pe, readers: usize) -> bool {
    let is_faster = |datagrams: &dyn Datagrams| readers <= datagrams.most_readers();
    serves(pe, readers) && pe.fabric().datagrams().is_some_and(is_faster)
}

/// Membership of a group of the network.
pub(super) struct Membership {
    pe: Arc<Pe>,
    group: DatagramGroup,
    members: Vec<usize>,
    /// The place of the writer among the members.
    writer: usize,
    /// Datagrams to all that are sent in one go. All have the largest size: a shorter one is sent
    /// at once.
    kept: Vec<u8>,
}

impl Membership {
    /// Joins a group of these PEs for this purpose, together with all of them. The first is the
    /// writer until another is [named](Self::name_writer). Gives `None`, at all PEs, where the
    /// network does not serve the group.
    pub(super) fn join(pe: &Arc<Pe>, members: &[usize], purpose: u32) -> Result<Option<Self>> {
        let Some(datagrams) = pe.fabric().datagrams() else {
            return Ok(None);
        };
        let group = datagrams.join(members, purpose)?;
        Ok(group.map(|group| Membership {
            pe: pe.clone(),
            group,
            members: members.to_vec(),
            writer: 0,
            kept: Vec::new(),
        }))
    }

    pub(super) fn group(&self) -> DatagramGroup {
        self.group
    }

    /// Makes the `number`-th member the writer.
    pub(super) fn name_writer(&mut self, number: usize) {
        self.writer = number;
    }

    fn datagrams(&self) -> &dyn Datagrams {
        self.pe.fabric().datagrams().expect("of this fabric it is the group")
    }
}

impl Carrier for Membership {
    fn receive(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut taken = 0;
        while self.datagrams().receive(self.group, take)? {
            taken += 1;
            if taken == MOST_AT_ONCE {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn send(&mut self, datagram: &[u8], to: To) -> Result<()> {
        if to == To::Writer {
            return self.datagrams().send(self.group, Some(self.members[self.writer]), datagram);
        }
        self.kept.extend_from_slice(datagram);
        match datagram.len() < self.group.most
            || self.kept.len() >= DATAGRAMS_AT_ONCE * self.group.most
        {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        let sent = match self.kept.is_empty() {
            true => Ok(()),
            false => self.datagrams().send(self.group, None, &self.kept),
        };
        self.kept.clear();
        sent
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // A PE that unwinds makes no calls of the fabric: the group then ends with the job.
        if !unwinds()
            && let Err(error) = self.datagrams().leave(self.group)
        {
            self.pe.surface_later(error);
        }
    }
}
