//! Jobs on two hosts that launchers of others start: Hydra, Open MPI's and Slurm's; and those of
//! `memonet run` in an allocation of Slurm's. The hosts have networks, names, processes and ssh
//! servers of their own.

mod common;

use common::cluster::{Hosts, Job};
use common::slurm::Slurm;
use common::{pe, send, skip, state, until};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A launcher among the tests' own tools, which lie beside the program that the variable names, or
/// in that folder.
fn tool(variable: &str, name: &str) -> Option<PathBuf> {
    let place = std::env::var_os(variable).map(PathBuf::from);
    let found = place.map(|place| match place.is_dir() {
        true => place.join(name),
        false => place.with_file_name(name),
    });
    let found = found.filter(|file| file.exists());
    if found.is_none() {
        assert!(std::env::var_os("MEMONET_TEST_TOOLS").is_none(), "no {name}: `make deps`");
        skip(&format!("it needs {name} (`make deps`)"));
    }
    found
}

/// A provider of libfabric that goes by sockets.
const PROVIDER: &str = "tcp;ofi_rxm";

/// How often something is tried that launchers of others may spoil.
const TRIES: usize = 3;

/// What starts two PEs on each of two hosts: a command, to which a program is added.
struct Launcher<'a> {
    hosts: &'a Hosts,
    command: &'a dyn Fn() -> Command,
    /// Whether it is `memonet run`, however that is started.
    is_ours: bool,
}

