//! This PE's own memory: what others may reach of it, and its registrations.
//!
//! A range is registered when a PE first asks for its key, and until it goes out of use. A part of
//! a restricted window is registered once for each kind of right that a PE asks with, so that the
//! network itself refuses a write by a PE that may only read.

use crate::net::{Net, Region};
use crate::sys;
use memonet_core::Access;
use std::collections::BTreeMap;
use std::ops::Range;

/// Where others may write and read, and by which key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Granted {
    /// Offsets of the first byte and of the end.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The network's address of the first byte.
    pub(crate) base: u64,
    pub(crate) key: u64,
}

struct InUse {
    end: u64,
    region: Option<Region>,
}

struct Part {
    base: usize,
    len: u64,
    rights: Box<[Access]>,
    regions: Vec<(Access, Region)>,
}

/// The segment, and this PE's parts of restricted windows.
pub(crate) struct Memory {
    me: u32,
    segment: (usize, u64),
    ranges: BTreeMap<u64, InUse>,
    parts: BTreeMap<u32, Part>,
}

impl Memory {
    /// A segment of so many bytes.
    ///
    /// # Safety
    /// It stays mapped and writable for as long as this lives.
    pub(crate) unsafe fn new(me: u32, segment: *mut u8, len: u64) -> Self {
        let (ranges, parts) = (BTreeMap::new(), BTreeMap::new());
        Memory { me, segment: (segment as usize, len), ranges, parts }
    }

    pub(crate) fn add_range(&mut self, range: Range<u64>) {
        self.ranges.insert(range.start, InUse { end: range.end, region: None });
    }

    /// The range's registration ends.
    pub(crate) fn remove_range(&mut self, range: &Range<u64>) {
        self.ranges.remove(&range.start);
    }

    /// A part comes into use.
    ///
    /// # Safety
    /// It stays mapped and writable until it is [closed](Self::close_part).
    pub(crate) unsafe fn open_part(
        &mut self,
        region: u32,
        base: *mut u8,
        len: usize,
        rights: &[Access],
    ) {
        let (base, len) = (base as usize, len as u64);
        let part = Part { base, len, rights: rights.into(), regions: Vec::new() };
        self.parts.insert(region, part);
    }

    pub(crate) fn close_part(&mut self, region: u32) {
        self.parts.remove(&region);
    }

    /// All registrations end. The memory stays in use.
    pub(crate) fn end_registrations(&mut self) {
        self.ranges.values_mut().for_each(|range| range.region = None);
        self.parts.values_mut().for_each(|part| part.regions.clear());
    }

    /// Where `len` bytes are, for a PE that wants such access to them.
    pub(crate) fn place(
        &self,
        from: u32,
        region: u32,
        offset: u64,
        len: u64,
        wanted: Access,
    ) -> Option<*mut u8> {
        let (base, size) = if region == 0 {
            self.segment
        } else {
            let part = self.parts.get(&region)?;
            let granted = part.rights.get(from as usize)?;
            if from != self.me && !granted.allows(wanted) {
                return None;
            }
            (part.base, part.len)
        };
        let is_in = offset.checked_add(len).is_some_and(|end| end <= size);
        is_in.then(|| (base + offset as usize) as *mut u8)
    }

    /// The key by which a PE reaches a place, and all around it for which the key is good. Nothing
    /// where it may not, or there is no such place.
    pub(crate) fn key(
        &mut self,
        net: &mut Net,
        from: u32,
        region: u32,
        offset: u64,
    ) -> Result<Option<Granted>, String> {
        if region == 0 {
            return self.key_of_range(net, offset);
        }
        let Some(part) = self.parts.get_mut(&region) else { return Ok(None) };
        let granted = part.rights.get(from as usize).copied().unwrap_or(Access::None);
        let access = [(Access::Read, sys::REMOTE_READ), (Access::Write, sys::REMOTE_WRITE)];
        let access = access.into_iter().filter(|(right, _)| granted.allows(*right));
        let access = access.fold(0, |all, (_, bit)| all | bit);
        if access == 0 || offset >= part.len {
            return Ok(None);
        }
        let known = part.regions.iter().position(|(right, _)| *right == granted);
        let index = match known {
            Some(index) => index,
            None => {
                // SAFETY: the caller of `open_part` promises the memory until `close_part`, which
                // drops the registration.
                let made =
                    unsafe { net.register(part.base as *const u8, part.len as usize, access) };
                part.regions.push((granted, made?));
                part.regions.len() - 1
            }
        };
        let made = &part.regions[index].1;
        Ok(Some(Granted { start: 0, end: part.len, base: made.base(), key: made.key() }))
    }

    fn key_of_range(&mut self, net: &mut Net, offset: u64) -> Result<Option<Granted>, String> {
        let around = self.ranges.range_mut(..=offset).next_back();
        let Some((&start, range)) = around.filter(|(_, range)| offset < range.end) else {
            return Ok(None);
        };
        let region = match &mut range.region {
            Some(region) => region,
            none => {
                let (at, len) = (self.segment.0 + start as usize, range.end - start);
                let access = sys::REMOTE_READ | sys::REMOTE_WRITE;
                // SAFETY: a range in use stays where it is until it is removed, which drops the
                // registration.
                let made = unsafe { net.register(at as *const u8, len as usize, access) };
                none.insert(made?)
            }
        };
        Ok(Some(Granted { start, end: range.end, base: region.base(), key: region.key() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_granted_has_a_place() {
        // SAFETY: nothing is accessed.
        let mut memory = unsafe { Memory::new(0, 4096 as *mut u8, 100) };
        let rights = [Access::None, Access::Read, Access::ReadWrite];
        // SAFETY: as above.
        unsafe { memory.open_part(3, 8192 as *mut u8, 16, &rights) };
        let place = |from, region, offset, len, wanted| {
            memory.place(from, region, offset, len, wanted).map(|at| at as usize)
        };
        assert_eq!(place(1, 0, 92, 8, Access::Write), Some(4188));
        assert_eq!(place(1, 3, 8, 8, Access::Read), Some(8200));
        assert_eq!(place(0, 3, 0, 8, Access::Write), Some(8192), "a PE's own part");
        assert_eq!(place(2, 3, 0, 16, Access::ReadWrite), Some(8192));
        for (from, region, offset, len, wanted) in [
            (1, 0, 93, 8, Access::Read),
            (1, 0, u64::MAX, 2, Access::Read),
            (1, 3, 8, 8, Access::Write),
            (1, 3, 16, 1, Access::Read),
            (9, 3, 0, 8, Access::Read),
            (1, 1, 0, 0, Access::Read),
        ] {
            assert_eq!(place(from, region, offset, len, wanted), None, "{from} {region} {offset}");
        }
    }
}
