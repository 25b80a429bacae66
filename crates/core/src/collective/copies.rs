//! Broadcasts of large blocks that the network copies on their way, by a multicast channel.
//!
//! The root sends each of its bytes once instead of once to each. A channel takes memory of the whole job, so only the team of all PEs has them. It is made for one broadcast and dropped with it: to make one takes some
//! barriers, 0.4 ms on the simulated DIMMnet-2 with four PEs, which [`LEAST`] makes up for. Whether the network serves such a group all learn when the channel is made; if it does not, or there is no room
//! for the ring, all go on by the other ways, and in the first case do not ask again.

use super::Place;
use crate::error::{Error, Result};
use crate::multicast::{Delivery, Multicast, MulticastOptions, network_wins};
use crate::shm;
use crate::team::Team;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes from which a channel is worth its making: on the simulated DIMMnet-2, 256 KiB to three take 1.4 ms by a channel and 27 where these get from the root; 64 KiB, 0.8 and 6.7. That is less, but a NIC that gets by itself would take some 0.3.
const LEAST: usize = 256 << 10;

/// What a team knows of the network's copies.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// They do not serve it.
    refused: AtomicBool,
}

impl Team {
    /// A broadcast, if the network copies it.
    pub(super) fn broadcast_by_copies(&self, root: usize, to: Place, from: Place) -> Result<bool> {
        let refused = &self.copies().refused;
        if from.bytes < LEAST || self.forced_way().is_some() || refused.load(Ordering::Relaxed) || !network_wins(self.pe(), self.len() - 1)
        {
            return Ok(false);
        }
        let Some(job) = self.job() else { return Ok(false) };
        let readers: Vec<usize> = (0..self.len()).filter(|&pe| pe != root).collect();
        let mut channel = match job.multicast::<u8>(root, &readers, MulticastOptions::new()) {
            Ok(channel) if channel.delivery() == Delivery::Datagrams => channel,
            Ok(_) => {
                refused.store(true, Ordering::Relaxed);
                return Ok(false);
            }
            // At all of them alike.
            Err(Error::OutOfMemory { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        if self.rank() == root {
            self.send_copies(&mut channel, from)?;
            self.take(root, from, to)?;
        } else {
            self.receive_copies(&mut channel, to)?;
        }
        Ok(true)
    }

    fn send_copies(&self, channel: &mut Multicast<u8>, from: Place) -> Result<()> {
        let mut sent = 0;
        while sent < from.bytes {
            let len = channel.most_in_place().min(from.bytes - sent);
            let mut block = channel.claim(len)?;
            // SAFETY: a part of a place that `check_places` has found inside of this PE's segment; the block is as long, and in a ring that is nobody else's memory.
            unsafe { shm::copy(block.as_mut_ptr(), self.here(from.part(sent, len)), len) };
            block.commit()?;
            sent += len;
        }
        Ok(())
    }

    fn receive_copies(&self, channel: &mut Multicast<u8>, to: Place) -> Result<()> {
        let mut received = 0;
        while received < to.bytes {
            let block = channel.peek()?;
            let len = block.len().min(to.bytes - received);
            // SAFETY: as in `send_copies`.
            unsafe { shm::copy(self.here(to.part(received, len)), block.as_ptr(), len) };
            received += len;
            block.pop();
        }
        Ok(())
    }
}
