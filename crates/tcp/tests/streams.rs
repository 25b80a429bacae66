//! How streams begin and end: asked for by both sides at once, refused, late, broken, and with
//! garbage on them.

mod common;

use common::{Dice, Memory, give, take};
use memonet_core::unstable::Seat;
use memonet_core::unstable::fabric::{Fabric, FarAddress, Record};
use memonet_core::{Cause, Cmp, Delivery, Error, Job, JobOptions, MulticastOptions, Result};
use memonet_tcp::wire::{HEADER, Link, Role};
use memonet_tcp::{Broker, Event, Tcp};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, send, shutdown, socketpair,
};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::SocketAddrV4;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

/// What brokers of a job share.
struct Exchange {
    queues: Vec<Queue>,
    dice: Mutex<Dice>,
    /// Most that an answer takes.
    delay_us: usize,
    /// Whether PEs get no streams to higher ones: with two, they are told so at once, and with
    /// more when the other has asked.
    only_down: bool,
    /// Whether all PEs are refused.
    closed: AtomicBool,
    /// So many streams are lost before their acceptor is heard: its end is given out, the other
    /// not.
    lost: AtomicU32,
    /// A second handle on each stream that was made, with the PE that asked.
    made: Mutex<Vec<(u32, u32, OwnedFd)>>,
}

/// What is to come to a PE.
struct Queue {
    events: Mutex<VecDeque<(Instant, Event)>>,
    timer: OwnedFd,
}

impl Queue {
    fn new() -> Self {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).unwrap();
        Queue { events: Mutex::default(), timer }
    }

    /// Has the timer ring when the first event is due, if there is one.
    fn set(&self, events: &VecDeque<(Instant, Event)>) {
        let first = events.iter().map(|(due, _)| due.saturating_duration_since(Instant::now()));
        let wait = first.min().map(|time| i64::from(time.subsec_nanos().max(1)));
        let value = Timespec { tv_sec: 0, tv_nsec: wait.unwrap_or(0) };
        let spec = Itimerspec { it_interval: Timespec::default(), it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec).unwrap();
    }
}

impl Exchange {
    fn new(npes: usize, seed: u64, delay_us: usize, only_down: bool) -> Arc<Self> {
        Arc::new(Exchange {
            queues: (0..npes).map(|_| Queue::new()).collect(),
            dice: Mutex::new(Dice(seed)),
            delay_us,
            only_down,
            closed: AtomicBool::new(false),
            lost: AtomicU32::new(0),
            made: Mutex::default(),
        })
    }

    fn tell(&self, pe: u32, event: Event) {
        let delay = self.dice.lock().unwrap().below(self.delay_us + 1) as u64;
        let due = Instant::now() + Duration::from_micros(delay);
        let queue = &self.queues[pe as usize];
        let mut events = queue.events.lock().unwrap();
        events.push_back((due, event));
        queue.set(&events);
    }

    /// After all that was told before.
    fn tell_last(&self, pe: u32, event: Event) {
        let queue = &self.queues[pe as usize];
        let mut events = queue.events.lock().unwrap();
        let due = events.iter().map(|(due, _)| *due).max().unwrap_or_else(Instant::now);
        events.push_back((due, event));
        queue.set(&events);
    }

    fn options(self: &Arc<Self>) -> JobOptions {
        let exchange = self.clone();
        JobOptions::new().fabric(move |seat: &Seat| {
            let broker = Clerk { exchange: exchange.clone(), me: seat.pe() as u32 };
            Ok(Box::new(Tcp::new(seat, Box::new(broker))?.crowded(true)) as Box<dyn Fabric>)
        })
    }

    /// Ends the streams between two PEs.
    fn cut(&self, one: u32, other: u32) {
        for (a, b, socket) in self.made.lock().unwrap().iter() {
            if (*a, *b) == (one, other) || (*b, *a) == (one, other) {
                shutdown(socket, Shutdown::Both).unwrap();
            }
        }
    }
}

struct Clerk {
    exchange: Arc<Exchange>,
    me: u32,
}

impl Broker for Clerk {
    fn record(&self) -> Record {
        let npes = self.exchange.queues.len();
        Record::nodes(&(0..npes as u32).collect::<Vec<_>>(), &vec![1; npes])
    }

