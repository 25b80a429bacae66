//! This PE's own memory, where records of others are applied.

use crate::wire::Home;
use memonet_core::Access;
use std::collections::BTreeMap;

/// The segment, and this PE's parts of restricted windows.
pub(crate) struct Memory {
    segment: (usize, u64),
    /// By region.
    parts: BTreeMap<u16, Part>,
}

/// A part of a restricted window.
struct Part {
    base: usize,
    len: u64,
    /// What each PE may do with it.
    rights: Box<[Access]>,
}

impl Memory {
    /// A segment of so many bytes.
    ///
    /// # Safety
    /// It stays mapped and writable for as long as this lives.
    pub(crate) unsafe fn new(segment: *mut u8, len: u64) -> Self {
        Memory { segment: (segment as usize, len), parts: BTreeMap::new() }
    }

    /// A region comes into use.
    ///
    /// # Safety
    /// It stays mapped and writable until it is [removed](Self::remove).
    pub(crate) unsafe fn add(&mut self, region: u16, base: *mut u8, len: u64, rights: &[Access]) {
        let part = Part { base: base as usize, len, rights: rights.into() };
        self.parts.insert(region, part);
    }

    /// A region goes out of use; gives where it was.
    pub(crate) fn remove(&mut self, region: u16) -> Option<(*const u8, usize)> {
        let part = self.parts.remove(&region)?;
        Some((part.base as *const u8, part.len as usize))
    }
}

// SAFETY: the callers of `new` and `add` promise the ranges that `place` gives, which lie within.
unsafe impl Home for Memory {
    #[inline]
    fn place(&self, by: u32, wants: Access, region: u16, offset: u64, len: u64) -> Option<*mut u8> {
        let (base, size) = if region == 0 {
            self.segment
        } else {
            let part = self.parts.get(&region)?;
            let has = *part.rights.get(by as usize)?;
            if !has.allows(wants) {
                return None;
            }
            (part.base, part.len)
        };
        let is_in = offset.checked_add(len).is_some_and(|end| end <= size);
        is_in.then(|| (base + offset as usize) as *mut u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_within_and_is_allowed_has_a_place() {
        let rights = [Access::ReadWrite, Access::Read, Access::None];
        // SAFETY: nothing is accessed.
        let mut memory = unsafe { Memory::new(4096 as *mut u8, 100) };
        // SAFETY: as above.
        unsafe { memory.add(3, 8192 as *mut u8, 16, &rights) };
        let place = |by, wants, region, offset, len| memory.place(by, wants, region, offset, len);
        assert_eq!(place(2, Access::Write, 0, 92, 8), Some(4188 as *mut u8));
        assert_eq!(place(2, Access::Read, 0, 100, 0), Some(4196 as *mut u8));
        assert_eq!(place(0, Access::Write, 3, 8, 8), Some(8200 as *mut u8));
        assert_eq!(place(1, Access::Read, 3, 8, 8), Some(8200 as *mut u8));
        for (by, wants) in [(1, Access::Write), (1, Access::ReadWrite), (2, Access::Read)] {
            assert_eq!(place(by, wants, 3, 0, 8), None, "{by} {wants:?}");
        }
        assert_eq!(place(7, Access::Read, 3, 0, 8), None, "there is no such PE");
        for (region, offset, len) in
            [(0, 93, 8), (0, u64::MAX, 2), (3, 16, 1), (3, 0, u64::MAX), (1, 0, 0)]
        {
            assert_eq!(
                place(0, Access::Read, region, offset, len),
                None,
                "{region} {offset} {len}"
            );
        }
        assert!(memory.remove(3).is_some());
        assert_eq!(memory.place(0, Access::Read, 3, 0, 1), None);
    }
}
