//! PMIx, which Open MPI's `mpirun`, `prterun` and `srun --mpi=pmix` speak.
//!
//! The protocol is the library's, `libpmix.so.2`, which is loaded where a launcher has set
//! `PMIX_NAMESPACE`: a program needs it neither to be built nor to run alone. It starts threads of
//! its own. Programs that the same processes run one after the other share a store, as in PMI-1.
//!
//! **The library begins once in a process.** Versions up to 5.0 keep what they have freed at their
//! end: a process in which it begins again crashes when it ends again, and one in which MPI finds
//! it begun by somebody else does not find itself in the job. So memonet's session is in a
//! child of the process, and leaves the library here to the program's MPI. Where MPI has
//! begun it before, the library counts, and memonet uses it here: it must not begin in a child of
//! a process that has it.

mod abi;
mod child;
mod client;
mod library;
mod value;

use crate::error::Result;
use crate::exchange::Exchange;
use child::Child;
use client::Client;
use std::time::Duration;

const NAME: &str = "the launcher (PMIx)";
/// How long the launcher may look for a value.
const LOOK: Duration = Duration::from_secs(5);

/// A process's session of PMIx.
pub struct Pmix(Session);

enum Session {
    Child(Child),
    /// In a process in which the program's MPI has begun the library.
    Here(Box<Client>),
}

impl Pmix {
    /// The session with this process's launcher, if that speaks PMIx.
    ///
    /// # Errors
    /// [`Error::System`](crate::Error::System) where there is no library, and any other of the
    /// launcher's.
    pub fn inherit() -> Result<Option<Self>> {
        if ["PMIX_NAMESPACE", "PMIX_RANK"].iter().any(|name| std::env::var_os(name).is_none()) {
            return Ok(None);
        }
        let session = if library::has_begun() {
            Session::Here(Client::begin()?.into())
        } else {
            Session::Child(Child::begin()?)
        };
        Ok(Some(Pmix(session)))
    }

    /// Ends the session, of a process that ends in order.
    ///
    /// Before one of a node's processes begins another session, all of them must have ended this
    /// one. The server of Open MPI 5.0 takes a connection that closes for the loss of a process,
    /// even after the session's end, if others wait in a fence by then: they get
    /// `PARTIAL SUCCESS`. Processes of a job meet at their node's agent, after this. Even so, its
    /// fences end without all once in a hundred second sessions.
    ///
    /// # Errors
    /// Any [`Error`](crate::Error) of the launcher's.
    pub fn end(self) -> Result<()> {
        match self.0 {
            Session::Child(child) => child.end(),
            Session::Here(client) => client.end(),
        }
    }

    fn session(&mut self) -> &mut dyn Exchange {
        match &mut self.0 {
            Session::Child(child) => child,
            Session::Here(client) => &mut **client,
        }
    }
}

impl Exchange for Pmix {
    fn rank(&self) -> u32 {
        match &self.0 {
            Session::Child(child) => child.rank(),
            Session::Here(client) => client.rank(),
        }
    }

    fn size(&self) -> u32 {
        match &self.0 {
            Session::Child(child) => child.size(),
            Session::Here(client) => client.size(),
        }
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.session().put(name, bytes)
    }

    fn fence(&mut self, named: &'static str, limit: Duration) -> Result<()> {
        self.session().fence(named, limit)
    }

    fn get(&mut self, rank: u32, name: &str) -> Result<Vec<u8>> {
        self.session().get(rank, name)
    }
}