    fn host_addresses(&self) -> Vec<SocketAddrV4> {
        Vec::new()
    }

    fn connect(&self, pe: u32) -> Result<()> {
        let (exchange, me) = (&self.exchange, self.me);
        if exchange.closed.load(Ordering::Relaxed) {
            exchange.tell(me, Event::Refused { pe, why: format!("PE {pe} is behind a firewall") });
            return Ok(());
        }
        if exchange.only_down && pe > me {
            if exchange.queues.len() == 2 {
                exchange.tell(me, Event::Refused { pe, why: "a firewall".into() });
            }
            return Ok(());
        }
        let flags = SocketFlags::CLOEXEC;
        let pair = || socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let one_less = |lost: u32| lost.checked_sub(1);
        if exchange.lost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            exchange.tell(pe, Event::Accepted { pe: me, socket: pair().1 });
        }
        let (one, other) = pair();
        exchange.made.lock().unwrap().push((me, pe, one.try_clone().unwrap()));
        exchange.tell(me, Event::Connected { pe, socket: one });
        exchange.tell(pe, Event::Accepted { pe: me, socket: other });
        if exchange.only_down {
            let why = "what comes later".into();
            exchange.tell_last(pe, Event::Refused { pe: me, why });
        }
        Ok(())
    }

    fn next(&self) -> Result<Option<Event>> {
        let queue = &self.exchange.queues[self.me as usize];
        let mut events = queue.events.lock().unwrap();
        let due = events.iter().position(|(due, _)| *due <= Instant::now());
        let event = due.and_then(|index| events.remove(index)).map(|(_, event)| event);
        queue.set(&events);
        Ok(event)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.exchange.queues[self.me as usize].timer.as_fd()
    }
}

/// All PEs write to all, at once, and what they wrote is there.
fn all_to_all(exchange: &Arc<Exchange>, npes: usize) {
    let results = Job::threads_with(&exchange.options(), npes, |job| -> Result<()> {
        let (me, n) = (job.pe(), job.npes());
        let words = job.window::<u64>(2 * n)?;
        for round in 1..=20 {
            for pe in 0..n {
                words.remote(pe, me)?.store(round);
                words.remote(pe, n + me)?.fetch_add(1)?;
            }
            job.barrier()?;
            for pe in 0..n {
                assert_eq!((words.read(pe), words.read(n + pe)), (round, round));
            }
            job.barrier()?;
        }
        Ok(())
    });
    for result in results.unwrap() {
        result.unwrap();
    }
}

#[test]
fn both_sides_ask_at_once() {
    for seed in 0..60 {
        let (npes, delay_us) = (2 + seed as usize % 3, [0, 300, 3000][seed as usize % 3]);
        let exchange = Exchange::new(npes, seed, delay_us, false);
        all_to_all(&exchange, npes);
    }
}

/// An agent may give up a stream that the other agent has given out.
#[test]
fn streams_that_are_lost_before_their_first_bytes() {
    for seed in 0..60 {
        let (npes, delay_us) = (2 + seed as usize % 3, [0, 300, 3000][seed as usize % 3]);
        let exchange = Exchange::new(npes, seed, delay_us, false);
        exchange.lost.store(1 + seed as u32 % 4, Ordering::Relaxed);
        all_to_all(&exchange, npes);
    }
}

#[test]
fn one_side_alone_can_connect() {
    for seed in 0..20 {
        let exchange = Exchange::new(3, seed, 1000, true);
        all_to_all(&exchange, 3);
    }
}

#[test]
fn nobody_can_connect() {
    let exchange = Exchange::new(2, 1, 100, true);
    let said = Arc::new(Mutex::new(String::new()));
    let heard = said.clone();
    let options = JobOptions::new().fabric(move |seat: &Seat| {
        let broker = Clerk { exchange: exchange.clone(), me: seat.pe() as u32 };
        let tcp = Tcp::new(seat, Box::new(broker))?;
        if seat.pe() == 0 {
            let (from, mut word) = (FarAddress { pe: 1, region: 0, offset: 0 }, 0u64);
            // SAFETY: a local word.
            let got = unsafe { tcp.get(from, (&raw mut word).cast(), 8) };
            *heard.lock().unwrap() = got.unwrap_err().to_string();
        }
        Ok(Box::new(tcp))
    });
    Job::threads_with(&options, 2, |_| ()).unwrap();
    let said = said.lock().unwrap();
    assert!(said.contains("a firewall"), "{said}");
}

