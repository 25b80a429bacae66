//! What the machine file says of a memory-slot NIC and of the host that it is plugged into.

use super::chipset::Chipset;
use super::core::CoreCosts;
use super::header::PAGE;
use super::htlb;
use super::memory::BANK;
use super::signals::Pemm;
use super::twist::Twist;
use crate::host::Polling;
use crate::machine::{Machine, MachineError, Rate, Section};
use crate::time::Ps;

/// Length of a cache line: the host's write buffers hand that much to the slot at once.
const LINE_BYTES: u64 = 32;
const LARGEST_BANK_BYTES: u64 = 1 << 40;

/// The switches' tables for multicast, where the library may write them.
#[derive(Debug, Clone, Copy)]
pub struct MulticastTables {
    /// The most groups.
    pub groups: u64,
    /// An entry of one switch is written.
    pub write: Ps,
}

/// Who fetches a header seed on a miss of the HTLB, and in which time.
#[derive(Debug, Clone, Copy)]
pub enum Refill {
    /// The core processor, as soon as it is free.
    Core(Ps),
    /// The driver on the host, which sees the miss at its next look.
    Host(Ps),
}

/// The parameters of a machine.
#[derive(Debug, Clone)]
pub struct Parameters {
    // The host.
    pub software: Ps,
    pub write: Ps,
    /// From the end of a CPU's write until the slot has it.
    pub chipset: Ps,
    pub read: Ps,
    pub read_by_halves: Ps,
    /// What a polling loop takes besides its read.
    pub look_loop: Ps,
    /// What a CPU loses after it has used MMX.
    pub after_mmx: Ps,
    pub line: Ps,
    pub twist: Twist,
    pub twist_word: Ps,
    /// The chipset that splits the host's addresses.
    pub chipset_rule: Chipset,
    /// Whether the NIC's chip is the first version, which has no rule for the i845.
    pub first_version: bool,
    /// The slot's further signals, in PEMM mode.
    pub pemm: Option<Pemm>,
    // The cycles of the clocks that a packet crosses.
    pub dimm_cycle: Ps,
    pub swif_cycle: Ps,
    // The way out.
    pub host_write: Ps,
    pub transaction_queue: Ps,
    pub header_tlb: Ps,
    pub htlb: htlb::Shape,
    pub htlb_refill: Refill,
    pub size_decision: Ps,
    pub send_buffer_handshake: Ps,
    pub swif_send: Ps,
    pub aotf_queue: usize,
    pub botf_queue: usize,
    pub botf_payload: usize,
    pub botf_window: u64,
    pub wire_header: u64,
    pub link: Rate,
    pub link_delay: Ps,
    pub multicast: Option<MulticastTables>,
    // The way in.
    pub swif_receive: Ps,
    pub receive_tlb: Ps,
    pub receive_tlb_entries: usize,
    pub receive_tlb_refill: Ps,
    pub llcm_write: Ps,
    pub llcm_bytes: u64,
    pub bank_bytes: u64,
    pub bank_rate: Rate,
    pub bank_switch: Ps,
    /// Bytes of LLCM that only words and blocks of one packet get.
    pub llcm_for_words: u64,
    /// The core processor, where it updates words for the library.
    pub core: Option<CoreCosts>,
    /// One look of the core processor at a word of arrivals, where it runs barriers.
    pub core_look: Option<Ps>,
    /// Processes that share a NIC: the PEs of a node.
    pub users: u32,
}

