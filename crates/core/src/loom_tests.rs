//! Every interleaving that loom finds, of the parts whose proofs stand in comments: the doorbell
//! and the wait loop, departures, barriers, steps of collectives, locks, the queue of shared data,
//! turns, multicast, and revocation. Run with
//! `RUSTFLAGS='--cfg loom' cargo test --profile models -p memonet-core --lib`.
//!
//! The code under test is the library's own, on a job's real layout; only [`crate::base::shm`] is a
//! model. Sleeps have no time-out there: whatever a sleeper would only notice by looking again by
//! itself is a deadlock, which fails the test.

mod handover;
mod lock;
mod multicast;
mod nodes;
mod steps;
mod tickets;
mod turn;

use crate::base::bells::Bells;
use crate::base::error::{Cause, Error, Quick};
use crate::base::layout::{BarrierSlot, Geometry, Grant, SystemArea};
use crate::base::memory::{Mapping, create_memfd};
use crate::base::shm;
use crate::base::status::State;
use crate::endpoint::control::Control;
use crate::endpoint::fabric::Fabric;
use crate::endpoint::pe::Pe;
use crate::sync::barrier::{Algorithm, Barrier};
use crate::wait::{self, Attention, Awaiting, Terms};
use crate::window::restricted::Hold;
use crate::window::{Inner, Window};
use loom::thread;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Words in the heap that tests use.
const WORDS: usize = 3;

/// Explores a test with at most `preemptions` of them; 0: any number.
fn explore(preemptions: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    // Some look at dozens of words.
    model.max_branches = 10_000;
    model.preemption_bound = (preemptions > 0).then_some(preemptions);
    model.check(test);
}

/// A job whose PEs have all joined.
fn job(npes: usize) -> Vec<Arc<Pe>> {
    job_with(npes, |_| None)
}

/// A job whose PEs have all joined, each with a fabric if there is one.
fn job_with(
    npes: usize,
    fabric: impl Fn(&Arc<Control>) -> Option<Box<dyn Fabric>>,
) -> Vec<Arc<Pe>> {
    let geometry = Geometry::new(npes, 0).unwrap();
    // One mapping for all explorations: nothing is ever written to it, and new pages cost more than
    // a short exploration.
    static MAPPINGS: [OnceLock<Mapping>; 5] = [const { OnceLock::new() }; 5];
    let mapping = MAPPINGS[npes].get_or_init(|| {
        let size = geometry.file_size();
        Mapping::new(create_memfd("memonet-loom", size).unwrap(), size as usize, true).unwrap()
    });
    let mapping = mapping.again();
    let control = Arc::new(Control::create(mapping, geometry, npes, npes, None));
    // SAFETY: the header's counter lies in the mapping, aligned.
    unsafe { shm::load(control.departures()) };
    assert_eq!(control.death(0), None);
    let pes: Vec<_> = (0..npes)
        .map(|me| Arc::new(Pe::new(control.clone(), me, fabric(&control), None)))
        .collect();
    for pe in &pes {
        assert!(control.step(pe.me(), State::Empty, State::Joined));
        control.doorbell(pe.me()).ring(true);
        (0..WORDS).for_each(|index| assert_eq!(read(pe, index), 0));
    }
    pes
}

fn word(pe: &Pe, index: usize) -> *mut u64 {
    pe.local(pe.control().geometry().heap_offset + 8 * index as u64).cast()
}

fn read(pe: &Pe, index: usize) -> u64 {
    // SAFETY: an aligned word of the mapped heap.
    unsafe { shm::load(word(pe, index)) }
}

fn write(pe: &Pe, index: usize, value: u64) {
    // SAFETY: an aligned word of the mapped heap.
    unsafe { shm::store(word(pe, index), value) }
}

/// A wait that departures do not end; for `words` that plain stores may change, or for what is
/// certain to be rung.
fn terms(words: bool) -> Terms<'static> {
    Terms::forever(if words { Awaiting::WordOf(&[], None) } else { Awaiting::Leave })
}