/// A broker whose streams lead to nobody but the test, which plays the peer.
struct Played(Clerk, fn(UnixStream, u32));

impl Broker for Played {
    fn record(&self) -> Record {
        self.0.record()
    }

    fn host_addresses(&self) -> Vec<SocketAddrV4> {
        Vec::new()
    }

    fn connect(&self, pe: u32) -> Result<()> {
        let ((ours, theirs), play) = (UnixStream::pair().unwrap(), self.1);
        self.0.exchange.tell(self.0.me, Event::Connected { pe, socket: ours.into() });
        std::thread::spawn(move || play(theirs, pe));
        Ok(())
    }

    fn next(&self) -> Result<Option<Event>> {
        self.0.next()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}

/// Answers a request, and leaves in order with the same bytes.
fn answer_and_leave(mut socket: UnixStream, pe: u32) {
    let (memory, mut link) = (Memory::new(64), Link::new(pe, 0, Role::Accepted));
    let (mut came, mut bytes, mut sent) = (VecDeque::new(), [0; 256], VecDeque::new());
    take(&mut link, usize::MAX, &mut sent);
    socket.write_all(sent.make_contiguous()).unwrap();
    sent.clear();
    while !link.has_output() {
        let some = socket.read(&mut bytes).unwrap();
        assert!(some > 0, "the PE closed the stream before it asked");
        came.extend(&bytes[..some]);
        give(&mut link, &mut came, some, &memory).unwrap();
    }
    link.close();
    while take(&mut link, usize::MAX, &mut sent) > 0 {}
    socket.write_all(sent.make_contiguous()).unwrap();
}

/// What a PE answers last counts, though its stream has ended by then.
#[test]
fn an_answer_before_the_end_counts() {
    for round in 0..100 {
        // PE 1 has no region 1.
        let region = round % 2;
        let heard = of_one_that_is_played(answer_and_leave, move |tcp| {
            let (from, mut bytes) = (FarAddress { region, ..WORD }, [7; 8]);
            let done = AtomicBool::new(false);
            let got = std::thread::scope(|scope| {
                // It reads the end before the thread that asked has seen the answer.
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        tcp.progress();
                    }
                });
                // SAFETY: the array has so many bytes.
                let got = unsafe { tcp.get(from, bytes.as_mut_ptr(), 8) };
                done.store(true, Ordering::Relaxed);
                got
            });
            (got, bytes)
        });
        match heard {
            (Ok(()), bytes) if region == 0 => assert_eq!(bytes, [0; 8]),
            (Err(error), _) if region == 1 && error.to_string().contains("refused") => {}
            (got, _) => panic!("{round}: {got:?}"),
        }
    }
}

/// Greets, reads a greeting and so many writes without a word, and is gone.
fn listen_and_break<const WRITES: usize>(mut socket: UnixStream, pe: u32) {
    let (mut link, mut sent) = (Link::new(pe, 0, Role::Accepted), VecDeque::new());
    take(&mut link, usize::MAX, &mut sent);
    socket.write_all(sent.make_contiguous()).unwrap();
    socket.read_exact(&mut vec![0; (1 + WRITES) * HEADER]).unwrap();
    // What comes after that is not read: the other end may wait for it by then.
    std::thread::sleep(Duration::from_millis(100));
}

