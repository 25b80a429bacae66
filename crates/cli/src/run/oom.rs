//! Finds out whether the kernel has killed a process because memory ran out. The kernel's counters
//! rise before it kills.

use std::fs::read_to_string;
use std::path::PathBuf;

const MACHINE: &str = "/proc/vmstat";

/// Kills for lack of memory that were noticed so far.
pub struct Kills {
    /// The counter of the launcher's cgroup, which is that of the PEs.
    cgroup: Option<Counter>,
    machine: Option<Counter>,
}

struct Counter {
    file: PathBuf,
    seen: u64,
}

impl Counter {
    fn of(file: PathBuf) -> Option<Counter> {
        let seen = read(&file)?;
        Some(Counter { file, seen })
    }

    /// Whether it has risen beyond the noticed kills. If so, one more kill counts as noticed.
    fn has_risen(&mut self) -> bool {
        let risen = read(&self.file).is_some_and(|now| now > self.seen);
        self.seen += u64::from(risen);
        risen
    }
}

fn read(file: &PathBuf) -> Option<u64> {
    let text = read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

impl Kills {
    /// Notes the number of kills so far.
    pub fn so_far() -> Kills {
        let own = read_to_string("/proc/self/cgroup").unwrap_or_default();
        Kills {
            cgroup: files(&own).into_iter().find_map(Counter::of),
            machine: Counter::of(MACHINE.into()),
        }
    }

    /// Explains by the counters why SIGKILL has ended a PE.
    pub fn explain(&mut self) -> String {
        if let Some(counter) = &mut self.cgroup
            && counter.has_risen()
        {
            // The counter of the machine rises, too.
            self.machine.iter_mut().for_each(|machine| machine.seen += 1);
            return format!(
                "Memory ran out, and the kernel killed it (oom_kill in {} rose): raise the cgroup's limit, use fewer PEs, or less memory in each",
                counter.file.display()
            );
        }
        match self.machine.as_mut().map(Counter::has_risen) {
            Some(true) => format!(
                "The machine's memory ran out meanwhile, and the kernel killed a process (oom_kill in {MACHINE} rose), perhaps this one: see `dmesg`"
            ),
            Some(false) => {
                "A user, a debugger, a batch system or a limit on CPU time sent it. The kernel has killed nothing for lack of memory"
                    .into()
            }
            None => "Either another process sent it or memory ran out, which this kernel does not count: see `dmesg`".into(),
        }
    }
}

/// Possible files of the counter, from /proc/self/cgroup: in the cgroup's folder of either version,
/// or, inside a container that does not see the whole tree, at its top.
fn files(own: &str) -> Vec<PathBuf> {
    let (mut inside, mut top) = (Vec::new(), Vec::new());
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (root, file) = match controllers.split(',').any(|name| name == "memory") {
            true => ("/sys/fs/cgroup/memory", "memory.oom_control"),
            false if number == "0" => ("/sys/fs/cgroup", "memory.events"),
            false => continue,
        };
        inside.push(format!("{root}{}/{file}", path.trim_end_matches('/')).into());
        top.push(format!("{root}/{file}").into());
    }
    inside.append(&mut top);
    inside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_both_versions() {
        let names = |own: &str| {
            files(own).into_iter().map(|file| file.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            names("4:cpu,memory:/jobs/1\n3:cpuset:/\n0::/\n"),
            [
                "/sys/fs/cgroup/memory/jobs/1/memory.oom_control",
                "/sys/fs/cgroup/memory.events",
                "/sys/fs/cgroup/memory/memory.oom_control",
                "/sys/fs/cgroup/memory.events"
            ]
        );
        assert_eq!(names("garbage"), [""; 0]);
    }

    #[test]
    fn a_kill_is_accounted_for_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.events");
        std::fs::write(&file, "oom 9\noom_kill 3\n").unwrap();
        let mut kills = Kills { cgroup: Counter::of(file.clone()), machine: None };
        assert!(kills.explain().starts_with("Either"));
        std::fs::write(&file, "oom 9\noom_kill 4\noom_group_kill 0\n").unwrap();
        assert!(kills.explain().starts_with("Memory ran out"));
        assert!(kills.explain().starts_with("Either"));
    }
}
