//! The commands of programs to their boards.

use super::boards::{Later, SyncNetwork};
use super::chain::{self, PAYLOAD_BYTES};
use super::collective::SEND;
use super::interface::{ENTER, FLAG, MODE, RECEIVE, REDUCED, SEND_PACKET, SET_GROUP};
use crate::host::{Answer, Command};
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::Node;

impl SyncNetwork {
    pub(super) fn command(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, command: &Command) {
        let is = self.is;
        let (board, word) = (node.index(), command.words[0]);
        match command.code {
            SET_GROUP => {
                let done = self.cpu(cx, cx.now(), node, op, "register_write", is.register_write);
                let bad = !self.boards[board].barriers.is_empty() || self.wires.flag(board);
                let answer = if bad {
                    Answer::refused(
                        "the group register is in use, by a barrier under way or the library's",
                    )
                } else {
                    self.wires.set_group(board, word as u16);
                    Answer::default()
                };
                cx.finish(done, op, answer);
            }
            ENTER => self.enter(cx, node, op, None),
            FLAG => {
                let (read, end) = self.look(cx, node, op);
                self.at(cx, read, node, Later::Flag(op, end));
            }
            REDUCED => {
                let (read, end) = self.look(cx, node, op);
                self.at(cx, read, node, Later::Reduced(op, end));
            }
            MODE => {
                let done = self.cpu(cx, cx.now(), node, op, "register_write", is.register_write);
                self.at(cx, done, node, Later::Mode(op, word != 0));
            }
            SEND_PACKET => self.send_packet(cx, node, op, command),
            RECEIVE => {
                self.boards[board].receivers.push_back(op);
                self.hand_out(cx, node);
            }
            code => cx.finish(
                cx.now(),
                op,
                Answer::refused(format!("a sync network has no command {code}")),
            ),
        }
    }

    /// The host writes a packet for another board.
    fn send_packet(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, command: &Command) {
        let (to, len) = (command.words[0], command.data.len());
        let elsewhere = to < self.boards.len() as u64 && to != u64::from(node.0);
        if len > PAYLOAD_BYTES || !elsewhere {
            let problem = format!(
                "a packet has at most {PAYLOAD_BYTES} bytes, and goes to another PE of the job"
            );
            return cx.finish(cx.now(), op, Answer::refused(problem));
        }
        let done = self.cpu(cx, cx.now(), node, op, "packet_write", self.is.packet_write);
        let mut payload = [0; PAYLOAD_BYTES];
        command.data.with(|bytes| payload[..len].copy_from_slice(bytes));
        let packet = chain::Packet {
            code: SEND,
            len: len as u8,
            from: node.0 as u16,
            to: to as u16,
            number: 0,
            payload,
            op,
        };
        self.at(cx, done, node, Later::Send(packet));
        cx.finish(done, op, Answer::default());
    }

    /// Answers calls that wait for packets with the packets that have come.
    pub(super) fn hand_out(&mut self, cx: &mut Cx<'_>, node: Node) {
        let board = &mut self.boards[node.index()];
        while let (Some(_), Some(_)) = (board.inbox.front(), board.receivers.front()) {
            let (sender, data) = board.inbox.pop_front().expect("just seen");
            let op = board.receivers.pop_front().expect("just seen");
            let answer = Answer { value: sender.into(), ..Answer::data(data) };
            cx.finish(cx.now(), op, answer);
        }
    }

    /// The host writes the board's register to arrive: at a group's barrier, or at the program's
    /// own.
    pub(super) fn enter(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, group: Option<u32>) {
        let done = self.cpu(cx, cx.now(), node, op, "register_write", self.is.register_write);
        self.at(cx, done, node, Later::Enter(op, group));
    }
}
