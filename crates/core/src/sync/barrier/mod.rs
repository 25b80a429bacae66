//! Split-phase barriers.
//!
//! A phase has two halves: [`arrive`](Barrier::arrive) announces this PE, and [`Arrival::wait`]
//! returns when all PEs have arrived. Between the two a PE does work that does not depend on the
//! others. [`step`](Barrier::step) is the form with one call per phase: it completes the previous
//! phase and arrives at the next. [`try_step`](Barrier::try_step) does so if it need not wait.
//!
//! Five algorithms need no hardware. All of them only store growing numbers into words of the
//! barrier's slot in the members' segments, through routes, so they run on every fabric:
//!
//! | algorithm | stores per PE | steps on the way | chosen |
//! |---|---|---|---|
//! | [`everyone`] | n - 1 | 1 | up to 8 PEs with a CPU each: eight arrivals are one 8-byte load |
//! | [`central`] | 1, the last one n | 2 | more PEs than CPUs: each PE has to run once |
//! | [`tree`] | 1 to 9 | 2 log8 n | more than 8 PEs whose network copies writes; or on request: fewest messages at any one place |
//! | [`nodes`] | 1, one PE of each node one for each other node, or log2 of these | 3, or 2 + log2 of the nodes | PEs on several nodes, of which some have several: one message crosses for each pair of up to 8 nodes; between more, dissemination |
//! | [`dissemination`] | log2 n | log2 n | else |
//!
//! Where the network copies writes, a PE notifies all others by one store: each PE in [`everyone`],
//! the root in [`tree`], whose way down is one step then.
//!
//! [`hardware`] makes the barriers of those teams of two members or more that the network serves,
//! without any store.
//!
//! **Proof that no phase is passed too early.**
//!
//! * B1: A word holds the last phase that it announces, and phases only grow. A PE waits for "at
//!   least my phase".
//! * B2: No PE is more than one phase ahead of another: to complete phase p it needs every PE's
//!   arrival at p, directly or along the chain of stores.
//! * B3: So words never need resetting. The low byte of a phase, which is all that `everyone` and
//!   `tree` send up, tells p - 1, p and p + 1 apart.

mod at_once;
mod central;
mod dissemination;
mod everyone;
mod hardware;
mod nodes;
mod reduced;
mod relayed;
mod tree;

use crate::base::bells::Bells;
use crate::base::doorbell::Doorbell;
use crate::base::error::{Error, Quick, Result};
use crate::base::layout::BarrierSlot;
use crate::base::log::log;
use crate::base::settings::{self, ENV_BARRIER};
use crate::base::shm;
use crate::base::shows;
use crate::endpoint::calls::TeamCall;
use crate::endpoint::copies::Copies;
use crate::endpoint::ending;
use crate::endpoint::errand::Step;
use crate::endpoint::pe::Pe;
use crate::endpoint::recorder::events::TextId;
use crate::endpoint::route::Route;
use crate::wait::limit::{Limit, Patience};
use crate::wait::{self, Awaiting, Terms};
pub(crate) use at_once::AtOnce;
use relayed::Relayed;
use std::cell::Cell;
use std::ffi::OsStr;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The way in which PEs learn of arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Each member stores a byte into a word of each other.
    Everyone,
    /// A counter at the first member; the last member to arrive announces the phase.
    Central,
    /// Bytes up a tree of eight children each, phase numbers down.
    Tree,
    /// In round r, each member notifies the one 2^r further on.
    Dissemination,
    /// A counter on each node; when all members of a node have arrived, its first one notifies the
    /// other nodes.
    Nodes,
    /// The network says when all have arrived.
    Hardware,
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Algorithm::Everyone => "everyone",
            Algorithm::Central => "central",
            Algorithm::Tree => "tree",
            Algorithm::Dissemination => "dissemination",
            Algorithm::Nodes => "nodes",
            Algorithm::Hardware => "hardware",
        })
    }
}