/// What PE 0 says of PE 1, which [`Played`] plays.
fn of_one_that_is_played<R: Send + 'static>(
    play: fn(UnixStream, u32),
    say: impl Fn(&Tcp) -> R + Send + Sync + 'static,
) -> R {
    let exchange = Exchange::new(2, 1, 0, false);
    let heard = Arc::new(Mutex::new(None));
    let said = heard.clone();
    let options = JobOptions::new().fabric(move |seat: &Seat| {
        let clerk = Clerk { exchange: exchange.clone(), me: seat.pe() as u32 };
        if seat.pe() == 1 {
            return Ok(Box::new(Tcp::new(seat, Box::new(clerk))?));
        }
        let tcp = Tcp::new(seat, Box::new(Played(clerk, play)))?;
        *said.lock().unwrap() = Some(say(&tcp));
        Ok(Box::new(tcp))
    });
    Job::threads_with(&options, 2, |_| ()).unwrap();
    heard.lock().unwrap().take().expect("PE 0 has said it")
}

const WORD: FarAddress = FarAddress { pe: 1, region: 0, offset: 0 };

/// Each thread that waits for its writes learns that they are lost.
#[test]
fn all_quiets_of_a_pair_that_fails() {
    let quiets = of_one_that_is_played(listen_and_break::<2>, |tcp| {
        let both = Barrier::new(2);
        let quiet = || {
            tcp.store(WORD, 8, 1);
            both.wait();
            tcp.quiet()
        };
        let quiets = std::thread::scope(|scope| {
            let all = [scope.spawn(quiet), scope.spawn(quiet)];
            all.map(|thread| thread.join().unwrap().is_err())
        });
        (quiets, tcp.quiet().is_ok())
    });
    assert_eq!(quiets, ([true, true], true));
}

/// A notification that is lost says nothing at a quiet (F7): waits that depend on it end otherwise.
#[test]
fn a_lost_notification_is_no_lost_write() {
    let quiet = of_one_that_is_played(listen_and_break::<1>, |tcp| {
        tcp.notify(WORD, 8, 1).unwrap();
        let start = Instant::now();
        while tcp.unreachable().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(20));
            tcp.progress();
            std::thread::sleep(Duration::from_millis(1));
        }
        tcp.quiet().map_err(|error| error.to_string())
    });
    assert_eq!(quiet, Ok(()));
}

/// A broker that breaks.
struct Broken(Clerk);

impl Broker for Broken {
    fn record(&self) -> Record {
        self.0.record()
    }

    fn host_addresses(&self) -> Vec<SocketAddrV4> {
        Vec::new()
    }

    fn connect(&self, pe: u32) -> Result<()> {
        // Something that makes its end readable.
        let why = "never told".into();
        self.0.exchange.tell(self.0.me, Event::Refused { pe, why });
        Ok(())
    }

