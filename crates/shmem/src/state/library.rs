//! The state of the library while it is initialised.

use crate::state::fatal::{self, die};
use crate::state::shared::Shared;
use crate::state::{caller, near, record, statics};
use memonet_core::unstable::callers::{Finder, find_instructions_by};
use memonet_core::unstable::launch::Participation;
use memonet_core::unstable::segment::{Segment, Spot, of_team, page_size};
use memonet_core::{By, Error, Job, SymmetricRange, Team};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The initialised library. The process makes it once and never frees it, because a program may
/// initialise the library again.
pub struct State {
    /// The job of this process.
    pub job: Job,
    /// The segments of the job's PEs.
    pub segment: Segment,
    /// Whether checks that cost time are on.
    pub check: bool,
    /// The static data of the program and of the libraries that the user names.
    pub(super) statics: Vec<Shared>,
    /// The reason why static data is not symmetric, if it is not.
    pub(super) no_statics: OnceLock<String>,
    /// The PEs of this PE's node: a team apart from the world, as threads may be in collectives of
    /// both at once.
    node: OnceLock<Team>,
}

/// The state; null while the library is not initialised.
static CURRENT: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());
/// The state of the job that this process has joined, or the reason why it could not join.
static MADE: OnceLock<Result<State, Error>> = OnceLock::new();

/// Joins the job and makes the program's static data symmetric. The first call does both; others
/// give the same result.
///
/// # Safety
/// On the first call, either no other thread writes static data, or there is no launcher.
pub unsafe fn join() -> Result<&'static State, &'static Error> {
    let made = MADE.get_or_init(|| {
        statics::watch_forks()?;
        let job = memonet_fabrics::init()?;
        job.take_part(Participation::NotYet)?;
        // The digest of static data, which PEs compare even where none are shared.
        job.open_globals(page_size());
        let mut no_statics = None;
        let statics = if !memonet_core::unstable::launch::is_pe() && statics::threads() > 1 {
            no_statics =
                Some("the program had started threads before it initialised the library, without a launcher (`oshrun -n 1` is one)");
            Vec::new()
        } else {
            // SAFETY: with a launcher, the caller promises that no other thread writes static data.
            // Without one, the branch above has found that this is the only thread.
            let shared = unsafe { statics::share(&job) }?;
            if shared.is_empty() && !statics::is_linked() {
                no_statics =
                    Some("the program does not link the library, but has loaded it by dlopen");
            }
            shared
        };
        let segment = job.segment();
        Ok(State {
            check: job.is_checked(),
            statics,
            no_statics: no_statics.map_or_else(OnceLock::new, |why| OnceLock::from(why.to_owned())),
            node: OnceLock::new(),
            segment,
            job,
        })
    });
    if let Ok(state) = made {
        fatal::set_job(&state.job);
        record::set_job(&state.job);
        find_instructions_by(Finder { instruction: caller::caller, line: caller::place });
    }
    made.as_ref()
}

