//! Multicast: every reader gets all blocks, whole, in order, once; bounds, leaving, deaths.

use crate::ground::yield_now;
use crate::setup::{Dice, Run, Setup};
use memonet_core::{Delivery, ENV_MULTICAST, Error, Job, Multicast, MulticastOptions, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

on_every_fabric!(
    [also on recorded, streams_dealt]
    blocks_arrive,
    any_writer_any_readers,
    by_trying,
    elements_of_all_kinds,
    in_place,
    nothing_is_published_without_a_commit,
    a_claim_may_be_committed_in_part,
    a_look_is_no_taking,
    conversations,
    many_channels,
    memory_is_reused,
    wrong_use,
    contradictions,
);

/// Whether readers read the writer's memory.
pub fn reads_in_place(setup: Setup) -> bool {
    setup.is_near() && std::env::var_os(ENV_MULTICAST).is_none()
}

pub fn with_capacity(bytes: usize) -> MulticastOptions {
    MulticastOptions::new().capacity(bytes)
}

pub fn small() -> MulticastOptions {
    with_capacity(4096)
}

/// Length of a block, which readers can compute, too: none, few, many, and more than there is room
/// for at once.
fn lengths(dice: &mut Dice, most: usize) -> usize {
    match dice.below(10) {
        0 => 0,
        1..7 => dice.below(8),
        7 => dice.below(most.max(1)) + 1,
        8 => most,
        _ => most + dice.below(4 * most + 1),
    }
}

/// The element of block `number` at `index`.
fn value(number: usize, index: usize) -> u64 {
    ((number as u64) << 32 | index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

pub fn others(job: &Job, writer: usize) -> Vec<usize> {
    (0..job.npes()).filter(|&pe| pe != writer).collect()
}

fn check(block: &[u64], number: usize, len: usize) {
    assert_eq!(block.len(), len, "block {number}");
    for (index, &seen) in block.iter().enumerate() {
        assert_eq!(seen, value(number, index), "block {number}, element {index} of {len}");
    }
}

fn write_one(
    channel: &mut Multicast<u64>,
    number: usize,
    len: usize,
    dice: &mut Dice,
) -> Result<()> {
    let block: Vec<u64> = (0..len).map(|index| value(number, index)).collect();
    match dice.below(4) {
        0 | 1 => channel.publish(&block),
        2 => {
            let mut claim = channel.claim(len)?;
            claim.copy_from_slice(&block);
            claim.commit()
        }
        _ => {
            let mut claim = channel.claim(len + 3)?;
            claim[..len].copy_from_slice(&block);
            claim.commit_first(len)
        }
    }
}

fn read_one(
    channel: &mut Multicast<u64>,
    number: usize,
    len: usize,
    dice: &mut Dice,
    buffer: &mut Vec<u64>,
) -> Result<()> {
    match dice.below(3) {
        0 => {
            let block = channel.peek()?;
            check(&block, number, len);
            block.pop();
        }
        1 => {
            // A look before the read.
            check(&channel.peek()?, number, len);
            channel.recv(buffer)?;
            check(buffer, number, len);
        }
        _ => {
            channel.recv(buffer)?;
            check(buffer, number, len);
        }
    }
    Ok(())
}

/// Sends `blocks` blocks from `writer` to `readers`.
fn stream(
    job: &Job,
    run: Run,
    writer: usize,
    readers: &[usize],
    options: MulticastOptions,
    blocks: usize,
) -> Result<()> {
    let mut channel = job.multicast::<u64>(writer, readers, options)?;
    let (mut lens, mut dice) = (run.shared_dice(), run.dice(job.pe()));
    // Around the largest block in place, with the smallest capacity.
    let most = 100;
    let mut buffer = Vec::new();
    for number in 0..blocks {
        let len = lengths(&mut lens, most);
        if job.pe() == writer {
            write_one(&mut channel, number, len, &mut dice)?;
        } else if readers.contains(&job.pe()) {
            read_one(&mut channel, number, len, &mut dice, &mut buffer)?;
        }
        if number % 8 == 0 {
            dice.dawdle();
        }
    }
    if readers.contains(&job.pe()) {
        let nothing = channel.try_recv(&mut buffer);
        assert!(
            matches!(nothing, Ok(false) | Err(Error::Closed { .. })),
            "one too many: {nothing:?}"
        );
    }
    Ok(())
}

fn blocks_arrive(setup: Setup) {
    let blocks = if reads_in_place(setup) { 600 } else { 100 };
    for run in setup.runs(&[1, 2, 3, 5, 9]) {
        run.job(move |job| {
            for capacity in [0, 4096, 1 << 16] {
                stream(job, run, 0, &others(job, 0), with_capacity(capacity), blocks)?;
            }
            job.barrier()
        });
    }
}

fn any_writer_any_readers(setup: Setup) {
    for run in setup.runs(&[2, 3, 5, 8]) {
        run.job(move |job| {
            for round in 0..6 {
                let mut dice = Dice::from(run.seed << 8 | round);
                let writer = dice.below(job.npes());
                let mut readers = others(job, writer);
                readers.rotate_left(dice.below(job.npes() - 1));
                readers.truncate(dice.below(job.npes()));
                stream(job, run, writer, &readers, small(), 40)?;
            }
            job.barrier()
        });
    }
}

fn by_trying(setup: Setup) {
    for run in setup.runs(&[2, 3, 5]) {
        run.job(move |job| {
            let mut channel = job.multicast::<u64>(0, &others(job, 0), small())?;
            let mut buffer = Vec::new();
            for number in 0..200 {
                let len = number % 70;
                if job.pe() == 0 {
                    loop {
                        match channel.try_claim(len)? {
                            Some(mut claim) => {
                                claim
                                    .iter_mut()
                                    .enumerate()
                                    .for_each(|(index, word)| *word = value(number, index));
                                break claim.commit()?;
                            }
                            None => yield_now(),
                        }
                    }
                } else if number % 2 == 0 {
                    while !channel.try_recv(&mut buffer)? {
                        yield_now();
                    }
                    check(&buffer, number, len);
                } else {
                    loop {
                        match channel.try_peek()? {
                            Some(block) => {
                                check(&block, number, len);
                                break block.pop();
                            }
                            None => yield_now(),
                        }
                    }
                }
            }
            job.barrier()
        });
    }
}

#[derive(
    Clone, Copy, PartialEq, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
)]
#[repr(C, align(64))]
struct Wide([u8; 64]);

fn elements_of_all_kinds(setup: Setup) {
    fn pass<T: memonet_core::Plain + PartialEq + std::fmt::Debug>(
        job: &Job,
        make: impl Fn(usize) -> T,
    ) -> Result<()> {
        let mut channel = job.multicast::<T>(0, &others(job, 0), small())?;
        let mut buffer = Vec::new();
        for len in [0, 1, 2, 3, 7, 30, 31, 1000, 5] {
            let block: Vec<T> = (0..len).map(|index| make(len + index)).collect();
            if job.pe() == 0 {
                channel.publish(&block)?;
                let mut claim = channel.claim(len)?;
                claim.copy_from_slice(&block);
                claim.commit()?;
            } else {
                let seen = channel.peek()?;
                assert_eq!(seen.as_ptr() as usize % align_of::<T>(), 0);
                assert_eq!(*seen, *block);
                seen.pop();
                channel.recv(&mut buffer)?;
                assert_eq!(buffer, block);
            }
        }
        job.barrier()
    }
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            pass(job, |i| i as u8)?;
            pass(job, |i| i as u16)?;
            pass(job, |i| [i as u8; 3])?;
            pass(job, |i| i as f64)?;
            pass(job, |i| i as u128 * 3)?;
            pass(job, |i| Wide([i as u8; 64]))?;
            pass(job, |i| [i as u64; 200])
        });
    }
}

