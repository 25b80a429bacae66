//! Updates of words by the core processor of the target's NIC: atomic operations, and signals that
//! add. The target's host has no part in them.
//!
//! ```text
//! host ─ window ─► NIC ══► target's NIC: checks ─ core processor: handle, two accesses ─┐
//!   ▲                                                                                   │
//!   └── look at LLCM ◄── NIC ◄══════════════════════════════════ answer, if one waits ──┘
//! ```
//!
//! A request is a BOTF packet with the operation and two operands. It is checked and translated as
//! any other packet. Its content is kept here, under its call.
//!
//! **Order.** The fence of a memory-slot NIC does nothing, because packets keep their order; the
//! core processor is the exception, as it takes longer than the fast path. So an update waits for
//! all that its sender has put before and the target's host has not read; and a fence waits for the
//! sender's updates without an answer, and for a message back from each target, by which the sender
//! hears of them.

use super::asked::{Owed, Update};
use super::command::Refusal;
use super::header::{Header, Kind};
use super::slot::{Due, MemorySlot};
use super::way_in::{Held, What};
use super::way_out::{Outgoing, Through};
use crate::host::{Answer, Atomic};
use crate::mailbox::MAILBOXES;
use crate::nic::Cx;
use crate::op::Op;
use crate::packet::{Node, Payload};
use crate::time::Ps;
use memonet_core::unstable::fabric::FarAddress;

/// Length of a request: operation and size of the word, and two operands.
const REQUEST_BYTES: usize = 24;
/// Length of an answer: the word's old value.
const ANSWER_BYTES: usize = 8;

impl MemorySlot {
    /// An atomic operation of a PE. Answered with the word's old value.
    pub(super) fn atomic(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        (at, size, what): (FarAddress, u8, Atomic),
    ) {
        let update = Update { at, size, what, answer: Some(Answer::default()) };
        let ready = cx.now() + self.is.software;
        if let Err(why) = self.ask_core(cx, node, op, ready, update) {
            cx.finish(cx.now(), op, Answer::refused(why));
        }
    }

    /// A signal that adds. Returns when the host has written it.
    pub(super) fn add(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        ready: Ps,
        (at, what): (FarAddress, Atomic),
    ) -> Result<Ps, String> {
        cx.promise(op, 1);
        let written =
            self.ask_core(cx, node, op, ready, Update { at, size: 8, what, answer: None });
        match written {
            Ok(_) => self.updates.owed.entry(op.pe.0).or_default().updates += 1,
            Err(_) => cx.lost(op, 1),
        }
        written
    }

    /// Writes a request into a window, from `ready` on.
    fn ask_core(
        &mut self,
        cx: &mut Cx<'_>,
        node: Node,
        op: Op,
        ready: Ps,
        update: Update,
    ) -> Result<Ps, String> {
        let to = update.at;
        self.place(to, true)?;
        let header = Header {
            kind: Kind::Request,
            physical: false,
            promised: false,
            len: update.size.into(),
            ..self.to_segment(node, to)?
        };
        self.updates.asked.insert(op, update);
        Ok(self.window(cx, node, op, ready, header, Payload::copy(&[0; REQUEST_BYTES])))
    }

    /// A request has passed the checks. The core processor carries it out when it has time.
    pub(super) fn requested(&mut self, cx: &mut Cx<'_>, node: Node, from: Node, op: Op, at: Ps) {
        let costs = self.is.core.expect("only machines whose core processor serves send requests");
        let slot = &mut self.slots[node.index()];
        let busy = slot.core.take(cx.now(), at, costs.handle + costs.access * 2);
        cx.stage(node, "core processor", "update", op, busy);
        self.later(cx, busy.1, node, Due::Update { from, op });
    }

    /// The core processor has come to an update. It is carried out, unless its sender has put
    /// something before that the host has not read.
    pub(super) fn update(&mut self, cx: &mut Cx<'_>, node: Node, from: Node, op: Op) {
        let slot = &mut self.slots[node.index()];
        let now = cx.now();
        let to = self.updates.asked[&op].at;
        if slot.held.iter().any(|held| held.keeps_back(from, to)) {
            slot.held.push(Held { from, op, to, what: What::Update, at: now, in_bank: false });
            return;
        }
        let shown = slot.shown.get(&(from, to.pe)).copied().unwrap_or(now);
        if shown > now {
            return self.later(cx, shown, node, Due::Update { from, op });
        }
        let Update { at, size, what, answer } = &self.updates.asked[&op];
        let result = cx.atomic(op, *at, usize::from(*size), *what);
        if answer.is_none() {
            return self.added(cx, node, op);
        }
        let answer = result.map_or_else(Answer::refused, Answer::value);
        self.answer(cx, node, op, answer);
    }

    /// A node's core processor has added a signal. Its sender's fences go on when the sender has
    /// heard of all.
    fn added(&mut self, cx: &mut Cx<'_>, node: Node, op: Op) {
        self.updates.asked.remove(&op);
        self.sender_hears(cx, node, op, cx.now());
        cx.kept(op, 1);
        let heard = cx.now() + self.message(cx, node, self.placement.node(op.pe));
        let owed = self.updates.owed.get_mut(&op.pe.0).expect("it was counted when it was sent");
        owed.updates -= 1;
        owed.heard = heard.max(owed.heard);
        if owed.updates == 0 {
            let Owed { heard, fences, .. } =
                self.updates.owed.remove(&op.pe.0).expect("it is there");
            fences.into_iter().for_each(|fence| cx.finish(heard, fence, Answer::default()));
        }
    }

    /// The target's NIC has refused a request.
    pub(super) fn not_served(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, why: Refusal) {
        if self.updates.asked[&op].answer.is_none() {
            return self.added(cx, node, op);
        }
        let why = format!("the NIC of node {} has refused an update ({why:?})", node.0);
        self.updates.asked.remove(&op);
        let heard = cx.now() + self.message(cx, node, self.placement.node(op.pe));
        cx.finish(heard, op, Answer::refused(why));
    }

    /// The core processor sends an answer.
    fn answer(&mut self, cx: &mut Cx<'_>, node: Node, op: Op, answer: Answer) {
        let asked = self.updates.asked.get_mut(&op).expect("it is under way");
        asked.answer = Some(answer);
        let to = FarAddress { pe: op.pe.0, region: MAILBOXES, offset: 0 };
        let header = Header {
            kind: Kind::Answer,
            physical: false,
            promised: false,
            len: ANSWER_BYTES as u16,
            ..self.to_segment(node, to).expect("a PE has asked")
        };
        let packet = Outgoing {
            node,
            op,
            through: Through::Inside,
            missed: false,
            header,
            payload: Payload::word(ANSWER_BYTES, 0),
        };
        self.forward(cx, cx.now(), packet);
    }

    /// An answer lies in LLCM from `at` on. The host that waits for it sees it at its next look.
    pub(super) fn answered(&mut self, cx: &mut Cx<'_>, op: Op, at: Ps) {
        let update = self.updates.asked.remove(&op).expect("it is under way");
        let answer = update.answer.expect("the call waits for it");
        cx.finish(self.is.polling().seen(Ps::ZERO, at), op, answer);
    }

    /// A fence is answered at once, or after the updates that its PE still has under way.
    pub(super) fn fence(&mut self, cx: &mut Cx<'_>, op: Op) {
        match self.updates.owed.get_mut(&op.pe.0) {
            Some(owed) => owed.fences.push(op),
            None => cx.finish(cx.now(), op, Answer::default()),
        }
    }
}
