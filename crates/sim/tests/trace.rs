//! Timelines, as trace viewers read them: times in whole nanoseconds, and no complete event of a
//! track that overlaps another without lying inside of it. Viewers leave such events out without a
//! word.

#[path = "../../cli/tests/common/timeline.rs"]
mod timeline;

use memonet_core::{Cmp, Job, Result, SignalOp, Sum};
use memonet_sim::machine::BUILT_IN;
use memonet_sim::{Machine, Options, run};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use timeline::Timeline;

/// Many blocks of all sizes on the way at once, to all others.
fn flood(job: &Job) -> Result<()> {
    let window = job.window::<u8>(1 << 16)?;
    let source = job.window::<u8>(1 << 14)?;
    for round in 0..20 {
        for other in (0..job.npes()).filter(|&pe| pe != job.pe()) {
            let len = [1, 8, 100, 600, 3000, 10_000][round % 6];
            window.put_nbi(other, 64 * round, &source, 0..len)?;
        }
    }
    job.quiet()?;
    job.barrier()
}

/// Words that many write and update, and gets: what runs on agents where the hardware only writes.
fn contend(job: &Job) -> Result<()> {
    let window = job.window::<u64>(1000)?;
    let mut block = [0; 300];
    for round in 0..10 {
        for other in 0..job.npes() {
            window.remote(other, job.pe())?.store(round);
            window.remote(0, 10)?.fetch_add(1)?;
            window.get(other, 100, &mut block)?;
        }
    }
    job.barrier()
}

/// All with all, and all at once.
fn collect(job: &Job) -> Result<()> {
    let window = job.window::<u64>(4000)?;
    for len in [1, 20, 2000] {
        let (from, to) = (window.span(0..len)?, window.span(2000..2000 + len)?);
        job.world().all_reduce_into(Sum, to, from)?;
        job.world().broadcast_into(0, to, from)?;
    }
    job.barrier()
}

/// All built-in machines, with all of their variants; a file that has variants may need one.
fn machines() -> Vec<String> {
    let of_file = |&(name, _): &(&str, &str)| {
        let machine = Machine::load(name).unwrap();
        let variants = machine.variants().iter().map(|variant| format!("{name}/{variant}"));
        match machine.variants() {
            [] => vec![name.to_owned()],
            _ => variants.collect(),
        }
    };
    BUILT_IN.iter().flat_map(of_file).collect()
}

/// A number of microseconds in nanoseconds, as viewers read it.
fn nanos(micros: &Value) -> u64 {
    (micros.as_f64().unwrap() * 1000.0).round() as u64
}

/// What tells an asynchronous event from all others.
fn id(event: &Value) -> String {
    let [process, category, id, name] = ["pid", "cat", "id", "name"].map(|key| &event[key]);
    format!("{process} {category} {id} {name}")
}

/// Every event is one that viewers show, on a track with a name of its own. Gives how many are
/// asynchronous.
#[track_caller]
fn check(trace: &[u8], stages: usize) -> usize {
    let trace: Value = serde_json::from_slice(trace).expect("valid JSON");
    let (mut names, mut tracks) = (BTreeMap::new(), BTreeMap::<_, Vec<_>>::new());
    let (mut begun, mut asynchronous) = (BTreeMap::new(), 0);
    for event in trace["traceEvents"].as_array().unwrap() {
        let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64());
        match event["ph"].as_str().unwrap() {
            "M" if event["name"].as_str().unwrap().ends_with("_sort_index") => {}
            "M" => {
                assert!(names.insert(track, event["args"]["name"].to_string()).is_none(), "{event}")
            }
            "X" => {
                let start = nanos(&event["ts"]);
                tracks.entry(track).or_default().push((
                    start,
                    start + nanos(&event["dur"]),
                    event["name"].to_string(),
                ));
            }
            "b" => assert!(begun.insert(id(event), nanos(&event["ts"])).is_none(), "{event}"),
            "e" => {
                let start = begun.remove(&id(event)).expect("what ends has begun before");
                assert!(start <= nanos(&event["ts"]), "{event}");
                asynchronous += 1;
            }
            other => panic!("what is {other}? {event}"),
        }
    }
    assert!(tracks.keys().all(|track| names.contains_key(track)));
    assert_eq!(
        names.values().collect::<BTreeSet<_>>().len(),
        names.len(),
        "two tracks of one name"
    );
    assert!(begun.is_empty(), "{begun:?} have no end");
    assert_eq!(tracks.values().map(Vec::len).sum::<usize>() + asynchronous, stages);
    for (track, mut events) in tracks {
        // The longer first, of those that begin at once.
        events.sort_by_key(|&(start, end, _)| (start, std::cmp::Reverse(end)));
        let mut around: Vec<&(u64, u64, String)> = Vec::new();
        for event in &events {
            while around.last().is_some_and(|outer| outer.1 <= event.0) {
                around.pop();
            }
            if let Some(outer) = around.last() {
                assert!(event.1 <= outer.1, "{}: {outer:?} and {event:?} overlap", names[&track]);
            }
            around.push(event);
        }
    }
    asynchronous
}