fn wait_for(pe: &Pe, index: usize, words: bool) {
    wait::until(pe, terms(words), || (read(pe, index) != 0).then_some(())).unwrap();
}

fn signal(pe: &Pe, index: usize) {
    write(pe, index, 1);
    pe.ring(pe.me());
}

mod doorbell {
    use super::*;

    #[test]
    fn a_ring_wakes() {
        explore(0, || {
            let pe = job(1).remove(0);
            let ringer = pe.clone();
            let ringer = thread::spawn(move || signal(&ringer, 0));
            wait_for(&pe, 0, false);
            ringer.join().unwrap();
        });
    }

    /// The second wait finds what the first one left in the doorbell.
    #[test]
    fn a_ring_wakes_again() {
        explore(0, || {
            let pe = job(1).remove(0);
            let ringer = pe.clone();
            let ringer = thread::spawn(move || {
                signal(&ringer, 0);
                signal(&ringer, 1);
            });
            wait_for(&pe, 0, false);
            wait_for(&pe, 1, false);
            ringer.join().unwrap();
        });
    }

    /// A plain store wakes once its writer enters a wait, fence or quiet.
    #[test]
    fn a_quiet_wakes_those_who_wait_for_words() {
        explore(0, || {
            let pes = job(2);
            let (pe, writer) = (pes[0].clone(), pes[1].clone());
            let owner = pe.clone();
            let writer = thread::spawn(move || {
                write(&owner, 0, 1);
                writer.wrote(0);
                writer.quiet().unwrap();
            });
            wait_for(&pe, 0, true);
            writer.join().unwrap();
        });
    }

    /// A front end's call ends the wait of a PE that is awake, going to sleep, or asleep.
    #[test]
    fn a_call_for_attention_wakes() {
        for words in [true, false] {
            explore(0, move || {
                let pe = job(1).remove(0);
                let attention = Attention::of(&pe);
                let front_end = thread::spawn(move || attention.call());
                let ended = wait::until(&pe, terms(words), || (read(&pe, 0) != 0).then_some(()));
                assert!(matches!(*ended.unwrap_err(), Error::Interrupted { .. }));
                front_end.join().unwrap();
            });
        }
    }

    #[test]
    fn two_ringers_one_sleeper() {
        explore(3, || {
            let pe = job(1).remove(0);
            let ringers = [0, 1].map(|index| {
                let pe = pe.clone();
                thread::spawn(move || signal(&pe, index))
            });
            wait::until(&pe, terms(false), || {
                (read(&pe, 0) != 0 && read(&pe, 1) != 0).then_some(())
            })
            .unwrap();
            ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
        });
    }

    #[test]
    fn one_ringer_two_sleepers_of_one_pe() {
        explore(3, || {
            let pe = job(1).remove(0);
            let (sleeper, ringer) = (pe.clone(), pe.clone());
            let sleeper = thread::spawn(move || wait_for(&sleeper, 0, false));
            let ringer = thread::spawn(move || signal(&ringer, 0));
            wait_for(&pe, 0, false);
            sleeper.join().unwrap();
            ringer.join().unwrap();
        });
    }

    #[test]
    fn two_ringers_two_sleepers_of_one_pe() {
        explore(2, || {
            let pe = job(1).remove(0);
            let sleeper = pe.clone();
            let sleeper = thread::spawn(move || wait_for(&sleeper, 0, false));
            let ringers = [0, 1].map(|index| {
                let pe = pe.clone();
                thread::spawn(move || signal(&pe, index))
            });
            wait_for(&pe, 1, false);
            sleeper.join().unwrap();
            ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
        });
    }

