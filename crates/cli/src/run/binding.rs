//! Which CPUs each PE may use.

use anyhow::{Result, bail};
use memonet_core::unstable::launch::{available_cpus, cpu_list};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::spec::Bind;

/// The CPUs of all PEs.
pub struct Binding {
    /// CPUs, ordered so that those of one core or package are neighbours.
    cpus: Vec<usize>,
    /// How many of them the PEs may keep busy together: a cgroup may allow less than all.
    usable: usize,
    share: Share,
}

/// How PEs share the CPUs.
#[derive(Clone, Copy)]
enum Share {
    /// Not at all: PEs are not bound.
    None,
    /// Each PE has this number of CPUs of its own.
    Cpus(usize),
    /// Each CPU has this number of PEs.
    Pes(usize),
    /// A simulated machine has the first, on which its PEs begin.
    First,
}

/// Decides on the binding of `npes` PEs.
///
/// Where equally many PEs share each CPU, they are bound. To the kernel, PEs that yield to each
/// other are all alike: it would move them, and one PE too many on a CPU makes each barrier longer
/// by a context switch. Where the numbers are unequal, the kernel may balance them.
pub fn plan(npes: usize, wish: Option<Bind>) -> Result<Binding> {
    let mut cpus = cpu_list();
    let usable = available_cpus().min(cpus.len());
    let share = match wish {
        Some(Bind::Core) if npes > cpus.len() => bail!(
            "--bind core needs a CPU for each of the {npes} PEs, but this process may use {}. Use fewer PEs, or --bind none",
            cpus.len()
        ),
        Some(Bind::None) => Share::None,
        Some(Bind::Core) => Share::Cpus(cpus.len() / npes),
        None if npes <= usable => Share::Cpus(cpus.len() / npes),
        None if usable == cpus.len() && npes.is_multiple_of(usable) => Share::Pes(npes / usable),
        None => Share::None,
    };
    // Hardware threads of one core are often numbered far apart, but a PE should get whole cores.
    cpus.sort_by_cached_key(|&cpu| {
        (topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu)
    });
    Ok(Binding { cpus, usable, share })
}

/// Has a simulated machine run, and its PEs begin, on the CPU on which this thread runs, unless the
/// user wants no binding.
pub fn simulated(wish: Option<Bind>) -> Binding {
    let (mut cpus, here) = (cpu_list(), rustix::thread::sched_getcpu());
    cpus.sort_by_key(|&cpu| cpu != here);
    let share = if let Some(Bind::None) = wish { Share::None } else { Share::First };
    Binding { usable: available_cpus().min(cpus.len()), cpus, share }
}

fn topology(cpu: usize, what: &str) -> Option<i32> {
    std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// While it exists, its thread leaves some CPUs to others. Drop it on that thread.
pub struct Aside {
    before: CpuSet,
}

impl Drop for Aside {
    fn drop(&mut self) {
        // As it could leave these CPUs, it can return, unless its cpuset has lost them. Then the
        // kernel has chosen others.
        let _ = sched_setaffinity(None, &self.before);
    }
}

impl Binding {
    /// The CPUs of a PE; `None` when it is not bound.
    pub fn cpus(&self, pe: usize) -> Option<CpuSet> {
        let mut set = CpuSet::new();
        self.of(pe)?.iter().for_each(|&cpu| set.set(cpu));
        Some(set)
    }

    fn of(&self, pe: usize) -> Option<&[usize]> {
        match self.share {
            Share::Cpus(share) => Some(&self.cpus[pe * share..(pe + 1) * share]),
            // Round robin: successive PEs start on different CPUs.
            Share::Pes(_) => Some(std::slice::from_ref(&self.cpus[pe % self.cpus.len()])),
            Share::First => Some(&self.cpus[..1]),
            Share::None => None,
        }
    }

    /// Has the calling thread, which is about to start these PEs one after the other, stay on the
    /// CPUs of the last one meanwhile. On those of an earlier one it would have to wait: the kernel
    /// lets a program that begins run on.
    pub fn step_aside(&self, npes: usize) -> Option<Aside> {
        let Share::Cpus(_) = self.share else { return None };
        let last = self.cpus(npes.checked_sub(1).filter(|&last| last > 0)?)?;
        let before = sched_getaffinity(None).ok()?;
        // Where it may not move, PEs start later and no worse.
        sched_setaffinity(None, &last).ok().map(|()| Aside { before })
    }

    /// The number of CPUs that the PEs may keep busy together.
    pub fn usable(&self) -> usize {
        self.usable
    }

    /// The CPUs to each of which several PEs are bound.
    pub fn shared_cpus(&self) -> &[usize] {
        match self.share {
            Share::Pes(share) if share > 1 => &self.cpus,
            _ => &[],
        }
    }

    /// The CPUs of a simulated machine and its PEs, if they are bound: first the one that all
    /// share, then those that PEs which run at once may use.
    pub fn of_machine(&self) -> Vec<usize> {
        match self.share {
            Share::First => self.cpus[..self.usable].to_vec(),
            _ => Vec::new(),
        }
    }

    /// Describes the binding of `npes` PEs from `first` on.
    pub fn describe(&self, first: usize, npes: usize) -> String {
        let head = format!("{npes} PEs on {} CPUs", self.cpus.len());
        let mut text = match self.share {
            Share::First => {
                return format!(
                    "{npes} PEs and the simulated machine on CPU {}; PEs that run at once, on {} CPUs",
                    self.cpus[0],
                    self.of_machine().len()
                );
            }
            Share::None => return format!("{head}, not bound"),
            Share::Cpus(share) => format!("{head}: each has {share} for itself and its threads"),
            Share::Pes(share) => format!("{head}: each CPU has {share}"),
        };
        for pe in 0..npes {
            let list: Vec<String> =
                self.of(pe).unwrap_or_default().iter().map(usize::to_string).collect();
            text += &format!("\nPE {}: CPU {}", first + pe, list.join(" "));
        }
        text
    }
}
