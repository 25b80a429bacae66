//! The machine at work: its NICs, agents, links and switches, by events. It knows no programs: the
//! engine drives those, begins their calls here, and takes what happens.

use crate::agent::{self, Agents};
use crate::cx::Cx;
use crate::events::Event;
pub use crate::events::{Happened, Wake};
use crate::host::{HostOp, Polling};
use crate::machine::{Machine, MachineError};
use crate::mailbox::{DRIVERS, MAILBOXES, number_of};
use crate::memory::{Memory, PlainMemory};
use crate::network::Network;
use crate::nic::{self, Call, Feature, Nic};
use crate::op::{Op, Pe};
use crate::packet::Node;
pub use crate::parts::Counts;
use crate::parts::{Flight, Landing, Parts};
use crate::placement::Placement;
use crate::time::Ps;
use crate::trace::{Place, Recorder};
use crate::usage::LinkUsage;
use memonet_core::unstable::hosted::Offers;

/// How many events come to nothing for programs before [`World::next`] says so. Real runs have some
/// thousands between two calls.
const EVENTS_AT_ONCE: u32 = 1 << 16;

impl Machine {
    /// Finds mistakes that show when the machine is built, here for two PEs.
    ///
    /// # Errors
    /// [`MachineError`].
    pub fn check(&self) -> Result<(), MachineError> {
        World::build(self, 2, 0, Box::new(PlainMemory::new(2, 0))).map(drop)
    }
}

/// A machine, built, with a job on it.
pub struct World {
    nic: Box<dyn Nic>,
    agents: Agents,
    parts: Parts,
    placement: Placement,
}

impl World {
    /// Builds the machine for `pes` PEs whose memory is `memory`.
    ///
    /// # Errors
    /// [`MachineError`]: among others, for every parameter that building the machine did not need.
    pub fn build(
        machine: &Machine,
        pes: u32,
        seed: u64,
        memory: Box<dyn Memory>,
    ) -> Result<World, MachineError> {
        let placement = Placement { per_node: nic::pes_per_node(machine)? };
        let mut network = Network::build(machine, placement.nodes(pes))?;
        let nic = nic::build(machine, &mut network, pes)?;
        let agents = Agents::build(machine, &*nic, pes, placement)?;
        machine.finish()?;
        let parts = Parts::new(network, memory, seed, pes);
        let mut world = World { nic, agents, parts, placement };
        let World { nic, parts, .. } = &mut world;
        nic.start(&mut Cx { parts });
        // The job begins when the machine has come up.
        while let Some((now, event)) = world.parts.events.pop() {
            world.parts.now = now;
            world.handle(event);
        }
        world.nic.has_come_up(machine)?;
        world.parts.network.count_anew();
        Ok(world)
    }

    /// The time of the last event.
    pub fn now(&self) -> Ps {
        self.parts.now
    }

    /// Things that are still to happen.
    pub fn pending(&self) -> usize {
        self.parts.events.len() + self.parts.happened.len()
    }

    /// What has been recorded.
    pub fn recorder(&mut self) -> &mut Recorder {
        &mut self.parts.recorder
    }

    /// What has been counted.
    pub fn counts(&self) -> Counts {
        self.parts.counts
    }

    /// What went over the links.
    pub(crate) fn links(&self) -> Vec<LinkUsage> {
        self.parts.network.links()
    }

    /// Packets on their way.
    pub fn under_way(&self) -> usize {
        self.parts.flights.len()
    }

    /// The PEs' memory.
    pub fn memory(&mut self) -> &mut dyn Memory {
        &mut *self.parts.memory
    }

    /// What the library may ask of the hardware for several PEs at once.
    pub fn offers(&self) -> Offers {
        Offers {
            groups: self.nic.has(Feature::Groups),
            datagrams: self.nic.has(Feature::Datagrams),
            copies: self.nic.has(Feature::CopiedWrites),
            commands: self.nic.has(Feature::Commands),
            keys: self.nic.has(Feature::Keys),
            reduced: self.nic.has(Feature::ReducedCode),
            datagram_readers: self.parts.network.most_copies(),
        }
    }

    /// How a PE's host looks at its memory.
    pub fn polling(&self, pe: Pe) -> Polling {
        self.nic.polling(self.placement.node(pe))
    }

    /// When the look of a PE reads memory that first sees a change made at `changed`. The PE has
    /// waited since `since`, and looks since `from`; `op` is its last call.
    pub(crate) fn reads(&mut self, op: Op, since: Ps, from: Ps, changed: Ps) -> Ps {
        let polling = self.polling(op.pe);
        let slept = self.nic.sleep().and_then(|sleep| sleep.phases(since, from, changed));
        match slept {
            None => polling.reads(from, changed),
            Some(phases) => self.parts.sleep(op, phases) + polling.sample,
        }
    }

    /// Whether all that a PE has written is visible.
    pub fn is_quiet(&self, pe: Pe) -> bool {
        self.parts.books[pe.index()].outstanding == 0
    }

    /// Has [`next`](Self::next) give [`Happened::Woken`] then.
    pub fn wake(&mut self, at: Ps, wake: Wake) {
        self.parts.events.push(at, Event::Wake { wake });
    }

    /// Forgets the moments asked for by [`wake`](Self::wake), but for those that `keep` chooses.
    pub fn keep_wakes(&mut self, keep: impl Fn(&Wake) -> bool) {
        self.parts.events.retain(|event| match event {
            Event::Wake { wake } => keep(wake),
            _ => true,
        });
    }

