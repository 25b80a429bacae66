//! The NIC's own interface, for programs that use it without the library.
//!
//! A program of the real machine used the NIC by stores and loads in its address range, and by
//! calls of its driver. Here each of these is a command. Unless stated otherwise, addresses are
//! physical: LLCM begins at 0, and the bank of the host's own side at [`BANK`].

use super::chipset::CHIPSETS;
pub use super::chipset::Chipset;
pub use super::header::{Header, Kind};
pub use super::memory::{BANK, CONTROL};
pub use super::translate::Refusal;
use crate::host::Command;
use crate::packet::{Node, Payload};

pub(super) const ATTACH: u32 = 0;
pub(super) const MAP: u32 = 1;
pub(super) const REGISTER: u32 = 2;
pub(super) const GROUP: u32 = 3;
pub(super) const LOOP_BACK: u32 = 4;
pub(super) const DROPPED: u32 = 5;
pub(super) const KICK: u32 = 6;
pub(super) const BLOCK: u32 = 7;
pub(super) const DMA: u32 = 8;
pub(super) const READ: u32 = 9;
pub(super) const WRITE: u32 = 10;
pub(super) const WAIT: u32 = 11;
pub(super) const SWITCH: u32 = 12;
pub(super) const NEXT_BLOCK: u32 = 13;
pub(super) const ROUTE: u32 = 14;
pub(super) const WAY: u32 = 15;
pub(super) const READ_AWAY: u32 = 16;
pub(super) const RECOVER: u32 = 17;

/// Where packets of a node to itself turn round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopBack {
    /// At SWIF.
    Internal,
    /// Outside: packets leave by the link, and come back by a looped cable, or by the switch.
    External,
}

/// How the host reads 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// In one read, into an MMX register.
    Words,
    /// In two reads of 4 bytes.
    Halves,
}

fn command(code: u32, words: [u64; 4]) -> Command {
    Command { code, words, data: Payload::EMPTY }
}

fn words(bytes: &[u64]) -> Payload {
    let bytes: Vec<u8> = bytes.iter().flat_map(|word| word.to_le_bytes()).collect();
    Payload::copy(&bytes)
}

// Calls of the driver. Programs make them once, before they measure, and they take no time here.

/// Puts the program into a process group, which the NIC stamps on the program's packets. Refused
/// for the library's group.
pub fn attach(group: u16) -> Command {
    command(ATTACH, [group.into(), 0, 0, 0])
}

/// Fills an entry of the header table: the header of packets that stores to `kick_page`, one of the
/// program's own, send. The driver stamps the program's process group. Refused for a virtual
/// address of another group, and for a physical page that does not exist, or is the library's or
/// another group's.
pub fn map(kick_page: u32, seed: &Header) -> Command {
    Command { data: words(&seed.encode()), ..command(MAP, [kick_page.into(), 0, 0, 0]) }
}

/// Lets packets of `group` write to the physical page `to` as page `page` of a region of a process
/// here. Refused for a group that is not the program's, and for a physical page as by [`map`].
pub fn register(group: u16, process: u32, region: u32, page: u64, to: u64) -> Command {
    command(REGISTER, [u64::from(group) << 32 | u64::from(process), region.into(), page, to])
}

/// Changes an entry of a switch's table: packets to `node` leave it by `port`, or without one are
/// dropped, which is an error of the run.
pub fn route(switch: u32, node: Node, port: Option<u16>) -> Command {
    let port = port.map_or(u64::MAX, u64::from);
    command(ROUTE, [switch.into(), node.0.into(), port, 0])
}

/// Has this node's packets to `node` carry these ports, one for each switch on the way. Without
/// ports they go as at first: by tables, or where switches have none, by the shortest way. Packets
/// on the new way may overtake those on the old one. Refused where switches do not route by source,
/// and where the ports lead elsewhere.
pub fn way(node: Node, ports: &[u16]) -> Command {
    let ports: Vec<u64> = ports.iter().map(|&port| port.into()).collect();
    Command { data: words(&ports), ..command(WAY, [node.0.into(), 0, 0, 0]) }
}

