//! The rows of the bench: what each is called, what it measures, and what bounds it.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Which way a row improves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
}

/// What is measured; a job of its own measures all rows of one kind that have the same number of
/// PEs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    PingPong,
    StoreRate,
    PutNbiRate,
    FetchAdd,
    PutSignal,
    PutBandwidth,
    GetBandwidth,
    Barrier,
    BarrierBusy,
    Broadcast,
    AllReduce,
    MulticastLatency,
    MulticastRate,
    MulticastBandwidth,
    MulticastInPlace,
    MulticastUdp,
    Mutex,
    MutexContended,
    MutexKept,
    MutexHandOver,
    MutexFetched,
    RegionMerge,
    WaitCpu,
    WaitStoreLatency,
    WaitSignalLatency,
    Startup,
    Memory,
    SimulatedEvents,
    SimulatedBarrier,
    SimulatedBarrierMemory,
    SimulatedCall,
}

/// How long something is measured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Effort {
    /// Rounds in which memonet and its limits take turns.
    pub rounds: usize,
    /// Whether fewer rounds will do where these take long.
    pub quick: bool,
}

/// After how long a quick row begins no further round: on a machine that others load, a round may
/// take seconds.
const QUICK_ROW: Duration = Duration::from_millis(200);
/// A quick sample has this part of the operations of a whole one.
const QUICK_PART: usize = 8;

impl Effort {
    /// Whether a row that was begun then, and has had a round, has had enough.
    pub fn is_spent(self, begun: Instant) -> bool {
        self.quick && begun.elapsed() > QUICK_ROW
    }

    /// How many of these operations a sample has.
    pub fn of(self, operations: usize) -> usize {
        if self.quick { operations.div_ceil(QUICK_PART) } else { operations }
    }
}

/// One line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub id: String,
    pub kind: Kind,
    /// PEs of the job that measures it.
    pub pes: usize,
    /// Bytes of one operation, 0 where that means nothing.
    pub size: usize,
}

/// What all rows of a kind have in common.
pub struct Traits {
    pub name: &'static str,
    pub unit: &'static str,
    pub better: Better,
    /// The row of the OSU micro-benchmarks that measures the same thing.
    pub osu: &'static str,
    pub what: &'static str,
    pub limit: &'static str,
}

impl Kind {
    pub const ALL: [Self; 31] = [
        Self::PingPong,
        Self::StoreRate,
        Self::PutNbiRate,
        Self::FetchAdd,
        Self::PutSignal,
        Self::PutBandwidth,
        Self::GetBandwidth,
        Self::Barrier,
        Self::BarrierBusy,
        Self::Broadcast,
        Self::AllReduce,
        Self::MulticastLatency,
        Self::MulticastRate,
        Self::MulticastBandwidth,
        Self::MulticastInPlace,
        Self::MulticastUdp,
        Self::Mutex,
        Self::MutexContended,
        Self::MutexKept,
        Self::MutexHandOver,
        Self::MutexFetched,
        Self::RegionMerge,
        Self::WaitCpu,
        Self::WaitStoreLatency,
        Self::WaitSignalLatency,
        Self::Startup,
        Self::Memory,
        Self::SimulatedEvents,
        Self::SimulatedBarrier,
        Self::SimulatedBarrierMemory,
        Self::SimulatedCall,
    ];

    /// How long its rows are measured.
    pub fn effort(self, quick: bool) -> Effort {
        let (full, quick_rounds) = match self {
            // Each waits a second.
            Self::WaitCpu | Self::WaitStoreLatency => (3, 1),
            Self::WaitSignalLatency => (10, 3),
            // Says the same every time.
            Self::Memory
            | Self::SimulatedBarrierMemory
            | Self::MutexHandOver
            | Self::MutexFetched => (1, 1),
            Self::SimulatedEvents => (5, 1),
            // Seconds each.
            Self::SimulatedBarrier => (3, 1),
            Self::MulticastRate
            | Self::MulticastBandwidth
            | Self::MulticastInPlace
            | Self::MulticastUdp => (20, 4),
            Self::Barrier
            | Self::BarrierBusy
            | Self::Broadcast
            | Self::AllReduce
            | Self::Startup
            | Self::SimulatedCall => (20, 4),
            // A job of threads for each sample.
            Self::MutexKept | Self::RegionMerge => (10, 2),
            _ => (60, 4),
        };
        Effort { rounds: if quick { quick_rounds } else { full }, quick }
    }

