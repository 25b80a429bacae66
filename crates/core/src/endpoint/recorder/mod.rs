//! Records what a PE's program does: each call of the API, each operation on the memory of a PE,
//! each wait.
//!
//! A PE has a recorder where its launcher has given it a part of a [file of records](layout), and
//! else none. Without one, nothing is recorded and nothing else changes: the one cost is that
//! `Pe::call`, the start of a long wait and the resolution of an address ask
//! whether there is one. With one:
//!
//! * **Calls.** `Recorder::begin` starts a call of the program, and the guard that it gives ends
//!   it. A call inside of another call of the same thread is part of that call: the outermost has
//!   the name, which is the C function's where the program is in C.
//! * **Operations.** What the program resolves becomes a *recorded address*: a far one, of near
//!   memory too, behind the [`Fabric`] that is the recorder. It notes each operation, and then
//!   makes it: by the processor where the memory is mapped here, by the PE's fabric where it is
//!   not. The library's own algorithms resolve by `Pe::route`, which gives
//!   no recorded address, so what they do is not noted: calls have its time.
//! * **Waits.** `Recorder::wait` starts a wait that did not end at its first looks, for the call
//!   that its thread is in.
//! * **Events.** Where the file has room for them, each of these is an [event](events), too, with
//!   its times, for a timeline.
//!
//! # Proof
//!
//! *Recording changes no result.* 1. A recorded address is made of a route that was resolved and
//! checked as without recording: it has the same PE, and the same pointer or the same far address,
//! of which `Place::of` gives the one or the other back. 2. On a pointer, each operation makes
//! the access by the same function of [`shm`] as `Route`, or by `copy_overlapping`, which is a
//! copy with more cases; a signal rings its PE in the same way. So order, atomicity and wake-ups
//! are those of near memory. 3. Otherwise it is the fabric's own call, with the address that the
//! fabric would have got. 4. A program sees from no call that an address is recorded: what asks
//! whether memory is mapped, and what prepares a transfer, asks `Route::unrecorded`.
//!
//! *No code of near memory changes.* `Route` keeps its two variants. While a PE records, `Window`
//! and `Segment` list no near parts, and the C front end's table lists no PEs. So all of its
//! operations take the path for far PEs, which is out of line.
//!
//! *Counts are exact.* Each word of a part is written by threads of one process, with atomic
//! additions unless the process has one thread. A process that the PE has forked off records
//! nothing (`Recorder::is_on`).

pub mod events;
mod fabric;
pub mod file;
pub mod layout;
mod mapped;
mod names;
pub mod objects;
pub(crate) mod part;
mod timeline;

use super::control::Control;
use super::descriptor::Descriptor;
use super::ending;
use super::fabric::{Fabric, FarAddress};
use super::pe::Pe;
use super::route::Route;
use crate::base::clock::monotonic_nanos;
#[cfg(doc)]
use crate::base::shm;
use crate::base::shows;
use crate::endpoint::awaiting::Awaiting;
use events::log::{Log, Slot};
use mapped::Mapped;
use names::{Names, OTHER};
use part::Part;
use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A block is written. A strided or indexed call writes one for each element.
    Put,
    /// A block is read.
    Get,
    /// A block is written, and then a signal.
    PutSignal,
    /// A word is written.
    Store,
    /// A word is read.
    Load,
    /// A signal word is updated, and its PE is woken.
    Signal,
    /// A word is updated atomically, and its old value comes back.
    FetchAtomic,
    /// A word is updated atomically, and nothing comes back.
    Atomic,
}

impl Kind {
    /// All kinds, in the order of the file.
    pub const ALL: [Kind; layout::KINDS] = [
        Kind::Put,
        Kind::Get,
        Kind::PutSignal,
        Kind::Store,
        Kind::Load,
        Kind::Signal,
        Kind::FetchAtomic,
        Kind::Atomic,
    ];

    /// Its name, for users.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Put => "put",
            Kind::Get => "get",
            Kind::PutSignal => "put_signal",
            Kind::Store => "store",
            Kind::Load => "load",
            Kind::Signal => "signal",
            Kind::FetchAtomic => "fetch_atomic",
            Kind::Atomic => "atomic",
        }
    }
}

/// In a region's number: the address is recorded.
const RECORDED: u32 = 1 << 31;
/// Beside it: the memory is mapped here, and the offset is the address of a byte in this process.
const MAPPED: u32 = 1 << 30;

const _: () = assert!(crate::base::layout::MAX_KEYS < MAPPED as usize);

