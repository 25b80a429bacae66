//! Agents of several nodes in one process, over loopback.

use super::handshake::{Connecting, Link, Member, Step};
use super::*;
use crate::broker::{Broker, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than anything takes that does not hang.
const PATIENCE: Duration = Duration::from_secs(30);

struct Cluster {
    boards: Vec<Switchboard>,
    addresses: Vec<SocketAddr>,
    jobs: Vec<Job>,
}

/// Nodes with so many PEs at an address; `change` may make a node know another job.
fn cluster_at(ip: &str, pes: &[u32], change: impl Fn(&mut Job)) -> Cluster {
    let options = Options { interface: Some(ip.into()), ..Options::default() };
    let listeners: Vec<_> = pes.iter().map(|_| Listener::bind(&options).unwrap()).collect();
    let node = |(number, (&pes, listener)): (usize, (&u32, &Listener))| NodeInfo {
        name: format!("host{number}"),
        addresses: listener.addresses().to_vec(),
        cpus: 1,
        pes,
    };
    let nodes: Vec<_> = pes.iter().zip(&listeners).enumerate().map(node).collect();
    let node_of = (0..).zip(pes).flat_map(|(node, &pes)| vec![node; pes as usize]).collect();
    let (id, secret) = (random().unwrap(), Secret::random().unwrap());
    let addresses = nodes.iter().map(|node| node.addresses[0]).collect();
    let job = Job { id, secret, node: 0, nodes, node_of, costs: None, provider: None };
    let job = |node| {
        let mut job = Job { node, ..job.clone() };
        change(&mut job);
        job
    };
    let jobs: Vec<_> = (0..pes.len() as u32).map(job).collect();
    let boards = listeners.into_iter().zip(&jobs);
    let boards = boards.map(|(listener, job)| Switchboard::start(listener, job.clone()).unwrap());
    Cluster { boards: boards.collect(), addresses, jobs }
}

fn cluster_with(pes: &[u32], change: impl Fn(&mut Job)) -> Cluster {
    cluster_at("127.0.0.1", pes, change)
}

fn cluster(pes: &[u32]) -> Cluster {
    cluster_with(pes, |_| {})
}

impl Cluster {
    fn pe(&mut self, pe: u32) -> AgentBroker {
        let node = self.jobs[0].node_of[pe as usize];
        AgentBroker::new(self.boards[node as usize].seat(pe).unwrap()).unwrap()
    }
}

/// An agent talks to other agents by the same port, and PEs do not take part in that.
#[test]
fn agents_have_streams_of_their_own() {
    let mut cluster = cluster(&[2, 1]);
    let of = |node| cluster.jobs[0].description().agent_of(node);
    let (first, second) = (of(0), of(1));
    let [a, b] = [first, second].map(|agent| {
        let node = (agent - first) as usize;
        AgentBroker::new(cluster.boards[node].seat(agent).unwrap()).unwrap()
    });
    b.connect(first).unwrap();
    assert!(matches!(event(&b), Event::Connected { pe, .. } if pe == first));
    assert!(matches!(event(&a), Event::Accepted { pe, .. } if pe == second));
    let pe = cluster.pe(0);
    for (broker, to) in [(&pe, second), (&a, 2)] {
        broker.connect(to).unwrap();
        assert!(refusal(broker, to).contains("there is no PE"));
    }
}

/// The agent learns which of its PEs has got no stream, and the PE that it has asked for, too: that
/// one makes the stream.
#[test]
fn a_pe_that_is_not_reached_is_told() {
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut cluster = cluster_with(&[1, 1], |job| {
        if job.node == 0 {
            job.nodes[1].addresses = vec![nowhere];
        }
    });
    let (a, b) = (cluster.pe(0), cluster.pe(1));
    a.connect(1).unwrap();
    assert!(refusal(&a, 1).contains("cannot be reached"));
    await_readable(cluster.boards[0].news());
    assert_eq!(cluster.boards[0].take_unreached(), [(0, 1)]);
    assert_eq!(cluster.boards[0].take_unreached(), []);
    // There is no such PE, or it is of another node.
    [(7, 1), (1, 0)].iter().for_each(|&(from, to)| cluster.boards[1].unreached(from, to));
    cluster.boards[1].unreached(0, 1);
    assert!(matches!(event(&b), Event::Unreached { pe: 0 }));
    connect(&b, &a);
    // An agent whose PE has gone tells of no pair.
    cluster.boards[0].departed(1);
    a.connect(1).unwrap();
    assert!(refusal(&a, 1).contains("left"));
    assert_eq!(cluster.boards[0].take_unreached(), []);
}

fn await_readable(fd: impl AsFd) {
    let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ready, 1, "nothing has come");
}

