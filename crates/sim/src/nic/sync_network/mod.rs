//! Boards of a wired synchronisation network beside an ordinary LAN (SCC).
//!
//! ```text
//! host ── register_write, flag_look ──► board ══ chain to the next ══ ...        either wires (barriers) or links (packets)
//!   └──── an ordinary NIC ──► LAN                                               stores, puts, gets, atomics of the library
//! ```
//!
//! * The library's data goes by the LAN, whose sections are those of the kind `loggp`. The
//!   library's barriers go by the `wires`. Where there are several microclusters, a group of PEs
//!   must have the last board of each microcluster in which it has members; other groups are not
//!   served. A board has one flag, and a wire does not say for which group it is driven. So groups
//!   that overlap take turns on the wires (`drivers`).
//! * The host sees the sync flag by a look that takes `host.flag_look` and reads the board within
//!   that time.
//! * A program switches its board to packets and back ([`set_mode`]). The library's driver does so,
//!   too, for a collective, and for the next barrier or one that is under way. A board goes back to
//!   wires when its buffers are empty. Packets (`chain`) pass between two boards that are both
//!   switched to packets, and wait elsewhere. Signals pass while no board is switched to packets.
//! * Transactions are [`send`] and [`receive`], and the [`Collective`]s, of at most 56 bytes each.
//!   The boards alone work on collectives: the host writes a packet, looks, and reads one.
//!
//! | file | what |
//! |---|---|
//! | `boards` | the state of the boards |
//! | `wires`, `chain`, `collective` | pure state machines, which know no events |
//! | `drivers` | which groups have the wires, and the messages of the other groups' barriers |
//! | `groups`, `commands` | calls of the library, and of programs |
//! | `later` | what is due at a board, carried out |
//! | `interface` | the commands that programs give |

mod boards;
mod chain;
mod collective;
mod commands;
mod drivers;
mod groups;
mod interface;
mod later;
#[cfg(test)]
mod tests;
mod wires;

pub use boards::SyncNetwork;
pub use collective::{Collective, Operator};
pub use interface::{collective, enter, flag, receive, reduced, send, set_group, set_mode};

use super::{Call, Cx, Feature, Nic, Owner, Pe, Token};
use crate::host::{HostOp, Polling};
use crate::packet::{Node, Packet};

impl Nic for SyncNetwork {
    fn kind(&self) -> &'static str {
        "sync-network"
    }

    fn has(&self, feature: Feature) -> bool {
        matches!(feature, Feature::Groups | Feature::ReducedCode) || self.lan.has(feature)
    }

    fn polling(&self, node: Node) -> Polling {
        self.lan.polling(node)
    }

    fn begin(&mut self, cx: &mut Cx<'_>, call: Call) {
        let Call { op, node, what } = call;
        match what {
            HostOp::Group(what) => self.group(cx, node, op, what),
            HostOp::Command(command) => self.command(cx, node, op, &command),
            what => self.lan.begin(cx, Call { op, node, what }),
        }
    }

    fn arrive(&mut self, cx: &mut Cx<'_>, node: Node, packet: Packet) {
        self.lan.arrive(cx, node, packet);
    }

    fn message(&mut self, cx: &mut Cx<'_>, node: Node, number: u32) {
        self.came(cx, node, number);
    }

    fn left(&mut self, cx: &mut Cx<'_>, pe: Pe) {
        self.refuse_groups_with(cx, pe.0);
    }

    fn timer(&mut self, cx: &mut Cx<'_>, node: Node, token: Token) {
        match token.owner {
            Owner::Lan => self.lan.timer(cx, node, token),
            Owner::Nic => {
                let later = self.later.take(token);
                self.later(cx, node, later);
            }
        }
    }
}