/// All readers see equal bytes, and in the writer's memory where it is mapped.
fn in_place(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        let all: Vec<usize> = (0..run.npes).collect();
        let forced = std::env::var_os(ENV_MULTICAST).is_some_and(|way| way != "hosts");
        let near = setup.are_near(&all, run.npes) && !forced;
        let written = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        run.job(move |job| {
            let mut channel = job.multicast::<u64>(0, &others(job, 0), small())?;
            let delivery = channel.delivery();
            assert_eq!(delivery == Delivery::Near, near);
            assert!(channel.most_in_place() >= 100);
            if job.pe() == 0 {
                let mut claim = channel.claim(100)?;
                written.store(claim.as_ptr() as usize, Ordering::Relaxed);
                claim.fill(7);
                claim.commit()?;
            } else {
                let block = channel.peek()?;
                assert_eq!(*block, [7; 100]);
                // Between hosts, the readers of the writer's host read there, too.
                let near = near
                    || delivery == Delivery::Hosts && setup.are_near(&[0, job.pe()], job.npes());
                // Threads of one process map the job once.
                assert_eq!(block.as_ptr() as usize == written.load(Ordering::Relaxed), near);
            }
            job.barrier()
        });
    }
}

fn nothing_is_published_without_a_commit(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let mut channel = job.multicast::<u64>(0, &others(job, 0), small())?;
            let mut buffer = Vec::new();
            for number in 0..50 {
                if job.pe() == 0 {
                    for len in [5, 0, 60, 3000] {
                        channel.claim(len)?.fill(u64::MAX);
                    }
                    channel.publish(&[number])?;
                } else {
                    channel.recv(&mut buffer)?;
                    assert_eq!(buffer, [number]);
                }
            }
            job.barrier()
        });
    }
}

