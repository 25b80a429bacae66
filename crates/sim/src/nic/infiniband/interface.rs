//! What a program asks of an InfiniBand NIC.

use crate::host::Command;
use crate::packet::Payload;

pub(super) const WRITE_TABLE: u32 = 1;
pub(super) const READ_TABLE: u32 = 2;
pub(super) const LISTEN: u32 = 3;
pub(super) const TEST: u32 = 4;

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
