//! A fabric's own datagrams as a carrier, where the network copies them: a switch.

use super::datagrams::{Carrier, MOST_AT_ONCE};
use crate::base::error::Result;
use crate::endpoint::fabric::{DATAGRAMS_AT_ONCE, DatagramGroup, Datagrams};
use crate::endpoint::pe::Pe;
use memonet_repair::To;
use std::sync::Arc;

/// Readers from which on a copy by the network is better than one put for each.
const LEAST_READERS: usize = 2;

/// Whether the network is asked to carry a channel to so many readers.
pub(super) fn wins(pe: &Pe, readers: usize) -> bool {
    pe.has_far() && readers >= LEAST_READERS && pe.fabric().datagrams().is_some()
}

/// Membership of a group of the network's.
pub(super) struct Membership {
    pe: Arc<Pe>,
    group: DatagramGroup,
    members: Vec<usize>,
    /// Who of them is the writer.
    writer: usize,
    /// Datagrams to all that are sent in one go: all are as large as may be, or it would have been
    /// sent.
    kept: Vec<u8>,
}

impl Membership {
    /// Joins a group of these PEs for this purpose, with all of them; the first is the writer until
    /// another is [named](Self::name_writer). Nothing, at all of them, where the network does not
    /// serve it.
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

    /// From now on the `number`-th member is the writer.
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
        // Who unwinds calls nobody: the group ends with the job then.
        if !std::thread::panicking()
            && let Err(error) = self.datagrams().leave(self.group)
        {
            self.pe.surface_later(error);
        }
    }
}