    /// Whether its limits are of different kinds, so that the best does not stand for the others,
    /// and the table shows the ratio to each.
    pub fn has_unlike_limits(self) -> bool {
        matches!(self, Self::MulticastBandwidth | Self::MulticastInPlace)
    }

    #[rustfmt::skip] // a table
    pub fn traits(self) -> Traits {
        use Better::{Higher, Lower};
        let row = |name, unit, better, osu, what, limit| Traits { name, unit, better, osu, what, limit };
        match self {
            Self::PingPong => row("pingpong", "ns", Lower, "osu_latency (x 2)",
                "round trip of one word: store, wait for the answer",
                "the same with bare stores and loads, the better of polling with and without `pause`"),
            Self::StoreRate => row("store_rate", "M/s", Higher, "osu_oshm_put_mr",
                "stores of 8 bytes to a peer", "a loop of bare stores to the same word"),
            Self::PutNbiRate => row("put_nbi_rate", "M/s", Higher, "osu_oshm_put_mr_nb",
                "non-blocking puts of 8 bytes, a quiet per batch", "a loop of bare loads and stores of the same words"),
            Self::FetchAdd => row("fetch_add", "ns", Lower, "osu_oshm_atomics (fadd)",
                "fetch-add on a peer's word", "the lock-prefixed instruction on the same word"),
            Self::PutSignal => row("put_signal", "ns", Lower, "-",
                "round trip of a put with signal, the payload read on arrival",
                "memcpy (one store for 8 bytes), then a store of a flag on another line"),
            Self::PutBandwidth => row("put_bandwidth", "MB/s", Higher, "osu_put_bw",
                "blocking puts of one size", "libc memcpy between the same mappings"),
            Self::GetBandwidth => row("get_bandwidth", "MB/s", Higher, "osu_get_bw",
                "gets of one size", "libc memcpy between the same mappings"),
            Self::Barrier => row("barrier", "us", Lower, "osu_oshm_barrier",
                "barrier of the whole job",
                "2 PEs: each stores a number into the other's line and polls its own; more: the best of four raw barriers (central or dissemination; futex or sched_yield), and of two that spin where every PE has a core"),
            Self::BarrierBusy => row("barrier_busy", "us", Lower, "osu_oshm_barrier",
                "the same with a busy stranger pinned to each core",
                "the better of two raw barriers that sleep on a futex (central, dissemination), at once or after a short spin, under the same load"),
            Self::Broadcast => row("broadcast", "us", Lower, "osu_oshm_broadcast",
                "a block from PE 0 to all, and a barrier", "a barrier, memcpy from PE 0's memory, and a barrier"),
            Self::AllReduce => row("all_reduce", "us", Lower, "osu_oshm_reduce",
                "the sum of a word of all", "a barrier"),
            Self::MulticastLatency => row("multicast_latency", "ns", Lower, "osu_latency (x 2)",
                "a block by a multicast channel, and one back by another", "round trip of one word with bare stores and loads, in lines elsewhere for each sample as a line's address is worth a third, the better of polling with and without `pause`"),
            Self::MulticastRate => row("multicast_messages", "M/s", Higher, "-",
                "blocks by a multicast channel to one reader, copied in and out", "the same by a bare ring of numbered slots"),
            Self::MulticastBandwidth => row("multicast_bandwidth", "MB/s", Higher, "osu_bcast",
                "bytes by a multicast channel, which each of the other PEs copies out, in all", "the better of libc memcpy of such blocks by one PE alone, and of the same by a bare ring as large between as many processes"),
            Self::MulticastInPlace => row("multicast_in_place", "MB/s", Higher, "osu_bcast",
                "the same, each line of which they read where it is", "as for copies"),
            Self::MulticastUdp => row("multicast_udp", "MB/s", Higher, "-",
                "bytes by a multicast channel over UDP that come to each of the other PEs, on the loopback interface, which loses none",
                "the same bytes by bare sockets, in datagrams as large to the same kind of group, which nobody checks or repairs"),
            Self::Mutex => row("mutex", "ns", Lower, "-",
                "lock a shared mutex that nobody else wants, change 8 bytes, unlock",
                "the same with the plainest ticket lock"),
            Self::MutexContended => row("mutex_contended", "M/s", Higher, "-",
                "the same by all PEs at once: how often in all", "the same with the plainest ticket lock"),
            Self::MutexKept => row("mutex_kept_far", "ns", Lower, "-",
                "the same by who had it last, behind the test fabric, without a message; 50 ns are wanted",
                "the same with the plainest ticket lock, in private memory"),
            Self::MutexHandOver => row("mutex_handover_far", "us", Lower, "-",
                "a shared value comes to who waits for it, from its release on, in the time of a simulated network with remote DMA; 1.5 round trips are wanted",
                "round trip of a put with signal of as many bytes there"),
            Self::MutexFetched => row("mutex_fetched_far", "us", Lower, "-",
                "the same from who had it last and does something else, from the lock on",
                "round trip of a put with signal of as many bytes there"),
            Self::RegionMerge => row("region_merge", "MB/s", Higher, "-",
                "release of dirty pages of 4096 bytes with so many bytes changed in each, behind the test fabric: bytes of pages looked through",
                "memcpy of as many pages"),
            Self::WaitCpu => row("wait_cpu", "% of a core", Lower, "-",
                "CPU time of all PEs together that wait a second for a plain store by one more", "-"),
            Self::WaitStoreLatency => row("wait_store_latency", "us", Lower, "-",
                "from that store, by a PE that then computes, until it is seen", "-"),
            Self::WaitSignalLatency => row("wait_signal_latency", "us", Lower, "-",
                "from a signal to one of many sleeping PEs until it is seen", "a store and a futex wake"),
            Self::Startup => row("startup", "ms", Lower, "osu_oshm_hello",
                "`memonet run` of a program that only joins its job, from start to end",
                "a loop of posix_spawn and wait of as many `true`"),
            Self::Memory => row("memory", "KiB", Lower, "-",
                "resident memory of a PE that has joined and touched nothing", "the same process before it joined"),
            Self::SimulatedEvents => row("sim_events", "M/s", Higher, "-",
                "events of a simulated machine, with about 100,000 pending, on one core: nodes send each other blocks of many packets",
                "a bare binary heap: pop and push of 16 bytes, with as many pending"),
            Self::SimulatedBarrier => row("sim_barrier", "s", Lower, "-",
                "a job of so many simulated PEs that meet in one barrier, from start to end: real time", "-"),
            Self::SimulatedBarrierMemory => row("sim_barrier_memory", "MiB", Lower, "-",
                "the most memory that was resident in it", "-"),
            Self::SimulatedCall => row("sim_call", "ns", Lower, "-",
                "a call of a process on a simulated machine, to the engine and back: real time; 1.5 times the limit is wanted",
                "two hand-overs by futex between processes on one CPU, there and back"),
        }
    }
}

