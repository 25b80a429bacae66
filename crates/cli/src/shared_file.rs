//! A file in memory that the PEs of a job inherit, to hand something to the launcher.

use std::fs::File;

use anyhow::{Context, Result};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};

/// A file to which each write appends, so that the PEs' writes do not mix. PEs inherit its
/// descriptor.
pub fn appended(name: &str) -> Result<File> {
    let file = memfd_create(name, MemfdFlags::empty()).context("memfd_create")?;
    fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::APPEND)?;
    Ok(file.into())
}
