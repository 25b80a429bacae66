//! Limits of the cgroups that this process is in, of either version.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// A limit: its controller, and its file in a folder of version 2 and of version 1.
pub struct Limit {
    controller: &'static str,
    files: [&'static str; 2],
}

pub const MEMORY: Limit =
    Limit { controller: "memory", files: ["memory.max", "memory.limit_in_bytes"] };
pub const PROCESSES: Limit = Limit { controller: "pids", files: ["pids.max", "pids.max"] };

impl Limit {
    /// The least number on the way from this process's cgroup to the top, if there is one.
    pub fn least(&self) -> Option<u64> {
        let own = read_to_string("/proc/self/cgroup").unwrap_or_default();
        let number = |file: PathBuf| read_to_string(file).ok()?.trim().parse().ok();
        self.files(&own).into_iter().filter_map(number).min()
    }

    /// The files that may hold it, from /proc/self/cgroup. A container may not see the folders
    /// below the top; what holds for it stands at the top then.
    fn files(&self, own: &str) -> Vec<PathBuf> {
        let of_line = |line: &str| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let (top, file) = match controllers.split(',').any(|name| name == self.controller) {
                true => (Path::new("/sys/fs/cgroup").join(self.controller), self.files[1]),
                false if number == "0" => ("/sys/fs/cgroup".into(), self.files[0]),
                false => return None,
            };
            let below = Path::new(path.trim_start_matches('/')).ancestors();
            Some(below.map(|folder| top.join(folder).join(file)).collect::<Vec<_>>())
        };
        own.lines().filter_map(of_line).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_stand_in_all_folders_on_the_way_to_the_top() {
        let files = |limit: Limit, own| {
            let files = limit.files(own).into_iter();
            files.map(|file| file.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            files(MEMORY, "0::/user.slice/job:7\n"),
            [
                "/sys/fs/cgroup/user.slice/job:7/memory.max",
                "/sys/fs/cgroup/user.slice/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            files(PROCESSES, "11:cpu,pids:/a\n3:memory:/a\n0::/\n"),
            [
                "/sys/fs/cgroup/pids/a/pids.max",
                "/sys/fs/cgroup/pids/pids.max",
                "/sys/fs/cgroup/pids.max"
            ]
        );
        assert!(files(MEMORY, "garbage\n:\n").is_empty());
    }
}
