//! Messages: whole, in order of each sender, once, with room for as many as they were made with.

use crate::failure::{blames, with_a_death};
use crate::setup::{ALL, Dice, FEW, Meeting, Setup};
use memonet_core::{Cause, Error, Job, Messages, Result};
use std::time::Duration;

on_every_fabric!(
    [also on recorded]
    all_to_all_in_order,
    lengths_up_to_the_most,
    a_full_ring_stops_its_sender_alone,
    to_oneself,
    nothing_comes_in_time,
    refusals,
    a_death_ends_the_waits_for_it,
    what_a_dead_pe_sent_is_received,
    ; with threads of their own:
    threads_share_the_messages,
    a_thread_that_waits_keeps_nobody,
    a_detection_thread,
);

/// The contents of a message: who sent it, its number, and bytes that follow from both.
fn contents(sender: usize, number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|byte| (sender * 31 + number * 7 + byte * byte) as u8).collect()
}

/// Lengths that both sides know.
fn length(sender: usize, number: usize, most: usize) -> usize {
    (sender * 13 + number * 29) % (most + 1)
}

fn all_to_all_in_order(setup: Setup) {
    const MOST: usize = 100;
    for run in setup.runs(ALL) {
        let each = if run.npes > 5 { 4 } else { 20 };
        run.job(move |job| {
            let messages = Messages::new(job, MOST, 3)?;
            let (me, npes) = (job.pe(), job.npes());
            let (mut sent, mut got) = (vec![0; npes], vec![0; npes]);
            let mut message = Vec::new();
            let mut dice: Dice = run.dice(me);
            while got.iter().sum::<usize>() < each * npes || sent.iter().any(|&sent| sent < each) {
                let to = dice.below(npes);
                let bytes = contents(me, sent[to], length(me, sent[to], MOST));
                if sent[to] < each && messages.try_send(to, &bytes)? {
                    sent[to] += 1;
                }
                while let Some(pe) = messages.try_recv(&mut message)? {
                    let expected = contents(pe, got[pe], length(pe, got[pe], MOST));
                    assert_eq!(message, expected, "message {} of PE {pe}", got[pe]);
                    got[pe] += 1;
                }
            }
            assert!(messages.try_recv(&mut message)?.is_none(), "one too many");
            job.barrier()
        });
    }
}

fn lengths_up_to_the_most(setup: Setup) {
    for most in [0, 1, 55, 56, 57, 5000] {
        for run in setup.runs(FEW) {
            run.job(move |job| {
                let messages = Messages::new(job, most, 2)?;
                assert_eq!(messages.most(), most);
                let lengths = [0, most / 2, most.saturating_sub(1), most];
                let mut message = vec![9; 9];
                for (number, &length) in lengths.iter().enumerate().cycle().take(10) {
                    let to = (job.pe() + 1) % job.npes();
                    let from = (job.pe() + job.npes() - 1) % job.npes();
                    messages.send(to, &contents(job.pe(), number, length))?;
                    messages.recv_from(from, &mut message)?;
                    assert_eq!(message, contents(from, number, length));
                }
                job.barrier()
            });
        }
    }
}

/// PE 0 takes nothing for a while: PE 1 cannot send to it any more, but to PE 2.
fn a_full_ring_stops_its_sender_alone(setup: Setup) {
    const DEPTH: usize = 4;
    for run in setup.runs(&[3]) {
        run.job(|job| {
            let messages = Messages::new(job, 8, DEPTH)?;
            let mut message = Vec::new();
            if job.pe() == 1 {
                for number in 0..DEPTH as u8 {
                    assert!(messages.try_send(0, &[number])?, "there is room for {DEPTH}");
                }
                assert!(!messages.try_send(0, &[9])?, "PE 0 has taken nothing");
                let late = messages.send_timeout(0, &[9], Duration::from_millis(2));
                assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
                for number in 0..2 * DEPTH as u8 {
                    messages.send(2, &[number])?;
                }
            }
            if job.pe() == 2 {
                for number in 0..2 * DEPTH as u8 {
                    assert_eq!((messages.recv(&mut message)?, &message[..]), (1, &[number][..]));
                }
            }
            job.barrier()?;
            match job.pe() {
                0 => {
                    for number in 0..=DEPTH as u8 {
                        messages.recv_from(1, &mut message)?;
                        assert_eq!(message, [number], "what was refused was not sent");
                    }
                }
                1 => messages.send_timeout(0, &[DEPTH as u8], Duration::from_secs(30))?,
                _ => {}
            }
            job.barrier()
        });
    }
}

