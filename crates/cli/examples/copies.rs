//! A process that a PE forks off has copies of the PE's guards and ends. It can do nothing with
//! them, and the PE and the others go on as if it had never been: a program for the tests of the
//! command.

use std::time::{Duration, Instant};

use memonet::dsm::{Mutex, Region, RwLock};
use memonet::{Access, Cmp, Error, Job, Messages, Multicast, MulticastOptions, Result, Window};

fn main() -> Result<()> {
    let job = memonet::init()?;
    if job.npes() > 2 {
        barriers(&job, &job.window(1)?)?;
        return relay(&job, &job.window(1)?);
    }
    shared_data(&job, &job.window(2)?)?;
    regions(&job)?;
    rights(&job)?;
    // On a simulated machine, a PE waits with all of its threads.
    if std::env::args().nth(1).is_none_or(|machine| machine != "simulated") {
        allocations(&job, &job.window(1)?)?;
    }
    messages(&job)?;
    channels(&job)
}

/// Does this in a child. Gives its process.
fn start_child(act: impl FnOnce()) -> i32 {
    // SAFETY: the child takes no lock that another thread of this process may have at this moment.
    match unsafe { libc::fork() } {
        0 => {
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            // SAFETY: ends the child alone.
            unsafe { libc::_exit(i32::from(ended.is_err())) }
        }
        child => child,
    }
}

fn await_child(child: i32) {
    let mut status = -1;
    // SAFETY: the status is a variable.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "what the child says is above");
}

fn in_a_child(act: impl FnOnce()) {
    await_child(start_child(act));
}

#[track_caller]
fn refused<T>(what: Result<T>) {
    match what {
        Err(Error::Misuse { why, .. }) if why.contains("is not the PE") => {}
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("this was allowed"),
    }
}

fn shared_data(job: &Job, steps: &Window<u64>) -> Result<()> {
    let (free, held) = (Mutex::new(job, &0u64)?, Mutex::new(job, &0u64)?);
    let (read, written) = (RwLock::new(job, &0u64)?, RwLock::new(job, &0u64)?);
    if job.pe() == 0 {
        let (mut holding, reading, writing) = (held.lock()?, read.read()?, written.write()?);
        *holding = 1;
        in_a_child(|| {
            refused(free.lock());
            refused(free.try_lock());
            refused(read.write());
            refused(read.try_read());
            // SAFETY: of the two that a fork leaves of each guard, this is the child's.
            let (holding, reading, writing) = unsafe {
                (std::ptr::read(&holding), std::ptr::read(&reading), std::ptr::read(&writing))
            };
            drop(holding);
            refused(reading.release());
            refused(writing.release());
        });
        steps.remote(1, 0)?.store(1);
        steps.wait_until(1, Cmp::Eq, 1)?;
        drop((holding, reading, writing));
    } else {
        steps.wait_until(0, Cmp::Eq, 1)?;
        assert!(held.try_lock()?.is_none() && read.try_write()?.is_none());
        assert!(written.try_read()?.is_none() && free.try_lock()?.is_some());
        steps.remote(0, 1)?.store(1);
        assert_eq!(*held.lock()?, 1);
        drop((read.write()?, written.read()?));
    }
    job.barrier()
}

fn regions(job: &Job) -> Result<()> {
    let region = Region::<u64>::new(job, 100)?;
    if job.pe() == 0 {
        region.write(0..1)?.set(0, 5);
        in_a_child(|| {
            refused(region.read(0..1));
            refused(region.write(0..1));
            refused(region.release());
            refused(region.acquire());
        });
    }
    region.barrier()?;
    assert_eq!(region.read(0..1)?.get(0), 5);
    job.barrier()
}

fn rights(job: &Job) -> Result<()> {
    let window = job.restricted::<u64>(1, |_, _| Access::ReadWrite)?;
    let key = window.key()?;
    in_a_child(|| {
        refused(window.revoke());
        refused(window.revoke_wait(None));
        refused(job.attach::<u64>(&key));
    });
    job.barrier()?;
    window.put_one(1 - job.pe(), 0, 7)?;
    job.barrier()?;
    assert_eq!(window.read(0), 7);
    window.free()
}

/// Of PE 0, another thread waits in the same call at the fork.
fn allocations(job: &Job, words: &Window<u64>) -> Result<()> {
    if job.pe() == 1 {
        words.wait_until(0, Cmp::Eq, 1)?;
        return job.window::<u64>(1).map(drop);
    }
    std::thread::scope(|scope| {
        let other = scope.spawn(|| job.window::<u64>(1).map(drop));
        std::thread::sleep(Duration::from_millis(50));
        in_a_child(|| {
            refused(job.window::<u64>(1));
            refused(Mutex::new(job, &0u64));
        });
        words.remote(1, 0)?.store(1);
        other.join().expect("no panic")
    })
}