impl Algorithm {
    /// Why [`choose`](Self::choose) gives it where none is forced.
    fn reason(self) -> &'static str {
        match self {
            Algorithm::Everyone => "as eight arrivals are seen with one load",
            Algorithm::Central => "as members share CPUs, and the last to arrive wakes the others",
            Algorithm::Tree | Algorithm::Dissemination => {
                "as members are too many to notify each other at once"
            }
            Algorithm::Nodes => "as members share nodes, and one of each talks to other nodes",
            Algorithm::Hardware => "as the network has barriers",
        }
    }

    /// Whether the other PEs need no more of a PE than its arrival. With the other algorithms PEs
    /// relay each other's arrivals, in every wait and test of the library. Then a PE that computes
    /// for long between arriving and waiting should test now and then.
    pub fn is_passive(self) -> bool {
        match self {
            Algorithm::Everyone => everyone::Everyone::PASSIVE,
            Algorithm::Central => central::Central::PASSIVE,
            Algorithm::Tree => tree::Tree::PASSIVE,
            Algorithm::Dissemination => dissemination::Dissemination::PASSIVE,
            Algorithm::Nodes => nodes::Nodes::PASSIVE,
            Algorithm::Hardware => hardware::Hardware::PASSIVE,
        }
    }

    /// The algorithm that `MEMONET_BARRIER` forces for `n` members, if it does.
    ///
    /// # Errors
    /// [`Error::Environment`] where the algorithm cannot serve `n` members.
    pub(crate) fn forced(n: usize) -> Result<Option<Self>> {
        settings::value(ENV_BARRIER).map(|value| Self::named(&value, n)).transpose()
    }

    /// The algorithm of this name, for `n` members.
    ///
    /// # Errors
    /// As for [`forced`](Self::forced), and where there is none of this name.
    pub(crate) fn named(value: &OsStr, n: usize) -> Result<Self> {
        let bad = |problem: String| Error::Environment {
            name: ENV_BARRIER,
            value: value.to_string_lossy().into_owned(),
            problem,
            fix: "Use everyone (up to 8 PEs), central, tree or dissemination, or unset it",
        };
        Ok(match value.to_str() {
            Some("everyone") if n <= everyone::MOST => Algorithm::Everyone,
            Some("everyone") => return Err(bad(format!("cannot serve a team of {n}"))),
            Some("central") => Algorithm::Central,
            Some("tree") => Algorithm::Tree,
            Some("dissemination") => Algorithm::Dissemination,
            _ => return Err(bad("is no barrier algorithm".into())),
        })
    }

    /// The algorithm for a team: the one that `MEMONET_BARRIER` forces, or the one that measured
    /// fastest (`memonet bench barrier`). All members choose the same one, as the choice depends on
    /// the job's record alone.
    ///
    /// # Errors
    /// As for [`forced`](Self::forced).
    fn choose(Slot { pe, members, copies, .. }: &Slot) -> Result<Self> {
        let shares_cpus = || {
            let record = pe.record();
            record.are_near(members.iter().copied()) && record.is_crowded(members[0])
        };
        let shares_nodes = || {
            let record = pe.record();
            // Thousands of simulated PEs in one process ask this: nothing is built without nodes.
            record.is_mixed() && (2..members.len()).contains(&record.by_node(members).len())
        };
        Ok(match Self::forced(members.len())? {
            Some(forced) => forced,
            None if shares_cpus() => Algorithm::Central,
            None if shares_nodes() => Algorithm::Nodes,
            None if members.len() <= everyone::MOST => Algorithm::Everyone,
            None if copies.is_some() => Algorithm::Tree,
            None => Algorithm::Dissemination,
        })
    }
}

/// The rank of a PE among these members.
pub(crate) fn rank_of(members: &[usize], pe: usize) -> Option<usize> {
    // In the world, and in teams of its first PEs, a PE's number is its rank.
    if members.get(pe) == Some(&pe) {
        return Some(pe);
    }
    members.iter().position(|&member| member == pe)
}

/// The words of one barrier slot, and the PEs that share them.
#[derive(Clone)]
struct Slot {
    pe: Arc<Pe>,
    members: Arc<[usize]>,
    rank: usize,
    slot: usize,
    /// Address of this PE's own slot.
    own: OwnSlot,
    /// The teams and barriers that each member had dropped in this slot before.
    ended: Arc<[u64]>,
    /// Writes to all other members at once, where the network copies them.
    copies: Option<Arc<Copies>>,
}

/// An address in this PE's segment.
#[derive(Clone, Copy)]
struct OwnSlot(*mut u8);

// SAFETY: an address in the mapping that `Slot::pe` keeps, used only through `crate::base::shm`.
unsafe impl Send for OwnSlot {}
// SAFETY: as above.
unsafe impl Sync for OwnSlot {}

impl Slot {
    fn new(
        pe: Arc<Pe>,
        members: Arc<[usize]>,
        rank: usize,
        slot: usize,
        ended: Arc<[u64]>,
        copies: Option<Arc<Copies>>,
    ) -> Self {
        let own = OwnSlot(pe.local(Pe::barrier_slot(slot)));
        Slot { pe, members, rank, slot, own, ended, copies }
    }

    /// Stores into a word of all other members, at `offset` in [`BarrierSlot`].
    fn notify_all<T: shm::Word>(&self, copies: &Copies, offset: usize, value: T) {
        let word = Pe::barrier_slot(self.slot) + offset as u64;
        if let Err(error) = copies.store(word, value) {
            // As in `notify`.
            self.pe.surface_later(error);
        }
    }

    /// A word of a member's slot, at `offset` in [`BarrierSlot`].
    fn word(&self, rank: usize, offset: usize) -> Route {
        self.pe.route(self.members[rank], Pe::barrier_slot(self.slot) + offset as u64)
    }

