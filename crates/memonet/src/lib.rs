//! memonet: **a send is a store**.
//!
//! The processes of a parallel program (PEs) reach each other's memory as memory. One store sends a
//! word, one prepared command sends a block, and one load sees that eight peers have arrived.
//!
//! ```
//! use memonet::{Cmp, Job};
//!
//! // In a program that `memonet run` starts: `memonet::init()?` instead of `Job::threads`.
//! Job::threads(2, |job| -> memonet::Result<()> {
//!     let mail = job.window::<u64>(1)?; // one word on every PE, zero at first
//!     if job.pe() == 0 {
//!         mail.remote(1, 0)?.store(42); // one instruction
//!     } else {
//!         assert_eq!(mail.wait_until(0, Cmp::Ne, 0)?, 42);
//!     }
//!     job.barrier()
//! })?;
//! # Ok::<(), memonet::Error>(())
//! ```
//!
//! | to | use | OpenSHMEM | MPI |
//! |---|---|---|---|
//! | join the job | [`init`], or [`Job::threads`] for PEs that are threads | `shmem_init` | `MPI_Init` |
//! | have memory that other PEs reach | [`Job::window`], [`Job::restricted`] | `shmem_malloc` | `MPI_Win_allocate` |
//! | send a word | [`Window::remote`] once, then [`Remote::store`] | `shmem_p` | `MPI_Put` |
//! | send a block | [`Window::put`] | `shmem_put` | `MPI_Put` |
//! | send a block and notify | [`Window::put_signal`] | `shmem_put_signal` | `MPI_Send` |
//! | send a block again and again | [`Window::prepare`], [`Transfer::start`] | - | `MPI_Send_init`, `MPI_Start` |
//! | wait for a word | [`Window::wait_until`] and its kin | `shmem_wait_until` | `MPI_Recv` |
//! | wait for a word in an event loop | [`Window::event`], whose descriptor epoll, mio or tokio watch | - | - |
//! | update a word atomically | [`Remote::fetch_add`] and its kin | `shmem_atomic_fetch_add` | `MPI_Fetch_and_op` |
//! | order writes, complete them | [`Job::fence`], [`Job::quiet`] | `shmem_fence`, `shmem_quiet` | `MPI_Win_flush_all` |
//! | meet | [`Job::barrier`], [`Barrier::arrive`] | `shmem_barrier_all` | `MPI_Barrier`, `MPI_Ibarrier` |
//! | combine, gather, broadcast | [`Team::all_reduce`], [`Team::all_gather`], [`Team::broadcast`] | `shmem_sum_reduce`, `shmem_fcollect`, `shmem_broadcast` | `MPI_Allreduce`, `MPI_Allgather`, `MPI_Bcast` |
//! | divide the PEs | [`Team::split`], [`Team::team`], [`Team::split_strided`] | `shmem_team_split_strided` | `MPI_Comm_split`, `MPI_Comm_create` |
//! | exclude others | [`dsm::Mutex`], [`Window::lock`] | `shmem_set_lock` | `MPI_Win_lock` with `MPI_LOCK_EXCLUSIVE` |
//! | share data by guards | [`dsm`] | - | - |
//! | send messages, receive from all | [`Messages::send`], [`Messages::recv`] | - | `MPI_Send`, `MPI_Recv` |
//! | work in supersteps (BSP) | [`Supersteps::put`], [`Supersteps::step`] | - | - |
//! | stream blocks to many PEs | [`Job::multicast`] | - | - |
//!
//! The programs below run on threads, so that they are tests of this page. A program of processes
//! begins with [`init`] instead, and `memonet run -n 4 ./program` starts it.
//!
//! # Guide: what a PE sees, and when
//!
//! * A store to a near PE is visible at once. A write to a far PE is visible for certain after
//!   [`Job::quiet`], or after a barrier.
//! * Two writes of a PE become visible in order only across a [`Job::fence`].
//! * The block of a [`put_signal`](Window::put_signal) is visible before its signal.
//! * A PE whose wait has seen a word sees what its writer wrote before and separated by a fence.
//! * A word of 1, 2, 4 or 8 bytes is never seen torn. A longer block may be seen half written, so
//!   read it after its signal or after a barrier.
//! * A store wakes nobody: a PE that sleeps sees it within about 4 ms, or as soon as its writer
//!   waits, fences or quiets. A signal wakes at once.
//!
//! ```
//! use memonet::{Cmp, Job, SignalOp};
//!
//! # for result in
//! Job::threads(2, |job| -> memonet::Result<()> {
//!     let block = job.window::<f64>(100)?;
//!     let flag = job.window::<u64>(2)?;
//!     if job.pe() == 0 {
//!         block.put(1, 0, &[1.0; 100])?;
//!         job.fence()?; // without it, the flag might be visible first
//!         flag.remote(1, 0)?.store(1);
//!         // One call that does all three, and wakes PE 1 if it sleeps:
//!         block.put_signal(1, 50, &[2.0; 50], &flag, 1, SignalOp::Set, 1)?;
//!     } else {
//!         flag.wait_until(0, Cmp::Ne, 0)?;
//!         assert_eq!(block.read(0), 1.0);
//!         flag.wait_until(1, Cmp::Ne, 0)?;
//!         assert_eq!(block.read(50), 2.0);
//!     }
//!     job.barrier()
//! })?
//! # { result? }
//! # Ok::<(), memonet::Error>(())
//! ```
//!
//! # Guide: a halo exchange
//!
//! Each PE has a piece of a ring of cells, and needs its neighbours' border cells in every step. A
//! PE may be one step ahead of a neighbour, so there are two places for each border cell, used in
//! turn. No barrier is needed: a PE cannot be two steps ahead, because it waits for the neighbour's
//! cell of every step.
//!
//! ```
//! use memonet::{Cmp, Job, SignalOp};
//!
//! const CELLS: usize = 100;
//!
//! # for result in
//! Job::threads(4, |job| -> memonet::Result<()> {
//!     let (me, n) = (job.pe(), job.npes());
//!     let (left, right) = ((me + n - 1) % n, (me + 1) % n);
//!     let halo = job.window::<f64>(4)?; // for even and odd steps: from the left, from the right
//!     let step_of = job.window::<u64>(2)?; // last step from the left, from the right
//!     let mut cells = vec![me as f64; CELLS];
//!     for step in 1..=20 {
//!         let place = 2 * (step as usize % 2);
//!         halo.put_signal(left, place + 1, &cells[..1], &step_of, 1, SignalOp::Set, step)?;
//!         halo.put_signal(right, place, &cells[CELLS - 1..], &step_of, 0, SignalOp::Set, step)?;
//!         job.fence()?; // or a network might bring the next step's signal before this one's
//!         step_of.wait_until_all(&[0, 1], Cmp::Ge, step)?;
//!
//!         let mut all = vec![halo.read(place)];
//!         all.extend_from_slice(&cells);
//!         all.push(halo.read(place + 1));
//!         cells = all.windows(3).map(|of| (of[0] + of[1] + of[2]) / 3.0).collect();
//!     }
//! #   let sum = job.world().all_reduce(memonet::Sum, cells.iter().sum::<f64>())?;
//! #   assert!((sum - 600.0).abs() < 1e-9, "smoothing keeps the sum");
//!     job.barrier()
//! })?
//! # { result? }
//! # Ok::<(), memonet::Error>(())
//! ```
//!
//! # Guide: a reduction
//!
//! Collectives take values, slices (`_slice`), or, for large data, [`Span`]s of windows (`_into`).
//! [`Job::world`] is the team of all PEs; [`Team::team`] and [`Team::split_strided`] make smaller
//! teams.
//!
//! ```
//! use memonet::{Job, Max, Sum};
//!
//! # for result in
//! Job::threads(4, |job| -> memonet::Result<()> {
//!     // Each PE has a part of two vectors; their scalar product is a sum over all parts.
//!     let (x, y) = (vec![0.5; 1000], vec![2.0; 1000]);
//!     let part: f64 = x.iter().zip(&y).map(|(x, y)| x * y).sum();
//!     let product = job.world().all_reduce(Sum, part)?; // every PE has the result
//!     assert_eq!(product, 4000.0);
//!
//!     let mut bars = [0u64; 10];
//!     bars[job.pe()] = 7;
//!     job.world().all_reduce_slice(Max, &mut bars)?; // each element by itself, in place
//!     assert_eq!(bars[..5], [7, 7, 7, 7, 0]);
//!
//!     let everything = job.window::<f64>(1 << 20)?;
//!     let span = everything.span(0..1 << 20)?;
//!     job.world().all_reduce_into(Sum, span, span) // where the data lie, without a copy
//! })?
//! # { result? }
//! # Ok::<(), memonet::Error>(())
//! ```
//!
//! # Guide: a lock
//!
//! A [`dsm::Mutex`] owns the data that it protects, so no PE can use them without it. Where all PEs
//! are near, the data lie in shared memory; otherwise they travel with the lock.
//!
//! ```
//! use memonet::Job;
//! use memonet::dsm::Mutex;
//!
//! # for result in
//! Job::threads(3, |job| -> memonet::Result<()> {
//!     let histogram = Mutex::new(&job, &[0u64; 10])?; // collective: all PEs make it
//!     for sample in 0..100 {
//!         let mut bars = histogram.lock()?;
//!         bars[sample % 10] += 1;
//!     } // dropping the guard unlocks
//!     job.barrier()?;
//!     assert_eq!(*histogram.lock()?, [30; 10]);
//!     job.barrier()
//! })?
//! # { result? }
//! # Ok::<(), memonet::Error>(())
//! ```
//!
//! # When something goes wrong
//!
//! * A call that waits for a PE that has died returns [`Error::PeerFailed`] with the PE's number
//!   and the [`Cause`]. It never hangs.
//! * Waits, barriers and the locks of [`dsm`] have forms with a time limit: [`Wait::timeout`],
//!   [`Barrier::wait_timeout`], [`dsm::Mutex::lock_timeout`]. `memonet run --timeout SECONDS`
//!   limits a whole job, and on a simulated machine a deadlock is an error that lists what each PE
//!   waits for.
//! * `MEMONET_CHECK=1` ([`Job::is_checked`]) finds members of a team that make different collective
//!   calls, and a thread that takes a lock twice.
//!
//! All items are those of [`memonet_core`], whose front page explains the words that this
//! documentation uses.

