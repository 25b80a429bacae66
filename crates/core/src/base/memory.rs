//! Memory from the kernel: memfds, mappings, and giving pages back.

use crate::base::error::{Error, Result};
use crate::base::layout::Geometry;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::FdFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ptr::NonNull;

/// Name of the memfd of a job, by which /proc shows it.
pub(crate) const JOB_FILE: &str = "memonet-job";

/// A shared mapping of a memfd. Unmapped when dropped.
///
/// Programs that close all descriptors they know nothing of, and open others, are common: once
/// mapped, the file is reached through its mapping; and where there is no way but the descriptor,
/// only after a look whether that is still the file's.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    fd: OwnedFd,
    file: Option<FileId>,
}

/// Device and number of a file: as long as the file is mapped, no other has both.
type FileId = (u64, u64);

fn file_id(fd: &OwnedFd) -> Option<FileId> {
    rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

// SAFETY: a mapping is an address range; every access to its content goes through
// `crate::base::shm`, which expects others to write it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Bytes of a page. From libc: rustix looks for it where valgrind lets nobody look.
pub fn page_size() -> usize {
    // SAFETY: asks for a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Creates an anonymous memory file of a fixed size that only descriptors reach.
pub(crate) fn create_memfd(name: &str, size: u64) -> Result<OwnedFd> {
    let fd = create_memfd_to_seal(name, size)?;
    seal(&fd, SealFlags::SEAL)?;
    Ok(fd)
}

/// [`create_memfd`] of a file that can still be sealed against more.
pub(crate) fn create_memfd_to_seal(name: &str, size: u64) -> Result<OwnedFd> {
    let hint = "Check `ulimit -f` and the memory limit of the container";
    // Without CLOEXEC: PEs inherit it, also through debuggers and scripts.
    let fd = rustix::fs::memfd_create(name, MemfdFlags::ALLOW_SEALING)
        .map_err(|e| Error::system("memfd_create", e, "memonet needs Linux 3.17 or later"))?;
    rustix::fs::ftruncate(&fd, size)
        .map_err(|e| Error::system(format!("ftruncate to {size} bytes"), e, hint))?;
    // A file that cannot shrink cannot turn a valid address into a bus error.
    seal(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    Ok(fd)
}

fn seal(fd: impl AsFd, seals: SealFlags) -> Result<()> {
    rustix::fs::fcntl_add_seals(fd, seals).map_err(|e| Error::system("sealing a memfd", e, ""))
}

/// From now on nobody can map the file for writing, or write to it, by whatever descriptor: only by
/// the mappings that there are. Kernels before 5.1 do not know how, which is no error: this only
/// makes mistakes harder.
pub(crate) fn close_to_writers(fd: impl AsFd) {
    let _ = seal(fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL);
}

/// The length of a memfd that cannot shrink, as those of jobs; or what is wrong with the
/// descriptor.
pub(crate) fn sealed_size(fd: impl AsFd) -> std::result::Result<u64, String> {
    let stat = rustix::fs::fstat(&fd).map_err(|e| format!("cannot be examined ({e})"))?;
    // Only a memfd of ours is sealed like this; any other file could be truncated under our feet.
    let seals =
        rustix::fs::fcntl_get_seals(&fd).map_err(|_| "is not the memory of a job".to_owned())?;
    if !seals.contains(SealFlags::SHRINK) {
        return Err("is a memory file that could still shrink, so not the memory of a job".into());
    }
    Ok(stat.st_size as u64)
}

/// Maps the first `len` bytes, with byte `aligned.0` of them, if that is given, at a multiple of
/// `aligned.1`.
fn map(
    fd: &OwnedFd,
    len: usize,
    writable: bool,
    aligned: Option<(u64, u64)>,
) -> Result<NonNull<u8>> {
    let prot = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
    let failed = |e| {
        Error::system(
            format!("mapping {len} bytes of shared memory"),
            e,
            "Raise `ulimit -v`, or set MEMONET_SEGMENT_SIZE (bytes per PE) lower",
        )
    };
    let base = match aligned {
        None => {
            // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0) }
                .map_err(failed)?
        }
        Some((aligned, alignment)) => {
            let room = len + alignment as usize;
            let (nothing, flags) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
            // SAFETY: as above.
            let start =
                unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), room, nothing, flags) }
                    .map_err(failed)?;
            let at = start as u64 + aligned;
            let before = (at.next_multiple_of(alignment) - at) as usize;
            // SAFETY: all three ranges are parts of the one that was reserved just now and that
            // nobody else knows: before, the file, behind; `before` is less than `alignment`. The
            // whole is taken back where the file does not get its part.
            unsafe {
                let base = start.byte_add(before);
                if let Err(e) =
                    rustix::mm::mmap(base, len, prot, MapFlags::SHARED | MapFlags::FIXED, fd, 0)
                {
                    let _ = rustix::mm::munmap(start, room);
                    return Err(failed(e));
                }
                if before > 0 {
                    let _ = rustix::mm::munmap(start, before);
                }
                let _ = rustix::mm::munmap(base.byte_add(len), alignment as usize - before);
                base
            }
        }
    };
    Ok(NonNull::new(base.cast::<u8>()).expect("mmap returns address 0 only when asked to"))
}