/// Where a recorded address leads.
#[derive(Clone, Copy)]
enum Place {
    /// Memory that is mapped here.
    Here(*mut u8),
    /// Behind the PE's fabric.
    There(FarAddress),
}

impl Place {
    /// Undoes [`recorded`].
    fn of(at: FarAddress) -> Place {
        match at.region & MAPPED != 0 {
            true => Place::Here(at.offset as *mut u8),
            false => Place::There(FarAddress { region: at.region & !RECORDED, ..at }),
        }
    }
}

/// Whether an address is recorded.
#[inline]
pub(super) fn is_recorded(at: FarAddress) -> bool {
    at.region & RECORDED != 0
}

/// The recorded address of a route to memory of PE `pe`.
pub(super) fn recorded(pe: usize, route: Route) -> Route {
    Route::Far(match route {
        Route::Near(p) => FarAddress { pe: pe as u32, region: RECORDED | MAPPED, offset: p as u64 },
        Route::Far(at) => FarAddress { region: at.region | RECORDED, ..at },
    })
}

/// The route of which an address was made, if that is recorded.
pub(super) fn unrecorded(at: FarAddress) -> Route {
    match Place::of(at) {
        Place::Here(p) => Route::Near(p),
        Place::There(at) => Route::Far(at),
    }
}

/// Records what a PE's program does.
pub(crate) struct Recorder {
    me: usize,
    /// The process that is the PE.
    pid: AtomicU32,
    part: Part,
    names: Names,
    /// Events, where a timeline is wanted.
    log: Option<Log>,
    mapped: Mapped,
    /// How many shared objects and channels there were.
    objects: AtomicU32,
    control: Arc<Control>,
    descriptor: Arc<Descriptor>,
    fabric: Option<Arc<dyn Fabric>>,
}

/// The call in which a thread is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Current {
    /// Address of its recorder; null: the thread is in no call.
    of: *const Recorder,
    slot: usize,
    /// When the call began.
    began: u64,
    /// The thread waits: what waits inside of that wait do is part of it.
    waits: bool,
    /// The event of the call.
    event: Option<Slot>,
    /// That event says what the call does: more that it does gets events of its own.
    described: bool,
}

impl Current {
    pub(super) const NOTHING: Current = Current {
        of: std::ptr::null(),
        slot: OTHER,
        began: 0,
        waits: false,
        event: None,
        described: false,
    };
}

thread_local! {
    static CURRENT: Cell<Current> =
        const { Cell::new(Current::NOTHING) };
}

/// Says in which call the thread is from now on. Gives the one in which it was.
pub(super) fn replace(current: Current) -> Current {
    CURRENT.replace(current)
}

impl Recorder {
    /// The recorder of PE `me`, which counts in `part`.
    pub(crate) fn new(
        me: usize,
        part: Part,
        control: Arc<Control>,
        descriptor: Arc<Descriptor>,
        fabric: Option<Arc<dyn Fabric>>,
    ) -> Recorder {
        Recorder {
            me,
            pid: AtomicU32::new(std::process::id()),
            names: Names::of(&part),
            log: part.log(),
            mapped: Mapped::default(),
            objects: AtomicU32::new(0),
            part,
            control,
            descriptor,
            fabric,
        }
    }

    /// Makes this process the one that records.
    pub(super) fn become_this_process(&self) {
        self.pid.store(std::process::id(), Ordering::Relaxed);
    }

    /// Whether this process records: one that the PE forked off does not.
    fn is_on(&self) -> bool {
        !ending::is_forked() || std::process::id() == self.pid.load(Ordering::Relaxed)
    }

    /// The time in which the PE lives.
    fn nanos(&self) -> u64 {
        match self.fabric.as_ref().and_then(|fabric| fabric.clock()) {
            Some(clock) => clock.now().as_nanos() as u64,
            None => monotonic_nanos(),
        }
    }

    /// Begins a call of the program, made at `at`, of the window that was made at `window`. `None`
    /// inside of another call, be it one of another job: so a call's end never brings back another
    /// call, whose recorder may be gone by then.
    #[cold]
    #[inline(never)]
    pub(crate) fn begin(
        self: &Arc<Self>,
        name: &'static str,
        at: &'static Location<'static>,
        window: Option<&'static Location<'static>>,
    ) -> Option<Recording> {
        let before = CURRENT.get();
        if !before.of.is_null() || !self.is_on() {
            return None;
        }
        let (slot, began) = (self.names.slot(&self.part, name), self.nanos());
        let event = self.log.as_ref().and_then(|log| timeline::call(log, began, name, at, window));
        CURRENT.set(Current { of: &**self, slot, began, event, ..Current::NOTHING });
        Some(Recording { recorder: self.clone(), before })
    }