/// Sets the switches' tables so that what this node sends to multicast group `group` comes to all
/// of `members`. A group has one sender.
pub fn group(group: u16, members: &[Node]) -> Command {
    let members: Vec<u64> = members.iter().map(|node| node.0.into()).collect();
    Command { data: words(&members), ..command(GROUP, [group.into(), 0, 0, 0]) }
}

/// Has the NIC recover addresses by the rule of this chipset, for stores of the program's own
/// ([`kick`]). A machine starts with the host's. Refused for one that the NIC's chip has no rule
/// for.
pub fn recover_as(chipset: Chipset) -> Command {
    let number = CHIPSETS.iter().position(|&(_, other)| other == chipset);
    command(RECOVER, [number.expect("all have names") as u64, 0, 0, 0])
}

/// Sets where packets to this node itself turn round. A machine starts with the internal loop.
pub fn loop_back(mode: LoopBack) -> Command {
    command(LOOP_BACK, [(mode == LoopBack::External).into(), 0, 0, 0])
}

/// Answered with the number of packets dropped here so far, for this reason or for any.
pub fn dropped(why: Option<Refusal>) -> Command {
    let why = match why {
        None => 0,
        Some(Refusal::Group) => 1,
        Some(Refusal::Process) => 2,
        Some(Refusal::Region) => 3,
        Some(Refusal::Address) => 4,
    };
    command(DROPPED, [why, 0, 0, 0])
}

// Loads and stores of a program. One to a page that is not the program's, or to [`CONTROL`],
// faults: it is refused, and changes nothing.

/// AOTF: stores `word` to the kick address `page * 4096 + offset`. Answered when the CPU has
/// written it.
pub fn kick(page: u32, offset: u16, word: Payload) -> Command {
    Command {
        data: word,
        ..command(KICK, [u64::from(page) << 12 | u64::from(offset & 0xfff), 0, 0, 0])
    }
}

/// AOTF by a program that has not undone the twist of its board's data lines.
pub fn kick_twisted(page: u32, offset: u16, word: Payload) -> Command {
    let mut command = kick(page, offset, word);
    command.words[1] = 1;
    command
}

/// BOTF: writes header and payload of 1 to 464 bytes into a window. The NIC stamps over the
/// header's fields for protection. Answered when the CPU has written the window.
pub fn block(header: &Header, payload: Payload) -> Command {
    Command { words: header.encode(), data: payload, ..command(BLOCK, [0; 4]) }
}

/// BOTF of a further block of a message, without the software that runs once for each message.
pub fn next_block(header: &Header, payload: Payload) -> Command {
    Command { code: NEXT_BLOCK, ..block(header, payload) }
}

/// Remote DMA of `len` bytes from `from`, an offset in the bank on the network's side. Answered
/// when it is started. The NIC stamps its headers as it does for a block.
pub fn dma(header: &Header, from: u64, len: u32) -> Command {
    Command { words: header.encode(), data: words(&[from, len.into()]), ..command(DMA, [0; 4]) }
}

/// Reads `len` bytes, word by word. Answered with them.
pub fn read(at: u64, len: u32, looks: Looks) -> Command {
    command(READ, [at, len.into(), (looks == Looks::Halves).into(), 0])
}

/// Reads from the bank on the network's side, whose addresses are those of the host's ([`BANK`]).
/// The NIC makes the host wait while it turns the bank. Refused in DIMM mode, in which it cannot.
pub fn read_away(at: u64, len: u32, looks: Looks) -> Command {
    Command { code: READ_AWAY, ..read(at, len, looks) }
}

/// Writes bytes of the NIC's own memory: up to 8 at once, more line by line.
pub fn write(at: u64, data: Payload) -> Command {
    Command { data, ..command(WRITE, [at, 0, 0, 0]) }
}

/// Looks at the `width` bytes at `at` again and again, from now on, until their bits in `mask` are
/// those of `value`. Answered with all bits. The program compares what it reads with a value that
/// it has permuted beforehand, so a look does not undo the twist.
pub fn wait(at: u64, width: u8, mask: u64, value: u64, looks: Looks) -> Command {
    let halves = u64::from(looks == Looks::Halves);
    command(WAIT, [at, u64::from(width) | halves << 8, mask, value])
}

/// Switches the banks. Answered when it is done.
pub fn switch_banks() -> Command {
    command(SWITCH, [0; 4])
}
