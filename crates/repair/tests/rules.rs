//! Rules of the protocol one by one: what an end refuses, when it speaks, and what it leaves out.

mod common;

use common::{Receiving, Sending, config};
use memonet_repair::{Config, Nanos, Refused, wire};

const HEARTBEAT: u8 = 2;
const STATUS: u8 = 3;
const NAK: u8 = 4;

/// A datagram with any contents.
fn forge(config: &Config, kind: u8, place: u64, body: &[u8]) -> Vec<u8> {
    let mut datagram = [&[0; wire::HEADER], body].concat();
    datagram[wire::HEADER - 5] = kind;
    wire::seal(config, place, &mut datagram);
    datagram
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What a reader sends: its number, then words.
fn of_reader(config: &Config, kind: u8, reader: u16, serial: u64, numbers: &[u64]) -> Vec<u8> {
    forge(config, kind, serial, &[&reader.to_le_bytes()[..], &words(numbers)].concat())
}

/// The datagrams that the writer sends now.
fn sent(writer: &mut Sending, now: Nanos) -> Vec<Vec<u8>> {
    let mut out = vec![0; 1 << 12];
    let Sending { machine, log, .. } = writer;
    let mut all = Vec::new();
    while let Some(outgoing) = machine.next(now, log, &mut out) {
        all.push(out[..outgoing.len].to_vec());
    }
    all
}

/// The positions of the data among these.
fn data(datagrams: &[Vec<u8>]) -> Vec<u64> {
    let place = |datagram: &Vec<u8>| u32::from_le_bytes(datagram[8..12].try_into().unwrap());
    let data = datagrams.iter().filter(|datagram| wire::kind(datagram) == 1);
    data.map(|datagram| place(datagram).into()).collect()
}

/// A writer that has sent so many bytes to these readers, which have said nothing yet.
fn has_sent(readers: u16, bytes: u64) -> (Config, Sending) {
    let config = config(readers);
    let mut writer = Sending::new(&config);
    assert_eq!(writer.write(bytes), bytes);
    assert_eq!(data(&sent(&mut writer, 0)).first(), Some(&0));
    (config, writer)
}

#[test]
fn a_writer_refuses_what_no_reader_can_say() {
    let (config, mut writer) = has_sent(1, 1000);
    let said = of_reader(&config, STATUS, 0, 1, &[500, 900, 300]);
    assert_eq!(writer.machine.receive(&said, 1), Ok(()));
    let before = writer.clone();
    let impossible: [(u8, &[u64], &str); 11] = [
        (STATUS, &[600, 1001, 400], "seen beyond what was sent"),
        (STATUS, &[950, 949, 400], "received beyond what was seen"),
        (STATUS, &[600, 950, 601], "consumed beyond what was received"),
        (STATUS, &[499, 900, 300], "received falls"),
        (STATUS, &[500, 899, 300], "seen falls"),
        (STATUS, &[500, 900, 299], "consumed falls"),
        (NAK, &[499, 600], "it has what it asks for"),
        (NAK, &[600, 600], "an empty range"),
        (NAK, &[900, 1001], "beyond what was sent"),
        (NAK, &[700, 800, 600, 700], "ranges in disorder"),
        (NAK, &[600, 700, 699, 800], "ranges that overlap"),
    ];
    for (kind, numbers, why) in impossible {
        let forged = of_reader(&config, kind, 0, 2, numbers);
        assert_eq!(writer.machine.receive(&forged, 2), Err(Refused::Impossible), "{why}");
        assert!(writer == before, "{why}");
    }
    // At the edge of each rule.
    for (kind, numbers) in [
        (STATUS, &[1000, 1000, 1000][..]),
        (NAK, &[500, 501, 501, 1000]),
        (STATUS, &[500, 900, 300]),
    ] {
        let mut writer = before.clone();
        let said = of_reader(&config, kind, 0, 2, numbers);
        assert_eq!(writer.machine.receive(&said, 2), Ok(()), "{numbers:?}");
    }
}

#[test]
fn a_reader_refuses_what_it_has_no_room_for() {
    let config = config(1);
    let room = config.capacity;
    let mut reader = Receiving::new(&config, 0);
    let before = reader.clone();
    for (kind, place, body) in
        [(HEARTBEAT, 1, words(&[room + 1])), (1, room - 7, vec![1; 8]), (1, room, vec![1])]
    {
        let forged = forge(&config, kind, place, &body);
        assert_eq!(reader.receive(&forged, 1), Err(Refused::Impossible), "{kind} {place}");
        assert!(reader == before, "{kind} {place}");
    }
    for (kind, place, body) in [(HEARTBEAT, 1, words(&[room])), (1, room - 8, vec![1; 8])] {
        let mut reader = before.clone();
        assert_eq!(reader.receive(&forge(&config, kind, place, &body), 1), Ok(()));
    }
}

#[test]
fn what_may_be_overwritten_is_not_repaired() {
    let (config, mut writer) = has_sent(1, 1000);
    let asked = of_reader(&config, NAK, 0, 1, &[0, 400]);
    assert_eq!(writer.machine.receive(&asked, 1), Ok(()));
    // It has got all of that meanwhile, from a datagram that came late.
    let said = of_reader(&config, STATUS, 0, 2, &[300, 1000, 300]);
    assert_eq!(writer.machine.receive(&said, 1), Ok(()));
    assert_eq!(writer.machine.floor(), 300);
    assert_eq!(data(&sent(&mut writer, 1)), [300]);
}

#[test]
fn what_is_queued_or_was_just_repaired_is_not_repaired_again() {
    let (config, mut writer) = has_sent(3, 1000);
    let ask = |writer: &mut Sending, reader, serial, range: [u64; 2], now| {
        let asked = of_reader(&config, NAK, reader, serial, &range);
        assert_eq!(writer.machine.receive(&asked, now), Ok(()));
    };
    ask(&mut writer, 0, 1, [100, 200], 10);
    ask(&mut writer, 1, 1, [100, 200], 10);
    assert_eq!(data(&sent(&mut writer, 10)), [100], "two ask before it is sent");
    ask(&mut writer, 2, 1, [100, 200], 20);
    assert_eq!(data(&sent(&mut writer, 20)), [], "it is under way");
    ask(&mut writer, 2, 2, [50, 250], 30);
    assert_eq!(data(&sent(&mut writer, 30)), [50, 200], "only what is not");
    let later = 30 + config.timing.linger;
    ask(&mut writer, 2, 3, [100, 200], later);
    assert_eq!(data(&sent(&mut writer, later)), [100], "it must have been lost");
}

/// A writer would live on the regular statuses else, some 20 ms apart.
#[test]
fn a_reader_tells_what_the_writer_waits_for_at_once() {
    let config = config(1);
    let mut out = vec![0; config.datagram];
    let mut reader = Receiving::new(&config, 0);
    let mut said = |reader: &mut Receiving| {
        let said = reader.machine.next(1, &mut out).map(|outgoing| outgoing.len);
        assert_eq!(reader.machine.next(1, &mut out), None, "once");
        said.map(|_| wire::kind(&out))
    };
    // The first one says that it is there.
    said(&mut reader);
    let (quarter, eighth) = (config.window / 4, config.capacity / 8);
    let get = |reader: &mut Receiving, from: u64, to: u64| {
        for at in from..to {
            assert_eq!(reader.receive(&forge(&config, 1, at, &[common::byte(at)]), 1), Ok(()));
        }
    };
    get(&mut reader, 0, quarter - 1);
    assert_eq!(said(&mut reader), None);
    get(&mut reader, quarter - 1, quarter);
    assert_eq!(said(&mut reader), Some(STATUS), "a quarter of the window");
    reader.machine.consume(eighth - 1);
    assert_eq!(said(&mut reader), None);
    reader.machine.consume(eighth);
    assert_eq!(said(&mut reader), Some(STATUS), "an eighth of the capacity");
}
