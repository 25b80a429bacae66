//! Several processes that share a NIC.

use super::*;

/// SR2201 with so many PEs on a node.
fn shared(per_node: u32) -> Machine {
    let mut machine = Machine::load("sr2201/shared").unwrap();
    machine.set("topology.pes_per_node", per_node.into()).unwrap();
    machine
}

fn time(section: &'static str, name: &str) -> Ps {
    Machine::load("sr2201/shared").unwrap().section(section).time(name).unwrap()
}

/// A word of a PE to another.
fn word_of(from: u32, to: u32, len: u32, key: u32) -> CommandWord {
    CommandWord { from: at(from, 0), to: at(to, 0), len, key, flag: None }
}

fn put(to: u32, len: usize) -> HostOp {
    let data = Payload::copy(&vec![7; len]);
    HostOp::Put { to: at(to, 0), data, signal: None, reuse: false }
}

#[test]
fn the_library_runs_on_shared_nics() {
    for (per_node, pes) in [(2, 4), (2, 5), (3, 5), (4, 3), (32, 5)] {
        carries_the_library(&shared(per_node), pes);
    }
}

#[test]
fn there_are_no_more_processes_than_command_words_are_enough_for() {
    let said = shared(257).check().unwrap_err().to_string();
    for part in ["pes_per_node is 257", "1024 command words", "put at most 256 PEs on a node"] {
        assert!(said.contains(part), "{said}");
    }
}

/// A process starts and tests the words that it has built, and no others; what it may not start,
/// changes no memory and is not sent.
#[test]
fn a_word_is_started_by_the_process_that_has_built_it() {
    let mut bench = Bench::of(&shared(2), 4, 1);
    let words = [0, 1].map(|pe| {
        bench.command(2 + pe, allow(at(2 + pe, 0), 4096, 1));
        bench.set(at(pe, 0), &[9 + pe as u8; 64]);
        bench.command(pe, build(&word_of(pe, 2 + pe, 64, 1)))
    });
    assert_ne!(words[0], words[1]);
    for (pe, others) in [(0, words[1]), (1, words[0])] {
        let wrong = [
            start(others, Start::Direct),
            start(others, Start::SystemCall),
            test(others),
            user_store(others, 0x1234),
            build(&word_of(1 - pe, 3, 8, 1)),
        ];
        for command in wrong {
            let answer = bench.call(pe, HostOp::Command(command.clone()));
            assert!(answer.refused.is_some(), "PE {pe}: {command:?}");
        }
    }
    bench.run();
    assert_eq!(bench.world.counts().sent, 0);
    for pe in [0, 1] {
        bench.command(pe, start(words[pe as usize], Start::Direct));
        assert_eq!(bench.command(pe, test(words[pe as usize])), RUNNING);
    }
    bench.run();
    for pe in [0, 1] {
        assert_eq!(bench.command(pe, test(words[pe as usize])), DONE);
        assert_eq!(bench.bytes(at(2 + pe, 0), 65), [&[9 + pe as u8; 64][..], &[0]].concat());
    }
    bench.assert_conserved();
}

/// The receiving NIC compares the keys of writes from the same node, too; nothing leaves the node.
#[test]
fn keys_protect_a_process_from_its_neighbours() {
    let mut bench = Bench::of(&shared(2), 2, 1);
    bench.set(at(0, 0), &[9; 64]);
    // Both have a receive area at the same place, with keys of their own.
    bench.command(0, allow(at(0, 0), 64, 5));
    bench.command(1, allow(at(1, 0), 64, 6));
    for (key, status) in [(5, REFUSED), (0x2201, REFUSED), (6, DONE)] {
        let address = bench.command(0, build(&word_of(0, 1, 64, key)));
        bench.command(0, start(address, Start::Direct));
        bench.run();
        assert_eq!(bench.command(0, test(address)), status, "key {key}");
        let expected = if status == DONE { [9; 64] } else { [0; 64] };
        assert_eq!(bench.bytes(at(1, 0), 64), expected, "key {key}");
    }
    // A store by the driver carries the job's key. Its refusal is the sender's.
    bench.call(0, HostOp::Store { to: at(1, 8), word: Payload::word(8, 77) });
    bench.run();
    assert_eq!(bench.call(1, HostOp::Quiet).refused, None);
    assert!(bench.call(0, HostOp::Quiet).refused.is_some());
    assert_eq!(bench.bytes(at(1, 0), 64), [9; 64]);
    assert_eq!(bench.world.counts().sent, 0);
    bench.assert_conserved();
}

