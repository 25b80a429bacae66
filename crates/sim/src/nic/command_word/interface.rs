//! What a program asks of a command-word NIC.

use crate::host::Command;
use crate::packet::Payload;
use memonet_core::unstable::fabric::FarAddress;

pub(super) const ALLOW: u32 = 1;
pub(super) const BUILD: u32 = 2;
pub(super) const START: u32 = 3;
pub(super) const TEST: u32 = 4;
pub(super) const USER_STORE: u32 = 5;

/// The address at which command words begin, in kernel space.
pub(super) const KERNEL: u64 = 0xffff_8000_0000_0000;
pub(super) const WORD_BYTES: u64 = 64;

/// Where the start register is mapped. Every program sees it there, and only privileged mode may
/// write it.
pub const START_REGISTER: u64 = 0xffff_f000_0000_0000;

/// What [`test()`] answers for a word that is not done.
pub const RUNNING: u64 = 0;
/// What [`test()`] answers for a word whose transfer is written at its receiver, or that was never
/// started.
pub const DONE: u64 = 1;
/// What [`test()`] answers for a word whose transfer the receiving hardware has refused.
pub const REFUSED: u64 = 2;

/// The content of a command word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandWord {
    /// The place of the data. Its PE is the sender.
    pub from: FarAddress,
    /// The destination: node and address.
    pub to: FarAddress,
    /// Length of the data, in bytes.
    pub len: u32,
    /// The access key, which must be that of the receive area.
    pub key: u32,
    /// Offset, in the region of `to`, of a word of 8 bytes that becomes 1 after the data. The key
    /// is checked for the word as for the data.
    pub flag: Option<u64>,
}

/// How to start a command word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// By a write of the start register, through a mode switch that takes no trap.
    Direct,
    /// By a system call.
    SystemCall,
}

/// Makes a range of the caller's memory a receive area with this key: a system call. The area takes
/// precedence over areas made before.
pub fn allow(at: FarAddress, len: u64, key: u32) -> Command {
    command(ALLOW, [at.region.into(), at.offset, len, key.into()], Payload::EMPTY)
}

/// Builds a command word: a system call. Answered with its address.
pub fn build(word: &CommandWord) -> Command {
    let place = |at: FarAddress| [u64::from(at.region) << 32 | u64::from(at.pe), at.offset];
    let [from, to] = [place(word.from), place(word.to)];
    let fields = [from[0], from[1], to[0], to[1], word.flag.unwrap_or(0)];
    let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
    let rest = [word.len.into(), word.key.into(), word.flag.is_some().into(), 0];
    command(BUILD, rest, Payload::copy(&bytes))
}

/// Starts the word at this address. Answered when the start register is written.
pub fn start(address: u64, how: Start) -> Command {
    command(START, [address, u64::from(how == Start::SystemCall), 0, 0], Payload::EMPTY)
}

/// A look at the status of the word at this address: [`RUNNING`], [`DONE`] or [`REFUSED`].
pub fn test(address: u64) -> Command {
    command(TEST, [address, 0, 0, 0], Payload::EMPTY)
}

/// A store that a user program makes by itself, to an address that is no memory of its own: into a
/// command word, or to the [`START_REGISTER`]. Refused: the program gets a fault, which is a trap.
pub fn user_store(address: u64, bits: u64) -> Command {
    command(USER_STORE, [address, bits, 0, 0], Payload::EMPTY)
}

fn command(code: u32, words: [u64; 4], data: Payload) -> Command {
    Command { code, words, data }
}

/// The word that a [`build`] is for.
pub(super) fn command_word(command: &Command) -> CommandWord {
    let mut fields = [0; 5];
    command.data.with(|bytes| {
        for (field, bytes) in fields.iter_mut().zip(bytes.chunks_exact(8)) {
            *field = u64::from_le_bytes(bytes.try_into().expect("chunks of 8"));
        }
    });
    let place = |pe_region: u64, offset| FarAddress {
        pe: pe_region as u32,
        region: (pe_region >> 32) as u32,
        offset,
    };
    CommandWord {
        from: place(fields[0], fields[1]),
        to: place(fields[2], fields[3]),
        len: command.words[0] as u32,
        key: command.words[1] as u32,
        flag: (command.words[2] != 0).then_some(fields[4]),
    }
}
