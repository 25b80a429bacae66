//! Hosts with networks, names, processes and ssh servers of their own: namespaces that a test
//! makes.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Ended, SOON, children, collect, marked, send, skip, state, until, wait_within};

/// Hosts on one switch, of which nothing is left when this is dropped. The launcher runs on the
/// first one.
pub struct Hosts {
    pub folder: tempfile::TempDir,
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
SetEnv HOME=FOLDER PATH=FOLDER/bin:/usr/bin:/bin
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

pub fn must(command: &mut Command) -> Output {
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
    pub fn new(count: usize) -> Option<Hosts> {
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

    pub fn path(&self, file: &str) -> PathBuf {
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
    pub fn on(&self, host: usize) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.inits[host - 1].to_string(), "-n", "-u", "-i", "-m", "-p", "--"]);
        command.args(["sh", "-c", "cd \"$0\" && exec \"$@\""]).arg(self.folder.path());
        command
    }

    /// Gives a host another address, on a network that reaches no other host.
    pub fn add_network(&self, host: usize) {
        let own = |words: &str| must(&mut self.in_network_of(self.inits[host - 1], words));
        own("ip link add eth1 type veth peer name nowhere");
        own(&format!("ip address add 10.79.0.{host}/24 dev eth1"));
        own("ip link set nowhere up");
        own("ip link set eth1 up");
    }

    /// Takes a host's link away.
    pub fn cut(&self, host: usize) {
        self.on_switch(&format!("ip link set port{host} down"));
    }

    /// Gives it back.
    pub fn mend(&self, host: usize) {
        self.on_switch(&format!("ip link set port{host} up"));
    }

    /// Takes the power away: first the link, so that nobody sees a connection end.
    pub fn off(&self, host: usize) {
        self.cut(host);
        self.kill(host);
    }

    /// Has the switch lose so many percent of what it passes on. False where this kernel cannot do
    /// that.
    pub fn lose(&self, percent: u32) -> bool {
        let rule = format!("numgen random mod 100 < {percent} drop");
        let output = self.filter(*self.inits.last().unwrap(), "bridge", "forward", &rule);
        let works = output.as_ref().is_ok_and(|output| output.status.success());
        if !works {
            skip(&format!("nothing is lost, as `nft` does not do that here: {output:?}"));
        }
        works
    }