/// Smallest and largest block, as powers of two.
const BLOCKS: std::ops::RangeInclusive<u32> = 3..=26;
/// Sizes of the signalled puts, as powers of two.
const SIGNALLED: [u32; 7] = [3, 6, 9, 12, 15, 18, 21];

/// Sizes of broadcasts, as powers of two.
const BROADCAST: [u32; 5] = [3, 12, 16, 20, 24];

/// Every row, in the order of the table. `cpus` bounds the barriers: they go to 32 PEs or to one
/// per CPU, whichever is more.
pub fn rows(cpus: usize) -> Vec<Row> {
    let mut rows = Vec::new();
    for kind in Kind::ALL {
        let name = kind.traits().name;
        let mut add = |suffix: Option<usize>, pes, size| {
            let id = suffix.map_or(name.into(), |suffix| format!("{name}.{suffix}"));
            rows.push(Row { id, kind, pes, size });
        };
        match kind {
            Kind::PingPong => add(Some(8), 2, 8),
            Kind::StoreRate | Kind::PutNbiRate | Kind::FetchAdd => add(None, 2, 8),
            Kind::PutSignal => {
                SIGNALLED.iter().for_each(|&power| add(Some(1 << power), 2, 1 << power))
            }
            Kind::PutBandwidth | Kind::GetBandwidth => {
                BLOCKS.for_each(|power| add(Some(1 << power), 2, 1 << power))
            }
            Kind::Barrier => {
                let mut pes = 2;
                while pes <= cpus.max(32) {
                    add(Some(pes), pes, 0);
                    pes *= 2;
                }
            }
            Kind::BarrierBusy => [2, 4, 8, 16].iter().for_each(|&pes| add(Some(pes), pes, 0)),
            Kind::Broadcast => {
                for (pes, size) in
                    [2, 4].into_iter().flat_map(|pes| BROADCAST.map(|power| (pes, 1 << power)))
                {
                    let id = format!("{name}.{pes}.{size}");
                    rows.push(Row { id, kind, pes, size });
                }
            }
            Kind::MulticastLatency => add(Some(8), 2, 8),
            Kind::MulticastRate => [8, 64].iter().for_each(|&size| add(Some(size), 2, size)),
            Kind::MulticastBandwidth | Kind::MulticastInPlace => {
                for (pes, size) in
                    [(2, 1 << 16), (4, 1 << 12), (4, 1 << 16), (4, 1 << 20), (4, 1 << 24)]
                {
                    let id = format!("{name}.{pes}.{size}");
                    rows.push(Row { id, kind, pes, size });
                }
            }
            Kind::MulticastUdp => {
                let (pes, size) = (4, 1 << 16);
                let id = format!("{name}.{pes}.{size}");
                rows.push(Row { id, kind, pes, size });
            }
            Kind::AllReduce => [2, 4, 8, 16].iter().for_each(|&pes| add(Some(pes), pes, 8)),
            Kind::Mutex => add(None, 2, 8),
            Kind::MutexContended => add(None, 2, 8),
            Kind::MutexKept => add(None, 1, 8),
            Kind::MutexHandOver | Kind::MutexFetched => add(Some(1024), 2, 1024),
            Kind::RegionMerge => [8, 4096].iter().for_each(|&bytes| add(Some(bytes), 1, bytes)),
            // The PE that ends the wait is not counted.
            Kind::WaitCpu | Kind::WaitStoreLatency | Kind::WaitSignalLatency => {
                add(Some(16), 17, 0)
            }
            Kind::Startup => [2, 16].iter().for_each(|&pes| add(Some(pes), pes, 0)),
            Kind::Memory => add(Some(16), 16, 0),
            Kind::SimulatedEvents | Kind::SimulatedCall => add(None, 1, 0),
            Kind::SimulatedBarrier | Kind::SimulatedBarrierMemory => {
                [4096, 65_536].iter().for_each(|&pes| add(Some(pes), pes, 0))
            }
        }
    }
    rows
}