/// Maps the first `len` bytes at this address, unless something is there, or cannot be.
fn map_at(fd: &OwnedFd, len: usize, base: u64) -> Option<NonNull<u8>> {
    let (prot, flags) =
        (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED_NOREPLACE);
    // SAFETY: the kernel refuses a range of which anything is mapped; before Linux 4.17 it takes
    // the address for a wish.
    let got = unsafe { rustix::mm::mmap(base as *mut _, len, prot, flags, fd, 0) }.ok()?;
    if got as u64 != base {
        // SAFETY: the range was mapped just now, and nobody else knows it.
        let _ = unsafe { rustix::mm::munmap(got, len) };
        return None;
    }
    NonNull::new(got.cast::<u8>())
}

/// Keeps a mapping out of core dumps, which would otherwise hold every segment of a job, once per
/// PE. Refusal changes nothing else.
fn without_dumps(base: NonNull<u8>, len: usize) -> NonNull<u8> {
    // SAFETY: the caller has just mapped the range; the advice keeps its content.
    let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), len, Advice::LinuxDontDump) };
    base
}

impl Mapping {
    /// Maps the first `len` bytes of `fd`.
    pub(crate) fn new(fd: OwnedFd, len: usize, writable: bool) -> Result<Self> {
        Ok(Mapping {
            base: without_dumps(map(&fd, len, writable, None)?, len),
            len,
            file: file_id(&fd),
            fd,
        })
    }

    /// The same range once more: models make thousands of jobs a second, of one mapping.
    #[cfg(loom)]
    pub(crate) fn again(&'static self) -> Self {
        let fd = self.fd.try_clone().expect("a descriptor");
        Mapping { base: self.base, len: self.len, fd, file: self.file }
    }

    /// Maps `len` bytes of `fd` from `offset` on, which is that of a page.
    pub(crate) fn part(fd: &OwnedFd, offset: u64, len: u64) -> Result<Self> {
        let fd = fd.try_clone().map_err(|e| Error::system("dup", e, "Raise `ulimit -n`"))?;
        let (prot, nothing) = (ProtFlags::READ | ProtFlags::WRITE, std::ptr::null_mut());
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let base =
            unsafe { rustix::mm::mmap(nothing, len as usize, prot, MapFlags::SHARED, &fd, offset) }
                .map_err(|e| {
                    Error::system(
                        format!("mapping {len} bytes of shared memory"),
                        e,
                        "Raise `ulimit -v`",
                    )
                })?;
        let base =
            NonNull::new(base.cast::<u8>()).expect("mmap returns address 0 only when asked to");
        Ok(Mapping { base, len: len as usize, file: file_id(&fd), fd })
    }

    /// Whether the descriptor is inherited by another program that this process becomes, or starts.
    pub(crate) fn hand_down(&self, wanted: bool) {
        if self.file.is_none() || file_id(&self.fd) != self.file {
            // Its number stands for a file of the program's by now.
            return;
        }
        let flags = if wanted { FdFlags::empty() } else { FdFlags::CLOEXEC };
        // It is open, so this cannot fail.
        let _ = rustix::io::fcntl_setfd(&self.fd, flags);
    }

    /// Leaves it out of what processes have that this one forks off.
    pub(crate) fn keep_from_children(&self) {
        // SAFETY: the range is this mapping's own; the advice changes nothing in this process.
        // Refusal leaves children with what they must not use.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_DONTFORK) };
    }

