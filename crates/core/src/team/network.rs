//! A team's state of the collectives that the network makes.

use super::forced::Forced;
use crate::base::error::Result;
use crate::endpoint::fabric::NetworkCollectives;
use crate::endpoint::pe::Pe;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The slot of the world, which all PEs make before any other team.
const FIRST: usize = 0;

/// A team's state of the network's collectives.
pub(crate) struct Network {
    /// The most bytes of a member's part; 0: the network does not serve this team.
    pub(crate) most: usize,
    pub(crate) begun: AtomicU64,
    pub(crate) failed: AtomicBool,
}

impl Network {
    /// Asks whether the network serves the team in this slot, unless the user forces another
    /// algorithm.
    pub(super) fn join(pe: &Pe, slot: usize, forced: Option<Forced>) -> Result<Network> {
        let asks = slot == FIRST && pe.npes() > 1 && pe.has_fabric() && forced.is_none();
        let offered = if asks { pe.fabric().collectives() } else { None };
        Ok(Network {
            most: offered.map_or(Ok(0), NetworkCollectives::join)?,
            begun: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        })
    }
}