/// A start costs a check more than where a process has the node alone. Each process has a CPU, and
/// waits for no neighbour's.
#[test]
fn each_process_has_a_cpu() {
    let starts = |machine: &Machine, how| {
        let mut bench = Bench::of(machine, 4, 1);
        let words = [0, 1].map(|pe| bench.command(pe, build(&word_of(pe, 2 + pe, 64, 1))));
        bench.run();
        let begin = bench.world.now();
        let ops = [0, 1].map(|pe| bench.begin(pe, HostOp::Command(start(words[pe as usize], how))));
        ops.map(|op| bench.answer(op).0 - begin)
    };
    for how in [Start::Direct, Start::SystemCall] {
        let alone = starts(&machine(), how);
        let check = time("host", "owner_check");
        assert_eq!(starts(&shared(2), how), alone.map(|alone| alone + check));
        assert_eq!(alone[0], alone[1]);
    }
}

/// When a put of each sender has landed at the PE of the same number on the second node.
fn land(per_node: u32, senders: &[(u32, usize)]) -> Vec<Ps> {
    let mut bench = Bench::of(&shared(per_node), 2 * per_node, 1);
    // The words are built.
    for &(pe, len) in senders {
        bench.call(pe, put(per_node + pe, len));
    }
    bench.run();
    let begin = bench.world.now();
    for &(pe, len) in senders {
        bench.begin(pe, put(per_node + pe, len));
    }
    bench.run();
    senders
        .iter()
        .map(|&(pe, _)| bench.changed[(per_node + pe) as usize].unwrap() - begin)
        .collect()
}

/// Two processes that send at once share the DMA and the link: the second one's packets come after
/// the first one's, and so do a third one's.
#[test]
fn processes_share_the_dma() {
    const LEN: usize = 30 * 1024;
    let alone = land(4, &[(0, LEN)])[0];
    assert_eq!(land(4, &[(3, LEN)]), [alone], "whichever of them it is");
    // 30 packets of 1 KiB and a header of 32 bytes, on a link that is slower than the memory.
    let link = machine().section("link").rate("rate").unwrap();
    let each = time("nic", "command_fetch") + time("nic", "read") + link.time(1056) * 30;
    let together = land(4, &[(0, LEN), (1, LEN), (2, LEN)]);
    for (turn, &landed) in together.iter().enumerate() {
        assert_eq!(landed, alone + each * turn as u64, "{turn}");
    }
}

/// The DMA serves a word to its end, so a short put waits for a neighbour's long one, which began
/// before it.
#[test]
fn a_short_transfer_waits_for_a_neighbours_long_one() {
    let (short, long) = (land(2, &[(1, 8)])[0], land(2, &[(0, 60_000)])[0]);
    assert!(short < Ps::us(5) && long > Ps::us(200), "{short} {long}");
    assert!(land(2, &[(0, 60_000), (1, 8)])[1] > long);
}

/// A neighbour that uses more command words than it has takes none of another's away.
#[test]
fn each_process_has_its_part_of_the_command_words() {
    let mut bench = Bench::of(&shared(2), 4, 1);
    let stores = |bench: &mut Bench, pe: u32, places: u64| {
        let begin = bench.world.now();
        for place in 0..places {
            let store = HostOp::Store { to: at(2, 8 * place), word: Payload::word(8, place) };
            assert_eq!(bench.call(pe, store).refused, None);
        }
        let took = bench.world.now() - begin;
        bench.run();
        took
    };
    let built = stores(&mut bench, 0, 512);
    let found = stores(&mut bench, 0, 512);
    assert_eq!(built, found + time("host", "system_call") * 512);
    stores(&mut bench, 1, 3000);
    assert_eq!(stores(&mut bench, 0, 512), found);
    assert!(stores(&mut bench, 0, 513) > found + time("host", "system_call"), "one too many");
    bench.assert_conserved();
}
