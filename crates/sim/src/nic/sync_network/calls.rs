//! What is the boards' and what is the LAN's.

use super::*;

impl Nic for SyncNetwork {
    fn kind(&self) -> &'static str {
        "sync-network"
    }

    fn has(&self, feature: Feature) -> bool {
        feature == Feature::Groups || self.lan.has(feature)
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
