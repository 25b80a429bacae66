//! The environment variables that memonet knows, in one list.
//!
//! Each is read where it takes effect, which refuses a value that cannot be. Here are the names, so
//! that one that nobody reads, such as a misspelled one, is told.

use std::ffi::OsString;

/// A variable that users set.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What it does, and which values it has.
    pub what: &'static str,
}

/// Descriptor of the job's memfd.
pub const ENV_FD: &str = "MEMONET_JOB_FD";
/// Number of this PE.
pub const ENV_PE: &str = "MEMONET_PE";
/// Number of PEs.
pub const ENV_NPES: &str = "MEMONET_NPES";
/// Bytes of window memory per PE.
pub const ENV_SEGMENT_SIZE: &str = "MEMONET_SEGMENT_SIZE";
/// Turns on the checks that cost time.
pub const ENV_CHECK: &str = "MEMONET_CHECK";
/// Forces an algorithm for barriers.
pub const ENV_BARRIER: &str = "MEMONET_BARRIER";
/// Forces an algorithm for collectives: `line`, `eager`, `direct`, `nodes` or `multicast`. `eager`
/// and `direct` use no lines. `multicast` is for broadcasts of any size; other collectives go as if
/// nothing were forced. With any of them, the network makes no collective. All PEs of a job have
/// the same value.
pub const ENV_COLLECTIVES: &str = "MEMONET_COLLECTIVES";
/// Variable that forces a way: `near`, `tree`, `network` for datagrams of the fabric's, `hosts` for
/// UDP multicast to one PE of each other host, or `udp:GROUP:PORT` to each PE, with a multicast
/// address, the first of 256 ports, and perhaps `@ADDRESS` of the interface to use. The same in all
/// PEs of a job, but for that.
pub const ENV_MULTICAST: &str = "MEMONET_MULTICAST";
/// Puts a fabric before all peers.
pub const ENV_FABRIC: &str = "MEMONET_FABRIC";
/// Descriptor of the file into which a PE records what its program does.
pub const ENV_RECORD_FD: &str = "MEMONET_RECORD_FD";
/// Says how much the library tells of its choices.
pub const ENV_LOG: &str = "MEMONET_LOG";
/// Descriptor of the pages, in the environment of attached processes.
pub const ENV_MACHINE_FD: &str = "MEMONET_MACHINE_FD";
/// Descriptor by which a PE asks its node's agent for sockets.
pub const ENV_AGENT_FD: &str = "MEMONET_AGENT_FD";
/// Ports of which an agent listens on one, `lo-hi`.
pub const ENV_PORTS: &str = "MEMONET_PORTS";
/// Interface on which an agent listens, or a network that has one.
pub const ENV_INTERFACE: &str = "MEMONET_INTERFACE";
/// Variable by which the C front end is told of libraries whose static data are symmetric.
pub const ENV_SYMMETRIC_LIBS: &str = "MEMONET_SYMMETRIC_LIBS";
/// 1 where the end of a PE does not end the job, as `memonet run --keep-going` asks.
pub const ENV_KEEP_GOING: &str = "MEMONET_KEEP_GOING";
/// Holds the marks of all jobs that a process belongs to: by them a launcher finds what its job has
/// left behind.
pub const ENV_MARK: &str = "MEMONET_MARK";

/// What users may set.
#[rustfmt::skip] // a table
const SETTINGS: [Setting; 10] = [
    Setting { name: ENV_CHECK, what: "1: find mistakes that it costs time to find, and tell of them; 0: do not" },
    Setting { name: ENV_LOG, what: "what memonet tells of its choices, and why: info, debug or trace" },
    Setting { name: ENV_SEGMENT_SIZE, what: "memory for windows and heap of each PE, such as 512M; unset: as much as there is" },
    Setting { name: ENV_SYMMETRIC_LIBS, what: "libraries whose static data are symmetric too, such as libsolver.so:libmesh.so" },
    Setting { name: ENV_BARRIER, what: "the algorithm of barriers: everyone, central, tree or dissemination" },
    Setting { name: ENV_COLLECTIVES, what: "the way of collectives: line, eager, direct, multicast or nodes" },
    Setting { name: ENV_MULTICAST, what: "the way of multicast channels: near, tree, network, hosts or udp:GROUP:PORT" },
    Setting { name: ENV_FABRIC, what: "how PEs reach each other, between hosts or instead of by memory: tcp, ofi, ofi:provider=NAME or, for tests on one machine, far:delay_us=N,reorder=0 or 1,seed=N,nodes=N" },
    Setting { name: ENV_PORTS, what: "the TCP ports that a job on several hosts may listen on, one a host, such as 40000-40100; unset: any" },
    Setting { name: ENV_INTERFACE, what: "the network interface by which hosts reach each other, or a network such as 10.0.0.0/8, as by --interface; unset: any that is up" },
];

