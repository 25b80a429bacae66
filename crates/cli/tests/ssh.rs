//! Jobs on hosts with networks, names, processes and ssh servers of their own.

mod common;

use common::cluster::{Hosts, must};
use common::{marked, pe, send, skip, until};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

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
    assert!(ended.stdout.contains("PE 0 saw: PE 2 on h3 failed: killed by signal 9"), "{ended:?}");

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

/// The PE that is refused learns it in a wait, though no call asks for that stream again.
#[test]
fn a_firewall_between_two_hosts_is_named() {
    let Some(hosts) = Hosts::new(3) else { return };
    hosts.refuse(2, 3);
    hosts.refuse(3, 2);
    let ended = hosts.run(&["--keep-going", "--hosts", "h1,h2,h3", &pe(), "mourn"]);
    assert_eq!(ended.status, 42, "{ended:?}");
    let named =
        |pe, host| ended.stderr.contains(&format!("tcp: PE {pe} on {host} cannot be reached"));
    assert!(named(1, "h2") || named(2, "h3"), "{ended:?}");
    assert!(ended.stderr.contains("or a firewall is in the way"), "{ended:?}");
}

/// The launcher of MPICH.
fn hydra() -> Option<PathBuf> {
    let python = std::env::var_os("MEMONET_TEST_PYTHON").map(PathBuf::from);
    let hydra = python.map(|python| python.with_file_name("mpiexec.hydra"));
    let hydra = hydra.filter(|file| file.exists());
    if hydra.is_none() {
        assert!(std::env::var_os("MEMONET_TEST_TOOLS").is_none(), "no Hydra: `make deps`");
        skip("it needs Hydra (`make deps`)");
    }
    hydra
}

/// Starts two PEs on each of two hosts; what the PEs are to do is missing.
fn by_hydra(hydra: &Path, hosts: &Hosts) -> Command {
    let mut command = hosts.on(1);
    command.arg(hydra).args(["-launcher", "ssh", "-launcher-exec"]);
    command.arg(hosts.path("bin/ssh")).args(["-disable-auto-cleanup"]);
    command.args(["-localhost", "10.78.0.1", "-hosts", "10.78.0.1:2,10.78.0.2:2", "-n", "4"]);
    command.arg(pe()).stdin(Stdio::null());
    command
}

/// Their agents beat by datagrams, too.
#[test]
fn pes_of_hydra_survive_streams_that_stall() {
    let Some(hydra) = hydra() else { return };
    let Some(hosts) = Hosts::new(2) else { return };
    let mark = format!("hydra-stall-{}", std::process::id());
    let mut command = by_hydra(&hydra, &hosts);
    command.args(["soak", "3"]).env("MEMONET_TEST_MARK", &mark);
    command.env("MEMONET_INTERFACE", "10.78.0.0/24");
    let job = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_pe = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "pe\n")
    };
    until("PEs run", || marked(&mark).iter().filter(|pid| is_pe(pid)).count() == 4);
    std::thread::sleep(Duration::from_millis(1500));
    hosts.stall(1, 2);
    std::thread::sleep(Duration::from_millis(3500));
    hosts.pass(1);
    let output = job.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), &*errors), (Some(0), ""), "{said}");
    until("no process is left", || marked(&mark).is_empty());
}

/// Hydra has started the PEs, and nothing of memonet's launcher runs. A death on one host is known
/// on the other, and no agent is left.
#[test]
fn pes_of_hydra_form_a_job() {
    let Some(hydra) = hydra() else { return };
    let Some(hosts) = Hosts::new(2) else { return };
    let mark = format!("hydra-{}", std::process::id());
    let run = |program: &[&str]| {
        let mut command = by_hydra(&hydra, &hosts);
        command.args(program).env("MEMONET_TEST_MARK", &mark);
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
    // Hydra kills the other PE of that host, and nobody orders the two deaths.
    assert!(said.contains(" on h2 failed: killed by signal 9"), "{said}{errors}");
}

#[test]
fn a_host_that_is_cut_off_is_lost_and_ends_its_pes() {
    let Some(hosts) = Hosts::new(3) else { return };
    let job = hosts.start(&["--hosts", "h1,h2:2,h3", "sleep", "1000"]);
    job.sleepers(4);
    hosts.cut(3);
    let ended = job.end();
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    let said = " on h3): its host is lost: nothing was heard of it for 2.4 seconds";
    assert!(ended.stderr.contains(said), "{ended:?}");
}

/// The hosts h1, h2 and h3 have a relay, and so have h4 and h5.
#[test]
fn a_host_takes_those_with_it_that_it_has_reached() {
    let Some(hosts) = Hosts::new(5) else { return };
    let list = ["--hosts", "h1,h2,h3,h4,h5", "--direct-hosts", "2"];
    let go_on = ["--keep-going", "sh", "-c", "sleep 5; echo $MEMONET_PE"];
    let job = hosts.start(&[&list[..], &go_on].concat());
    job.sleepers(5);
    hosts.off(4);
    let ended = job.end();
    assert_eq!((ended.status, ended.lines()), (128 + 9, vec!["0", "1", "2"]), "{ended:?}");
    for said in [
        " on h4): its host is lost: nothing was heard of it for 2.4 seconds",
        "the connection to h4 is lost, and with it these hosts, whose agents were started from there: h5",
        " on h5): its host is lost: the connection",
    ] {
        assert!(ended.stderr.contains(said), "{said}: {ended:?}");
    }
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
