//! Starts an agent on a host: by ssh, or by the command that the user gives.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, anyhow};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::run::limits::why_no_process;

/// How agents are started.
pub struct Caller {
    /// The command before the host, if it is not ssh.
    agent: Option<String>,
    /// This program, as it may lie on the hosts too.
    memonet: PathBuf,
    /// The mark by which the guard finds what the launcher has started.
    mark: Option<(String, OsString)>,
}

/// What is started on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// An agent.
    Agent,
    /// A relay to agents.
    Relay,
}

impl Role {
    fn words(self) -> &'static [&'static str] {
        match self {
            Role::Agent => &["agent"],
            Role::Relay => &["agent", "--relay"],
        }
    }
}

/// The process that has started an agent, and the streams to the agent.
pub struct Call {
    child: Child,
    pub pidfd: OwnedFd,
    pub output: OwnedFd,
    pub errors: OwnedFd,
}

/// The words before the host of a command there: those of `--launch-agent`, or ssh's.
pub fn reach(agent: Option<&str>) -> impl Iterator<Item = OsString> + '_ {
    agent.unwrap_or("ssh -o BatchMode=yes -T").split_whitespace().map(OsString::from)
}

/// How often an agent is called: at this program's own path, then as PATH has it.
pub const CALLS: usize = 2;

impl Caller {
    /// `agent` is the command of `--launch-agent`.
    pub fn new(agent: Option<&str>, mark: Option<(String, OsString)>) -> Result<Caller> {
        let memonet = std::env::current_exe().context("cannot find the memonet program")?;
        Ok(Caller { agent: agent.map(str::to_owned), memonet, mark })
    }

    /// The command before the host, if it is not ssh.
    pub fn reach(&self) -> Option<String> {
        self.agent.clone()
    }

    fn words(&self) -> impl Iterator<Item = OsString> {
        reach(self.agent.as_deref())
    }

    /// The command that starts `program` on a host, for messages.
    pub fn describe(&self, host: &str, program: &str) -> String {
        let own = self.words().map(|word| word.display().to_string());
        own.chain([host.into(), program.into()]).collect::<Vec<_>>().join(" ")
    }

    /// The program that is started here.
    pub fn program(&self) -> String {
        self.words().next().map_or_else(String::new, |word| word.display().to_string())
    }

    fn all_words(&self, host: Option<&str>, attempt: usize, role: Role) -> Vec<OsString> {
        // ssh gives its words to a shell there.
        let is_ssh = || self.words().next().is_some_and(|word| Path::new(&word).ends_with("ssh"));
        let memonet = match attempt {
            0 if host.is_some() && is_ssh() => quoted(self.memonet.as_os_str()),
            0 => self.memonet.clone().into_os_string(),
            _ => "memonet".into(),
        };
        let there = host.into_iter().flat_map(|host| self.words().chain([host.into()]));
        let words = role.words().iter().map(OsString::from);
        there.chain([memonet]).chain(words).collect()
    }

    /// Starts an agent or a relay on a host, or on this one, that reads from `input`.
    pub fn call(
        &self,
        host: Option<&str>,
        attempt: usize,
        role: Role,
        input: &OwnedFd,
    ) -> Result<Call> {
        let (output, their_output) = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        let (errors, their_errors) = pipe_with(PipeFlags::CLOEXEC).context("pipe")?;
        let mut words = self.all_words(host, attempt, role).into_iter();
        let program = words.next().context("--launch-agent names no command")?;
        let mut command = Command::new(&program);
        command.args(words).envs(self.mark.clone());
        command.stdin(Stdio::from(input.as_fd().try_clone_to_owned()?));
        command.stdout(Stdio::from(their_output)).stderr(Stdio::from(their_errors));
        let launcher = rustix::process::getpid();
        let prepare = move || {
            // Ctrl-C is for the launcher, which passes it on to PEs; and no password is asked for.
            let _ = rustix::process::setsid();
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(launcher) {
                return Err(Errno::SRCH.into());
            }
            nix::sys::signal::SigSet::empty().thread_set_mask()?;
            Ok(())
        };
        // SAFETY: system calls alone, which take no lock and allocate nothing.
        unsafe { command.pre_exec(prepare) };
        let child = command.spawn().map_err(|error| {
            let hint = match error.raw_os_error() {
                Some(libc::EAGAIN) => format!(". {}", why_no_process(&error)),
                _ => String::new(),
            };
            anyhow!(
                "cannot start {}, which starts memonet on other hosts: {error}{hint}",
                program.display()
            )
        })?;
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open")?;
        Ok(Call { child, pidfd, output, errors })
    }
}

impl Call {
    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends it.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

/// A word as a shell reads it.
pub fn quoted(word: &OsStr) -> OsString {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(byte);
    if word.as_encoded_bytes().iter().all(plain) {
        return word.to_owned();
    }
    let pieces: Vec<_> = word.to_string_lossy().split('\'').map(str::to_owned).collect();
    format!("'{}'", pieces.join("'\\''")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_words_as_they_are() {
        for word in ["/usr/bin/memonet", "/home/Jo Smith/it's $HOME/`x`", "a\"b\\c", "'"] {
            let echo = format!("printf %s {}", quoted(OsStr::new(word)).to_str().unwrap());
            let output = Command::new("sh").args(["-c", &echo]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
