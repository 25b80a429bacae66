//! The address at which each PE has its own segment: one number for all processes of a job, so that
//! a pointer into symmetric memory may be sent to another PE, and means the counterpart there.
//!
//! PE `me` maps the job's whole file so that segment `me` of it comes to lie there. The segments of
//! the others still follow each other at one distance, so no access pays for it. (A second mapping
//! of one's own segment would need fewer addresses, but give each byte two of them, and copies find
//! out by their addresses whether their ends overlap.)
//!
//! So the last PE needs room for all other segments before the address, and the first one behind
//! it.

use crate::base::layout::Geometry;
use crate::base::memory::JOB_FILE;
use std::ops::Range;

/// Addresses of a process on x86-64. Where there are fewer, segments lie where the kernel has room.
const ALL: u64 = 1 << 47;

/// Where to look for room: first where nothing lies, whatever the limit on the stack and the
/// randomisation of addresses; then where only processes without a limit on their stack have
/// something.
///
/// Linux puts executables at two thirds of all addresses or, if they cannot be moved, at the very
/// beginning; libraries and what programs map, from the end downwards. Without a limit on the stack
/// it puts the latter from a third upwards or, on newer kernels, from a sixth downwards.
/// AddressSanitizer takes the first eighth, and what lies behind five eighths.
const ROOMS: [Range<u64>; 2] = [ALL / 6..ALL / 3, ALL / 6..ALL / 8 * 5];

/// Where to look in a process in which that is taken: ThreadSanitizer and MemorySanitizer leave of
/// all addresses little but these.
const LOW: Range<u64> = 1 << 36..1 << 39;

/// Bytes that the heaps of a job may have in all to fit into the first room.
pub(crate) const HEAPS: u64 = 1 << 43;

/// Where each PE of a job is to have its own segment; nowhere if the segments are too large for
/// that.
pub(crate) fn choose(geometry: &Geometry) -> Option<u64> {
    ROOMS.iter().find_map(|room| fit(geometry, room))
}

/// The lowest address at which each PE can have its own segment with all that it maps in this room.
fn fit(geometry: &Geometry, room: &Range<u64>) -> Option<u64> {
    let before = geometry.segment(geometry.npes - 1);
    let behind = geometry.segment_stride.checked_mul(geometry.npes as u64)?;
    let at = room.start.checked_add(before)?.checked_next_multiple_of(geometry.alignment())?;
    (at.checked_add(behind)? <= room.end).then_some(at)
}

/// Whether a number that others have chosen can be such an address. Whether there is room is for
/// the kernel to say.
pub(crate) fn can_be(geometry: &Geometry, at: u64) -> bool {
    let first = at.checked_sub(geometry.segment(geometry.npes - 1));
    let end = at.checked_add(geometry.file_size());
    at.is_multiple_of(geometry.alignment()) && first.is_some() && end.is_some()
}

/// Where a PE is to try to have its own segment, one after the other. PEs that run under the same
/// tool all come to the same.
pub(crate) fn candidates(geometry: &Geometry, chosen: Option<u64>) -> impl Iterator<Item = u64> {
    [chosen, chosen.and_then(|_| fit(geometry, &LOW))].into_iter().flatten()
}

/// Why PE `me` does not have its own segment at the address that was chosen, and what to do.
pub(crate) fn why_not(geometry: &Geometry, me: usize, chosen: Option<u64>) -> String {
    let consequence =
        "A pointer to symmetric memory that one PE sends to another is of no use there";
    let Some(chosen) = chosen else {
        let size = geometry.segment_stride >> 30;
        return format!(
            "the symmetric heap is at another address on each PE, as {} segments of {size} GiB leave no room for one that all can have. \
             {consequence}. Set MEMONET_SEGMENT_SIZE lower",
            geometry.npes
        );
    };
    let first = chosen - geometry.segment(me);
    let taken = what_is_in(first..first + geometry.file_size());
    let taken = taken.map_or("cannot be mapped here".to_owned(), |by| format!("is taken by {by}"));
    format!(
        "the symmetric heap of this PE is not at the same address as those of others: the place that was chosen for it, at \
         {chosen:#x}, {taken}. {consequence}. Look for what maps memory at an address of its own before the job is joined: a tool, or a library"
    )
}

/// What this process has mapped in a range, as /proc tells.
fn what_is_in(range: Range<u64>) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (start, rest) = line.split_once('-')?;
        let (end, rest) = rest.split_once(' ')?;
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).ok());
        let overlaps = start? < range.end && range.start < end?;
        // Rights, offset, device and inode stand before the name.
        let name = rest.split_whitespace().nth(4).unwrap_or("memory without a name");
        // Where there is no room at the address, the job's own memory may lie about it.
        let other = overlaps && !name.contains(JOB_FILE);
        other.then(|| format!("{name} at {:#x}", start.unwrap_or_default()))
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::base::layout::MAX_PES;

    /// Every PE's mapping lies in the room, and its own segment at the address.
    fn assert_fits(geometry: &Geometry, at: u64, room: &Range<u64>) {
        assert!(at.is_multiple_of(geometry.alignment()));
        for pe in [0, geometry.npes / 2, geometry.npes - 1] {
            let first = at - geometry.segment(pe);
            assert!(
                room.start <= first && first + geometry.file_size() <= room.end,
                "PE {pe} of {geometry:?}"
            );
        }
    }

    #[test]
    fn segments_of_any_number_of_pes_fit_into_the_first_room() {
        for npes in (0..=12).map(|shift| 1 << shift).chain([3, 7, 100, 1000, MAX_PES]) {
            for heap in
                [HEAPS / npes as u64, 24 << 30, 1 << 21].map(|heap| heap.min(HEAPS / npes as u64))
            {
                let geometry = Geometry::new(npes, heap).unwrap();
                let chosen = choose(&geometry);
                assert_fits(&geometry, chosen.unwrap(), &ROOMS[0]);
                if let Some(low) = candidates(&geometry, chosen).nth(1) {
                    assert_fits(&geometry, low, &LOW);
                }
            }
        }
    }

    #[test]
    fn larger_ones_go_where_they_fit_or_nowhere() {
        let larger = Geometry::new(16, 1 << 40).unwrap();
        assert_fits(&larger, choose(&larger).unwrap(), &ROOMS[1]);
        let too_large = Geometry::new(16, 1 << 41).unwrap();
        assert_eq!(choose(&too_large), None);
        assert!(
            can_be(&larger, choose(&larger).unwrap())
                && !can_be(&larger, 8)
                && !can_be(&larger, 1 << 30)
                && !can_be(&larger, !0 << 30)
        );
        assert_eq!(candidates(&larger, None).count(), 0, "nowhere where none was chosen");
        assert!(why_not(&too_large, 0, None).contains("MEMONET_SEGMENT_SIZE"));
    }

    #[test]
    fn what_takes_an_address_is_named() {
        let here = std::ptr::from_ref(&ROOMS) as u64;
        let program = std::env::current_exe().unwrap();
        assert!(what_is_in(here..here + 1).unwrap().contains(program.to_str().unwrap()));
        assert_eq!(what_is_in(1..2), None);
    }
}
