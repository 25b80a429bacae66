//! Which fabrics there are, and which one a job gets.
//!
//! The core knows a fabric by its contract alone. Every front end (Rust, C, the command) starts
//! its jobs here, so a new fabric needs its crate and one entry in [`FABRICS`], and
//! one in [`Between`] if it serves several hosts.
//!
//! A PE gets, in this order:
//!
//! 1. the simulated machine, where its launcher has started it on one;
//! 2. on one host, the fabric that `MEMONET_FABRIC` names;
//! 3. what its job has [between its hosts](between), streams or libfabric, where it has an agent:
//!    of `memonet run --hosts`, or one that PEs of another launcher start by themselves (`wired`);
//! 4. none: all peers are near.

mod addresses;
pub mod between;
mod wired;

use addresses::ByStreams;
use between::Between;
use memonet_core::unstable::fabric::Fabric;
use memonet_core::unstable::{Seat, far, hosted, log, settings};
use memonet_core::{ENV_FABRIC, Error, Job, JobOptions, Result};
use memonet_ofi::Ofi;
use memonet_tcp::Tcp;
use memonet_tcp::agent::AgentBroker;
use std::cell::Cell;

pub use memonet_ofi::hardware;

/// Makes the fabric of one PE.
pub type Connect = Box<dyn Fn(&Seat) -> Result<Box<dyn Fabric>> + Send + Sync>;

/// A kind of fabric.
pub struct Kind {
    /// The word by which users name it.
    pub name: &'static str,
    /// How its settings are written.
    pub usage: &'static str,
    /// Reads settings, what follows the name and a colon.
    parse: fn(&str) -> std::result::Result<Connect, String>,
}

/// All fabrics that users can ask for by name.
pub const FABRICS: &[Kind] = &[
    Kind { name: "far", usage: far::USAGE, parse: parse_far },
    Kind { name: memonet_tcp::NAME, usage: memonet_tcp::local::USAGE, parse: parse_tcp },
    Kind { name: memonet_ofi::NAME, usage: memonet_ofi::USAGE, parse: parse_ofi },
];

const NAMES: &str = "Name one: far, tcp or ofi, with settings behind a colon, if any";

fn parse_far(settings: &str) -> std::result::Result<Connect, String> {
    let spec = far::Spec::parse(settings)?;
    Ok(Box::new(move |seat| spec.connect(seat)))
}

fn parse_tcp(settings: &str) -> std::result::Result<Connect, String> {
    let spec = memonet_tcp::local::Spec::parse(settings)?;
    Ok(Box::new(move |seat| spec.connect(seat)))
}

fn parse_ofi(settings: &str) -> std::result::Result<Connect, String> {
    let spec = memonet_ofi::Spec::parse(settings)?;
    Ok(Box::new(move |seat| spec.connect(seat)))
}

/// The fabric that `spec` describes: a name, or a name, a colon and settings.
///
/// # Errors
/// [`Error::Environment`] where there is no such fabric, or it has no such settings.
pub fn parse(spec: &str) -> Result<Connect> {
    let (name, settings) = spec.split_once(':').unwrap_or((spec, ""));
    let kind = FABRICS.iter().find(|kind| kind.name == name);
    let made = kind.map_or_else(|| Err("names no fabric".into()), |kind| (kind.parse)(settings));
    made.map_err(|problem| Error::Environment {
        name: ENV_FABRIC,
        value: spec.into(),
        problem,
        fix: kind.map_or(NAMES, |kind| kind.usage),
    })
}

/// Whether libfabric is installed here, with a provider of this name.
///
/// # Errors
/// What is missing.
pub fn libfabric_has(provider: &str) -> std::result::Result<(), String> {
    memonet_ofi::provider(Some(provider)).map(drop)
}

/// [`JobOptions`] of a job whose PEs reach each other by the fabric that `spec` describes.
///
/// # Errors
/// As for [`parse`].
pub fn options(spec: &str) -> Result<JobOptions> {
    Ok(JobOptions::new().fabric(parse(spec)?))
}

/// Joins the job in which this process was started, with the fabric that it is to have. A second
/// call gives the job of the first.
///
/// # Errors
/// As for [`Job::init_with`] and [`parse`].
pub fn init() -> Result<Job> {
    let spec = settings::value(ENV_FABRIC).map(|spec| spec.to_string_lossy().into_owned());
    let asked = spec.as_deref().map(parse).transpose()?;
    let broker = Cell::new(None);
    let wire_up = || {
        Ok(wired::start()?.map(|(place, agent)| {
            broker.set(Some(agent));
            place
        }))
    };
    Job::init_with(wire_up, |seat| {
        if let Some(machine) = hosted::join(seat)? {
            return Ok(Some(machine));
        }
        // PEs that have found each other have an agent, or their launcher gives them one.
        let agent = broker.take().map_or_else(AgentBroker::inherit, |found| Ok(Some(found)))?;
        match (agent, asked) {
            (Some(agent), _) => between_hosts(seat, agent).map(Some),
            (None, Some(connect)) => connect(seat).map(Some),
            (None, None) => Ok(None),
        }
    })
}

/// The fabric of a PE of a job with agents: what the job's description says.
fn between_hosts(seat: &Seat, agent: AgentBroker) -> Result<Box<dyn Fabric>> {
    let provider = agent.job().provider.clone();
    Between::asked()?.check(provider.as_deref())?;
    if log::is_on(log::Level::Info) {
        let way = provider.as_deref().unwrap_or("streams");
        log::write(seat.pe(), format_args!("goes between hosts by {way}, as its job has agreed"));
    }
    let Some(provider) = provider else { return Ok(Box::new(Tcp::new(seat, Box::new(agent))?)) };
    Ok(Box::new(Ofi::new(seat, Some(&provider), Box::new(ByStreams::new(agent)?))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fabric_is_found_by_its_name() {
        for kind in FABRICS {
            assert!(NAMES.contains(kind.name));
            let mut spec = kind.name.to_owned();
            if kind.name == memonet_ofi::NAME {
                const PROVIDER: &str = "tcp;ofi_rxm";
                if let Err(why) = libfabric_has(PROVIDER) {
                    println!("SKIPPED: {why}");
                    continue;
                }
                spec = format!("{spec}:provider={PROVIDER}");
            }
            let job = Job::threads_with(&options(&spec).unwrap(), 2, |job| job.fabric());
            assert_eq!(job.unwrap(), [Some(kind.name); 2]);
        }
        for bad in
            ["", "near", "far:delay_us", "far:delay_us=x", "far:pace=1", "tcp:pace=1", "ofi:pace=1"]
        {
            assert!(matches!(parse(bad).err(), Some(Error::Environment { .. })), "{bad}");
        }
    }
}
