//! What NICs have planned for later moments.

use crate::cx::Cx;
use crate::events::{Owner, Token};
use crate::packet::Node;
use crate::slab::Slab;
use crate::time::Ps;

/// The plans of one owner. `T` is the kind's own type: an enum where several things can be planned.
#[derive(Debug)]
pub(super) struct Planned<T> {
    owner: Owner,
    plans: Slab<T>,
}

impl<T> Planned<T> {
    pub(super) fn new(owner: Owner) -> Planned<T> {
        Planned { owner, plans: Slab::default() }
    }

    /// Has [`Nic::timer`](super::Nic::timer) called at `at` with a token for `plan`.
    pub(super) fn at(&mut self, cx: &mut Cx<'_>, at: Ps, node: Node, plan: T) {
        let number = self.plans.put(plan);
        cx.timer(at, node, Token { owner: self.owner, number });
    }

    /// Has [`Nic::timer`](super::Nic::timer) called when fewer than `fewer` packets wait for the
    /// node's link.
    pub(super) fn when_fewer_wait(&mut self, cx: &mut Cx<'_>, node: Node, fewer: usize, plan: T) {
        let number = self.plans.put(plan);
        cx.timer_when_fewer_wait(node, fewer, Token { owner: self.owner, number });
    }

    /// Takes the plan whose moment has come.
    pub(super) fn take(&mut self, token: Token) -> T {
        debug_assert_eq!(token.owner, self.owner, "a plan goes back to its owner");
        self.plans.take(token.number)
    }
}
