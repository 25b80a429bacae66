//! Events: waits for words that a thread of the library makes, each with a descriptor that becomes
//! readable when the wait has ended. Event loops (epoll, mio, tokio's `AsyncFd`) hold the
//! descriptor beside their sockets.
//!
//! One thread serves all events of a PE. The first event starts it, and it ends when no event is
//! left. It only ever sleeps, as a wait in its last phase does ([`crate::wait`]): a signal wakes
//! it, and a plain store is seen at its next poll, within 4 ms.
//!
//! **Contract and proof.**
//!
//! * V1: *No change is missed.* The thread sleeps by the steps of the doorbell's proof, and looks
//!   at all events after each announcement. An event that is added or armed meanwhile is looked at
//!   by its caller, too; then the caller rings the doorbell, behind the change of the list.
//! * V2: *The descriptor is readable exactly while the event has ended.* Both change under the
//!   event's lock: the thread writes the eventfd when it ends the event, and arming reads it.
//! * V3: *Every event ends.* When a PE dies, or when all others have left, the event fails as a
//!   wait for a word would. When the event's own PE leaves the job, too. The thread sees a
//!   departure at its next poll, and so the end of a time limit.
//! * V4: *A dropped event is forgotten.* The thread has only weak references between two looks. One
//!   that is forgotten without being dropped keeps its window, its descriptor and the thread until
//!   the process ends, and harms nothing else.
//! * V5: *A forked child cannot end or arm an event.* It has copies of the descriptor, but no
//!   thread. It is refused before it takes a lock, which the thread may have held at the fork.
//! * V6: *The thread ends once, and is there when it is needed.* It leaves under the lock of the
//!   list, where it finds it empty; who adds an event there starts another thread.

use crate::base::compare::Cmp;
use crate::base::error::{Error, Result};
use crate::base::lock;
use crate::base::shm::Word;
use crate::base::shows;
use crate::endpoint::ending;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use crate::wait::limit::Limit;
use crate::wait::{self, Awaiting, Terms};
use crate::window::Window;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// A wait for an element of this PE's part, with a descriptor that is readable once the wait has
/// ended. Made by [`Window::event`].
///
/// The descriptor belongs to the event, which closes it; a program only polls it, and neither reads
/// nor writes it.
///
/// While an event waits, each fence, quiet or wait of a PE that has written to this one may cost
/// that PE a system call, which wakes this PE's thread.
pub struct Event<T: Word> {
    window: Window<T>,
    index: usize,
    shared: Arc<Shared>,
}

shows!([T: Word] Event<T> as "Event", |it| window = it.window, index = it.index, fd = it.as_raw_fd());

/// What an event's owner and the thread share.
struct Shared {
    state: Mutex<State>,
    ready: OwnedFd,
}

enum State {
    /// Gives the bits of the word where the comparison holds. The wait ends at its limit.
    Waiting(Box<dyn Fn() -> Option<u64> + Send>, Limit),
    Holds(u64),
    /// The error, until somebody has taken it.
    Failed(Option<Error>),
}

impl<T: Word> Window<T> {
    /// Begins to wait, in a thread of the library, until the comparison of element `index` of this
    /// PE's part with `value` holds. The event has a descriptor, for a program that waits for
    /// sockets, too. [`wait_until`](Self::wait_until) is faster where the program has nothing else
    /// to wait for.
    ///
    /// The wait depends on all PEs, as [`wait_until`](Self::wait_until) does.
    ///
    /// ```
    /// # use memonet_core::{Cmp, Job, SignalOp};
    /// # use rustix::event::{PollFd, PollFlags, poll};
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let steps = job.window::<u64>(1)?;
    /// if job.pe() == 0 {
    ///     steps.signal(1, 0, SignalOp::Set, 7)?;
    /// } else {
    ///     let event = steps.event(0, Cmp::Ge, 7)?;
    ///     // Here among other descriptors; or `tokio::io::unix::AsyncFd::new(event)`.
    ///     poll(&mut [PollFd::new(&event, PollFlags::IN)], None).unwrap();
    ///     assert_eq!(event.result()?, Some(7));
    /// }
    /// job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`OutOfBounds`](Error::OutOfBounds); [`System`](Error::System) where there is no further
    /// descriptor or thread; [`Misuse`](Error::Misuse) on a simulated machine, whose PEs have no
    /// threads, and in a forked child.
    #[track_caller]
    pub fn event(&self, index: usize, cmp: Cmp, value: T) -> Result<Event<T>> {
        self.inner.pe.call("Window::event", Some(self.inner.made), || {
            self.range(index, 1)?;
            let pe = &self.inner.pe;
            if pe.is_simulated() {
                return Err(Error::misuse(
                    "a PE of a simulated machine has no threads, and so no events: use wait_until or test_until",
                ));
            }
            let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let ready = ready.map_err(|why| Error::system("eventfd", why, "Close descriptors"))?;
            let state = Mutex::new(State::Failed(None));
            let shared = Arc::new(Shared { state, ready });
            let mut event = Event { window: self.clone(), index, shared };
            event.arm(cmp, value)?;
            Ok(event)
        })
    }
}

impl<T: Word> Event<T> {
    /// The word's value with which the wait has ended; `None` while it lasts.
    ///
    /// # Errors
    /// That of the wait, [`PeerFailed`](Error::PeerFailed) for example: to the first call after the
    /// event has failed. [`Misuse`](Error::Misuse) to later ones, and in a forked child.
    pub fn result(&self) -> Result<Option<T>> {
        ending::refuse_child(&self.window.inner.pe)?;
        match &mut *lock(&self.shared.state) {
            State::Waiting(..) => Ok(None),
            State::Holds(bits) => Ok(Some(T::from_bits(*bits))),
            State::Failed(error) => Err(error.take().unwrap_or(Error::misuse(
                "this event has failed, and an earlier call has said why; arm it again, or drop it",
            ))),
        }
    }

