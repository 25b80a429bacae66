//! What is due in the machine, and what has happened that programs have to know.

use crate::host::Answer;
use crate::op::{Op, Pe};
use crate::packet::{Destination, Node};
use crate::trace::Place;

/// What is due at a time. Events are small: what they are about lies in slabs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    /// A NIC's plan.
    Timer { node: Node, token: Token },
    /// A packet comes to the link that begins at this port of the place where the packet is.
    Depart { flight: u32, port: u16 },
    /// A link on which packets wait is free.
    LinkFree { place: Place, port: u16 },
    /// The sender of a link hears that its neighbour misses a packet.
    Missing { place: Place, port: u16 },
    /// The sender of a link hears that its neighbour has got these bytes.
    Acknowledged { place: Place, port: u16, bytes: u32 },
    /// The sender of a link hears that these bytes have left a lane's buffer at the far end.
    Room { place: Place, port: u16, lane: u8, bytes: u32 },
    /// A packet has left a lane's buffer at the input of this port of a switch.
    LeftInput { switch: u32, port: u16, lane: u8 },
    /// The head of a packet has come in at the place where the packet is now.
    Head { flight: u32 },
    /// The last bit of a packet has come in at its node, or at the switch that it is for.
    Tail { flight: u32 },
    /// Bytes become visible.
    Land { landing: u32 },
    /// A PE's NIC has something for the PE.
    News { pe: Pe },
    /// A call returns.
    Finish { finish: u32 },
    /// An agent looks, or has finished its work on a request.
    Agent { pe: Pe, token: u32 },
    /// The driver of programs asked for this moment.
    Wake { wake: Wake },
}

/// The queue moves an event for each step of a simulation.
const _: () = assert!(size_of::<Event>() <= 16, "an event and its time fill three words");

/// The hardware that made a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The NIC of the kind itself.
    Nic,
    /// The ordinary NIC that a kind has beside hardware of its own.
    Lan,
}

/// Names a NIC's plan in the event of its moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The hardware that made the plan, and that takes it.
    pub owner: Owner,
    /// The plan's place among those of its owner.
    pub(crate) number: u32,
}

/// Why the driver of programs asked to be woken. The world gives it back as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The PE's own time has come, and its request begins.
    Begin(Pe),
    /// The PE's look reads its memory.
    Sample(Pe),
    /// The PE's computation is over.
    Computed(Pe),
    /// The PEs hear of those that have left.
    Departures,
    /// The PE's deadline, or the moment of a look that nothing in its memory has caused.
    Deadline {
        /// The PE.
        pe: Pe,
        /// The number of the parking that the deadline was set for.
        parking: u32,
    },
}

/// What the driver of programs has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A call returns, now.
    Answered(Op, Answer),
    /// Something in the memory of this PE has changed, now.
    Changed(Pe),
    /// The NIC of this PE has something new for it, now.
    News(Pe),
    /// A moment has come that the driver asked for
    /// ([`World::wake`](crate::world::World::wake)).
    Woken(Wake),
    /// This switch has dropped a packet of a call, because its table has no entry for the packet's
    /// destination. The writes that were promised of the packet never land.
    Unrouted(Op, u32, Destination),
    /// The machine has worked for a while, and nothing of this came of it.
    Nothing,
}