fn event(broker: &AgentBroker) -> Event {
    loop {
        await_readable(broker.fd());
        if let Some(event) = broker.next().unwrap() {
            return event;
        }
    }
}

fn refusal(broker: &AgentBroker, of: u32) -> String {
    match event(broker) {
        Event::Refused { pe, why } if pe == of => why,
        other => panic!("{other:?}"),
    }
}

fn stream(socket: OwnedFd) -> TcpStream {
    let flags = rustix::fs::fcntl_getfl(&socket).unwrap();
    assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
    let flags = rustix::io::fcntl_getfd(&socket).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    let stream = TcpStream::from(socket);
    assert!(stream.nodelay().unwrap());
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn connected(broker: &AgentBroker, to: u32) -> TcpStream {
    match event(broker) {
        Event::Connected { pe, socket } if pe == to => stream(socket),
        other => panic!("{other:?}"),
    }
}

fn accepted(broker: &AgentBroker, from: u32) -> TcpStream {
    match event(broker) {
        Event::Accepted { pe, socket } if pe == from => stream(socket),
        other => panic!("{other:?}"),
    }
}

fn carry(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8; 4]) {
    let mut got = [0; 4];
    from.write_all(bytes).unwrap();
    to.read_exact(&mut got).unwrap();
    assert_eq!(&got, bytes);
}

fn connect(a: &AgentBroker, b: &AgentBroker) -> (TcpStream, TcpStream) {
    a.connect(b.me()).unwrap();
    (connected(a, b.me()), accepted(b, a.me()))
}

#[test]
fn streams_carry_bytes_both_ways() {
    let mut cluster = cluster(&[2, 2]);
    let pes: Vec<_> = (0..4).map(|pe| cluster.pe(pe)).collect();
    for (me, pe) in (0..).zip(&pes) {
        assert_eq!(pe.me(), me);
        assert_eq!(pe.job(), &cluster.jobs[me as usize / 2].description());
        assert!(pe.record().is_mixed() && pe.record().are_near([2, 3]));
        assert!(!pe.record().are_near([1, 2]));
    }
    for (a, b) in [(0, 2), (0, 3), (1, 2), (3, 1), (2, 1)] {
        let (mut near, mut far) = connect(&pes[a], &pes[b]);
        carry(&mut near, &mut far, b"ping");
        carry(&mut far, &mut near, b"pong");
    }
}