#[doc(inline)]
pub use memonet_core::*;

#[doc(hidden)]
pub use memonet_macros::Plain;
/// Lets windows, multicast channels, shared data and collectives hold a structure: it becomes
/// `memonet::Plain`.
///
/// The attribute derives `Clone` and `Copy`, unless the structure says so itself, and the traits of
/// the crate `zerocopy` that `Plain` asks for. It adds `#[repr(C)]`, unless the structure has
/// another `repr`. zerocopy checks that any bytes are a value of the structure and that it has no
/// padding: no references, no `bool`, `char` or enumeration, but for the `Option` of a number that
/// is not 0, such as `NonZeroU32`, and no gaps between fields. Order fields from the largest to the
/// smallest, and fill what remains with a field such as `_rest: [u8; 4]`.
///
/// ```
/// # use memonet::Job;
/// #[memonet::plain]
/// #[derive(Debug, PartialEq)]
/// struct Particle {
///     position: [f64; 3],
///     charge: f32,
///     id: u32,
/// }
///
/// # for result in
/// Job::threads(2, |job| -> memonet::Result<()> {
///     let mine = Particle { position: [0.5; 3], charge: -1.0, id: job.pe() as u32 };
///     assert_eq!(job.world().all_gather(mine)?[1].id, 1);
///     let window = job.window::<Particle>(10)?;
///     window.write(3, mine);
///     assert_eq!(window.read(3), mine);
///     job.barrier()
/// })?
/// # { result? }
/// # Ok::<(), memonet::Error>(())
/// ```
///
/// A program that calls the dependency `memonet` by another name says so:
/// `#[name::plain(crate = "name")]`.
#[doc(inline)]
pub use memonet_macros::plain;
/// The crate whose traits [`Plain`] stands for. Its derives, too, make a structure plain, if the
/// structure says `#[zerocopy(crate = "memonet::zerocopy")]`; [`plain`] says all of it.
pub use zerocopy;

/// Joins the job in which this process was started: by `memonet run`, or alone as a job of one PE.
///
/// OpenSHMEM: `shmem_init`; MPI: `MPI_Init`. A second call gives the same job. When the process
/// ends with exit status 0, it leaves the job in order by itself.
///
/// ```
/// let job = memonet::init()?;
/// println!("PE {} of {}", job.pe(), job.npes());
/// # Ok::<(), memonet::Error>(())
/// ```
///
/// # Errors
/// See [`Job::init_with`].
pub fn init() -> Result<Job> {
    memonet_fabrics::init()
}

/// The programs of the documents are compiled and run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/multicast.md")]
    struct Multicast;
    #[doc = include_str!("../../../docs/shared-data.md")]
    struct SharedData;
}
