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
//! ```text
//! program     closures: a coroutine for each PE (`coroutine`, `stacks`)      processes: shared pages and a futex each (`processes`)
//!    │  memonet_core::Job, unchanged, all peers Far
//! `fabric`    every call of `trait Fabric` becomes an `Ask` (memonet_core::hosted), and that a `Request`, handed over through a `Port`
//!    │  Request / Reply                        ── the only thing that passes; nothing in it points into the program
//! `engine`    who runs, who waits for what, poll instants, deadlines, compute time; deadlock
//!    │  HostOp / Happened
//! `world`     events by (time, order); `nic/*` the kinds; `agent` software for what hardware lacks; `network` links and switches
//!    │
//! `memory`    the segments of the job: what NICs deliver into;  `trace`: every stage that took time;  `machine`: where every number is from
//! ```
//!
//! # Time
//!
//! [`Ps`], whole picoseconds. Events are ordered by time, and at one time by the order in which
//! they were put in ([`queue`]). Nothing else orders anything: no address, no hash, no clock.
//! Chance ([`random`]) is drawn from the seed, in the order of events.
//!
//! # A PE's time
//!
//! Exactly one PE runs at any moment of real time, and while it runs, virtual time stands still:
//! computing costs nothing unless the program says `job.compute`. A PE gives up the CPU with every
//! call: its request is begun at the PE's own time, and it goes on when the machine answers.
//!
//! **Looks.** A host learns what its NIC wrote by reading memory, again and again. One such look
//! takes [`Polling::interval`](host::Polling), and reads at `sample` after its start. A PE that
//! waits ([`memonet_core::wait`]) is not run for each look: it *parks*. When something in its
//! memory changes, the engine computes which look would have seen it, and runs the PE at that
//! look's sample; the rest of the look is charged before its next call. A look that finds what it
//! wants at once costs as much as any other.
//!
//! **Ends of waits.** A deadline is an event. When nothing is left that could happen, but PEs are
//! parked, all of them look once more (a PE may have left, or a descriptor come by a socket); if
//! that changes nothing it is a deadlock, an error that lists what each waits for.
//!
//! # For the author of a NIC kind
//!
//! 1. Read [`nic`]: the trait, the five rules. `nic/loggp.rs` is the shortest example, with remote
//!    DMA and without.
//! 2. Write `nic/KIND.rs` with `KIND::build(&Machine, ...)`, which reads its sections once; add a
//!    line to `nic::build`, the file in `machines/` to [`machine::BUILT_IN`].
//! 3. Test it without programs: [`world::World::build`] on [`memory::PlainMemory`],
//!    [`World::begin`](world::World::begin) for the calls, [`World::next`](world::World::next)
//!    until nothing happens; [`World::counts`](world::World::counts) for conservation,
//!    [`trace::Recorder::breakdown`] for stages.
//! 4. What your hardware shares between nodes (wires, a chain) is a field of your kind: one value
//!    holds the NICs of all nodes. What travels as packets goes through
//!    [`Cx::send`](nic::Cx::send), so that links and switches see it.
//! 5. The kind's own interface (kick addresses, command words, bank switch) is
//!    [`host::HostOp::Command`], with functions in your file that make the commands. Programs reach
//!    it by [`Host`]. What the library sends comes as `Store`, `Put`, `Get`, `Atomic`, `Fence`,
//!    `Quiet`: your file is also the driver that cuts a put into packets.
//! 6. Memory that the host sees only after a switch of banks: keep the bytes, and
//!    [`Cx::write`](nic::Cx::write) them to the PE's segment at the switch.
//! 7. Collectives in hardware are [`host::GroupOp`]; say so by [`nic::Feature::Groups`]; datagrams
//!    that the network copies, too, and by [`nic::Feature::Datagrams`].
//! 8. Switch management (multicast tables): packets to [`packet::Destination::Switch`] come out in
//!    [`nic::Nic::at_switch`], which sets [`network::Switch::set_multicast`]. Routes are written
//!    when the network is built; [`network::Network::set_route`] changes them.
//!
//! # Trade-offs
//!
//! * Switches never push back: whoever waits for a port does not block others. Buffers have no end.
//! * A NIC's state is one value for all nodes, so a kind could cheat. It is read by people.
//! * An agent runs beside its host's program and takes no CPU time from it.
//! * `quiet` is answered when the machine knows that all is visible, plus the time in which a real
//!   host would hear of it; a host that has no way to hear of it would have to ask.
//! * Plain loads and stores of a PE to its own memory take no time.
//! * Of an attached process the library alone is simulated: what it says to the kernel, such as
//!   reading a file, takes no time and has no order.

mod agent;
mod coroutine;
mod cx;
pub mod engine;
mod error;
mod events;
mod fabric;
pub mod host;
pub mod machine;
pub mod memory;
pub mod network;
pub mod nic;
mod op;
pub mod packet;
mod parts;
mod processes;
mod program;
pub mod queue;
pub mod random;
pub mod reproduce;
mod routes;
mod rules;
mod run;
mod slab;
mod stacks;
pub mod time;
pub mod trace;
pub mod world;

pub use error::Error;
pub use machine::Machine;
pub use processes::{Ended, Launcher, Pace, ProcessOptions, run_processes};
pub use run::{Done, Host, Options, now, run, sleep};
pub use time::Ps;
