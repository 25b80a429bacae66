//! Any datagram whatever: what is not of the channel changes nothing, what is forged crashes
//! nothing.
//!
//! `REPAIR_FUZZ=10000000 cargo test --release -p memonet-repair --test fuzz` runs so many of each.

mod common;

use common::{Dice, Faults, Network, Receiving, Sending, config, damage};
use memonet_repair::{Config, Refused, wire};
use proptest::prelude::*;

fn rounds() -> u64 {
    let many = std::env::var("REPAIR_FUZZ").ok().and_then(|text| text.parse().ok());
    many.unwrap_or(if cfg!(debug_assertions) { 30_000 } else { 500_000 })
}

/// A channel in the midst of its work, with gaps, and datagrams of all kinds that it has sent.
fn busy(config: &Config, seed: u64) -> (Sending, Vec<Receiving>, Vec<Vec<u8>>, u64) {
    let mut writer = Sending::new(config);
    let mut readers: Vec<_> =
        (0..config.readers).map(|number| Receiving::new(config, number)).collect();
    let faults = Faults { loss: 300, delay: (10_000, 100_000), ..Faults::default() };
    let mut network = Network::new(readers.len() + 1, seed, faults);
    let (mut dice, mut now, mut out, mut sent) =
        (Dice(seed), 0, vec![0; config.datagram], Vec::new());
    for _ in 0..400 {
        writer.write(dice.below(400));
        while let Some((end, datagram)) = network.take(now) {
            let _refused = match end {
                0 => writer.machine.receive(&datagram, now),
                reader => readers[reader - 1].receive(&datagram, now),
            };
        }
        while let Some(outgoing) = writer.machine.next(now, &writer.log, &mut out) {
            network.send(now, 0, outgoing.to, &out[..outgoing.len]);
            sent.push(out[..outgoing.len].to_vec());
        }
        for (number, reader) in readers.iter_mut().enumerate() {
            reader.check();
            reader.machine.consume(reader.checked);
            while let Some(outgoing) = reader.machine.next(now, &mut out) {
                network.send(now, number + 1, outgoing.to, &out[..outgoing.len]);
                sent.push(out[..outgoing.len].to_vec());
            }
        }
        now += dice.below(60_000);
    }
    writer.machine.drop_reader(config.readers - 1);
    while let Some(outgoing) = writer.machine.next(now, &writer.log, &mut out) {
        sent.push(out[..outgoing.len].to_vec());
    }
    (writer, readers, sent, now)
}

/// Kinds of datagrams.
fn kinds(sent: &[Vec<u8>]) -> std::collections::BTreeSet<u8> {
    sent.iter().map(|datagram| wire::kind(datagram)).collect()
}

#[test]
fn damaged_datagrams_change_nothing() {
    let config = config(3);
    let (writer, readers, sent, now) = busy(&config, 1);
    assert_eq!(kinds(&sent).len(), 5, "there are some of each kind");
    let (mut tried_writer, mut tried_readers) = (writer.clone(), readers.clone());
    let mut dice = Dice(2);
    for round in 0..rounds() {
        let mut datagram = match dice.below(4) {
            0 => (0..dice.below(300)).map(|_| dice.roll() as u8).collect(),
            _ => sent[dice.below(sent.len() as u64) as usize].clone(),
        };
        let whole = datagram.clone();
        damage(&mut dice, &mut datagram);
        if datagram == whole {
            continue;
        }
        assert!(tried_writer.machine.receive(&datagram, now + 1).is_err());
        for reader in &mut tried_readers {
            assert!(reader.receive(&datagram, now + 1).is_err());
        }
        if round % 256 == 0 {
            assert!(tried_writer == writer && tried_readers == readers, "round {round}");
        }
    }
    assert!(tried_writer == writer && tried_readers == readers);
}

