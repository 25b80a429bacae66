//! The starts of a job's PEs, one after the other.

use anyhow::Result;
use memonet_core::unstable::launch::JobFile;

use super::binding::Binding;
use super::program::Image;
use super::spawn::{Child, Spawner};

/// Starts the PEs of a job in order.
pub struct Starts<'a> {
    pub spawner: Spawner,
    pub images: Vec<&'a Image>,
    pub binding: &'a Binding,
}

impl Starts<'_> {
    /// Starts the next PE, which is `pe`. Returns its process, and the name of its program.
    pub fn start(&mut self, pe: usize, job: &JobFile) -> Result<(Child, String)> {
        let image = self.images[pe];
        let child = self.spawner.spawn(pe, image, job, self.binding.cpus(pe))?;
        Ok((child, image.name()))
    }
}
