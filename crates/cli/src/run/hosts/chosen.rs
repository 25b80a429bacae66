//! The hosts that `memonet bench` and `memonet doctor` look at.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::call::{quoted, reach};
use super::list::{self, Host};

/// Which hosts, and how to reach them.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Chosen {
    /// Look at what lies between these hosts: `a,b`. Numbers of PEs after the names do not count
    #[arg(long, value_name = "LIST", conflicts_with = "hostfile")]
    hosts: Option<String>,
    /// Look at what lies between the hosts of a file, one in a line
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,
    /// Start memonet on each host by `COMMAND HOST WORDS...` [default: ssh -o BatchMode=yes -T]
    #[arg(long, value_name = "COMMAND")]
    pub launch_agent: Option<String>,
    /// Let hosts reach each other by this network interface, or by that of this network
    /// (`10.0.0.0/8`) [default: any that is up]
    #[arg(long, value_name = "NAME|CIDR")]
    pub interface: Option<String>,
}

impl Chosen {
    /// Their names; nothing where none were asked for.
    pub fn names(&self) -> Result<Option<Vec<String>>> {
        let hosts = match (&self.hosts, &self.hostfile) {
            (Some(list), _) => list::parse(list)?,
            (None, Some(file)) => list::read(file)?,
            (None, None) if self.launch_agent.is_some() || self.interface.is_some() => {
                bail!(
                    "--launch-agent and --interface are for --hosts or --hostfile, which is missing"
                )
            }
            (None, None) => return Ok(None),
        };
        Ok(Some(hosts.into_iter().map(|host| host.name).collect()))
    }

    /// The options of `memonet run` for a job with `pes` PEs on each of these hosts.
    pub fn options(&self, names: &[String], pes: usize) -> Vec<OsString> {
        let host = |name: &String| Host { name: name.clone(), slots: Some(pes) };
        let hosts: Vec<Host> = names.iter().map(host).collect();
        let all = [
            ("--hosts", Some(list::text(&hosts))),
            ("--launch-agent", self.launch_agent.clone()),
            ("--interface", self.interface.clone()),
        ];
        let given = all.into_iter().filter_map(|(option, value)| Some([option.into(), value?]));
        given.flatten().map(OsString::from).collect()
    }

    /// A command on a host.
    pub fn command(&self, host: &str, words: &[OsString]) -> Result<Command> {
        let mut own = reach(self.launch_agent.as_deref());
        let program = own.next().context("--launch-agent names no command")?;
        let mut command = Command::new(program);
        command.args(own).arg(host);
        match self.launch_agent {
            Some(_) => command.args(words),
            None => command.args(words.iter().map(|word| quoted(word))),
        };
        Ok(command)
    }
}
