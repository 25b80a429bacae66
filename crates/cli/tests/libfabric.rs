//! Jobs on several hosts whose PEs reach each other by libfabric (fabric `ofi`). The hosts have
//! networks, names and processes of their own. Here libfabric goes by sockets.

mod common;

use std::process::Command;
use std::time::Duration;

use common::cluster::{Hosts, Job, must};
use common::{Ended, Random, example, pe, send, skip, until};
use rustix::process::Signal;

const PROVIDER: &str = "tcp;ofi_rxm";
const OFI: &str = "ofi:provider=tcp;ofi_rxm";

/// Hosts; `None` where they cannot be made, or there is no libfabric.
fn hosts(count: usize) -> Option<Hosts> {
    if let Err(why) = memonet_fabrics::libfabric_has(PROVIDER) {
        skip(&format!("there is no libfabric here: {why}"));
        return None;
    }
    Hosts::new(count)
}

fn options<'a>(list: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&["--fabric", OFI, "--hosts", list], rest].concat()
}

fn run(hosts: &Hosts, list: &str, rest: &[&str]) -> Ended {
    hosts.run(&options(list, rest))
}

/// A job whose PEs run, and see for themselves that others do not.
fn start(hosts: &Hosts, list: &str, program: &[&str]) -> Job {
    let job = hosts.start(&options(list, &[&["--keep-going", &pe()], program].concat()));
    until("PEs run", || (1..=2).all(|host| !job.pes(hosts, host, "pe").is_empty()));
    job
}

#[test]
fn pes_reach_each_other_near_and_far() {
    let Some(hosts) = hosts(3) else { return };
    for list in ["h1,h2", "h1:2,h2:2,h3", "h2:3"] {
        for _ in 0..3 {
            let ended = run(&hosts, list, &[&pe(), "ring", "nobody"]);
            assert_eq!((ended.status, &*ended.stderr), (0, ""), "{list}: {ended:?}");
        }
    }
    let ended = run(&hosts, "h1,h2", &["-v", &pe(), "ring", "nobody"]);
    let said = "PEs of different hosts reach each other by libfabric (fabric ofi, provider tcp;ofi_rxm): as --fabric asks for";
    assert!(ended.stderr.contains(said), "{ended:?}");
    // Nobody has asked for it, and there is no card for it.
    let ended = hosts.run(&["-v", "--hosts", "h1,h2", &pe(), "ring", "nobody"]);
    assert!(ended.stderr.contains("by streams (fabric tcp): no host has"), "{ended:?}");
}

/// Blocks of all sizes up to 32 MiB, and all operations, against models of what they do.
#[test]
fn what_is_written_arrives() {
    let Some(hosts) = hosts(2) else { return };
    for (list, seed) in [("h1,h2", "1"), ("h1:2,h2", "2")] {
        let ended = run(&hosts, list, &[&example("simulated"), "random-blocks", seed]);
        assert_eq!((ended.status, &*ended.stderr), (0, ""), "{list}: {ended:?}");
    }
    let ended = run(&hosts, "h1:2,h2:2", &[&pe(), "soak", "2"]);
    assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");
}

#[test]
fn a_killed_pe_ends_the_waits_of_others() {
    let Some(hosts) = hosts(3) else { return };
    let ended = run(&hosts, "h1:2,h2,h3", &["--keep-going", &pe(), "orphan", "kill"]);
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    let saw = |pe| format!("PE {pe} saw: PE 3 on h3 failed: killed by signal 9 (SIGKILL)");
    assert_eq!(ended.lines(), (0..3).map(saw).collect::<Vec<_>>(), "{ended:?}");
    let mut random = Random(7);
    for _ in 0..4 {
        let job = start(&hosts, "h1,h2:2", &["mourn"]);
        std::thread::sleep(Duration::from_micros(random.below(400_000)));
        job.pes(&hosts, 2, "pe").into_iter().take(1).for_each(|pid| send(pid, Signal::KILL));
        let ended = job.end();
        assert_eq!(ended.status, 128 + 9, "{ended:?}");
        let saw = ended.stdout.lines().filter_map(|line| Some(line.split_once(" saw: ")?.1));
        let right = |text: &str| text.contains("on h2 failed: killed by signal 9");
        assert!(saw.clone().all(right), "{ended:?}");
    }
}

