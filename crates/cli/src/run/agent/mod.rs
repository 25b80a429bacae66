//! `memonet agent`: the PEs of one host of a job on several, for a launcher elsewhere.
//!
//! The head of [hosts](super::hosts) has the life of such a job. The agent reads messages from its
//! standard input and writes messages to its standard output. It makes the host's part of the job's
//! memory, starts the PEs and watches them as a launcher does on one machine, and keeps the records
//! of all other PEs as their hosts tell.

mod input;
mod libfabric;
mod line;
mod prepare;
mod relay;
mod watch;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Result, bail};
use memonet_control::messages::{Order, ToAgent, ToLauncher};

use super::guard::{Beats, Guard};
use super::program::CannotStart;
use super::signals::Signals;
use line::Line;
use watch::Watch;

/// The arguments of `memonet agent`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Start agents on other hosts, and pass on what they and the launcher say
    #[arg(long)]
    relay: bool,
    /// Say which provider of libfabric PEs of this environment find
    #[arg(long, hide = true)]
    libfabric: bool,
}

/// `memonet agent`.
pub fn run(args: Args) -> Result<ExitCode> {
    // As in `super::start`.
    memonet_core::unstable::hosted::see_real_time();
    if args.libfabric {
        return libfabric::tell();
    }
    if std::io::stdin().is_terminal() {
        bail!(
            "`memonet run --hosts` starts this command on each host; in a terminal it is of no use"
        );
    }
    if args.relay {
        return relay::run();
    }
    let signals = Signals::catch_children()?;
    let mut line = Line::new()?;
    // Before any thread. What fails from here on is told to the launcher.
    let guard = Guard::post(Beats::default());
    let done = guard.and_then(|guard| serve(&mut line, signals, guard)).or_else(|error| {
        let status = error.downcast_ref::<CannotStart>().map_or(1, |cannot| cannot.status);
        line.send(&ToLauncher::Refused { why: format!("{error:#}"), status });
        line.send_all()?;
        Ok::<bool, anyhow::Error>(false)
    })?;
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Serves a launcher. False if the launcher is gone, or wants no more.
fn serve(line: &mut Line, signals: Signals, guard: Guard) -> Result<bool> {
    let Some(order) = await_order(line)? else { return Ok(false) };
    let ready = prepare::prepare(&order)?;
    line.send(&ToLauncher::Ready { findings: ready.findings.clone() });
    let Some((job, heap)) = await_start(line)? else { return Ok(false) };
    Watch::begin(line, ready, &job, heap, signals, guard, order)?.run()
}

fn await_order(line: &mut Line) -> Result<Option<Order>> {
    loop {
        let pass = line.pass(None)?;
        let mut messages = pass.messages.into_iter();
        match messages.next() {
            Some(ToAgent::Job { order }) => {
                line.heartbeat = order.heartbeat;
                line.hold(messages);
                return Ok(Some(order));
            }
            Some(_) => return Ok(None),
            None => {}
        }
        if pass.lost {
            return Ok(None);
        }
    }
}

/// The job's description and the size of the heap.
fn await_start(line: &mut Line) -> Result<Option<(Vec<u8>, u64)>> {
    loop {
        let pass = line.pass(None)?;
        let mut messages = pass.messages.into_iter();
        while let Some(message) = messages.next() {
            match message {
                ToAgent::Start { job, heap } => {
                    // What follows is about the PEs, or ends them.
                    line.hold(messages);
                    return Ok(Some((job.0, heap)));
                }
                ToAgent::End {} => return Ok(None),
                // Nothing runs yet that a signal would be for.
                _ => {}
            }
        }
        if pass.lost {
            return Ok(None);
        }
    }
}
