//! An allocation of Slurm's: its hosts, and how agents are started there.

use std::process::Command;

use anyhow::{Context, Result, bail};
use memonet_fabrics::between::Between;

use crate::run::spec::Options;

/// Starts an agent, before the name of its host. Its output comes as it is written; it may use all
/// CPUs that the job has there; and it takes nothing from other steps of the job.
const AGENT: &str = "srun --quiet --unbuffered --overlap --mpi=none --cpu-bind=none --nodes=1 --ntasks=1 --nodelist";

/// In an allocation of several hosts, has the job run on these by `srun`, unless the user has said
/// where and how it is to run.
///
/// # Errors
/// Slurm does not say what the hosts are.
pub fn fill_in(options: &mut Options) -> Result<()> {
    let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    // A step is one of the processes that `srun` has started, and stays where it is.
    if variable("SLURM_JOB_ID").is_none() || variable("SLURM_STEP_ID").is_some() {
        return Ok(());
    }
    let fabric = options.fabric_of_pes();
    let of_one_machine = fabric.is_some_and(|spec| Between::parse(&spec).is_err());
    let several = &mut options.several;
    if !several.is_asked() {
        let is_here = options.simulated.machine.is_some() || of_one_machine;
        let Some(list) = variable("SLURM_JOB_NODELIST").filter(|_| !is_here) else {
            return Ok(());
        };
        let slots = variable("SLURM_NTASKS")
            .and_then(|_| variable("SLURM_TASKS_PER_NODE"))
            .or_else(|| variable("SLURM_JOB_CPUS_PER_NODE"));
        let hosts = names(&list)?;
        if hosts.len() < 2 {
            return Ok(());
        }
        several.hosts = Some(with_slots(&hosts, slots.as_deref())?);
    }
    if several.launch_agent.is_none() {
        several.launch_agent = Some(AGENT.into());
        // Steps start no steps.
        several.direct_hosts.get_or_insert(usize::MAX);
    }
    Ok(())
}

/// The hosts of a list such as `node[1-3]`, which Slurm writes in many ways.
fn names(list: &str) -> Result<Vec<String>> {
    let asked = || format!("asking `scontrol show hostnames {list}` for the hosts of this job");
    let output = Command::new("scontrol")
        .args(["show", "hostnames", list])
        .output()
        .with_context(|| format!("{}: is Slurm on PATH? Or name them: --hosts a:4,b:4", asked()))?;
    if !output.status.success() {
        bail!("{}: {}", asked(), String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// The list as `--hosts` takes it, with slots from Slurm's `2(x3),1`, if it gives them.
fn with_slots(hosts: &[String], slots: Option<&str>) -> Result<String> {
    let Some(slots) = slots else { return Ok(hosts.join(",")) };
    let strange = || format!("Slurm gives {slots:?} for {} hosts", hosts.len());
    let mut each = Vec::new();
    for word in slots.split(',') {
        let (number, times) = match word.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')').with_context(strange)?),
            None => (word, "1"),
        };
        let number: usize = number.parse().with_context(strange)?;
        let times: usize = times.parse().with_context(strange)?;
        if times > hosts.len() - each.len() {
            bail!(strange());
        }
        each.extend(std::iter::repeat_n(number, times));
    }
    if each.len() != hosts.len() {
        bail!(strange());
    }
    let pairs = hosts.iter().zip(each).map(|(host, slots)| format!("{host}:{slots}"));
    Ok(pairs.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_hosts() {
        let hosts = ["a", "b", "c"].map(str::to_owned);
        let list = |slots| with_slots(&hosts, slots);
        assert_eq!(list(None).unwrap(), "a,b,c");
        assert_eq!(list(Some("2(x3)")).unwrap(), "a:2,b:2,c:2");
        assert_eq!(list(Some("2(x2),5")).unwrap(), "a:2,b:2,c:5");
        assert_eq!(list(Some("1,2,3")).unwrap(), "a:1,b:2,c:3");
        let garbage = ["", "2", "2(x4)", "2(x2", "x(x3)", "2(x99999999999999999999)", "1,2,3,4"];
        for wrong in garbage {
            assert!(list(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
