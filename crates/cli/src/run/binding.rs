//! Which CPUs each PE may use.

use anyhow::{Result, bail};
use memonet_core::launch::{available_cpus, cpu_list};
use rustix::thread::CpuSet;

use super::spec::Bind;

/// The CPUs of all PEs.
pub struct Binding {
    /// CPUs, those that share a core or a package side by side.
    cpus: Vec<usize>,
    share: Share,
}

/// How they are shared out.
#[derive(Clone, Copy)]
enum Share {
    /// Not at all: PEs are not bound.
    None,
    /// Each PE has so many of its own.
    Cpus(usize),
    /// Each CPU has so many PEs.
    Pes(usize),
    /// All PEs have the same.
    All(CpuSet),
}

/// Decides on the binding of `npes` PEs.
///
/// Where PEs share CPUs, as many of them on each, the kernel is not to choose: PEs that yield to
/// each other look all alike to it, it moves them about, and with one too many on a CPU each
/// barrier costs a change of processes more. Where they do not come out even, it may as well take
/// turns.
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
    // Hardware threads of one core are often numbered far apart; a PE is to get whole cores.
    cpus.sort_by_cached_key(|&cpu| {
        (topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu)
    });
    Ok(Binding { cpus, share })
}

/// All of a simulated job on one CPU, unless the kernel is to choose.
pub fn simulated(wish: Option<Bind>) -> Binding {
    let share = match wish {
        Some(Bind::None) => Share::None,
        _ => Share::All(one_cpu()),
    };
    Binding { cpus: cpu_list(), share }
}

/// That on which this thread runs.
fn one_cpu() -> CpuSet {
    let mut set = CpuSet::new();
    set.set(rustix::thread::sched_getcpu());
    set
}

fn topology(cpu: usize, what: &str) -> Option<i32> {
    std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{what}"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

impl Binding {
    /// The CPUs of a PE; `None` when it is not bound.
    pub fn cpus(&self, pe: usize) -> Option<CpuSet> {
        if let Share::All(set) = self.share {
            return Some(set);
        }
        let mut set = CpuSet::new();
        self.of(pe)?.iter().for_each(|&cpu| set.set(cpu));
        Some(set)
    }

    fn of(&self, pe: usize) -> Option<&[usize]> {
        match self.share {
            Share::Cpus(share) => Some(&self.cpus[pe * share..(pe + 1) * share]),
            // In turns: PEs start one after the other, on all CPUs at once.
            Share::Pes(_) => Some(std::slice::from_ref(&self.cpus[pe % self.cpus.len()])),
            Share::None | Share::All(_) => None,
        }
    }

    /// What all share, if they do.
    pub fn shared(&self) -> Option<CpuSet> {
        match self.share {
            Share::All(set) => Some(set),
            _ => None,
        }
    }

    /// The binding in words.
    pub fn describe(&self, npes: usize) -> String {
        let head = format!("{npes} PEs on {} CPUs", self.cpus.len());
        let mut text = match self.share {
            Share::All(_) => {
                return format!(
                    "{npes} PEs and the simulated machine on one CPU, one of them running"
                );
            }
            Share::None => return format!("{head}, not bound"),
            Share::Cpus(share) => format!("{head}: each has {share} for itself and its threads"),
            Share::Pes(share) => format!("{head}: each CPU has {share}"),
        };
        for pe in 0..npes {
            let list: Vec<String> =
                self.of(pe).unwrap_or_default().iter().map(usize::to_string).collect();
            text += &format!("\nPE {pe}: CPU {}", list.join(" "));
        }
        text
    }
}