impl Launcher<'_> {
    fn start(&self, program: &[&str]) -> Job {
        self.start_over(None, program)
    }

    /// The same, where PEs ignore the signal by which Hydra tells them of a failure and which would
    /// end them.
    fn start_undisturbed(&self, program: &[&str]) -> Job {
        let mut command = (self.command)();
        command.args(["sh", "-c", "trap '' USR1; exec \"$0\" \"$@\""]).arg(pe()).args(program);
        self.hosts.spawn(command)
    }

    fn start_over(&self, fabric: Option<&str>, program: &[&str]) -> Job {
        let mut command = (self.command)();
        command.arg(pe()).args(program);
        command.envs(fabric.map(|fabric| ("MEMONET_FABRIC", fabric)));
        // Not all launchers carry it to other hosts, and endpoints need the same everywhere.
        command.env_remove("FI_OFI_RXM_BUFFER_SIZE");
        self.hosts.spawn(command)
    }

    /// Where the environment asks for it, PEs of different hosts use libfabric.
    fn libfabric_does_it(&self) {
        match memonet_fabrics::libfabric_has(PROVIDER) {
            Ok(()) => {
                let fabric = format!("ofi:provider={PROVIDER}");
                self.form_a_job(self.start_over(Some(&fabric), &["ring", "nobody"]));
            }
            Err(why) => skip(&format!("without the fabric ofi: {why}")),
        }
    }

    /// All PEs find each other, and a stream between hosts does what it has to.
    fn pes_form_a_job(&self) {
        self.form_a_job(self.start(&["ring", "nobody"]));
    }

    fn form_a_job(&self, job: Job) {
        let ended = job.end();
        let all = ["0 of 4 after 3", "1 of 4 after 0", "2 of 4 after 1", "3 of 4 after 2"];
        assert_eq!(ended.lines(), all, "{ended:?}");
        assert_eq!(ended.status, 0, "{ended:?}");
    }

    /// Has this happen while all PEs wait for each other. At least one PE of the first host must
    /// see this, and the job must fail. Launchers of others end PEs at times before these can tell
    /// what they saw: PRRTE where it mistakes a message, Hydra where its own stream is gone. So
    /// where no PE of that host could tell anything, it is done again, `tries` times in all. Once
    /// in some forty times PRRTE itself does not end on a busy machine.
    fn mourn(&self, tries: usize, what: impl Fn(&Job), seen: &str) -> [String; 4] {
        let files = [0, 1, 2, 3].map(|pe| self.hosts.path(&format!("came{pe}")));
        for rest in (0..tries).rev() {
            files.iter().for_each(|file| drop(std::fs::remove_file(file)));
            let job = self.start(&["mourn", "came"]);
            until("all PEs have come", || files.iter().all(|file| file.exists()));
            what(&job);
            let mut is_killed = false;
            if !self.is_ours {
                self.all_of_ours_ends(&job);
                is_killed = job.kill_launcher_after(Duration::from_secs(8));
            }
            let ended = job.end();
            assert_ne!(ended.status, 0, "{ended:?}");
            if is_killed {
                println!("its launcher did not end");
                continue;
            }
            let saw = files.each_ref().map(|file| std::fs::read_to_string(file).unwrap());
            if rest == 0 || saw[..2].iter().any(|text| !text.is_empty()) {
                let is_seen = saw[..2].iter().any(|text| text.contains(seen));
                assert!(is_seen, "{seen:?}: {saw:?}, {ended:?}");
                return saw;
            }
        }
        panic!("its launcher ended in no try");
    }

    /// PEs and agents end on the first host.
    fn all_of_ours_ends(&self, job: &Job) {
        for name in ["pe", self.agents()] {
            until("all of it ends", || job.pes(self.hosts, 1, name).is_empty());
        }
    }

    fn tries(&self) -> usize {
        if self.is_ours { 1 } else { TRIES }
    }

    /// Launchers of others may collect the process before its agent can see how it has ended.
    fn a_killed_pe_is_known_on_all_hosts(&self) {
        let kill = |job: &Job| send(job.pes(self.hosts, 2, "pe")[1], Signal::KILL);
        let killed = if self.is_ours { ": killed by signal 9" } else { "" };
        let saw = self.mourn(self.tries(), kill, &format!(" on h2 failed{killed}"));
        let texts: BTreeSet<_> = saw.iter().filter(|text| !text.is_empty()).collect();
        assert_eq!(texts.len(), 1, "{saw:?}");
    }

    /// While the agent that orders deaths is stopped, the agents of other hosts hold theirs back:
    /// for a quarter of a second, which passes unnoticed only on a machine that is busy.
    fn a_death_waits_for_its_place(&self) {
        let files = [0, 1, 2, 3].map(|pe| self.hosts.path(&format!("came{pe}")));
        for _ in 0..4 * TRIES {
            files.iter().for_each(|file| drop(std::fs::remove_file(file)));
            let job = self.start_undisturbed(&["mourn", "came"]);
            until("all PEs have come", || files.iter().all(|file| file.exists()));
            let victim = job.pes(self.hosts, 2, "pe")[1];
            let leader = job.pes(self.hosts, 1, self.agents())[0];
            let began = Instant::now();
            send(leader, Signal::STOP);
            send(victim, Signal::KILL);
            std::thread::sleep(Duration::from_millis(150));
            let saw = files.each_ref().map(|file| std::fs::read_to_string(file).unwrap());
            let is_early = began.elapsed() < Duration::from_millis(230);
            send(leader, Signal::CONT);
            job.end();
            if is_early {
                assert!(saw.iter().all(String::is_empty), "{saw:?}");
                return;
            }
        }
        skip("this machine is too busy for it");
    }

    /// Two PEs of different hosts die at once: the others name the same one. What has started them
    /// would end these at once, so it is stopped until they have told.
    fn deaths_have_one_order(&self) {
        let files = [0, 1, 2, 3].map(|pe| self.hosts.path(&format!("came{pe}")));
        for _ in 0..3 {
            files.iter().for_each(|file| drop(std::fs::remove_file(file)));
            let job = self.start_undisturbed(&["mourn", "came"]);
            until("all PEs have come", || files.iter().all(|file| file.exists()));
            let [ours, theirs] = [1, 2].map(|host| job.pes(self.hosts, host, "pe"));
            let starters = [&ours, &theirs].map(|pes| state(pes[0]).expect("it waits").1);
            let others = [&ours, &theirs].map(|pes| hydra_s_rank(pes[0]));
            starters.iter().for_each(|&starter| send(starter, Signal::STOP));
            [&ours, &theirs].iter().for_each(|pes| send(pes[1], Signal::KILL));
            let ended = |pe| state(pe).is_none_or(|(state, _)| state == 'Z');
            until("the others end", || ended(ours[0]) && ended(theirs[0]));
            let saw = files.each_ref().map(|file| std::fs::read_to_string(file).unwrap());
            starters.iter().for_each(|&starter| send(starter, Signal::CONT));
            job.end();
            let [one, other] = others.map(|pe| &saw[pe]);
            assert!(!one.is_empty() && one == other, "{others:?} of {saw:?}");
        }
    }

    /// Nobody asks such PEs what they wait for, but SIGQUIT, after which they go on.
    fn a_pe_says_at_sigquit_what_it_waits_for(&self) {
        let files = [0, 1, 2, 3].map(|pe| self.hosts.path(&format!("came{pe}")));
        let says = |_| {
            files.iter().for_each(|file| drop(std::fs::remove_file(file)));
            let job = self.start(&["mourn", "came"]);
            until("all PEs have come", || files.iter().all(|file| file.exists()));
            std::thread::sleep(Duration::from_millis(100));
            let asked = job.pes(self.hosts, 2, "pe")[1];
            send(asked, Signal::QUIT);
            std::thread::sleep(Duration::from_millis(900));
            assert!(job.pes(self.hosts, 2, "pe").contains(&asked), "it goes on");
            send(asked, Signal::KILL);
            let ended = job.end();
            let parts = [", what its threads wait for:\nmemonet: PE ", " has waited "];
            // Hydra may die of a broken pipe before it has written what PEs say.
            let is_told = parts.iter().all(|part| ended.stderr.contains(part));
            if !is_told {
                println!("not told: {ended:?}");
            }
            is_told
        };
        assert!((0..TRIES).any(says));
    }

    /// The name of its agents' processes.
    fn agents(&self) -> &'static str {
        if self.is_ours { "memonet" } else { "memonet-agent" }
    }

    fn a_killed_agent_is_a_lost_host(&self) {
        let kill = |job: &Job| send(job.pes(self.hosts, 2, self.agents())[0], Signal::KILL);
        self.mourn(self.tries(), kill, " on h2 failed: its host is lost: ");
    }

    /// The last thing that happens to these hosts: launchers of others may wait for minutes for a
    /// host that is gone, but nothing of memonet's does.
    fn a_host_without_power_is_lost(&self) {
        let lose = |job: &Job| {
            self.hosts.off(2);
            self.all_of_ours_ends(job);
            if !self.is_ours {
                self.hosts.kill(1);
            }
        };
        self.mourn(1, lose, " on h2 failed: its host is lost: nothing was heard");
    }

    fn does_all(&self) {
        self.pes_form_a_job();
        self.libfabric_does_it();
        self.a_killed_pe_is_known_on_all_hosts();
        self.a_killed_agent_is_a_lost_host();
        self.a_host_without_power_is_lost();
    }
}

