//! Jobs on hosts with networks, names, processes and ssh servers of their own.

mod common;

use common::cluster::{Hosts, must};
use common::{marked, pe, send, skip, until};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Stdio;

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
    let run = |fabric: &str, program: &[&str]| {
        let mut command = hosts.on(1);
        command.arg(&hydra).args(["-launcher", "ssh", "-launcher-exec"]);
        command.arg(hosts.path("bin/ssh")).args(["-disable-auto-cleanup"]);
        command.args(["-localhost", "10.78.0.1", "-hosts", "10.78.0.1:2,10.78.0.2:2", "-n", "4"]);
        command.arg(pe()).args(program).env("MEMONET_TEST_MARK", &mark).stdin(Stdio::null());
        command.env("MEMONET_FABRIC", fabric);
        let output = command.output().unwrap();
        until("no process is left", || marked(&mark).is_empty());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (said, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let mut fabrics = vec!["tcp"];
    match memonet_fabrics::libfabric_has("tcp;ofi_rxm") {
        Ok(()) => fabrics.push("ofi:provider=tcp;ofi_rxm"),
        Err(why) => skip(&format!("without the fabric ofi: {why}")),
    }
    for fabric in fabrics {
        let (said, errors) = run(fabric, &["ring", "nobody"]);
        let mut lines: Vec<&str> = said.lines().collect();
        lines.sort_unstable();
        let all = ["0 of 4 after 3", "1 of 4 after 0", "2 of 4 after 1", "3 of 4 after 2"];
        assert_eq!(lines, all, "{fabric}: {errors}");
        let (said, errors) = run(fabric, &["orphan", "kill"]);
        // Hydra kills the other PE of that host, and nobody orders the two deaths.
        assert!(said.contains(" on h2 failed: killed by signal 9"), "{fabric}: {said}{errors}");
    }
    let (_, errors) = run("far", &["ring", "nobody"]);
    assert!(errors.contains("this job has several"), "{errors}");
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