/// The state. Ends the job if the library is not initialised.
#[inline(always)]
pub fn get(call: &'static str) -> &'static State {
    match current() {
        Some(state) => state,
        None => not_initialised(call),
    }
}

/// The state, if the library is initialised.
#[inline(always)]
pub fn current() -> Option<&'static State> {
    // SAFETY: `CURRENT` is null or points to the state in `MADE`, which is never dropped.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Makes the library initialised, or finalised where `state` is `None`.
pub fn set_current(state: Option<&'static State>) {
    near::close();
    if let Some(state) = state
        && !state.check
        && !state.job.is_recorded()
    {
        let statics = state.statics.first().filter(|_| state.no_statics.get().is_none());
        near::open(&state.job, &state.segment, statics);
    }
    CURRENT.store(
        state.map_or(std::ptr::null_mut(), |state| std::ptr::from_ref(state).cast_mut()),
        Ordering::Release,
    );
}

#[cold]
fn not_initialised(call: &'static str) -> ! {
    die(
        call,
        "the library is not initialised: call shmem_init before this call, and make no call after the last shmem_finalize",
    )
}

impl State {
    /// `bytes` in the segment of a PE, at an offset that [`offset`](Self::offset) gives.
    #[inline(always)]
    pub fn at(&self, pe: usize, offset: u64, bytes: usize) -> Option<Spot<'_>> {
        // SAFETY: the offset lies in the heap or in static data. The only objects of the job there
        // are blocks of the C program; use after free is the program's own mistake.
        unsafe { self.segment.at(pe, offset, bytes) }
    }

    /// Whether the memory of some PEs is not mapped here: the same at every PE.
    fn has_far(&self) -> bool {
        (0..self.job.npes()).any(|pe| !self.job.is_near(pe))
    }

    /// Makes the team of this PE's node. *Collective.*
    ///
    /// # Errors
    /// Those of [`Job::node_team`].
    pub fn meet_node(&self) -> memonet_core::Result<()> {
        if self.node.get().is_none() {
            // Only one thread initialises the library.
            let _ = self.node.set(self.job.node_team()?);
        }
        Ok(())
    }

    /// The PEs whose memory this process has mapped.
    pub fn node(&self) -> &Team {
        self.node.get().expect("initialising the library makes it")
    }

    /// `bytes` at an offset in the segment of every PE.
    pub fn place(&self, offset: u64, bytes: usize) -> Option<SymmetricRange> {
        // SAFETY: the offset lies in the heap or in static data, as in `at`.
        unsafe { self.segment.place(offset, bytes) }
    }

    /// A sentence about how this PE is set up, for a user.
    pub fn describe(&self) -> String {
        let statics: usize = self.statics.iter().map(|shared| shared.pages.len()).sum();
        let statics = match self.no_statics.get() {
            None => format!("{} KiB of static data are symmetric", statics >> 10),
            Some(why) => format!("static data are not symmetric: {why}"),
        };
        let others = self
            .job
            .fabric()
            .map_or("shared memory".to_owned(), |name| format!("the fabric {name:?}"));
        let checks = if self.check { "on" } else { "off" };
        format!(
            "process {}, one of {} PEs, which reach each other by {others}; its symmetric heap is at {:p}; {statics}; checks that cost time are {checks}",
            std::process::id(),
            self.job.npes(),
            self.segment.local().wrapping_add(self.segment.heap().start as usize)
        )
    }

    /// Compares the layout of static data between all PEs. Where it differs, static data is not
    /// symmetric. *Collective.*
    ///
    /// # Errors
    /// Those that the fabric reports.
    pub fn compare_statics(&self) -> memonet_core::Result<()> {
        let apart = statics::has_copies();
        if apart {
            let _ = self
                .no_statics
                .set("this process is a child of the process that joined the job, and has private copies".into());
        }
        if self.job.npes() == 1 {
            return Ok(());
        }
        let at = self.segment.heap().end;
        let mine = if apart { 0 } else { statics::digest(&self.statics).max(1) };
        // SAFETY: `at` is the start of a page of this PE's own segment, so the word is aligned and
        // mapped.
        unsafe {
            memonet_core::unstable::shm::store(
                self.segment.local().wrapping_add(at as usize).cast::<u64>(),
                mine,
            )
        };
        if self.has_far() {
            // A look at each far PE would wait for as many answers, one after the other. The root
            // learns what is equal at all PEs; 0 where that is nothing.
            let world = self.job.world();
            let equal = By(|one: u64, other: u64| if one == other { one } else { 0 });
            let equal = of_team(world, || world.reduce(equal, 0, mine))?.unwrap_or(0);
            if of_team(world, || world.broadcast(0, equal))? == mine {
                return Ok(());
            }
        } else {
            self.job.barrier()?;
        }
        for pe in 0..self.job.npes() {
            if self.segment.own_word(pe, at)? != mine {
                // Only the first reason is kept.
                let _ = self.no_statics.set(format!(
                    "PE {pe} runs another program than this PE, or is a child of the process that joined the job"
                ));
            }
        }
        Ok(())
    }
}