    /// Offset in a segment of a word of this slot.
    fn offset(&self, word: usize) -> u64 {
        Pe::barrier_slot(self.slot) + word as u64
    }

    /// Address of a word of this PE's own slot.
    fn own(&self, offset: usize) -> *mut u64 {
        self.own.0.wrapping_add(offset).cast()
    }

    #[inline]
    fn read_own(&self, offset: usize) -> u64 {
        // SAFETY: `offset` is that of an aligned word of `BarrierSlot`, in this PE's mapped
        // segment.
        unsafe { shm::load(self.own(offset)) }
    }

    /// Publishes that this PE has done its part of `phase`, in case it leaves the job now.
    #[inline(always)]
    fn publish_done(&self, phase: u64) {
        // SAFETY: an aligned word of this PE's own slot.
        unsafe { shm::store(self.own(offset_of!(BarrierSlot, done)), phase) };
    }

    /// A word of a member's slot, for [`notify`](Self::notify).
    fn mailbox(&self, rank: usize, word: Route) -> Mailbox {
        let bell =
            matches!(word, Route::Near(_)).then(|| self.pe.control().doorbell(self.members[rank]));
        Mailbox { word, bell }
    }

    /// Stores into a member's word, and wakes that member.
    #[inline(always)]
    fn notify<T: shm::Word>(&self, to: &Mailbox, value: T) {
        if let Err(error) = to.word.notify(&self.pe, value) {
            // The barrier's wait says so, too, if it depends on that member.
            self.pe.surface_later(*error);
        }
        // Far, the fabric wakes it.
        if let Some(bell) = to.bell {
            self.pe.ring_bell(bell);
        }
    }
}

/// A word that a member polls, and the doorbell that wakes it where this PE has to.
struct Mailbox {
    word: Route,
    bell: Option<Doorbell>,
}

impl Mailbox {
    /// A notification as a step of an errand; `None` for a near member.
    fn step<T: shm::Word>(&self, value: T) -> Option<Step> {
        match self.word {
            Route::Near(_) => None,
            Route::Far(to) => {
                Some(Step::Notify { to, size: size_of::<T>() as u8, bits: value.to_bits() })
            }
        }
    }
}

/// A barrier algorithm. The methods are called by one thread at a time, and never block.
trait Phases {
    /// See [`Algorithm::is_passive`].
    const PASSIVE: bool;
    /// The bells on which members sleep, if not each on its own doorbell.
    #[inline(always)]
    fn bells(&self) -> Option<Bells> {
        None
    }
    /// Asks for what [`arrive`](Self::arrive) will write, in a call that does little before that.
    #[inline(always)]
    fn prepare(&self) {}
    /// Announces this PE's arrival at `phase`.
    fn arrive(&self, slot: &Slot, phase: u64) -> Quick<()>;
    /// Whether the network has [`step`](Self::step) as one operation.
    #[inline(always)]
    fn has_reduced_code(&self, _slot: &Slot) -> bool {
        false
    }
    /// Arrives at the next phase if the one before is complete. Gives whether it has arrived.
    #[inline(always)]
    fn step(&self, _slot: &Slot) -> Quick<bool> {
        unreachable!("only a network has a reduced code")
    }
    /// Relays arrivals. Gives whether `phase` is complete.
    fn poll(&self, slot: &Slot, phase: u64) -> Quick<bool>;
    /// Adds all steps of `phase`, from the arrival to the end, for an
    /// [errand](crate::endpoint::errand). False where they are not known beforehand.
    fn steps(&self, _slot: &Slot, _phase: u64, _steps: &mut Vec<Step>) -> bool {
        false
    }
    /// The errand has made the first of these steps, with so many notifications among them, or all.
    fn made(&self, _phase: u64, _notified: usize, _complete: bool) {}
    /// The barrier is dropped before its last phase is complete.
    fn dropped_early(&self, _slot: &Slot) {}
}

/// The algorithm of one barrier.
enum Selected {
    Everyone(everyone::Everyone),
    Central(central::Central),
    Tree(Relayed<tree::Tree>),
    Dissemination(Relayed<dissemination::Dissemination>),
    Nodes(Relayed<nodes::Nodes>),
    Hardware(hardware::Hardware),
}

/// Evaluates the expression for the barrier's algorithm: one branch per call, and none per look.
macro_rules! by_way {
    ($barrier:expr, $way:ident => $what:expr) => {
        match &$barrier.way {
            Selected::Everyone($way) => $what,
            Selected::Central($way) => $what,
            Selected::Tree($way) => $what,
            Selected::Dissemination($way) => $what,
            Selected::Nodes($way) => $what,
            Selected::Hardware($way) => $what,
        }
    };
}

