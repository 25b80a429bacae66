//! What the library knows while it is initialised, and how it ends a job that cannot go on.

use crate::handle::{Ctx, Team};
use crate::near;
use crate::statics::{self, Shared};
use memonet_core::launch::Part;
use memonet_core::segment::{Segment, Spot, page_size};
use memonet_core::{Error, Job, Place, ending};
use std::ffi::c_int;
use std::fmt::Display;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The library in its initialised state. Made once, and never freed: a program may initialise
/// again.
pub struct State {
    /// The job.
    pub job: Job,
    /// Its segments.
    pub segment: Segment,
    /// Teams of the active sets that were used.
    pub sets: crate::active_set::Sets,
    /// Whether all checks are on.
    pub check: bool,
    /// The program's static data, and those of libraries.
    statics: Vec<Shared>,
    /// What keeps the statics from being symmetric.
    no_statics: OnceLock<String>,
}

/// The state, while the library is initialised.
static CURRENT: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());
/// The state, once it has been made.
static MADE: OnceLock<Result<State, Error>> = OnceLock::new();

/// Joins the job and makes the program's static data symmetric, unless that has been done.
///
/// # Safety
/// When called for the first time: no other thread writes static data now, or there is no launcher.
pub unsafe fn join() -> Result<&'static State, &'static Error> {
    MADE.get_or_init(|| {
        let job = memonet_fabrics::init()?;
        job.take_part(Part::NotYet)?;
        let mut no_statics = None;
        let statics = if !memonet_core::launch::is_pe() && threads() > 1 {
            no_statics =
                Some("the program had started threads before it initialised the library, without a launcher (`oshrun -n 1` is one)");
            Vec::new()
        } else {
            // SAFETY: the caller's promise; without a launcher, this is the only thread.
            unsafe { statics::share(&job) }?
        };
        let segment = job.segment();
        Ok(State {
            check: job.is_checked(),
            sets: Default::default(),
            statics,
            no_statics: no_statics.map_or_else(OnceLock::new, |why| OnceLock::from(why.to_owned())),
            segment,
            job,
        })
    })
    .as_ref()
}

/// Threads of this process.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// The state, or the end of the program: a call that is not allowed now.
#[inline(always)]
pub fn get(call: &'static str) -> &'static State {
    match current() {
        Some(state) => state,
        None => not_initialised(call),
    }
}

/// The state, while the library is initialised.
#[inline(always)]
pub fn current() -> Option<&'static State> {
    // SAFETY: null, or the state in `MADE`, which is never dropped.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// The library becomes initialised, or stops being so.
pub fn set_current(state: Option<&'static State>) {
    near::close();
    if let Some(state) = state
        && !state.check
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
        "the library is not initialised: call shmem_init before, and nothing of it after the last shmem_finalize",
    )
}

/// Ends the job because of a call that cannot be carried out.
#[cold]
#[inline(never)]
pub fn die(call: &'static str, why: impl Display) -> ! {
    if ending::is_under_way() {
        // Only the first reason counts: the others may be its consequences.
        ending::end(1);
    }
    if let Some(Ok(state)) = MADE.get() {
        if state.job.is_exiting() {
            // It fails because the job is being ended on purpose: that is not to be commented on.
            state.job.await_exit();
        }
        eprintln!("memonet: PE {}: {call}: {why}", state.job.pe());
    } else {
        eprintln!("memonet: {call}: {why}");
    }
    ending::end(1)
}

/// The result, or the end of the job.
#[inline(always)]
pub fn or_die<R>(call: &'static str, result: memonet_core::Result<R>) -> R {
    match result {
        Ok(value) => value,
        Err(error) => die(call, error),
    }
}

/// Ends the job where a call has no place to write its result to, rather than by a fault that names
/// nobody.
#[inline(always)]
pub fn check_result<T>(call: &'static str, argument: &'static str, place: *mut T) {
    if place.is_null() || current().is_some_and(|state| state.check) {
        no_place(call, argument, place as usize, size_of::<T>());
    }
}

#[cold]
#[inline(never)]
fn no_place(call: &'static str, argument: &'static str, place: usize, bytes: usize) {
    if place == 0 {
        die(
            call,
            format_args!(
                "{argument}: NULL has no room for the result; give the address of a variable"
            ),
        );
    }
    if let Some(state) = current() {
        state.check_local(call, argument, place, bytes);
    }
}