/// Every PE asks for all others at once: each stream arrives, also where two cross.
#[test]
fn all_ask_for_all() {
    const PES: u32 = 4;
    let mut cluster = cluster(&[PES, PES, PES]);
    let pes: Vec<_> = (0..3 * PES).map(|pe| cluster.pe(pe)).collect();
    let ask = |broker: &AgentBroker| {
        let me = broker.me();
        let far: Vec<u32> = (0..3 * PES).filter(|pe| pe / PES != me / PES).collect();
        far.iter().for_each(|&pe| broker.connect(pe).unwrap());
        let (mut asked, mut came) = (vec![], vec![]);
        let mut streams = vec![];
        while asked.len() + came.len() < 2 * far.len() {
            match event(broker) {
                Event::Connected { pe, socket } => {
                    let mut stream = stream(socket);
                    stream.write_all(&me.to_ne_bytes()).unwrap();
                    streams.push((pe, stream));
                    asked.push(pe);
                }
                Event::Accepted { pe, socket } => {
                    streams.push((pe, stream(socket)));
                    came.push(pe);
                }
                other => panic!("{other:?}"),
            }
        }
        asked.sort_unstable();
        came.sort_unstable();
        assert_eq!((asked, came), (far.clone(), far));
        streams
    };
    let all: Vec<_> = std::thread::scope(|scope| {
        let asking: Vec<_> = pes.iter().map(|broker| scope.spawn(move || ask(broker))).collect();
        asking.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut heard = 0;
    for (pe, mut stream) in all.into_iter().flatten() {
        stream.set_nonblocking(true).unwrap();
        let mut bytes = [0; 4];
        // Nothing is said to the end that has asked.
        match stream.read_exact(&mut bytes) {
            Ok(()) => {
                assert_eq!(u32::from_ne_bytes(bytes), pe);
                heard += 1;
            }
            Err(e) => assert!(matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::UnexpectedEof)),
        }
    }
    assert_eq!(heard, 3 * PES * 2 * PES);
}

#[test]
fn what_no_stream_leads_to_is_refused() {
    let mut cluster = cluster(&[2, 1]);
    let pe = cluster.pe(0);
    // 3 is the number of node 0's agent.
    for (of, says) in [(3, "there is no PE 3: the job has 3"), (1, "PE 1 is on host0, as PE 0 is")]
    {
        pe.connect(of).unwrap();
        let why = refusal(&pe, of);
        assert!(why.contains(says), "{why}");
    }
    pe.connect(u32::MAX).unwrap();
    assert!(refusal(&pe, u32::MAX).contains("there is no PE"));
    assert!(cluster.boards[0].seat(2).is_err());
}

/// More answers than a channel holds wait for a PE that reads late.
#[test]
fn a_pe_may_read_late() {
    let mut cluster = cluster(&[1, 1]);
    let pe = cluster.pe(0);
    const ASKED: std::ops::Range<u32> = 1000..4000;
    ASKED.for_each(|other| pe.connect(other).unwrap());
    ASKED.for_each(|other| drop(refusal(&pe, other)));
    connect(&pe, &cluster.pe(1));
}

#[test]
fn a_stream_waits_for_a_pe_that_starts_later() {
    let mut cluster = cluster(&[1, 1]);
    let early = cluster.pe(0);
    early.connect(1).unwrap();
    let mut near = connected(&early, 1);
    near.write_all(b"here").unwrap();
    let late = cluster.pe(1);
    let mut got = [0; 4];
    accepted(&late, 0).read_exact(&mut got).unwrap();
    assert_eq!(&got, b"here");
}

#[test]
fn a_node_that_is_down_is_named() {
    let mut cluster = cluster(&[1, 1]);
    let pe = cluster.pe(0);
    drop(cluster.boards.pop());
    pe.connect(1).unwrap();
    let why = refusal(&pe, 1);
    let says = format!("PE 1 on host1 cannot be reached: {} refuses", cluster.addresses[1]);
    assert!(why.contains(&says) && why.contains("MEMONET_PORTS"), "{why}");
}

/// An address at which nobody listens does not stop the next one.
#[test]
fn all_addresses_are_tried() {
    let closed =
        Listener::bind(&Options { interface: Some("127.0.0.1".into()), ..Options::default() });
    let closed = closed.unwrap().addresses()[0];
    let mut cluster = cluster_with(&[1, 1], |job| job.nodes[1].addresses.insert(0, closed));
    let (a, b) = (cluster.pe(0), cluster.pe(1));
    let (mut near, mut far) = connect(&a, &b);
    carry(&mut near, &mut far, b"here");
}

#[test]
fn a_pe_that_has_left_is_refused() {
    let mut cluster = cluster(&[1, 3]);
    let (pe, closes, killed) = (cluster.pe(0), cluster.pe(1), cluster.pe(2));
    drop(closes);
    cluster.boards[1].departed(2);
    for gone in [1, 2] {
        pe.connect(gone).unwrap();
        let why = refusal(&pe, gone);
        assert!(why.contains(&format!("PE {gone} on host1 has left the job")), "{why}");
    }
    await_readable(killed.fd());
    assert!(killed.next().is_err(), "its agent serves it no longer");
    // What this node has been told of needs no other node.
    cluster.boards[0].departed(3);
    drop(cluster.boards.pop());
    pe.connect(3).unwrap();
    assert!(refusal(&pe, 3).contains("PE 3 on host1 has left the job"));
}

#[test]
fn another_secret_or_job_gets_nothing() {
    let changes: [fn(&mut Job); 2] = [
        |job| {
            job.secret = if job.node == 1 { Secret::random().unwrap() } else { job.secret.clone() }
        },
        |job| job.id[0] ^= job.node as u8,
    ];
    std::thread::scope(|scope| {
        for change in changes {
            scope.spawn(move || {
                let mut cluster = cluster_with(&[1, 1], change);
                let (a, b) = (cluster.pe(0), cluster.pe(1));
                a.connect(1).unwrap();
                let why = refusal(&a, 1);
                assert!(why.contains("closes the connection during the handshake"), "{why}");
                assert!(b.next().unwrap().is_none());
                assert!(cluster.boards[1].refused() > 0);
            });
        }
    });
}

/// Connections with garbled hellos, as many as `MEMONET_TEST_CONNECTIONS` says, and as many garbled
/// datagrams, keep nobody from his stream.
#[test]
fn garbage_by_sockets_does_no_harm() {
    let count = std::env::var("MEMONET_TEST_CONNECTIONS").ok();
    let count: u64 = count.map_or(300, |count| count.parse().expect("a number"));
    let mut cluster = cluster(&[1, 1]);
    let (a, b) = (cluster.pe(0), cluster.pe(1));
    let job = &cluster.jobs[0];
    let member = Member::new(&job.secret, job.id, 0, &job.node_of);
    let link = Link { from_node: 0, to_node: 1, from_pe: 0, to_pe: 1 };
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut state = 5u64;
    let mut roll = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    let address = cluster.addresses[1];
    for _ in 0..count {
        let mut bytes = Connecting::new(&member, &link, &super::random().unwrap()).1;
        let right = bytes.clone();
        // Two changes may undo each other.
        while bytes == right {
            for _ in 0..=roll(3) {
                let at = roll(bytes.len());
                bytes[at] ^= 1 << roll(8);
            }
        }
        bytes.truncate(1 + roll(2 * bytes.len()));
        let mut socket = std::net::TcpStream::connect(address).unwrap();
        // The agent may have sent it away already.
        let _ = socket.write_all(&bytes);
        datagrams.send_to(&bytes, address).unwrap();
        if roll(4) == 0 {
            let ended = socket.set_read_timeout(Some(Duration::from_secs(20)));
            ended.unwrap();
            let _ = socket.shutdown(std::net::Shutdown::Write);
            let got = socket.read(&mut [0; 1]);
            assert!(got.is_err() || got.is_ok_and(|bytes| bytes == 0), "a stranger got an answer");
        }
    }
    assert!(a.next().unwrap().is_none() && b.next().unwrap().is_none());
    connect(&a, &b);
}

/// A program says hello again on the channel of the one that it was before: it gets streams that
/// came for the PE, and no answers to what it has not asked.
#[test]
fn a_program_takes_the_place_of_another() {
    let mut cluster = cluster(&[1, 2]);
    let (far, third) = (cluster.pe(1), cluster.pe(2));
    let channel = cluster.boards[0].seat(0).unwrap();
    let before = AgentBroker::new(channel.try_clone().unwrap()).unwrap();
    before.connect(1).unwrap();
    let mut lost = accepted(&far, 0);
    far.connect(0).unwrap();
    let mut kept = connected(&far, 0);
    third.connect(0).unwrap();
    let mut kept_too = connected(&third, 0);
    before.take_part(true).unwrap();
    let flags = rustix::io::fcntl_getfd(before.fd()).unwrap();
    assert!(!flags.contains(rustix::io::FdFlags::CLOEXEC));
    drop(before);
    let after = AgentBroker::new(channel).unwrap();
    for (pe, other) in [(1, &mut kept), (2, &mut kept_too)] {
        carry(&mut accepted(&after, pe), other, b"here");
    }
    assert!(after.next().unwrap().is_none());
    let ended = lost.read(&mut [0; 1]);
    assert!(ended.is_err() || ended.is_ok_and(|bytes| bytes == 0), "nobody has that stream");
    connect(&after, &far);
}

/// What a program has asked for is not told to the one that it becomes.
#[test]
fn answers_to_an_earlier_program_are_for_nobody() {
    let options = Options { interface: Some("127.0.0.1".into()), ..Options::default() };
    let silent = Listener::bind(&options).unwrap();
    let address = silent.addresses()[0];
    let mut cluster = cluster_with(&[1, 1], |job| job.nodes[1].addresses = vec![address]);
    let channel = cluster.boards[0].seat(0).unwrap();
    let before = AgentBroker::new(channel.try_clone().unwrap()).unwrap();
    before.connect(1).unwrap();
    drop(before);
    let after = AgentBroker::new(channel).unwrap();
    cluster.boards[1] = Switchboard::start(silent, cluster.jobs[1].clone()).unwrap();
    let far = cluster.pe(1);
    let ended = accepted(&far, 0).read(&mut [0; 1]);
    assert!(!matches!(ended, Ok(1..)) && !is_timeout(&ended));
    let (mut near, mut far) = connect(&after, &far);
    carry(&mut near, &mut far, b"here");
    assert!(after.next().unwrap().is_none());
}

#[test]
fn streams_go_over_both_versions_of_ip() {
    let has_v6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    for ip in ["127.0.0.1", "::1"].into_iter().take(if has_v6 { 2 } else { 1 }) {
        let mut cluster = cluster_at(ip, &[1, 1], |_| {});
        assert_eq!(cluster.addresses[1].ip().to_string(), ip);
        let (a, b) = (cluster.pe(0), cluster.pe(1));
        let (mut near, mut far) = connect(&a, &b);
        carry(&mut near, &mut far, b"here");
        assert_eq!(near.peer_addr().unwrap(), cluster.addresses[1]);
    }
}

#[test]
fn a_forked_child_does_not_take_messages() {
    let mut cluster = cluster(&[1, 1]);
    let pe = cluster.pe(0);
    // SAFETY: the child calls nothing that allocates or takes a lock, and ends by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = pe.next().is_err() && pe.connect(1).is_err();
        // SAFETY: ends the child.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: waits for the child, which is this process's own.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    connect(&pe, &cluster.pe(1));
}

/// Connections that say nothing fill all places, and still streams are made.
#[test]
fn a_flood_of_silent_connections_stops_nobody() {
    let mut cluster = cluster(&[2, 2]);
    let pes: Vec<_> = (0..4).map(|pe| cluster.pe(pe)).collect();
    let flood: Vec<_> =
        (0..200).map(|_| TcpStream::connect(cluster.addresses[1]).unwrap()).collect();
    for (a, b) in [(0, 2), (1, 3), (2, 0)] {
        let (mut near, mut far) = connect(&pes[a], &pes[b]);
        carry(&mut near, &mut far, b"here");
    }
    // All of them are sent away in the end.
    for mut stream in flood {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let end = stream.read(&mut [0; 1]);
        assert!(!matches!(&end, Ok(1..)) && !is_timeout(&end), "{end:?}");
    }
    // The counter follows at the thread's next turn.
    connect(&pes[0], &pes[2]);
    assert!(cluster.boards[1].refused() >= 200);
}

fn is_timeout(result: &std::io::Result<usize>) -> bool {
    let kind = result.as_ref().err().map(std::io::Error::kind);
    matches!(kind, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// Random numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % below
    }
}

/// Garbled handshakes of a stranger that has heard real ones, through sockets.
#[test]
fn garbled_handshakes_get_nothing() {
    let count = std::env::var("MEMONET_TEST_HANDSHAKE_SOCKETS").ok();
    let count: usize = count.map_or(1_000, |count| count.parse().expect("a number"));
    let mut cluster = cluster(&[1, 1]);
    let (a, b) = (cluster.pe(0), cluster.pe(1));
    let job = &cluster.jobs[0];
    let member = Member::new(&job.secret, job.id, 0, &job.node_of);
    let link = Link { from_node: 0, to_node: 1, from_pe: 0, to_pe: 1 };
    let mut dice = Dice(1);
    for number in 0..count {
        let (mut machine, mut bytes) = Connecting::new(&member, &link, &random().unwrap());
        let mut stream = TcpStream::connect(cluster.addresses[1]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let garble = |bytes: &mut Vec<u8>, dice: &mut Dice| match dice.roll(4) {
            0 => bytes.truncate(dice.roll(bytes.len())),
            1 => bytes.iter_mut().for_each(|byte| *byte = dice.roll(256) as u8),
            _ => {
                let at = dice.roll(bytes.len());
                bytes[at] ^= 1 << dice.roll(8);
            }
        };
        // Every other one goes right until the proof.
        if number % 2 == 0 {
            garble(&mut bytes, &mut dice);
            stream.write_all(&bytes).unwrap();
        } else {
            stream.write_all(&bytes).unwrap();
            let mut challenge = [0; 64];
            stream.read_exact(&mut challenge).unwrap();
            let Ok(Step::Send(mut proof)) = machine.receive(&member, &challenge) else {
                panic!("the agent knows the secret");
            };
            garble(&mut proof, &mut dice);
            stream.write_all(&proof).unwrap();
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let end = stream.read(&mut [0; 1]);
        assert!(!matches!(&end, Ok(1..)) && !is_timeout(&end), "{number}: {end:?}");
    }
    assert!(b.next().unwrap().is_none(), "a stranger got in");
    let (mut near, mut far) = connect(&a, &b);
    carry(&mut near, &mut far, b"here");
    assert!(cluster.boards[1].refused() >= count as u64);
}
