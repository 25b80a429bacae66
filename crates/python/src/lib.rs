//! memonet for Python: the native module `memonet._memonet`.
//!
//! A thin front end, like that of C. Each class is one handle of the core. What is easier to say in
//! Python (launching, pickling, indexing by slices) stands in the package `memonet` beside it.
//!
//! | file | what it has |
//! |---|---|
//! | `job`, `window`, `place`, `remote`, `team`, `transfer`, `mutex`, `rwlock`, `region`, `multicast`, `messages`, `supersteps`, `event`, `barrier` | the classes |
//! | `into`, `nbi`, `restricted` | calls that become methods in Python: collectives between windows, puts that do not wait, rights |
//! | `combine`, `plain` | operators of collectives, for arrays and for windows; plain numbers of any type |
//! | `cells`, `scalar`, `kind` | windows without their element type; words as Python's numbers; dtypes |
//! | `buffer`, `ndarray`, `strides`, `elements` | memory of Python's objects; copies between two arrays of one shape; what a put copies |
//! | `exclusive`, `kept`, `lent` | handles that one thread uses at a time; guards, beside their locks, and the buffers that show their data |
//! | `blocking` | calls that wait: the interpreter's lock, and Ctrl-C |
//! | `counts` | statistics of what is shared |
//! | `caller` | the program's line, for reports and timelines |
//! | `errors` | the core's errors as exceptions |
//!
//! # Why Python code cannot break memory
//!
//! Python's arrays are pointers that the borrow checker does not see. So each rule of the core that
//! Rust's types keep has a reason of its own here:
//!
//! 1. **Arrays keep memory.** An array of a window shows a `place::Part`, which holds a handle of
//!    the core. As long as the array, a view of it or a memoryview exists, this PE has not dropped
//!    the window, so the PEs do not agree to reuse its memory; and the handle keeps the job's
//!    mapping, also after the job is finalised. `free` gives up the handle of the
//!    `window::Window` object alone.
//! 2. **The garbage collector drops handles, and does nothing else.** Dropping one sets a bit of
//!    this PE: it waits for nobody, and takes no lock that a waiting call has. The memory is given
//!    away in the next collective call that makes or frees a window, when all PEs have dropped it:
//!    so no order of `del` on PEs can hang. Objects whose drop may send (transfers, channels) are
//!    released by `free`, by `with`, or by the last `del`, and never wait for other PEs.
//! 3. **No Rust reference to Python's memory.** Other threads may write a buffer while a call has
//!    given up the interpreter's lock, and peers may write arrays of windows at any time. So
//!    buffers are read and written by the core's copies alone, through pointers
//!    (`buffer::Buffer`). The buffer stays exported during the call, so its memory stays.
//! 4. **Handles belong together.** Calls that take two handles are calls of the core, which
//!    compares their owners. So handles of two jobs (`memonet.threads`) do not mix.
//! 5. **Numbers are checked** by the core, as for any safe caller: PE, index, count, alignment.
//! 6. **A guard is not outlived.** The array of a mutex or a reader-writer lock shows memory only
//!    inside of its `with`: see `mutex`, `rwlock`.
//!
//! # Threads, and the interpreter's lock
//!
//! All handles may be used by all threads, as the core's may. A call that may wait for another PE,
//! or that moves 64 KiB or more, gives up the interpreter's lock (`blocking`). So a thread that
//! waits does not stop the others, and PEs that are threads of one interpreter (`memonet.threads`)
//! do not wait for each other with the lock in hand. A wait for a word looks for some microseconds
//! before it gives up the lock, but not where PEs share an interpreter.
//!
//! # Fork
//!
//! A child of `os.fork` is not the PE: the core refuses it all calls that wait, and lets it read
//! and write near memory. It has copies of the PE's guards, which give nothing back (`kept`).
//! `multiprocessing` may fork before or after `memonet.init`.
//!
//! # The end
//!
//! A process that ends with status 0 finalises in the core's exit handler, after the interpreter
//! has ended. An exception that nobody catches ends the interpreter with status 1: a death, for
//! which the launcher ends the job. Arrays that exist then keep their memory as in 1.

mod barrier;
mod blocking;
mod buffer;
mod caller;
mod cells;
mod combine;
mod counts;
mod elements;
mod errors;
mod event;
mod exclusive;
mod into;
mod job;
mod kept;
mod kind;
mod lent;
mod messages;
mod multicast;
mod mutex;
mod nbi;
mod ndarray;
mod place;
mod plain;
mod region;
mod remote;
mod restricted;
mod rwlock;
mod scalar;
mod strides;
mod supersteps;
mod team;
mod threads;
mod transfer;
mod window;

use pyo3::prelude::*;

// Arrays of NumPy are read where their fields lie: only the interpreter's lock keeps those in
// place.
#[pymodule(gil_used = true)]
mod _memonet {
    #[pymodule_export]
    use super::barrier::{Barrier, new_barrier};
    #[pymodule_export]
    use super::event::{Event, event};
    #[pymodule_export]
    use super::into::{combine_into, move_into};
    #[pymodule_export]
    use super::job::{Job, init};
    #[pymodule_export]
    use super::messages::Messages;
    #[pymodule_export]
    use super::multicast::MulticastData;
    #[pymodule_export]
    use super::mutex::{MutexData, Turns};
    #[pymodule_export]
    use super::nbi::put_nbi;
    #[pymodule_export]
    use super::region::RegionData;
    #[pymodule_export]
    use super::remote::Remote;
    #[pymodule_export]
    use super::restricted::{attach, key, restricted, revoke};
    #[pymodule_export]
    use super::rwlock::{RwLockData, RwLockGuard};
    #[pymodule_export]
    use super::supersteps::Supersteps;
    #[pymodule_export]
    use super::team::Team;
    #[pymodule_export]
    use super::threads::{Threads, threads};
    #[pymodule_export]
    use super::transfer::Transfer;
    #[pymodule_export]
    use super::window::Window;
}