/// By power, of which nobody is told, and by the end of all its processes at once.
#[test]
fn a_lost_host_ends_the_waits_of_others() {
    for off in [true, false] {
        let Some(hosts) = hosts(3) else { return };
        let job = start(&hosts, "h1,h2:2,h3", &["mourn"]);
        std::thread::sleep(Duration::from_millis(300));
        let how = if off {
            hosts.off(2);
            "nothing was heard of it for 2.4 seconds"
        } else {
            hosts.kill(2);
            "the connection to memonet's agent there has closed"
        };
        let ended = job.end();
        assert_eq!(ended.status, 128 + 9, "{ended:?}");
        let saw = format!("error: PE 1 on h2 failed: its host is lost: {how}");
        assert!(ended.stderr.matches(&saw).count() >= 2, "{ended:?}");
    }
}

/// PEs are in the middle of everything when a host goes, and their calls end.
#[test]
fn a_lost_host_ends_operations() {
    let Some(hosts) = hosts(2) else { return };
    let begun = hosts.path("begun");
    let job = start(&hosts, "h1:2,h2:2", &["soak", "100", begun.to_str().unwrap()]);
    until("PEs have met", || begun.exists());
    std::thread::sleep(Duration::from_millis(300));
    hosts.off(2);
    let ended = job.end();
    assert_eq!(ended.status, 128 + 9, "{ended:?}");
    let lost = ended.stderr.matches("on h2 failed: its host is lost: nothing was heard").count();
    assert!(lost >= 2, "{ended:?}");
}

/// What agents say to each other passes, and what endpoints say does not.
#[test]
fn endpoints_that_do_not_reach_each_other_are_named() {
    let Some(hosts) = hosts(2) else { return };
    (1..=2).for_each(|host| hosts.keep_ports(host, "22, 40000-40015"));
    let ports = ["--env", "MEMONET_PORTS=40000-40015"];
    let ended = run(&hosts, "h1,h2", &[&ports[..], &[&pe(), "ring", "nobody"]].concat());
    assert_eq!(ended.status, 42, "{ended:?}");
    assert!(ended.stderr.contains("nothing passes between the endpoints"), "{ended:?}");
    // The other fabric has no ports but those of the agents.
    let ended =
        hosts.run(&[&["--hosts", "h1,h2"], &ports[..], &[&pe(), "ring", "nobody"]].concat());
    assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");
}

#[test]
fn a_host_without_libfabric_is_named() {
    let Some(hosts) = hosts(2) else { return };
    let listed = must(Command::new("/sbin/ldconfig").arg("-p")).stdout;
    let listed = String::from_utf8(listed).unwrap();
    let libraries = listed.lines().filter(|line| line.trim_start().starts_with("libfabric.so.1 "));
    for library in libraries.filter_map(|line| line.rsplit(' ').next()) {
        std::fs::copy(library, hosts.path("libfabric.so.1")).unwrap();
        must(hosts.on(2).args(["mount", "--bind", "/dev/null", library]));
    }
    let ended = run(&hosts, "h1,h2", &["echo", "no"]);
    assert_eq!((ended.status, &*ended.stdout), (1, ""), "{ended:?}");
    let said = "h2: libfabric cannot be used here: ";
    assert!(ended.stderr.contains(said) && ended.stderr.contains("Install"), "{ended:?}");
    // What counts is what the PEs find.
    let folder = format!("LD_LIBRARY_PATH={}", hosts.folder.path().display());
    let ended = run(&hosts, "h1,h2", &["--env", &folder, &pe(), "ring", "nobody"]);
    assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");
}

#[test]
fn what_cannot_be_between_hosts_is_refused() {
    let Some(hosts) = hosts(2) else { return };
    let refused = |fabric: &str, program: &[&str]| {
        let ended = hosts.run(&[&["--fabric", fabric, "--hosts", "h1,h2"], program].concat());
        assert!(ended.status != 0 && ended.stdout.is_empty(), "{fabric}: {ended:?}");
        ended.stderr
    };
    for fabric in ["far", "ofi:nodes=2", "tcp:nodes=2"] {
        let said = refused(fabric, &["echo", "no"]);
        assert!(said.contains("this job has several") && said.contains("ofi:provider"), "{said}");
    }
    let said = refused("ofi", &["echo", "no"]);
    assert!(said.contains("there is no card in /sys/class/infiniband"), "{said}");
    let said = refused("ofi:provider=nonsense", &["echo", "no"]);
    assert!(said.contains("no provider nonsense"), "{said}");
    // A PE that is told another thing by a script on the way.
    let script = format!("MEMONET_FABRIC=tcp exec {} ring nobody", pe());
    let said = refused(OFI, &["sh", "-c", &script]);
    assert!(said.contains("is not what the job has between its hosts: ofi:provider="), "{said}");
}
