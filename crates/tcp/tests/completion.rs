//! Which writes a quiet waits for, and when a transfer is complete. The other end of the stream is
//! played by the test, so that it acknowledges when the test says so.

mod common;

use common::{Memory, give, take};
use memonet_core::unstable::Seat;
use memonet_core::unstable::fabric::{Fabric, FarAddress, Record, Signal};
use memonet_core::{Cause, Job, JobOptions, Result, SignalOp};
use memonet_tcp::wire::{COPIED, HEADER, Kind, Link, Place, Role};
use memonet_tcp::{Broker, Event, Tcp};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An offset in PE 0's own memory, of which nobody makes use.
const OWN: u64 = 1 << 20;
/// Bytes that the fabric reads at once.
const READ: usize = 64 << 10;
/// Bytes of the peer's memory.
const BYTES: usize = 4 * COPIED;

/// What the test has for PE 0, and a bell that rings for it.
#[derive(Clone)]
struct Events(Arc<(Mutex<VecDeque<Event>>, OwnedFd)>);

impl Events {
    fn new() -> Self {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Events(Arc::new((Mutex::default(), eventfd(0, flags).unwrap())))
    }

    fn push(&self, event: Event) {
        let (events, bell) = &*self.0;
        events.lock().unwrap().push_back(event);
        rustix::io::write(bell, &1u64.to_ne_bytes()).unwrap();
    }

    fn next(&self) -> Option<Event> {
        let (events, bell) = &*self.0;
        let event = events.lock().unwrap().pop_front();
        if event.is_none() {
            // It is silent if nothing was ever there.
            let _ = rustix::io::read(bell, &mut [0; 8]);
        }
        event
    }
}

/// Gives PE 0 the streams that the test makes.
struct Given(Events);

impl Broker for Given {
    fn host_addresses(&self) -> Vec<std::net::SocketAddrV4> {
        Vec::new()
    }

    fn record(&self) -> Record {
        Record::nodes(&[0, 1, 2], &[1, 1, 1])
    }

    fn connect(&self, _pe: u32) -> Result<()> {
        Ok(())
    }

    fn next(&self) -> Result<Option<Event>> {
        Ok(self.0.next())
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.0.1.as_fd()
    }
}

/// PE 1 or 2, as far as PE 0 knows.
struct FarEnd {
    pe: u32,
    link: Link,
    socket: OwnedFd,
    memory: Memory,
    acknowledgements: usize,
    events: Events,
}

impl FarEnd {
    /// Applies what has come, and answers.
    fn answer(&mut self) {
        let mut bytes = [0; 4096];
        let (came, _) = recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT).unwrap_or((0, 0));
        let mut stream = VecDeque::from(bytes[..came].to_vec());
        give(&mut self.link, &mut stream, usize::MAX, &self.memory).unwrap();
        let mut answers = VecDeque::new();
        take(&mut self.link, usize::MAX, &mut answers);
        let answers = Vec::from(answers);
        let is_ack = |record: &&[u8]| record[0] == Kind::Ack as u8;
        self.acknowledgements += answers.chunks(HEADER).filter(is_ack).count();
        assert_eq!(send(&self.socket, &answers, SendFlags::NOSIGNAL).unwrap(), answers.len());
    }
}

/// PE 0 gets a stream to `pe`.
fn connected(events: &Events, pe: u32) -> FarEnd {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let socket = OwnedFd::from(listener.accept().unwrap().0);
    events.push(Event::Connected { pe, socket: one.into() });
    let (link, memory) = (Link::new(pe, 0, Role::Accepted), Memory::new(BYTES));
    FarEnd { pe, link, socket, memory, acknowledgements: 0, events: events.clone() }
}

fn at(offset: u64) -> FarAddress {
    FarAddress { pe: 1, region: 0, offset }
}

/// What PE 0 does before its job begins.
fn notify_and_complete(tcp: &Tcp, far: &mut FarEnd) {
    tcp.notify(at(0), 1, 5).unwrap();
    assert!(tcp.is_quiet().unwrap(), "nobody waits for a notification");
    tcp.quiet().unwrap();
    assert_eq!(far.acknowledgements, 0);

    // What the program has written is waited for, and what came before it has come then.
    tcp.store(at(8), 8, 7);
    assert!(!tcp.is_quiet().unwrap());
    while !tcp.is_quiet().unwrap() {
        far.answer();
    }
    assert_eq!((far.memory.word(0), far.memory.word(8)), (5, 7));

    // Notifications after that are not, though one of their blocks is sent from where it lies.
    let (block, acknowledged) = (vec![9u8; COPIED + 8], far.acknowledgements);
    for (len, word, value) in [(48, 112, 3), (block.len(), 120, 4)] {
        // SAFETY: the block lives.
        unsafe { tcp.put_notify(at(word + 16), block.as_ptr(), len, at(word), value) }.unwrap();
        assert!(tcp.is_quiet().unwrap());
        tcp.quiet().unwrap();
        assert_eq!(far.acknowledgements, acknowledged);
    }

    // Before a PE leaves, it is.
    std::thread::scope(|scope| {
        let quiet = scope.spawn(|| tcp.quiet_all());
        while !quiet.is_finished() {
            far.answer();
        }
        quiet.join().unwrap().unwrap();
    });
    assert_eq!(far.acknowledgements, acknowledged + 1, "quiet_all asks");
    assert_eq!((far.memory.word(112), far.memory.word(120)), (3, 4));
    assert_eq!(far.memory.read(136, block.len()), block);
}