/// A barrier over the members of a team. Made by [`Team::new_barrier`](crate::Team::new_barrier).
///
/// A PE may drop it once its last phase is complete; no member may then arrive any more. Dropped
/// before that, its slot is lost to the job.
///
/// ```
/// # use memonet_core::Job;
/// # Job::threads(3, |job| -> memonet_core::Result<()> {
/// let window = job.window::<u64>(1)?;
/// let barrier = job.world().new_barrier()?;
/// window.put_one((job.pe() + 1) % 3, 0, job.pe() as u64)?;
/// let arrival = barrier.arrive()?; // the put is visible before any PE passes
/// while !arrival.test()? {
///     // work that does not depend on the other PEs
/// }
/// assert_eq!(window.read(0), (job.pe() as u64 + 2) % 3);
/// # Ok(())
/// # }).unwrap().into_iter().for_each(|r| r.unwrap());
/// ```
pub struct Barrier {
    slot: Slot,
    algorithm: Algorithm,
    way: Selected,
    arrived: AtomicU64,
    complete: AtomicU64,
    /// Whether it may be [passed at once](Self::pass_at_once).
    at_once: bool,
    /// Set while a thread is in one of the calls.
    busy: AtomicBool,
    /// The members as a text of the timeline, if one is made.
    label: OnceLock<TextId>,
    /// The slot is never used again.
    lost: AtomicBool,
    /// A collective call was interrupted, and nobody may use the barrier any more.
    is_interrupted: AtomicBool,
}

shows!([] Barrier as "Barrier", |it| members = it.slot.members, algorithm = it.algorithm, phase = it.phase());

impl Barrier {
    /// A barrier in `slot`, whose words are zero at every member. `ended` says how many teams and
    /// barriers each member has dropped in it before.
    pub(crate) fn new(
        pe: Arc<Pe>,
        members: Arc<[usize]>,
        rank: usize,
        slot: usize,
        ended: Arc<[u64]>,
        copies: Option<Arc<Copies>>,
    ) -> Result<Self> {
        let hardware = hardware::Hardware::join(&pe, &members, slot)?;
        let slot = Slot::new(pe, members, rank, slot, ended, copies);
        match hardware {
            Some(way) => Ok(Self::with_way(slot, Algorithm::Hardware, Selected::Hardware(way))),
            None => {
                let algorithm = Algorithm::choose(&slot)?;
                let count = slot.members.len();
                let reason = match Algorithm::forced(count)? {
                    Some(_) => "as MEMONET_BARRIER says",
                    None => algorithm.reason(),
                };
                log!(Debug, slot.pe.me(), "barrier of {count} PEs: {algorithm}, {reason}");
                Ok(Self::by(slot, algorithm))
            }
        }
    }

    /// A barrier by an algorithm that needs no hardware.
    #[cfg(all(test, loom))]
    pub(crate) fn with_algorithm(
        pe: Arc<Pe>,
        members: Arc<[usize]>,
        rank: usize,
        slot: usize,
        ended: Arc<[u64]>,
        algorithm: Algorithm,
    ) -> Self {
        Self::by(Slot::new(pe, members, rank, slot, ended, None), algorithm)
    }

    fn by(slot: Slot, algorithm: Algorithm) -> Self {
        let way = match algorithm {
            Algorithm::Everyone => Selected::Everyone(everyone::Everyone::new(&slot)),
            Algorithm::Central => Selected::Central(central::Central::new(&slot)),
            Algorithm::Tree => Selected::Tree(Relayed::new(&slot, tree::Tree::new(&slot))),
            Algorithm::Dissemination => Selected::Dissemination(Relayed::new(
                &slot,
                dissemination::Dissemination::new(&slot),
            )),
            Algorithm::Nodes => Selected::Nodes(Relayed::new(&slot, nodes::Nodes::new(&slot))),
            Algorithm::Hardware => unreachable!("hardware is joined, and not chosen"),
        };
        Self::with_way(slot, algorithm, way)
    }

    fn with_way(slot: Slot, algorithm: Algorithm, way: Selected) -> Self {
        Barrier {
            at_once: at_once::is_possible(&slot, &way),
            slot,
            algorithm,
            way,
            arrived: AtomicU64::new(0),
            complete: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            label: OnceLock::new(),
            lost: AtomicBool::new(false),
            is_interrupted: AtomicBool::new(false),
        }
    }