/// Even where the claimed block cannot be written in place, but the committed one can.
fn a_claim_may_be_committed_in_part(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let mut channel = job.multicast::<u64>(0, &others(job, 0), small())?;
            for claimed in [200, 5000] {
                for len in [0, 1, 60, 200, claimed] {
                    if job.pe() == 0 {
                        let mut claim = channel.claim(claimed)?;
                        claim[..len]
                            .iter_mut()
                            .enumerate()
                            .for_each(|(index, word)| *word = value(claimed, index));
                        claim.commit_first(len)?;
                    } else {
                        let block = channel.peek()?;
                        check(&block, claimed, len);
                        block.pop();
                    }
                }
            }
            job.barrier()
        });
    }
}

fn a_look_is_no_taking(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let mut channel = job.multicast::<u64>(0, &others(job, 0), small())?;
            for (number, len) in [3, 2000, 0].into_iter().enumerate() {
                if job.pe() == 0 {
                    let block: Vec<u64> = (0..len).map(|index| value(number, index)).collect();
                    channel.publish(&block)?;
                } else {
                    for _ in 0..3 {
                        check(&channel.peek()?, number, len);
                        check(&channel.try_peek()?.expect("it is still there"), number, len);
                    }
                    channel.peek()?.pop();
                }
            }
            job.barrier()
        });
    }
}

/// Each PE has a channel to all others, and answers the blocks that it reads.
fn conversations(setup: Setup) {
    let rounds = if reads_in_place(setup) { 300 } else { 30 };
    for run in setup.runs(&[2, 3, 5]) {
        run.job(move |job| {
            let channels = (0..job.npes())
                .map(|writer| job.multicast::<u64>(writer, &others(job, writer), small()));
            let mut channels = channels.collect::<Result<Vec<_>>>()?;
            let (mut buffer, mut sum) = (Vec::new(), job.pe() as u64);
            for _ in 0..rounds {
                channels[job.pe()].publish(&[sum])?;
                for other in others(job, job.pe()) {
                    channels[other].recv(&mut buffer)?;
                    sum = sum.wrapping_add(buffer[0]);
                }
            }
            let sums = job.window::<u64>(1)?;
            sums.write(0, sum);
            job.barrier()?;
            for other in 0..job.npes() {
                assert_eq!(sums.get_one(other, 0)?, sum, "all have summed up the same");
            }
            job.barrier()
        });
    }
}

fn many_channels(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(|job| {
            let channels = (0..20).map(|_| job.multicast::<u64>(0, &others(job, 0), small()));
            let mut channels = channels.collect::<Result<Vec<_>>>()?;
            for round in 0..10 {
                for (number, channel) in channels.iter_mut().enumerate() {
                    if job.pe() == 0 {
                        channel.publish(&[round, number as u64])?;
                    }
                }
                // In another order.
                for (number, channel) in channels.iter_mut().enumerate().rev() {
                    if job.pe() != 0 {
                        assert_eq!(*channel.peek()?, [round, number as u64]);
                        channel.peek()?.pop();
                    }
                }
            }
            job.barrier()
        });
    }
}

/// Channels come and go, dropped in any order, and the memory of old ones holds anything.
fn memory_is_reused(setup: Setup) {
    for run in setup.runs(&[2, 3]) {
        run.job(move |job| {
            for round in 0..8 {
                stream(
                    job,
                    run,
                    round % job.npes(),
                    &others(job, round % job.npes()),
                    small(),
                    20,
                )?;
                let words = job.window::<u64>(1000)?;
                words.fill(0..1000, u64::MAX);
                words.free()?;
            }
            job.barrier()
        });
    }
}