    fn next(&self) -> Result<Option<Event>> {
        Err(Error::Fabric { fabric: "tcp", problem: "no descriptor is left".into(), call: None })
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}

/// Whoever waits for a stream from a broker that has failed is told, and so is whoever asks later.
#[test]
fn nobody_waits_for_a_broken_broker() {
    let exchange = Exchange::new(3, 1, 100, false);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let said = heard.clone();
    let options = JobOptions::new().fabric(move |seat: &Seat| {
        let clerk = Clerk { exchange: exchange.clone(), me: seat.pe() as u32 };
        if seat.pe() > 0 {
            return Ok(Box::new(Tcp::new(seat, Box::new(clerk))?));
        }
        let tcp = Tcp::new(seat, Box::new(Broken(clerk)))?;
        for pe in [1, 2] {
            let mut word = 0u64;
            // SAFETY: a local word.
            let got = unsafe { tcp.get(FarAddress { pe, ..WORD }, (&raw mut word).cast(), 8) };
            said.lock().unwrap().push(got.unwrap_err().to_string());
        }
        Ok(Box::new(tcp))
    });
    Job::threads_with(&options, 3, |_| ()).unwrap();
    let heard = heard.lock().unwrap();
    assert!(heard.iter().all(|said| said.contains("no descriptor is left")), "{heard:?}");
}

/// A wait for a PE to which there is no stream ends, and says why.
#[test]
fn waits_for_who_cannot_be_reached_end() {
    let exchange = Exchange::new(2, 1, 100, false);
    exchange.closed.store(true, Ordering::Relaxed);
    let both = Barrier::new(2);
    let results = Job::threads_with(&exchange.options(), 2, move |job| {
        let first = job.barrier().unwrap_err();
        // It has said so once; the pair stays as it is.
        let again = job.barrier().unwrap_err();
        // Neither leaves before the other one has seen it.
        both.wait();
        [first, again].map(|error| error.to_string())
    });
    for (pe, errors) in results.unwrap().into_iter().enumerate() {
        let says = |error: &String| error.contains(&format!("PE {} is behind a firewall", 1 - pe));
        assert!(errors.iter().all(says), "{errors:?}");
    }
}

/// The same where the stream breaks while both wait.
#[test]
fn waits_for_words_of_who_is_lost_end() {
    let exchange = Exchange::new(2, 1, 0, false);
    let (cutter, both) = (exchange.clone(), Barrier::new(2));
    let results = Job::threads_with(&exchange.options(), 2, move |job| {
        let words = job.window::<u64>(1).unwrap();
        job.barrier().unwrap();
        both.wait();
        if job.pe() == 1 {
            cutter.cut(0, 1);
        }
        let error = words.wait_until(0, Cmp::Ne, 0).unwrap_err();
        both.wait();
        error
    });
    for (pe, error) in results.unwrap().into_iter().enumerate() {
        let is_of_pair = matches!(error, Error::PeerFailed { pe: lost, .. } if lost == 1 - pe);
        assert!(is_of_pair, "PE {pe}: {error}");
    }
}

/// Both PEs live on, but have lost each other.
#[test]
fn a_broken_stream_is_a_failure_of_the_pair() {
    let exchange = Exchange::new(2, 1, 0, false);
    let (cutter, both) = (exchange.clone(), Barrier::new(2));
    let results = Job::threads_with(&exchange.options(), 2, move |job| {
        let words = job.window::<u64>(2).unwrap();
        let other = 1 - job.pe();
        let remote = words.remote(other, 0).unwrap();
        job.barrier().unwrap();
        both.wait();
        if job.pe() == 1 {
            cutter.cut(0, 1);
        }
        // Whatever comes of the word that was on its way.
        let start = Instant::now();
        let failed = std::iter::repeat_with(|| remote.fetch_add(1)).find_map(|added| added.err());
        assert!(start.elapsed() < Duration::from_secs(20));
        let failed = failed.expect("it is repeated until then");
        remote.store(1);
        (failed, job.quiet().err(), job.quiet().err())
    });
    for (pe, (failed, quiet, again)) in results.unwrap().into_iter().enumerate() {
        let is_of_pair = |error: &Error| matches!(error, Error::PeerFailed { pe: lost, cause: Cause::Unreachable, .. } if *lost == 1 - pe);
        assert!(is_of_pair(&failed), "PE {pe}: {failed}");
        assert!(quiet.is_some_and(|error| is_of_pair(&error)) && again.is_none(), "PE {pe}");
    }
}

/// What the PE below a lost pair does in [`a_channel_ends_where_its_tree_is_cut`].
#[derive(Debug, Clone, Copy, PartialEq)]
enum Below {
    /// It reads.
    Reads,
    /// It has left the channel, and leaves the job.
    Leaves,
    /// It waits for another PE, which waits for a block.
    WaitsForItsChild,
    /// It reads; PE 1 and its other child have left the channel, and wait for the writer, which
    /// waits for room.
    ReadsAndSomeHaveLeft,
}

/// The tree of a channel goes from PE 0 to 1 and 2, from 1 to 3 and 4, and so on, and is cut.
/// Nobody waits for ever, not even those who have lost nobody, and both ends of the pair say who is
/// lost.
#[test]
fn a_channel_ends_where_its_tree_is_cut() {
    let cuts = [
        (7, 0, 1, Below::Reads),
        (7, 0, 1, Below::Leaves),
        (7, 0, 1, Below::WaitsForItsChild),
        (9, 3, 7, Below::Reads),
        (9, 3, 7, Below::ReadsAndSomeHaveLeft),
    ];
    for (npes, above, below, does) in cuts {
        let exchange = Exchange::new(npes, 1, 0, false);
        let (cutter, all) = (exchange.clone(), Barrier::new(npes));
        let results = Job::threads_with(&exchange.options(), npes, move |job| {
            let readers: Vec<usize> = (1..npes).collect();
            let mut channel = job.multicast::<u64>(0, &readers, MulticastOptions::new()).unwrap();
            assert_eq!(channel.delivery(), Delivery::Tree);
            let words = job.window::<u64>(1).unwrap();
            let mut block = vec![1; 8192];
            match job.pe() {
                0 => channel.publish(&block).unwrap(),
                _ => channel.recv(&mut block).unwrap(),
            }
            job.barrier().unwrap();
            all.wait();
            if job.pe() == 2 {
                cutter.cut(above as u32, below as u32);
            }
            let error = match (job.pe(), does) {
                (0, _) => std::iter::repeat_with(|| channel.publish(&block)).find_map(Result::err),
                (pe, Below::Leaves) if pe == below => {
                    drop(channel);
                    None
                }
                (1 | 4, Below::ReadsAndSomeHaveLeft) => {
                    drop(channel);
                    words.wait().depends_on(&[0]).until(0, Cmp::Ne, 0).err()
                }
                (pe, Below::WaitsForItsChild) if pe == below => {
                    words.wait().depends_on(&[2 * pe + 1]).until(0, Cmp::Ne, 0).err()
                }
                _ => std::iter::repeat_with(|| channel.recv(&mut block)).find_map(Result::err),
            };
            error.or_else(|| job.finalize().err())
        });
        let errors = results.unwrap();
        let what = format!("{above} to {below}, which {does:?}: {errors:?}");
        let lost = |pe: usize| match &errors[pe] {
            Some(Error::PeerFailed { pe, cause, .. }) => (*pe, *cause),
            _ => panic!("PE {pe}, {what}"),
        };
        let pair = (lost(above), lost(below));
        assert_eq!((pair.0.0, pair.1.0), (below, above), "{what}");
        // The other one may hear it by the end of the first.
        assert!([pair.0.1, pair.1.1].contains(&Cause::Unreachable), "{what}");
        assert!(errors.iter().all(Option::is_some), "{what}");
    }
}

#[test]
fn garbage_on_a_stream_is_a_failure_that_names_its_sender() {
    let exchange = Exchange::new(2, 1, 0, false);
    let (forger, told) = (exchange.clone(), AtomicBool::new(false));
    let results = Job::threads_with(&exchange.options(), 2, move |job| {
        let words = job.window::<u64>(2).unwrap();
        job.barrier().unwrap();
        if job.pe() == 1 {
            // As if PE 1 had sent it; and PE 0 as well, as one does not know which end is whose.
            for (_, _, socket) in forger.made.lock().unwrap().iter() {
                // The first may be the end of all.
                let _ = send(socket, &[0xAB; 48], SendFlags::NOSIGNAL);
            }
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) && !told.load(Ordering::Relaxed) {
            if let Err(error) = job.quiet() {
                told.store(true, Ordering::Relaxed);
                return error.to_string();
            }
            let _ = words.test_any(&[0], Cmp::Ne, 0);
        }
        "nothing".into()
    });
    let said = results.unwrap();
    let names = |(pe, text): (usize, &String)| {
        text.contains(&format!("PE {} sent a record of kind 171", 1 - pe))
    };
    assert!(said.iter().enumerate().any(names), "{said:?}");
}

/// A child of a PE has no way to far PEs, and does not harm those of its parent.
#[test]
fn a_forked_child_leaves_the_streams_alone() {
    let exchange = Exchange::new(2, 1, 0, false);
    let results = Job::threads_with(&exchange.options(), 2, |job| {
        let words = job.window::<u64>(2).unwrap();
        let remote = words.remote(1 - job.pe(), 0).unwrap();
        remote.fetch_add(1).unwrap();
        // SAFETY: the child is one thread, which takes no lock that another thread can have.
        let child = unsafe { libc::fork() };
        if child == 0 {
            remote.store(9);
            let refused = matches!(remote.fetch_add(1), Err(Error::Misuse { .. }));
            // SAFETY: ends the child, and runs nothing of the parent's.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = 0;
        // SAFETY: `status` lives on this stack frame.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        job.barrier().unwrap();
        remote.fetch_add(1).unwrap();
        job.barrier().unwrap();
        (status, words.read(0))
    });
    assert_eq!(results.unwrap(), [(0, 2); 2]);
}
