//! What comes on a stream is not believed, and may come in any pieces.

mod common;

use common::{Dice, Memory, give, take};
use memonet_core::SignalOp;
use memonet_core::unstable::shm::AtomicOp;
use memonet_tcp::wire::{Bad, HEADER, Header, Kind, Link, Place, Role};
use proptest::prelude::*;
use std::collections::VecDeque;

const BYTES: usize = 512;

/// PE 1's end, with the hello of PE 0.
fn greeted(memory: &Memory) -> Link {
    let (mut link, mut peer) = (Link::new(1, 0, Role::Accepted), Link::new(0, 1, Role::Accepted));
    let mut stream = VecDeque::new();
    take(&mut peer, usize::MAX, &mut stream);
    give(&mut link, &mut stream, usize::MAX, memory).unwrap();
    link
}

/// What requests of a link are answered with, and what lies beside.
struct Answers(Box<[u8; 96]>);

impl Answers {
    /// A get and an update wait for an answer.
    fn of(link: &mut Link) -> Self {
        let mut bytes = Box::new([0xEE; 96]);
        let start = bytes.as_mut_ptr();
        let at = Place { region: 0, offset: 0 };
        // SAFETY: the caller keeps the box for as long as the link.
        unsafe {
            link.get(at, start.add(16), 32);
            link.update(at, 8, AtomicOp::Add, 1, start.add(64).cast());
        }
        Answers(bytes)
    }

    fn check(&self) {
        let beside = [0..16, 48..64, 72..96];
        assert!(beside.into_iter().all(|part| self.0[part].iter().all(|&byte| byte == 0xEE)));
    }
}

/// Headers that are nearly right.
fn header() -> impl Strategy<Value = Header> {
    let kinds = [
        Kind::Hello,
        Kind::Store,
        Kind::Apply,
        Kind::Put,
        Kind::Get,
        Kind::Update,
        Kind::CompareSwap,
        Kind::Flush,
        Kind::Ack,
        Kind::Data,
        Kind::Word,
        Kind::Close,
        Kind::Refused,
    ];
    let offset = prop_oneof![0..BYTES as u64 + 20, any::<u64>()];
    let value = prop_oneof![0..BYTES as u64 + 20, any::<u64>()];
    let aux = prop_oneof![Just(1), Just(2), Just(4), Just(8), any::<u8>()];
    let region = prop_oneof![Just(0), Just(2), any::<u16>()];
    let pe = prop_oneof![9 => Just(1u32), 1 => any::<u32>()];
    (proptest::sample::select(kinds.to_vec()), aux, region, pe, offset, value).prop_map(
        |(kind, aux, region, pe, offset, value)| Header { kind, aux, region, pe, offset, value },
    )
}

fn all(memory: &Memory) -> Vec<u8> {
    memory.read(0, BYTES)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_do_no_harm(bytes: Vec<u8>, said_hello: bool, part in 1usize..100) {
        let memory = Memory::new(BYTES);
        let mut link =
            if said_hello { greeted(&memory) } else { Link::new(1, 0, Role::Asked) };
        let answers = Answers::of(&mut link);
        let mut stream = VecDeque::from(bytes);
        while !stream.is_empty() && give(&mut link, &mut stream, part, &memory).is_ok() {}
        memory.check();
        answers.check();
    }

    #[test]
    fn a_record_that_is_wrong_has_written_nothing(
        records in proptest::collection::vec((header(), 0usize..60), 1..12),
    ) {
        let memory = Memory::new(BYTES);
        let mut link = greeted(&memory);
        let answers = Answers::of(&mut link);
        for (header, payload) in records {
            let before = all(&memory);
            let was_in_payload = link.direct().is_some();
            let mut stream = VecDeque::from(header.to_bytes().to_vec());
            stream.extend(std::iter::repeat_n(0x77, payload));
            let parts = stream.len();
            // The first bytes alone, as what follows may be another record, and right.
            let first = give(&mut link, &mut stream, HEADER, &memory);
            if first.is_err() {
                prop_assert!(was_in_payload || all(&memory) == before, "{header:?}");
                break;
            }
            if give(&mut link, &mut stream, parts, &memory).is_err() {
                break;
            }
        }
        memory.check();
        answers.check();
    }

    #[test]
    fn any_parts_give_the_same(
        ops in proptest::collection::vec((0u8..7, 0usize..400, 0usize..100, any::<u64>()), 1..30),
        cuts in proptest::collection::vec(1usize..80, 1..20),
    ) {
        let whole = in_parts(&ops, &[usize::MAX]);
        prop_assert_eq!(whole, in_parts(&ops, &cuts));
    }
}

