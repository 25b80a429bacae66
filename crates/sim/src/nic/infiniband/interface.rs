//! What a program asks of an InfiniBand NIC.

use crate::host::Command;
use crate::packet::Payload;
use memonet_core::unstable::fabric::FarAddress;

pub(super) const WRITE_TABLE: u32 = 1;
pub(super) const READ_TABLE: u32 = 2;
pub(super) const LISTEN: u32 = 3;
pub(super) const TEST: u32 = 4;
pub(super) const PREFETCH: u32 = 5;
pub(super) const READ_WINDOW: u32 = 6;
pub(super) const READ: u32 = 7;
pub(super) const CUT: u32 = 8;
pub(super) const STOP_MANAGER: u32 = 9;

/// The most that one [`read`] takes.
pub(super) const BLOCK_MOST: u64 = 1 << 20;

/// A management packet to a switch: 32 groups of its multicast table, from
/// [`FIRST_GROUP`](super::FIRST_GROUP) + 32 `block` on, get these ports, a bit each. Answered when
/// the switch has done it.
pub fn write_table(switch: u32, block: u32, ports: &[u16; 32]) -> Command {
    let bytes: Vec<u8> = ports.iter().flat_map(|ports| ports.to_be_bytes()).collect();
    Command {
        code: WRITE_TABLE,
        words: [switch.into(), block.into(), 0, 0],
        data: Payload::copy(&bytes),
    }
}

/// A management packet that asks a switch for a block of its multicast table. Answered with 64
/// bytes: the ports of each of 32 groups, with the high byte first.
pub fn read_table(switch: u32, block: u32) -> Command {
    Command { code: READ_TABLE, words: [switch.into(), block.into(), 0, 0], data: Payload::EMPTY }
}

/// Has this node take packets of a group, or no longer do so. The subnet manager does not hear of
/// it. Answered with the node's own LID.
pub fn listen(group: u16, on: bool) -> Command {
    Command { code: LISTEN, words: [group.into(), on.into(), 0, 0], data: Payload::EMPTY }
}

/// Has the test module send zeros to a byte of a node's segment. Answered when they have left.
pub fn test_to(node: u32, offset: u64, len: u64) -> Command {
    Command { code: TEST, words: [node.into(), offset, len, 0], data: Payload::EMPTY }
}

/// The same, to the segments of a group's other members.
pub fn test_group(group: u32, offset: u64, len: u64) -> Command {
    Command { code: TEST, words: [group.into(), offset, len, 1], data: Payload::EMPTY }
}

/// Has the core logic bring bytes of the caller's own memory into the NIC's window, from byte `at`
/// of the window on. Answered when the host has written the command.
pub fn prefetch(at: u64, from: FarAddress, len: u64) -> Command {
    of_memory(PREFETCH, at, from, len)
}

/// Reads the window, as soon as the prefetches that fill this part of it are over. Answered with
/// the bytes: those of the memory as it was when they were prefetched, and zeros where nothing was.
pub fn read_window(at: u64, len: u64) -> Command {
    Command { code: READ_WINDOW, words: [at, len, 0, 0], data: Payload::EMPTY }
}

/// Reads the caller's own memory through the core logic, without the window; at most 1 MiB.
/// Answered with the bytes.
pub fn read(from: FarAddress, len: u64) -> Command {
    of_memory(READ, 0, from, len)
}

/// Cuts the cable at a port of a switch, which leads to another switch, in both directions. What
/// comes to the cable is lost from now on. Refused where nodes would be cut off, and where nothing
/// would send it again (`subnet.sweep`, `nic.retransmit`).
pub fn cut(switch: u32, port: u16) -> Command {
    of_cable(switch, port, true)
}

/// Mends a cable that was cut.
pub fn mend(switch: u32, port: u16) -> Command {
    of_cable(switch, port, false)
}

fn of_cable(switch: u32, port: u16, is_cut: bool) -> Command {
    let words = [switch.into(), port.into(), is_cut.into(), 0];
    Command { code: CUT, words, data: Payload::EMPTY }
}

/// Stops the subnet manager of a node for good. Refused where it is the only one.
pub fn stop_manager(node: u32) -> Command {
    Command { code: STOP_MANAGER, words: [node.into(), 0, 0, 0], data: Payload::EMPTY }
}

fn of_memory(code: u32, at: u64, from: FarAddress, len: u64) -> Command {
    let place = u64::from(from.region) << 32 | u64::from(from.pe);
    Command { code, words: [at, len, place, from.offset], data: Payload::EMPTY }
}

/// The memory that a [`prefetch`] or a [`read`] is about.
pub(super) fn place_of(command: &Command) -> FarAddress {
    let [_, _, place, offset] = command.words;
    FarAddress { pe: place as u32, region: (place >> 32) as u32, offset }
}
