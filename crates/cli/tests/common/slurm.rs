//! A Slurm of the tests' own, on hosts that are namespaces.

use std::path::Path;
use std::process::{Command, Stdio};

use super::cluster::{Hosts, must};
use super::{skip, until};

/// A Slurm whose nodes are all of these hosts, and whose controller is on the first one. It ends
/// with them.
pub struct Slurm<'a> {
    hosts: &'a Hosts,
}

/// There is no systemd and there are no control groups; nodes have as many CPUs as tests like.
const CONFIG: &str = "ClusterName=test
SlurmctldHost=h1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/run/slurmctld
SlurmctldPidFile=/run/slurmctld.pid
SlurmctldLogFile=FOLDER/slurmctld.log
SlurmdPidFile=/run/slurmd.pid
SlurmdLogFile=FOLDER/slurmd-%n.log
SlurmdSpoolDir=/run/slurmd
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
ReturnToService=2
MailProg=/bin/true
NodeName=h[1-COUNT] CPUs=8
PartitionName=all Nodes=ALL Default=YES State=UP
";

/// What starts on each host, and on the first one also.
const EACH: &str = "
mkdir -p -m 755 /run/munge /run/slurmd /run/slurmctld
install -m 400 munge.key /run/munge/key
munged --force --key-file=/run/munge/key --seed-file=/run/munge/seed \\
    --pid-file=/run/munge/pid --log-file=/run/munge/log
[ $(hostname) != h1 ] || slurmctld
slurmd -N $(hostname)
";

impl<'a> Slurm<'a> {
    /// `None` where Slurm is not installed.
    pub fn new(hosts: &'a Hosts, count: usize) -> Option<Slurm<'a>> {
        let folders = ["/usr/sbin", "/usr/bin"].map(Path::new);
        for tool in ["srun", "slurmctld", "slurmd", "munged"] {
            if !folders.iter().any(|folder| folder.join(tool).exists()) {
                let wanted = std::env::var("MEMONET_TEST_TOOLS").is_ok_and(|value| value == "1");
                assert!(!wanted, "{tool} is not installed: `make deps`");
                skip(&format!("{tool} is not installed. `make deps` does that"));
                return None;
            }
        }
        let folder = hosts.folder.path().display().to_string();
        let config = CONFIG.replace("FOLDER", &folder).replace("COUNT", &count.to_string());
        std::fs::write(hosts.path("slurm.conf"), config).unwrap();
        let groups = "CgroupPlugin=cgroup/v1\nIgnoreSystemd=yes\n";
        std::fs::write(hosts.path("cgroup.conf"), groups).unwrap();
        // Each node has its own; unless told, all would use /tmp, which all hosts share.
        let places = "PMIxCliTmpDirBase=/run\n";
        std::fs::write(hosts.path("mpi.conf"), places).unwrap();
        std::fs::write(hosts.path("munge.key"), [b'k'; 1024]).unwrap();
        let slurm = Slurm { hosts };
        for host in 1..=count {
            // Servers keep what they have inherited: pipes would never end.
            let mut servers = slurm.on(host);
            servers.args(["sh", "-e", "-c", EACH]).stdin(Stdio::null()).stdout(Stdio::null());
            let log = std::fs::File::create(hosts.path(&format!("servers-h{host}.log"))).unwrap();
            let status = servers.stderr(log).status().unwrap();
            assert!(status.success(), "Slurm's servers on h{host}: {status}; {}", slurm.logs());
        }
        until("Slurm has all nodes", || {
            let mut asks = slurm.on(1);
            let output = asks.args(["sinfo", "--noheader", "--format=%T %D"]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).trim() == format!("idle {count}")
        });
        Some(slurm)
    }

    /// A command of Slurm's on a host.
    pub fn on(&self, host: usize) -> Command {
        let mut command = self.hosts.on(host);
        command.env("SLURM_CONF", self.hosts.path("slurm.conf"));
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{path}:/usr/sbin:/usr/bin"));
        command
    }

    fn logs(&self) -> String {
        let show = "tail -n 5 servers-*.log slurm*.log";
        String::from_utf8_lossy(&must(self.hosts.on(1).args(["sh", "-c", show])).stdout).into()
    }
}
