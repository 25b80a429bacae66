//! Which libfabric the PEs of this host will find.
//!
//! A process of its own looks for it: it has the environment of the PEs from its start, as the
//! dynamic linker reads `LD_LIBRARY_PATH` then, and what a provider does to it harms no agent.

use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use memonet_fabrics::between::Between;

use crate::run::program::this_program;

/// The provider by which PEs of this host would do what is asked for; none for streams.
pub fn find(asked: &Between) -> Result<Option<String>> {
    if !asked.needs_libfabric() {
        return Ok(None);
    }
    let mut command = Command::new(this_program()?);
    command.args(["agent", "--libfabric"]).stdin(Stdio::null());
    let output = command.output().context("cannot start a process that looks for libfabric")?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !output.status.success() {
        let why = said(&output.stderr);
        let why =
            if why.is_empty() { format!("looking for libfabric: {}", output.status) } else { why };
        bail!("{}", why.trim_start_matches("memonet: "));
    }
    Ok(said(&output.stdout).lines().last().map(str::to_owned))
}

/// Prints what this process finds.
pub fn tell() -> Result<ExitCode> {
    if let Some(provider) = Between::asked()?.find().map_err(anyhow::Error::msg)? {
        println!("{provider}");
    }
    Ok(ExitCode::SUCCESS)
}
