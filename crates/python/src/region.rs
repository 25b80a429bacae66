//! Memory of the whole job under release consistency.

use crate::blocking;
use crate::buffer::Buffer;
use crate::counts::{self, Counts};
use crate::errors::{freed, value_error};
use crate::job::{Job, elements_of};
use crate::window::number;
use memonet_core::dsm::{self, Placement, RegionOptions};
use memonet_core::unstable::segment;
use memonet_core::{Plain, Result};
use pyo3::prelude::*;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A region whose elements have any size.
trait Pages: Send + Sync {
    /// Copies of elements, as words of which each is an element or a part of one.
    fn read(&self, range: Range<usize>) -> Result<Box<dyn Block>>;
    /// Private memory for elements.
    fn room(&self, count: usize) -> Box<dyn Block>;
    fn write(&self, at: usize, block: &dyn Block) -> Result<()>;
    fn release(&self) -> Result<()>;
    fn acquire(&self) -> Result<()>;
    fn barrier(&self) -> Result<()>;
    fn stats(&self) -> dsm::Stats;
}

/// Private copies of elements.
trait Block: std::any::Any + Send + Sync {
    fn start(&mut self) -> *mut u8;
}

impl<T: Plain> Block for Vec<T> {
    fn start(&mut self) -> *mut u8 {
        self.as_mut_ptr().cast()
    }
}

impl<T: Plain + Default> Pages for dsm::Region<T> {
    fn read(&self, range: Range<usize>) -> Result<Box<dyn Block>> {
        Ok(Box::new(dsm::Region::read(self, range)?.to_vec()))
    }

    fn room(&self, count: usize) -> Box<dyn Block> {
        Box::new(vec![T::default(); count])
    }

    fn write(&self, at: usize, block: &dyn Block) -> Result<()> {
        let elements = (block as &dyn std::any::Any).downcast_ref::<Vec<T>>();
        let elements = elements.expect("a block of this region's");
        dsm::Region::write(self, at..at + elements.len())?.write_from(at, elements);
        Ok(())
    }

    fn release(&self) -> Result<()> {
        dsm::Region::release(self)
    }

    fn acquire(&self) -> Result<()> {
        dsm::Region::acquire(self)
    }

    fn barrier(&self) -> Result<()> {
        dsm::Region::barrier(self)
    }

    fn stats(&self) -> dsm::Stats {
        dsm::Region::stats(self)
    }
}

/// Memory of the whole job that PEs read and write as one array. `memonet._region` has the class
/// for programs.
#[pyclass(frozen, subclass, module = "memonet._memonet")]
pub struct RegionData {
    /// Words of an element.
    words: usize,
    bytes: usize,
    pages: Mutex<Option<Arc<dyn Pages>>>,
}

impl RegionData {
    fn pages(&self) -> PyResult<Arc<dyn Pages>> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.clone().ok_or_else(|| freed("region"))
    }

    /// Elements as words.
    fn range(&self, start: usize, count: usize) -> PyResult<Range<usize>> {
        let start = start.checked_mul(self.words);
        let end = count.checked_mul(self.words).zip(start).and_then(|(n, at)| at.checked_add(n));
        match start.zip(end) {
            Some((start, end)) => Ok(start..end),
            None => Err(value_error("these elements are beyond all addresses")),
        }
    }
}

#[pymethods]
impl RegionData {
    /// Makes a region of `len` elements. Collective.
    #[new]
    fn new(
        job: &Bound<'_, Job>,
        #[pyo3(from_py_with = number)] len: usize,
        dtype: &Bound<'_, PyAny>,
        page: usize,
        placement: &str,
        checked: bool,
    ) -> PyResult<Self> {
        let placement = match placement {
            "block" => Placement::Block,
            "cyclic" => Placement::Cyclic,
            "first_touch" => Placement::FirstTouch,
            _ => {
                return Err(value_error(format!(
                    "{placement:?} is no placement: use \"block\", \"cyclic\" or \"first_touch\""
                )));
            }
        };
        let (size, name) =
            (dtype.getattr("itemsize")?.extract::<usize>()?, elements_of(dtype, &[])?);
        let options = RegionOptions::new().placement(placement).page(page).checked(checked);
        let options = options.elements(name);
        let (py, job) = (job.py(), &job.get().job);
        let word = [8, 4, 2].into_iter().find(|&word| size.is_multiple_of(word)).unwrap_or(1);
        let words = size / word;
        let count =
            len.checked_mul(words).ok_or_else(|| value_error("so many elements are too many"))?;
        let pages: Arc<dyn Pages> = blocking::wait(py, || {
            Ok(match word {
                8 => Arc::new(dsm::Region::<u64>::with(job, count, options)?) as Arc<dyn Pages>,
                4 => Arc::new(dsm::Region::<u32>::with(job, count, options)?),
                2 => Arc::new(dsm::Region::<u16>::with(job, count, options)?),
                _ => Arc::new(dsm::Region::<u8>::with(job, count, options)?),
            })
        })?;
        Ok(RegionData { words, bytes: size, pages: Mutex::new(Some(pages)) })
    }

    /// Copies elements from `start` on into an array without gaps.
    fn read(&self, start: usize, into: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, pages, buffer) = (into.py(), self.pages()?, Buffer::writable(into)?);
        let (to, bytes) = buffer.block()?;
        let range = self.range(start, bytes / self.bytes)?;
        let mut block = blocking::wait(py, || pages.read(range))?;
        // SAFETY: both have so many bytes, and the block is private.
        unsafe { segment::copy(to.0, block.start(), bytes - bytes % self.bytes) };
        Ok(())
    }

    /// Copies an array without gaps to the elements from `start` on.
    fn write(&self, start: usize, from: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, pages, buffer) = (from.py(), self.pages()?, Buffer::of(from)?);
        let (from, bytes) = buffer.block()?;
        let range = self.range(start, bytes / self.bytes)?;
        let mut block = pages.room(range.len());
        // SAFETY: as above.
        unsafe { segment::copy(block.start(), from.0, bytes - bytes % self.bytes) };
        blocking::wait(py, || pages.write(range.start, &*block))
    }

    /// Makes what this PE has written visible to the PEs that acquire later.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let pages = self.pages()?;
        blocking::wait(py, || pages.release())
    }

    /// Makes this PE see what other PEs have released.
    fn acquire(&self, py: Python<'_>) -> PyResult<()> {
        let pages = self.pages()?;
        blocking::wait(py, || pages.acquire())
    }

    /// Releases, waits until all PEs have called, and acquires. Collective.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        let pages = self.pages()?;
        blocking::wait(py, || pages.barrier())
    }

    /// What this PE has done with the region so far.
    fn stats(&self) -> PyResult<Counts> {
        Ok(counts::of(self.pages()?.stats()))
    }

    /// Gives up this PE's handle.
    fn free(&self) {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(pages);
    }
}
