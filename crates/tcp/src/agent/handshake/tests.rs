use super::*;
use proptest::prelude::*;
use proptest::sample::Index;

const NODE_OF: [u32; 6] = [0, 1, 1, 2, 0, 2];
const JOB: [u8; 16] = [9; 16];

fn member(node: u32) -> Member {
    Member::new(&Secret::from_bytes([3; 32]), JOB, node, &NODE_OF)
}

/// From PE 0 of node 0 to PE 1 of node 1.
const LINK: Link = Link { from_node: 0, to_node: 1, from_pe: 0, to_pe: 1 };

/// Number `n` of the nonces of a test.
fn nonce(n: u64) -> Nonce {
    let mut nonce = [0x5a; NONCE];
    nonce[..8].copy_from_slice(&n.to_le_bytes());
    nonce
}

/// The four messages of a handshake with these nonces.
fn messages(link: &Link, from: u64, to: u64) -> [Vec<u8>; 4] {
    let (a, b) = (member(link.from_node), member(link.to_node));
    let (mut connecting, hello) = Connecting::new(&a, link, &nonce(from));
    let mut accepting = Accepting::new(&nonce(to));
    let challenge = sent(accepting.receive(&b, &hello));
    let proof = sent(connecting.receive(&a, &challenge));
    assert_eq!(accepting.receive(&b, &proof), Ok(Step::Asked(*link)));
    let answer = accepting.answer(&b, Answer::Taken);
    assert_eq!(connecting.receive(&a, &answer), Ok(Step::Answered(Answer::Taken)));
    [hello, challenge, proof, answer]
}

fn sent(step: Result<Step, Refused>) -> Vec<u8> {
    match step {
        Ok(Step::Send(bytes)) => bytes,
        other => panic!("nothing to send: {other:?}"),
    }
}

fn accept(bytes: [&[u8]; 2]) -> Result<Step, Refused> {
    let (b, mut accepting) = (member(1), Accepting::new(&nonce(2)));
    accepting.receive(&b, bytes[0])?;
    accepting.receive(&b, bytes[1])
}

fn connect(bytes: [&[u8]; 2]) -> Result<Step, Refused> {
    let a = member(0);
    let (mut connecting, _) = Connecting::new(&a, &LINK, &nonce(1));
    connecting.receive(&a, bytes[0])?;
    connecting.receive(&a, bytes[1])
}

#[test]
fn both_ends_prove_themselves() {
    let [hello, challenge, proof, answer] = messages(&LINK, 1, 2);
    assert_eq!([&hello, &challenge, &proof, &answer].map(Vec::len), [108, 64, 32, 36]);
    assert_eq!(accept([&hello, &proof]), Ok(Step::Asked(LINK)));
    assert_eq!(connect([&challenge, &answer]), Ok(Step::Answered(Answer::Taken)));
}

#[test]
fn every_answer_arrives() {
    let [hello, challenge, proof, _] = messages(&LINK, 1, 2);
    let mut accepting = Accepting::new(&nonce(2));
    let b = member(1);
    accepting.receive(&b, &hello).unwrap();
    accepting.receive(&b, &proof).unwrap();
    for answer in Answer::ALL {
        let bytes = accepting.answer(&b, answer);
        assert_eq!(connect([&challenge, &bytes]), Ok(Step::Answered(answer)));
    }
}

/// A keyed state is made of states of the hash, which are cleared as the secret is.
#[test]
fn keys_are_cleared() {
    fn is_cleared<T: zeroize::ZeroizeOnDrop>() {}
    is_cleared::<Sha256>();
}

/// Each bit of each message matters.
#[test]
fn no_bit_may_flip() {
    let messages = messages(&LINK, 1, 2);
    for (number, message) in messages.iter().enumerate() {
        for bit in 0..8 * message.len() {
            let mut wrong = messages.clone();
            wrong[number][bit / 8] ^= 1 << (bit % 8);
            let [hello, challenge, proof, answer] = &wrong;
            let refused =
                if number % 2 == 0 { accept([hello, proof]) } else { connect([challenge, answer]) };
            assert!(refused.is_err(), "bit {bit} of message {number}");
        }
    }
}