/// The rank that Hydra has given to this process.
fn hydra_s_rank(pid: i32) -> usize {
    let environment = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let rank = environment.split('\0').find_map(|entry| entry.strip_prefix("PMI_RANK="));
    rank.expect("a process of Hydra's").parse().unwrap()
}

fn by_hydra(hydra: &Path, hosts: &Hosts) -> Command {
    by_hydra_on(hydra, hosts, "10.78.0.1:2,10.78.0.2:2", "4")
}

fn by_hydra_on(hydra: &Path, hosts: &Hosts, list: &str, pes: &str) -> Command {
    let mut command = hosts.on(1);
    command.arg(hydra).args(["-launcher", "ssh", "-launcher-exec"]);
    command.arg(hosts.path("bin/ssh")).args(["-disable-auto-cleanup"]);
    command.args(["-localhost", "10.78.0.1", "-hosts", list, "-n", pes]);
    command
}

#[test]
fn hydra() {
    let Some(hydra) = tool("MEMONET_TEST_PYTHON", "mpiexec.hydra") else { return };
    let Some(hosts) = Hosts::new(2) else { return };
    let command = || by_hydra(&hydra, &hosts);
    let launcher = Launcher { hosts: &hosts, command: &command, is_ours: false };
    launcher.a_death_waits_for_its_place();
    launcher.deaths_have_one_order();
    launcher.a_pe_says_at_sigquit_what_it_waits_for();
    launcher.does_all();
}

