//! A PE's place in a job on several hosts that another launcher has started.
//!
//! The front end finds it (`memonet_fabrics::wired`): it asks the launcher for the other PEs, and
//! the agent of this node for the job's memory. From then on the PE is one of a job of
//! `memonet run --hosts`, but for this: its agent did not start it and does not end it, and may be
//! lost while the PE lives. So each PE watches the processes of its node, and the agent's: see
//! [`watch`](super::watch).

use super::adopt::left_by_predecessor;
use super::watch::Watch;
use crate::base::error::{Error, Result};
use crate::base::memory;
use crate::base::process::Identity;
use crate::endpoint::control::Control;
use rustix::fd::OwnedFd;

/// A PE's place, as its front end has found it.
#[derive(Debug)]
pub struct Place {
    /// The PE's number.
    pub pe: usize,
    /// For each PE of the job, whether it is on this node.
    pub near: Vec<bool>,
    /// The node's memory, which its agent has made. `None` where the program that this process was
    /// before has joined already, and has left it.
    pub memory: Option<OwnedFd>,
    /// The agent's process, if this one sees it.
    pub agent: Option<i32>,
}

impl Place {
    pub(super) fn join(self) -> Result<(Control, usize, Option<Watch>)> {
        let (me, npes) = (self.pe, self.near.len());
        let mine = Identity::mine();
        let control = match self.memory {
            Some(fd) => {
                let size =
                    memory::sealed_size(&fd).map_err(|problem| Error::ControlPage { problem })?;
                let control = Control::attach(fd, size, npes, me)?;
                if let Some(mine) = mine {
                    control.introduce(me, mine);
                }
                control
            }
            None => mine.and_then(|mine| left_by_predecessor(me, npes, mine)).ok_or(
                Error::misuse("this process has taken part in its job already, as another program: a program may be replaced by `exec` before it initialises memonet, and not afterwards"),
            )?,
        };
        let far = (0..npes).filter(|&pe| !self.near[pe]).collect();
        let watch = mine.map(|mine| Watch::new(me, npes, mine).with_agent(self.agent, far));
        Ok((control, me, watch))
    }
}
