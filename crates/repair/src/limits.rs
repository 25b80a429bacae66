//! Limits that the layout of datagrams sets for a channel's configuration.

use crate::config::Config;
use crate::wire::{HEADER, LEAST_DATAGRAM, MOST_APART};

/// The number of bytes of the log in a datagram that every IP network takes: the least packet of
/// IPv6 without headers.
pub(crate) const SAFE_PAYLOAD: usize = 1280 - 48 - HEADER;

impl Config {
    /// The largest number of bytes of the log in one datagram.
    pub(crate) fn payload(&self) -> usize {
        self.datagram - HEADER
    }

    /// # Panics
    /// If no channel can work with this configuration.
    pub(crate) fn check(&self) {
        assert!(
            self.datagram >= LEAST_DATAGRAM,
            "a datagram of {} bytes has no room for the protocol: use at least {}",
            self.datagram,
            LEAST_DATAGRAM
        );
        assert!(self.capacity > 0 && self.window > 0, "a channel needs a capacity and a window");
        assert!(
            self.capacity <= MOST_APART,
            "positions that are further apart than {} bytes cannot be told apart",
            MOST_APART
        );
    }
}