    /// One waits for words and the other does not: the announcement of either changes the doorbell
    /// under the other.
    #[test]
    fn sleepers_of_both_kinds() {
        explore(2, || {
            let pe = job(1).remove(0);
            let (sleeper, ringer) = (pe.clone(), pe.clone());
            let sleeper = thread::spawn(move || wait_for(&sleeper, 0, true));
            let ringer = thread::spawn(move || {
                signal(&ringer, 0);
                signal(&ringer, 1);
            });
            wait_for(&pe, 1, false);
            sleeper.join().unwrap();
            ringer.join().unwrap();
        });
    }
}

mod departure {
    use super::*;

    fn assert_killed(ended: Quick<()>, pe: usize) {
        let Err(Error::PeerFailed { pe: dead, cause, .. }) = ended.map_err(|error| *error) else {
            panic!("the wait ended without naming the dead")
        };
        assert_eq!((dead, cause), (pe, Cause::Signal(9)));
    }

    /// The launcher publishes a death while another PE waits, for words or for a barrier.
    #[test]
    fn a_death_ends_waits() {
        for words in [true, false] {
            explore(0, move || {
                let pes = job(2);
                let launcher = pes[1].clone();
                let launcher = thread::spawn(move || {
                    assert!(launcher.control().depart(1, State::Dead(Cause::Signal(9))))
                });
                let late = |_: usize| false;
                let lock = Awaiting::Lock { is_free_of: &late, holds: None, place: 0 };
                let terms = Terms::forever(if words { Awaiting::Word(None) } else { lock });
                let ended = wait::until(&pes[0], terms, || (read(&pes[0], 0) != 0).then_some(()));
                assert_killed(ended, 1);
                launcher.join().unwrap();
            });
        }
    }

    /// Two deaths, of which a wait sees both or the first one, but never the second one alone: it
    /// always names the first.
    #[test]
    fn the_first_of_two_deaths_is_named() {
        explore(3, || {
            let pes = job(3);
            let launcher = pes[0].clone();
            let launcher = thread::spawn(move || {
                let dead = State::Dead(Cause::Signal(9));
                assert!(launcher.control().depart(2, dead) && launcher.control().depart(1, dead));
            });
            let terms = Terms::forever(Awaiting::WordOf(&[1, 2], None));
            let ended = wait::until(&pes[0], terms, || (read(&pes[0], 0) != 0).then_some(()));
            assert_killed(ended, 2);
            launcher.join().unwrap();
        });
    }

    /// What a PE wrote before it died counts, though it rang nobody.
    #[test]
    fn the_last_words_of_the_dead_are_heard() {
        explore(0, || {
            let pes = job(2);
            let dying = pes.clone();
            let dying = thread::spawn(move || {
                write(&dying[0], 0, 1);
                dying[1].control().depart(1, State::Dead(Cause::Signal(9)));
            });
            wait::until(&pes[0], Terms::forever(Awaiting::Word(None)), || {
                (read(&pes[0], 0) != 0).then_some(())
            })
            .unwrap();
            dying.join().unwrap();
        });
    }

    /// Two deaths, published at once; the PE that is waited for may have taken a step of its own
    /// just then.
    #[test]
    fn a_death_while_leaving() {
        explore(3, || {
            let pes = job(3);
            let launcher = pes[1].clone();
            let launcher = thread::spawn(move || {
                assert!(launcher.control().depart(1, State::Dead(Cause::Signal(9))))
            });
            let leaving = pes[2].clone();
            let leaving = thread::spawn(move || leaving.finalize().unwrap());
            let terms = Terms::forever(Awaiting::WordOf(&[1], None));
            let ended = wait::until(&pes[0], terms, || (read(&pes[0], 0) != 0).then_some(()));
            assert_killed(ended, 1);
            launcher.join().unwrap();
            leaving.join().unwrap();
        });
    }
}

mod barrier {
    use super::*;

