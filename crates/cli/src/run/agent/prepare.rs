//! What an agent does before its launcher starts the job: nothing that others could see.

use std::ffi::OsStr;

use anyhow::{Result, bail};
use memonet_control::messages::{Findings, Order};
use memonet_core::unstable::launch::{heap_size, page_size};
use memonet_fabrics::between::Between;
use rustix::process::Rlimit;

use super::libfabric;
use crate::run::binding::{self, Binding};
use crate::run::hosts::stays;
use crate::run::net::Listening;
use crate::run::program::{self, CannotStart, Image};
use crate::run::spec::{Bind, Options, Program};
use crate::run::{limits, mpi};

/// All that a host has for the job.
pub struct Ready {
    pub findings: Findings,
    /// The program of each PE of the node, as an index.
    pub image_of: Vec<usize>,
    pub images: Vec<Image>,
    pub binding: Binding,
    pub nofile: Rlimit,
    pub listening: Listening,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Finds out what this host has.
pub fn prepare(order: &Order) -> Result<Ready> {
    take_over(order)?;
    let programs: Vec<Program> = order
        .programs
        .iter()
        .map(|part| Program {
            n: part.n as usize,
            program: part.program.clone(),
            args: part.args.clone(),
        })
        .collect();
    let near: usize = programs.iter().map(|program| program.n).sum();
    let npes = order.npes as usize;
    if near == 0 || order.first as usize + near > npes {
        bail!("the launcher asks for PEs that the job does not have");
    }
    let images = programs.iter().map(program::find).collect::<Result<Vec<_>>>()?;
    let of_program = |(index, program): (usize, &Program)| std::iter::repeat_n(index, program.n);
    let image_of = programs.iter().enumerate().flat_map(of_program).collect();
    let bind = order.bind.map(|core| if core { Bind::Core } else { Bind::None });
    let binding = binding::plan(near, bind)?;
    let nofile = limits::raise_descriptors_of_agent(near)?;
    let (segment, note) = limits::segment_size(&images, &Options::default(), false)?;
    let (heap, other_note) = heap_size(npes, segment)?;
    let described = order.verbose.then(|| binding.describe(order.first as usize, near));
    // What is likely the same on all hosts is said once.
    let common = [note, other_note, mpi::find(&images, &programs).map(|found| found.warning())]
        .map(|note| note.filter(|_| order.first == 0));
    let notes = common.into_iter().chain([described]).flatten().collect();
    let provider = libfabric::find(&Between::asked()?)?;
    let listening = Listening::bind(order.interface.clone())?;
    let findings = Findings {
        cpus: binding.usable() as u32,
        heap,
        addresses: listening.addresses(),
        architecture: std::env::consts::ARCH.into(),
        page: page_size() as u32,
        provider,
    };
    Ok(Ready { findings, image_of, images, binding, nofile, listening, notes })
}

/// Takes over environment and working directory.
fn take_over(order: &Order) -> Result<()> {
    let own: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
    let is_name = |name: &OsStr| !name.is_empty() && !name.as_encoded_bytes().contains(&b'=');
    let is_text = |text: &OsStr| !text.as_encoded_bytes().contains(&0);
    // SAFETY: this process has no other thread yet.
    unsafe {
        for name in own.iter().filter(|name| is_name(name) && !stays(name)) {
            std::env::remove_var(name);
        }
        for (name, value) in &order.environment {
            if is_name(name) && is_text(name) && is_text(value) {
                std::env::set_var(name, value);
            }
        }
    }
    std::env::set_current_dir(&order.folder).map_err(|error| CannotStart {
        status: 1,
        message: format!(
            "there is no working directory {} ({error}). Make it, or share it with the launcher's host",
            order.folder.display()
        ),
    })?;
    Ok(())
}
