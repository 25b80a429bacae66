//! What a program asks of its SCC board.

use super::collective::Collective;
use crate::host::{Command, GroupOp};
use crate::packet::Payload;

pub(super) const SET_GROUP: u32 = 1;
pub(super) const ENTER: u32 = 2;
pub(super) const FLAG: u32 = 3;
pub(super) const REDUCED: u32 = 4;
pub(super) const MODE: u32 = 5;
pub(super) const SEND_PACKET: u32 = 6;
pub(super) const RECEIVE: u32 = 7;

fn command(code: u32, word: u64, data: Payload) -> Command {
    Command { code, words: [word, 0, 0, 0], data }
}

/// Writes the group register: the boards of the microcluster that take part, a bit each.
pub fn set_group(group: u16) -> Command {
    command(SET_GROUP, group.into(), Payload::EMPTY)
}

/// The entry code of a fuzzy barrier: arrives. Refused while the flag is set.
pub fn enter() -> Command {
    command(ENTER, 0, Payload::EMPTY)
}

/// A look of the exit code: answered with 1 while the barrier is not complete, then 0.
pub fn flag() -> Command {
    command(FLAG, 0, Payload::EMPTY)
}

/// The reduced barrier code: reads the flag. While it is set, the phase before is not complete, and
/// the answer is 1: spin. Else the code arrives at the next phase, and the answer is 0: go on.
pub fn reduced() -> Command {
    command(REDUCED, 0, Payload::EMPTY)
}

/// Switches the board to packets, or to wires.
pub fn set_mode(packets: bool) -> Command {
    command(MODE, packets.into(), Payload::EMPTY)
}

/// Sends up to 56 bytes to a PE's board. Answered when the host has written them.
pub fn send(to: u32, data: Payload) -> Command {
    command(SEND_PACKET, to.into(), data)
}

/// Answered with the next packet that was sent here, and its sender.
pub fn receive() -> Command {
    command(RECEIVE, 0, Payload::EMPTY)
}

/// A collective transaction of a group, with this member's part: as many bytes at each, in whole
/// words of 8 unless it is a broadcast. The driver switches the board to packets. Answered when the
/// host has written it; [`GroupOp::Result`] is answered with the result.
pub fn collective(group: u32, what: Collective, data: Payload) -> GroupOp {
    GroupOp::Collective { group, what, data }
}
