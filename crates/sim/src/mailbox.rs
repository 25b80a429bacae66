//! Mailboxes of software on the hosts: regions that are no memory of the job. What comes into one
//! is told to its owner. Messages have their real lengths, but their content is kept by the sender,
//! under a number.

use crate::host::HostOp;
use crate::packet::Payload;
use memonet_core::unstable::fabric::FarAddress;

/// The first of the regions that are mailboxes: two of agents, and one of drivers.
pub(crate) const MAILBOXES: u32 = u32::MAX - 2;
/// The mailbox of a node's driver.
pub(crate) const DRIVERS: u32 = MAILBOXES + 2;

/// A put of a message into a mailbox, with the number under which its content is kept.
pub(crate) fn message(pe: u32, region: u32, number: u32, len: usize) -> HostOp {
    HostOp::Put {
        to: FarAddress { pe, region, offset: u64::from(number) << 32 },
        data: Payload::copy(&vec![0; len]),
        signal: None,
        reuse: true,
    }
}

/// The number of the request, or of the message, that a place in a mailbox is for.
pub(crate) fn number_of(to: FarAddress) -> u32 {
    (to.offset >> 32) as u32
}