#[test]
fn viewers_show_every_event() {
    let options = Options { record: true, ..Options::default() };
    let mut asynchronous = 0;
    for name in machines() {
        let machine = Machine::load(&name).unwrap();
        // Some are two hosts and a cable.
        let pes = if run(&machine, 4, &Options::default(), drop).is_ok() { 4 } else { 2 };
        for (program, what) in
            [(flood as fn(&Job) -> Result<()>, "flood"), (contend, "contend"), (collect, "collect")]
        {
            let timeline = || {
                let done = run(&machine, pes, &options, |job| program(&job).unwrap()).unwrap();
                let mut bytes = Vec::new();
                done.write_chrome(&mut bytes).unwrap();
                (bytes, done.recorder.stages().len())
            };
            let (bytes, stages) = timeline();
            println!("{name}, {what}: {stages} stages");
            asynchronous += check(&bytes, stages);
            assert!(timeline().0 == bytes, "{name}, {what}: another timeline");
        }
    }
    assert!(asynchronous > 0, "no queue was long");
}

/// Blocks around a ring, with all kinds of calls in which a PE gives the thread to others.
fn around(job: &Job) -> Result<()> {
    let next = (job.pe() + 1) % job.npes();
    let (block, ready) = (job.window::<u8>(5000)?, job.window::<u64>(1)?);
    for round in 1..=3 {
        block.put_signal(next, 0, &[1; 5000], &ready, 0, SignalOp::Set, round)?;
        ready.wait_until(0, Cmp::Ge, round)?;
        block.get(next, 0, &mut [0; 10])?;
        job.world().all_reduce(Sum, round)?;
        job.barrier()?;
    }
    Ok(())
}

/// All PEs run on one thread, and each has the calls of its own program, in virtual time.
#[test]
fn closures_have_tracks_above_the_hardware() {
    const PES: usize = 3;
    let calls = ["Window::put_signal", "Window::wait_until", "Window::get", "Team::all_reduce"];
    for name in ["dimmnet-1/D-tree", "rdma-100g", "sr2201", "fast-ethernet-udp"] {
        let machine = Machine::load(name).unwrap();
        let options = Options { record: true, events: 1000, ..Options::default() };
        let done = run(&machine, PES, &options, |job| around(&job).unwrap()).unwrap();
        let unseen = run(&machine, PES, &Options::default(), |job| around(&job).unwrap()).unwrap();
        assert_eq!(done.end, unseen.end, "{name}: recording takes time");
        assert!(unseen.programs.is_none());
        let mut bytes = Vec::new();
        done.write_chrome(&mut bytes).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("timeline");
        std::fs::write(&path, bytes).unwrap();
        let timeline = Timeline::read(&path);
        assert!(timeline.tracks.keys().any(|(group, _)| group == "NICs"), "{name}");
        let (mut waits, end) = (0, done.end.0 / 1000);
        for pe in 0..PES {
            let slices = timeline.track(&format!("PE {pe}"));
            let is_call = |name: &str| name.contains("::");
            let made: Vec<_> =
                slices.iter().map(|slice| &*slice.name).filter(|name| is_call(name)).collect();
            let round = calls.into_iter().chain(["Job::barrier"]);
            let expected: Vec<_> = ["Job::window"; 2]
                .into_iter()
                .chain(std::iter::repeat_n(round, 3).flatten())
                .collect();
            assert_eq!(made[..expected.len()], expected, "{name}, PE {pe}: {slices:#?}");
            for slice in slices {
                assert!(slice.end <= end && slice.arguments.get("unfinished").is_none());
                let is_of_a_call = slice.name.starts_with("waits") || is_call(&slice.name);
                let ends_a_wait = slice.name.contains(" PE ") || slice.name.starts_with("PE ");
                assert!(is_of_a_call || ends_a_wait, "{name}, PE {pe}: {slice:?}");
            }
            waits += slices.iter().filter(|slice| slice.name.starts_with("waits")).count();
        }
        assert!(waits > 3 * PES, "{name}: {waits} waits");
        let next = |pe: usize| format!("PE {}", (pe + 1) % PES);
        for pe in 0..PES {
            let leads = |[from, to]: &&[(String, String); 2]| {
                from.0 == format!("PE {pe}") && from.1 == calls[0] && to.0 == next(pe)
            };
            assert_eq!(timeline.arrows.iter().filter(leads).count(), 3, "{name}, PE {pe}");
        }
        assert_eq!(timeline.leading_back, 0, "{name}");
    }
}
