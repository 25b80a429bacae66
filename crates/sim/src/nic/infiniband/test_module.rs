//! The test module that took the place of the core logic when the machine was measured. It hands
//! packets to InfiniSWIF. No host, no command and no buffer memory is in their way.

use super::nics::{InfiniBand, Way};
use crate::host::{Answer, Command};
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::{Node, Payload};
use memonet_core::unstable::fabric::FarAddress;

impl InfiniBand {
    /// Sends zeros. Answered when the last packet has left InfiniSWIF.
    pub(super) fn test(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, command: &Command) {
        let [target, offset, len, is_group] = command.words;
        let packets = len.div_ceil(self.is.packet as u64).max(1);
        let (way, pe, receivers) = match is_group {
            0 if target as usize >= self.nics.len() => {
                let why = format!("there is no node {target} to send a test to");
                return cx.finish(cx.now(), op, Answer::refused(why));
            }
            0 => (Way::To(Node(target as u32)), target as u32, 1),
            _ => {
                let (switch, port) = cx.network().port_of(node).expect("there is a switch");
                let reached = cx.network().reached(switch, port, target as u16);
                (Way::Group(target as u16), 0, reached)
            }
        };
        cx.promise(op, receivers * packets);
        let to = FarAddress { pe, region: 0, offset };
        let data = Payload::copy(&vec![0; len as usize]);
        let (_, left) = self.stream(cx, cx.now(), node, op, way, to, &data);
        cx.finish(left, op, Answer::default());
    }
}