#[test]
fn what_differs_is_named() {
    let hello = |job, secret: u8, node_of: &[u32]| {
        let other = Member::new(&Secret::from_bytes([secret; 32]), job, 0, node_of);
        Connecting::new(&other, &LINK, &nonce(1)).1
    };
    let refused = |hello: &[u8]| Accepting::new(&nonce(2)).receive(&member(1), hello).unwrap_err();
    assert_eq!(refused(&hello(JOB, 4, &NODE_OF)), Refused::Unproved);
    assert_eq!(refused(&hello([8; 16], 3, &NODE_OF)), Refused::Job);
    let mut other = hello(JOB, 3, &NODE_OF);
    other[8] = 2;
    assert_eq!(refused(&other), Refused::Version(2));
    assert_eq!(refused(&[b'G'; HELLO]), Refused::Stranger);
}

/// What an earlier handshake has said opens none.
#[test]
fn replays_are_refused() {
    let [hello, challenge, proof, answer] = messages(&LINK, 1, 7);
    assert_eq!(accept([&hello, &proof]), Err(Refused::Unproved));
    let [.., fresh, _, _] = &messages(&LINK, 1, 2);
    assert_eq!(connect([fresh, &answer]), Err(Refused::Unproved));
    let [_, old, ..] = messages(&LINK, 6, 2);
    assert_eq!(connect([&old, &answer]), Err(Refused::Unproved));
    assert_ne!(challenge, *fresh);
}

/// A node takes nothing that it has said itself, in whatever role.
#[test]
fn reflections_are_refused() {
    let [hello, challenge, proof, answer] = messages(&LINK, 1, 2);
    assert_eq!(connect([&hello[..CHALLENGE], &answer]), Err(Refused::Unproved));
    assert_eq!(Accepting::new(&nonce(3)).receive(&member(0), &hello), Err(Refused::Misdirected));
    for own in [&challenge[..PROOF], &challenge[NONCE..], &answer[4..]] {
        assert_eq!(accept([&hello, own]), Err(Refused::Unproved));
    }
    for own in [[&[1, 0, 0, 0], &proof[..]].concat(), [&[1, 0, 0, 0], &hello[76..]].concat()] {
        assert_eq!(connect([&challenge, &own]), Err(Refused::Unproved));
    }
}

#[test]
fn directions_nodes_and_pes_are_not_swapped() {
    let good = LINK;
    let links = [
        Link { from_node: 1, to_node: 0, ..good },
        Link { from_node: 1, to_node: 0, from_pe: 1, to_pe: 0 },
        Link { from_pe: 1, to_pe: 0, ..good },
        Link { from_pe: 3, ..good },
        Link { from_node: 2, ..good },
        Link { to_pe: 3, ..good },
        Link { to_node: 2, to_pe: 3, ..good },
        Link { from_pe: 6, ..good },
        Link { to_pe: u32::MAX, ..good },
        Link { from_node: 1, from_pe: 2, ..good },
    ];
    for link in links {
        let hello = Connecting::new(&member(0), &link, &nonce(1)).1;
        let refused = Accepting::new(&nonce(2)).receive(&member(1), &hello);
        assert_eq!(refused, Err(Refused::Misdirected), "{link:?}");
    }
}

#[test]
fn nothing_is_taken_after_the_end() {
    let [hello, _, proof, _] = messages(&LINK, 1, 2);
    let b = member(1);
    let mut accepting = Accepting::new(&nonce(2));
    for message in [&hello, &proof] {
        accepting.receive(&b, message).unwrap();
    }
    assert_eq!(accepting.missing(), 0);
    assert_eq!(accepting.receive(&b, &[0]), Err(Refused::OutOfStep));
    let mut refused = Accepting::new(&nonce(2));
    assert!(refused.receive(&b, &[0; HELLO]).is_err());
    assert_eq!(refused.receive(&b, &hello), Err(Refused::OutOfStep));
}

/// Random numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % below
    }

    /// Bytes of this length in place of a message: changed, of another message, or noise.
    fn garble(&mut self, message: &[u8], seen: &[[Vec<u8>; 4]]) -> Vec<u8> {
        let mut bytes = message.to_vec();
        match self.roll(4) {
            0 => bytes.iter_mut().for_each(|byte| *byte = self.roll(256) as u8),
            1 => {
                let other = &seen[self.roll(seen.len())][self.roll(4)];
                let from = self.roll(other.len());
                bytes.iter_mut().zip(&other[from..]).for_each(|(byte, other)| *byte = *other);
            }
            2 => bytes = seen[self.roll(seen.len())][self.roll(4)].clone(),
            _ => {
                for _ in 0..=self.roll(3) {
                    let at = self.roll(bytes.len());
                    bytes[at] ^= 1 << self.roll(8);
                }
            }
        }
        bytes
    }
}

