//! `memonet run --trace`: timelines of real jobs and of simulated ones.

mod common;
#[path = "common/timeline.rs"]
mod timeline;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use common::{Ended, example, run, start, until};
use timeline::Timeline;

/// The program, which makes each call a known number of times.
fn program() -> String {
    example("traced")
}

/// A job with a timeline.
struct Traced {
    ended: Ended,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn traced(options: &[&str], arguments: &[&str]) -> Traced {
    let folder = tempfile::tempdir().unwrap();
    let (path, program) = (folder.path().join("trace.json"), program());
    let trace = ["--trace", path.to_str().unwrap()];
    let ended = run(&[options, &trace, &[&program], arguments].concat());
    Traced { ended, path, _folder: folder }
}

impl Traced {
    #[track_caller]
    fn timeline(&self) -> Timeline {
        Timeline::read(&self.path)
    }

    #[track_caller]
    fn succeeds(self) -> Timeline {
        assert_eq!((self.ended.status, self.ended.stderr.as_str()), (0, ""), "{:?}", self.ended);
        let timeline = self.timeline();
        // Clocks of two hosts agree only so far.
        let one_clock = timeline.about["clock"] != "CLOCK_MONOTONIC of the launcher's host";
        assert!(!one_clock || timeline.leading_back == 0, "{:?}", timeline.leading_back);
        timeline
    }
}

/// What the program calls in so many rounds, by PE, but for its own calls in the end.
#[track_caller]
fn assert_calls(timeline: &Timeline, npes: usize, rounds: usize) {
    for pe in 0..npes {
        let track = format!("PE {pe}");
        let expected = [
            ("Job::window", 3),
            ("Window::remote", 1 + rounds),
            ("Window::put_signal", rounds),
            ("Window::wait_until", 2 * rounds),
            ("Remote::store", rounds),
            ("Remote::fetch_add", rounds),
            ("Job::barrier", rounds + 1),
            ("Team::all_reduce", rounds),
            ("Job::finalize", 1),
        ];
        for (name, count) in expected {
            assert_eq!(timeline.count(&track, name), count, "{name} of {track}");
        }
        let calls = timeline.track(&track).iter().filter(|slice| slice.name.contains("::"));
        let sum: usize = expected.iter().map(|(_, count)| count).sum();
        assert_eq!(calls.count(), sum, "{:#?}", timeline.track(&track));
    }
}

#[test]
fn each_call_is_a_slice_with_its_arguments() {
    let timeline = traced(&["-n", "4"], &["5"]).succeeds();
    assert_calls(&timeline, 4, 5);
    let puts = timeline.track("PE 1").iter().filter(|slice| slice.name == "Window::put_signal");
    for (put, round) in puts.zip(1..) {
        let arguments = &put.arguments;
        assert_eq!(arguments["operation"], "put_signal");
        assert_eq!(arguments["target"], "PE 2");
        assert_eq!(arguments["bytes"], 4096);
        let then = arguments["then"].as_str().unwrap();
        assert!(
            then.starts_with("signal, PE 2, 8 bytes") && then.ends_with(&format!("value {round}"))
        );
        assert!(
            arguments["called at"].as_str().unwrap().starts_with("crates/cli/examples/traced.rs:")
        );
    }
    let barrier = timeline.track("PE 0").iter().find(|slice| slice.name == "Job::barrier").unwrap();
    assert_eq!(barrier.arguments["team"], "PE 0-3");
    let reduce = timeline.track("PE 0").iter().find(|slice| slice.name == "Team::all_reduce");
    assert_eq!(reduce.unwrap().arguments["bytes"], 8);
}

/// Each wait of a round is ended by a write of the left neighbour.
#[test]
fn arrows_lead_from_writes_to_the_waits_that_they_end() {
    let (npes, rounds) = (3, 4);
    let timeline = traced(&["-n", "3"], &["4"]).succeeds();
    for pe in 0..npes {
        let (me, left) = (format!("PE {pe}"), format!("PE {}", (pe + npes - 1) % npes));
        for by in ["Window::put_signal", "Remote::store"] {
            let ends = |arrow: &&[(String, String); 2]| {
                arrow[0] == (left.clone(), by.to_owned()) && arrow[1].0 == me
            };
            assert_eq!(timeline.arrows.iter().filter(ends).count(), rounds, "{by} to {me}");
        }
    }
    // All but one member of each barrier and collective waited for the last.
    let meetings = 3 + 2 * rounds + 1;
    let expected = npes * 2 * rounds + (npes - 1) * meetings;
    assert_eq!(timeline.arrows.len(), expected, "{:#?}", timeline.arrows);
}

#[test]
fn without_the_option_there_is_neither_file_nor_variable() {
    let folder = tempfile::tempdir().unwrap();
    let ended = run(&["-n", "2", "sh", "-c", "env | grep MEMONET_RECORD; ls -l /proc/self/fd"]);
    assert!(!ended.stdout.contains("MEMONET_RECORD"), "{ended:?}");
    assert!(!ended.stdout.contains("memonet-record"), "{ended:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_start() {
    let ended = run(&["-n", "2", "--trace", "/nowhere/trace.json", "echo", "started"]);
    assert_eq!((ended.status, ended.stdout.as_str()), (1, ""), "{ended:?}");
    assert!(ended.stderr.contains("cannot write the trace to /nowhere/trace.json"), "{ended:?}");
}

#[test]
fn what_a_killed_pe_has_recorded_is_there() {
    let traced = traced(&["-n", "3"], &["2", "kill"]);
    assert_eq!(traced.ended.status, 128 + 6, "{:?}", traced.ended);
    let timeline = traced.timeline();
    assert_eq!(timeline.count("PE 0", "Window::put_signal"), 2);
    let key = (String::from("PEs"), String::from("PE 0"));
    assert!(timeline.marks[&key][0].contains("killed by signal 6"), "{:?}", timeline.marks);
}

/// The others wait in a barrier when the time is over; their slices last until they are ended.
#[test]
fn calls_that_never_end_are_drawn_until_the_end() {
    let traced = traced(&["-n", "3", "--timeout", "2"], &["1", "hang"]);
    assert_eq!(traced.ended.status, 124, "{:?}", traced.ended);
    let timeline = traced.timeline();
    let last = timeline.track("PE 1").iter().rfind(|slice| slice.name == "Job::barrier").unwrap();
    assert!(last.arguments["unfinished"].is_string(), "{last:?}");
    assert!(last.end - last.start > 500_000_000, "{last:?}");
}

#[test]
fn events_that_have_no_room_are_counted() {
    let traced = traced(&["-n", "2", "--trace-events", "64"], &["100"]);
    assert_eq!(traced.ended.status, 0, "{:?}", traced.ended);
    let timeline = traced.timeline();
    // Room comes in whole pages.
    for pe in 0..2 {
        let said = traced.ended.stderr.lines().find(|line| line.contains(&format!("PE {pe}, and")));
        let words: Vec<&str> = said.unwrap().split(' ').collect();
        let number = |at: usize| words[at].trim_end_matches(['.', ',']).parse::<u64>().unwrap();
        let (kept, missing) = (number(6), number(13));
        assert!((64..256).contains(&kept) && missing > 500, "{said:?}");
        assert!(said.unwrap().contains(&format!("--trace-events {}` keeps", kept + missing)));
    }
    let last = timeline.track("PE 0").last().unwrap();
    assert!(last.name.contains("events missing"), "{last:?}");
    assert!(timeline.about["events missing"].as_u64().unwrap() > 1000, "{:?}", timeline.about);
}

#[test]
fn each_thread_has_a_track() {
    let timeline = traced(&["-n", "2"], &["1", "threads"]).succeeds();
    for pe in 0..2 {
        let put = |track: &&(String, String)| track.1.starts_with(&format!("PE {pe} thread"));
        let tracks: Vec<_> = timeline.tracks.keys().filter(put).collect();
        assert_eq!(tracks.len(), 2, "{tracks:?}");
        assert!(tracks.iter().all(|(_, name)| timeline.count(name, "Window::put") == 1));
        assert!(tracks.iter().any(|(_, name)| name.contains("(worker 1)")), "{tracks:?}");
    }
}

#[test]
fn far_pes_and_two_programs_and_many_pes() {
    for fabric in ["far:delay_us=50,reorder=1,nodes=2", "far:nodes=4", "tcp"] {
        assert_calls(&traced(&["-n", "4", "--fabric", fabric], &["3"]).succeeds(), 4, 3);
    }
    let other = program();
    assert_calls(&traced(&["-n", "2"], &["2", ":", "-n", "1", &other, "2"]).succeeds(), 3, 2);
    assert_calls(&traced(&["-n", "64"], &["1"]).succeeds(), 64, 1);
}

/// Instead of ssh: starts an agent here.
fn local_agents(folder: &std::path::Path) -> String {
    let path = folder.join("local");
    std::fs::write(&path, "#!/bin/sh\nshift; exec \"$@\"\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.into_os_string().into_string().unwrap()
}

#[test]
fn events_of_several_hosts_are_on_one_clock() {
    let folder = tempfile::tempdir().unwrap();
    let agents = local_agents(folder.path());
    let options = ["--hosts", "a:2,b:2", "--launch-agent", &agents, "--interface", "lo"];
    let timeline = traced(&options, &["6"]).succeeds();
    assert_calls(&timeline, 4, 6);
    let groups: Vec<_> = timeline.tracks.keys().map(|(group, _)| group.as_str()).collect();
    for (group, host) in groups.iter().zip(["a", "a", "b", "b"]) {
        assert!(group.starts_with(&format!("PEs on {host}, clock ±")), "{groups:?}");
    }
    // PE 1 writes to PE 2.
    let from_host = |arrow: &&[(String, String); 2]| arrow[0].0 == "PE 1" && arrow[1].0 == "PE 2";
    assert!(timeline.arrows.iter().filter(from_host).count() >= 12, "{:#?}", timeline.arrows);
    for host in ["a", "b"] {
        let uncertainty = &timeline.about[format!("uncertainty of {host} in ns")];
        assert!(uncertainty.as_u64().is_some_and(|ns| ns > 0), "{:?}", timeline.about);
    }
}

#[test]
fn what_a_lost_host_has_recorded_is_missed_aloud() {
    let folder = tempfile::tempdir().unwrap();
    let (agents, path, program) = (local_agents(folder.path()), folder.path().join("t"), program());
    let job = start(&[
        "--hosts",
        "a:1,b:1",
        "--launch-agent",
        &agents,
        "--interface",
        "lo",
        "--trace",
        path.to_str().unwrap(),
        &program,
        "2",
        "hang",
    ]);
    let parent = |pid: i32| common::state(pid).map_or(0, |(_, parent)| parent);
    let mut processes = Vec::new();
    until("PEs run", || {
        let of_program = |&pid: &i32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim() == "traced"
        };
        processes = job.processes().into_iter().filter(of_program).collect();
        processes.len() == 2
    });
    std::thread::sleep(std::time::Duration::from_millis(500));
    processes.sort_unstable();
    let agent = parent(*processes.last().unwrap());
    common::send(agent, rustix::process::Signal::KILL);
    let ended = job.end();
    assert_ne!(ended.status, 0, "{ended:?}");
    assert!(ended.stderr.contains("the trace lacks events of PE "), "{ended:?}");
    assert_eq!(Timeline::read(&path).tracks.len(), 1);
}

/// The machine's time is that of a run without a timeline, and the program's calls stand above the
/// stages of the hardware.
#[test]
fn programs_on_simulated_machines_have_tracks_too() {
    for machine in ["dimmnet-1/D-tree", "rdma-100g", "scc"] {
        let options = ["--machine", machine, "-n", "4"];
        let timeline = traced(&options, &["3"]).succeeds();
        assert_calls(&timeline, 4, 3);
        assert!(timeline.tracks.keys().any(|(group, _)| group == "NICs"), "{machine}");
        let program = program();
        let time = |options: &[&str]| {
            let ended = run(&[options, &["--stats", &program, "3"]].concat());
            ended.stderr.lines().next().unwrap().to_owned()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let with = [&options[..], &["--trace", path.to_str().unwrap()]].concat();
        assert_eq!(time(&options), time(&with), "{machine}");
    }
}
