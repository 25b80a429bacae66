//! Jobs on hosts with networks, names, processes and ssh servers of their own: namespaces that the
//! tests make.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Ended, children, collect, marked, pe, send, skip, until, wait};
use rustix::process::Signal;

/// Hosts on one switch, of which nothing is left when this is dropped. The launcher runs on the
/// first one.
struct Hosts {
    folder: tempfile::TempDir,
    /// For each host, and last for the switch: what keeps its namespaces.
    keepers: Vec<Child>,
    /// The first process of each of them.
    inits: Vec<i32>,
}

const SSH: &str = "/usr/bin/ssh";
/// Often not on PATH.
const SSHD: &str = "/usr/sbin/sshd";

/// The home is an empty one: what login shells read there may take its time, and locks.
const SSHD_CONFIG: &str = "Port 22
HostKey FOLDER/key
AuthorizedKeysFile FOLDER/key.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
SetEnv HOME=FOLDER
Match User daemon
    PubkeyAuthentication no
";

/// A host's first process: it gives the host what others must not share, and collects orphans.
const INIT: &str = "
set -e
hostname $0
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd
mount --bind $1/hosts /etc/hosts
ip link set lo up
: > $1/$0.up
while :; do sleep 1000 & wait $!; done
";

fn must(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// The name of a host.
fn name(host: usize) -> String {
    format!("h{host}")
}

impl Hosts {
    /// Hosts h1 to h`count`; `None` where this process cannot make any.
    fn new(count: usize) -> Option<Hosts> {
        let mut probe = Command::new("unshare");
        probe.args([
            "--net",
            "--uts",
            "--ipc",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "true",
        ]);
        let works = probe.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        let is_root = rustix::process::geteuid().is_root();
        if !works || !is_root || ![SSH, SSHD].iter().all(|file| Path::new(file).exists()) {
            let wanted = std::env::var("MEMONET_TEST_TOOLS").is_ok_and(|value| value == "1");
            assert!(!wanted || !works || !is_root, "there is no ssh server: `make deps`");
            skip("it needs root, namespaces, and an ssh server (`make deps`)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut hosts = Hosts { folder, keepers: Vec::new(), inits: Vec::new() };
        hosts.write_files(count);
        for host in 1..=count {
            hosts.keep(&["--uts", "--ipc", "--mount", "--pid"], &["sh", "-c", INIT, &name(host)]);
        }
        hosts.keep(&[], &["sleep", "1000"]);
        until("hosts are up", || {
            (1..=count).all(|host| hosts.path(&format!("h{host}.up")).exists())
        });
        hosts.connect(count);
        Some(hosts)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn write_files(&self, count: usize) {
        let folder = self.folder.path().display().to_string();
        let write = |file: &str, text: String| std::fs::write(self.path(file), text).unwrap();
        let addresses = (1..=count).map(|host| format!("10.78.0.{host} h{host}\n"));
        let nobody = "10.78.0.99 nobody\n";
        write("hosts", format!("127.0.0.1 localhost\n{nobody}{}", addresses.collect::<String>()));
        write("sshd_config", SSHD_CONFIG.replace("FOLDER", &folder));
        write(
            "ssh_config",
            format!(
                "Host *\n IdentityFile {folder}/key\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n"
            ),
        );
        // The `ssh` of these hosts' users, who have a configuration of their own.
        std::fs::create_dir(self.path("bin")).unwrap();
        write("bin/ssh", format!("#!/bin/sh\nexec {SSH} -F {folder}/ssh_config \"$@\"\n"));
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path("bin/ssh"), executable).unwrap();
        let key = self.path("key");
        must(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(key));
    }

    /// Keeps namespaces, of which one is for the network, for as long as this process lives.
    fn keep(&mut self, namespaces: &[&str], init: &[&str]) {
        let mut command = Command::new("unshare");
        command.arg("--net").args(namespaces).args(["--fork", "--kill-child"]).args(init);
        command.arg(self.folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        if init[0] == "sleep" {
            command = Command::new("unshare");
            command.args(["--net", "--fork", "--kill-child"]).args(init).stdin(Stdio::null());
        }
        // It complains when it is killed.
        command.stderr(Stdio::null());
        // SAFETY: one system call, which neither allocates nor takes a lock.
        unsafe {
            command.pre_exec(|| {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                Ok(())
            });
        }
        let keeper = command.spawn().unwrap();
        let mut init = Vec::new();
        until("a namespace is there", || {
            init = children(keeper.id() as i32);
            !init.is_empty()
        });
        self.keepers.push(keeper);
        self.inits.push(init[0]);
    }

    fn in_network_of(&self, init: i32, words: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &init.to_string(), "-n", "--"]).args(words.split_whitespace());
        command
    }

    fn on_switch(&self, words: &str) {
        must(&mut self.in_network_of(*self.inits.last().unwrap(), words));
    }

    fn connect(&self, count: usize) {
        self.on_switch("ip link add bridge type bridge");
        self.on_switch("ip link set bridge up");
        for host in 1..=count {
            let init = self.inits[host - 1];
            self.on_switch(&format!(
                "ip link add port{host} type veth peer name eth0 netns {init}"
            ));
            self.on_switch(&format!("ip link set port{host} master bridge up"));
            let own = |words: &str| must(&mut self.in_network_of(init, words));
            own(&format!("ip address add 10.78.0.{host}/24 dev eth0"));
            own("ip link set eth0 up");
            let config = self.path("sshd_config");
            must(self.on(host).args([SSHD, "-f"]).arg(config));
        }
    }

    /// A command on a host, in the folder that all share.
    fn on(&self, host: usize) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.inits[host - 1].to_string(), "-n", "-u", "-i", "-m", "-p", "--"]);
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(self.folder.path());
        command
    }

    /// Takes a host's link away.
    fn cut(&self, host: usize) {
        self.on_switch(&format!("ip link set port{host} down"));
    }

    /// Ends all processes of a host at once.
    fn kill(&self, host: usize) {
        send(self.inits[host - 1], Signal::KILL);
    }

    /// Starts a job, from the first host.
    fn start(&self, arguments: &[&str]) -> Job {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("ssh-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let mut command = self.on(1);
        command.args([env!("CARGO_BIN_EXE_memonet"), "run", "--timeout", "40"]).args(arguments);
        command.env("PATH", path).env("MEMONET_TEST_MARK", &mark).env("HOSTNAME", "launcher");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Job { nsenter: command.spawn().unwrap(), mark }
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        self.start(arguments).end()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for keeper in &mut self.keepers {
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
    }
}

struct Job {
    nsenter: Child,
    mark: String,
}

impl Job {
    /// The launcher, as it is known outside.
    fn launcher(&self) -> i32 {
        let mut launcher = Vec::new();
        until("there is a launcher", || {
            launcher = children(self.nsenter.id() as i32);
            !launcher.is_empty()
        });
        launcher[0]
    }

    /// Its processes on all hosts that sleep.
    fn sleepers(&self, count: usize) {
        let name = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let sleeps = |&pid: &i32| name(pid).is_ok_and(|name| name == "sleep\n");
        until("PEs sleep", || marked(&self.mark).iter().filter(|pid| sleeps(pid)).count() == count);
    }

    fn end(mut self) -> Ended {
        let stdout = collect(self.nsenter.stdout.take().unwrap());
        let stderr = collect(self.nsenter.stderr.take().unwrap());
        let status = wait(&mut self.nsenter);
        let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
        until("nothing is left on any host", || marked(&self.mark).is_empty());
        Ended { status: status.code().unwrap_or(-1), stdout, stderr }
    }
}

#[test]
fn agents_are_started_by_ssh() {
    let Some(hosts) = Hosts::new(3) else { return };
    let script = "echo $MEMONET_PE on $(hostname) $HOSTNAME $X in $(pwd)";
    let ended = hosts.run(&["--hosts", "h2:2,h1,h3", "--env", "X=a b", "sh", "-c", script]);
    let folder = hosts.folder.path().display().to_string();
    let mut expected: Vec<String> = Vec::new();
    for (pe, host) in ["h2", "h2", "h1", "h3"].into_iter().enumerate() {
        expected.push(format!("{pe} on {host} a b in {folder}"));
    }
    assert_eq!(ended.lines(), expected, "{ended:?}");
    assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");

    let program = pe();
    let ended = hosts.run(&["--hosts", "h2:2,h3:1", &program, "orphan", "kill"]);
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    assert!(ended.stdout.contains("PE 0 saw: PE 2 failed: killed by signal 9"), "{ended:?}");

    for (list, said) in [
        ("h2,nohost", "`ssh -o BatchMode=yes -T nohost true` must work"),
        ("h2,nobody", "No route to host"),
        ("h2,daemon@h3", "Permission denied"),
    ] {
        let ended = hosts.run(&["--hosts", list, "echo", "no"]);
        assert_eq!((ended.status, &*ended.stdout), (1, ""), "{ended:?}");
        assert!(ended.stderr.contains(said), "{ended:?}");
    }
    std::fs::write(hosts.path("on_h1"), "").unwrap();
    let ended = hosts.run(&["--hosts", "h1,h2", "./on_h1"]);
    assert_eq!(ended.status, 126, "{ended:?}");
}

/// Hydra has started the PEs, and nothing of memonet's launcher runs. A death on one host is known
/// on the other, and no agent is left.
#[test]
fn pes_of_hydra_form_a_job() {
    let python = std::env::var_os("MEMONET_TEST_PYTHON").map(PathBuf::from);
    let hydra = python.map(|python| python.with_file_name("mpiexec.hydra"));
    let Some(hydra) = hydra.filter(|file| file.exists()) else {
        assert!(std::env::var_os("MEMONET_TEST_TOOLS").is_none(), "no Hydra: `make deps`");
        return skip("it needs Hydra (`make deps`)");
    };
    let Some(hosts) = Hosts::new(2) else { return };
    let mark = format!("hydra-{}", std::process::id());
    let run = |program: &[&str]| {
        let mut command = hosts.on(1);
        command.arg(&hydra).args(["-launcher", "ssh", "-launcher-exec"]);
        command.arg(hosts.path("bin/ssh")).args(["-disable-auto-cleanup"]);
        command.args(["-localhost", "10.78.0.1", "-hosts", "10.78.0.1:2,10.78.0.2:2", "-n", "4"]);
        command.arg(pe()).args(program).env("MEMONET_TEST_MARK", &mark).stdin(Stdio::null());
        let output = command.output().unwrap();
        until("no process is left", || marked(&mark).is_empty());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (said, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (said, errors) = run(&["ring", "nobody"]);
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    let all = ["0 of 4 after 3", "1 of 4 after 0", "2 of 4 after 1", "3 of 4 after 2"];
    assert_eq!(lines, all, "{errors}");
    let (said, errors) = run(&["orphan", "kill"]);
    assert!(said.contains("PE 0 saw: PE 3 failed: killed by signal 9"), "{said}{errors}");
}

#[test]
fn a_host_that_is_cut_off_is_lost_and_ends_its_pes() {
    let Some(hosts) = Hosts::new(3) else { return };
    let job = hosts.start(&["--hosts", "h1,h2:2,h3", "sleep", "1000"]);
    job.sleepers(4);
    hosts.cut(3);
    let ended = job.end();
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    let said = " on h3): its host is lost: nothing was heard of it for 2 seconds";
    assert!(ended.stderr.contains(said), "{ended:?}");
}

#[test]
fn a_host_whose_processes_all_end_is_lost() {
    let Some(hosts) = Hosts::new(3) else { return };
    let job = hosts.start(&["--hosts", "h1,h2:2,h3", "sleep", "1000"]);
    job.sleepers(4);
    hosts.kill(3);
    let ended = job.end();
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    assert!(ended.stderr.contains(" on h3): its host is lost: the connection"), "{ended:?}");
}

#[test]
fn nothing_is_left_anywhere_of_a_killed_launcher() {
    let Some(hosts) = Hosts::new(2) else { return };
    let script = "(setsid sleep 1000 &); exec sleep 1000";
    let job = hosts.start(&["--hosts", "h1,h2", "sh", "-c", script]);
    job.sleepers(4);
    send(job.launcher(), Signal::KILL);
    job.end();
    // Those whose environment has no mark of the test.
    for host in 1..=2 {
        let list = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '";
        until("agents end", || {
            let listed = must(hosts.on(host).args(["sh", "-c", list]));
            !String::from_utf8_lossy(&listed.stdout).contains("memonet agent")
        });
    }
}
