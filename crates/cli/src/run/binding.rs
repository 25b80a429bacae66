//! Which CPUs each PE may use.

use anyhow::{Result, bail};
use memonet_core::launch::{available_cpus, cpu_list};
use rustix::thread::CpuSet;

use super::args::Bind;

/// The CPUs of all PEs.
pub struct Binding {
    /// CPUs, those that share a core or a package side by side.
    cpus: Vec<usize>,
    /// CPUs per PE; 0 when PEs are not bound.
    share: usize,
    /// Where all share them.
    all: Option<CpuSet>,
}

/// Decides on the binding of `npes` PEs.
pub fn plan(npes: usize, wish: Option<Bind>) -> Result<Binding> {
    let mut cpus = cpu_list();
    let fits = npes <= available_cpus().min(cpus.len());
    let share = match wish {
        Some(Bind::Core) if npes > cpus.len() => bail!(
            "--bind core needs a CPU for each of the {npes} PEs, but this process may use {}. Use fewer PEs, or --bind none",
            cpus.len()
        ),
        Some(Bind::Core) => cpus.len() / npes,
        None if fits => cpus.len() / npes,
        _ => 0,
    };
    // Hardware threads of one core are often numbered far apart; a PE is to get whole cores.
    cpus.sort_by_cached_key(|&cpu| (topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu));
    Ok(Binding { cpus, share, all: None })
}

/// All of a simulated job on one CPU, unless the kernel is to choose.
pub fn simulated(wish: Option<Bind>) -> Binding {
    let all = (wish != Some(Bind::None)).then(one_cpu);
    Binding {
        cpus: cpu_list(),
        share: 0,
        all,
    }
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
        if self.all.is_some() {
            return self.all;
        }
        (self.share > 0).then(|| {
            let mut set = CpuSet::new();
            self.of(pe).iter().for_each(|&cpu| set.set(cpu));
            set
        })
    }

    fn of(&self, pe: usize) -> &[usize] {
        &self.cpus[pe * self.share..(pe + 1) * self.share]
    }

    /// What all share, if they do.
    pub fn shared(&self) -> Option<CpuSet> {
        self.all
    }

    /// The binding in words.
    pub fn describe(&self, npes: usize) -> String {
        let cpus = self.cpus.len();
        if self.all.is_some() {
            return format!("{npes} PEs and the simulated machine on one CPU, one of them running");
        }
        if self.share == 0 {
            return format!("{npes} PEs on {cpus} CPUs, not bound");
        }
        let mut text = format!("{npes} PEs on {cpus} CPUs: each has {} for itself and its threads", self.share);
        for pe in 0..npes {
            let list: Vec<String> = self.of(pe).iter().map(usize::to_string).collect();
            text += &format!("\nPE {pe}: CPU {}", list.join(" "));
        }
        text
    }
}
