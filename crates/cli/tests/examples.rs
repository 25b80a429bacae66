//! The programs in `examples/`: each compares its result with a sequential run.

mod common;

use common::{Ended, run_for_a_minute};
use memonet_sim::Machine;
use memonet_sim::machine::BUILT_IN;
use std::path::PathBuf;
use std::sync::LazyLock;

/// The folder with the examples, built.
static EXAMPLES: LazyLock<PathBuf> = LazyLock::new(|| {
    // With the command, whose dependencies have more features: else all would be built once more.
    common::examples(&["--package", "memonet", "--package", "memonet-cli", "--examples"])
});

/// Runs a program, which must find its own result right.
#[track_caller]
fn is_right(options: &[&str], program: &str, argument: &str) -> Ended {
    let path = EXAMPLES.join(program).into_os_string().into_string().unwrap();
    let ended = run_for_a_minute(&[options, &[&path, argument]].concat());
    assert_eq!(ended.status, 0, "{program} {argument} {options:?}: {ended:?}");
    assert!(
        ended.stdout.starts_with("right: ") && ended.stdout.contains("speed-up"),
        "{program} {argument} {options:?}: {ended:?}"
    );
    ended
}

/// What the command words of SR2201 take, as published, and what its interface removes.
#[test]
fn command_words_take_what_was_published() {
    let program = EXAMPLES.join("command_words").into_os_string().into_string().unwrap();
    let one_way = |options: &[&str]| {
        let ended = run_for_a_minute(&[options, &["-n", "2", &program]].concat());
        assert_eq!(ended.status, 0, "{options:?}: {ended:?}");
        assert!(ended.stdout.contains("refused: PE 0 has revoked this key"), "{ended:?}");
        let took = ended.stdout.split_once("one way of 8 bytes: ").expect("its time").1;
        took.split_once(" us").expect("its unit").0.parse::<f64>().unwrap()
    };
    one_way(&[]);
    let on = |machine| one_way(&["--machine", machine]);
    let [direct, call, interrupts] = ["sr2201", "sr2201/system-call", "sr2201/interrupts"].map(on);
    assert!((3.40..3.50).contains(&direct), "{direct} us, published as 3.45");
    assert!((21.4..21.7).contains(&call), "{call} us, published as 21.50");
    assert!((call + 38.0..call + 39.0).contains(&interrupts), "{interrupts} us");
}

#[test]
fn parallel_and_sequential_runs_agree() {
    for (program, argument) in [("radix", "20000"), ("lu", "48"), ("tsp", "8"), ("water", "100")] {
        for fabric in ["", "far", "far:delay_us=20,reorder=1,seed=5"] {
            for pes in ["1", "2", "3"] {
                let mut options = vec!["-n", pes];
                if !fabric.is_empty() {
                    options.extend(["--fabric", fabric]);
                }
                let ended = is_right(&options, program, argument);
                assert!(
                    ended.stdout.contains(&format!("right: {pes} PEs ")),
                    "{program} {fabric}: {ended:?}"
                );
                let quiet = ended.stdout.contains(" 0 messages, 0 bytes");
                assert!(quiet == fabric.is_empty() || pes == "1", "{program} {fabric}: {ended:?}");
            }
        }
    }
}

/// Supersteps in order and overlapped come to the same temperatures; with wires, a superstep that
/// overlaps does not wait for its barrier.
#[test]
fn supersteps_are_right() {
    let path = EXAMPLES.join("supersteps").into_os_string().into_string().unwrap();
    let places = [["--bind", "none"], ["--fabric", "far"], ["--machine", "scc"]];
    for (pes, cells) in [("1", "5"), ("3", "2"), ("4", "16")] {
        for place in places {
            let ended = run_for_a_minute(&[&["-n", pes], &place[..], &[&path, cells]].concat());
            assert_eq!(ended.status, 0, "{pes} {place:?}: {ended:?}");
            let lines: Vec<_> = ended.stdout.lines().collect();
            assert_eq!(lines.len(), 2, "{pes} {place:?}: {ended:?}");
            let times: Vec<f64> = lines
                .iter()
                .zip(["right: in order, ", "right: overlapped, "])
                .map(|(line, begin)| {
                    let time = line.strip_prefix(begin).and_then(|rest| rest.split(' ').next());
                    time.and_then(|time| time.parse().ok()).unwrap_or_else(|| panic!("{ended:?}"))
                })
                .collect();
            assert!(place[1] != "scc" || pes != "4" || times[1] < times[0], "{ended:?}");
        }
    }
}

