//! Failures of jobs on several hosts, at random moments: kills of PEs, agents, launchers and hosts,
//! cuts, and a soak with lost packets.
//!
//! How many, and how long, is said by variables, so that `make cluster-test` runs the same tests
//! for longer:
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `MEMONET_TEST_KILLS` | 20 | kills of PEs, of agents and of launchers |
//! | `MEMONET_TEST_HOST_KILLS` | 4 | kills of hosts, half of them by power |
//! | `MEMONET_TEST_CUTS` | `0.5,1,4` | seconds of each cut |
//! | `MEMONET_TEST_SOAK` | 3 | seconds of the soak |
//! | `MEMONET_TEST_LOSS` | 1 | percent of packets that the switch loses in the soak |
//! | `MEMONET_TEST_SEED` | 1 | another one has other moments |

mod common;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use common::cluster::{self, Hosts};
use common::{Ended, Job, Random, children, note, pe, send, start, until};
use rustix::process::Signal;

fn setting<T: std::str::FromStr>(name: &str, default: T) -> T {
    let said = std::env::var(name).ok();
    said.map_or(default, |text| text.parse().ok().unwrap_or_else(|| panic!("{name}={text}")))
}

fn kills() -> u64 {
    setting("MEMONET_TEST_KILLS", 20)
}

fn random(salt: u64) -> Random {
    let mut random = Random(setting("MEMONET_TEST_SEED", 1u64) << 8 | salt);
    random.below(2);
    random
}