    /// Maps all of a job's memory, writable, in place of this part of it, with the segment of PE
    /// `me` at the first of the addresses `own` that is not taken. Without one, it lies at some
    /// multiple of [`Geometry::alignment`]. The descriptor keeps its number.
    pub(crate) fn remap(
        mut self,
        geometry: &Geometry,
        me: usize,
        mut own: impl Iterator<Item = u64>,
    ) -> Result<Self> {
        let len = geometry.file_size() as usize;
        let base =
            own.find_map(|own| map_at(&self.fd, len, own.checked_sub(geometry.segment(me))?));
        let elsewhere =
            || map(&self.fd, len, true, Some((geometry.segment(me), geometry.alignment())));
        let base = without_dumps(base.map_or_else(elsewhere, Ok)?, len);
        // SAFETY: the old range is this mapping's own, and `self` was the only thing that knew it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        (self.base, self.len) = (base, len);
        Ok(self)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn fd(&self) -> rustix::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Address of byte `offset`.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> *mut u8 {
        assert!(
            offset as usize <= self.len,
            "offset {offset} is outside of a mapping of {} bytes",
            self.len
        );
        // SAFETY: just checked to lie in the mapping or at its end.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }

    /// Maps the file, from `offset` on, over pages of this process.
    ///
    /// # Safety
    /// `pages` are whole pages that this process has mapped and may give up, `offset` is that of a
    /// page, and the range lies in the file.
    pub(crate) unsafe fn map_over(&self, pages: std::ops::Range<usize>, offset: u64) -> Result<()> {
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the caller promises pages that may be replaced.
        unsafe {
            rustix::mm::mmap(pages.start as *mut _, pages.len(), prot, flags, &self.fd, offset)
        }
        .map_err(|e| Error::system("mapping the job's memory over static data", e, ""))?;
        Ok(())
    }

    /// The parts of a range of the file that have pages, in memory or swapped out; all else reads
    /// as zeros.
    pub(crate) fn with_pages(
        &self,
        range: std::ops::Range<u64>,
    ) -> impl Iterator<Item = std::ops::Range<u64>> {
        use rustix::fs::{SeekFrom, seek};
        use rustix::io::Errno;
        let (mut at, known) = (range.start, self.file.is_some() && file_id(&self.fd) == self.file);
        std::iter::from_fn(move || {
            if !known {
                let all = std::mem::replace(&mut at, range.end)..range.end;
                return Some(all).filter(|all| !all.is_empty());
            }
            let start = match seek(&self.fd, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => range.end,
                // Nothing is known: all of it may be there.
                Err(_) => at,
            };
            let end = seek(&self.fd, SeekFrom::Hole(start)).unwrap_or(range.end).min(range.end);
            at = end;
            (start < end).then_some(start..end)
        })
    }

    /// Gives the pages of a range back to the kernel; it reads as zeros afterwards.
    pub(crate) fn release(&self, offset: u64, len: u64) {
        let page = page_size() as u64;
        let (start, end) = (offset.next_multiple_of(page), (offset + len) / page * page);
        assert!(offset + len <= self.len as u64);
        // SAFETY: whole pages of the range, just checked to lie in the mapping, which is shared and
        // so has no copies of its own; they read as zeros.
        let zeroed = start < end
            && unsafe {
                rustix::mm::madvise(
                    self.at(start).cast(),
                    (end - start) as usize,
                    Advice::LinuxRemove,
                )
            }
            .is_ok();
        let (head, tail) = if zeroed { (start - offset, offset + len - end) } else { (len, 0) };
        // SAFETY: both ranges lie in `offset..offset + len`, just checked to lie in the mapping.
        unsafe {
            crate::base::shm::zero(self.at(offset), head as usize);
            crate::base::shm::zero(self.at(offset + len - tail), tail as usize);
        }
    }

    /// Asks for huge pages in a range, and with `now` makes all of its pages at once. A wish:
    /// refusal costs speed, not correctness.
    pub(crate) fn want_huge_pages(&self, offset: u64, len: u64, now: bool) {
        let advise = |unit: u64, advice: i32| {
            let (start, end) = (offset.next_multiple_of(unit), (offset + len) / unit * unit);
            if start < end {
                // SAFETY: the range lies in the mapping (`at` checks), and all advices used here
                // keep its content.
                unsafe { libc::madvise(self.at(start).cast(), (end - start) as usize, advice) };
            }
        };
        if now {
            advise(crate::base::layout::HUGE_PAGE, libc::MADV_COLLAPSE);
            advise(page_size() as u64, libc::MADV_POPULATE_WRITE);
        } else {
            advise(crate::base::layout::HUGE_PAGE, libc::MADV_HUGEPAGE);
        }
    }

    /// Asks for the pages of a range to be placed on this CPU's NUMA node, whoever touches them
    /// first. A wish, as above.
    pub(crate) fn want_local_pages(&self, offset: u64, len: u64) {
        const MPOL_LOCAL: i32 = 4;
        // SAFETY: the range lies in the mapping; mbind sets a placement policy and keeps the
        // content.
        unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.at(offset),
                len,
                MPOL_LOCAL,
                std::ptr::null::<u64>(),
                0,
                0,
            )
        };
    }
}

// A mapping of models lasts: `Mapping::again` shares it.
#[cfg(not(loom))]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping's own, and every pointer into it is held by something
        // that holds this value.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