/// Streams of right records in which bytes were changed, swapped and lost; as many records as
/// `MEMONET_TEST_RECORDS` says.
#[test]
fn garbled_records_do_no_harm() {
    let count = std::env::var("MEMONET_TEST_RECORDS").ok();
    let count: u64 = count.map_or(50_000, |count| count.parse().expect("a number"));
    let mut dice = Dice(11);
    let source = [7u8; 64];
    for _ in 0..count.div_ceil(10) {
        let memory = Memory::new(BYTES);
        let (mut here, mut there) = (Link::new(0, 1, Role::Accepted), greeted(&memory));
        let answers = Answers::of(&mut there);
        for _ in 0..10 {
            let place = Place { region: 0, offset: dice.below(BYTES / 8) as u64 * 8 };
            let value = dice.below(1 << 30) as u64;
            match dice.below(3) {
                0 => here.store(place, 8, value),
                1 => here.signal(place, SignalOp::Add, value),
                // SAFETY: the source outlives the link.
                _ => _ = unsafe { here.put(place, source.as_ptr(), dice.below(64)) },
            }
        }
        let mut stream = VecDeque::new();
        while take(&mut here, usize::MAX, &mut stream) > 0 {}
        // Behind the hello, which was heard.
        let mut bytes = Vec::from(stream).split_off(HEADER);
        for _ in 0..=dice.below(4) {
            let at = dice.below(bytes.len());
            match dice.below(4) {
                0 => bytes[at] = dice.below(256) as u8,
                1 => bytes[at] ^= 1 << dice.below(8),
                2 => bytes.swap(at, dice.below(at + 1)),
                _ => drop(bytes.drain(at..at + dice.below(bytes.len() - at).min(30))),
            }
            if bytes.is_empty() {
                break;
            }
        }
        let (mut stream, part) = (VecDeque::from(bytes), 1 + dice.below(100));
        while !stream.is_empty() && give(&mut there, &mut stream, part, &memory).is_ok() {}
        memory.check();
        answers.check();
    }
}

/// What PE 1's memory holds, and what it answers, after PE 0 has done all that, and its stream has
/// come in such parts.
fn in_parts(ops: &[(u8, usize, usize, u64)], cuts: &[usize]) -> (Vec<u8>, Vec<u8>) {
    let memory = Memory::new(BYTES);
    let (mut here, mut there) = (Link::new(0, 1, Role::Accepted), Link::new(1, 0, Role::Accepted));
    let source: Vec<u8> = (0..100).collect();
    let mut answer = [0u8; 100];
    for &(op, offset, len, value) in ops {
        let (word, block) = (
            Place { region: 0, offset: offset as u64 & !7 },
            Place { region: 0, offset: offset as u64 },
        );
        let into = answer.as_mut_ptr();
        // SAFETY: the source and the room for answers are this function's, which never answers.
        unsafe {
            match op {
                0 => here.store(word, 8, value),
                1 => _ = here.put(block, source.as_ptr(), len),
                2 => _ = here.get(block, into, len),
                3 => _ = here.update(word, 8, AtomicOp::Xor, value, into.cast()),
                4 => _ = here.compare_swap(word, 4, value & 0xFF, 7, into.cast()),
                5 => here.signal(word, SignalOp::Add, value),
                _ => here.store(Place { region: 2, offset: 8 }, 2, value & 0xFFFF),
            }
        }
    }
    let (mut stream, mut answers) = (VecDeque::new(), VecDeque::new());
    while take(&mut here, usize::MAX, &mut stream) > 0 {}
    for &cut in cuts.iter().cycle() {
        if stream.is_empty() {
            break;
        }
        give(&mut there, &mut stream, cut, &memory).expect("what can be");
        // An answer is of the memory of its moment: it is taken before anything else comes.
        while take(&mut there, usize::MAX, &mut answers) > 0 {}
    }
    memory.check();
    (all(&memory), answers.into())
}

#[test]
fn each_mistake_has_its_name() {
    let right = Header { kind: Kind::Store, aux: 8, region: 0, pe: 1, offset: 0, value: 0 };
    let cases = [
        (Header { kind: Kind::Hello, ..right }, Bad::Time(Kind::Hello)),
        (Header { pe: 2, ..right }, Bad::Pe(Kind::Store, 2)),
        (Header { offset: BYTES as u64, ..right }, Bad::Range(Kind::Store, BYTES as u64, 8)),
        (Header { offset: 4, ..right }, Bad::Word(Kind::Store, 4, 8)),
        (Header { aux: 3, ..right }, Bad::Word(Kind::Store, 0, 3)),
        (Header { kind: Kind::Update, aux: 2, ..right }, Bad::Word(Kind::Update, 0, 2)),
        (Header { kind: Kind::Put, value: u64::MAX, ..right }, Bad::Range(Kind::Put, 0, u64::MAX)),
        (Header { kind: Kind::Ack, value: 1, ..right }, Bad::Ack(1)),
        (Header { kind: Kind::Data, ..right }, Bad::Answer(Kind::Data)),
        (Header { kind: Kind::Word, ..right }, Bad::Answer(Kind::Word)),
    ];
    for (header, bad) in cases {
        let memory = Memory::new(BYTES);
        let mut stream = VecDeque::from(header.to_bytes().to_vec());
        let said = give(&mut greeted(&memory), &mut stream, HEADER, &memory);
        assert_eq!(said.unwrap_err(), bad, "{header:?}");
    }
    let mut unknown = VecDeque::from(vec![99; HEADER]);
    let memory = Memory::new(BYTES);
    let said = give(&mut greeted(&memory), &mut unknown, HEADER, &memory);
    assert_eq!(said.unwrap_err(), Bad::Kind(99));
}