impl Row {
    /// Whether one sample takes most of a minute.
    fn is_long(&self) -> bool {
        matches!(self.kind, Kind::SimulatedBarrier | Kind::SimulatedBarrierMemory)
            && self.pes > 10_000
    }
}

/// Leaves out of a quick bench what would take most of its time, unless it is asked for by its
/// whole name. Gives the names of what is left out.
pub fn leave_out_long(rows: &mut Vec<Row>, filters: &[String]) -> Vec<String> {
    let (long, short) = std::mem::take(rows)
        .into_iter()
        .partition(|row: &Row| row.is_long() && !filters.contains(&row.id));
    *rows = short;
    long.into_iter().map(|row: Row| row.id).collect()
}

/// The rows whose id contains one of the filters; all without filters.
pub fn select(rows: Vec<Row>, filters: &[String]) -> Vec<Row> {
    let wanted = |row: &Row| {
        filters.is_empty() || filters.iter().any(|filter| row.id.contains(filter.as_str()))
    };
    rows.into_iter().filter(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_complete() {
        let rows = rows(2);
        let ids: std::collections::BTreeSet<_> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), rows.len());
        for id in [
            "pingpong.8",
            "store_rate",
            "put_bandwidth.1048576",
            "get_bandwidth.67108864",
            "barrier.32",
            "startup.16",
        ] {
            assert!(ids.contains(id), "no row {id}");
        }
    }

    #[test]
    fn barriers_reach_the_number_of_cpus() {
        assert!(rows(64).iter().any(|row| row.id == "barrier.64"));
        assert!(!rows(2).iter().any(|row| row.id == "barrier.64"));
    }

    #[test]
    fn a_quick_bench_leaves_out_what_takes_long_unless_it_is_named() {
        let left = |filter: &str| {
            let filters = [filter.to_owned()];
            leave_out_long(&mut select(rows(2), &filters), &filters)
        };
        assert_eq!(left("sim_barrier"), ["sim_barrier.65536", "sim_barrier_memory.65536"]);
        assert_eq!(left("sim_barrier.65536"), [""; 0]);
        assert_eq!(left("pingpong"), [""; 0]);
    }

    #[test]
    fn filters_select_by_part_of_the_id() {
        let ids = |filter: &str| -> Vec<String> {
            select(rows(2), &[filter.into()]).into_iter().map(|row| row.id).collect()
        };
        assert_eq!(ids("barrier.2"), ["barrier.2"]);
        assert_eq!(ids("startup"), ["startup.2", "startup.16"]);
        assert!(ids("nothing like it").is_empty());
    }
}