/// Bytes of `count` elements.
#[inline(always)]
pub fn bytes<T>(call: &'static str, count: usize) -> usize {
    match count.checked_mul(size_of::<T>()) {
        Some(bytes) if bytes <= isize::MAX as usize => bytes,
        _ => die(
            call,
            format_args!(
                "{count} elements of {} bytes are more than memory can hold",
                size_of::<T>()
            ),
        ),
    }
}

impl State {
    /// `bytes` of a PE at an offset that [`offset`](Self::offset) gives.
    #[inline(always)]
    pub fn at(&self, pe: usize, offset: u64, bytes: usize) -> Option<Spot<'_>> {
        // SAFETY: memory of the heap and of static data. A C program has no other objects of the
        // job there than blocks; what it does with blocks that it has freed is its own mistake.
        unsafe { self.segment.at(pe, offset, bytes) }
    }

    /// The same at every PE.
    pub fn place(&self, offset: u64, bytes: usize) -> Option<Place> {
        // SAFETY: as in `at`.
        unsafe { self.segment.place(offset, bytes) }
    }

    /// The offset in the segment of `bytes` at a symmetric address, if it is one.
    #[inline]
    pub fn offset(&self, address: usize, bytes: usize) -> Option<u64> {
        let within = |start: usize, len: usize, offset: u64| {
            let at = address.wrapping_sub(start);
            (at <= len && bytes <= len - at).then(|| offset + at as u64)
        };
        let heap = self.segment.heap();
        within(
            self.segment.local() as usize + heap.start as usize,
            (heap.end - heap.start) as usize,
            heap.start,
        )
        .or_else(|| {
            let in_statics =
                |shared: &Shared| within(shared.pages.start, shared.pages.len(), shared.offset);
            self.statics.iter().find_map(in_statics).filter(|_| self.no_statics.get().is_none())
        })
    }

    /// `bytes` at a symmetric address, in the memory of a PE of a context's team; or the end of the
    /// job.
    pub fn spot(
        &'static self,
        call: &'static str,
        argument: &'static str,
        ctx: Ctx,
        address: usize,
        bytes: usize,
        pe: c_int,
    ) -> Spot<'static> {
        let pe = self.pe_of(call, "pe", ctx, pe);
        let offset = self.symmetric(call, argument, address, bytes);
        match self.at(pe, offset, bytes) {
            // SAFETY: `symmetric` has found these bytes of this PE at their address in the program.
            Some(spot) if pe == self.job.pe() => unsafe { spot.as_seen_at(address as *mut u8) },
            Some(spot) => spot,
            None => die(
                call,
                format_args!(
                    "{argument}: there are no {bytes} bytes at {address:#x} in the memory of PE {pe}"
                ),
            ),
        }
    }

    /// With all checks on: ends the job where `bytes` at an address of the program's own are not
    /// memory of this process.
    pub fn check_local(
        &self,
        call: &'static str,
        argument: &'static str,
        address: usize,
        bytes: usize,
    ) {
        if !self.check || bytes == 0 {
            return;
        }
        let start = address & !(page_size() - 1);
        let len = address.checked_add(bytes).map(|end| end - start);
        // SAFETY: asks for nothing to be written now; the kernel refuses what is not mapped.
        let is_mapped = |len| unsafe { libc::msync(start as *mut _, len, libc::MS_ASYNC) } == 0;
        if !len.is_some_and(is_mapped) {
            die(
                call,
                format_args!(
                    "{argument}: there are no {bytes} bytes of this program at {address:#x}: use an array of so many elements"
                ),
            );
        }
    }

    /// How this PE is set up, for people.
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

    fn heap_contains(&self, address: usize) -> bool {
        let heap = self.segment.heap();
        let at = address.wrapping_sub(self.segment.local() as usize) as u64;
        heap.contains(&at)
    }

    /// The offset of a symmetric address, or the end of the job with the reason why it is none.
    #[inline]
    pub fn symmetric(
        &self,
        call: &'static str,
        argument: &'static str,
        address: usize,
        bytes: usize,
    ) -> u64 {
        match self.offset(address, bytes) {
            Some(offset) if !self.check => offset,
            offset => self.symmetric_checked(call, argument, address, bytes, offset),
        }
    }

    /// The same with all checks on, or of an address that is not symmetric.
    #[cold]
    #[inline(never)]
    fn symmetric_checked(
        &self,
        call: &'static str,
        argument: &'static str,
        address: usize,
        bytes: usize,
        offset: Option<u64>,
    ) -> u64 {
        if let Some(offset) = offset {
            if !self.heap_contains(address) {
                return offset;
            }
            return match crate::memory::block_around(self, offset) {
                Some(block) if offset + bytes as u64 <= block.end => offset,
                Some(block) => die(
                    call,
                    format_args!(
                        "{argument}: {bytes} bytes at {address:#x} go {} bytes beyond the end of the allocated block",
                        offset + bytes as u64 - block.end
                    ),
                ),
                None => die(
                    call,
                    format_args!(
                        "{argument}: {address:#x} lies in the symmetric heap, but in no allocated block; was it freed?"
                    ),
                ),
            };
        }
        let what = format!("{argument}: {bytes} bytes at {address:#x} are not symmetric");
        if let Some(why) = self.no_statics.get() {
            die(
                call,
                format_args!(
                    "{what}. Static variables are not symmetric in this job: {why}. Use shmem_malloc"
                ),
            );
        }
        if statics::is_constant(address) {
            die(
                call,
                format_args!(
                    "{what}: constants stay where they are. Declare them without const, or use memory of shmem_malloc"
                ),
            );
        }
        die(
            call,
            format_args!(
                "{what}: use memory of shmem_malloc, or a static or global variable of the executable (of a library: name it in {}). \
             Variables on the stack and memory of malloc are not{}",
                statics::ENV_LIBS,
                statics::not_loaded()
            ),
        )
    }

    /// From a symmetric address to the end of what it lies in; or the end of the job.
    pub fn room(
        &self,
        call: &'static str,
        argument: &'static str,
        address: usize,
    ) -> std::ops::Range<u64> {
        let offset = self.symmetric(call, argument, address, 0);
        let end = if self.heap_contains(address) {
            let block = if self.check { crate::memory::block_around(self, offset) } else { None };
            block.map_or(self.segment.heap().end, |block| block.end)
        } else {
            let around = self.statics.iter().find(|shared| shared.pages.contains(&address));
            around.map_or(offset, |shared| shared.offset + shared.pages.len() as u64)
        };
        offset..end
    }

    /// Whether `address` is symmetric.
    pub fn is_symmetric(&self, address: usize) -> bool {
        self.offset(address, 1).is_some()
    }

    /// The PE that a context's team numbers so; or the end of the job.
    pub fn pe_of(&self, call: &'static str, argument: &'static str, ctx: Ctx, pe: c_int) -> usize {
        let members = match ctx {
            Ctx::DEFAULT => None,
            _ => crate::context::get(call, ctx).members(),
        };
        match members {
            None => {
                self.check_pe(call, argument, pe);
                pe as usize
            }
            Some(members) => match usize::try_from(pe).ok().and_then(|pe| members.get(pe)) {
                Some(&pe) => pe,
                None => die(
                    call,
                    format_args!(
                        "{argument}: there is no PE {pe} in the context's team of {}",
                        members.len()
                    ),
                ),
            },
        }
    }

    /// Ends the job unless there is such a PE.
    #[inline(always)]
    pub fn check_pe(&self, call: &'static str, argument: &'static str, pe: c_int) {
        if pe as usize >= self.job.npes() {
            die(
                call,
                format_args!("{argument}: there is no PE {pe} in a job of {}", self.job.npes()),
            );
        }
    }

    /// The core's team of a handle, or the end of the job.
    #[inline]
    pub fn team(&self, call: &'static str, team: Team) -> &memonet_core::Team {
        match team {
            Team::WORLD | Team::SHARED => self.job.world(),
            _ => crate::team::get(call, team),
        }
    }

    /// Finds out whether all PEs run programs whose static data is laid out alike. *Collective.*
    ///
    /// # Errors
    /// What the fabric reports.
    pub fn compare_statics(&self) -> memonet_core::Result<()> {
        let apart = statics::has_copies();
        if apart {
            let _ = self
                .no_statics
                .set("this process was forked off by the one that joined, and has copies".into());
        }
        if self.job.npes() == 1 {
            return Ok(());
        }
        let at = self.segment.heap().end;
        let mine = if apart { 0 } else { statics::digest(&self.statics) };
        let word = |pe| self.at(pe, at, 8).expect("the first word of the globals");
        // SAFETY: an aligned word of this PE's own segment.
        unsafe {
            memonet_core::shm::store(
                self.segment.local().wrapping_add(at as usize).cast::<u64>(),
                mine,
            )
        };
        self.job.barrier()?;
        for pe in 0..self.job.npes() {
            if word(pe).load::<u64>()? != mine {
                // Kept from the first time on.
                let _ = self.no_statics.set(format!(
                    "PE {pe} runs another program than this PE, or a child of the process that joined"
                ));
            }
        }
        Ok(())
    }
}