/// A peer that asks, and takes no answers, is stopped.
#[test]
fn answers_without_end_are_refused() {
    let memory = Memory::new(BYTES);
    let mut link = greeted(&memory);
    let get = Header { kind: Kind::Get, aux: 0, region: 0, pe: 1, offset: 0, value: 500 };
    let said = (0..10_000).find_map(|_| {
        let mut stream = VecDeque::from(get.to_bytes().to_vec());
        give(&mut link, &mut stream, HEADER, &memory).err()
    });
    assert_eq!(said, Some(Bad::Requests));
    assert!(link.buffered() < 1 << 20);
}

/// All that is to be sent goes to the other end.
fn carry(from: &mut Link, to: &mut Link, home: &Memory) {
    let mut stream = VecDeque::new();
    while take(from, usize::MAX, &mut stream) > 0 {}
    give(to, &mut stream, usize::MAX, home).unwrap();
}

/// What a home does not allow changes nothing, is refused, and harms nothing else.
#[test]
fn what_is_not_allowed_is_refused() {
    let (mine, theirs) = (Memory::new(BYTES), Memory::new(BYTES));
    let (mut here, mut there) = (Link::new(0, 1, Role::Accepted), Link::new(1, 0, Role::Accepted));
    carry(&mut there, &mut here, &mine);
    let (closed, open) = (Place { region: 1, offset: 0 }, Place { region: 0, offset: 0 });
    let source = [7u8; 5000];
    let mut answers = [3u64; 3];
    let into = answers.as_mut_ptr();
    here.store(closed, 8, 1);
    // SAFETY: source and answers live as long as the links.
    let tickets = unsafe {
        here.put(closed, source.as_ptr(), source.len());
        [
            here.get(closed, into.cast(), 8),
            here.update(closed, 8, AtomicOp::Add, 1, into.add(1)),
            here.get(open, into.add(2).cast(), 8),
        ]
    };
    here.signal(open, SignalOp::Add, 5);
    here.flush();
    carry(&mut here, &mut there, &theirs);
    carry(&mut there, &mut here, &mine);
    assert_eq!(tickets.map(|ticket| here.was_refused(ticket)), [true, true, false]);
    assert!(here.was_write_refused() && !here.was_write_refused() && here.is_idle());
    assert_eq!((answers, theirs.word(0)), ([3, 3, 0], 5));
    theirs.check();
}

/// What acknowledges a write that was refused comes behind the refusal: a quiet that it completes
/// knows.
#[test]
fn a_refusal_comes_before_what_acknowledges_it() {
    let (mine, theirs) = (Memory::new(BYTES), Memory::new(BYTES));
    let (closed, open) = (Place { region: 1, offset: 0 }, Place { region: 0, offset: 0 });
    let mut answer = [0u64; 2];
    let into = answer.as_mut_ptr();
    type Ask<'a> = &'a dyn Fn(&mut Link);
    // SAFETY: the answer lives as long as the links.
    let asks: [(Ask<'_>, Kind); 3] = unsafe {
        [
            (&|link| _ = link.update(open, 8, AtomicOp::Add, 1, into), Kind::Word),
            (&|link| _ = link.get(open, into.cast(), 8), Kind::Data),
            (&|link| _ = link.get(closed, into.cast(), 8), Kind::Refused),
        ]
    };
    for (ask, kind) in asks {
        let mut here = Link::new(0, 1, Role::Accepted);
        let mut there = Link::new(1, 0, Role::Accepted);
        carry(&mut there, &mut here, &mine);
        here.store(closed, 8, 1);
        ask(&mut here);
        carry(&mut here, &mut there, &theirs);
        let mut stream = VecDeque::new();
        while take(&mut there, usize::MAX, &mut stream) > 0 {}
        let bytes = stream.make_contiguous();
        let header = |nth| Header::from_bytes(bytes[nth * HEADER..].first_chunk().unwrap());
        let (first, second) = (header(0).unwrap(), header(1).unwrap());
        assert_eq!((first.kind, first.aux, second.kind), (Kind::Refused, 0, kind));
    }
}

/// Memory beside a block that is to be sent is not the block's.
#[test]
fn neighbours_of_a_block_may_go() {
    const LEN: usize = 64 << 10;
    let source = vec![7u8; 3 * LEN];
    let mut link = Link::new(0, 1, Role::Accepted);
    // SAFETY: the source outlives the link.
    unsafe { link.put(Place { region: 0, offset: 0 }, source[LEN..].as_ptr(), LEN) };
    assert!(!link.withdraw(source.as_ptr(), LEN), "below");
    assert!(!link.withdraw(source[2 * LEN..].as_ptr(), LEN), "above");
    assert!(link.withdraw(source.as_ptr(), LEN + 1));
    assert!(link.withdraw(source[2 * LEN - 1..].as_ptr(), LEN));
}