/// PE 0 is two steps on when a copy of its barrier, made in the midst of the first, is dropped.
fn barriers(job: &Job, words: &Window<u64>) -> Result<()> {
    let (me, all) = (job.pe(), (0..job.npes()).collect::<Vec<_>>());
    let team = job.team(&all)?.expect("all are in it");
    let barrier = team.new_barrier()?;
    let tell = |pe: usize, what: u64| words.remote(pe, 0).map(|word| word.store(what));
    let hear = |what: u64| words.wait_until(0, Cmp::Eq, what);
    if me > 0 {
        hear(1)?;
    }
    barrier.step()?;
    let child = (me == 0).then(|| {
        start_child(|| {
            refused(barrier.test());
            refused(barrier.wait());
            while words.read(0) != 3 {
                std::thread::yield_now();
            }
            // SAFETY: of the two that a fork leaves of each, these are the child's.
            drop(unsafe { (std::ptr::read(&barrier), std::ptr::read(&team)) });
        })
    });
    if me == 0 {
        all[1..].iter().try_for_each(|&pe| tell(pe, 1))?;
    }
    barrier.wait()?;
    if me == 1 {
        hear(2)?;
    }
    barrier.step()?;
    if me == 2 {
        tell(0, 2)?;
    }
    if let Some(child) = child {
        hear(2)?;
        assert!(!barrier.test()?, "PE 1 has not come");
        tell(0, 3)?;
        await_child(child);
        tell(1, 2)?;
    }
    barrier.wait()?;
    job.barrier()
}

/// In a tree, PE 1 relays what it reads. Its child looks at a word meanwhile, as it may.
fn relay(job: &Job, words: &Window<u64>) -> Result<()> {
    let readers: Vec<usize> = (1..job.npes()).collect();
    let mut channel = job.multicast::<u64>(0, &readers, MulticastOptions::new().capacity(4096))?;
    if job.pe() == 0 {
        for number in 0..5000 {
            channel.publish(&[number; 9])?;
        }
        return job.barrier();
    }
    let looks = || {
        let end = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            assert!(!words.test_until(0, Cmp::Ne, 0));
        }
    };
    let child = (job.pe() == 1).then(|| start_child(looks));
    let mut block = Vec::new();
    for number in 0..5000 {
        channel.recv(&mut block)?;
        assert_eq!(block, [number; 9]);
    }
    child.into_iter().for_each(await_child);
    job.barrier()
}

fn messages(job: &Job) -> Result<()> {
    let messages = Messages::new(job, 8, 2)?;
    let mut message = Vec::new();
    if job.pe() == 1 {
        messages.send(0, b"one")?;
        messages.send(0, b"two")?;
    }
    job.barrier()?;
    if job.pe() == 0 {
        in_a_child(|| {
            refused(messages.send(1, b"a child"));
            refused(messages.try_send(1, b"a child"));
            refused(messages.recv(&mut Vec::new()));
            refused(messages.try_recv(&mut Vec::new()));
            refused(messages.try_recv_from(1, &mut Vec::new()));
        });
        messages.send(1, b"the PE")?;
        for expected in [b"one", b"two"] {
            messages.recv(&mut message)?;
            assert_eq!(message, expected);
        }
    } else {
        messages.recv(&mut message)?;
        assert_eq!(message, b"the PE");
    }
    job.barrier()?;
    assert!(messages.try_recv(&mut message)?.is_none());
    job.barrier()
}

fn channels(job: &Job) -> Result<()> {
    let channel = |writer: usize, capacity: usize| {
        let options = MulticastOptions::new().capacity(capacity);
        job.multicast::<u64>(writer, &[1 - writer], options)
    };
    let (mut there, mut back) = (channel(0, 1 << 16)?, channel(1, 1 << 16)?);
    let mut block = Vec::new();
    if job.pe() == 1 {
        for number in 1..=3 {
            back.publish(&[number])?;
        }
    }
    job.barrier()?;
    if job.pe() == 0 {
        in_a_child(|| ends_of_a_child(&mut there, &mut back));
        let mut claim = there.claim(1)?;
        claim[0] = 7;
        in_a_child(|| {
            // SAFETY: of the two that a fork leaves of the claim, this is the child's.
            refused(unsafe { std::ptr::read(&claim) }.commit());
        });
        claim.commit()?;
        there.publish(&[8])?;
        let shown = back.peek()?;
        in_a_child(|| {
            // SAFETY: as above.
            unsafe { std::ptr::read(&shown) }.pop();
        });
        shown.pop();
        for number in 2..=3 {
            back.recv(&mut block)?;
            assert_eq!(block, [number]);
        }
        drop(there);
    } else {
        for number in [7, 8] {
            there.recv(&mut block)?;
            assert_eq!(block, [number]);
        }
        assert!(matches!(there.recv(&mut block), Err(Error::Closed { .. })));
    }
    job.barrier()
}

/// Tries all calls, and drops both ends.
fn ends_of_a_child(there: &mut Multicast<u64>, back: &mut Multicast<u64>) {
    refused(there.publish(&[99]));
    refused(there.claim(1));
    refused(there.try_claim(1));
    refused(back.recv(&mut Vec::new()));
    refused(back.try_recv(&mut Vec::new()));
    refused(back.peek());
    refused(back.try_peek());
    // SAFETY: of the two that a fork leaves of each end, these are the child's.
    drop(unsafe { (std::ptr::read(there), std::ptr::read(back)) });
}