#[test]
fn forged_datagrams_crash_nothing() {
    let config = config(3);
    let (first_writer, first_readers, sent, now) = busy(&config, 3);
    let (mut writer, mut readers) = (first_writer.clone(), first_readers.clone());
    let (mut dice, mut out, mut taken) = (Dice(4), vec![0; config.datagram], 0u64);
    for round in 0..rounds() {
        let mut datagram = sent[dice.below(sent.len() as u64) as usize].clone();
        match dice.below(3) {
            0 => damage(&mut dice, &mut datagram),
            1 => {
                // A number somewhere that is as large, or as likely, as can be: behind the header,
                // and perhaps a reader's number.
                let fields = (datagram.len() as u64 - wire::HEADER as u64).div_ceil(8);
                let at =
                    wire::HEADER + 8 * dice.below(fields) as usize + [0, 2][dice.below(2) as usize];
                let at = at.min(datagram.len() - 8);
                let number = [
                    0,
                    1,
                    u64::MAX,
                    u64::MAX / 2,
                    dice.below(1 << 20),
                    writer.end,
                    writer.machine.limit(),
                ];
                datagram[at..at + 8].copy_from_slice(&number[dice.below(7) as usize].to_le_bytes());
            }
            _ => {
                datagram[wire::HEADER - 5] = dice.below(7) as u8;
                datagram[wire::HEADER] = dice.below(5) as u8;
            }
        }
        if let Some(low) = datagram.get(8..wire::HEADER) {
            let low = u32::from_le_bytes(low.try_into().expect("four bytes"));
            let place = match dice.below(8) {
                0 => dice.roll(),
                1 => dice.below(1 << 20),
                _ => low.into(),
            };
            wire::seal(&config, place, &mut datagram);
        }
        taken += u64::from(writer.machine.receive(&datagram, now + round).is_ok());
        for reader in &mut readers {
            taken += u64::from(reader.receive(&datagram, now + round).is_ok());
            let (consumed, received) = (reader.machine.consumed(), reader.machine.received());
            assert!(consumed <= received && received <= consumed + config.capacity);
            if dice.happens(10) {
                reader.machine.consume(received);
            }
            let mut said = 0;
            while reader.machine.next(now + round, &mut out).is_some() {
                said += 1;
                assert!(said < 10, "a storm");
            }
        }
        writer.write(dice.below(10));
        while writer.machine.next(now + round, &writer.log, &mut out).is_some() {}
        // Anew now and then: a forged position far ahead ends all that can be forged.
        if round % 1000 == 0 {
            (writer, readers) = (first_writer.clone(), first_readers.clone());
        }
    }
    assert!(taken > rounds() / 100, "forged well enough to be taken: {taken}");
}

/// All that was ever sent, sent again, to ends that have moved on.
#[test]
fn replays_change_nothing() {
    let config = config(2);
    for seed in 0..20 {
        let (mut writer, mut readers, sent, now) = busy(&config, seed);
        // All that is under way arrives.
        let (mut out, mut all) = (vec![0; config.datagram], sent);
        let mut time = now;
        while readers[0].machine.received() < writer.end
            || !writer.machine.is_complete()
            || !readers[1].machine.is_dropped()
        {
            time = time.max(writer.machine.deadline()).max(readers[0].machine.deadline());
            let mut post = Vec::new();
            while let Some(outgoing) = writer.machine.next(time, &writer.log, &mut out) {
                post.push(out[..outgoing.len].to_vec());
            }
            for reader in &mut readers {
                while let Some(outgoing) = reader.machine.next(time, &mut out) {
                    post.push(out[..outgoing.len].to_vec());
                }
            }
            for datagram in &post {
                // Their own come back to them, too.
                let _refused = writer.machine.receive(datagram, time);
                for reader in &mut readers {
                    let _refused = reader.receive(datagram, time);
                    reader.check();
                    reader.machine.consume(reader.checked);
                }
            }
            all.extend(post);
        }
        let live = &mut readers[0];
        // Some were lost on their way here, and are news.
        for datagram in &all {
            let _refused = (writer.machine.receive(datagram, time), live.receive(datagram, time));
        }
        let before = (writer.machine.clone(), live.clone());
        for datagram in &all {
            let refused = writer.machine.receive(datagram, time);
            assert!(
                matches!(refused, Err(Refused::Old | Refused::Sender | Refused::Dropped)),
                "{refused:?}"
            );
            // Byes to others are nothing to it.
            let refused = live.receive(datagram, time);
            let bye = wire::kind(datagram) == 5;
            assert!(
                matches!(refused, Err(Refused::Old | Refused::Sender)) || bye && refused == Ok(()),
                "{refused:?}"
            );
        }
        assert!((writer.machine.clone(), live.clone()) == before, "seed {seed}");
    }
}