    /// A PE calls, now.
    pub fn begin(&mut self, op: Op, what: HostOp) {
        let World { nic, agents, parts, placement } = self;
        let mut cx = Cx { parts };
        let lacking = match &what {
            HostOp::Get { .. } => !nic.has(Feature::Get),
            HostOp::Atomic { .. } => !nic.has(Feature::Atomics),
            HostOp::Put { signal: Some(signal), .. } => {
                signal.op == memonet_core::SignalOp::Add && !nic.has(Feature::Atomics)
            }
            HostOp::Group(_) => !nic.has(Feature::Groups) && !nic.has(Feature::CopiedWrites),
            HostOp::Prepare { .. } => !nic.has(Feature::Commands),
            HostOp::Key { .. } => !nic.has(Feature::Keys),
            // What an agent still has to do must not be overtaken by what the hardware does at
            // once.
            HostOp::Fence => agents.owes(op.pe),
            _ => false,
        };
        let node = placement.node(op.pe);
        if lacking {
            agents.begin(&mut cx, &mut **nic, op, what);
        } else {
            nic.begin(&mut cx, Call { op, node, what });
        }
    }

    /// The others have just heard that a PE has left; once, or more often.
    pub fn left(&mut self, pe: Pe) {
        self.nic.left(&mut Cx { parts: &mut self.parts }, pe);
    }

    /// The PE that goes on next, if what happens next happens now, and is its answer, its look or
    /// the end of its computation.
    pub(crate) fn next_to_go_on(&mut self) -> Option<Pe> {
        let woken = |wake: Wake| match wake {
            Wake::Sample(pe) | Wake::Computed(pe) => Some(pe),
            _ => None,
        };
        let parts = &mut self.parts;
        match parts.happened.front() {
            Some(Happened::Answered(op, _)) => Some(op.pe),
            Some(&Happened::Woken(wake)) => woken(wake),
            Some(_) => None,
            None => match *parts.events.next_now()? {
                Event::Wake { wake } => woken(wake),
                Event::Finish { finish } => {
                    let (op, _) = parts.finishes.get_mut(finish);
                    Some(op.pe).filter(|pe| !pe.is_agent(parts.pes))
                }
                _ => None,
            },
        }
    }

    /// Lets the machine work until something happens that concerns programs, or it has worked for
    /// a while; `None`, when no event is left.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator that is given work between its items is none to loop over"
    )]
    pub fn next(&mut self) -> Option<Happened> {
        for _ in 0..EVENTS_AT_ONCE {
            if let Some(happened) = self.parts.happened.pop_front() {
                return Some(happened);
            }
            let (now, event) = self.parts.events.pop()?;
            self.parts.now = now;
            self.parts.counts.events += 1;
            self.handle(event);
        }
        Some(Happened::Nothing)
    }

    fn handle(&mut self, event: Event) {
        let World { nic, agents, parts, .. } = self;
        let mut cx = Cx { parts };
        match event {
            Event::Timer { node, token } => nic.timer(&mut cx, node, token),
            Event::Finish { finish } => {
                let (op, answer) = cx.parts.finishes.take(finish);
                if op.pe.is_agent(cx.parts.pes) {
                    agent::answered(op, &answer);
                } else {
                    cx.parts.happened.push_back(Happened::Answered(op, answer));
                }
            }
            Event::Land { landing } => {
                let Landing { op, to, data } = cx.parts.landings.take(landing);
                cx.parts.counts.landed += 1;
                if to.region == DRIVERS {
                    nic.message(&mut cx, Node(to.pe), number_of(to));
                } else if to.region >= MAILBOXES {
                    agents.received(&mut cx, &mut **nic, to, &data);
                } else {
                    let by = op.pe.owner(cx.parts.pes);
                    match cx.parts.memory.write(by, to, &data) {
                        Ok(()) => cx.parts.happened.push_back(Happened::Changed(Pe(to.pe))),
                        Err(why) => {
                            panic!("a NIC of kind {} wrote where it may not: {why}", nic.kind())
                        }
                    }
                }
                cx.parts.landed(op, 1);
            }
            Event::News { pe } => cx.parts.happened.push_back(Happened::News(pe)),
            Event::Agent { pe, token } => agents.timer(&mut cx, &mut **nic, pe, token),
            Event::Wake { wake } => cx.parts.happened.push_back(Happened::Woken(wake)),
            Event::Depart { flight, port } => match cx.parts.lost_at_cut(flight, port) {
                Some((lost, missing)) => nic.dropped(&mut cx, &lost, missing),
                None => cx.parts.depart(flight, port),
            },
            Event::LeftInput { switch, port, lane } => cx.parts.left_input(switch, port, lane),
            told @ (Event::LinkFree { .. }
            | Event::Missing { .. }
            | Event::Acknowledged { .. }
            | Event::Room { .. }) => cx.parts.told(told),
            Event::Head { flight } => {
                if let Some((dropped, missing)) = cx.parts.head(flight) {
                    nic.dropped(&mut cx, &dropped, missing);
                }
            }
            Event::Tail { flight } => {
                let Flight { packet, at, .. } = cx.parts.flights.take(flight);
                cx.parts.counts.arrived += 1;
                match at {
                    Place::Node(node) => nic.arrive(&mut cx, node, packet),
                    Place::Switch(switch) => nic.at_switch(&mut cx, switch, packet),
                }
            }
        }
    }
}
