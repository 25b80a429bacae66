//! The slot's signals *wait* and *interrupt*.

use super::*;
use crate::run::{Options, now, run, sleep};
use memonet_core::Cmp;
use std::time::Duration;

/// A look that the sender cannot see, and the phase of the looks.
const LOOKS: Duration = Duration::from_nanos(400);

/// How long a word is on its way to a PE that has waited for it for so long.
fn to_who_waits(machine: &str, waits: Duration) -> Duration {
    let machine = Machine::load(machine).unwrap();
    let done = run(&machine, 2, &Options::default(), |job| {
        let window = job.window::<u64>(1).unwrap();
        job.barrier().unwrap();
        if job.pe() == 0 {
            sleep(waits);
            window.remote(1, 0).unwrap().store(now().as_nanos() as u64);
            return Duration::ZERO;
        }
        window.wait_until(0, Cmp::Ne, 0).unwrap();
        now() - Duration::from_nanos(window.read(0))
    });
    done.unwrap().results[1]
}

#[test]
fn who_has_waited_for_long_sleeps_and_is_woken() {
    let times = |waits| ["dimmnet-1/D", "dimmnet-1/D-pemm"].map(|name| to_who_waits(name, waits));
    let [polled, spun] = times(Duration::from_micros(1));
    assert_eq!(polled, spun, "it looks for 5 us");
    let [polled, woken] = times(Duration::from_micros(50));
    let more = woken - polled;
    let interrupt = Duration::from_micros(5);
    assert!(more > interrupt - LOOKS && more < interrupt + LOOKS, "{more:?}");
}

/// The library's host does not switch banks: its access waits for a tenth of that time.
#[test]
fn a_block_in_a_bank_waits_for_no_software() {
    let time = |variant, turned| {
        let mut bench = Bench::of(&with_llcm_for_blocks(variant, false), 2);
        let start = bench.world.now();
        bench.ask(0, put(8192, &[7; 3000]));
        bench.settle();
        assert_eq!(bench.segment(1)[8192..][..3000], [7; 3000]);
        let stages = bench.world.recorder().stages().iter();
        let names = stages.map(|stage| stage.name).filter(|name| name.starts_with("bank_"));
        let names: Vec<_> = names.filter(|name| *name != "bank_write").collect();
        assert!(!names.is_empty() && names.iter().all(|name| *name == turned), "{names:?}");
        bench.changed.last().unwrap().0 - start
    };
    let (dimm, pemm) = (time("D", "bank_switch"), time("D-pemm", "bank_wait"));
    // The last of the banks' turns is 900 ns shorter, and the looks have another phase.
    assert!(pemm + Ps::ns(500) < dimm, "{dimm:?}, {pemm:?}");
}

/// A program reads what has come into the network's bank without a switch; the access waits, and so
/// does what comes meanwhile.
#[test]
fn a_read_of_the_networks_bank_waits() {
    let mut bench = Bench::new("dimmnet-1/D-pemm", 2);
    bench.command(0, command::map(0, &seed(1, BANK)));
    bench.command(0, command::map(1, &seed(1, 0)));
    bench.command(0, command::kick(0, 8, Payload::word(8, 77)));
    bench.settle();
    let before = bench.world.now();
    let read = command::read_away(BANK + 8, 800, Looks::Words);
    let op = bench.begin(1, HostOp::Command(read));
    let kick = bench.begin(0, HostOp::Command(command::kick(1, 16, Payload::word(8, 5))));
    let answer = bench.finish(op);
    // The NIC's 100 ns, and 100 reads of 141 ns with 25 ns each to undo the crossed lines.
    assert_eq!(bench.world.now() - before, Ps::ns(100 + 100 * (141 + 25)));
    assert_eq!(answer.value, 77);
    let read_until = bench.world.now();
    bench.settle();
    let mut stages = bench.world.recorder().stages().iter();
    let written = stages.rfind(|stage| stage.op == kick && stage.name == "llcm_write").unwrap();
    assert_eq!(written.start, read_until, "the packet came long before");
    assert_eq!(bench.seen(1, BANK + 8, 8), [0; 8], "the banks have not changed sides");
    assert_eq!(bench.seen(1, 16, 1), [5]);
    let refused = |machine: &str, at, len| {
        let read = command::read_away(at, len, Looks::Words);
        Bench::new(machine, 2).ask(1, HostOp::Command(read)).refused.unwrap()
    };
    assert!(refused("dimmnet-1/D", BANK, 8).contains("host.interface pemm"));
    assert!(refused("dimmnet-1/D-pemm", 8, 8).contains("in no bank"));
    assert!(refused("dimmnet-1/D-pemm", BANK + (64 << 20), 8).contains("has no 8 bytes"));
}
