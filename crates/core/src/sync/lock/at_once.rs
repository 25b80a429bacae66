//! Setting and clearing a lock in a call in which nothing else has to be done.
//!
//! The counterpart of [passing a barrier at once](crate::sync::barrier::AtOnce). All PEs are near,
//! nobody records or checks, and the process has one thread. The call is not noted, as it does not
//! wait. The steps are those of the general calls, but for two things:
//!
//! * L11: *State and claim are read and written as one.* While no thread of this PE stands in the
//!   queue, and while one has the lock, nobody but this thread writes the two, unless the lock is
//!   kept. Then one compare-and-swap of both takes it up, and the store that keeps it also gives up
//!   the claim.
//! * L12: *A lock that is not free stays as it is.* The tail is compared with 0, and not only
//!   swapped, so the general call that follows begins anew. Nobody comes before those who wait: as
//!   long as somebody does, the tail is not 0.

use super::*;

/// State and claim.
const fn both(state: u8, claim: u8) -> u16 {
    u16::from_ne_bytes([state, claim])
}

/// Where the words of all locks are in a job that never has more to do, while its processes have
/// one thread each.
#[derive(Clone, Copy)]
pub(crate) struct AtOnce {
    /// This PE's segment.
    local: *mut u8,
    /// PE 0's segment; the others follow at a stride.
    zero: *mut u8,
    stride: usize,
    npes: usize,
    number: u32,
}

// SAFETY: addresses in the mapping of a job, which whoever has this value keeps, used only through
// `crate::base::shm`.
unsafe impl Send for AtOnce {}
// SAFETY: as above.
unsafe impl Sync for AtOnce {}

impl AtOnce {
    pub(crate) fn of(pe: &Pe) -> Option<Self> {
        let nobody_else = !pe.has_fabric() && pe.recorder().is_none() && !pe.is_checked();
        let near = pe.near_parts(0).filter(|_| nobody_else && pe.npes() <= MOST_PES)?;
        Some(AtOnce {
            local: pe.local(0),
            zero: near.zero,
            stride: near.stride,
            npes: pe.npes(),
            number: number(pe),
        })
    }

    /// Sets the lock at `offset` if that takes no waiting. False: more has to be done than that,
    /// and nothing was.
    ///
    /// # Safety
    /// The word at `offset` is aligned, lies in the segments, and is a lock's alone.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, offset: u64) -> bool {
        // SAFETY: the caller's promise.
        Self::is_by_only_thread() && unsafe { self.set_by_only_thread(offset) }
    }

    /// Completes writes, and clears the lock at `offset`, if `pe` has it, and nobody waits for it
    /// or it may be kept. False: more has to be done than that, and nothing was.
    ///
    /// # Safety
    /// As for [`set`](Self::set).
    #[inline(always)]
    pub(crate) unsafe fn clear(&self, pe: &Pe, offset: u64) -> bool {
        // SAFETY: the caller's promise.
        Self::is_by_only_thread() && unsafe { self.clear_by_only_thread(pe, offset) }
    }

    #[inline(always)]
    fn is_by_only_thread() -> bool {
        shm::is_single_threaded() && !ending::is_forked()
    }

    /// # Safety
    /// As for [`set`](Self::set).
    #[inline(always)]
    pub(crate) unsafe fn set_by_only_thread(&self, offset: u64) -> bool {
        let own = self.local.wrapping_add(offset as usize + STATE as usize);
        // SAFETY: aligned parts of words in mapped segments, as the caller promises.
        unsafe {
            let seen = shm::load::<u16>(own.cast());
            if seen == both(IDLE, FREE) {
                shm::store(own.cast(), both(IDLE, CLAIMED));
                let is_free = self.replace_tail(offset, 0, self.number); // L12
                let now = if is_free { both(HELD, CLAIMED) } else { both(IDLE, FREE) };
                shm::store(own.cast(), now);
                return is_free;
            }
            let [state, claim] = seen.to_ne_bytes();
            if claim != FREE || !is_kept(state) {
                return false;
            }
            let again = both(held_again(state), CLAIMED);
            shm::compare_swap_sized(own, 2, seen.into(), again.into()) as u16 == seen
        }
    }

    /// # Safety
    /// As for [`clear`](Self::clear).
    #[inline(always)]
    pub(crate) unsafe fn clear_by_only_thread(&self, pe: &Pe, offset: u64) -> bool {
        let own = self.local.wrapping_add(offset as usize);
        let (next, own) = (own.wrapping_add(NEXT as usize), own.wrapping_add(STATE as usize));
        // SAFETY: as in `set_by_only_thread`.
        unsafe {
            let [state, claim] = shm::load::<u16>(own.cast()).to_ne_bytes();
            let Some(turns) = turns_held(state).filter(|_| claim == CLAIMED) else { return false };
            shm::compiler_fence(); // L4
            let next = u32::from(shm::load::<u16>(next.cast()));
            if next == 0 {
                if !self.replace_tail(offset, self.number, 0) {
                    return false;
                }
                shm::store(own.cast(), both(IDLE, FREE));
            } else {
                let is_other = next as usize <= self.npes && next != self.number;
                if turns >= RUN || !is_other {
                    return false;
                }
                shm::store(own.cast(), both(KEPT + turns, FREE));
                pe.ring(next as usize - 1);
            }
        }
        pe.wake_written();
        true
    }

    /// # Safety
    /// As for [`set`](Self::set).
    #[inline(always)]
    unsafe fn replace_tail(&self, offset: u64, old: u32, new: u32) -> bool {
        let home = self.zero.wrapping_add(home(offset, self.npes) * self.stride);
        let tail = home.wrapping_add(offset as usize + TAIL as usize);
        // SAFETY: as in `set_by_only_thread`.
        unsafe { shm::compare_swap_sized(tail, 4, old.into(), new.into()) as u32 == old }
    }
}
