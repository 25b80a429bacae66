//! PEs that look after each other: those that another launcher has started, which tells nobody of
//! deaths.
//!
//! Every wait and every test looks, once in a while, whether the process of another PE has ended,
//! and publishes it as a launcher of memonet would. A wait goes for at most
//! `DEPARTURE_POLL` without a look ([`crate::wait`]), so it sees a death within 100 ms.
//!
//! *Nobody is taken for dead who lives.* A PE says before it meets the others who it is: the number
//! of its process, and when that started, which together no other process ever has. A descriptor of
//! the process is opened by number, and kept once that number has been seen to be the PE's still:
//! then it was so, too, when the descriptor was opened, as the PE had said its number before. A
//! readable descriptor is believed only where /proc, too, shows no such process, or one that has
//! ended: programs that close all descriptors they know nothing of, and open others, are common. A
//! PE in another pid namespace, or that could not read /proc, is not watched.

use crate::base::clock::rough_now;
use crate::base::error::Cause;
use crate::base::process::{Identity, Stat, UNKNOWN, end_of};
use crate::base::status::State;
use crate::endpoint::control::Control;
use crate::endpoint::progress::Watcher;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, IntoRawFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// What one PE knows of the others' processes.
pub(crate) struct Watch {
    me: usize,
    namespace: u32,
    /// Milliseconds of the rough clock at the last look.
    looked: AtomicU64,
    /// Descriptors of their processes, as far as there was room for them.
    pidfds: Mutex<Vec<Option<OwnedFd>>>,
}

impl Watch {
    /// For PE `me`, which is this process.
    pub(crate) fn new(me: usize, npes: usize, mine: Identity) -> Self {
        Watch {
            me,
            namespace: mine.namespace,
            looked: AtomicU64::new(0),
            pidfds: Mutex::new((0..npes).map(|_| None).collect()),
        }
    }

    #[cold]
    fn look_now(&self, control: &Control) {
        // Another thread that is at it does the same.
        let Ok(mut pidfds) = self.pidfds.try_lock() else { return };
        let living = |pe: &usize| *pe != self.me && !matches!(control.state(*pe), State::Dead(_));
        let known: Vec<(usize, Identity)> = (0..pidfds.len())
            .filter(living)
            .filter_map(|pe| {
                Some((pe, control.identity(pe).filter(|who| who.namespace == self.namespace)?))
            })
            .collect();
        for &(pe, who) in &known {
            if pidfds[pe].is_none() {
                pidfds[pe] = open(who);
            }
        }
        let ended = readable(&pidfds);
        for (pe, who) in known {
            match &pidfds[pe] {
                Some(_) if !ended[pe] => {}
                Some(pidfd) => match Stat::of(who.pid) {
                    Some(stat) if stat.started == who.started && stat.state != 'Z' => {
                        // Its number now stands for something else, which is not this PE's to
                        // close.
                        pidfds[pe].take().map(IntoRawFd::into_raw_fd);
                    }
                    _ => publish(control, pe, end_of(who.pid as i32, pidfd.as_fd())),
                },
                // No room for a descriptor, or no such process. One that has ended and is still to
                // be collected looks as if it lived.
                None => match Stat::of(who.pid) {
                    Some(stat) if stat.started == who.started => {}
                    _ => publish(control, pe, UNKNOWN),
                },
            }
        }
    }
}

impl Watcher for Watch {
    fn look(&self, control: &Control) {
        let (now, last) = (rough_now().as_millis() as u64, self.looked.load(Ordering::Relaxed));
        let due = now.wrapping_sub(last) >= PAUSE.as_millis() as u64;
        if due
            && self.looked.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.look_now(control);
        }
    }
}

/// A descriptor of a process, if it is there and there is room.
fn open(who: Identity) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(who.pid as i32)?, PidfdFlags::empty()).ok()?;
    Stat::of(who.pid).is_some_and(|stat| stat.started == who.started).then_some(pidfd)
}

