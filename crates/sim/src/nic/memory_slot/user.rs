//! What each user of a NIC has for itself.

use super::kick_pages::KickPages;
use crate::nic::Call;
use crate::time::Ps;
use std::collections::VecDeque;

/// The calls of one process.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// Whether its CPU writes the packets of a block.
    pub writes: bool,
    /// Those that wait for room in a queue, or for an earlier one, with the times since which they
    /// wait.
    pub stalled: VecDeque<(Call, Ps)>,
}

/// A process that uses a NIC: a PE.
#[derive(Debug, Clone)]
pub struct User {
    /// Its process group, which the NIC stamps on its packets.
    pub group: u16,
    /// Its kick pages. The NIC knows them under the numbers from `first_page` on.
    pub kicks: KickPages,
    pub first_page: u32,
    /// When its CPU has read all blocks that it has seen so far.
    pub copied: Ps,
    /// The PE, and its agent, which neither waits for the other.
    pub callers: [Caller; 2],
}

impl User {
    /// The user of this number among `users`, each of which has `pages` kick pages. The library
    /// begins with another page for each, so that few of their pages share a set of the `sets` sets
    /// of the HTLB.
    pub fn new(number: u32, users: u32, pages: u32, sets: u32) -> User {
        let first = number * (sets / users).max(1) % pages;
        User {
            group: 0,
            kicks: KickPages::beginning_at(first),
            first_page: number * pages,
            copied: Ps::ZERO,
            callers: Default::default(),
        }
    }
}
