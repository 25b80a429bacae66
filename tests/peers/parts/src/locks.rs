//! Locks with a number of 8 bytes that is changed under them.

use crate::measure::{Figure, measure};
use crate::page::Side;
use anyhow::{Result, ensure};

/// The row `lock_alone` or `lock_contended`. `add` adds 1 under the lock, and gives the sum.
pub fn measure_lock(
    side: &Side,
    row: &str,
    seconds: f64,
    mut add: impl FnMut() -> Result<u64>,
) -> Result<()> {
    let sides = if row == "lock_contended" { 2 } else { 1 };
    let mut all = 0;
    measure(side, row, seconds, Figure::Millions(sides as f64), |count| {
        if side.me < sides {
            for _ in 0..count {
                add()?;
            }
        }
        all += count * sides as u64;
        Ok(())
    })?;
    side.meet();
    if side.me == 0 {
        let sum = add()?;
        ensure!(sum == all + 1, "{sum} under the lock, of {all} additions and one");
    }
    side.meet();
    Ok(())
}

/// A mutex of POSIX that processes share, robust or not.
pub fn pthread(side: &Side, row: &str, seconds: f64, robust: bool) -> Result<()> {
    let lock = side.lock();
    // SAFETY: the page has room for a mutex, which side 0 makes before side 1 uses it. The number
    // is used under the mutex alone.
    unsafe {
        let mutex = (&raw mut (*lock).room).cast::<libc::pthread_mutex_t>();
        assert!(size_of::<libc::pthread_mutex_t>() <= size_of_val(&(*lock).room));
        if side.me == 0 {
            let mut kind: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut kind);
            libc::pthread_mutexattr_setpshared(&mut kind, libc::PTHREAD_PROCESS_SHARED);
            if robust {
                libc::pthread_mutexattr_setrobust(&mut kind, libc::PTHREAD_MUTEX_ROBUST);
            }
            let made = libc::pthread_mutex_init(mutex, &kind);
            ensure!(made == 0, "pthread_mutex_init: error {made}");
        }
        side.meet();
        let number = &raw mut (*lock).number;
        measure_lock(side, row, seconds, || {
            let locked = libc::pthread_mutex_lock(mutex);
            ensure!(locked == 0, "pthread_mutex_lock: error {locked}");
            let sum = number.read() + 1;
            number.write(sum);
            libc::pthread_mutex_unlock(mutex);
            Ok(sum)
        })
    }
}

/// parking_lot's mutex, between threads of one process.
pub fn parking_lot(row: &str, seconds: f64, sides: [Side; 2]) -> Result<()> {
    #[repr(align(128))]
    struct Apart(parking_lot::Mutex<u64>);
    let mutex = Apart(parking_lot::Mutex::new(0));
    let run = &|side: Side| {
        side.pin()?;
        measure_lock(&side, row, seconds, || {
            let mut number = mutex.0.lock();
            *number += 1;
            Ok(*number)
        })
    };
    let [first, second] = sides;
    std::thread::scope(|scope| {
        let other = scope.spawn(move || run(second));
        run(first)?;
        other.join().expect("side 1 panicked")
    })
}