impl Parameters {
    pub fn read(machine: &Machine) -> Result<Parameters, MachineError> {
        let (host, send) = (machine.section("host"), machine.section("send"));
        let (receive, link) = (machine.section("receive"), machine.section("link"));
        let (twist, twist_word) = twist(&host)?;
        let (chipset_rule, first_version) = Chipset::read(&host, &send)?;
        let htlb = htlb_shape(&send)?;
        let users = users(machine)?;
        if htlb.pages() < users.into() {
            let problem = format!("leaves {} kick pages for {users} users", htlb.pages());
            return Err(send.error("htlb_tag_bits", problem));
        }
        let (llcm_bytes, bank_bytes) = memory_sizes(&receive)?;
        Ok(Parameters {
            software: host.time("software")?,
            write: host.time("write")?,
            chipset: host.time("chipset")?,
            read: host.time_not_zero("read")?,
            read_by_halves: host.time_not_zero("read_by_halves")?,
            look_loop: host.time("look_loop")?,
            after_mmx: host.time("after_mmx")?,
            line: host.time("line")?,
            twist,
            twist_word,
            chipset_rule,
            first_version,
            pemm: Pemm::read(&host)?,
            dimm_cycle: cycle(machine, "dimm")?,
            swif_cycle: cycle(machine, "swif")?,
            host_write: send.time("host_write")?,
            transaction_queue: send.time("transaction_queue")?,
            header_tlb: send.time("header_tlb")?,
            htlb,
            htlb_refill: htlb_refill(&send)?,
            size_decision: send.time("size_decision")?,
            send_buffer_handshake: send.time("send_buffer_handshake")?,
            swif_send: send.time("swif_send")?,
            aotf_queue: send.count_up_to("aotf_queue", 1 << 20)? as usize,
            botf_queue: send.count_up_to("botf_queue", 1 << 20)? as usize,
            botf_payload: send.count_up_to("botf_payload", 1 << 12)? as usize,
            botf_window: send.bytes_up_to("botf_window", 1 << 16)?,
            wire_header: send.bytes_up_to("wire_header", 1 << 16)?,
            link: link.rate("rate")?,
            link_delay: link.time("delay")?,
            // The switches copy packets for nodes, and not for the users of a NIC.
            multicast: multicast(&machine.section("switch"))?.filter(|_| users == 1),
            swif_receive: receive.time("swif_receive")?,
            receive_tlb: receive.time("receive_tlb")?,
            receive_tlb_entries: receive.count_up_to("receive_tlb_entries", 1 << 20)? as usize,
            receive_tlb_refill: receive.time("receive_tlb_refill")?,
            llcm_write: receive.time("llcm_write")?,
            llcm_bytes,
            bank_bytes,
            bank_rate: receive.rate("bank_rate")?,
            bank_switch: receive.time("bank_switch")?,
            llcm_for_words: receive.bytes("llcm_for_words")?,
            core: core(&machine.section("core"))?,
            core_look: core_look(&machine.section("core"))?,
            users,
        })
    }

    /// The kick pages of each user: an equal part of the NIC's.
    pub fn kick_pages(&self) -> u32 {
        (self.htlb.pages() / u64::from(self.users)).min(1 << 31) as u32
    }

    /// The looks of the library at LLCM, each of which un-twists what it has read. A read samples
    /// the memory in its middle.
    pub fn polling(&self) -> Polling {
        let interval = self.read + self.look_loop + self.twist_word;
        Polling { interval, sample: Ps(self.read.0 / 2) }
    }

    /// The time of a host's read of up to 8 bytes. A read of up to 4 is half of one by halves.
    pub fn read_time(&self, bytes: u64, halves: bool) -> Ps {
        match (bytes, halves) {
            (0..=4, _) => Ps(self.read_by_halves.0 / 2),
            (_, true) => self.read_by_halves,
            (_, false) => self.read,
        }
    }

    /// The time in which the host reads a block that has come, 8 bytes at a time.
    pub fn read_words(&self, bytes: u64) -> Ps {
        (self.read + self.twist_word) * bytes.div_ceil(8)
    }

    /// The time in which the host writes bytes through its write buffers: a word is a part of a
    /// line.
    pub fn write_lines(&self, bytes: u64) -> Ps {
        let words = bytes.div_ceil(8);
        Ps(self.line.0 * words / (LINE_BYTES / 8)) + self.twist_word * words
    }

    /// The time of an AOTF message without contention, from the call to the end of the look, where
    /// links and switches take `crossing`.
    pub fn message(&self, crossing: Ps) -> Ps {
        let out = self.software
            + self.twist_word
            + self.write
            + self.chipset
            + self.host_write
            + self.transaction_queue
            + self.header_tlb;
        let cross = self.size_decision
            + self.send_buffer_handshake
            + self.swif_send
            + crossing
            + self.swif_receive;
        let clocks = Ps((self.swif_cycle.0 + self.dimm_cycle.0) / 2);
        out + cross + clocks + self.llcm_write + self.read
    }
}