/// What PE 0 does, with a far end that is played and one that never answers.
fn transfer_and_complete(tcp: &Tcp, far: &mut FarEnd) {
    tcp.store(FarAddress { pe: 2, region: 0, offset: 0 }, 8, 1);
    let (mut block, signal) = ([1u8; 40], Signal { at: at(48), op: SignalOp::Add, value: 1 });
    let mut transfer = tcp.prepare(at(0), block.as_ptr(), block.len(), Some(signal)).unwrap();
    assert!(transfer.is_complete(tcp).unwrap(), "it was never started");
    for round in 1..=3 {
        block.fill(round as u8);
        // SAFETY: the block lives, and changes when the start is complete.
        unsafe { transfer.start(tcp) }.unwrap();
        assert!(!transfer.is_complete(tcp).unwrap(), "nobody has answered");
        if round == 2 {
            while !transfer.is_complete(tcp).unwrap() {
                far.answer();
            }
        } else {
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| transfer.wait(tcp));
                while !waits.is_finished() {
                    far.answer();
                }
                waits.join().unwrap().unwrap();
            });
        }
        assert_eq!((far.memory.read(0, 40), far.memory.word(48)), (block.to_vec(), round));
        assert!(!tcp.is_quiet().unwrap(), "PE 2 has not answered");
    }
    // SAFETY: as above.
    unsafe { transfer.start(tcp) }.unwrap();
    tcp.departed(1, Cause::Exit(1));
    transfer.wait(tcp).unwrap();
    tcp.departed(2, Cause::Exit(1));
    assert!(tcp.is_quiet().unwrap());
}

/// What is added while the progress thread sleeps is sent, also if what was there before could not
/// be sent then, and a call has sent it since.
fn store_after_hello(tcp: &Tcp, far: &mut FarEnd) {
    tcp.store(at(0), 8, 1);
    // The thread goes to sleep on the sockets meanwhile: nothing may be sent before a hello.
    std::thread::sleep(Duration::from_millis(30));
    far.answer();
    let start = Instant::now();
    while !tcp.progress() && start.elapsed() < Duration::from_millis(100) {}
    tcp.store(at(8), 8, 2);
    while far.memory.word(8) != 2 {
        assert!(start.elapsed() < Duration::from_secs(20), "the store was never sent");
        far.answer();
    }
    tcp.departed(1, Cause::Exit(1));
}

/// A stream that always has something hides no other one.
fn flooded(tcp: &Tcp, far: &mut FarEnd) {
    let mut other = connected(&far.events, 2);
    for end in [&mut other, far] {
        tcp.store(FarAddress { pe: end.pe, region: 0, offset: 0 }, 8, 1);
        while end.memory.word(0) != 1 {
            tcp.progress();
            end.answer();
        }
    }
    // More than a few looks take.
    let mut flood = VecDeque::new();
    (0..50_000).for_each(|value| far.link.store(Place { region: 0, offset: OWN }, 8, value));
    while take(&mut far.link, usize::MAX, &mut flood) > 0 {}
    let flood = Vec::from(flood);
    let sent = send(&far.socket, &flood, SendFlags::DONTWAIT).unwrap();
    assert!(sent >= 16 * READ, "{sent}");
    while !tcp.progress() {}
    let mut answer = 0u64;
    // SAFETY: the word lives until the answer has come.
    unsafe { other.link.get(Place { region: 0, offset: OWN }, (&raw mut answer).cast(), 8) };
    other.answer();
    let mut looks = 0;
    while other.link.answered() == 0 {
        looks += usize::from(tcp.progress());
        assert!(looks < 12, "the other stream was not looked at");
        other.answer();
    }
    tcp.departed(1, Cause::Exit(1));
    tcp.departed(2, Cause::Exit(1));
}

/// A transfer reports what is lost of itself, and leaves the loss of other writes to a quiet.
fn transfer_beside_a_failure(tcp: &Tcp, far: &mut FarEnd) {
    let block = [1u8; 40];
    let mut transfer = tcp.prepare(at(0), block.as_ptr(), block.len(), None).unwrap();
    // SAFETY: the block lives.
    unsafe { transfer.start(tcp) }.unwrap();
    while !transfer.is_complete(tcp).unwrap() {
        far.answer();
    }
    // SAFETY: as above.
    unsafe { transfer.start(tcp) }.unwrap();
    tcp.store(FarAddress { pe: 2, region: 0, offset: 0 }, 8, 1);
    far.events.push(Event::Refused { pe: 2, why: "a firewall".into() });
    while tcp.unreachable().is_empty() {
        tcp.progress();
    }
    while !transfer.is_complete(tcp).unwrap() {
        far.answer();
    }
    let error = tcp.quiet().unwrap_err().to_string();
    assert!(error.contains("a firewall"), "{error}");
    tcp.quiet().unwrap();
    tcp.departed(1, Cause::Exit(1));
}

/// PE 0 of a job of three does this before its job begins.
fn play(what: fn(&Tcp, &mut FarEnd)) {
    let options = JobOptions::new().fabric(move |seat: &Seat| {
        let events = Events::new();
        let tcp = Tcp::new(seat, Box::new(Given(events.clone())))?;
        if seat.pe() == 0 {
            what(&tcp, &mut connected(&events, 1));
        }
        Ok(Box::new(tcp))
    });
    Job::threads_with(&options, 3, |_| ()).unwrap();
}

#[test]
fn a_quiet_waits_for_no_notification_until_the_pe_leaves() {
    play(notify_and_complete);
}

#[test]
fn a_store_after_the_hello_needs_no_further_call() {
    (0..5).for_each(|_| play(store_after_hello));
}

#[test]
fn one_that_floods_hides_no_other() {
    play(flooded);
}

#[test]
fn a_transfer_reports_no_failure_of_another_pe() {
    play(transfer_beside_a_failure);
}

#[test]
fn a_transfer_completes_without_the_puts_to_other_pes() {
    play(transfer_and_complete);
}
