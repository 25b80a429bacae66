//! Agents: software on the target host that does what a machine's hardware lacks.
//!
//! A NIC may be unable to get memory, or to update a word. Then the library sends the target a
//! request, as an ordinary put into a mailbox. An agent on the target host polls its mailbox. It
//! sees the request at its next look, takes time to handle it and to read or write the memory, and
//! answers by a put into the caller's mailbox, which the caller polls. Puts and looks of agents
//! take the time of those of programs. The times of the software itself are parameters:
//!
//! ```toml
//! [agent]
//! handle = ...            # from the look that sees a request until the agent accesses the memory
//! access = ...            # for each 8 bytes of memory that the agent reads or writes
//! ```
//!
//! Requests and answers are packets of their real lengths, but their content is kept here. The
//! upper half of a packet's address in the mailbox is the number of its request. A NIC may cut a
//! message into several packets; the message has come when the last packet has.

use crate::cx::Cx;
use crate::host::{Answer, Atomic, GroupOp, HostOp, Signal};
use crate::machine::{Machine, MachineError};
use crate::mailbox::{MAILBOXES, message, number_of};
use crate::nic::{Call, Feature, Nic, Unit};
use crate::op::{Op, Pe};
use crate::packet::Payload;
use crate::placement::Placement;
use crate::slab::Slab;
use crate::time::Ps;
use memonet_core::SignalOp;
use memonet_core::unstable::fabric::FarAddress;
use memonet_core::unstable::shm::AtomicOp;

/// Region of a PE's mailbox for the answers of agents.
const ANSWERS: u32 = MAILBOXES;
/// Region of the mailbox of a PE's agent.
const REQUESTS: u32 = MAILBOXES + 1;
/// Length of a request without operands: operation, address, length, and caller.
const REQUEST_BYTES: usize = 24;
/// Length of the operands of an atomic operation.
const OPERANDS_BYTES: usize = 16;
/// Length of an answer without data.
const ANSWER_BYTES: usize = 8;

/// What an agent is asked for.
#[derive(Debug)]
enum Wanted {
    Get { from: FarAddress, len: u32 },
    Atomic { at: FarAddress, size: u8, what: Atomic, answer: bool },
}

#[derive(Debug)]
struct Request {
    op: Op,
    wanted: Wanted,
    answer: Answer,
    /// Bytes of the current message, request or answer, that have not come yet.
    due: usize,
}

/// The agent of one PE.
#[derive(Debug, Clone, Default)]
struct Agent {
    cpu: Unit,
    /// Number of requests of this PE without an answer that are not carried out yet.
    owed: u64,
    /// Fences of this PE that wait for those requests.
    fences: Vec<Op>,
}

/// All agents of a job.
pub(crate) struct Agents {
    costs: Option<Costs>,
    agents: Vec<Agent>,
    requests: Slab<Request>,
    pes: u32,
    placement: Placement,
}

#[derive(Debug, Clone, Copy)]
struct Costs {
    handle: Ps,
    access: Ps,
}

impl Agents {
    pub(crate) fn build(
        machine: &Machine,
        nic: &dyn Nic,
        pes: u32,
        placement: Placement,
    ) -> Result<Agents, MachineError> {
        let needed = !nic.has(Feature::Get) || !nic.has(Feature::Atomics);
        let section = machine.section("agent");
        let costs =
            || Ok(Costs { handle: section.time("handle")?, access: section.time("access")? });
        Ok(Agents {
            costs: needed.then(costs).transpose()?,
            agents: vec![Agent::default(); if needed { pes as usize } else { 0 }],
            requests: Slab::default(),
            pes,
            placement,
        })
    }

    /// Whether a PE has made a request without an answer that is not carried out yet.
    pub(crate) fn owes(&self, pe: Pe) -> bool {
        self.agents.get(pe.index()).is_some_and(|agent| agent.owed > 0)
    }

    /// A call that the hardware cannot serve.
    pub(crate) fn begin(&mut self, cx: &mut Cx<'_>, nic: &mut dyn Nic, op: Op, what: HostOp) {
        match what {
            HostOp::Get { from, len } => self.ask(cx, nic, op, 0, Wanted::Get { from, len }),
            HostOp::Atomic { at, size, what, .. } => {
                let wanted = Wanted::Atomic { at, size, what, answer: true };
                self.ask(cx, nic, op, OPERANDS_BYTES, wanted);
            }
            HostOp::Put { to, data, signal: Some(signal), reuse } => {
                debug_assert_eq!(signal.op, SignalOp::Add);
                let wanted = Wanted::Atomic {
                    at: signal.at,
                    size: 8,
                    what: Atomic::Op(AtomicOp::Add, signal.value),
                    answer: false,
                };
                cx.promise(op, 1);
                self.agents[op.pe.index()].owed += 1;
                let mut request = self.request(op, OPERANDS_BYTES, wanted);
                // One put carries the data, and has the request as its signal. So the data lands
                // first, by the kind's own order.
                if let HostOp::Put { to: place, data: block, reuse: again, signal: then } =
                    &mut request
                    && !data.is_empty()
                {
                    self.requests.get_mut(number_of(*place)).due = 8;
                    *then = Some(Signal { at: *place, op: SignalOp::Set, value: 0 });
                    (*place, *block, *again) = (to, data, reuse);
                }
                nic.begin(cx, self.call(op, request));
            }
            HostOp::Prepare { .. } | HostOp::Key { .. } => {
                cx.finish(cx.now(), op, Answer::default())
            }
            HostOp::Fence => self.agents[op.pe.index()].fences.push(op),
            HostOp::Group(GroupOp::Join { .. }) => cx.finish(cx.now(), op, Answer::value(0)),
            // The message does not show the call, which may hold a long block.
            _ => cx.finish(
                cx.now(),
                op,
                Answer::refused(
                    "this machine's NIC does nothing for groups, and no agent does that for it",
                ),
            ),
        }
    }

