//! The starts of a job's PEs, one after the other.

use anyhow::Result;
use memonet_core::unstable::launch::JobFile;

use super::binding::Binding;
use super::program::Image;
use super::spawn::{Child, Extras, Spawner};

/// Starts the PEs of a job in order.
pub struct Starts<'a> {
    pub spawner: Spawner,
    pub images: Vec<&'a Image>,
    pub binding: &'a Binding,
    /// The PE of the first image.
    pub first: usize,
}

impl Starts<'_> {
    /// Starts the next PE, which is `pe`. Returns its process, and the name of its program.
    pub fn start(&mut self, pe: usize, job: &JobFile, extras: &Extras) -> Result<(Child, String)> {
        let index = pe - self.first;
        let image = self.images[index];
        let child = self.spawner.spawn(pe, image, job, self.binding.cpus(index), extras)?;
        Ok((child, image.name()))
    }
}