fn to_oneself(setup: Setup) {
    for run in setup.runs(&[1, 2]) {
        run.job(|job| {
            let messages = Messages::new(job, 20, 1)?;
            let mut message = Vec::new();
            for number in 0..5 {
                messages.send(job.pe(), &contents(job.pe(), number, 20))?;
                assert!(!messages.try_send(job.pe(), &[])?, "room for one");
                assert_eq!(messages.recv(&mut message)?, job.pe());
                assert_eq!(message, contents(job.pe(), number, 20));
            }
            job.barrier()
        });
    }
}

fn nothing_comes_in_time(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let (messages, mut message) = (Messages::new(job, 8, 1)?, vec![5]);
            let late = messages.recv_timeout(&mut message, Duration::from_millis(3));
            assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
            let late = messages.recv_from_timeout(0, &mut message, Duration::from_millis(3));
            assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
            assert!(!messages.try_recv_from(0, &mut message)?);
            assert_eq!(message, [5], "as it was");
            job.barrier()?;
            let (next, before) = (job.pe() + 1, job.pe() + job.npes() - 1);
            messages.send(next % job.npes(), &[1])?;
            messages.recv_timeout(&mut message, Duration::from_secs(30))?;
            assert_eq!(message, [1]);
            messages.send(next % job.npes(), &[2])?;
            let before = before % job.npes();
            messages.recv_from_timeout(before, &mut message, Duration::from_secs(30))?;
            assert_eq!(message, [2]);
            job.barrier()
        });
    }
}

fn refusals(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let none = Messages::new(job, 8, 0);
            assert!(matches!(none, Err(Error::Misuse { .. })), "{none:?}");
            let huge = Messages::new(job, usize::MAX - 100, 1 << 60);
            assert!(matches!(huge, Err(Error::Overflow { .. })), "{huge:?}");
            let messages = Messages::new(job, 8, 1)?;
            let long = messages.send(0, &[0; 9]);
            assert!(matches!(long, Err(Error::Misuse { .. })), "{long:?}");
            // SAFETY: so many bytes of a vector.
            let long = unsafe { messages.send_from(0, vec![0; 9].as_ptr(), 9, None) };
            assert!(matches!(long, Err(Error::Misuse { .. })), "{long:?}");
            for pe in [job.npes(), usize::MAX] {
                let nobody = messages.send(pe, &[]);
                assert!(matches!(nobody, Err(Error::NoSuchPe { .. })), "{nobody:?}");
                let nobody = messages.recv_from(pe, &mut Vec::new());
                assert!(matches!(nobody, Err(Error::NoSuchPe { .. })), "{nobody:?}");
                let nobody = messages.try_recv_from(pe, &mut Vec::new());
                assert!(matches!(nobody, Err(Error::NoSuchPe { .. })), "{nobody:?}");
            }
            job.barrier()
        });
    }
}

/// PE 1 dies: who waits for a message of it, of anybody, or for room at it, is told; PEs that
/// depend on each other alone go on.
fn a_death_ends_the_waits_for_it(setup: Setup) {
    for run in setup.runs(&[3]) {
        let told = Meeting::new(2);
        let survive = move |job: &Job, messages: &Messages| {
            let mut message = Vec::new();
            blames(messages.recv_from(1, &mut message), 1, Cause::Panic, "recv_from");
            blames(messages.recv(&mut message), 1, Cause::Panic, "recv");
            let full = (0..3).map(|_| messages.send(1, &[1])).find(Result::is_err);
            blames(full.expect("nobody takes them"), 1, Cause::Panic, "send");
            // A message of a survivor is one of anybody.
            told.meet();
            let other = 2 - job.pe();
            messages.send(other, &[7])?;
            messages.recv_from(other, &mut message)?;
            assert_eq!(message, [7]);
            Ok(())
        };
        with_a_death(run, 1, |job| Messages::new(job, 8, 1), |_, _| Ok(()), survive);
    }
}

