//! The page that both sides map: where they meet, and how far apart their CPUs are. No library knows it.

use anyhow::{Context, Result};
use std::cell::Cell;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Instant;

const TRIPS: u64 = 100;
const BATCHES: usize = 5;

#[repr(align(128))]
pub struct Word(pub AtomicU64);

/// All words are zero at first.
#[repr(C)]
pub struct Page {
    arrived: [Word; 2],
    trip: [Word; 2],
    count: Word,
    /// Room for a lock, and for the number under it.
    pub lock: Lock,
}

#[repr(C, align(128))]
pub struct Lock {
    pub room: [u64; 14],
    pub number: u64,
}

/// Side 0 or side 1 of a measurement.
pub struct Side {
    pub me: usize,
    page: *const Page,
    /// Round trips so far, equally many at both.
    trips: Cell<u64>,
}

// SAFETY: a pointer to memory that stays mapped; all but `lock` is atomic words, and `lock` is
// reached through a pointer by those who hold the lock in it.
unsafe impl Send for Side {}

/// Maps the page. It stays until the process ends.
pub fn map(path: &str) -> Result<*const Page> {
    let file = OpenOptions::new().read(true).write(true).open(path).context(path.to_owned())?;
    file.set_len(4096)?;
    // SAFETY: a new mapping of a file that is long enough.
    let page = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), 4096, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    anyhow::ensure!(page != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
    Ok(page.cast())
}

impl Side {
    pub fn new(me: usize, page: *const Page) -> Self {
        Side { me, page, trips: Cell::new(0) }
    }

    fn page(&self) -> &Page {
        // SAFETY: `map` has made it, and nobody unmaps it. References reach atomic words alone:
        // `lock` is taken by its address.
        unsafe { &*self.page }
    }

    /// Where the lock and its number lie.
    pub fn lock(&self) -> *mut Lock {
        (&raw const self.page().lock).cast_mut()
    }

    /// Waits for the other side.
    pub fn meet(&self) {
        let [mine, other] = [self.me, 1 - self.me].map(|side| &self.page().arrived[side].0);
        let turn = mine.load(Relaxed) + 1;
        mine.store(turn, Release);
        while other.load(Acquire) < turn {
            std::hint::spin_loop();
        }
    }

    /// Side 0's number, at both.
    pub fn from_first(&self, number: u64) -> u64 {
        if self.me == 0 {
            self.page().count.0.store(number, Relaxed);
        }
        self.meet();
        let number = self.page().count.0.load(Relaxed);
        self.meet();
        number
    }

    /// Nanoseconds from CPU to CPU and back by loads and stores: the median of a few batches.
    pub fn round_trip(&self) -> f64 {
        self.meet();
        let [mine, other] = [self.me, 1 - self.me].map(|side| &self.page().trip[side].0);
        let mut times = [0.0; BATCHES];
        for time in &mut times {
            let (start, begin) = (Instant::now(), self.trips.get());
            self.trips.set(begin + TRIPS);
            for trip in begin + 1..=begin + TRIPS {
                if self.me == 0 {
                    other.store(trip, Release);
                }
                // Side 1 has the word of side 0 to answer to, and its own to wait for.
                while mine.load(Acquire) < trip {}
                if self.me == 1 {
                    other.store(trip, Release);
                }
            }
            *time = start.elapsed().as_nanos() as f64 / TRIPS as f64;
        }
        times.sort_by(f64::total_cmp);
        times[BATCHES / 2]
    }

    /// Binds the calling thread to a CPU of its own.
    pub fn pin(&self) -> Result<()> {
        // SAFETY: the sets are plain bits, of the size that the calls are told.
        unsafe {
            let mut all: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of_val(&all), &mut all);
            let cpus = (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &all));
            let cpu = cpus.into_iter().nth(self.me).context("there is only one CPU")?;
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut one);
            libc::sched_setaffinity(0, size_of_val(&one), &one);
        }
        Ok(())
    }
}