/// The numbers of `radix` are more than 4 MiB at each home and are read at once; the other programs
/// have no block that long.
#[test]
fn long_runs_agree_on_fabrics_and_machines() {
    let places = [
        ["--bind", "none"],
        ["--fabric", "far"],
        ["--machine", "rdma-100g"],
        ["--machine", "sr2201"],
        ["--machine", "dimmnet-1/D-tree"],
    ];
    for (program, argument) in [("radix", "4194304"), ("lu", "160"), ("tsp", "9"), ("water", "300")]
    {
        for place in places {
            let ended = is_right(&[&["-n", "3"], &place[..]].concat(), program, argument);
            assert!(ended.stdout.contains("right: 3 PEs "), "{program} {place:?}: {ended:?}");
        }
    }
}

/// Each variant of each simulated machine runs one of the programs.
#[test]
fn every_variant_runs_an_example() {
    let programs = [("radix", "20000"), ("lu", "32"), ("tsp", "6"), ("water", "30")];
    let machines = BUILT_IN.iter().flat_map(|&(name, _)| {
        let machine = Machine::load(name).expect("it is built in");
        let variants = machine.variants().iter().map(move |variant| format!("{name}/{variant}"));
        // One machine exists in variants alone.
        let itself = (name != "dimmnet-1").then(|| name.to_owned());
        itself.into_iter().chain(variants.collect::<Vec<_>>())
    });
    for (machine, (program, argument)) in machines.zip(programs.into_iter().cycle()) {
        is_right(&["-n", "2", "--machine", &machine], program, argument);
    }
}

/// Runs `messages`; gives the microseconds of a message.
#[track_caller]
fn micros_of_a_message(options: &[&str], bytes: &str, way: &[&str]) -> f64 {
    let path = EXAMPLES.join("messages").into_os_string().into_string().unwrap();
    let ended = run_for_a_minute(&[&["-n", "2"], options, &[&path, bytes, "20"], way].concat());
    let begin = format!("right: {bytes} bytes take ");
    let right = ended.stdout.strip_prefix(&begin).filter(|_| ended.status == 0);
    let time = right.and_then(|rest| rest.split(' ').next()?.parse().ok());
    time.unwrap_or_else(|| panic!("{options:?} {bytes} {way:?}: {ended:?}"))
}

#[test]
fn messages_arrive_on_fabrics_and_machines() {
    for way in [&[][..], &["thread"]] {
        for fabric in ["far", "far:delay_us=20,reorder=1,seed=5", "tcp"] {
            micros_of_a_message(&["--fabric", fabric], "1000", way);
        }
        micros_of_a_message(&[], "1000", way);
        // Published: 20,000 us through the banks.
        let by_banks = micros_of_a_message(&["--machine", "dimmnet-1/fagus-banks"], "1000", way);
        assert!((20_000.0..20_200.0).contains(&by_banks), "{by_banks} us {way:?}");
        let by_llcm = micros_of_a_message(&["--machine", "dimmnet-1/fagus"], "1000", way);
        assert!(by_llcm < 100.0, "{by_llcm} us {way:?}");
    }
    // A scheduler that ticks every 10 ms adds half of that in the mean, or less than the next
    // switch of banks, which goes on meanwhile.
    let by_ticks =
        |machine| micros_of_a_message(&["--machine", machine], "1000", &["thread", "10"]);
    let (banks, llcm) = (by_ticks("dimmnet-1/fagus-banks"), by_ticks("dimmnet-1/fagus"));
    assert!((20_000.0..21_000.0).contains(&banks), "{banks} us");
    assert!((4_000.0..6_000.0).contains(&llcm), "{llcm} us");
}
