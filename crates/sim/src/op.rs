//! Names of PEs and of their calls.

/// A PE of the simulated job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pe(pub u32);

impl Pe {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The agent of this PE, in a job of `pes` PEs. Agents call their NICs too: the agent of PE k
    /// does so under the number `pes + k`.
    pub(crate) fn agent(self, pes: u32) -> Pe {
        Pe(self.0 + pes)
    }

    /// Whether this is the number of an agent.
    pub(crate) fn is_agent(self, pes: u32) -> bool {
        self.0 >= pes
    }

    /// The PE itself; for an agent, the PE that it serves.
    pub(crate) fn owner(self, pes: u32) -> Pe {
        if self.is_agent(pes) { Pe(self.0 - pes) } else { self }
    }
}

/// A call of a PE. What NICs, links and switches do is recorded for the call that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Op {
    /// The PE that calls.
    pub pe: Pe,
    /// Number of calls that this PE has made before, wrapping.
    pub number: u32,
}