    /// Members of a barrier go through two phases of it; each says in its word where it is, with a
    /// plain store before it arrives.
    pub(super) fn meet(
        pes: Vec<Arc<Pe>>,
        algorithm: Algorithm,
        passes: fn(&Barrier, &dyn Fn(u64), &dyn Fn(u64)),
    ) {
        let npes = pes.len();
        let slot = Pe::barrier_slot(0);
        for pe in &pes {
            let words = [
                offset_of!(BarrierSlot, done),
                offset_of!(BarrierSlot, gather),
                offset_of!(BarrierSlot, counter),
                offset_of!(BarrierSlot, release),
            ];
            // At most a word for each other member or node.
            let rounds = (0..npes).map(|round| offset_of!(BarrierSlot, rounds) + 8 * round);
            for offset in words.into_iter().chain(rounds) {
                // SAFETY: an aligned word of the PE's mapped slot.
                assert_eq!(unsafe { shm::load::<u64>(pe.local(slot + offset as u64).cast()) }, 0);
            }
            let bells = pe.local(slot + offset_of!(BarrierSlot, bells) as u64).cast::<u32>();
            for bell in 0..Bells::COUNT {
                // SAFETY: as above.
                assert_eq!(unsafe { shm::load(bells.wrapping_add(bell)) }, 0);
            }
        }
        let member = |me: usize| {
            let pes = pes.clone();
            move || {
                let members = (0..npes).collect();
                let barrier = Barrier::with_algorithm(
                    pes[me].clone(),
                    members,
                    me,
                    0,
                    vec![0; npes].into(),
                    algorithm,
                );
                let arriving = |phase: u64| write(&pes[me], 0, phase);
                let passed = |phase: u64| {
                    for pe in &pes {
                        let at = read(pe, 0);
                        assert!(
                            at >= phase,
                            "PE {me} passed phase {phase}, PE {} was at {at}",
                            pe.me()
                        );
                    }
                };
                passes(&barrier, &arriving, &passed);
            }
        };
        let others: Vec<_> = (1..npes).map(|me| thread::spawn(member(me))).collect();
        member(0)();
        others.into_iter().for_each(|other| other.join().unwrap());
    }

    pub(super) fn whole(barrier: &Barrier, arriving: &dyn Fn(u64), passed: &dyn Fn(u64)) {
        for phase in 1..=2 {
            arriving(phase);
            barrier.pass().unwrap();
            passed(phase);
        }
    }

    /// One call per phase.
    pub(super) fn stepwise(barrier: &Barrier, arriving: &dyn Fn(u64), passed: &dyn Fn(u64)) {
        for phase in 1..=2 {
            arriving(phase);
            barrier.step().unwrap();
            passed(phase - 1);
        }
        barrier.wait().unwrap();
        passed(2);
    }

    macro_rules! barriers {
        ($($name:ident: $algorithm:ident $npes:literal $passes:ident, $preemptions:literal;)*) => {$(
            #[test]
            fn $name() {
                explore($preemptions, || meet(job($npes), Algorithm::$algorithm, $passes));
            }
        )*};
    }
    barriers! {
        everyone_2: Everyone 2 whole, 4;
        central_2: Central 2 whole, 4;
        tree_2: Tree 2 whole, 3;
        dissemination_2: Dissemination 2 whole, 4;
        everyone_2_stepwise: Everyone 2 stepwise, 3;
        central_2_stepwise: Central 2 stepwise, 3;
        tree_2_stepwise: Tree 2 stepwise, 3;
        dissemination_2_stepwise: Dissemination 2 stepwise, 3;
        everyone_3: Everyone 3 whole, 1;
        central_3: Central 3 whole, 2;
        tree_3: Tree 3 whole, 1;
        dissemination_3: Dissemination 3 whole, 1;
    }

    /// A PE that sees the end of a phase wakes the sleepers of one bell before, or while, the PE
    /// that completed the phase wakes all: beside interference, the PE that spins for its CPU.
    fn ringing(barrier: &Barrier, arriving: &dyn Fn(u64), passed: &dyn Fn(u64)) {
        for phase in 1..=2 {
            arriving(phase);
            barrier.step().unwrap();
            if barrier.test().unwrap() {
                barrier.ring_first_bell();
            }
            barrier.wait().unwrap();
            passed(phase);
        }
    }