/// Starts a PE on each of three hosts, has this happen while all wait for each other, and gives
/// what each one saw. The agents end, and nothing of memonet's is left.
fn seen_on_three_hosts(hydra: &Path, what: impl Fn(&Hosts)) -> Option<[String; 3]> {
    let hosts = Hosts::new(3)?;
    let files = [0, 1, 2].map(|pe| hosts.path(&format!("came{pe}")));
    let command = || by_hydra_on(hydra, &hosts, "10.78.0.1:1,10.78.0.2:1,10.78.0.3:1", "3");
    let job = Launcher { hosts: &hosts, command: &command, is_ours: false };
    let job = job.start_undisturbed(&["mourn", "came"]);
    until("all PEs have come", || files.iter().all(|file| file.exists()));
    what(&hosts);
    for (host, name) in (1..=3).flat_map(|host| [(host, "pe"), (host, "memonet-agent")]) {
        until("all of it ends", || job.pes(&hosts, host, name).is_empty());
    }
    // Hydra may wait for a host that it does not reach.
    (1..=3).for_each(|host| hosts.kill(host));
    job.end();
    Some(files.map(|file| std::fs::read_to_string(file).unwrap()))
}

/// A host that nobody reaches goes on, and so do the others: each side has lost the other one.
#[test]
fn hydra_and_a_host_that_is_cut_off() {
    let Some(hydra) = tool("MEMONET_TEST_PYTHON", "mpiexec.hydra") else { return };
    let Some(saw) = seen_on_three_hosts(&hydra, |hosts| hosts.cut(2)) else { return };
    let lost = |pe| format!("PE {pe} on h{} failed: its host is lost: nothing was heard", pe + 1);
    for (saw, lost) in saw.iter().zip([lost(1), lost(0), lost(1)]) {
        assert!(saw.contains(&lost), "{saw:?}, not {lost:?}");
    }
    assert_eq!(saw[0], saw[2]);
}

/// Two hosts that do not reach each other, while both reach the first one: one of them is lost, for
/// all others the same one, and it has lost them.
#[test]
fn hydra_and_two_hosts_that_are_cut_off_from_each_other() {
    let Some(hydra) = tool("MEMONET_TEST_PYTHON", "mpiexec.hydra") else { return };
    let Some(saw) = seen_on_three_hosts(&hydra, |hosts| hosts.part([2, 3])) else { return };
    let lost = |pe| format!("PE {pe} on h{} failed: its host is lost", pe + 1);
    let [victim, other] = if saw[0].contains(&lost(1)) { [1, 2] } else { [2, 1] };
    assert!(saw[0].contains(&lost(victim)), "{saw:?}");
    assert_eq!(saw[0], saw[other], "{saw:?}");
    assert!(saw[victim].contains(&lost(0)), "{saw:?}");
}

