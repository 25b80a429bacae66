//! What an agent is ordered to do, before anything of the job runs.

use std::ffi::{OsStr, OsString};

use anyhow::{Context, Result};
use memonet_control::messages::{Order, Part};
use memonet_core::unstable::settings::{
    ENV_AGENT_FD, ENV_FD, ENV_MACHINE_FD, ENV_MARK, ENV_NPES, ENV_PE, ENV_RECORD_FD,
};

use super::list::Allotment;
use crate::run::spec::{Bind, Options, Program};
use crate::run::trace;

/// Variables that name a host, a login or a process, and so mean nothing on another host.
const OF_THIS_HOST: [&str; 19] = [
    "HOSTNAME",
    "HOST",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_ID",
    "XDG_SEAT",
    "XDG_VTNR",
    "DBUS_SESSION_BUS_ADDRESS",
    "OLDPWD",
    "_",
    ENV_FD,
    ENV_PE,
    ENV_NPES,
    ENV_MARK,
    ENV_RECORD_FD,
    ENV_MACHINE_FD,
    ENV_AGENT_FD,
];

/// Whether a variable is left as it is on each host.
pub fn stays(name: &OsStr) -> bool {
    OF_THIS_HOST.iter().any(|own| *own == name) || name.as_encoded_bytes().starts_with(b"SSH_")
}

/// The variables that PEs get on all hosts.
fn environment(options: &Options) -> Vec<(OsString, OsString)> {
    let own = std::env::vars_os().filter(|(name, _)| !stays(name));
    let asked = options.environment.iter().map(|(name, value)| (name.into(), value.into()));
    own.chain(asked).collect()
}

/// The orders for all nodes.
pub fn orders(programs: &[Program], options: &Options, nodes: &[Allotment]) -> Result<Vec<Order>> {
    let folder = std::env::current_dir().context("cannot find the working directory")?;
    let environment = environment(options);
    let npes = nodes.iter().map(|node| node.count).sum::<usize>();
    let order = |(number, node): (usize, &Allotment)| Order {
        host: node.host.clone(),
        node: number as u32,
        npes: npes as u32,
        first: node.first as u32,
        programs: parts(programs, node.first, node.count),
        environment: environment.clone(),
        folder: folder.clone().into_os_string(),
        bind: options.bind.map(|bind| bind == Bind::Core),
        verbose: options.verbose,
        heartbeat: options.several.heartbeat(),
        interface: options.several.interface.clone(),
        stats: !options.stats.is_empty(),
        events: trace::bytes_for(options, node.count),
    };
    Ok(nodes.iter().enumerate().map(order).collect())
}

/// The programs of `count` PEs from `first` on.
fn parts(programs: &[Program], first: usize, count: usize) -> Vec<Part> {
    let (mut begin, mut parts) = (0, Vec::new());
    for program in programs {
        let end = begin + program.n;
        let n = end.min(first + count).saturating_sub(begin.max(first));
        if n > 0 {
            let Program { program, args, .. } = program.clone();
            parts.push(Part { n: n as u32, program, args });
        }
        begin = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_cut_at_hosts() {
        let program = |n, name: &str| Program { n, program: name.into(), args: Vec::new() };
        let programs = [program(1, "a"), program(5, "b"), program(2, "c")];
        let cut = |first, count| {
            let parts = parts(&programs, first, count).into_iter();
            let text = parts.map(|part| format!("{}{}", part.n, part.program.display()));
            text.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            [cut(0, 3), cut(3, 2), cut(5, 3), cut(0, 8)],
            ["1a 2b", "2b", "1b 2c", "1a 5b 2c"]
        );
    }

    #[test]
    fn what_names_a_host_stays() {
        for name in ["HOSTNAME", "SSH_CONNECTION", "DISPLAY", "MEMONET_JOB_FD", "MEMONET_MARK"] {
            assert!(stays(OsStr::new(name)), "{name}");
        }
        for name in ["PATH", "HOME", "MEMONET_FABRIC", "HOSTNAMES", "OMP_NUM_THREADS"] {
            assert!(!stays(OsStr::new(name)), "{name}");
        }
    }
}
