//! Programs on a command-word machine: what its hardware refuses, and what it tells apart.

use memonet_core::unstable::fabric::FarAddress;
use memonet_core::{Access, Cmp, Error, Job, Key, SignalOp, Window};
use memonet_sim::host::HostOp;
use memonet_sim::nic::command_word::{CommandWord, REFUSED, Start, build, start, test};
use memonet_sim::packet::Payload;
use memonet_sim::{Host, Machine, Options, now, run};
use std::time::Duration;

/// The region of the first restricted window of a job.
const REGION: u32 = 1;
const WORD_BYTES: u64 = 8;

fn machine() -> Machine {
    Machine::load("sr2201").unwrap()
}

/// A word of PE 0's part.
fn place(index: u64) -> FarAddress {
    FarAddress { pe: 0, region: REGION, offset: index * WORD_BYTES }
}

/// Asks the NIC without the library, and so without its checks.
fn ask(what: HostOp) -> Result<u64, String> {
    // SAFETY: all that the NIC may write is the windows of these tests.
    unsafe { Host::here().ask(what) }.map(|answer| answer.value)
}

/// Stores a word in PE 0's part behind the library's back. What the NIC says of it in the end.
fn store_at_once(index: u64, value: u64) -> Result<u64, String> {
    let word = Payload::word(WORD_BYTES as usize, value);
    ask(HostOp::Store { to: place(index), word })?;
    ask(HostOp::Quiet)
}

/// A window of which PE 1 alone may write PE 0's part.
fn part_of_pe_0(job: &Job) -> Window<u64> {
    let right = |home, holder| match (home, holder) {
        (0, 1) => Access::ReadWrite,
        _ => Access::None,
    };
    job.restricted(8, right).unwrap()
}

/// A PE without a right that goes round the library is refused by the receiving NIC, whether it
/// writes through its driver or by a command word with a key of its own. It hears of that, and the
/// memory stays as it was. So it is where the PEs share the NIC.
#[test]
fn a_write_without_the_key_of_a_window_is_refused_by_the_receiving_nic() {
    for name in ["sr2201", "sr2201/shared"] {
        write_without_the_key(&Machine::load(name).unwrap());
    }
}

fn write_without_the_key(machine: &Machine) {
    run(machine, 3, &Options::default(), |job| {
        let window = part_of_pe_0(&job);
        match job.pe() {
            1 => assert_eq!(store_at_once(1, 11), Ok(0)),
            2 => {
                assert!(store_at_once(2, 22).unwrap_err().contains("another key"));
                let from = FarAddress { pe: 2, region: 0, offset: 0 };
                let word = CommandWord { from, to: place(3), len: 8, key: 0x2201, flag: None };
                let word = ask(HostOp::Command(build(&word))).unwrap();
                ask(HostOp::Command(start(word, Start::Direct))).unwrap();
                job.compute(1_000_000);
                assert_eq!(ask(HostOp::Command(test(word))), Ok(REFUSED));
            }
            _ => {}
        }
        job.barrier().unwrap();
        if job.pe() == 0 {
            assert_eq!(window.to_vec(), [0, 11, 0, 0, 0, 0, 0, 0]);
        }
    })
    .unwrap();
}

/// A remote that was resolved before its right was revoked writes until the home has waited for it.
/// After that the NIC refuses the old key, and admits the new one of who has attached anew.
#[test]
fn a_revoked_key_is_refused_by_the_receiving_nic() {
    run(&machine(), 2, &Options::default(), |job| {
        let window = part_of_pe_0(&job);
        let (keys, turn) = (job.window::<Key>(1).unwrap(), job.window::<u64>(1).unwrap());
        let pass = |to, value| turn.remote(to, 0).unwrap().store(value);
        let await_turn = |value| turn.wait_until(0, Cmp::Ge, value).unwrap();
        if job.pe() == 0 {
            await_turn(1);
            window.revoke().unwrap();
            pass(1, 1);
            window.revoke_wait(None).unwrap();
            assert_eq!(window.read(1), 11, "it was written after the right was revoked");
            pass(1, 2);
            await_turn(2);
            assert_eq!(window.read(2), 0);
            keys.put_one(1, 0, window.key().unwrap()).unwrap();
            job.quiet().unwrap();
            pass(1, 3);
            await_turn(3);
            assert_eq!(window.read(3), 33);
        } else {
            let remote = window.remote(0, 1).unwrap();
            pass(0, 1);
            await_turn(1);
            remote.store(11);
            drop(remote);
            await_turn(2);
            assert!(matches!(window.remote(0, 2), Err(Error::Revoked { .. })));
            assert!(store_at_once(2, 22).unwrap_err().contains("another key"));
            pass(0, 2);
            await_turn(3);
            let part = job.attach::<u64>(&keys.read(0)).unwrap();
            part.put_one(0, 3, 33).unwrap();
            job.quiet().unwrap();
            pass(0, 3);
        }
        job.barrier().unwrap();
    })
    .unwrap();
}

/// What waiting for a short transfer takes that was started before a long one, and whether the long
/// one was complete then.
fn short_before_long(op: SignalOp) -> (Duration, bool) {
    let done = run(&machine(), 3, &Options::default(), |job| {
        let (short, long) = (job.window::<u8>(64).unwrap(), job.window::<u8>(4 << 20).unwrap());
        let came = job.window::<u64>(1).unwrap();
        let mut seen = (Duration::ZERO, false);
        if job.pe() == 0 {
            let short = short.prepare(1, 0, &short, 0..64).unwrap();
            let mut short = short.with_signal(&came, 0, op, 1).unwrap();
            let mut long = long.prepare(2, 0, &long, 0..4 << 20).unwrap();
            assert!(short.test().unwrap(), "it was not started");
            short.start().unwrap();
            assert!(!short.test().unwrap(), "it has just begun");
            long.start().unwrap();
            let begin = now();
            short.wait().unwrap();
            seen = (now() - begin, long.test().unwrap());
            long.wait().unwrap();
            assert!(long.test().unwrap());
        }
        job.barrier().unwrap();
        seen
    });
    done.unwrap().results[0]
}

/// The status of a command word is that of its own transfer. A signal that adds is software's at
/// the target, so there is no such word, and the end of all writes is waited for.
#[test]
fn a_transfer_is_complete_when_its_own_word_is() {
    let (took, long_is_complete) = short_before_long(SignalOp::Set);
    assert!(took < Duration::from_micros(50), "{took:?}");
    assert!(!long_is_complete);
    let (took, long_is_complete) = short_before_long(SignalOp::Add);
    assert!(took > Duration::from_millis(10), "{took:?}");
    assert!(long_is_complete);
}