/// Number of processes that share a NIC: the PEs of a node.
pub fn users(machine: &Machine) -> Result<u32, MachineError> {
    let most = machine.section("send").count_up_to("users", 1 << 10)?;
    let topology = machine.section("topology");
    if !topology.has("pes_per_node") {
        return Ok(1);
    }
    let users = topology.count_up_to("pes_per_node", 1 << 20)?;
    if users > most {
        let problem = format!(
            "is {users}, and a NIC has room for {most} users (send.users): put at most {most} PEs on a node"
        );
        return Err(topology.error("pes_per_node", problem));
    }
    Ok(users as u32)
}

fn cycle(machine: &Machine, clock: &str) -> Result<Ps, MachineError> {
    Ok(Ps((1e6 / machine.section("clock").megahertz(clock)?).round() as u64))
}

fn multicast(switch: &Section<'_>) -> Result<Option<MulticastTables>, MachineError> {
    if !switch.has("multicast_groups") {
        return Ok(None);
    }
    let groups = switch.count_up_to("multicast_groups", 1 << 15)?;
    Ok(Some(MulticastTables { groups, write: switch.time("multicast_write")? }))
}

fn htlb_refill(send: &Section<'_>) -> Result<Refill, MachineError> {
    let by_core = Refill::Core(send.time("htlb_refill")?);
    match send.has("htlb_refill_by_host") {
        true => Ok(Refill::Host(send.time("htlb_refill_by_host")?)),
        false => Ok(by_core),
    }
}

fn core(core: &Section<'_>) -> Result<Option<CoreCosts>, MachineError> {
    if !core.has("handle") {
        return Ok(None);
    }
    Ok(Some(CoreCosts { handle: core.time("handle")?, access: core.time("access")? }))
}

fn core_look(core: &Section<'_>) -> Result<Option<Ps>, MachineError> {
    match core.has("handle") && core.has("look") {
        true => Ok(Some(core.time_not_zero("look")?)),
        false => Ok(None),
    }
}

/// The twist of the board's data lines, and what undoing it takes for each word.
fn twist(host: &Section<'_>) -> Result<(Twist, Ps), MachineError> {
    let boards = [("straight", false), ("crossed fours", true)];
    let word = host.time("twist_word")?;
    match host.choice("data_lines", &boards)? {
        false => Ok((Twist::straight(), Ps::ZERO)),
        true => Ok((Twist::crossed_fours(), word)),
    }
}

fn htlb_shape(send: &Section<'_>) -> Result<htlb::Shape, MachineError> {
    let ways = send.count_up_to("htlb_ways", 64)?;
    let tags = send.count_up_to("htlb_tags", 1 << 16)?;
    let tag_bits = send.count_up_to("htlb_tag_bits", 16)?;
    let seed_words = send.count("htlb_seed_words")?;
    if tags % ways != 0 || !(tags / ways).is_power_of_two() {
        let problem = format!("is {tags}; sets of {ways} ways must come to a power of two");
        return Err(send.error("htlb_tags", problem));
    }
    if seed_words != 4 * tags {
        let problem = format!("is {seed_words}; {tags} tags have seeds of 4 words each");
        return Err(send.error("htlb_seed_words", problem));
    }
    Ok(htlb::Shape { ways: ways as u32, sets: (tags / ways) as u32, tag_bits: tag_bits as u32 })
}

/// Bytes of LLCM, and of a bank.
fn memory_sizes(receive: &Section<'_>) -> Result<(u64, u64), MachineError> {
    let (llcm, bank) = (receive.bytes("llcm")?, receive.bytes("bank")?);
    if llcm < 4 * PAGE || llcm % PAGE != 0 || llcm > BANK {
        let problem = format!("is {llcm} bytes; it must be whole pages of {PAGE}, at least four");
        return Err(receive.error("llcm", problem));
    }
    if bank < PAGE || bank % PAGE != 0 || bank > LARGEST_BANK_BYTES {
        let problem = format!("is {bank} bytes; it must be whole pages of {PAGE}");
        return Err(receive.error("bank", problem));
    }
    Ok((llcm, bank))
}
