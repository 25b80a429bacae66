//! Processes that another launcher has started, as its variables in the environment say.

use crate::base::error::{Error, Result};

/// Launchers, each with its variables for the number of processes, the number of this process, and
/// the number of processes on this machine.
const KNOWN: [(&str, [&str; 3]); 4] = [
    (
        "Open MPI's mpirun",
        ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    ),
    ("an MPI launcher (PMI)", ["PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"]),
    ("Slurm's srun", ["SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"]),
    ("PALS", ["PALS_NRANKS", "PALS_RANKID", "PALS_LOCAL_SIZE"]),
];
/// This process's place among the processes of another launcher.
pub(crate) struct Adopted {
    pub(super) launcher: &'static str,
    pub(super) rank: usize,
    pub(super) size: usize,
}

/// This process's place, if another launcher has started it as one of several.
///
/// # Errors
/// [`Error::ForeignLauncher`] when the processes cannot form a job: each would be a job of one PE.
pub(crate) fn found() -> Result<Option<Adopted>> {
    let number = |variable: &str| std::env::var(variable).ok()?.trim().parse::<usize>().ok();
    let mut refused = None;
    for (launcher, [size_in, rank_in, local_in]) in KNOWN {
        let size = number(size_in).unwrap_or(1);
        if size > 1 {
            let several_nodes = launcher.contains("Slurm")
                && number("SLURM_STEP_NUM_NODES").is_some_and(|nodes| nodes > 1);
            if let Some(rank) = number(rank_in)
                .filter(|&rank| rank < size && number(local_in) == Some(size) && !several_nodes)
            {
                return Ok(Some(Adopted { launcher, rank, size }));
            }
            // Slurm also sets some variables of other launchers, but not all of them.
            refused.get_or_insert(Error::ForeignLauncher { launcher, size, variable: size_in });
        }
    }
    match refused.or_else(|| hinted(number)) {
        Some(refused) => Err(refused),
        None => Ok(None),
    }
}

/// Several processes by the variables of launchers that do not say all that it takes to form a job:
/// a script of Slurm's without `srun`, or a launcher that speaks PMIx alone.
fn hinted(number: impl Fn(&str) -> Option<usize>) -> Option<Error> {
    if !tells_no_size() {
        // That launcher has started one process, inside of what another has reserved.
        return None;
    }
    let hints =
        [("Slurm", "SLURM_NTASKS", 0), ("Slurm", "SLURM_PROCID", 1), ("PMIx", "PMIX_RANK", 1)];
    hints.into_iter().find_map(|(launcher, variable, beside)| {
        let size = number(variable)? + beside;
        (size > 1).then_some(Error::ForeignLauncher { launcher, size, variable })
    })
}

/// Whether another launcher has started this process, even as the only one.
pub(crate) fn is_launched() -> bool {
    has_connection() || !tells_no_size() && found().is_ok()
}

/// Whether no variable says how many processes there are. PMIx alone does not.
pub(super) fn tells_no_size() -> bool {
    KNOWN.iter().all(|(_, [size, ..])| std::env::var_os(size).is_none())
}

/// Whether the launcher has left a connection by which processes find each other: PMI-1, or PMIx.
pub(super) fn has_connection() -> bool {
    ["PMI_FD", "PMIX_NAMESPACE"].iter().any(|name| std::env::var_os(name).is_some())
}

impl Adopted {
    /// The number of this PE in the job.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }
}