/// Of each descriptor, whether there is something to be read, or something wrong.
fn readable(pidfds: &[Option<OwnedFd>]) -> Vec<bool> {
    let (which, mut polled): (Vec<usize>, Vec<PollFd<'_>>) = pidfds
        .iter()
        .enumerate()
        .filter_map(|(pe, pidfd)| Some((pe, PollFd::new(pidfd.as_ref()?, PollFlags::IN))))
        .unzip();
    let mut readable = vec![false; pidfds.len()];
    if poll(&mut polled, Some(&Timespec::default())).is_ok() {
        for (pe, polled) in which.into_iter().zip(polled) {
            readable[pe] = !polled.revents().is_empty();
        }
    }
    readable
}

/// As the launcher does, for whoever is the first to see it.
fn publish(control: &Control, pe: usize, cause: Cause) {
    control.set_gone(pe);
    control.depart(pe, State::Dead(cause));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lifecycle::launch::JobFile;
    use std::process::{Child, Command};

    /// A job in which this process is PE 0, and `other` is said to be PE 1.
    fn job(other: Identity) -> (Control, Watch) {
        let control = JobFile::create(2, 1).unwrap().into_control().unwrap();
        let mine = Identity::mine().unwrap();
        for (pe, who) in [(0, mine), (1, other)] {
            control.introduce(pe, who);
            control.step(pe, State::Empty, State::Joined);
        }
        assert_eq!((control.identity(0), control.identity(1)), (Some(mine), Some(other)));
        (control, Watch::new(0, 2, mine))
    }

    fn sleeper() -> (Child, Identity) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let who = Identity {
            pid: child.id(),
            started: Stat::of(child.id()).unwrap().started,
            ..Identity::mine().unwrap()
        };
        (child, who)
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn who_lives_is_left_alone_and_who_dies_is_told_of() {
        for before in [true, false] {
            let (child, who) = sleeper();
            let (control, watch) = job(who);
            if before {
                // With a descriptor that was opened while it lived.
                (0..3).for_each(|_| watch.look_now(&control));
                assert_eq!(control.state(1), State::Joined);
            }
            end(child);
            watch.look_now(&control);
            assert!(matches!(
                control.state(1),
                State::Dead(Cause::Signal(libc::SIGKILL) | UNKNOWN)
            ));
            assert_eq!((control.identity(1), control.state(0)), (None, State::Joined));
        }
    }

    /// The number of a PE that has ended now is another process's.
    #[test]
    fn numbers_are_used_again() {
        let (child, mut who) = sleeper();
        who.started -= 1;
        let (control, watch) = job(who);
        watch.look_now(&control);
        assert_eq!(control.state(1), State::Dead(UNKNOWN));
        end(child);
    }

    #[test]
    fn numbers_of_other_namespaces_mean_nothing() {
        let (child, mut who) = sleeper();
        end(child);
        who.namespace -= 1;
        let (control, watch) = job(who);
        watch.look_now(&control);
        assert_eq!(control.state(1), State::Joined);
    }

    /// A program closes a descriptor that it knows nothing of, and opens another, which gets its
    /// number.
    #[test]
    fn descriptors_are_taken_away() {
        let (child, who) = sleeper();
        let (control, watch) = job(who);
        watch.look_now(&control);
        let null = std::fs::File::open("/dev/null").unwrap();
        let watched =
            watch.pidfds.lock().unwrap()[1].as_ref().map(rustix::fd::AsRawFd::as_raw_fd).unwrap();
        // SAFETY: replaces the descriptor that the watch believes to have, as a careless program
        // would; it never closes it again.
        assert_eq!(unsafe { libc::dup2(rustix::fd::AsRawFd::as_raw_fd(&null), watched) }, watched);
        (0..3).for_each(|_| watch.look_now(&control));
        assert_eq!(control.state(1), State::Joined);
        end(child);
        watch.look_now(&control);
        assert!(matches!(control.state(1), State::Dead(_)));
    }
}