    /// Has a host refuse streams from another one, but for those to its ssh server.
    pub fn refuse(&self, host: usize, from: usize) {
        let begins = "tcp flags & (syn | ack) == syn tcp dport != 22";
        let rule = format!("ip saddr 10.78.0.{from} {begins} reject with tcp reset");
        let output = self.filter(self.inits[host - 1], "ip", "input", &rule).unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Has a host lose what comes from another one by streams, while datagrams pass.
    pub fn stall(&self, host: usize, from: usize) {
        let rule = format!("ip saddr 10.78.0.{from} meta l4proto tcp drop");
        let output = self.filter(self.inits[host - 1], "ip", "input", &rule).unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Cuts two hosts off from each other, and from nobody else.
    pub fn part(&self, hosts: [usize; 2]) {
        for (host, other) in [(hosts[0], hosts[1]), (hosts[1], hosts[0])] {
            let rule = format!("ip saddr 10.78.0.{other} drop");
            let output = self.filter(self.inits[host - 1], "ip", "input", &rule).unwrap();
            assert!(output.status.success(), "{output:?}");
        }
    }

    /// Ends what [`stall`](Self::stall) or [`refuse`](Self::refuse) has begun there.
    pub fn pass(&self, host: usize) {
        must(&mut self.in_network_of(self.inits[host - 1], "nft delete table ip test"));
    }

    /// Has a host drop what begins streams to its ports, but for these.
    pub fn keep_ports(&self, host: usize, ports: &str) {
        let begins = format!("tcp flags & (syn | ack) == syn tcp dport != {{ {ports} }}");
        let output = self.filter(self.inits[host - 1], "ip", "input", &format!("{begins} drop"));
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Has a host treat the multicast datagrams that come to it, or with the hook `output` those
    /// that it sends, by a rule of `nft`.
    pub fn treat_groups(&self, host: usize, hook: &str, rule: &str) {
        let rule = format!("ip daddr 224.0.0.0/4 {rule}");
        let output = self.filter(self.inits[host - 1], "ip", hook, &rule).unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// The bytes that the counters of a host's rules have seen.
    pub fn counted(&self, host: usize) -> u64 {
        let rules = must(&mut self.in_network_of(self.inits[host - 1], "nft list ruleset"));
        let text = String::from_utf8_lossy(&rules.stdout).into_owned();
        let counts = text.split("bytes ").skip(1).filter_map(|rest| {
            rest.split_whitespace().next().and_then(|count| count.parse::<u64>().ok())
        });
        counts.sum()
    }

    /// Has a host treat all that it sends by a queueing discipline. False where this kernel has
    /// none.
    pub fn queue(&self, host: usize, discipline: &str) -> bool {
        let words = format!("tc qdisc add dev eth0 root {discipline}");
        let output = self.in_network_of(self.inits[host - 1], &words).output();
        let works = output.as_ref().is_ok_and(|output| output.status.success());
        if !works {
            skip(&format!("`tc` does not do that here: {output:?}"));
        }
        works
    }

    fn filter(&self, init: i32, family: &str, hook: &str, rule: &str) -> std::io::Result<Output> {
        let chain = format!("type filter hook {hook} priority 0\npolicy accept\n{rule}\n");
        let table = format!("table {family} test {{\nchain passed {{\n{chain}}}\n}}\n");
        self.in_network_of(init, "nft").arg(table).output()
    }

    /// Ends all processes of a host at once.
    pub fn kill(&self, host: usize) {
        send(self.inits[host - 1], Signal::KILL);
    }

    /// Starts a job, from the first host.
    pub fn start(&self, arguments: &[&str]) -> Job {
        let mut command = self.on(1);
        command.args([env!("CARGO_BIN_EXE_memonet"), "run"]);
        if !arguments.contains(&"--timeout") {
            command.args(["--timeout", "40"]);
        }
        command.args(arguments);
        self.spawn(command)
    }

    /// Starts a launcher's command, which [`on`](Self::on) has begun.
    pub fn spawn(&self, mut command: Command) -> Job {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("ssh-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("MEMONET_TEST_MARK", &mark).env("HOSTNAME", "launcher");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Job { nsenter: command.spawn().unwrap(), mark }
    }

    pub fn run(&self, arguments: &[&str]) -> Ended {
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

/// A job on such hosts.
pub struct Job {
    nsenter: Child,
    mark: String,
}

impl Job {
    /// The launcher, as it is known outside.
    pub fn launcher(&self) -> i32 {
        let mut launcher = Vec::new();
        until("there is a launcher", || {
            launcher = children(self.nsenter.id() as i32);
            !launcher.is_empty()
        });
        launcher[0]
    }

    /// Its PEs on a host that run this program.
    pub fn pes(&self, hosts: &Hosts, host: usize, program: &str) -> Vec<i32> {
        let space = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let there = space(hosts.inits[host - 1]);
        let name = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let mut all = marked(&self.mark);
        all.retain(|&pid| name(pid).is_ok_and(|name| name.trim_end() == program));
        all.retain(|&pid| space(pid) == there && state(pid).is_some());
        all
    }

    /// Its processes on all hosts that sleep.
    pub fn sleepers(&self, count: usize) {
        let name = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let sleeps = |&pid: &i32| name(pid).is_ok_and(|name| name == "sleep\n");
        until("PEs sleep", || marked(&self.mark).iter().filter(|pid| sleeps(pid)).count() == count);
    }

    /// Ends a launcher that does not end by itself, and what it has started. Gives whether it had
    /// to.
    pub fn kill_launcher_after(&self, patience: Duration) -> bool {
        let began = Instant::now();
        let launcher = || children(self.nsenter.id() as i32);
        while !launcher().is_empty() && began.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut all = launcher();
        let mut next = 0;
        while let Some(&pid) = all.get(next) {
            all.extend(children(pid));
            next += 1;
        }
        all.iter().for_each(|&pid| send(pid, Signal::KILL));
        !all.is_empty()
    }

    pub fn end(self) -> Ended {
        self.end_within(SOON)
    }

    pub fn end_within(mut self, limit: Duration) -> Ended {
        let stdout = collect(self.nsenter.stdout.take().unwrap());
        let stderr = collect(self.nsenter.stderr.take().unwrap());
        let status = wait_within(&mut self.nsenter, limit);
        let (stdout, stderr) = (stdout.join().unwrap(), stderr.join().unwrap());
        until("nothing is left on any host", || marked(&self.mark).is_empty());
        let status = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap();
        Ended { status, stdout, stderr }
    }
}
