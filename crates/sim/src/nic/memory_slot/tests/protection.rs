//! What programs cannot do to each other, nor to the library.

use super::super::command::REGISTER;
use super::super::header::JOB;
use super::*;

/// LLCM without the mailboxes, which no program may read.
const PROGRAMS: u32 = (128 << 10) - 4096;

/// Whatever a program writes into a header: it does not get into the mailboxes of agents, and keeps
/// no promise that nobody made.
#[test]
fn forged_headers_are_dropped() {
    for group in [1, 7, JOB] {
        let mut bench = Bench::new("dimmnet-1/D", 2);
        for pe in 0..2 {
            bench.ask(pe, HostOp::Command(command::attach(group)));
        }
        let before = bench.seen(1, 0, PROGRAMS);
        for region in [u32::MAX, u32::MAX - 1] {
            let forged =
                Header { physical: false, promised: true, group, process: 1, region, ..seed(1, 0) };
            bench.command(0, command::block(&forged, Payload::copy(b"forged data")));
            let mapped = bench.ask(0, HostOp::Command(command::map(0, &forged)));
            if mapped.refused.is_none() {
                bench.command(0, command::kick(0, 8, Payload::word(8, 1)));
            }
            bench.settle();
        }
        assert!(bench.command(1, command::dropped(None)).value >= 2, "group {group}");
        assert!(bench.seen(1, 0, PROGRAMS) == before, "group {group}");
        // A promise that the NIC has not made is none that it keeps.
        bench.command(0, command::map(0, &Header { promised: true, ..seed(1, 0x2000) }));
        bench.command(0, command::kick(0, 0, Payload::word(8, 1)));
        bench.settle();
        assert_eq!(bench.seen(1, 0x2000, 1), [1]);
    }
}

#[test]
fn the_driver_refuses_what_is_not_the_programs() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    bench.command(0, command::attach(7));
    // The first page of LLCM is given to the library's first page.
    bench.ask(0, HostOp::Store { to: to(1, 8), word: Payload::word(8, 1) });
    let virtually = Header { physical: false, process: 1, region: 1, ..seed(1, 0) };
    let last_page = (128 << 10) - 4096;
    for (command, why) in [
        (command::map(0, &Header { group: 8, ..virtually }), "process group 8"),
        (command::map(0, &seed(1, 0x18)), "the library's"),
        (command::map(0, &seed(1, last_page)), "the library's"),
        (command::map(0, &seed(1, 128 << 10)), "has no page"),
        (command::map(0, &seed(1, 1 << 50)), "has no page"),
        (command::map(0, &seed(2, 0x2000)), "no node 2"),
        (command::register(7, 1, 1, 0, 1 << 50), "has no page"),
        (command::register(7, 1, 1, 0, u64::MAX), "has no page"),
        (command::register(7, 1, 1, 0, last_page / 4096), "the library's"),
        (command::register(JOB, 1, 1, 0, 5), "the library's"),
        (command::register(8, 1, 1, 0, 5), "process group 8"),
        (command::attach(JOB), "the library's"),
    ] {
        let refused = bench.ask(1, HostOp::Command(command::attach(7))).refused;
        assert_eq!(refused, None);
        let pe = u32::from(command.code == REGISTER);
        let refused = bench.ask(pe, HostOp::Command(command.clone())).refused;
        assert!(
            refused.as_ref().is_some_and(|said| said.contains(why)),
            "{command:?}: {refused:?}"
        );
    }
    bench.command(0, command::map(0, &virtually));
    bench.command(0, command::map(0, &seed(1, 0x2000)));
    bench.settle();
}

#[test]
fn what_fails_a_check_is_dropped_and_reported() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    bench.command(0, command::attach(7));
    for (group, process, page) in [(8, 41, 17), (7, 40, 16)] {
        bench.command(1, command::attach(group));
        bench.command(1, command::register(group, process, 2, 0, page));
    }
    let pages = |bench: &mut Bench| {
        let mut read = |group, page: u64| {
            bench.command(1, command::attach(group));
            bench.seen(1, page * 4096, 4096)
        };
        [read(8, 17), read(7, 16), read(7, 18)]
    };
    let before = pages(&mut bench);
    let good = Header { physical: false, process: 40, region: 2, ..seed(1, 100) };
    let bad = [
        (Refusal::Process, Header { process: 41, ..good }),
        (Refusal::Process, Header { process: 42, ..good }),
        (Refusal::Region, Header { region: 3, ..good }),
        (Refusal::Address, Header { address: 4096, ..good }),
        // Runs over the end of its page.
        (Refusal::Address, Header { address: 4095, ..good }),
    ];
    for (why, header) in bad {
        let (all, these) = (
            bench.command(1, command::dropped(None)).value,
            bench.command(1, command::dropped(Some(why))).value,
        );
        bench.command(0, command::block(&header, Payload::copy(b"evil")));
        bench.settle();
        assert_eq!(bench.command(1, command::dropped(None)).value, all + 1);
        assert_eq!(bench.command(1, command::dropped(Some(why))).value, these + 1, "{header:?}");
    }
    bench.command(0, command::attach(9));
    bench.command(0, command::block(&good, Payload::copy(b"evil")));
    bench.settle();
    assert_eq!(bench.command(1, command::dropped(Some(Refusal::Group))).value, 1);
    assert!(pages(&mut bench) == before, "memory is untouched");
    bench.command(0, command::attach(7));
    bench.command(0, command::block(&good, Payload::copy(b"good")));
    bench.settle();
    assert_eq!(bench.seen(1, 16 * 4096 + 100, 4), b"good");
}