    /// Counts a call that ends now.
    fn end_call(&self, call: Current) {
        if std::ptr::eq(call.of, self) {
            let now = self.nanos();
            self.part.called(call.slot, now.saturating_sub(call.began));
            self.end(call.event, now);
        }
    }

    /// Notes an operation, which is made next. `value`: the word that it writes, or its operand.
    fn operation(&self, kind: Kind, at: FarAddress, bytes: usize, value: Option<u64>) -> Place {
        if self.is_on() {
            self.part.count(kind, at.pe as usize, bytes);
            self.note_operation(kind, at, bytes, value);
        }
        Place::of(at)
    }

    /// Begins a wait. `None` inside of another one.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait(&self, awaiting: &Awaiting<'_>) -> Option<Waited<'_>> {
        let current = CURRENT.get();
        let ours = std::ptr::eq(current.of, self);
        if current.waits || !self.is_on() {
            return None;
        }
        CURRENT.set(Current { waits: true, ..current });
        let (slot, began) = (if ours { current.slot } else { OTHER }, self.nanos());
        let what = awaiting.plain();
        let event = self.log.as_ref().and_then(|log| timeline::wait(log, began, what));
        Some(Waited { recorder: self, slot, began, event })
    }
}

/// A call of the program, until it is dropped.
pub struct Recording {
    recorder: Arc<Recorder>,
    /// What the thread was in before: perhaps a wait, and no call.
    before: Current,
}

shows!([] Recording as "Recording", |it| pe = it.recorder.me);

impl Drop for Recording {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        self.recorder.end_call(CURRENT.replace(self.before));
    }
}

/// Ends the call that this thread is in, where the process ends in the call and drops nothing. Its
/// waits have been counted by then, and would be more than the calls.
pub fn end_call() {
    let current = CURRENT.replace(Current::NOTHING);
    // SAFETY: a thread is in a call while there is its `Recording`, which keeps the recorder. One
    // that is never dropped keeps it for ever.
    if let Some(recorder) = unsafe { current.of.as_ref() } {
        recorder.end_call(current);
    }
}

/// A wait, until it is dropped.
pub(crate) struct Waited<'a> {
    recorder: &'a Recorder,
    slot: usize,
    began: u64,
    event: Option<Slot>,
}

impl Drop for Waited<'_> {
    fn drop(&mut self) {
        let now = self.recorder.nanos();
        self.recorder.part.waited(self.slot, now.saturating_sub(self.began));
        self.recorder.end(self.event, now);
        CURRENT.set(Current { waits: false, ..CURRENT.get() });
    }
}

impl Pe {
    /// Begins a call of the program, if this PE records.
    #[inline(always)]
    pub(crate) fn begin(
        &self,
        name: &'static str,
        at: &'static Location<'static>,
        window: Option<&'static Location<'static>>,
    ) -> Option<Recording> {
        self.recorder()?.begin(name, at, window)
    }

    /// Begins a call that is one operation, of a [`Remote`](crate::Remote), if its address is
    /// recorded.
    #[track_caller]
    pub(super) fn begin_at(&self, at: FarAddress, name: &'static str) -> Option<Recording> {
        if is_recorded(at) { self.begin(name, Location::caller(), None) } else { None }
    }

    /// Notes an operation on a route, which is made next, where the library makes it otherwise than
    /// by that route.
    pub(crate) fn note(&self, kind: Kind, route: Route, bytes: usize) {
        if let (Some(recorder), Route::Far(at)) = (self.recorder(), route)
            && is_recorded(at)
        {
            recorder.operation(kind, at, bytes, None);
        }
    }

    /// The fabric behind which an address is.
    #[inline]
    pub(crate) fn fabric_of(&self, at: FarAddress) -> &dyn Fabric {
        match self.recorder() {
            Some(recorder) if is_recorded(at) => &**recorder,
            _ => self.fabric(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::file::RecordFile;
    use super::*;
    use crate::job::Job;
    use crate::lifecycle::start::JobOptions;

    /// Ended in any order, calls of several PEs leave nothing of them behind.
    #[test]
    fn calls_that_end_in_the_wrong_order() {
        let file = Arc::new(RecordFile::create(2, 0, 2, 0).unwrap());
        let jobs =
            Job::threads_with(&JobOptions::new().record(file.clone()), 2, |job| job).unwrap();
        let (outer, inner) = (jobs[0].begin_call("outer"), jobs[1].begin_call("inner"));
        assert!(outer.is_some());
        drop((outer, inner));
        drop(jobs);
        assert!(CURRENT.get().of.is_null());
    }
}