/// Where the environment asks for it, PEs of different hosts use libfabric.
#[test]
fn hydra_over_libfabric() {
    let Some(hydra) = tool("MEMONET_TEST_PYTHON", "mpiexec.hydra") else { return };
    let Some(hosts) = Hosts::new(2) else { return };
    let start = |fabric: &'static str| {
        let command = || {
            let mut command = by_hydra(&hydra, &hosts);
            command.env("MEMONET_FABRIC", fabric);
            command
        };
        let launcher = Launcher { hosts: &hosts, command: &command, is_ours: false };
        match fabric {
            "far" => {
                // Hydra may die of a broken pipe before it has written what PEs say.
                let is_told = |_| {
                    let ended = launcher.start(&["ring", "nobody"]).end();
                    assert_ne!(ended.status, 0, "{ended:?}");
                    let is_told = ended.stderr.contains("this job has several");
                    if !is_told {
                        println!("not told: {ended:?}");
                    }
                    is_told
                };
                assert!((0..4 * TRIES).any(is_told));
            }
            _ => {
                launcher.pes_form_a_job();
                launcher.a_killed_pe_is_known_on_all_hosts();
            }
        }
    };
    start("far");
    match memonet_fabrics::libfabric_has("tcp;ofi_rxm") {
        Ok(()) => start("ofi:provider=tcp;ofi_rxm"),
        Err(why) => skip(&format!("without the fabric ofi: {why}")),
    }
}

/// Agents of Hydra's jobs beat by datagrams, too: streams that stall are no lost hosts.
#[test]
fn hydra_and_streams_that_stall() {
    let Some(hydra) = tool("MEMONET_TEST_PYTHON", "mpiexec.hydra") else { return };
    let Some(hosts) = Hosts::new(2) else { return };
    let command = || {
        let mut command = by_hydra(&hydra, &hosts);
        command.env("MEMONET_INTERFACE", "10.78.0.0/24");
        command
    };
    let launcher = Launcher { hosts: &hosts, command: &command, is_ours: false };
    let job = launcher.start(&["soak", "3"]);
    until("PEs run", || job.pes(&hosts, 1, "pe").len() + job.pes(&hosts, 2, "pe").len() == 4);
    std::thread::sleep(Duration::from_millis(1500));
    hosts.stall(1, 2);
    std::thread::sleep(Duration::from_millis(3500));
    hosts.pass(1);
    let ended = job.end();
    assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");
}

#[test]
fn mpirun_of_open_mpi() {
    let Some(mpirun) = tool("MEMONET_TEST_OPENMPI", "mpirun") else { return };
    let Some(hosts) = Hosts::new(2) else { return };
    let command = || {
        let mut command = hosts.on(1);
        command.arg(&mpirun).args(["--allow-run-as-root", "--host", "h1:2,h2:2"]);
        // Each host has a /run of its own, and process numbers that others have, too.
        command.args(["--prtemca", "prte_tmpdir_base", "/run"]);
        // It leaves the other PEs alone when one dies.
        command.args(["--runtime-options", "recoverable,continuous"]);
        command.args(["--map-by", "ppr:2:node", "-x", "MEMONET_TEST_MARK"]);
        command.args(["-x", "MEMONET_FABRIC", "-n", "4"]);
        command
    };
    Launcher { hosts: &hosts, command: &command, is_ours: false }.does_all();
}

fn under_slurm(words: &[&str], is_ours: bool) {
    let Some(hosts) = Hosts::new(2) else { return };
    let Some(slurm) = Slurm::new(&hosts, 2) else { return };
    let command = || {
        let mut command = slurm.on(1);
        command.arg(words[0]).args(["-N", "2", "--ntasks-per-node=2"]).args(&words[1..]);
        command
    };
    Launcher { hosts: &hosts, command: &command, is_ours }.does_all();
}

#[test]
fn srun_by_pmi() {
    under_slurm(&["srun", "--mpi=pmi2"], false);
}

#[test]
fn srun_by_pmix() {
    under_slurm(&["srun", "--mpi=pmix"], false);
}

#[test]
fn memonet_in_an_allocation() {
    let memonet = env!("CARGO_BIN_EXE_memonet");
    under_slurm(&["salloc", memonet, "run", "-n", "4", "--timeout", "40"], true);
}
