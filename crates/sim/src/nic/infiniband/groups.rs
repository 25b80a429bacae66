//! Calls for groups, and the commands of programs.

use super::interface::{
    CUT, LISTEN, PREFETCH, READ, READ_TABLE, READ_WINDOW, STOP_MANAGER, TEST, WRITE_TABLE,
};
use super::management::{DATA_BYTES, Datagram, FIRST_GROUP, GET, MULTICAST_TABLE, SET, SUBNET};
use super::nics::{InfiniBand, Way};
use super::topology::Place;
use crate::host::{Answer, Command, GroupOp};
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::Node;

impl InfiniBand {
    pub(super) fn group(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, what: GroupOp) {
        match what {
            GroupOp::Join { members, wanted } => self.join(cx, node, op, members, wanted),
            GroupOp::Multicast { group, to, data } => {
                let group = group as u16;
                let (switch, port) = cx.network().port_of(node).expect("there is a switch");
                let reached = cx.network().reached(switch, port, group);
                cx.promise(op, reached * data.len().div_ceil(self.is.packet).max(1) as u64);
                let told = self.command(cx, node, op);
                self.nics[node.index()].has_multicast = true;
                let read = self.send(cx, told, node, op, Way::Group(group), to, &data);
                self.finish_when_read(cx, told, if data.len() > 8 { read } else { told }, op);
            }
            GroupOp::Send { .. } | GroupOp::Receive(_) | GroupOp::Leave(_) => {
                self.datagram(cx, node, op, what)
            }
            GroupOp::Arrive(_)
            | GroupOp::Step(_)
            | GroupOp::Phase(_)
            | GroupOp::Collective { .. }
            | GroupOp::Result(_) => {
                cx.finish(
                    cx.now(),
                    op,
                    Answer::refused(
                        "InfiniBand has no such operation for groups: it has multicast",
                    ),
                );
            }
        }
    }

    pub(super) fn own_command(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, command: &Command) {
        let switch = command.words[0];
        match command.code {
            WRITE_TABLE | READ_TABLE if switch >= self.switches.len() as u64 => {
                cx.finish(cx.now(), op, Answer::refused(format!("there is no switch {switch}")));
            }
            WRITE_TABLE | READ_TABLE => {
                let nic = &mut self.nics[node.index()];
                nic.transactions += 1;
                // The manager's transactions count from 1. The highest bit tells these from them.
                let transaction = nic.transactions | 1 << 63;
                nic.asked.insert(transaction, op);
                let method = if command.code == WRITE_TABLE { SET } else { GET };
                let mut datagram = Datagram::new(
                    SUBNET,
                    method,
                    MULTICAST_TABLE,
                    command.words[1] as u32,
                    transaction,
                );
                command.data.with(|bytes| {
                    datagram.data[..bytes.len().min(DATA_BYTES)]
                        .copy_from_slice(&bytes[..bytes.len().min(DATA_BYTES)])
                });
                self.manage(cx, node, Place::Switch(switch as u32), &datagram, op);
            }
            LISTEN => {
                let agent = &mut self.nics[node.index()].agent;
                let group = command.words[0] as u16;
                let answer = match (group >= FIRST_GROUP, command.words[1] != 0) {
                    (false, _) => Answer::refused(format!(
                        "{group:#x} is no group; their LIDs begin with {FIRST_GROUP:#x}"
                    )),
                    (true, on) => {
                        if on {
                            agent.groups.insert(group);
                        } else {
                            agent.groups.remove(&group);
                        }
                        Answer::value(agent.lid.into())
                    }
                };
                cx.finish(cx.now() + self.is.command_write, op, answer);
            }
            TEST => self.test(cx, node, op, command),
            PREFETCH => self.prefetch(cx, node, op, command),
            READ_WINDOW => self.read_window(cx, node, op, command),
            READ => self.read_buffer(cx, node, op, command),
            CUT => self.cut(cx, op, command.words[0], command.words[1], command.words[2] != 0),
            STOP_MANAGER => self.stop_manager(cx, op, command.words[0]),
            code => cx.finish(
                cx.now(),
                op,
                Answer::refused(format!("an InfiniBand NIC has no command {code}")),
            ),
        }
    }
}