fn what_a_dead_pe_sent_is_received(setup: Setup) {
    for run in setup.runs(&[3]) {
        let begin = |job: &Job| {
            let messages = Messages::new(job, 8, 4)?;
            if job.pe() == 1 {
                for number in 0..2 {
                    messages.send(0, &[0, number])?;
                    messages.send(2, &[2, number])?;
                }
            }
            job.barrier()?;
            Ok(messages)
        };
        let survive = |job: &Job, messages: &Messages| {
            let mut message = Vec::new();
            assert_eq!(messages.recv(&mut message)?, 1);
            assert_eq!(message, [job.pe() as u8, 0]);
            // Nor does it matter that the fabric knows of the death by now.
            blames(job.barrier(), 1, Cause::Panic, "barrier");
            assert_eq!(messages.recv(&mut message)?, 1);
            assert_eq!(message, [job.pe() as u8, 1]);
            Ok(())
        };
        with_a_death(run, 1, begin, |_, _| Ok(()), survive);
    }
}

/// Threads send to one PE, and threads receive: each message is taken once.
fn threads_share_the_messages(setup: Setup) {
    const THREADS: usize = 3;
    let each = if setup.is_near() { 60 } else { 10 };
    for run in setup.runs(FEW) {
        run.job(move |job| {
            let messages = Messages::new(job, 8, 2)?;
            let sum = std::thread::scope(|scope| {
                let send = |thread: usize| {
                    let messages = &messages;
                    move || -> Result<u64> {
                        for number in 0..each {
                            let value = (thread * each + number) as u64;
                            messages.send((job.pe() + 1) % job.npes(), &value.to_ne_bytes())?;
                        }
                        Ok(0)
                    }
                };
                let receive = || -> Result<u64> {
                    let (mut message, mut sum) = (Vec::new(), 0);
                    for _ in 0..each {
                        messages.recv(&mut message)?;
                        sum += u64::from_ne_bytes(message[..].try_into().expect("8 bytes"));
                    }
                    Ok(sum)
                };
                let senders: Vec<_> =
                    (0..THREADS).map(|thread| scope.spawn(send(thread))).collect();
                let receivers: Vec<_> = (0..THREADS).map(|_| scope.spawn(receive)).collect();
                let all = senders.into_iter().chain(receivers);
                all.map(|thread| thread.join().unwrap()).sum::<Result<u64>>()
            })?;
            let count = (THREADS * each) as u64;
            assert_eq!(sum, count * (count - 1) / 2, "each message once");
            job.barrier()
        });
    }
}

/// A thread waits for room at a PE: the deadline of another one, and what does not wait, hold.
fn a_thread_that_waits_keeps_nobody(setup: Setup) {
    for run in setup.runs(FEW) {
        run.job(|job| {
            let messages = Messages::new(job, 8, 1)?;
            let (next, mut message) = ((job.pe() + 1) % job.npes(), Vec::new());
            messages.send(next, &[1])?;
            std::thread::scope(|scope| {
                let waits = scope.spawn(|| messages.send(next, &[2]));
                for _ in 0..3 {
                    let late = messages.send_timeout(next, &[9], Duration::from_millis(2));
                    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
                    assert!(!messages.try_send(next, &[9])?);
                }
                job.barrier()?;
                for number in [1, 2] {
                    messages.recv(&mut message)?;
                    assert_eq!(message, [number]);
                }
                waits.join().unwrap()
            })?;
            assert!(messages.try_recv(&mut message)?.is_none(), "what was refused was not sent");
            job.barrier()
        });
    }
}

/// A thread that looks for messages and wakes the one that waits for them.
fn a_detection_thread(setup: Setup) {
    const COUNT: usize = 10;
    for run in setup.runs(FEW) {
        run.job(|job| {
            let messages = Messages::new(job, 8, 2)?;
            let (hand_over, handed_over) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                let detection = scope.spawn(|| -> Result<()> {
                    let (mut message, hand_over) = (Vec::new(), hand_over);
                    for _ in 0..COUNT {
                        let sender = messages.recv(&mut message)?;
                        hand_over.send((sender, message.clone())).expect("the receiver waits");
                    }
                    Ok(())
                });
                for number in 0..COUNT as u8 {
                    messages.send((job.pe() + 1) % job.npes(), &[number])?;
                    let before = (job.pe() + job.npes() - 1) % job.npes();
                    assert_eq!(handed_over.recv().expect("it comes"), (before, vec![number]));
                }
                detection.join().unwrap()
            })?;
            job.barrier()
        });
    }
}