#[test]
fn others_datagrams_are_refused() {
    let config = config(2);
    let (mut writer, mut readers, sent, now) = busy(&config, 11);
    let (first_writer, first_readers) = (writer.clone(), readers.clone());
    let others = [
        Config { job: config.job + 1, ..config },
        Config { channel: config.channel + 1, ..config },
        Config { epoch: config.epoch - 1, ..config },
    ];
    // Of another, or not for this end.
    let refused = |result| matches!(result, Err(Refused::Checksum | Refused::Sender));
    for other in others {
        let (_, _, theirs, _) = busy(&other, 12);
        for datagram in &theirs {
            assert!(refused(writer.machine.receive(datagram, now)));
            assert!(readers.iter_mut().all(|reader| refused(reader.receive(datagram, now))));
        }
    }
    for datagram in &sent {
        assert!(refused(writer.machine.receive(&datagram[..datagram.len() - 1], now)));
        assert_eq!(
            writer.machine.receive(&datagram[..wire::HEADER - 1], now),
            Err(Refused::Foreign)
        );
    }
    assert!(writer == first_writer && readers == first_readers);
}

/// What was sent a turn of the low half ago looks like what is sent now, and is not taken for it.
#[test]
fn an_old_turn_is_refused() {
    let config = config(1);
    let mut reader = Receiving::new(&config, 0);
    let mut heartbeat = vec![0; wire::HEADER + 8];
    heartbeat[wire::HEADER - 5] = 2;
    for turn in [1u64, 2] {
        wire::seal(&config, 1 + turn * 2 * wire::MOST_APART, &mut heartbeat);
        assert_eq!(reader.receive(&heartbeat, 1), Err(Refused::Checksum));
    }
    wire::seal(&config, 1, &mut heartbeat);
    assert_eq!(reader.receive(&heartbeat, 1), Ok(()));
}

/// As many readers as numbers: the last one is heard.
#[test]
fn as_many_readers_as_numbers() {
    let config = config(u16::MAX);
    let last = u16::MAX - 1;
    let (mut writer, _) = (Sending::new(&config), Receiving::new(&config, last));
    let mut status = vec![0; wire::HEADER + 2 + 3 * 8];
    status[wire::HEADER - 5] = 3;
    status[wire::HEADER..][..2].copy_from_slice(&last.to_le_bytes());
    wire::seal(&config, 1, &mut status);
    assert_eq!(writer.machine.receive(&status, 1), Ok(()));
    assert_ne!(writer, Sending::new(&config));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_are_no_datagram(bytes in proptest::collection::vec(any::<u8>(), 0..2000), sealed: bool) {
        let config = config(2);
        let (mut writer, mut reader) = (Sending::new(&config), Receiving::new(&config, 1));
        let mut bytes = bytes;
        // Of no kind, but whole.
        if sealed && bytes.len() >= wire::HEADER {
            bytes[wire::HEADER - 5] |= 8;
            wire::seal(&config, 1, &mut bytes);
        }
        prop_assert!(writer.machine.receive(&bytes, 5).is_err() && reader.receive(&bytes, 5).is_err());
        prop_assert!(writer == Sending::new(&config) && reader == Receiving::new(&config, 1));
    }
}
