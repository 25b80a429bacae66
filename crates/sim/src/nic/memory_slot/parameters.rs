//! What the machine file says of a memory-slot NIC and of the host that it is plugged into.

use super::htlb;
use super::twist::Twist;
use crate::host::Polling;
use crate::machine::{Machine, MachineError, Rate};
use crate::time::Ps;

/// Bytes of a cache line, which is what the host's write buffers hand to the slot at once.
pub const LINE: u64 = 32;

/// All of it.
#[derive(Debug, Clone)]
pub struct Parameters {
    // The host.
    pub software: Ps,
    pub write: Ps,
    pub read: Ps,
    pub read_by_halves: Ps,
    pub line: Ps,
    pub twist: Twist,
    pub twist_word: Ps,
    // The way out.
    pub host_write: Ps,
    pub transaction_queue: Ps,
    pub header_tlb: Ps,
    pub htlb: htlb::Shape,
    pub htlb_refill: Ps,
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
    // The way in.
    pub swif_receive: Ps,
    pub receive_tlb: Ps,
    pub receive_tlb_entries: usize,
    pub receive_tlb_refill: Ps,
    pub llcm_write: Ps,
    pub llcm: u64,
    pub bank: u64,
    pub bank_rate: Rate,
    pub bank_switch: Ps,
    pub botf_to_llcm: usize,
}

impl Parameters {
    pub fn read(machine: &Machine) -> Result<Parameters, MachineError> {
        let (host, send) = (machine.section("host"), machine.section("send"));
        let (receive, link) = (machine.section("receive"), machine.section("link"));
        let twist =
            match host.choice("data_lines", &[("straight", false), ("crossed fours", true)])? {
                false => Twist::straight(),
                true => Twist::crossed_fours(),
            };
        let twist_word = if twist.is_straight() { Ps::ZERO } else { host.time("twist_word")? };
        let small = |section: &crate::machine::Section<'_>, name: &str, most: u64| {
            let count = section.count(name)?;
            if (1..=most).contains(&count) {
                return Ok(count);
            }
            Err(section.error(name, format!("is {count}; it must be from 1 to {most}")))
        };
        let (ways, tags) = (small(&send, "htlb_ways", 64)?, small(&send, "htlb_tags", 1 << 16)?);
        let (tag_bits, seed_words) =
            (small(&send, "htlb_tag_bits", 16)?, send.count("htlb_seed_words")?);
        if tags % ways != 0 || !(tags / ways).is_power_of_two() {
            return Err(send.error(
                "htlb_tags",
                format!("is {tags}; sets of {ways} ways must come to a power of two"),
            ));
        }
        if seed_words != 4 * tags {
            return Err(send.error(
                "htlb_seed_words",
                format!("is {seed_words}; {tags} tags have seeds of 4 words each"),
            ));
        }
        let llcm = receive.bytes("llcm")?;
        let bank = receive.bytes("bank")?;
        let page = super::header::PAGE;
        if llcm < 4 * page || llcm % page != 0 || llcm > super::memory::BANK {
            return Err(receive.error(
                "llcm",
                format!("is {llcm} bytes; it must be whole pages of {page}, at least four"),
            ));
        }
        if bank < page || bank % page != 0 || bank > 1 << 40 {
            return Err(
                receive.error("bank", format!("is {bank} bytes; it must be whole pages of {page}"))
            );
        }
        Ok(Parameters {
            software: host.time("software")?,
            write: host.time("write")?,
            read: host.time_not_zero("read")? + twist_word,
            read_by_halves: host.time_not_zero("read_by_halves")? + twist_word,
            line: host.time("line")?,
            twist,
            twist_word,
            host_write: send.time("host_write")?,
            transaction_queue: send.time("transaction_queue")?,
            header_tlb: send.time("header_tlb")?,
            htlb: htlb::Shape {
                ways: ways as u32,
                sets: (tags / ways) as u32,
                tag_bits: tag_bits as u32,
            },
            htlb_refill: send.time("htlb_refill")?,
            size_decision: send.time("size_decision")?,
            send_buffer_handshake: send.time("send_buffer_handshake")?,
            swif_send: send.time("swif_send")?,
            aotf_queue: small(&send, "aotf_queue", 1 << 20)? as usize,
            botf_queue: small(&send, "botf_queue", 1 << 20)? as usize,
            botf_payload: small(&send, "botf_payload", 1 << 12)? as usize,
            botf_window: send.bytes_up_to("botf_window", 1 << 16)?,
            wire_header: send.bytes_up_to("wire_header", 1 << 16)?,
            link: link.rate("rate")?,
            link_delay: link.time("delay")?,
            swif_receive: receive.time("swif_receive")?,
            receive_tlb: receive.time("receive_tlb")?,
            receive_tlb_entries: small(&receive, "receive_tlb_entries", 1 << 20)? as usize,
            receive_tlb_refill: receive.time("receive_tlb_refill")?,
            llcm_write: receive.time("llcm_write")?,
            llcm,
            bank,
            bank_rate: receive.rate("bank_rate")?,
            bank_switch: receive.time("bank_switch")?,
            botf_to_llcm: receive.bytes("small")? as usize,
        })
    }

    /// How a host looks at LLCM: a read samples it in the middle.
    pub fn polling(&self) -> Polling {
        Polling { interval: self.read, sample: Ps(self.read.0 / 2) }
    }

    /// The host's writing of so many bytes through its write buffers, line by line.
    pub fn write_lines(&self, bytes: u64) -> Ps {
        self.line * bytes.div_ceil(LINE) + self.twist_word * bytes.div_ceil(8)
    }

    /// An AOTF message from one host to another that stand at one cable or switch, nothing in its
    /// way: from the call to the end of the look.
    pub fn message(&self) -> Ps {
        let out = self.software
            + self.twist_word
            + self.write
            + self.host_write
            + self.transaction_queue
            + self.header_tlb;
        let cross = self.size_decision
            + self.send_buffer_handshake
            + self.swif_send
            + self.link_delay
            + self.swif_receive;
        out + cross + self.llcm_write + self.read
    }
}