    #[test]
    fn central_with_ringers() {
        explore(3, || meet(job(2), Algorithm::Central, ringing));
        explore(1, || meet(job(3), Algorithm::Central, ringing));
    }

    /// A PE that passes on what others notify sleeps on its own doorbell, where notifications
    /// come, and not on the barrier's.
    #[test]
    fn central_2_with_one_that_relays() {
        explore(3, || {
            let pes = job(2);
            pes[1].pretend_relays();
            meet(pes, Algorithm::Central, whole);
        });
    }
}

mod revocation {
    use super::*;

    /// Home 0 and holder 1, and home's view of the window.
    fn restricted() -> (Vec<Arc<Pe>>, Window<u64>) {
        let pes = job(2);
        let grant = (offset_of!(SystemArea, grants) + offset_of!(Grant, epoch)) as u64;
        for pe in &pes {
            // SAFETY: aligned words of the PE's mapped segment.
            unsafe {
                shm::load::<u64>(pe.local(grant).cast());
                shm::load::<u32>(pe.local(pe.control().geometry().hold(0, 0)).cast());
            }
        }
        let window = Window::view(Arc::new(Inner::bare(pes[0].clone()).unwrap()), None);
        (pes, window)
    }

    /// Nobody writes after `revoke_wait`, and what was written before is seen.
    #[test]
    fn no_write_after_revoke_wait() {
        explore(0, || {
            let (pes, window) = restricted();
            let revoked = Arc::new(AtomicBool::new(false));
            let holder = {
                let (pes, revoked) = (pes.clone(), revoked.clone());
                thread::spawn(move || {
                    let wrote = match Hold::take(&pes[1], 0, 0, 0) {
                        Ok(hold) => {
                            assert!(
                                !revoked.load(Ordering::Relaxed),
                                "a hold was granted after revoke_wait"
                            );
                            write(&pes[0], 0, 1);
                            assert!(!revoked.load(Ordering::Relaxed), "a write after revoke_wait");
                            drop(hold);
                            true
                        }
                        Err(Error::Revoked { pe: 0, key_epoch: 0, epoch: 1, .. }) => false,
                        Err(error) => panic!("{error}"),
                    };
                    pes[1].quiet().unwrap();
                    wrote
                })
            };
            window.revoke().unwrap();
            window.revoke_wait(None).unwrap();
            revoked.store(true, Ordering::Relaxed);
            let seen = read(&pes[0], 0);
            assert_eq!(holder.join().unwrap(), seen == 1);
        });
    }

    /// A holder that dies with its hold is passed over.
    #[test]
    fn the_dead_hold_nothing() {
        explore(3, || {
            let (pes, window) = restricted();
            let holder = thread::spawn(move || {
                std::mem::forget(Hold::take(&pes[1], 0, 0, 0));
                pes[1].control().depart(1, State::Dead(Cause::Signal(9)));
            });
            window.revoke().unwrap();
            window.revoke_wait(None).unwrap();
            holder.join().unwrap();
        });
    }
}

/// Each of two PEs writes, makes that quiet, and looks at what the other wrote: one of them sees
/// it.
#[test]
fn quiet_comes_before_later_loads() {
    explore(0, || {
        let pes = job(2);
        let [mine, other] = [pes[0].clone(), pes[1].clone()];
        // Both words lie in PE 0's heap; whose memory it is makes no difference to their order.
        let step = |pe: &Pe, home: &Pe, me: usize| {
            write(home, me, 1);
            pe.quiet().unwrap();
            read(home, 1 - me) == 1
        };
        let home = mine.clone();
        let thread = thread::spawn(move || step(&other, &home, 1));
        let saw = step(&mine, &mine, 0);
        assert!(thread.join().unwrap() || saw);
    });
}
