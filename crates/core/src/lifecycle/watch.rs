//! PEs that watch each other's processes, because another launcher has started them, which
//! publishes no deaths.
//!
//! Every wait and every test checks at intervals whether the process of another PE has ended, and
//! publishes that as memonet's launcher would. A wait polls at least every `DEPARTURE_POLL`
//! ([`crate::wait`]), so it sees a death within 100 ms.
//!
//! **I1.** *A PE's identity is unique.* Before a PE meets the others, it records the number of its
//! process, and when that started. No two processes ever have both in common.
//!
//! **I2.** *A pidfd is that of the PE's process when it is opened.* It is opened by number, and
//! kept only if that number is still the PE's afterwards. Then it was so at the opening, too, as
//! the PE had recorded its number before.
//!
//! **I3.** *No living PE is taken for dead.* A readable descriptor counts only if /proc, too, shows
//! no such process, or one that has ended: programs commonly close all descriptors that they do not
//! know, and open others. A PE in another pid namespace, or that could not read /proc, is not
//! watched.
//!
//! On several hosts, a PE watches the node's agent, which publishes the deaths of all PEs in one
//! order. When the agent has ended, nobody does: then the PEs elsewhere are lost, and those of the
//! node watch each other.

use crate::base::clock::rough_now;
use crate::base::error::{Cause, Lost};
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

/// Time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A PE's watch of the other PEs' processes.
pub(crate) struct Watch {
    me: usize,
    namespace: u32,
    /// Milliseconds of the rough clock at the last check.
    checked_ms: AtomicU64,
    /// Pidfds of the processes, that of the agent last; `None` where there was no room for a
    /// descriptor.
    pidfds: Mutex<Vec<Option<OwnedFd>>>,
    agent: Option<Agent>,
}

/// The agent of this node. Without it nobody tells what becomes of PEs elsewhere.
struct Agent {
    who: Identity,
    /// PEs elsewhere.
    far: Vec<usize>,
}

impl Watch {
    /// The watch of PE `me`, which is this process.
    pub(crate) fn new(me: usize, npes: usize, mine: Identity) -> Self {
        Watch {
            me,
            namespace: mine.namespace,
            checked_ms: AtomicU64::new(0),
            pidfds: Mutex::new((0..=npes).map(|_| None).collect()),
            agent: None,
        }
    }

    /// Also watches the node's agent, which is this process. Without it, the PEs elsewhere, `far`,
    /// are lost.
    pub(crate) fn with_agent(mut self, agent: Option<i32>, far: Vec<usize>) -> Self {
        let identity = |pid: i32| {
            let (pid, namespace) = (u32::try_from(pid).ok()?, self.namespace);
            Some(Identity { pid, namespace, started: Stat::of(pid)?.started })
        };
        // One that has ended by now has no identity, but its channel ends what uses it.
        self.agent = agent.and_then(identity).map(|who| Agent { who, far });
        self
    }

    #[cold]
    fn check_now(&self, control: &Control) {
        // A thread that has the lock does the check.
        let Ok(mut pidfds) = self.pidfds.try_lock() else { return };
        let living = |pe: &usize| *pe != self.me && !matches!(control.state(*pe), State::Dead(_));
        let npes = pidfds.len() - 1;
        let lost = |agent: &&Agent| agent.far.iter().all(|&pe| control.departure(pe).is_some());
        let agent = self.agent.as_ref().filter(|agent| !lost(agent));
        let known: Vec<(usize, Identity)> = match agent {
            Some(agent) => vec![(npes, agent.who)],
            None => (0..npes)
                .filter(living)
                .filter_map(|pe| {
                    Some((pe, control.identity(pe).filter(|who| who.namespace == self.namespace)?))
                })
                .collect(),
        };
        for &(pe, who) in &known {
            if pidfds[pe].is_none() {
                pidfds[pe] = open(who);
            }
        }
        let ended = readable(&pidfds);
        for (index, who) in known {
            let Some(cause) = end(who, &mut pidfds[index], ended[index]) else { continue };
            match agent.filter(|_| index == npes) {
                Some(agent) => {
                    let cause = Cause::Host(Lost::Closed);
                    agent.far.iter().for_each(|&pe| publish(control, pe, cause));
                }
                None => publish(control, index, cause),
            }
        }
    }
}

/// How a process has ended, if it has. `is_ready`: its pidfd is readable.
fn end(who: Identity, pidfd: &mut Option<OwnedFd>, is_ready: bool) -> Option<Cause> {
    if pidfd.is_some() && !is_ready {
        return None;
    }
    let stat = Stat::of(who.pid).filter(|stat| stat.started == who.started);
    match (pidfd.as_ref(), stat) {
        (Some(_), Some(stat)) if stat.state != 'Z' => {
            // I3: the number stands for another file of the program, which must not be closed.
            pidfd.take().map(IntoRawFd::into_raw_fd);
            None
        }
        (Some(pidfd), _) => Some(end_of(who.pid as i32, pidfd.as_fd())),
        // There is no room for a descriptor, or no such process. A zombie looks alive here.
        (None, Some(_)) => None,
        (None, None) => Some(UNKNOWN),
    }
}