    fn ask(&mut self, cx: &mut Cx<'_>, nic: &mut dyn Nic, op: Op, operands: usize, wanted: Wanted) {
        let request = self.request(op, operands, wanted);
        nic.begin(cx, self.call(Op { pe: op.pe.agent(self.pes), ..op }, request));
    }

    /// Keeps a request. Returns the put that carries it.
    fn request(&mut self, op: Op, operands: usize, wanted: Wanted) -> HostOp {
        let target = match &wanted {
            Wanted::Get { from, .. } => from.pe,
            Wanted::Atomic { at, .. } => at.pe,
        };
        let number = self.requests.put(Request {
            op,
            wanted,
            answer: Answer::default(),
            due: REQUEST_BYTES + operands,
        });
        message(target, REQUESTS, number, REQUEST_BYTES + operands)
    }

    /// A call on the NIC of its PE, or of an agent's PE.
    fn call(&self, op: Op, what: HostOp) -> Call {
        Call { op, node: self.placement.node(op.pe.owner(self.pes)), what }
    }

    /// A part of a message has come into a mailbox. The mailbox's owner sees a whole message at its
    /// next look, and then works on it.
    pub(crate) fn received(
        &mut self,
        cx: &mut Cx<'_>,
        nic: &mut dyn Nic,
        to: FarAddress,
        data: &Payload,
    ) {
        let (number, pe) = (number_of(to), Pe(to.pe));
        let due = &mut self.requests.get_mut(number).due;
        *due = due.checked_sub(data.len()).expect("no more comes than was sent");
        if *due > 0 {
            return;
        }
        let seen = nic.polling(self.placement.node(pe)).seen(Ps::ZERO, cx.now());
        if to.region == ANSWERS {
            let Request { op, answer, .. } = self.requests.take(number);
            cx.finish(seen, op, answer);
            return;
        }
        let costs = self.costs.expect("a machine whose agents get requests has agents");
        let bytes = match &self.requests.get_mut(number).wanted {
            Wanted::Get { len, .. } => u64::from(*len),
            Wanted::Atomic { .. } => 16,
        };
        let time = costs.handle + costs.access * bytes.div_ceil(8);
        let op = self.requests.get_mut(number).op;
        let busy = self.agents[pe.index()].cpu.take(seen, time);
        cx.host_stage("agent", Op { pe: pe.agent(self.pes), ..op }, busy);
        cx.agent_timer(busy.1, pe, number);
    }

    /// An agent has handled a request: carries it out, and answers.
    pub(crate) fn timer(&mut self, cx: &mut Cx<'_>, nic: &mut dyn Nic, pe: Pe, number: u32) {
        let Request { op, wanted, .. } = self.requests.get_mut(number);
        let op = *op;
        let (result, answered) = match wanted {
            Wanted::Get { from, len } => {
                (cx.read(op, *from, *len as usize).map(Answer::data), true)
            }
            Wanted::Atomic { at, size, what, answer } => {
                (cx.atomic(op, *at, usize::from(*size), *what).map(Answer::value), *answer)
            }
        };
        let answer = result.unwrap_or_else(Answer::refused);
        if !answered {
            self.requests.take(number);
            let asker = &mut self.agents[op.pe.index()];
            asker.owed -= 1;
            if asker.owed == 0 {
                for fence in std::mem::take(&mut asker.fences) {
                    nic.begin(cx, self.call(fence, HostOp::Fence));
                }
            }
            cx.parts.landed(op, 1);
            return;
        }
        let len = ANSWER_BYTES + answer.data.len().max(8);
        let request = self.requests.get_mut(number);
        (request.answer, request.due) = (answer, len);
        let put = message(op.pe.0, ANSWERS, number, len);
        let by = Op { pe: pe.agent(self.pes), number: op.number };
        nic.begin(cx, self.call(by, put));
    }
}

/// The put of an agent, or of a PE that asks one, has returned. Nobody waits for that.
pub(crate) fn answered(op: Op, answer: &Answer) {
    let refused = &answer.refused;
    assert!(refused.is_none(), "a NIC refused the put of an agent, {op:?}: {refused:?}");
}
