//! Values of options, from text.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use memonet_core::Error;
use memonet_core::unstable::layout::MAX_PES;

/// More than anybody can look at: 64 GiB.
const MOST_EVENTS: u64 = 1_000_000_000;

/// A number of PEs.
pub fn pes(text: &str) -> Result<usize> {
    match text.parse().context("not a number of PEs")? {
        0 => bail!("a job has at least one PE"),
        n if n > MAX_PES => bail!("a job has at most {MAX_PES} PEs"),
        n => Ok(n),
    }
}

/// A number of hosts.
pub fn hosts(text: &str) -> Result<usize> {
    text.parse().context("not a number of hosts")
}

/// A number of nodes.
pub fn nodes(text: &str) -> Result<usize> {
    text.parse().context("not a number of nodes")
}

/// A seed.
pub fn seed(text: &str) -> Result<u64> {
    text.parse().context("not a number of at most 64 bits, without a sign")
}

/// A number of events of a PE.
pub fn events(text: &str) -> Result<u64> {
    match text.parse().context("not a number of events")? {
        0 => bail!("a timeline has at least one event"),
        n if n > MOST_EVENTS => bail!("a PE has room for at most {MOST_EVENTS} events"),
        n => Ok(n),
    }
}

/// A fabric of one machine or between hosts, as `MEMONET_FABRIC` names it.
pub fn fabric(text: &str) -> Result<String> {
    match memonet_fabrics::parse(text) {
        Ok(_) => Ok(text.into()),
        Err(Error::Environment { problem, fix, .. }) => bail!("{problem}. {fix}"),
        Err(error) => Err(error.into()),
    }
}

pub fn seconds(text: &str) -> Result<Duration> {
    let seconds: f64 = text.parse().context("not a number of seconds")?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        // More than a Duration holds: the job never times out.
        Err(_) if seconds > 0.0 => Ok(Duration::MAX),
        _ => bail!("not a positive number of seconds"),
    }
}

pub fn factor(text: &str) -> Result<f64> {
    match text.parse() {
        Ok(factor) if f64::is_finite(factor) && factor > 0.0 => Ok(factor),
        _ => bail!("not a positive number"),
    }
}

pub fn name_and_value(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => bail!("not of the form NAME=VALUE"),
    }
}
