//! Calls, by operation.

use super::slot::MemorySlot;
use crate::host::{Answer, HostOp};
use crate::nic::{Call, Cx};
use crate::time::Ps;

impl MemorySlot {
    pub(super) fn begin_call(&mut self, cx: &mut Cx<'_>, Call { op, node, what }: Call) {
        let now = cx.now();
        match what {
            HostOp::Store { to, word } => {
                let result = self.store(cx, node, op, now, to, word);
                self.returned(cx, op, result);
            }
            HostOp::Put { data, signal, .. } if data.is_empty() => {
                let result = match signal {
                    Some(signal) => self.signal(cx, node, op, now, signal),
                    None => Ok(now),
                };
                self.returned(cx, op, result);
            }
            HostOp::Put { to, data, signal, .. } => {
                if let Err(why) = self.put(cx, node, op, (to, &data), signal) {
                    cx.finish(now, op, Answer::refused(why));
                }
            }
            HostOp::Fence => self.fence(cx, op),
            HostOp::Quiet => cx.finish_when_landed(now, op, Ps::ZERO),
            HostOp::Command(command) => {
                if let Err(why) = self.command(cx, node, op, command) {
                    cx.finish(now, op, Answer::refused(why));
                }
            }
            HostOp::Group(what) => self.group(cx, node, op, what),
            HostOp::Atomic { at, size, what } if self.is.core.is_some() => {
                self.atomic(cx, node, op, (at, size, what));
            }
            HostOp::Get { .. }
            | HostOp::Atomic { .. }
            | HostOp::Prepare { .. }
            | HostOp::Key { .. } => {
                cx.finish(now, op, Answer::refused("a memory-slot NIC has no such operation"));
            }
        }
    }
}
