//! What a machine file says of NICs with command words.

use super::Start;
use crate::host::Sleep;
use crate::machine::{Machine, MachineError, Rate, Section};
use crate::time::Ps;

/// Command words that the library needs for a process: it may use some at once.
const LEAST_WORDS: u64 = 4;

#[derive(Debug, Clone, Copy)]
pub(super) struct Parameters {
    pub(super) look: Ps,
    pub(super) software: Ps,
    pub(super) system_call: Ps,
    pub(super) direct_start: Ps,
    /// For which the kernel's code looks, before it starts a word, whether it is the caller's.
    /// Nothing where a process has the node alone.
    pub(super) owner_check: Ps,
    /// How the library starts its words.
    pub(super) start: Start,
    /// What a process loses that waits, unless it spins.
    pub(super) sleep: Option<Sleep>,
    pub(super) copy: Rate,
    /// Of each process.
    pub(super) command_words: usize,
    pub(super) command_fetch: Ps,
    pub(super) read: Ps,
    pub(super) memory_rate: Rate,
    pub(super) link_rate: Rate,
    pub(super) packet: usize,
    pub(super) header: u32,
    pub(super) key_check: Ps,
    pub(super) write: Ps,
}

impl Parameters {
    /// Reads the sections `host` and `nic`.
    pub(super) fn read(machine: &Machine) -> Result<Parameters, MachineError> {
        let (nic, host) = (machine.section("nic"), machine.section("host"));
        let packet = nic.bytes("packet")?;
        if !(64..=1 << 20).contains(&packet) {
            return Err(nic.error("packet", "must be from 64 B to 1 MiB"));
        }
        let processes = processes(machine)?;
        Ok(Parameters {
            look: host.time_not_zero("look")?,
            software: host.time("software")?,
            system_call: host.time("system_call")?,
            direct_start: host.time("direct_start")?,
            owner_check: match processes {
                1 => Ps::ZERO,
                _ => host.time("owner_check")?,
            },
            start: start_of(&host)?,
            sleep: sleep_of(&host)?,
            copy: host.rate("copy")?,
            command_words: (command_words(&nic)? / u64::from(processes)) as usize,
            command_fetch: nic.time("command_fetch")?,
            read: nic.time("read")?,
            memory_rate: nic.rate("memory_rate")?,
            link_rate: machine.section("link").rate("rate")?,
            packet: packet as usize,
            header: nic.bytes_up_to("header", 1 << 16)? as u32,
            key_check: nic.time("key_check")?,
            write: nic.time("write")?,
        })
    }
}

/// Number of processes that share a node and its NIC. Each has an equal part of the command words.
pub(in super::super) fn processes(machine: &Machine) -> Result<u32, MachineError> {
    let topology = machine.section("topology");
    if !topology.has("pes_per_node") {
        return Ok(1);
    }
    let processes = topology.count_up_to("pes_per_node", 1 << 16)?;
    let words = command_words(&machine.section("nic"))?;
    let most = words / LEAST_WORDS;
    if processes > most {
        let problem = format!(
            "is {processes}, and {words} command words (nic.command_words) are enough for {most} \
             processes: put at most {most} PEs on a node"
        );
        return Err(topology.error("pes_per_node", problem));
    }
    Ok(processes as u32)
}

/// Number of command words of a node.
fn command_words(nic: &Section<'_>) -> Result<u64, MachineError> {
    let words = nic.count("command_words")?;
    if !(LEAST_WORDS..1 << 24).contains(&words) {
        return Err(nic.error(
            "command_words",
            "must be from 4 to 16 million: the library needs some at once",
        ));
    }
    Ok(words)
}

/// How the library starts its words.
fn start_of(host: &Section<'_>) -> Result<Start, MachineError> {
    match host.has("start") {
        true => {
            host.choice("start", &[("direct", Start::Direct), ("system call", Start::SystemCall)])
        }
        false => Ok(Start::Direct),
    }
}

/// What waiting costs, where a process that waits blocks.
fn sleep_of(host: &Section<'_>) -> Result<Option<Sleep>, MachineError> {
    match host.has("interrupt") {
        true => Ok(Some(Sleep {
            spin: Ps::ZERO,
            block: host.time("system_call")?,
            interrupt: host.time("interrupt")?,
            context_switch: host.time("context_switch")?,
        })),
        false => Ok(None),
    }
}