fn wrong_use(setup: Setup) {
    for run in setup.runs(&[3]) {
        run.job(|job| {
            let mut buffer = Vec::new();
            for (writer, readers) in [(0, vec![0, 1]), (0, vec![1, 1]), (2, vec![0, 2])] {
                assert!(matches!(
                    job.multicast::<u64>(writer, &readers, small()).map(drop),
                    Err(Error::Misuse { .. })
                ));
            }
            assert!(matches!(
                job.multicast::<u64>(3, &[0], small()).map(drop),
                Err(Error::NoSuchPe { pe: 3, .. })
            ));
            assert!(matches!(
                job.multicast::<u64>(0, &[1, 7], small()).map(drop),
                Err(Error::NoSuchPe { pe: 7, .. })
            ));
            assert!(matches!(
                job.multicast::<[u64; 0]>(0, &[1], small()).map(drop),
                Err(Error::Misuse { .. })
            ));
            let all = with_capacity(usize::MAX);
            assert!(matches!(
                job.multicast::<u64>(0, &[1], all).map(drop),
                Err(Error::Overflow { .. })
            ));
            let much = with_capacity(1 << 58);
            assert!(matches!(
                job.multicast::<u64>(0, &[1], much).map(drop),
                Err(Error::OutOfMemory { .. })
            ));
            let mut channel = job.multicast::<u64>(0, &[1], small())?;
            assert!((channel.most_in_place() == 0) == (job.pe() == 2));
            if job.pe() != 0 {
                assert!(matches!(channel.publish(&[1]), Err(Error::Misuse { .. })));
                assert!(matches!(channel.claim(1).map(drop), Err(Error::Misuse { .. })));
                assert!(matches!(channel.try_claim(1).map(drop), Err(Error::Misuse { .. })));
            } else {
                assert!(matches!(channel.claim(usize::MAX).map(drop), Err(Error::Overflow { .. })));
                assert!(matches!(channel.try_claim(1 << 20).map(drop), Err(Error::Misuse { .. })));
                assert!(matches!(
                    channel.claim(3)?.commit_first(4),
                    Err(Error::OutOfBounds { .. })
                ));
            }
            if job.pe() != 1 {
                assert!(matches!(channel.recv(&mut buffer), Err(Error::Misuse { .. })));
                assert!(matches!(channel.try_recv(&mut buffer), Err(Error::Misuse { .. })));
                assert!(matches!(channel.peek().map(drop), Err(Error::Misuse { .. })));
                assert!(matches!(channel.try_peek().map(drop), Err(Error::Misuse { .. })));
            }
            job.barrier()
        });
    }
}

/// PEs that ask for different channels all get an error, and the job goes on.
fn contradictions(setup: Setup) {
    for run in setup.runs(&[3]) {
        run.job(move |job| {
            let odd = job.pe() == 2;
            let refused = |made: Result<Multicast<u64>>| {
                assert!(matches!(made.map(drop), Err(Error::Unequal { .. })))
            };
            refused(job.multicast(usize::from(odd), if odd { &[0] } else { &[1] }, small()));
            refused(job.multicast(0, if odd { &[1, 2] } else { &[2, 1] }, small()));
            refused(job.multicast(
                0,
                &[1],
                if odd { small() } else { small().survive_readers(true) },
            ));
            let (narrow, wide) =
                (job.multicast::<u32>(0, &[1], small()), job.multicast::<u64>(0, &[1], small()));
            assert!(narrow.is_ok() && wide.is_ok());
            match odd {
                true => assert!(matches!(
                    job.multicast::<u32>(0, &[1], small()).map(drop),
                    Err(Error::Unequal { .. })
                )),
                false => refused(job.multicast(0, &[1], small())),
            }
            // Of these, a program has found that 48 bits of FNV-1a are the same.
            let (one, other) = (small().capacity(22_709_820), small().capacity(17_661_716));
            let other = other.drop_slow(Duration::from_nanos(83_071_485));
            refused(job.multicast(0, &[1, 2], if odd { one } else { other }));
            // Wrong at one PE alone.
            let made = job.multicast::<u64>(0, if odd { &[9] } else { &[1] }, small());
            match made.map(drop) {
                Err(Error::NoSuchPe { pe: 9, .. }) if odd => {}
                Err(Error::Unequal { .. }) if !odd => {}
                other => panic!("{other:?}"),
            }
            stream(job, run, 0, &[1, 2], small(), 10)?;
            job.barrier()
        });
    }
}
