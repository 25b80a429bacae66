//! Datagrams to groups that NICs acknowledge and send again.

use super::*;

/// A machine whose NICs send datagrams to groups again, on links that lose this part of all
/// packets.
fn reliable(part: f64) -> Machine {
    with_buffers(part, 256)
}

/// The same with so many buffers for a group at each node.
fn with_buffers(part: f64, buffers: u64) -> Machine {
    let text = include_str!("../../../../../../machines/dimmnet-2.toml")
        .replace("link.loss = { value = 0.01,", &format!("link.loss = {{ value = {part},"))
        .replace(
            "receive_buffers = { value = 256,",
            &format!("receive_buffers = {{ value = {buffers},"),
        );
    Machine::parse("reliable", &text, Some("reliable")).unwrap()
}

/// Whatever is lost, each member gets each datagram once, in the order of sending; also one that
/// leaves meanwhile, and then nobody waits for it.
#[test]
fn reliable_datagrams_come_once_and_in_order() {
    for (seed, loss) in (1..).zip([0.0, 0.01, 0.3, 0.6]) {
        let mut bench = Bench::of(&reliable(loss), 5, seed);
        let group = join_for(&mut bench, &[0, 1, 2, 4], Wanted::Datagrams(0))[0] as u32;
        let alone = join_for(&mut bench, &[1, 4], Wanted::Datagrams(1))[0] as u32;
        for number in 0..100u64 {
            let bytes = vec![number as u8; 8 + 20 * number as usize];
            bench.call(0, send(group, None, &bytes));
            bench.call(2, send(group, None, &number.to_le_bytes()));
            bench.call(4, send(alone, Some(1), &number.to_le_bytes()));
        }
        // PE 4 leaves while packets to it are under way, are lost, and are sent again.
        bench.call(4, HostOp::Group(GroupOp::Leave(group)));
        bench.run();
        bench.assert_conserved();
        assert_eq!(bench.world.counts().lost > 0, loss > 0.0);
        let numbers: Vec<[u8; 8]> = (0..100u64).map(u64::to_le_bytes).collect();
        for pe in [0, 1] {
            let (of_zero, of_two): (Vec<_>, Vec<_>) = take(&mut bench, pe, group)
                .into_iter()
                .partition(|bytes| bytes.len() > 8 || bytes == &[0; 8] && pe == 1);
            assert_eq!(of_two.len() + of_zero.len(), if pe == 0 { 100 } else { 200 });
            let lengths: Vec<usize> = of_zero.iter().map(Vec::len).filter(|&len| len > 8).collect();
            assert!(lengths.is_sorted(), "PE {pe}, loss {loss}: {lengths:?}");
            let of_two = of_two.iter().filter(|bytes| bytes[..] != [0; 8]);
            assert!(of_two.eq(numbers[1..].iter()), "PE {pe}, loss {loss}");
        }
        assert!(take(&mut bench, 1, alone).iter().eq(numbers.iter()), "loss {loss}");
    }
}

/// Three members, of which one sends so many datagrams. The others take those that have come in
/// each of some rounds, and get all.
#[track_caller]
fn all_come(machine: &Machine, seed: u64, datagrams: u64, (rounds, round): (usize, Ps)) {
    let mut bench = Bench::of(machine, 3, seed);
    let group = join_for(&mut bench, &[0, 1, 2], Wanted::Datagrams(0))[0] as u32;
    for number in 0..datagrams {
        bench.call(0, send(group, None, &number.to_le_bytes()));
    }
    let mut got = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for pe in [1, 2] {
            got[pe - 1].extend(take(&mut bench, pe as u32, group));
        }
        let later = bench.world.now() + round;
        bench.run_until(later);
    }
    let numbers: Vec<[u8; 8]> = (0..datagrams).map(u64::to_le_bytes).collect();
    for got in got {
        assert!(got.iter().eq(numbers.iter()), "{} of {datagrams}", got.len());
    }
    bench.run();
    bench.assert_conserved();
}

/// What finds no buffer comes again when there is one, where datagrams are reliable.
#[test]
fn reliable_datagrams_wait_for_buffers() {
    all_come(&reliable(0.0), 1, 300, (20, Ps::us(100)));
}

/// Datagrams that come before their turn leave a buffer for the one that is lost.
#[test]
fn the_lost_one_finds_a_buffer() {
    for (seed, buffers) in (1..).zip([1, 2, 3, 16]) {
        all_come(&with_buffers(0.1, buffers), seed, 100, (2000, Ps::us(50)));
    }
}

/// A datagram that is lost for one member comes to it alone once more, within the patience; those
/// that nothing hits take as long as they would without acknowledgements.
#[test]
fn what_reliable_datagrams_take() {
    let comes = |machine: &Machine| {
        let mut bench = Bench::of(machine, 4, 1);
        let group = join_for(&mut bench, &[0, 1, 2, 3], Wanted::Datagrams(0))[0] as u32;
        let begin = bench.world.now();
        bench.call(0, send(group, None, &[1; 2048]));
        bench.run();
        [1, 2, 3].map(|pe| bench.changed[pe].unwrap() - begin)
    };
    assert_eq!(comes(&reliable(0.0)), comes(&machine("dimmnet-2")));
}

#[test]
fn reliable_datagrams_need_a_patience() {
    let text = include_str!("../../../../../../machines/dimmnet-2.toml");
    let more = "\n[variant.bad]\nnic.reliable_datagrams = { value = true, assumed = \"a test\" }\n";
    let machine = Machine::parse("bad", &format!("{text}{more}"), Some("bad")).unwrap();
    let error = machine.check().unwrap_err().to_string();
    assert!(error.contains("nic.retransmit"), "{error}");
}