/// Millions, where `MEMONET_TEST_HANDSHAKES` says so.
#[test]
fn garbled_messages_get_no_answer() {
    let count = std::env::var("MEMONET_TEST_HANDSHAKES").ok();
    let count: u64 = count.map_or(50_000, |count| count.parse().expect("a number"));
    let mut dice = Dice(7);
    let mut seen: Vec<_> = (10..30).map(|n| messages(&LINK, n, n + 50)).collect();
    let back = Link { from_node: 1, to_node: 0, from_pe: 1, to_pe: 0 };
    seen.extend((10..20).map(|n| messages(&back, n, n + 50)));
    let right = messages(&LINK, 1, 2);
    seen.push(right.clone());
    let [hello, challenge, proof, answer] = &right;
    let (a, b) = (member(0), member(1));
    let connecting = Connecting::new(&a, &LINK, &nonce(1)).0;
    let accepting = Accepting::new(&nonce(2));
    let (mut challenged, mut heard) = (connecting.clone(), accepting.clone());
    heard.receive(&b, hello).unwrap();
    challenged.receive(&a, challenge).unwrap();
    for number in 0..count {
        let message = [hello, challenge, proof, answer][number as usize % 4];
        let bytes = dice.garble(message, &seen);
        let step = match number % 4 {
            // Any hello of the job is answered, and opens nothing.
            0 if seen.iter().any(|[hello, ..]| *hello == bytes) => continue,
            _ if bytes == *message => continue,
            0 => accepting.clone().receive(&b, &bytes),
            1 => connecting.clone().receive(&a, &bytes),
            2 => heard.clone().receive(&b, &bytes),
            _ => challenged.clone().receive(&a, &bytes),
        };
        assert!(matches!(step, Ok(Step::More) | Err(_)), "{number}: {bytes:x?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    /// However a network cuts the messages, they say what they say, and no byte more is read.
    #[test]
    fn pieces_make_the_whole(cuts in prop::collection::vec(1..40usize, 1..20)) {
        let (a, b) = (member(0), member(1));
        let (mut connecting, hello) = Connecting::new(&a, &LINK, &nonce(1));
        let mut accepting = Accepting::new(&nonce(2));
        let mut cuts = cuts.iter().cycle();
        let mut to_b = hello;
        loop {
            let step = loop {
                let cut = (*cuts.next().unwrap()).min(accepting.missing());
                let piece: Vec<u8> = to_b.drain(..cut).collect();
                match accepting.receive(&b, &piece).unwrap() {
                    Step::More => {}
                    step => break step,
                }
            };
            prop_assert!(to_b.is_empty());
            let to_a = match step {
                Step::Asked(link) => {
                    prop_assert_eq!(link, LINK);
                    break;
                }
                step => sent(Ok(step)),
            };
            prop_assert_eq!(to_a.len(), connecting.missing());
            to_b = sent(connecting.receive(&a, &to_a));
        }
    }

    /// Garbled, cut, lengthened and mixed messages of real handshakes get nobody in.
    #[test]
    fn garbage_is_refused(
        from: [Index; 2],
        changes in prop::collection::vec((any::<Index>(), 1..=255u8), 1..4),
        cut in prop::option::of(any::<Index>()),
        noise in prop::collection::vec(any::<u8>(), 0..120),
        second: bool,
    ) {
        let seen = [messages(&LINK, 1, 7), messages(&LINK, 8, 2)].concat();
        let [hello, ..] = &messages(&LINK, 1, 2);
        let mut bytes = from.map(|index| index.get(&seen[..]).clone());
        for (at, change) in changes {
            let message = &mut bytes[usize::from(second)];
            let at = at.index(message.len());
            message[at] ^= change;
        }
        if let Some(cut) = cut {
            let at = cut.index(bytes[0].len());
            bytes[0].truncate(at);
        }
        let got_in = |step| matches!(step, Ok(Step::Asked(_) | Step::Answered(_)));
        for case in [[&bytes[0], &bytes[1]], [&noise, &bytes[0]], [hello, &bytes[0]], [hello, &noise]] {
            let case = case.map(|bytes| &bytes[..]);
            prop_assert!(!got_in(accept(case)), "{:?}", case);
            prop_assert!(!got_in(connect(case)), "{:?}", case);
        }
    }
}
