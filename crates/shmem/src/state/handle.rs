//! Handles of C programs, and the tables of the objects that they stand for. The library checks
//! each handle before it uses it.
//!
//! A handle holds the number of a place in a table and a count of uses. The count differs between a
//! destroyed handle and the handle that took its place.

use crate::state::lock::lock;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// `shmem_ctx_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ctx(pub usize);

impl Ctx {
    /// `SHMEM_CTX_INVALID`.
    pub const INVALID: Ctx = Ctx(0);
    /// `SHMEM_CTX_DEFAULT`.
    pub const DEFAULT: Ctx = Ctx(1);
}

/// `shmem_team_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Team(pub usize);

impl Team {
    /// `SHMEM_TEAM_INVALID`.
    pub const INVALID: Team = Team(0);
    /// `SHMEM_TEAM_WORLD`.
    pub const WORLD: Team = Team(1);
    /// `SHMEM_TEAM_SHARED`: the PEs of this PE's node.
    pub const SHARED: Team = Team(2);
}

/// `shmemx_barrier_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier(pub usize);

/// `shmemx_supersteps_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Supersteps(pub usize);

/// `shmemx_transfer_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer(pub usize);

/// `shmemx_window_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window(pub usize);

/// `shmemx_mutex_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mutex(pub usize);

/// `shmemx_rwlock_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RwLock(pub usize);

/// `shmemx_region_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region(pub usize);

/// `shmemx_messages_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Messages(pub usize);

/// `shmemx_multicast_t`.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multicast(pub usize);

/// `shmemx_right_t`, behind a pointer: what access `holder` has to the part of `home`.
#[repr(C)]
pub struct Right([u8; 0]);

/// `shmem_team_config_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct TeamConfig {
    /// Contexts that the team will have at once.
    pub num_contexts: c_int,
}

/// `shmem_ctx_session_config_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SessionConfig {
    /// Operations that the session will have.
    pub total_ops: usize,
}

/// `shmemx_stats_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Stats {
    pub uses: u64,
    pub hits: u64,
    pub handovers: u64,
    pub messages: u64,
    pub bytes: u64,
}

impl From<memonet_core::dsm::Stats> for Stats {
    fn from(stats: memonet_core::dsm::Stats) -> Self {
        let memonet_core::dsm::Stats { uses, hits, handovers, messages, bytes } = stats;
        Stats { uses, hits, handovers, messages, bytes }
    }
}

/// The least index in a handle; smaller numbers are constants of the header.
const FIRST: usize = 16;
const INDEX_BITS: u32 = 20;

/// A table of up to `N` objects that handles stand for.
///
/// An empty table is all zeros. A static one with any other byte would lie in the file of each
/// program, whole, and each PE would copy it with the program's static data when it starts.
pub struct Table<T, const N: usize> {
    places: [Place<T>; N],
    free: std::sync::Mutex<Free>,
}

struct Place<T> {
    /// The handle of the object in this place; 0: the place is free.
    handle: AtomicUsize,
    /// The object. In a free place that was in use before, no address, but the next such place, as
    /// in [`Free`].
    thing: AtomicPtr<T>,
}

struct Free {
    /// One more than the free place that was in use last; 0: there is none.
    returned: usize,
    /// The first place that was never in use.
    fresh: usize,
    uses: usize,
}

impl<T, const N: usize> Table<T, N> {
    /// An empty table.
    pub const fn new() -> Self {
        Table {
            places: [const {
                Place { handle: AtomicUsize::new(0), thing: AtomicPtr::new(std::ptr::null_mut()) }
            }; N],
            free: std::sync::Mutex::new(Free { returned: 0, fresh: 0, uses: 0 }),
        }
    }

    fn place(&self, handle: usize) -> Option<&Place<T>> {
        let index = (handle & ((1 << INDEX_BITS) - 1)).checked_sub(FIRST)?;
        let place = self.places.get(index)?;
        (place.handle.load(Ordering::Acquire) == handle).then_some(place)
    }

    /// The object of a handle.
    ///
    /// # Safety
    /// No thread removes the handle while the reference is in use. The standard makes programs
    /// promise that.
    #[inline]
    pub unsafe fn get(&self, handle: usize) -> Option<&T> {
        let place = self.place(handle)?;
        // SAFETY: `insert` stores the handle after the object, and `remove` clears the handle
        // before it takes the object. `place` found the handle, and the caller promises that no
        // thread removes it now.
        Some(unsafe { &*place.thing.load(Ordering::Acquire) })
    }

    /// Stores an object and gives its handle, unless the table is full.
    pub fn insert(&self, thing: T) -> Option<usize> {
        let mut free = lock(&self.free);
        let index = match free.returned.checked_sub(1) {
            Some(index) => {
                free.returned = self.places[index].thing.load(Ordering::Relaxed).addr();
                index
            }
            None if free.fresh < N => {
                free.fresh += 1;
                free.fresh - 1
            }
            None => return None,
        };
        free.uses += 1;
        let handle = free.uses << INDEX_BITS | (index + FIRST);
        let place = &self.places[index];
        place.thing.store(Box::into_raw(Box::new(thing)), Ordering::Release);
        place.handle.store(handle, Ordering::Release);
        Some(handle)
    }