impl Watcher for Watch {
    fn look(&self, control: &Control) {
        let (now, last) = (rough_now().as_millis() as u64, self.checked_ms.load(Ordering::Relaxed));
        let due = now.wrapping_sub(last) >= CHECK_INTERVAL.as_millis() as u64;
        if due
            && self
                .checked_ms
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.check_now(control);
        }
    }
}

/// A pidfd of a process, if it exists and there is room (I2).
fn open(who: Identity) -> Option<OwnedFd> {
    let pidfd = pidfd_open(Pid::from_raw(who.pid as i32)?, PidfdFlags::empty()).ok()?;
    Stat::of(who.pid).is_some_and(|stat| stat.started == who.started).then_some(pidfd)
}

/// Whether each descriptor is readable, or has an error.
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

/// Publishes a death as the launcher does. Only the first PE to call this has an effect.
fn publish(control: &Control, pe: usize, cause: Cause) {
    control.set_gone(pe);
    control.depart(pe, State::Dead(cause));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lifecycle::launch::JobFile;
    use std::process::{Child, Command};

    /// A job in which this process is PE 0, and `other` is recorded as PE 1.
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
    fn deaths_are_published_and_the_living_are_left_alone() {
        for before in [true, false] {
            let (child, who) = sleeper();
            let (control, watch) = job(who);
            if before {
                // Opens the pidfd while the process lives.
                (0..3).for_each(|_| watch.check_now(&control));
                assert_eq!(control.state(1), State::Joined);
            }
            end(child);
            watch.check_now(&control);
            assert!(matches!(
                control.state(1),
                State::Dead(Cause::Signal(libc::SIGKILL) | UNKNOWN)
            ));
            assert_eq!((control.identity(1), control.state(0)), (None, State::Joined));
        }
    }

    /// PEs publish no deaths while they have an agent, which has the order of all of them.
    #[test]
    fn an_agent_publishes_deaths_while_it_runs() {
        let ((child, who), (agent, of_agent)) = (sleeper(), sleeper());
        let control = JobFile::create(3, 1).unwrap().into_control().unwrap();
        let mine = Identity::mine().unwrap();
        for (pe, who) in [(0, mine), (1, who)] {
            control.introduce(pe, who);
        }
        assert!((0..3).all(|pe| control.step(pe, State::Empty, State::Joined)));
        let watch = Watch::new(0, 3, mine).with_agent(Some(of_agent.pid as i32), vec![2]);
        watch.check_now(&control);
        end(child);
        (0..3).for_each(|_| watch.check_now(&control));
        assert_eq!([1, 2].map(|pe| control.state(pe)), [State::Joined; 2]);
        end(agent);
        (0..2).for_each(|_| watch.check_now(&control));
        assert_eq!(control.state(2), State::Dead(Cause::Host(Lost::Closed)));
        assert!(matches!(control.state(1), State::Dead(Cause::Signal(libc::SIGKILL) | UNKNOWN)));
    }

    /// The process id of an ended PE is now that of another process.
    #[test]
    fn numbers_are_used_again() {
        let (child, mut who) = sleeper();
        who.started -= 1;
        let (control, watch) = job(who);
        watch.check_now(&control);
        assert_eq!(control.state(1), State::Dead(UNKNOWN));
        end(child);
    }

    #[test]
    fn numbers_of_other_namespaces_mean_nothing() {
        let (child, mut who) = sleeper();
        end(child);
        who.namespace -= 1;
        let (control, watch) = job(who);
        watch.check_now(&control);
        assert_eq!(control.state(1), State::Joined);
    }

    /// A program closes a descriptor that it does not know, and opens another with its number.
    #[test]
    fn descriptors_are_taken_away() {
        let (child, who) = sleeper();
        let (control, watch) = job(who);
        watch.check_now(&control);
        let null = std::fs::File::open("/dev/null").unwrap();
        let watched =
            watch.pidfds.lock().unwrap()[1].as_ref().map(rustix::fd::AsRawFd::as_raw_fd).unwrap();
        // SAFETY: replaces the watch's descriptor, as a careless program would; the watch never
        // closes a replaced one.
        assert_eq!(unsafe { libc::dup2(rustix::fd::AsRawFd::as_raw_fd(&null), watched) }, watched);
        (0..3).for_each(|_| watch.check_now(&control));
        assert_eq!(control.state(1), State::Joined);
        end(child);
        watch.check_now(&control);
        assert!(matches!(control.state(1), State::Dead(_)));
    }
}
