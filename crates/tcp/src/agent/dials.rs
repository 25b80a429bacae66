//! Streams that are being made to other nodes, and those that wait for their turn.

use super::dial::{Dial, GIVE_UP, Outcome, Request, crowded_out, departed};
use super::handshake::Member;
use super::interfaces::Interface;
use super::job::NodeInfo;
use super::poll::{Poll, Token};
use super::route;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

/// The most at a time: each takes a descriptor.
const MOST: usize = 128;
/// The most to one node at a time: a node that is down does not hold up streams to others.
const MOST_TO_ONE: usize = 16;

/// All streams that are being made.
#[derive(Default)]
pub(super) struct Dials {
    active: HashMap<u32, Dial>,
    next: u32,
    /// By node.
    waiting: BTreeMap<u32, VecDeque<Request>>,
    /// How many are active, by node.
    busy: HashMap<u32, usize>,
    /// Where each node was reached last.
    worked: HashMap<u32, SocketAddr>,
}

/// What became of requests.
pub(super) type Outcomes = Vec<(Request, Outcome)>;

impl Dials {
    pub(super) fn ask(&mut self, request: Request) {
        self.waiting.entry(request.link.to_node).or_default().push_back(request);
    }

    /// Begins what may begin.
    pub(super) fn begin(&mut self, nodes: &[NodeInfo], own: &[Interface], now: Instant) {
        for (&node, waiting) in &mut self.waiting {
            let busy = self.busy.entry(node).or_default();
            while self.active.len() < MOST
                && *busy < MOST_TO_ONE
                && let Some(request) = waiting.pop_front()
            {
                let NodeInfo { name, addresses, .. } = &nodes[node as usize];
                let addresses = route::order(addresses, own, self.worked.get(&node).copied());
                let token = Token::Dial(self.next);
                self.active.insert(self.next, Dial::new(request, token, name, addresses, now));
                self.next = self.next.wrapping_add(1);
                *busy += 1;
            }
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
    }

    /// A socket has something to say.
    pub(super) fn go_on(
        &mut self,
        number: u32,
        member: &Member,
        poll: &Poll,
        now: Instant,
    ) -> Outcomes {
        let outcome = self.active.get_mut(&number).and_then(|dial| dial.go_on(member, poll, now));
        outcome.map(|outcome| self.end(number, outcome)).into_iter().flatten().collect()
    }

    /// Goes on with those whose time has come, and ends those that have waited for too long.
    pub(super) fn expire(
        &mut self,
        nodes: &[NodeInfo],
        member: &Member,
        poll: &Poll,
        now: Instant,
    ) -> Outcomes {
        let mut outcomes = Outcomes::new();
        for (&node, waiting) in &mut self.waiting {
            // They are in the order in which they were asked for.
            while let Some(request) = waiting.pop_front_if(|one| now >= one.asked + GIVE_UP) {
                let why = crowded_out(request.link.to_pe, &nodes[node as usize].name);
                outcomes.push((request, Outcome::Refused(why)));
            }
        }
        let active = self.active.iter_mut();
        let ended =
            active.filter_map(|(&number, dial)| Some((number, dial.expire(member, poll, now)?)));
        for (number, outcome) in ended.collect::<Vec<_>>() {
            outcomes.extend(self.end(number, outcome));
        }
        outcomes
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(super) fn due(&self) -> Option<Instant> {
        let waiting = self.waiting.values().filter_map(VecDeque::front);
        let waiting = waiting.map(|request| request.asked + GIVE_UP);
        self.active.values().map(|dial| dial.deadline).chain(waiting).min()
    }

    /// A PE has left: nothing is made for it or to it any more.
    pub(super) fn departed(&mut self, pe: u32, nodes: &[NodeInfo]) -> Outcomes {
        let concerns = |request: &Request| request.link.from_pe == pe || request.link.to_pe == pe;
        let ended = self.active.iter().filter(|(_, dial)| concerns(&dial.request));
        let ended: Vec<u32> = ended.map(|(&number, _)| number).collect();
        let mut requests = Vec::new();
        for number in ended {
            requests.extend(self.remove(number));
        }
        for waiting in self.waiting.values_mut() {
            let (gone, stay) = waiting.drain(..).partition::<VecDeque<_>, _>(concerns);
            *waiting = stay;
            requests.extend(gone);
        }
        let why = |request: Request| {
            let name = &nodes[request.link.to_node as usize].name;
            (request, Outcome::Refused(departed(request.link.to_pe, name)))
        };
        requests.into_iter().map(why).collect()
    }

    fn remove(&mut self, number: u32) -> Option<Request> {
        let request = self.active.remove(&number)?.request;
        let busy = self.busy.entry(request.link.to_node).or_default();
        *busy = busy.saturating_sub(1);
        Some(request)
    }

    fn end(&mut self, number: u32, outcome: Outcome) -> Option<(Request, Outcome)> {
        let request = self.remove(number)?;
        match outcome {
            Outcome::Connected(_, address) => self.worked.insert(request.link.to_node, address),
            Outcome::Refused(_) => self.worked.remove(&request.link.to_node),
        };
        Some((request, outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::super::handshake::Link;
    use super::super::secret::Secret;
    use super::*;

    fn nodes() -> Vec<NodeInfo> {
        let node =
            |name: &str, addresses| NodeInfo { name: name.into(), addresses, cpus: 1, pes: 1 };
        // No network has this address: trying it fails at once, and is repeated.
        let nowhere = SocketAddr::from(([255, 255, 255, 255], 1));
        vec![node("a", vec![]), node("b", vec![nowhere]), node("c", vec![nowhere])]
    }

    /// A node that cannot be reached takes its own places, and requests to it end in time.
    #[test]
    fn a_node_that_is_down_holds_up_no_other() {
        let (nodes, poll, began) = (nodes(), Poll::new().unwrap(), Instant::now());
        let member = Member::new(&Secret::random().unwrap(), [0; 16], 0, &[0, 1, 2]);
        let mut dials = Dials::default();
        let request = |to_node| Request {
            link: Link { from_node: 0, to_node, from_pe: 0, to_pe: to_node },
            generation: 0,
            asked: began,
        };
        (0..100).for_each(|_| dials.ask(request(1)));
        dials.ask(request(2));
        dials.begin(&nodes, &[], began);
        assert_eq!(dials.active.len(), MOST_TO_ONE + 1, "node 2 has its turn");
        let (mut outcomes, mut now) = (Outcomes::new(), began);
        while let Some(due) = dials.due() {
            now = now.max(due);
            outcomes.extend(dials.expire(&nodes, &member, &poll, now));
            dials.begin(&nodes, &[], now);
        }
        assert_eq!((outcomes.len(), now <= began + GIVE_UP), (101, true));
        let mut crowded = 0;
        for (request, outcome) in outcomes {
            let Outcome::Refused(why) = outcome else { panic!("nobody answers") };
            let (pe, name) = (request.link.to_pe, ["a", "b", "c"][request.link.to_pe as usize]);
            assert!(why.contains(&format!("PE {pe} on {name} cannot be reached")), "{why}");
            crowded += usize::from(why.contains("no stream to this host"));
        }
        // The pauses of an attempt last 3.1 seconds, so five times 16 have their turn.
        assert_eq!(crowded, 100 - 5 * MOST_TO_ONE);
        assert!(dials.busy.values().all(|&busy| busy == 0) && dials.waiting.is_empty());
    }

    /// Also where other nodes have all places.
    #[test]
    fn a_request_without_a_turn_ends_in_time() {
        let mut nodes = nodes();
        nodes.resize(10, nodes[1].clone());
        let (poll, began) = (Poll::new().unwrap(), Instant::now());
        let member = Member::new(&Secret::random().unwrap(), [0; 16], 0, &[0]);
        let mut dials = Dials::default();
        let request = |to_node, asked| Request {
            link: Link { from_node: 0, to_node, from_pe: 0, to_pe: to_node },
            generation: 0,
            asked,
        };
        let later = began + GIVE_UP - std::time::Duration::from_secs(1);
        (0..MOST).for_each(|number| dials.ask(request(1 + number as u32 % 8, later)));
        dials.ask(request(9, began));
        dials.begin(&nodes, &[], later);
        assert_eq!((dials.active.len(), dials.waiting.len()), (MOST, 1));
        assert!(dials.expire(&nodes, &member, &poll, later).is_empty());
        let ended = dials.expire(&nodes, &member, &poll, began + GIVE_UP);
        assert_eq!(ended.iter().map(|(one, _)| one.link.to_pe).collect::<Vec<_>>(), [9]);
    }

    #[test]
    fn a_pe_that_leaves_ends_what_concerns_it() {
        let (nodes, now) = (nodes(), Instant::now());
        let mut dials = Dials::default();
        for to_pe in [1, 2].repeat(MOST_TO_ONE) {
            let link = Link { from_node: 0, to_node: 1, from_pe: 0, to_pe };
            dials.ask(Request { link, generation: 0, asked: now });
        }
        dials.begin(&nodes, &[], now);
        let gone = dials.departed(2, &nodes);
        assert_eq!((gone.len(), dials.active.len()), (MOST_TO_ONE, MOST_TO_ONE / 2));
        dials.begin(&nodes, &[], now);
        assert_eq!((dials.active.len(), dials.waiting.len()), (MOST_TO_ONE, 0));
        assert_eq!(dials.departed(0, &nodes).len(), MOST_TO_ONE);
        assert!(dials.due().is_none());
    }
}
