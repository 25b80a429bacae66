//! What a process may ask of the machine. Nothing that a process writes is believed.

use crate::host::Answer;
use crate::time::Ps;
use memonet_core::unstable::fabric::FarAddress;
use memonet_core::unstable::hosted::{Ask, Hosted, KeyStep, MOST_BYTES};
use std::collections::BTreeMap;

/// No network takes longer packets.
const LONGEST_PACKET_BYTES: usize = 1 << 20;

const NO_BARRIER: &str = "this PE has joined no such barrier of the machine's";
const NOT_COMPLETE: &str = "this PE has not seen the barrier's last phase complete";

/// What one PE has joined, and so may ask.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    /// The groups for barriers that the PE is in.
    barriers: BTreeMap<u32, Phases>,
    joined_collectives: bool,
    collectives_serve: bool,
}

/// Where a PE is in the phases of a group's barrier.
#[derive(Debug, Clone, Copy, Default)]
struct Phases {
    arrived: u64,
    complete: u64,
}

impl Rules {
    /// Refuses what the PE may not ask at `at`.
    pub(crate) fn check(
        &mut self,
        hosted: &Hosted,
        pe: u32,
        ask: Ask,
        at: Ps,
    ) -> Result<(), &'static str> {
        at.in_time()?;
        let is_block = matches!(ask, Ask::Put { .. } | Ask::Get { .. } | Ask::WriteAll { .. });
        let most = if is_block { MOST_BYTES } else { LONGEST_PACKET_BYTES };
        if ask.gives().max(ask.takes()) > most {
            return Err("no block is that long");
        }
        match ask {
            Ask::Begin => Err("this PE has begun already"),
            Ask::Store { .. }
            | Ask::Put { .. }
            | Ask::Command { .. }
            | Ask::Key { .. }
            | Ask::Get { .. }
            | Ask::Atomic { .. }
            | Ask::Mark { .. }
            | Ask::Await { .. }
            | Ask::WriteAll { .. } => check_memory(hosted, pe, ask),
            Ask::Arrive { group } => self.check_arrival(group),
            Ask::Step { group } | Ask::Phase { group } if !self.barriers.contains_key(&group) => {
                Err(NO_BARRIER)
            }
            Ask::Leave { group } => self.check_leave(group),
            Ask::JoinCollectives | Ask::Collective { .. } | Ask::Collected { .. } => {
                self.check_collectives(ask)
            }
            Ask::Join { len } | Ask::JoinCopies { len } | Ask::JoinDatagrams { len, .. }
                if len % 4 != 0 =>
            {
                Err("a list of members has 4 bytes for each")
            }
            Ask::Compute { time } => (at + Ps::from_duration(time)).in_time(),
            Ask::Join { .. }
            | Ask::JoinCopies { .. }
            | Ask::Step { .. }
            | Ask::Phase { .. }
            | Ask::JoinDatagrams { .. }
            | Ask::Send { .. }
            | Ask::Receive { .. }
            | Ask::Map { .. }
            | Ask::Unmap { .. }
            | Ask::Fence
            | Ask::Quiet
            | Ask::IsQuiet
            | Ask::Look
            | Ask::Park { .. } => Ok(()),
        }
    }

    /// Remembers what the answer to `ask` says.
    pub(crate) fn answered(&mut self, ask: Ask, answer: &Answer) {
        let serves = answer.refused.is_none() && answer.value != 0;
        match ask {
            Ask::Join { .. } if serves => {
                self.barriers.insert(answer.value as u32, Phases::default());
            }
            Ask::Phase { group } => {
                if let Some(barrier) = self.barriers.get_mut(&group) {
                    barrier.complete = answer.value;
                }
            }
            Ask::Step { group } if answer.refused.is_none() && answer.value == 0 => {
                if let Some(barrier) = self.barriers.get_mut(&group) {
                    barrier.complete = barrier.arrived;
                    barrier.arrived += 1;
                }
            }
            Ask::JoinCollectives => self.collectives_serve = serves,
            _ => {}
        }
    }

    fn check_arrival(&mut self, group: u32) -> Result<(), &'static str> {
        let barrier = self.barriers.get_mut(&group).ok_or(NO_BARRIER)?;
        if barrier.arrived != barrier.complete {
            return Err(NOT_COMPLETE);
        }
        barrier.arrived += 1;
        Ok(())
    }

    /// A group that is none for barriers is one for datagrams or copied writes, or the NIC refuses
    /// it.
    fn check_leave(&mut self, group: u32) -> Result<(), &'static str> {
        match self.barriers.get(&group) {
            Some(barrier) if barrier.arrived != barrier.complete => return Err(NOT_COMPLETE),
            Some(_) => self.barriers.remove(&group),
            None => None,
        };
        Ok(())
    }

    fn check_collectives(&mut self, ask: Ask) -> Result<(), &'static str> {
        match ask {
            Ask::JoinCollectives if std::mem::replace(&mut self.joined_collectives, true) => {
                Err("this PE has joined the machine's collectives already")
            }
            Ask::Collective { .. } | Ask::Collected { .. } if !self.collectives_serve => {
                Err("this PE has not joined the machine's collectives")
            }
            _ => Ok(()),
        }
    }
}

/// Refuses addresses that are no memory of the job.
fn check_memory(hosted: &Hosted, pe: u32, ask: Ask) -> Result<(), &'static str> {
    let memory = |at: FarAddress, len: usize, writes: bool| match hosted.has(pe, at, len, writes) {
        true => Ok(()),
        false => Err("there is no such memory of the job"),
    };
    let word = |at: FarAddress, size: usize| match hosted.has_word(pe, at, size) {
        true => Ok(()),
        false => Err("there is no such word in the memory of the job, or it is not aligned"),
    };
    match ask {
        Ask::Store { to, size, .. } if matches!(size, 1 | 2 | 4 | 8) => {
            memory(to, size.into(), true)
        }
        Ask::Store { .. } => Err("a word has 1, 2, 4 or 8 bytes"),
        Ask::Put { to, len, signal, .. } | Ask::Command { to, len, signal, .. } => {
            if len > 0 {
                memory(to, len as usize, true)?;
            }
            signal.map_or(Ok(()), |signal| word(signal.at, 8))
        }
        Ask::Key { pe: other, step: KeyStep::Admit | KeyStep::AdmitOnly, .. } if other != pe => {
            Err("a PE admits keys to its own parts of windows alone")
        }
        Ask::Key { region: 0, .. } => Err("only parts of restricted windows have keys"),
        Ask::Key { pe: other, region, .. } => {
            memory(FarAddress { pe: other, region, offset: 0 }, 1, true)
        }
        Ask::Get { from, len } => memory(from, len as usize, false),
        // All segments are as long as that of the asking PE.
        Ask::WriteAll { to, len, .. } => {
            memory(FarAddress { pe, region: 0, offset: to }, len as usize, true)
        }
        Ask::Atomic { at, size, .. } => word(at, size.into()),
        Ask::Mark { offset, .. } | Ask::Await { offset, .. } => {
            word(FarAddress { pe, region: 0, offset }, 8)
        }
        _ => Ok(()),
    }
}
