//! The table of rows between hosts, for `memonet bench --hosts`. An entry is one of
//! [`table`](super::table)'s; numbers of PEs are those of each host.

use super::raw::libfabric;
use super::rows::{
    far, far_libfabric, far_meetings, far_multicast, far_shared, far_startup, near_beside_far,
};
use super::spec::Measure::{self, PesOnHosts, WithAndWithoutFar};
use super::spec::Variants::{self, PesAndSizes, Single, Sizes};
use super::spec::{PLAIN, Rounds, Setting, Spec, Special};
use super::stats::Better::{Higher, Lower};

/// Jobs whose PEs reach each other by libfabric.
const BY_LIBFABRIC: Special = Special {
    setting: Setting::Variable(|| {
        (memonet::ENV_FABRIC.into(), format!("ofi:provider={}", libfabric::provider()))
    }),
    ..PLAIN
};

/// Whether the rows of a specification are measured in jobs by libfabric.
pub fn is_by_libfabric(spec: &Spec) -> bool {
    spec.name.starts_with("far_ofi_")
}

/// Every specification, in the order of the table.
pub const SPECS_OF_HOSTS: &[Spec] = &[
    Spec {
        name: "far_pingpong",
        unit: "us",
        better: Lower,
        osu: "osu_latency (x 2)",
        what: "round trip of one word between hosts: store it, wait for the answer",
        limit: "round trip of 8 bytes over a bare TCP socket that sends at once and does not \
            block, both ends polling",
        variants: Sizes { pes: 1, sizes: &[8] },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far::ping_pong),
        special: PLAIN,
    },
    Spec {
        name: "far_get",
        unit: "us",
        better: Lower,
        osu: "osu_oshm_get",
        what: "get of one word of another host, whose PE is in a wait",
        limit: "round trip of 8 bytes over a bare TCP socket that sends at once and does not \
            block, both ends polling",
        variants: Sizes { pes: 1, sizes: &[8] },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far::get),
        special: PLAIN,
    },
    Spec {
        name: "far_get_computing",
        unit: "us",
        better: Lower,
        osu: "-",
        what: "get of one word of another host, whose PE computes and makes no call",
        limit: "round trip of 8 bytes over a bare TCP socket: PE 0 polls, and beside the same \
            computing a thread of the target blocks in reading and answers",
        variants: Sizes { pes: 1, sizes: &[8] },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far::get_computing),
        special: PLAIN,
    },
    Spec {
        name: "far_fetch_add",
        unit: "us",
        better: Lower,
        osu: "osu_oshm_atomics",
        what: "fetch-add on a word of another host, whose PE is in a wait",
        limit: "round trip of 8 bytes over a bare TCP socket that sends at once and does not \
            block, both ends polling",
        variants: Single { pes: 1, size: 8 },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far::fetch_add),
        special: PLAIN,
    },
    Spec {
        name: "far_fetch_add_computing",
        unit: "us",
        better: Lower,
        osu: "-",
        what: "fetch-add on a word of another host, whose PE computes and makes no call",
        limit: "round trip of 8 bytes over a bare TCP socket: PE 0 polls, and beside the same \
            computing a thread of the target blocks in reading and answers",
        variants: Single { pes: 1, size: 8 },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far::fetch_add_computing),
        special: PLAIN,
    },
    Spec {
        name: "far_put_quiet",
        unit: "us",
        better: Lower,
        osu: "osu_oshm_put",
        what: "put of one word to another host, whose PE is in a wait, and quiet",
        limit: "round trip of 8 bytes over a bare TCP socket that sends at once and does not \
            block, both ends polling",
        variants: Sizes { pes: 1, sizes: &[8] },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far::put_quiet),
        special: PLAIN,
    },
    Spec {
        name: "far_put_nbi_rate",
        unit: "M/s",
        better: Higher,
        osu: "osu_oshm_put_mr",
        what: "non-blocking puts of 8 bytes to another host, completed every 10,000",
        limit: "records of 24 bytes (place and value, as memonet's own) over a bare TCP socket, \
            sent in batches of 16 KiB, with each value stored in its place",
        variants: Single { pes: 1, size: 8 },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far::put_nbi_rate),
        special: PLAIN,
    },
    Spec {
        name: "far_put_bandwidth",
        unit: "MB/s",
        better: Higher,
        osu: "osu_put_bw",
        what: "puts to another host, completed every 8",
        limit: "as many bytes over a bare TCP socket, into one buffer",
        variants: Sizes { pes: 1, sizes: &[64 << 10, 1 << 20] },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far::put_bandwidth),
        special: PLAIN,
    },
    Spec {
        name: "far_ofi_pingpong",
        unit: "us",
        better: Lower,
        osu: "osu_latency (x 2)",
        what: "round trip of one word between hosts by libfabric: store it, wait for the answer",
        limit: "round trip of a message of 8 bytes between two endpoints of the same provider, \
            without memonet, both ends polling",
        variants: Sizes { pes: 1, sizes: &[8] },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far_libfabric::ping_pong),
        special: BY_LIBFABRIC,
    },
    Spec {
        name: "far_ofi_put_bandwidth",
        unit: "MB/s",
        better: Higher,
        osu: "osu_put_bw",
        what: "puts to another host by libfabric, completed every 8",
        limit: "as many writes between two endpoints of the same provider, without memonet, all \
            under way at once, and a message at their end",
        variants: Sizes { pes: 1, sizes: &[1 << 20] },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far_libfabric::put_bandwidth),
        special: BY_LIBFABRIC,
    },
    Spec {
        name: "far_barrier",
        unit: "us",
        better: Lower,
        osu: "osu_barrier",
        what: "barrier over all hosts, with so many PEs on each",
        limit: "one message, which is all that must follow on each other, times half a round trip \
            of 8 bytes over a bare TCP socket between the first two hosts, both ends polling",
        variants: Variants::Pes { pes: &[1, 2], size: 8 },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far_meetings::barrier),
        special: PLAIN,
    },
    Spec {
        name: "far_all_reduce",
        unit: "us",
        better: Lower,
        osu: "osu_allreduce",
        what: "sum of one word of each PE, for all of them, with so many PEs on each host",
        limit: "one message, which is all that must follow on each other, times half a round trip \
            of 8 bytes over a bare TCP socket between the first two hosts, both ends polling",
        variants: Variants::Pes { pes: &[1, 2], size: 8 },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far_meetings::all_reduce),
        special: PLAIN,
    },
    Spec {
        name: "far_broadcast",
        unit: "us",
        better: Lower,
        osu: "osu_bcast",
        what: "broadcasts from the first two hosts in turns, with so many PEs on each host: the \
            time of one",
        limit: "one message, which is all that must follow on each other, times half a round trip \
            of as many bytes over a bare TCP socket between the first two hosts, both ends \
            polling",
        variants: PesAndSizes(&[(1, 64 << 10), (2, 64 << 10)]),
        rounds: Rounds { full: 10, quick: 2 },
        measure: PesOnHosts(far_meetings::broadcast),
        special: PLAIN,
    },
    Spec {
        name: "far_mutex",
        unit: "us",
        better: Lower,
        osu: "-",
        what: "a PE of each host locks a shared mutex, changes all of its data and unlocks, and \
            all meet",
        limit: "round trip of as many bytes over a bare TCP socket that sends at once and does not \
            block, both ends polling",
        variants: Sizes { pes: 1, sizes: &[8, 4096] },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far_shared::mutex),
        special: PLAIN,
    },
    Spec {
        name: "far_region",
        unit: "us",
        better: Lower,
        osu: "-",
        what: "a PE of each host writes so many bytes of a region, all meet, each reads the bytes \
            of the next, and all meet again",
        limit: "round trip of as many bytes over a bare TCP socket that sends at once and does not \
            block, both ends polling",
        variants: Sizes { pes: 1, sizes: &[8, 4096] },
        rounds: Rounds { full: 20, quick: 2 },
        measure: PesOnHosts(far_shared::region),
        special: PLAIN,
    },
    Spec {
        name: "far_multicast",
        unit: "MB/s",
        better: Higher,
        osu: "-",
        what: "bytes of blocks that PE 0 publishes on a multicast channel to all PEs of all hosts, \
            counted once",
        limit: "bare UDP datagrams of 1472 bytes to a group, as many as come to another host; \
            nothing is checked or repaired",
        variants: PesAndSizes(&[(1, 64 << 10), (2, 64 << 10)]),
        rounds: Rounds { full: 5, quick: 1 },
        measure: PesOnHosts(far_multicast::bandwidth),
        special: PLAIN,
    },
    Spec {
        name: "far_startup",
        unit: "ms",
        better: Lower,
        osu: "osu_oshm_hello",
        what: "`memonet run` on all hosts of a program that only joins its job, from start to \
            end",
        limit: "`ssh HOST true`, or `true` by --launch-agent, on all hosts at once",
        variants: Variants::Pes { pes: &[1], size: 0 },
        rounds: Rounds { full: 10, quick: 2 },
        measure: Measure::Hosts(far_startup::measure),
        special: PLAIN,
    },
    Spec {
        name: "near_pingpong",
        unit: "ns",
        better: Lower,
        osu: "osu_latency (x 2)",
        what: "round trip of one word between two PEs of a host, in a job with as many PEs on \
            each other host",
        limit: "the same in a job on the first host alone",
        variants: Sizes { pes: 2, sizes: &[8] },
        rounds: Rounds { full: 5, quick: 1 },
        measure: WithAndWithoutFar(near_beside_far::ping_pong),
        special: PLAIN,
    },
    Spec {
        name: "near_barrier",
        unit: "ns",
        better: Lower,
        osu: "osu_barrier",
        what: "barrier of a host's PEs, in a job with as many PEs on each other host",
        limit: "the same in a job on the first host alone",
        variants: Variants::Pes { pes: &[2], size: 0 },
        rounds: Rounds { full: 5, quick: 1 },
        measure: WithAndWithoutFar(near_beside_far::barrier),
        special: PLAIN,
    },
];
