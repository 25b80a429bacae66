//! Which writes a quiet waits for, and when a transfer is complete. The other end of the stream is
//! played by the test, so that it acknowledges when the test says so.

mod common;

use common::{Memory, give, take};
use memonet_core::unstable::Seat;
use memonet_core::unstable::fabric::{Fabric, FarAddress, Record, Signal};
use memonet_core::{Cause, Job, JobOptions, Result, SignalOp};
use memonet_tcp::wire::{COPIED, HEADER, Kind, Link, Role};
use memonet_tcp::{Broker, Event, Tcp};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};
use std::collections::VecDeque;
use std::sync::Mutex;

/// Bytes of the peer's memory.
const BYTES: usize = 4 * COPIED;

/// Gives PE 0 the one stream that there is.
struct Single {
    given: Mutex<Option<OwnedFd>>,
    /// Readable: there is a stream to be had.
    ready: OwnedFd,
}

impl Broker for Single {
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
        let socket = self.given.lock().unwrap().take();
        Ok(socket.map(|socket| Event::Connected { pe: 1, socket }))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

/// PE 1, as far as PE 0 knows.
struct FarEnd {
    link: Link,
    socket: OwnedFd,
    memory: Memory,
    acknowledgements: usize,
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

fn pair() -> (Single, FarEnd) {
    let flags = SocketFlags::CLOEXEC;
    let (one, other) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let ready = rustix::event::eventfd(1, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let link = Link::new(1, 0, Role::Accepted);
    let memory = Memory::new(BYTES);
    let far = FarEnd { link, socket: other, memory, acknowledgements: 0 };
    (Single { given: Mutex::new(Some(one)), ready }, far)
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

/// PE 0 of a job of three does this before its job begins.
fn play(what: fn(&Tcp, &mut FarEnd)) {
    let (single, far) = pair();
    let (single, far) = (Mutex::new(Some(single)), Mutex::new(far));
    let options = JobOptions::new().fabric(move |seat: &Seat| {
        let single = if seat.pe() == 0 { single.lock().unwrap().take() } else { None };
        let broker = single.unwrap_or_else(|| pair().0);
        let tcp = Tcp::new(seat, Box::new(broker))?;
        if seat.pe() == 0 {
            what(&tcp, &mut far.lock().unwrap());
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
fn a_transfer_completes_without_the_puts_to_other_pes() {
    play(transfer_and_complete);
}
