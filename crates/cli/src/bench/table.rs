//! The table of specifications. To add a row, write a function in [`rows`](super::rows), and an
//! entry here: list, filter, help, dispatch and report are made from it.

use super::raw::udp;
use super::rows::{
    barriers, blocks, collectives, multicast, mutex_far, process, shared, simulated,
    simulated_call, startup, waits, words,
};
use super::spec::Measure::{Here, Joining, Pes, Process};
use super::spec::Variants::{PesAndSizes, PesUpToCpus, Single, Sizes, Waiters};
use super::spec::{PLAIN, Rounds, Setting, Spec, Special, Variants};
use super::stats::Better::{Higher, Lower};

/// Bytes of blocks: every power of two up to 64 MiB.
const BLOCKS: [usize; 24] = powers_of_two(3, 1);
/// Bytes of puts with signals.
const SIGNALLED: [usize; 7] = powers_of_two(3, 3);
/// PEs and bytes.
const BROADCASTS: [(usize, usize); 10] = [
    (2, 8),
    (2, 4 << 10),
    (2, 64 << 10),
    (2, 1 << 20),
    (2, 16 << 20),
    (4, 8),
    (4, 4 << 10),
    (4, 64 << 10),
    (4, 1 << 20),
    (4, 16 << 20),
];
/// PEs and bytes.
const MULTICASTS: [(usize, usize); 5] =
    [(2, 64 << 10), (4, 4 << 10), (4, 64 << 10), (4, 1 << 20), (4, 16 << 20)];
/// The most simulated PEs whose barrier a quick bench has time for.
const MOST_QUICK_PES: usize = 10_000;

const fn powers_of_two<const N: usize>(first: u32, step: u32) -> [usize; N] {
    let mut powers = [0; N];
    let mut i = 0;
    while i < N {
        powers[i] = 1 << (first + step * i as u32);
        i += 1;
    }
    powers
}