    /// Keeps the slot from being used again, as stores to it may still arrive.
    pub(crate) fn keep_slot(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Rings one of the bells on which members may sleep, as a PE that spins for its CPU does.
    #[cfg(all(test, loom))]
    pub(crate) fn ring_first_bell(&self) {
        let bells = by_way!(self, way => way.bells());
        bells.expect("an algorithm that has some").of(0).ring_ordered();
    }

    /// The algorithm in use.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Phases at which this PE has arrived so far.
    #[inline]
    pub fn phase(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Runs `f` unless another thread of this PE is in this barrier: two threads would count as two
    /// PEs.
    #[inline(always)]
    fn exclusively<R>(&self, f: impl FnOnce() -> Quick<R>) -> Quick<R> {
        ending::refuse_child(&self.slot.pe)?;
        if !self.take() {
            return Err(self.is_taken());
        }
        let result = f();
        self.busy.store(false, Ordering::Release);
        result
    }

    /// The error where [`take`](Self::take) fails.
    #[cold]
    fn is_taken(&self) -> Box<Error> {
        Box::new(Error::misuse(match self.is_interrupted.load(Ordering::Relaxed) {
            true => {
                "a collective call or barrier of this team was interrupted, so its members do not agree on the next one: this PE can use the team no more"
            }
            false => {
                "two threads of one PE are in the same barrier at once; give each its own, or let one thread do it. Or an operator has panicked in a reduction of this team: this PE can use the team no more"
            }
        }))
    }

    /// Marks the barrier as busy; false where it is already. A process of one thread needs no
    /// exchange.
    #[inline(always)]
    fn take(&self) -> bool {
        if shm::is_single_threaded() {
            let free = !self.busy.load(Ordering::Relaxed);
            self.busy.store(true, Ordering::Relaxed);
            free
        } else {
            !self.busy.swap(true, Ordering::Acquire)
        }
    }

    /// Keeps the other threads of this PE out of this barrier, for a call that passes it several
    /// times: a thread that passed in between would end the call at the other PEs.
    ///
    /// # Errors
    /// [`Error::Misuse`] while another thread is in this barrier.
    pub(crate) fn hold(&self) -> Result<Whole<'_>> {
        if !self.take() {
            return Err(*self.is_taken());
        }
        Ok(Whole { barrier: self, is_over: Cell::new(false) })
    }

    /// Arrives at the next phase. This PE's earlier writes are visible at their targets before any
    /// PE passes the phase. If the previous phase is not complete yet (its [`Arrival`] was dropped
    /// without waiting), waits for it first.
    ///
    /// # Errors
    /// [`Error::PeerFailed`], or an error of an earlier write that surfaces now.
    #[track_caller]
    pub fn arrive(&self) -> Result<Arrival<'_>> {
        self.slot.pe.waiting_call("Barrier::arrive", None, || {
            self.step()?;
            Ok(Arrival { barrier: self })
        })
    }