/// A job on hosts that are processes of this machine.
fn start_here(folder: &tempfile::TempDir, options: &[&str]) -> Job {
    let script = folder.path().join("local");
    if !script.exists() {
        std::fs::write(&script, "#!/bin/sh\nshift; exec \"$@\"\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let script = script.to_str().unwrap();
    let hosts = ["--hosts", "a:2,b:2,c:2", "--launch-agent", script, "--interface", "lo"];
    start(&[&hosts, options, &[&pe(), "mourn"]].concat())
}

/// The PEs, or those of them that run, with their numbers.
fn numbered(job: &Job) -> Vec<(usize, i32)> {
    let number = |pid: i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let entry =
            environment.split(|&byte| byte == 0).find_map(|e| e.strip_prefix(b"MEMONET_PE="));
        std::str::from_utf8(entry?).ok()?.parse().ok()
    };
    job.processes().into_iter().filter_map(|pid| Some((number(pid)?, pid))).collect()
}

fn agents(job: &Job) -> Vec<i32> {
    let name = |pid: i32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_agent = |&pid: &i32| name(pid).ends_with(b"memonet\0agent\0");
    children(job.pid()).into_iter().filter(is_agent).collect()
}

/// What the waits that depend on all PEs have said of the one that died: all the same.
fn named(ended: &Ended) -> Option<String> {
    let said = ended.stdout.lines().filter_map(|line| Some(line.split_once(" saw: ")?.1));
    let all: BTreeSet<String> = said.map(str::to_owned).collect();
    assert!(all.len() <= 1, "they name {all:?}: {ended:?}");
    all.into_iter().next()
}

/// Waits for a random moment of a job's start or run.
fn pause(random: &mut Random) {
    std::thread::sleep(Duration::from_micros(random.below(400_000)));
}

/// One PE, or two of different hosts within a millisecond. All others name the same one.
#[test]
fn kills_of_pes() {
    let (folder, mut random, mut seen) = (tempfile::tempdir().unwrap(), random(1), 0);
    for round in 0..kills() {
        let job = start_here(&folder, &["--keep-going"]);
        let mut pes = Vec::new();
        until("PEs run", || {
            pes = numbered(&job);
            pes.len() == 6
        });
        pause(&mut random);
        let first = random.below(6) as usize;
        let second = (first + 2 + random.below(3) as usize) % 6;
        let victims = if round % 2 == 0 { vec![first] } else { vec![first, second] };
        for (pe, pid) in &pes {
            if victims.contains(pe) {
                send(*pid, Signal::KILL);
            }
        }
        let ended = job.end();
        assert_eq!(ended.status, 128 + 9, "{victims:?}: {ended:?}");
        let Some(named) = named(&ended) else { continue };
        let host = |pe: usize| ["a", "b", "c"][pe / 2];
        let text = |pe: usize| format!("PE {pe} on {} failed: killed by signal 9", host(pe));
        let is_victim = victims.iter().any(|&pe| named.starts_with(&text(pe)));
        assert!(is_victim, "{victims:?}: {named}");
        seen += 1;
    }
    assert!(seen > 0 || kills() < 5, "no PE was left that said anything");
}

/// The PEs of a killed agent are dead to all others, who name the same one.
#[test]
fn kills_of_agents() {
    let (folder, mut random) = (tempfile::tempdir().unwrap(), random(2));
    for _ in 0..kills() {
        let job = start_here(&folder, &["--keep-going"]);
        until("agents run", || agents(&job).len() == 3);
        pause(&mut random);
        let victim = random.below(3) as usize;
        let Some(&agent) = agents(&job).get(victim) else { panic!("an agent has ended by itself") };
        send(agent, Signal::KILL);
        let ended = job.end();
        // 1: the job had not begun.
        assert!([1, 128 + 9].contains(&ended.status), "{ended:?}");
        if let Some(named) = named(&ended) {
            assert!(named.contains("its host is lost: the connection to memonet's"), "{named}");
        }
    }
}

#[test]
fn kills_of_launchers() {
    let (folder, mut random) = (tempfile::tempdir().unwrap(), random(3));
    for _ in 0..kills() {
        let job = start_here(&folder, &[]);
        pause(&mut random);
        send(job.pid(), Signal::KILL);
        job.assert_nothing_left();
    }
}

/// Three hosts; the launcher is on the first one, with the least of the work.
const ON_HOSTS: [&str; 3] = ["--keep-going", "--hosts", "h1,h2:2,h3:2"];

fn start_there(hosts: &Hosts, options: &[&str], program: &[&str]) -> cluster::Job {
    let job = hosts.start(&[&ON_HOSTS, options, &[&*pe()], program].concat());
    until("PEs run", || (1..=3).all(|host| !job.pes(hosts, host, "pe").is_empty()));
    job
}

/// By power, of which nobody is told, and by the end of all its processes at once.
#[test]
fn kills_of_hosts() {
    let (mut random, mut seen, kills) = (random(4), 0, setting("MEMONET_TEST_HOST_KILLS", 4u64));
    for round in 0..kills {
        // A host that was killed does not come back.
        let Some(hosts) = Hosts::new(3) else { return };
        let job = start_there(&hosts, &[], &["mourn"]);
        pause(&mut random);
        let victim = 2 + random.below(2) as usize;
        let how = if round % 2 == 0 {
            hosts.off(victim);
            "nothing was heard of it for 2.4 seconds"
        } else {
            hosts.kill(victim);
            "the connection to memonet's agent there has closed"
        };
        let ended = job.end();
        assert_eq!(ended.status, 128 + 9, "{ended:?}");
        // While the job begins, a wait depends on some of the PEs, and none says anything here.
        let Some(named) = named(&ended) else { continue };
        let first = [1, 3][victim - 2];
        let text = format!("PE {first} on h{victim} failed: its host is lost: {how}");
        assert_eq!(named, text, "{ended:?}");
        seen += 1;
    }
    assert!(seen > 0, "no job had begun");
}

/// A cut of up to 1.8 s loses nothing; after one of more than 2.5 s, the host is lost.
#[test]
fn cuts() {
    let said = setting("MEMONET_TEST_CUTS", "0.5,1,4".to_owned());
    let mut random = random(5);
    for seconds in said.split(',').map(|text| text.trim().parse::<f64>().expect("seconds")) {
        let Some(hosts) = Hosts::new(3) else { return };
        // Longer than the cut and TCP's pauses behind it.
        let length = (2.0 * seconds + 2.0).ceil().to_string();
        let job = start_there(&hosts, &["--timeout", "100"], &["soak", &length]);
        std::thread::sleep(Duration::from_millis(500));
        pause(&mut random);
        let (victim, began) = (2 + random.below(2) as usize, Instant::now());
        hosts.cut(victim);
        std::thread::sleep(Duration::from_secs_f64(seconds));
        hosts.mend(victim);
        let cut = began.elapsed().as_secs_f64();
        let ended = job.end_within(Duration::from_secs(120));
        // A wait names the first PE among those that it depends on.
        let lost = format!(" on h{victim} failed: its host is lost: nothing was heard");
        let is_lost = ended.stderr.lines().any(|line| line.contains(&lost));
        note(&format!(
            "a cut of {cut:.2} s: the host was {}",
            if is_lost { "lost" } else { "kept" }
        ));
        let status = if is_lost { 128 + 9 } else { 0 };
        assert_eq!(ended.status, status, "{cut} s: {ended:?}");
        // The cut lasted for at least `seconds`, and for less than `cut`.
        assert!(is_lost || seconds < 2.5, "{cut} s: {ended:?}");
        assert!(!is_lost || cut > 1.8, "{cut} s: {ended:?}");
    }
}

#[test]
fn soak() {
    let Some(hosts) = Hosts::new(3) else { return };
    let (seconds, loss) = (setting("MEMONET_TEST_SOAK", 3u64), setting("MEMONET_TEST_LOSS", 1u32));
    let loses = loss > 0 && hosts.lose(loss);
    let (limit, length) = ((seconds + 50).to_string(), seconds.to_string());
    let job = start_there(&hosts, &["--timeout", &limit], &["soak", &length]);
    let ended = job.end_within(Duration::from_secs(seconds + 60));
    assert_eq!((ended.status, &*ended.stderr), (0, ""), "{ended:?}");
    let rounds = ended.lines().first().map_or("", |line| line.trim_start_matches("PE 0 has done "));
    note(&format!("{rounds} in {seconds} s, with {}% lost", if loses { loss } else { 0 }));
}