/// Every specification, in the order of the table.
pub const SPECS: &[Spec] = &[
    Spec {
        name: "pingpong",
        unit: "ns",
        better: Lower,
        osu: "osu_latency (x 2)",
        what: "round trip of one word: store it, wait for the answer",
        limit: "round trip with bare stores and loads: the better of polling with and without \
            `pause`",
        variants: Sizes { pes: 2, sizes: &[8] },
        rounds: Rounds { full: 60, quick: 4 },
        measure: Pes(words::ping_pong),
        special: PLAIN,
    },
    Spec {
        name: "store_rate",
        unit: "M/s",
        better: Higher,
        osu: "osu_oshm_put_mr",
        what: "stores of 8 bytes to a peer",
        limit: "a loop of bare stores to the same word",
        variants: Single { pes: 2, size: 8 },
        rounds: Rounds { full: 60, quick: 4 },
        measure: Pes(words::store_rate),
        special: PLAIN,
    },
    Spec {
        name: "put_nbi_rate",
        unit: "M/s",
        better: Higher,
        osu: "osu_oshm_put_mr_nb",
        what: "non-blocking puts of 8 bytes, a quiet after each batch",
        limit: "a loop of bare loads and stores of these words",
        variants: Single { pes: 2, size: 8 },
        rounds: Rounds { full: 60, quick: 4 },
        measure: Pes(words::put_nbi_rate),
        special: PLAIN,
    },
    Spec {
        name: "fetch_add",
        unit: "ns",
        better: Lower,
        osu: "osu_oshm_atomics (fadd)",
        what: "fetch-add on a peer's word",
        limit: "the lock-prefixed instruction on that word",
        variants: Single { pes: 2, size: 8 },
        rounds: Rounds { full: 60, quick: 4 },
        measure: Pes(words::fetch_add),
        special: PLAIN,
    },
    Spec {
        name: "put_signal",
        unit: "ns",
        better: Lower,
        osu: "-",
        what: "round trip of a put with signal; the receiver reads the payload",
        limit: "memcpy (one store for 8 bytes), then a store of a flag on another line",
        variants: Sizes { pes: 2, sizes: &SIGNALLED },
        rounds: Rounds { full: 60, quick: 4 },
        measure: Pes(blocks::put_signal),
        special: PLAIN,
    },
    Spec {
        name: "put_bandwidth",
        unit: "MB/s",
        better: Higher,
        osu: "osu_put_bw",
        what: "blocking puts of this size",
        limit: "libc memcpy between the same mappings",
        variants: Sizes { pes: 2, sizes: &BLOCKS },
        rounds: Rounds { full: 60, quick: 4 },
        measure: Pes(blocks::put_bandwidth),
        special: PLAIN,
    },
    Spec {
        name: "get_bandwidth",
        unit: "MB/s",
        better: Higher,
        osu: "osu_get_bw",
        what: "gets of this size",
        limit: "libc memcpy between the same mappings",
        variants: Sizes { pes: 2, sizes: &BLOCKS },
        rounds: Rounds { full: 60, quick: 4 },
        measure: Pes(blocks::get_bandwidth),
        special: PLAIN,
    },
    Spec {
        name: "barrier",
        unit: "us",
        better: Lower,
        osu: "osu_oshm_barrier",
        what: "barrier of the whole job",
        limit: "2 PEs: each stores a number into the other's line and polls its own. More PEs: \
            the best of four raw barriers (central or dissemination; futex or sched_yield), and \
            of two that spin where every PE has a core",
        variants: PesUpToCpus,
        rounds: Rounds { full: 20, quick: 4 },
        measure: Pes(barriers::barrier),
        special: PLAIN,
    },
    Spec {
        name: "barrier_busy",
        unit: "us",
        better: Lower,
        osu: "osu_oshm_barrier",
        what: "barrier of the whole job beside a busy process pinned to each core",
        limit: "the best of raw barriers that sleep on a futex (central, dissemination), at once \
            or after a short spin, beside the busy processes",
        variants: Variants::Pes { pes: &[2, 4, 8, 16], size: 0 },
        rounds: Rounds { full: 20, quick: 4 },
        measure: Pes(barriers::barrier_busy),
        special: Special { setting: Setting::Interference, ..PLAIN },
    },
    Spec {
        name: "broadcast",
        unit: "us",
        better: Lower,
        osu: "osu_oshm_broadcast",
        what: "a block from PE 0 to all PEs, then a barrier",
        limit: "a barrier, memcpy from PE 0's memory, a barrier",
        variants: PesAndSizes(&BROADCASTS),
        rounds: Rounds { full: 20, quick: 4 },
        measure: Pes(collectives::broadcast),
        special: PLAIN,
    },
    Spec {
        name: "all_reduce",
        unit: "us",
        better: Lower,
        osu: "osu_oshm_reduce",
        what: "the sum of one word of each PE",
        limit: "a barrier",
        variants: Variants::Pes { pes: &[2, 4, 8, 16], size: 8 },
        rounds: Rounds { full: 20, quick: 4 },
        measure: Pes(collectives::all_reduce),
        special: PLAIN,
    },
    Spec {
        name: "multicast_latency",
        unit: "ns",
        better: Lower,
        osu: "osu_latency (x 2)",
        what: "a block by a multicast channel, and one back by another channel",
        limit: "round trip of one word with bare stores and loads: the better of polling with and \
            without `pause`. Each sample has lines of its own: their address changes the time by a \
            third",
        variants: Sizes { pes: 2, sizes: &[8] },
        rounds: Rounds { full: 60, quick: 4 },
        measure: Pes(multicast::latency),
        special: PLAIN,
    },
    Spec {
        name: "multicast_messages",
        unit: "M/s",
        better: Higher,
        osu: "-",
        what: "blocks by a multicast channel to one reader, copied in and copied out",
        limit: "blocks by a bare ring of numbered slots",
        variants: Sizes { pes: 2, sizes: &[8, 64] },
        rounds: Rounds { full: 20, quick: 4 },
        measure: Pes(multicast::rate),
        special: PLAIN,
    },
    Spec {
        name: "multicast_bandwidth",
        unit: "MB/s",
        better: Higher,
        osu: "osu_bcast",
        what: "bytes by a multicast channel that all readers together copy out",
        limit: "the better of libc memcpy of such blocks by one PE alone, and of a bare ring of \
            equal size between equally many processes",
        variants: PesAndSizes(&MULTICASTS),
        rounds: Rounds { full: 20, quick: 4 },
        measure: Pes(multicast::bandwidth),
        special: Special { has_unlike_limits: true, ..PLAIN },
    },
    Spec {
        name: "multicast_in_place",
        unit: "MB/s",
        better: Higher,
        osu: "osu_bcast",
        what: "bytes by a multicast channel of which all readers together read each line in place",
        limit: "as for multicast_bandwidth, read in place",
        variants: PesAndSizes(&MULTICASTS),
        rounds: Rounds { full: 20, quick: 4 },
        measure: Pes(multicast::in_place),
        special: Special { has_unlike_limits: true, ..PLAIN },
    },
    Spec {
        name: "multicast_udp",
        unit: "MB/s",
        better: Higher,
        osu: "-",
        what: "bytes that each reader receives by a multicast channel over UDP, on the loopback \
            interface, which loses no datagram",
        limit: "as many bytes by bare sockets, in equally large datagrams to such a group, without \
            checks or repair",
        variants: PesAndSizes(&[(4, 64 << 10)]),
        rounds: Rounds { full: 20, quick: 4 },
        measure: Pes(multicast::over_udp),
        special: Special { setting: Setting::Variable(udp::environment), ..PLAIN },
    },
    Spec {
        name: "mutex",
        unit: "ns",
        better: Lower,
        osu: "-",
        what: "lock a shared mutex that no other PE wants, change 8 bytes, unlock",
        limit: "lock, change, unlock with the simplest ticket lock",
        variants: Single { pes: 2, size: 8 },
        rounds: Rounds { full: 60, quick: 4 },
        measure: Pes(shared::mutex),
        special: PLAIN,
    },
    Spec {
        name: "mutex_contended",
        unit: "M/s",
        better: Higher,
        osu: "-",
        what: "lock, change 8 bytes, unlock by all PEs at once: operations of all PEs together",
        limit: "lock, change, unlock with the simplest ticket lock",
        variants: Single { pes: 2, size: 8 },
        rounds: Rounds { full: 60, quick: 4 },
        measure: Pes(shared::mutex_contended),
        special: PLAIN,
    },
    Spec {
        name: "lock",
        unit: "ns",
        better: Lower,
        osu: "-",
        what: "set a lock of a window that no other PE wants, change a word by get and put, clear it",
        limit: "lock, change, unlock with the simplest ticket lock",
        variants: Single { pes: 2, size: 8 },
        rounds: Rounds { full: 60, quick: 4 },
        measure: Pes(shared::lock),
        special: PLAIN,
    },
    Spec {
        name: "lock_contended",
        unit: "M/s",
        better: Higher,
        osu: "-",
        what: "set a lock of a window, change a word of PE 0 by get and put, and clear it, by all PEs \
            at once: operations of all PEs together",
        limit: "lock, change, unlock with the simplest ticket lock",
        variants: Single { pes: 2, size: 8 },
        rounds: Rounds { full: 60, quick: 4 },
        measure: Pes(shared::lock_contended),
        special: PLAIN,
    },
    Spec {
        name: "mutex_kept_far",
        unit: "ns",
        better: Lower,
        osu: "-",
        what: "lock, change 8 bytes, unlock by the last owner, behind the test fabric, without a \
            message; the target is 50 ns",
        limit: "the simplest ticket lock, in private memory",
        variants: Single { pes: 1, size: 8 },
        // Each sample is a job of threads.
        rounds: Rounds { full: 10, quick: 2 },
        measure: Pes(shared::mutex_kept),
        special: PLAIN,
    },
    Spec {
        name: "mutex_handover_far",
        unit: "us",
        better: Lower,
        osu: "-",
        what: "from the release of a shared value until a waiting PE has it, in the time of a \
            simulated network with remote DMA; the target is 1.5 round trips",
        limit: "round trip of a put with signal of as many bytes, in that network",
        variants: Sizes { pes: 2, sizes: &[1024] },
        // Every round gives the same value.
        rounds: Rounds { full: 1, quick: 1 },
        measure: Process(mutex_far::released),
        special: PLAIN,
    },
    Spec {
        name: "mutex_fetched_far",
        unit: "us",
        better: Lower,
        osu: "-",
        what: "from the lock until this PE has the value, whose last owner does something else",
        limit: "round trip of a put with signal of as many bytes, in that network",
        variants: Sizes { pes: 2, sizes: &[1024] },
        // Every round gives the same value.
        rounds: Rounds { full: 1, quick: 1 },
        measure: Process(mutex_far::fetched),
        special: PLAIN,
    },
    Spec {
        name: "region_merge",
        unit: "MB/s",
        better: Higher,
        osu: "-",
        what: "release of dirty pages of 4096 bytes, with this many bytes changed in each, behind \
            the test fabric: bytes of compared pages",
        limit: "libc memcpy of as many pages",
        variants: Sizes { pes: 1, sizes: &[8, 4096] },
        // Each sample is a job of threads.
        rounds: Rounds { full: 10, quick: 2 },
        measure: Pes(shared::region_merge),
        special: PLAIN,
    },
    Spec {
        name: "wait_cpu",
        unit: "% of a core",
        better: Lower,
        osu: "-",
        what: "CPU time of all waiting PEs together, in a wait of a second for a plain store",
        limit: "-",
        variants: Waiters(16),
        // Each waits a second.
        rounds: Rounds { full: 3, quick: 1 },
        measure: Pes(waits::cpu),
        special: Special { sums_pes: true, ..PLAIN },
    },
    Spec {
        name: "wait_store_latency",
        unit: "us",
        better: Lower,
        osu: "-",
        what: "from a plain store, by a PE that then computes, until a waiting PE sees it",
        limit: "-",
        variants: Waiters(16),
        // Each waits a second.
        rounds: Rounds { full: 3, quick: 1 },
        measure: Pes(waits::store_latency),
        special: PLAIN,
    },
    Spec {
        name: "wait_signal_latency",
        unit: "us",
        better: Lower,
        osu: "-",
        what: "from a signal to one of many sleeping PEs until that PE sees it",
        limit: "a store and a futex wake",
        variants: Waiters(16),
        rounds: Rounds { full: 10, quick: 3 },
        measure: Pes(waits::signal_latency),
        special: PLAIN,
    },
    Spec {
        name: "event",
        unit: "us",
        better: Lower,
        osu: "-",
        what: "from a signal until a program that polls the descriptor of an event has the value",
        limit: "store and futex wake to a thread that writes an eventfd, which the program polls",
        variants: Single { pes: 2, size: 0 },
        // Each sleeps a tenth of a second.
        rounds: Rounds { full: 40, quick: 4 },
        measure: Pes(waits::event),
        special: PLAIN,
    },
    Spec {
        name: "startup",
        unit: "ms",
        better: Lower,
        osu: "osu_oshm_hello",
        what: "`memonet run` of a program that only joins its job, from start to end",
        limit: "a loop of posix_spawn and wait of as many `true`",
        variants: Variants::Pes { pes: &[2, 16], size: 0 },
        rounds: Rounds { full: 20, quick: 4 },
        measure: Here(startup::measure),
        special: PLAIN,
    },
    Spec {
        name: "memory",
        unit: "KiB",
        better: Lower,
        osu: "-",
        what: "resident memory of a PE that has joined its job and touched nothing",
        limit: "resident memory of that process before it joined",
        variants: Variants::Pes { pes: &[16], size: 0 },
        // Every round gives the same value.
        rounds: Rounds { full: 1, quick: 1 },
        measure: Joining { before: process::resident_kib, after: waits::memory },
        special: PLAIN,
    },
    Spec {
        name: "sim_events",
        unit: "M/s",
        better: Higher,
        osu: "-",
        what: "events of a simulated machine, with about 100,000 pending, on one core: its nodes \
            send each other blocks of many packets",
        limit: "a bare binary heap: pop and push of 16 bytes, with as many entries",
        variants: Single { pes: 1, size: 0 },
        rounds: Rounds { full: 5, quick: 1 },
        measure: Process(simulated::events),
        special: PLAIN,
    },
    Spec {
        name: "sim_barrier",
        unit: "s",
        better: Lower,
        osu: "-",
        what: "a job of this many simulated PEs that meet in one barrier, from start to end: real \
            time",
        limit: "-",
        variants: Variants::Pes { pes: &[4096, 65_536], size: 0 },
        // A sample takes seconds.
        rounds: Rounds { full: 3, quick: 1 },
        measure: Process(simulated::barrier),
        special: Special { most_quick_pes: MOST_QUICK_PES, ..PLAIN },
    },
    Spec {
        name: "sim_barrier_memory",
        unit: "MiB",
        better: Lower,
        osu: "-",
        what: "peak resident memory of such a job",
        limit: "-",
        variants: Variants::Pes { pes: &[4096, 65_536], size: 0 },
        // Every round gives the same value.
        rounds: Rounds { full: 1, quick: 1 },
        measure: Process(simulated::barrier_memory),
        special: Special { most_quick_pes: MOST_QUICK_PES, ..PLAIN },
    },
    Spec {
        name: "sim_call",
        unit: "ns",
        better: Lower,
        osu: "-",
        what: "a call of a process on a simulated machine, to the engine and back: real time; the \
            target is 1.5 times the limit",
        limit: "two hand-overs by futex between processes on one CPU, there and back",
        variants: Single { pes: 1, size: 0 },
        rounds: Rounds { full: 20, quick: 4 },
        measure: Pes(simulated_call::measure),
        special: Special { setting: Setting::Machine(simulated::MACHINE), ..PLAIN },
    },
];