    /// Begins the next wait with the same element and descriptor, whether or not the last one has
    /// ended. The descriptor is readable no more, unless the comparison holds already.
    ///
    /// # Errors
    /// As for [`Window::event`].
    pub fn arm(&mut self, cmp: Cmp, value: T) -> Result<()> {
        let pe = &self.window.inner.pe;
        if let Some(refused) = ending::refusal(pe) {
            return Err(refused);
        }
        let (window, index) = (self.window.clone(), self.index);
        let look = move || {
            let seen = window.look(index);
            cmp.holds(seen, value).then(|| seen.to_bits())
        };
        {
            let mut state = lock(&self.shared.state);
            // V2. Where there is nothing to read, the event had not ended.
            let _ = rustix::io::read(&self.shared.ready, &mut [0; 8]);
            *state = State::Waiting(Box::new(look), Limit::none());
        }
        // V1.
        if self.shared.has_ended(pe) {
            return Ok(());
        }
        serve(pe, &self.shared)
    }

    /// Limits the wait that is under way: it ends with [`Timeout`](Error::Timeout) when so much
    /// time has passed from now on, and some milliseconds at most, unless it has ended before. The
    /// last limit counts. A wait that has ended stays as it is, and the next one has no limit.
    ///
    /// ```
    /// # use memonet_core::{Cmp, Error, Job};
    /// # use rustix::event::{PollFd, PollFlags, poll};
    /// # use std::time::Duration;
    /// # Job::threads(1, |job| -> memonet_core::Result<()> {
    /// let event = job.window::<u64>(1)?.event(0, Cmp::Ge, 7)?;
    /// event.timeout(Duration::from_millis(5))?;
    /// poll(&mut [PollFd::new(&event, PollFlags::IN)], None).unwrap();
    /// assert!(matches!(event.result(), Err(Error::Timeout { .. })));
    /// # Ok(())
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Misuse`](Error::Misuse) in a forked child.
    pub fn timeout(&self, after: Duration) -> Result<()> {
        let pe = &self.window.inner.pe;
        ending::refuse_child(pe)?;
        if let State::Waiting(_, limit) = &mut *lock(&self.shared.state) {
            *limit = Limit::new(after);
            limit.patience().begin(pe);
        }
        // No time is left of a limit of zero. Others end in a poll of the thread.
        self.shared.has_ended(pe);
        Ok(())
    }
}

/// The thread need not wait for its next poll to forget the event (V4), and to end if it was the
/// last.
impl<T: Word> Drop for Event<T> {
    fn drop(&mut self) {
        let pe = &self.window.inner.pe;
        if ending::refusal(pe).is_none() {
            *lock(&self.shared.state) = State::Failed(None);
            pe.ring(pe.me());
        }
    }
}

impl<T: Word> AsFd for Event<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.ready.as_fd()
    }
}

impl<T: Word> AsRawFd for Event<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.ready.as_raw_fd()
    }
}

impl Shared {
    /// Looks whether the event has ended, and ends it.
    fn has_ended(&self, pe: &Pe) -> bool {
        let mut state = lock(&self.state);
        let State::Waiting(look, limit) = &*state else { return true };
        let ended = match look() {
            Some(bits) => State::Holds(bits),
            None => match failure(pe).or_else(|| limit.patience().late(pe)) {
                // V3. A PE that has left may have written just before.
                Some(error) => look().map_or(State::Failed(Some(error)), State::Holds),
                None => return false,
            },
        };
        *state = ended;
        // V2. It can always take a first 1.
        let _ = rustix::io::write(&self.ready, &1u64.to_ne_bytes());
        true
    }
}

/// The error with which a wait for a word must end.
fn failure(pe: &Pe) -> Option<Error> {
    let own = pe.control().state(pe.me()).departed();
    own.map(|cause| pe.failed(pe.me(), cause))
        .or_else(|| Terms::forever(Awaiting::Word(None)).departed(pe))
}

/// The events of a PE that wait.
struct Events(Mutex<List>);

#[derive(Default)]
struct List {
    waiting: Vec<Weak<Shared>>,
    /// The process whose thread looks after them, if one does. A child that takes the PE's part has
    /// the list, but not the thread.
    served_by: Option<u32>,
}

impl Layer for Events {
    fn new(_pe: &Pe) -> Self {
        Events(Mutex::new(List::default()))
    }
}

/// Has the thread look after an event, and starts the thread where there is none.
fn serve(pe: &Arc<Pe>, event: &Arc<Shared>) -> Result<()> {
    let mut list = lock(&pe.layer::<Events>().0);
    let this = Arc::downgrade(event);
    if !list.waiting.iter().any(|other| other.ptr_eq(&this)) {
        list.waiting.push(this);
    }
    if list.served_by != Some(std::process::id()) {
        let pe = pe.clone();
        let started = without_signals(|| {
            std::thread::Builder::new().name("memonet-events".into()).spawn(move || run(&pe))
        });
        started.map_err(|why| Error::system("starting a thread", why, "End other threads"))?;
        list.served_by = Some(std::process::id());
    }
    drop(list);
    pe.ring(pe.me()); // V1
    Ok(())
}

fn run(pe: &Pe) {
    wait::asleep(pe, || {
        let mut list = lock(&pe.layer::<Events>().0);
        list.waiting.retain(|event| event.upgrade().is_some_and(|event| !event.has_ended(pe)));
        let is_empty = list.waiting.is_empty();
        is_empty.then(|| list.served_by = None) // V6
    });
}

/// Threads that `f` starts take no signals: those are the program's.
fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: plain sets of signals, filled by the first calls and restored by the last.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}
