//! The simulated machine: what would this program do, and how long would it take, on that network?
//!
//! A run is a function of (machine, program, seed), to the byte. `memonet run --machine` runs
//! programs ([`run_processes`]), [`run`] runs closures:
//!
//! ```
//! use memonet_sim::{Machine, Options, run};
//!
//! let machine = Machine::load("fast-ethernet-udp")?;
//! let done = run(&machine, 2, &Options::default(), |job| {
//!     job.barrier().unwrap();
//!     memonet_sim::now()
//! })?;
//! assert!(done.results[0].as_nanos() > 50_000, "a message takes longer than its software");
//! # Ok::<(), memonet_sim::Error>(())
//! ```
//!
//! # The map
//!
//! Imports point one way, down these floors, and so they do within each folder. Its `mod.rs` stands
//! above the folder's other files; the state of a kind stands below the files that work on it.
//!
//! | floor | files | what |
//! |---|---|---|
//! | studies | `reproduce/`, `processes` | published experiments; programs as processes, whose questions `rules` checks |
//! | runs | `run`, `engine` | programs as closures; which PE runs when |
//! | the machine | `world`, `agent`, `nic/` | events to NICs; software for what hardware lacks; the kinds |
//! | its inside | `cx`, `crossing`, `parts`, `shapes`, `ways`, `network`, `flow`, `lanes`, `memory` | what a NIC may do; packets cross links and switches; what is under way; shapes of networks; source routing; tables; back-pressure and repeats; virtual lanes; segments |
//! | ways in | `fabric`, `coroutine`, `stacks`, `program` | a PE's calls as requests; PEs as coroutines; what programs and the engine pass |
//! | words | `events`, `host`, `error`, `trace/`, `usage`, `machine/` | what is due and what has happened; calls; stages; what a run has used; where every number is from |
//! | ground | `packet`, `op`, `placement`, `queue`, `routes`, `slab`, `random`, `time` | what travels, names, and data structures that know no machine |
//!
//! And what passes from a program to the machine and back:
//!
//! ```text
//! program     closures: a coroutine for each PE (`coroutine`, `stacks`)      processes: shared pages and a futex each (`processes`)
//!    │  memonet_core::Job, unchanged, all peers Far
//! `fabric`    every call of `trait Fabric` becomes an `Ask` (memonet_core::unstable::hosted), and each `Ask` a `Request`, handed over through a `Port`
//!    │  Request / Reply                        ── nothing else passes, and nothing in them points into the program
//! `engine`    which PE runs, what each waits for, moments of looks, deadlines, compute time; deadlock
//!    │  HostOp / Happened
//! `world`     events by (time, order), for NICs, agents, links and switches
//!    │
//! `memory`    the segments of the job, into which NICs deliver
//! ```
//!
//! # Time
//!
//! Time is counted in whole picoseconds ([`Ps`]). Events are ordered by time. Events of one time
//! are ordered as they were put into the queue ([`queue`]). Nothing else orders anything: no
//! address, no hash, no clock. Random numbers ([`random`]) come from the seed, in the order of
//! events.
//!
//! # A PE's time
//!
//! Virtual time stands still while PEs run, so computing costs nothing unless the program says
//! `job.compute`, or runs with `--cpu-scale`. A PE gives up the CPU with every call. The call's
//! request begins at the PE's own time, and the PE goes on when the machine answers. PEs that are
//! closures run one at a time. PEs that are processes run at once where they are ready at one
//! moment of virtual time, and see what they would see one after the other; [`engine`] says why.
//!
//! **Looks.** A host learns what its NIC wrote by reading memory, again and again. One look takes
//! [`Polling::interval`](host::Polling), and reads the memory `sample` after its start. The engine
//! does not run a PE that waits ([`memonet_core::unstable::wait`]) for each look: the PE *parks*.
//! When something in the PE's memory changes, the engine computes which look would have seen the
//! change, and runs the PE when that look reads. The rest of the look is charged before the PE's
//! next call. A look that succeeds at once costs as much as any other.
//!
//! **Ends of waits.** A deadline is an event. When no event is left but deadlines, and PEs are
//! parked, all of them look again, because a PE may have left, or a descriptor may have come by a
//! socket. If 64 such rounds change nothing, and no deadline may, the run ends with a deadlock: an
//! error that lists what each PE waits for. PEs that are closures then end by themselves, as what
//! they wait for is refused ([`run`]).
//!
//! # For the author of a NIC kind
//!
//! 1. Read [`nic`]: the trait, the six rules. `nic/loggp.rs` is the shortest example, with remote
//!    DMA and without.
//! 2. Write `nic/KIND.rs` with `KIND::build(&Machine, ...)`, which reads its sections once; add a
//!    line to `nic::build`, the file in `machines/` to [`machine::BUILT_IN`].
//! 3. Test it without programs: [`world::World::build`] on [`memory::PlainMemory`],
//!    [`World::begin`](world::World::begin) for the calls, [`World::next`](world::World::next)
//!    until nothing happens; [`World::counts`](world::World::counts) for conservation,
//!    [`trace::Recorder::breakdown`] for stages.
//! 4. Hardware that nodes share (wires, a chain) is a field of your kind, because one value holds
//!    the NICs of all nodes. Packets go through [`Cx::send`](nic::Cx::send), so that links and
//!    switches see them.
//! 5. The kind's own interface (kick addresses, command words, bank switch) is
//!    [`host::HostOp::Command`], with functions in your file that make the commands. Programs reach
//!    the interface by [`Host`]. The library's calls come as `Store`, `Put`, `Get`, `Atomic`,
//!    `Fence` and `Quiet`: your file is also the driver that cuts a put into packets.
//! 6. If the host sees memory only after a switch of banks, keep the bytes, and
//!    [`Cx::write`](nic::Cx::write) them to the PE's segment at the switch.
//! 7. Collectives in hardware are [`host::GroupOp`]; announce them by [`nic::Feature::Groups`].
//!    Datagrams that the network copies are, too; announce them by [`nic::Feature::Datagrams`].
//!    Multicast that loses nothing carries the library's collectives; announce it by
//!    [`nic::Feature::CopiedWrites`].
//! 8. Switch management (multicast tables): packets to [`packet::Destination::Switch`] come out in
//!    [`nic::Nic::at_switch`], which calls [`network::Switch::set_multicast`]. Routes are written
//!    when the network is built; [`network::Network::set_route`] changes them.
//!
//! # Trade-offs
//!
//! * Switches have no back-pressure: a packet that waits for a port does not block others. Buffers
//!   are unlimited.
//! * A NIC's state is one value for all nodes, so a kind could use what its node cannot know. Only
//!   review prevents that.
//! * An agent runs beside its host's program and takes no CPU time from it.
//! * `quiet` is answered when the machine knows that all writes are visible, plus the time in which
//!   a real host would hear of that. A host that cannot hear of it would have to ask.
//! * Plain loads and stores of a PE to its own memory take no time.
//! * Of an attached process, only the library is simulated. The process's system calls, such as
//!   reading a file, take no time and have no order.

mod agent;
mod coroutine;
mod crossing;
mod cx;
pub mod engine;
mod error;
mod events;
mod fabric;
mod flow;
pub mod host;
mod lanes;
pub mod machine;
mod mailbox;
pub mod memory;
pub mod network;
pub mod nic;
mod op;
pub mod packet;
mod parts;
mod placement;
mod processes;
mod program;
pub mod queue;
pub mod random;
pub mod reproduce;
mod routes;
mod rules;
mod run;
mod shapes;
mod slab;
mod stacks;
#[cfg(test)]
mod testing;
pub mod time;
pub mod trace;
mod usage;
mod ways;
pub mod world;

pub use error::{Error, Waiting};
pub use machine::Machine;
pub use processes::{Ended, Launcher, Pace, ProcessOptions, run_processes};
pub use run::{Done, Host, Options, now, run, sleep};
pub use time::Ps;
pub use usage::{Carried, LinkUsage, PeUsage, Usage};