    /// Takes the object of a handle out of the table.
    ///
    /// # Safety
    /// No other thread uses the handle.
    pub unsafe fn remove(&self, handle: usize) -> Option<T> {
        let mut free = lock(&self.free);
        let place = self.place(handle)?;
        // SAFETY: the caller's promise. `place` found the handle, under the lock.
        Some(unsafe { self.take(&mut free, place, handle) })
    }

    /// Takes the object of a place that holds `handle`.
    ///
    /// # Safety
    /// No other thread uses the handle. `free` is that of this table, locked since `place` held it.
    unsafe fn take(&self, free: &mut Free, place: &Place<T>, handle: usize) -> T {
        place.handle.store(0, Ordering::Release);
        let next = std::ptr::without_provenance_mut(free.returned);
        let thing = place.thing.swap(next, Ordering::AcqRel);
        free.returned = (handle & ((1 << INDEX_BITS) - 1)) - FIRST + 1;
        // SAFETY: `insert` made the pointer from a box. Only the call that clears the handle, under
        // the lock, takes the box back.
        *unsafe { Box::from_raw(thing) }
    }

    /// Removes the objects for which `is_one` holds. Other threads may use and remove the others
    /// meanwhile.
    ///
    /// # Safety
    /// No other thread uses the handles of those that are removed.
    pub unsafe fn remove_where(&self, is_one: impl Fn(&T) -> bool) {
        let mut taken = Vec::new();
        let mut free = lock(&self.free);
        for place in &self.places[..free.fresh] {
            let handle = place.handle.load(Ordering::Acquire);
            if handle == 0 {
                continue;
            }
            // SAFETY: the place holds a handle, so it has an object. Objects are only removed under
            // the lock, which is held for the whole walk: another thread may destroy any of them.
            if is_one(unsafe { &*place.thing.load(Ordering::Acquire) }) {
                // SAFETY: the caller's promise; the lock is held.
                taken.push(unsafe { self.take(&mut free, place, handle) });
            }
        }
        // What objects do when they are dropped must not wait for calls that need the table.
        drop(free);
    }

    /// Removes all objects.
    ///
    /// # Safety
    /// No other thread uses any of the handles.
    pub unsafe fn clear(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.remove_where(|_| true) };
    }

    /// All handles in use.
    #[cfg(test)]
    fn handles(&self) -> Vec<usize> {
        let free = lock(&self.free);
        let used =
            self.places[..free.fresh].iter().map(|place| place.handle.load(Ordering::Acquire));
        used.filter(|&handle| handle != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lies in the file of a program is mapped from it.
    #[test]
    fn an_empty_table_takes_no_place_in_a_program() {
        static TABLE: Table<String, 65536> = Table::new();
        assert!(TABLE.handles().is_empty());
        let middle = (&raw const TABLE.places[32768]).addr();
        let program = std::env::current_exe().unwrap().to_string_lossy().into_owned();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
        let is_there = |line: &&str| {
            let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
            (number(start)..number(end)).contains(&middle)
        };
        let line = maps.lines().find(is_there).unwrap();
        assert!(!line.ends_with(&program), "{line}");
    }

    #[test]
    fn handles_that_were_given_back_stand_for_nothing() {
        let table = Table::<String, 4>::new();
        let mut old = Vec::new();
        for round in 0..10 {
            let now: Vec<usize> =
                (0..4).map(|i| table.insert(format!("{round} {i}")).unwrap()).collect();
            assert_eq!(table.insert("one too many".into()), None);
            assert_eq!(table.handles(), {
                let mut sorted = now.clone();
                sorted.sort_by_key(|h| h & 0xFFFFF);
                sorted
            });
            for (i, &handle) in now.iter().enumerate() {
                assert!(handle >= FIRST && !old.contains(&handle));
                // SAFETY: one thread.
                unsafe {
                    assert_eq!(table.get(handle).unwrap(), &format!("{round} {i}"));
                    assert_eq!(table.remove(handle).unwrap(), format!("{round} {i}"));
                    assert!(table.get(handle).is_none() && table.remove(handle).is_none());
                }
            }
            old.extend(now);
        }
        // SAFETY: one thread.
        assert!(unsafe {
            [0, 1, 2, 15, usize::MAX, 1 << 40].iter().all(|&h| table.get(h).is_none())
        });
    }

    /// The others may be destroyed by other threads during the walk: it must not look at one that
    /// can go away.
    #[test]
    fn nothing_is_removed_while_a_walk_looks_at_it() {
        let table = Table::<usize, 8>::new();
        let handles: Vec<usize> = (0..8).map(|i| table.insert(i).unwrap()).collect();
        let is_odd = |&i: &usize| {
            assert!(table.free.try_lock().is_err(), "{i} could be removed now");
            i % 2 == 1
        };
        // SAFETY: one thread.
        unsafe { table.remove_where(is_odd) };
        let left: Vec<usize> = handles.iter().copied().step_by(2).collect();
        assert_eq!(table.handles(), left);
        // SAFETY: one thread.
        unsafe {
            table.clear();
            assert!(handles.iter().all(|&handle| table.get(handle).is_none()));
        }
        assert!((0..8).all(|i| table.insert(i).is_some()) && table.insert(8).is_none());
    }
}