    /// The one call per phase (RBC): waits until the previous phase is complete, and arrives at the
    /// next.
    ///
    /// When a PE returns from its k-th `step`, every PE has made its (k-1)-th. [`wait`](Self::wait)
    /// completes the last phase.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let barrier = job.world().new_barrier()?;
    /// for k in 1..=10 {
    ///     barrier.step()?; // every PE has made step k - 1
    ///     // the work of round k
    /// }
    /// barrier.wait()?; // every PE has made step 10
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`arrive`](Self::arrive).
    #[track_caller]
    pub fn step(&self) -> Result<()> {
        self.slot.pe.waiting_call("Barrier::step", None, || {
            Ok(self.exclusively(|| by_way!(self, way => self.next_of_split(way)))?)
        })
    }

    /// [`step`](Self::step), if the previous phase is complete: then this PE arrives at the next,
    /// and gets true. Otherwise it gets false, and nothing changes.
    ///
    /// ```
    /// # use memonet_core::Job;
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let barrier = job.world().new_barrier()?;
    /// let mut rounds = 0;
    /// while rounds < 10 {
    ///     if barrier.try_step()? {
    ///         rounds += 1; // every PE has made `rounds - 1` steps
    ///     } // else: work that does not depend on the others
    /// }
    /// barrier.wait()?;
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// As for [`arrive`](Self::arrive).
    #[track_caller]
    pub fn try_step(&self) -> Result<bool> {
        self.slot.pe.call("Barrier::try_step", None, || {
            Ok(self.exclusively(|| {
                by_way!(self, way => {
                    if self.is_for_reduced_code(way) {
                        return self.try_reduced_code(way);
                    }
                    let complete = self.look(way)?;
                    if complete {
                        self.next_of_split(way)?;
                    }
                    Ok(complete)
                })
            })?)
        })
    }

    /// Whether every member has arrived at the phase at which this PE arrived last.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] when that can never happen.
    #[track_caller]
    pub fn test(&self) -> Result<bool> {
        self.slot.pe.call("Barrier::test", None, || {
            Ok(self.exclusively(|| {
                let was_complete = self.is_complete();
                let complete = by_way!(self, way => self.look(way))?;
                if complete && !was_complete {
                    self.note_phase(false);
                }
                Ok(complete)
            })?)
        })
    }

    /// Waits until every member has arrived at the phase at which this PE arrived last.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] when a member is gone, within 100 ms.
    #[track_caller]
    pub fn wait(&self) -> Result<()> {
        self.slot.pe.waiting_call("Barrier::wait", None, || {
            Ok(self.exclusively(|| by_way!(self, way => self.end_phase(way, Patience::Forever)))?)
        })
    }

    /// [`wait`](Self::wait) with a deadline.
    ///
    /// ```
    /// # use memonet_core::{Error, Job};
    /// # use std::time::Duration;
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let barrier = job.world().new_barrier()?;
    /// barrier.step()?;
    /// while let Err(error) = barrier.wait_timeout(Duration::from_millis(10)) {
    ///     match error {
    ///         Error::Timeout { .. } => println!("PE {} still waits", job.pe()),
    ///         error => return Err(error),
    ///     }
    /// }
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Error::Timeout`]: the phase goes on, and the PE may wait for it again.
    #[track_caller]
    pub fn wait_timeout(&self, timeout: Duration) -> Result<()> {
        self.slot.pe.waiting_call("Barrier::wait_timeout", None, || {
            let limit = Limit::new(timeout);
            Ok(self.exclusively(|| by_way!(self, way => self.end_phase(way, limit.patience())))?)
        })
    }

    /// Arrives and waits. An error of the program's earlier writes surfaces at the end of its call,
    /// or later: it must not end a call that passes several times at one PE alone.
    #[inline(always)]
    pub(crate) fn pass(&self) -> Quick<()> {
        let passed = self.exclusively(|| {
            by_way!(self, way => {
                way.prepare();
                self.arrive_and_wait(way)
            })
        });
        passed.inspect_err(|error| self.end_if_interrupted(error))
    }

    #[inline(always)]
    fn arrive_and_wait(&self, way: &impl Phases) -> Quick<()> {
        if let Some(passed) = self.pass_by_errand(way) {
            return passed;
        }
        if let Err(error) = self.arrive_next(way)? {
            self.slot.pe.surface_later(*error);
        }
        self.finish(way, Patience::Forever)
    }

    /// Whether no phase is under way, and no call.
    #[inline(always)]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_complete() && !self.busy.load(Ordering::Relaxed)
    }

    /// The rest of a [`pass`](Self::pass) whose PE has [arrived](AtOnce::Arrived).
    pub(crate) fn go_on_passing(&self) -> Quick<()> {
        self.exclusively(|| by_way!(self, way => self.finish(way, Patience::Forever)))
            .inspect_err(|error| self.end_if_interrupted(error))
    }

    /// [`pass`](Self::pass) on a machine that makes all its steps for this PE; `None` where there
    /// is none.
    #[inline(always)]
    fn pass_by_errand<P: Phases>(&self, way: &P) -> Option<Quick<()>> {
        if self.slot.pe.is_simulated() { self.try_errand(way) } else { None }
    }

    #[cold]
    fn try_errand<P: Phases>(&self, way: &P) -> Option<Quick<()>> {
        let (pe, phase) = (&self.slot.pe, self.phase() + 1);
        if self.complete.load(Ordering::Relaxed) + 1 != phase
            || !pe.may_go()
            || ending::refusal(pe).is_some()
            || pe.has_late()
        {
            return None;
        }
        // As `arrive_next` and `finish` do.
        let mut steps = Vec::with_capacity(16);
        steps.push(Step::Quiet);
        if P::PASSIVE {
            let offset = self.slot.offset(offset_of!(BarrierSlot, done));
            steps.push(Step::Mark { offset, value: phase });
        }
        if !way.steps(&self.slot, phase, &mut steps) {
            return None;
        }
        pe.wake_written();
        self.arrived.store(phase, Ordering::Relaxed);
        let run = |terms: Terms<'_>| wait::errand::run(pe, terms, &steps);
        let made = match self.terms(way, Patience::Forever, run) {
            Some(Ok(made)) => made,
            none => {
                // Arriving once more would do no harm, by B1.
                self.arrived.store(phase - 1, Ordering::Relaxed);
                return none.map(|error| error.map(drop));
            }
        };
        let is_notification = |step: &&Step| matches!(step, Step::Notify { .. });
        let notified = steps[..made].iter().filter(is_notification).count();
        way.made(phase, notified, made == steps.len());
        if made == steps.len() {
            self.complete::<P>(phase);
            return Some(Ok(()));
        }
        Some(self.terms(way, Patience::Forever, |terms| self.go_on(way, terms.go_on(pe))))
    }

    /// [`wait`](Self::wait) at the beginning of a collective call.
    #[inline(always)]
    pub(crate) fn complete_for_collective(&self) -> Quick<()> {
        if self.is_at_rest() {
            return Ok(());
        }
        self.complete_slowly()
    }

    #[cold]
    #[inline(never)]
    fn complete_slowly(&self) -> Quick<()> {
        self.exclusively(|| by_way!(self, way => self.end_phase(way, Patience::Forever)))
            .inspect_err(|error| self.end_if_interrupted(error))
    }

    /// Makes this barrier, and so its team, unusable if `error` says that a collective call was
    /// interrupted: members no longer agree on the next call.
    #[cold]
    pub(crate) fn end_if_interrupted(&self, error: &Error) {
        if matches!(error, Error::Interrupted { .. }) {
            self.keep_slot();
            self.is_interrupted.store(true, Ordering::Relaxed);
            // Never cleared: all later calls find the barrier busy.
            self.busy.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the phase at which this PE arrived last is known to be complete.
    #[inline(always)]
    fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Relaxed) == self.phase()
    }

    /// Says for a timeline that this PE arrives, or that its call ends the phase at which it has
    /// arrived in another one.
    #[inline(always)]
    fn note_phase(&self, arrives: bool) {
        let Slot { pe, slot, members, .. } = &self.slot;
        pe.note_phase(*slot, &self.label, members, arrives);
    }

    /// [`next`](Self::next) in a call that does not wait for the phase at which it arrives.
    #[inline(always)]
    fn next_of_split(&self, way: &impl Phases) -> Quick<()> {
        if let Some(error) = ending::refusal(&self.slot.pe) {
            return Err(error.into());
        }
        if self.is_for_reduced_code(way) {
            return self.step_by_reduced_code(way);
        }
        self.end_phase(way, Patience::Forever)?;
        self.note_phase(true);
        self.next(way)
    }

    /// [`finish`](Self::finish) of a phase at which this PE has arrived in another call.
    #[inline(always)]
    fn end_phase(&self, way: &impl Phases, patience: Patience<'_>) -> Quick<()> {
        if !self.is_complete() {
            self.note_phase(false);
        }
        self.finish(way, patience)
    }

    /// Completes the phase that may be under way, and arrives at the next.
    #[inline(always)]
    fn next(&self, way: &impl Phases) -> Quick<()> {
        // A write that failed is this PE's error: it arrives all the same, so that the others do
        // not wait for ever.
        self.arrive_next(way)??;
        self.slot.pe.surface_if_far()
    }

    /// [`next`](Self::next). The inner result is that of earlier writes.
    #[inline(always)]
    fn arrive_next(&self, way: &impl Phases) -> Quick<Quick<()>> {
        if let Some(error) = ending::refusal(&self.slot.pe) {
            return Err(error.into());
        }
        self.finish(way, Patience::Forever)?;
        let written = self.slot.pe.complete_writes();
        match self.arrive_at(way, self.phase() + 1) {
            Ok(()) => Ok(written),
            Err(error) => Err(self.keep_lost(written, error)),
        }
    }

    /// The error of a call that has not arrived. That of earlier writes surfaces at a later call,
    /// which might arrive without them.
    #[cold]
    fn keep_lost(&self, written: Quick<()>, error: Box<Error>) -> Box<Error> {
        if let Err(lost) = written {
            self.slot.pe.surface_later(*lost);
        }
        error
    }

    #[inline(always)]
    fn arrive_at<P: Phases>(&self, way: &P, phase: u64) -> Quick<()> {
        if P::PASSIVE {
            // Before the arrival itself: a PE that sees the arrival also sees this.
            self.slot.publish_done(phase);
        }
        if let Err(error) = way.arrive(&self.slot, phase) {
            if P::PASSIVE {
                // Members must not wait for this arrival once the PE has left.
                self.slot.publish_done(phase - 1);
            }
            return Err(error);
        }
        self.arrived.store(phase, Ordering::Relaxed);
        Ok(())
    }

    fn look(&self, way: &impl Phases) -> Quick<bool> {
        if self.poll(way)? {
            return Ok(true);
        }
        wait::test(&self.slot.pe, || None::<()>);
        match self.terms(way, Patience::Forever, |terms| terms.departed(&self.slot.pe)) {
            Some(error) if !self.poll(way)? => Err(error.into()),
            _ => self.poll(way),
        }
    }

    #[inline(always)]
    fn poll<P: Phases>(&self, way: &P) -> Quick<bool> {
        let phase = self.phase();
        let done = self.complete.load(Ordering::Relaxed) == phase || way.poll(&self.slot, phase)?;
        if done {
            self.complete::<P>(phase);
        }
        Ok(done)
    }

    #[inline(always)]
    fn finish<P: Phases>(&self, way: &P, patience: Patience<'_>) -> Quick<()> {
        let phase = self.phase();
        if self.complete.load(Ordering::Relaxed) == phase {
            return Ok(());
        }
        if !way.poll(&self.slot, phase)? {
            return self.terms(way, patience, |terms| self.go_on(way, terms));
        }
        self.complete::<P>(phase);
        Ok(())
    }

    /// Waits for the end of the phase.
    #[inline(always)]
    fn go_on<P: Phases>(&self, way: &P, terms: Terms<'_>) -> Quick<()> {
        let phase = self.phase();
        wait::until(&self.slot.pe, terms, || match way.poll(&self.slot, phase) {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        })??;
        self.complete::<P>(phase);
        Ok(())
    }

    #[inline(always)]
    fn complete<P: Phases>(&self, phase: u64) {
        self.complete.store(phase, Ordering::Relaxed);
        if !P::PASSIVE {
            self.slot.publish_done(phase);
        }
    }

    #[inline(always)]
    fn terms<R>(
        &self,
        way: &impl Phases,
        patience: Patience<'_>,
        f: impl FnOnce(Terms<'_>) -> R,
    ) -> R {
        let arrived = |pe: usize| {
            let word = rank_of(&self.slot.members, pe).map(|rank| {
                self.slot.word(rank, offset_of!(BarrierSlot, done)).load::<u64>(&self.slot.pe)
            });
            matches!(word, Some(Ok(at)) if at >= self.phase())
        };
        let awaiting = Awaiting::Barrier {
            members: &self.slot.members,
            arrived: &arrived,
            bells: way.bells(),
            meeting: TeamCall { slot: self.slot.slot, number: self.phase() },
        };
        f(Terms::new(awaiting, patience))
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        // A process that the PE has forked off has a copy, of phases that may be over.
        if ending::refuse_child(&self.slot.pe).is_err() {
            return;
        }
        // Every store into this PE's slot announces an arrival, and all arrivals at a complete
        // phase have been seen. Where the last phase is not complete, some are still to come, and
        // the slot is never used again. Otherwise it rests until all members have dropped it, as
        // others may still read its words.
        let (slot, lost) = (&self.slot, self.lost.load(Ordering::Relaxed));
        let complete = by_way!(self, way => self.poll(way));
        if matches!(complete, Ok(false)) {
            by_way!(self, way => way.dropped_early(slot));
        }
        if matches!(complete, Ok(true)) && !lost {
            if let Selected::Hardware(way) = &self.way {
                way.leave(slot);
            }
            slot.pe.rest_slot(slot.slot, slot.members.clone(), slot.ended.clone());
        }
    }
}

/// A barrier that one call keeps for itself; see [`Barrier::hold`].
pub(crate) struct Whole<'a> {
    barrier: &'a Barrier,
    /// Whether the call was interrupted, so that nobody may use the barrier any more.
    is_over: Cell<bool>,
}

impl Whole<'_> {
    /// [`Barrier::pass`].
    pub(crate) fn pass(&self) -> Result<()> {
        let barrier = self.barrier;
        let passed = by_way!(barrier, way => barrier.arrive_and_wait(way));
        Ok(passed.inspect_err(|error| {
            barrier.end_if_interrupted(error);
            if matches!(**error, Error::Interrupted { .. }) {
                self.is_over.set(true);
            }
        })?)
    }

    /// The phase that the next [`pass`](Self::pass) completes.
    pub(crate) fn next_phase(&self) -> u64 {
        self.barrier.phase() + 1
    }
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        if !self.is_over.get() {
            self.barrier.busy.store(false, Ordering::Release);
        }
    }
}

/// Proof of arrival at a phase that may not be complete yet.
#[must_use = "the phase is complete only after `wait`"]
pub struct Arrival<'a> {
    barrier: &'a Barrier,
}

shows!([] Arrival<'_> as "Arrival", |it| barrier = it.barrier);

impl Arrival<'_> {
    /// Whether every member has arrived.
    ///
    /// # Errors
    /// As for [`Barrier::test`].
    pub fn test(&self) -> Result<bool> {
        self.barrier.test()
    }

    /// Waits until every member has arrived.
    ///
    /// # Errors
    /// As for [`Barrier::wait`].
    pub fn wait(self) -> Result<()> {
        self.barrier.wait()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::error::Cause;
    use crate::base::status::State;
    use crate::far;
    use crate::job::Job;
    use std::sync::Barrier as Meeting;

    /// The counter's PE has died. The PE that could not count itself does not say that it has
    /// arrived: others would wait for it, even when it has left.
    #[test]
    fn an_arrival_that_fails_is_none() {
        let meeting = Meeting::new(2);
        let job = Job::threads_with(&far::options(""), 2, |job| -> Result<()> {
            let made = job.world().new_barrier()?;
            let barrier = Barrier::by(made.slot.clone(), Algorithm::Central);
            barrier.keep_slot(); // The other one gives it back.
            job.barrier()?;
            // Both have left the barrier, which a departure would end.
            meeting.wait();
            let mut failed = None;
            if job.pe() == 1 {
                job.pe.control().depart(0, State::Dead(Cause::Exit(1)));
                job.pe.progress();
                failed = Some((barrier.step(), barrier.phase()));
            }
            meeting.wait();
            if let Some((step, phase)) = failed {
                assert!(matches!(step, Err(Error::PeerFailed { pe: 0, .. })), "{step:?}");
                assert_eq!((phase, barrier.slot.read_own(offset_of!(BarrierSlot, done))), (0, 0));
            }
            Ok(())
        });
        job.unwrap().into_iter().for_each(|result| result.unwrap());
    }
}