#[test]
fn a_window_cannot_claim_another_group_or_a_physical_address() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    bench.command(0, command::attach(9));
    bench.command(1, command::attach(7));
    bench.command(1, command::register(7, 40, 2, 0, 16));
    let forged = Header { group: 7, process: 40, region: 2, ..seed(1, 0) };
    bench.command(0, command::block(&forged, Payload::copy(b"evil")));
    bench.command(0, command::block(&Header { physical: true, ..forged }, Payload::copy(b"evil")));
    bench.settle();
    assert_eq!(bench.command(1, command::dropped(Some(Refusal::Group))).value, 2);
    assert_eq!(bench.seen(1, 0, 4), [0; 4]);
    assert_eq!(bench.seen(1, 16 * 4096, 4), [0; 4]);
    for len in [0, 465] {
        let refused = bench
            .ask(0, HostOp::Command(command::block(&forged, Payload::copy(&vec![1; len]))))
            .refused;
        assert!(refused.unwrap().contains("1 to 464"));
    }
}

/// What the driver alone may do: a program's own load or store there faults, and changes nothing.
#[test]
fn a_program_that_does_the_drivers_work_itself_faults() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    bench.command(0, command::attach(7));
    bench.command(1, command::attach(7));
    bench.command(1, command::register(7, 40, 2, 0, 16));
    // A page of the library's segment in LLCM.
    bench.ask(0, HostOp::Store { to: to(1, 8), word: Payload::word(8, 1) });
    bench.settle();
    let word = Payload::word(8, 1);
    for (at, why) in [
        (command::CONTROL, "the driver's"),
        (command::CONTROL + 64, "the driver's"),
        (u64::MAX - 8, "the driver's"),
        (u64::from(PROGRAMS), "the library's"),
        (u64::from(PROGRAMS) + 4088, "the library's"),
        (0, "the library's"),
        (4096 - 8, "the library's"),
        (128 << 10, "no 8 bytes"),
    ] {
        for what in [
            command::write(at, word.clone()),
            command::read(at, 8, Looks::Words),
            command::wait(at, 8, 1, 1, Looks::Words),
        ] {
            let refused = bench.ask(1, HostOp::Command(what.clone())).refused;
            assert!(
                refused.as_ref().is_some_and(|said| said.contains(why)),
                "{what:?}: {refused:?}"
            );
        }
    }
    assert_eq!(bench.segment(1)[8], 1);
    // A page that a program writes is its own: the library puts its segments elsewhere.
    bench.command(1, command::write(4096, word));
    bench.ask(0, HostOp::Store { to: to(1, 4096), word: Payload::word(8, 77) });
    bench.settle();
    assert_eq!(bench.command(1, command::read(4096, 8, Looks::Words)).value, 1);
    assert_eq!(bench.segment(1)[4096], 77);
    // Remote DMA reads no page of the library's either.
    bench.ask(0, put(0, &[5; 60_000]));
    let header = Header { process: 1, region: 1, ..seed(0, 0) };
    let refused = bench.ask(1, HostOp::Command(command::dma(&header, 0, 8))).refused;
    assert!(refused.is_some_and(|said| said.contains("the library's")));
}

/// The library's stores and a program's go by the same kick pages. Neither takes the other's.
#[test]
fn kick_pages_of_a_program_are_none_of_the_librarys() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    let store = |offset, value| HostOp::Store { to: to(1, offset), word: Payload::word(8, value) };
    bench.ask(0, store(8, 1));
    for page in 0..3 {
        bench.command(0, command::map(page, &seed(1, 0x10_000 + 4096 * u64::from(page))));
    }
    for (offset, value) in [(8, 2), (4096, 3), (8192, 4), (8, 5)] {
        bench.ask(0, store(offset, value));
    }
    for page in 0..3 {
        bench.command(0, command::kick(page, 16, Payload::word(8, 100 + u64::from(page))));
    }
    bench.settle();
    let segment = bench.segment(1);
    assert_eq!([8, 4096, 8192].map(|offset| segment[offset]), [5, 3, 4]);
    bench.command(1, command::attach(0));
    for page in 0..3 {
        let at = 0x10_000 + 4096 * page;
        assert_eq!(bench.command(1, command::read(at, 8, Looks::Words)).value, 0);
        assert_eq!(bench.command(1, command::read(at + 16, 8, Looks::Words)).value, 100 + page);
    }
}
