//! Jobs on hosts with networks, names, processes and ssh servers of their own.

mod common;

use common::cluster::{Hosts, must};
use common::{pe, send, until};
use rustix::process::Signal;

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

/// The PE whose stream is refused learns it in a wait, though no call asks for that stream again,
/// and so does the other one.
#[test]
fn a_firewall_between_two_hosts_is_named() {
    let Some(hosts) = Hosts::new(3) else { return };
    hosts.refuse(2, 3);
    hosts.refuse(3, 2);
    let ended = hosts.run(&["--keep-going", "--hosts", "h1,h2,h3", &pe(), "wake"]);
    assert_eq!(ended.status, 42, "{ended:?}");
    let named =
        |pe, host| ended.stderr.contains(&format!("tcp: PE {pe} on {host} cannot be reached"));
    assert!(named(1, "h2") && named(2, "h3"), "{ended:?}");
    assert!(ended.stderr.contains("or a firewall is in the way"), "{ended:?}");
}

/// The PE that cannot be reached makes the stream.
#[test]
fn a_firewall_in_one_direction_is_overcome() {
    for (host, from) in [(2, 3), (3, 2)] {
        let Some(hosts) = Hosts::new(3) else { return };
        hosts.refuse(host, from);
        let ended = hosts.run(&["--hosts", "h1,h2,h3", &pe(), "soak", "1"]);
        assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");
    }
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