/// What the standard lets users of C programs set.
#[rustfmt::skip] // a table
pub const STANDARD: [Setting; 4] = [
    Setting { name: "SHMEM_SYMMETRIC_SIZE", what: "C: a limit on the symmetric heap of each PE, such as 512M or 1.5G; unset: none" },
    Setting { name: "SHMEM_VERSION", what: "C: any value: print the version of the library at start-up" },
    Setting { name: "SHMEM_INFO", what: "C: any value: print these texts at start-up" },
    Setting { name: "SHMEM_DEBUG", what: "C: any value: each PE says how it is set up" },
];

/// What launchers set for their PEs.
const OF_LAUNCHERS: [&str; 8] = [
    ENV_FD,
    ENV_PE,
    ENV_NPES,
    ENV_RECORD_FD,
    ENV_MACHINE_FD,
    ENV_MARK,
    ENV_AGENT_FD,
    ENV_KEEP_GOING,
];
/// What memonet's own builds set, or the compiler wrapper reads, in its source tree.
const OF_BUILDS: [&str; 3] = ["MEMONET_INCLUDE", "MEMONET_PROFILE", "MEMONET_BLESS"];
/// How the names begin that memonet's own tests use.
const OF_TESTS: [&str; 2] = ["MEMONET_TEST_", "MEMONET_CONFORMANCE_"];

/// How all names begin.
const PREFIX: &str = "MEMONET_";

/// The value of a variable of this process. An empty one is none: scripts clear variables so.
pub fn value(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// All that users may set.
pub fn all() -> impl Iterator<Item = Setting> {
    SETTINGS.into_iter().chain(STANDARD)
}

/// Whether memonet, or its tests, read a variable.
pub fn is_known(name: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.name == name)
        || OF_LAUNCHERS.contains(&name)
        || OF_BUILDS.contains(&name)
        || OF_TESTS.iter().any(|start| name.starts_with(start))
}

/// What to say of these variables, one line for each that is memonet's by its name, and that nobody
/// reads.
pub fn complaints(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let unknown = names.map(|name| name.to_string_lossy().into_owned());
    let mut unknown: Vec<String> =
        unknown.filter(|name| name.starts_with(PREFIX) && !is_known(name)).collect();
    unknown.sort_unstable();
    unknown.dedup();
    unknown.into_iter().map(|name| complaint(&name)).collect()
}

fn complaint(name: &str) -> String {
    let all = SETTINGS.iter().map(|setting| setting.name).chain(OF_LAUNCHERS);
    let nearest = all.min_by_key(|known| distance(name, known)).unwrap_or(PREFIX);
    format!(
        "there is no variable {name}, so it has no effect; the nearest is {nearest}. `memonet doctor --settings` lists all"
    )
}

/// How many letters are to be added, left out or changed to make one name of the other.
pub fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut before = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let changed = before + usize::from(x != y);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// ` (NAME=VALUE)` where a limit comes from a variable that is set, for the error that the limit
/// causes.
pub(crate) fn origin(name: &str) -> String {
    value(name).map_or_else(String::new, |value| format!(" ({name}={})", value.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (a, b, expected) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "ac", 1),
            ("abc", "axc", 1),
            ("kitten", "sitting", 3),
            ("", "ab", 2),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (expected, expected), "{a} {b}");
        }
    }

    #[test]
    fn the_nearest_name_is_told_of_what_nobody_reads() {
        let told = |names: &[&str]| complaints(names.iter().map(OsString::from));
        for (wrong, right) in [
            ("MEMONET_BARIER", "MEMONET_BARRIER"),
            ("MEMONET_SEGMENTSIZE", "MEMONET_SEGMENT_SIZE"),
            ("MEMONET_SYMMETRIC_LIB", "MEMONET_SYMMETRIC_LIBS"),
            ("MEMONET_CHECKS", "MEMONET_CHECK"),
            ("MEMONET_", "MEMONET_PE"),
        ] {
            let lines = told(&["PATH", wrong, "MEMONET_PE", wrong, "MEMONET_TEST_MARK"]);
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert!(lines[0].contains(&format!("no variable {wrong},")), "{lines:?}");
            assert!(lines[0].contains(&format!("nearest is {right}.")), "{lines:?}");
        }
        assert_eq!(told(&["MEMONET_CHECK", "MEMONET_JOB_FD", "memonet_x", "SHMEM_X"]), [""; 0]);
    }
}
