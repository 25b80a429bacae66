//! The choice of a collective's algorithm: one function, and its reasons.
//!
//! All members must choose alike. So a choice depends on arguments that all members give alike (the
//! call, its bytes, the team) and on facts that all members know alike: the job's record, the
//! fabric's offers to all, what is forced. It never depends on a route or on a local measurement.
//!
//! | algorithm | chosen for | reason, as measured |
//! |---|---|---|
//! | [`Network`](Algorithm::Network) | a few bytes or integers, where the fabric makes collectives | no message at all; [up to so many parts](super::network) |
//! | [`Copied`](Algorithm::Copied) | broadcasts, where the network copies writes and loses none | the root sends once: 1 MiB to 7 others on dimmnet-1 takes 31.8 ms in parts and 21.8 copied; [what fits an eager buffer needs no way of its own](super::copied) |
//! | [`Nodes`](Algorithm::Nodes) | members on several nodes, some on one: broadcasts, all-gathers, gathers and reductions of which all elements fit an eager buffer, all-reduces on up to [`MOST_CHAINED`] nodes of consecutive ranks | data cross to a node once, and a head talks to log2 of the nodes; [the rest gains nothing](super::nodes) |
//! | [`Line`](Algorithm::Line) | up to [`LINE`] bytes for each | only one cache line travels; wins on 2 to 16 near PEs wherever the data fit, and far |
//! | [`Published`](Algorithm::Published) | up to [`EAGER_BYTES`] bytes, near; far where rounds have no room | saves a meeting; members read in place |
//! | [`Pushed`](Algorithm::Pushed) | up to [`EAGER_BYTES`] bytes, far | a get waits for an answer, and is software at the target in some networks: all-reduce of 1 KiB by 16 on dimmnet-2 1231 us by gets, 119 by puts |
//! | [`Rounds`](Algorithm::Rounds) | reductions, far, but for larger ones to one member | puts alone, for the reason of `Pushed`: 1 MiB takes 43.5 ms by gets, 2.7 by puts |
//! | [`Multicast`](Algorithm::Multicast) | larger broadcasts, where the network copies, and does so faster than `Parts` | the root sends once; [when it pays](super::multicast) |
//! | [`Parts`](Algorithm::Parts) | broadcasts of [`PARTED_BYTES`] or more to more than [`MOST_SERVED`] members, far | the root's link carries the data twice, not once for each member: 1 MiB to 32 on rdma-100g 2630 us by the root alone, 176 in parts |
//! | [`Direct`](Algorithm::Direct) | all else | between the members' windows: each byte is copied once |
//!
//! Measured with `memonet bench broadcast all_reduce`; `docs/decisions.md` has more. Teams of more
//! than [`MAX_LINED`](crate::base::layout::MAX_LINED) members have no lines.

use super::nodes::Shape;
use super::operator::Goal;
use super::parts::{MOST_SERVED, PARTED_BYTES};
use crate::base::layout::{EAGER_BYTES, LINE};
use crate::base::log::{Level, is_on, log};
use crate::team::Team;
use crate::team::forced::Forced;
use std::sync::atomic::Ordering;

/// The most nodes of a chain. It takes as many steps, one after the other.
const MOST_CHAINED: usize = 4;

/// How the data of a collective travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// The network makes the collective by itself.
    Network,
    /// The root sends datagrams, which the network copies.
    Multicast,
    /// The root writes to all others at once, which the network copies.
    Copied,
    /// Inside a node by memory, between nodes by one member of each.
    Nodes,
    /// Bytes travel in the cache line by which a member notifies another.
    Line,
    /// Each member writes its bytes into its own eager buffer, and notifies the members that read
    /// them there.
    Published,
    /// Each member puts its bytes into the eager buffers of the members that need them.
    Pushed,
    /// Reductions by puts, a part of the elements for each member in each round.
    Rounds,
    /// Broadcasts by puts: the root gives each member a part of the data, which that gives to all
    /// others.
    Parts,
    /// Between the windows of the members, after they have come to the call and before they leave
    /// it.
    Direct,
}

impl Algorithm {
    /// Why [`choose`] gives it where none is forced.
    fn reason(self) -> &'static str {
        match self {
            Algorithm::Network => "as the network makes it by itself",
            Algorithm::Multicast => "as the network copies what the root sends once",
            Algorithm::Copied => "as the switch copies what the root writes once",
            Algorithm::Nodes => "as data cross to each node once",
            Algorithm::Line => "as the data fit the line that notifies",
            Algorithm::Published => "as members read each other's eager buffers in place",
            Algorithm::Pushed => "as gets would wait for answers",
            Algorithm::Rounds => "as puts alone are faster than gets",
            Algorithm::Parts => "as members pass parts on, so no link carries all",
            Algorithm::Direct => "as each byte is copied once, from window to window",
        }
    }

    /// [`choose`] gives a call only what the call can do.
    pub(super) fn is_not_for(self, call: &str) -> ! {
        unreachable!("{self} was chosen for {call}, which has no such algorithm")
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Algorithm::Network => "network",
            Algorithm::Multicast => "multicast",
            Algorithm::Copied => "copied",
            Algorithm::Nodes => "nodes",
            Algorithm::Line => "line",
            Algorithm::Published => "published",
            Algorithm::Pushed => "pushed",
            Algorithm::Rounds => "rounds",
            Algorithm::Parts => "parts",
            Algorithm::Direct => "direct",
        })
    }
}

/// A call, as far as the choice depends on it. `each`: bytes from one member to another; `all`:
/// bytes from one member, or from the root, to all.
#[derive(Debug, Clone, Copy)]
pub(super) enum Call {
    Broadcast {
        bytes: usize,
    },
    Scatter {
        each: usize,
        all: usize,
    },
    Gather {
        each: usize,
        all: usize,
        to_all: bool,
    },
    AllToAll {
        each: usize,
        all: usize,
    },
    /// All-to-all of elements that do not lie together.
    Strided {
        all: usize,
    },
    /// Each member gives a number of bytes of its own.
    Collect,
    /// A reduction or scan. `words`: its bytes as integers of the network, if the elements can be
    /// such.
    Combine {
        bytes: usize,
        element: usize,
        goal: Goal,
        words: Option<usize>,
    },
}

impl Call {
    /// The bytes that one member gives another, where a notification can carry them.
    fn each(self) -> Option<usize> {
        match self {
            Call::Broadcast { bytes: each }
            | Call::Scatter { each, .. }
            | Call::Gather { each, .. }
            | Call::AllToAll { each, .. }
            | Call::Combine { bytes: each, .. } => Some(each),
            Call::Strided { .. } | Call::Collect => None,
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Call::Broadcast { bytes } => write!(f, "broadcast of {bytes} bytes"),
            Call::Scatter { each, .. } => write!(f, "scatter of {each} bytes each"),
            Call::Gather { each, to_all: true, .. } => write!(f, "all-gather of {each} bytes each"),
            Call::Gather { each, .. } => write!(f, "gather of {each} bytes each"),
            Call::AllToAll { each, .. } => write!(f, "all-to-all of {each} bytes each"),
            Call::Strided { all } => write!(f, "strided all-to-all of {all} bytes"),
            Call::Collect => write!(f, "collect"),
            Call::Combine { bytes, goal, .. } => {
                let call = match goal {
                    Goal::All => "all-reduce",
                    Goal::Root(_) => "reduce",
                    Goal::Inclusive => "scan",
                    Goal::Exclusive => "exclusive scan",
                };
                write!(f, "{call} of {bytes} bytes")
            }
        }
    }
}

/// Facts about a team that all members know alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts {
    pub(super) members: usize,
    /// Whether notifications go by cache lines.
    pub(super) lines: bool,
    /// Whether all members are near to each other.
    pub(super) near: bool,
    /// The members' nodes, where collectives may go by them.
    pub(super) nodes: Option<Shape>,
    pub(super) forced: Option<Forced>,
    /// The most bytes of a collective that the network makes.
    pub(super) in_network: usize,
    /// The bytes from which on a broadcast goes by multicast.
    pub(super) multicast_from: Option<usize>,
    /// Whether multicast is faster than parts that members pass on.
    pub(super) multicast_beats_parts: bool,
    /// Whether the network copies writes to the members.
    pub(super) copies: bool,
}

/// Whether a call goes by nodes.
fn by_nodes(call: Call, facts: &Facts) -> bool {
    let Some(Shape { nodes, consecutive }) = facts.nodes else { return false };
    match call {
        Call::Broadcast { .. } | Call::Gather { to_all: true, .. } => true,
        Call::Gather { all, to_all: false, .. } => all <= EAGER_BYTES,
        Call::Combine { bytes, .. } if bytes.saturating_mul(facts.members) <= EAGER_BYTES => true,
        Call::Combine { goal: Goal::All, .. } => consecutive && nodes <= MOST_CHAINED,
        _ => false,
    }
}

/// The algorithm of a call.
pub(super) fn choose(call: Call, facts: &Facts) -> Algorithm {
    let direct = facts.forced == Some(Forced::Direct);
    let in_network = |bytes: usize| (1..=facts.in_network).contains(&bytes);
    let in_line = |each: usize| !direct && facts.lines && each <= LINE;
    let eager = |bytes: usize| !direct && bytes <= EAGER_BYTES;
    let in_parts = |bytes: usize| {
        !(direct || facts.near) && facts.members > MOST_SERVED && bytes >= PARTED_BYTES
    };
    let by_buffers = if facts.near { Algorithm::Published } else { Algorithm::Pushed };
    match call {
        Call::Broadcast { bytes } if in_network(bytes) => Algorithm::Network,
        Call::Broadcast { bytes }
            if facts.multicast_from.is_some_and(|from| bytes >= from)
                && (facts.multicast_beats_parts || !in_parts(bytes)) =>
        {
            Algorithm::Multicast
        }
        Call::Broadcast { bytes } if facts.copies && facts.lines && bytes > EAGER_BYTES => {
            Algorithm::Copied
        }
        Call::Combine { words: Some(bytes), .. } if in_network(bytes) => Algorithm::Network,
        _ if by_nodes(call, facts) => Algorithm::Nodes,
        Call::Broadcast { bytes } if in_parts(bytes) => Algorithm::Parts,
        Call::Broadcast { bytes } => choose(Call::Scatter { each: bytes, all: bytes }, facts),
        Call::Scatter { each, .. } | Call::Gather { each, .. } | Call::AllToAll { each, .. }
            if in_line(each) =>
        {
            Algorithm::Line
        }
        Call::Combine { bytes, .. } if in_line(bytes) => Algorithm::Line,
        Call::Scatter { all, .. } | Call::AllToAll { all, .. } | Call::Strided { all }
            if eager(all) =>
        {
            by_buffers
        }
        Call::Gather { each, to_all: true, .. } if facts.near && eager(each) => by_buffers,
        Call::Gather { all, to_all: true, .. } if !facts.near && eager(all) => by_buffers,
        Call::Collect if facts.near && !direct => Algorithm::Published,
        Call::Combine { bytes, element, goal, .. } => {
            let has_rounds = !facts.near && facts.members * element <= EAGER_BYTES;
            match eager(bytes) {
                true if has_rounds => Algorithm::Rounds,
                true => Algorithm::Published,
                false if has_rounds && !matches!(goal, Goal::Root(_)) => Algorithm::Rounds,
                false => Algorithm::Direct,
            }
        }
        _ => Algorithm::Direct,
    }
}

impl Team {
    /// Whether a call in which a member gives another so many bytes goes by lines without another
    /// question: [`choose`](Self::choose) says the same, and logs nothing.
    #[inline(always)]
    pub(crate) fn goes_by_lines(&self, bytes: usize) -> bool {
        self.steps().is_short(bytes) && !is_on(Level::Debug)
    }

    pub(super) fn choose(&self, call: Call) -> Algorithm {
        let algorithm = match call.each() {
            Some(bytes) if self.steps().is_short(bytes) => Algorithm::Line,
            _ => choose(call, &self.facts()),
        };
        let forced = self.forced().map_or("", |_| " (MEMONET_COLLECTIVES forces a way)");
        let (me, reason) = (self.pe().me(), algorithm.reason());
        log!(Debug, me, "{call} by {} PEs: {algorithm}, {reason}{forced}", self.len());
        algorithm
    }

    /// [`choose`](Self::choose) after multicast has turned out not to serve the team.
    pub(super) fn choose_without_multicast(&self, call: Call) -> Algorithm {
        choose(call, &Facts { multicast_from: None, ..self.facts() })
    }

    fn facts(&self) -> Facts {
        let network = self.network();
        let failed = network.failed.load(Ordering::Relaxed);
        Facts {
            members: self.len(),
            lines: self.steps().are_lines(),
            near: self.is_near(),
            nodes: match self.forced() {
                None | Some(Forced::Nodes) => self.shape(),
                Some(_) => None,
            },
            forced: self.forced(),
            in_network: if failed { 0 } else { self.most_in_network() },
            multicast_from: self.multicast_from(),
            multicast_beats_parts: self.multicast_beats_parts(),
            copies: self.copies().is_some(),
        }
    }

    /// The algorithm of an all-reduce in which each member of this team gives `bytes` bytes, as
    /// integers of 64 bits. Most other collectives use the same one.
    pub fn collective_algorithm(&self, bytes: usize) -> Algorithm {
        self.choose(Call::Combine { bytes, element: 8, goal: Goal::All, words: Some(bytes) })
    }

    /// The number of bytes from which on this team's next broadcast goes by multicast; `None` where
    /// no broadcast does. Where a switch makes the copies slowly, one after the other, members of a
    /// large team pass large blocks on in parts all the same.
    pub fn multicast_from(&self) -> Option<usize> {
        if !self.may_multicast() || !self.steps().are_lines() {
            return None;
        }
        match self.forced() {
            None => Some(self.put_first().max(EAGER_BYTES + 1)),
            Some(Forced::Multicast) => Some(1),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Facts = Facts {
        members: 4,
        lines: true,
        near: true,
        nodes: None,
        forced: None,
        in_network: 0,
        multicast_from: None,
        multicast_beats_parts: true,
        copies: false,
    };
    const FAR: Facts = Facts { near: false, ..NEAR };

    fn reduce(bytes: usize, to_one: bool) -> Call {
        let goal = if to_one { Goal::Root(0) } else { Goal::All };
        Call::Combine { bytes, element: 8, goal, words: Some(bytes) }
    }

    #[test]
    fn by_size() {
        let broadcast = |bytes| Call::Broadcast { bytes };
        for (call, near, far) in [
            (broadcast(LINE), Algorithm::Line, Algorithm::Line),
            (broadcast(EAGER_BYTES), Algorithm::Published, Algorithm::Pushed),
            (broadcast(EAGER_BYTES + 1), Algorithm::Direct, Algorithm::Direct),
            (reduce(LINE, true), Algorithm::Line, Algorithm::Line),
            (reduce(EAGER_BYTES, true), Algorithm::Published, Algorithm::Rounds),
            (reduce(EAGER_BYTES + 8, true), Algorithm::Direct, Algorithm::Direct),
            (reduce(EAGER_BYTES + 8, false), Algorithm::Direct, Algorithm::Rounds),
            (Call::Collect, Algorithm::Published, Algorithm::Direct),
            (Call::Strided { all: 8 }, Algorithm::Published, Algorithm::Pushed),
            (
                Call::Gather { each: EAGER_BYTES, all: 4 * EAGER_BYTES, to_all: true },
                Algorithm::Published,
                Algorithm::Direct,
            ),
            (
                Call::Gather { each: LINE + 1, all: 4 * LINE + 4, to_all: false },
                Algorithm::Direct,
                Algorithm::Direct,
            ),
        ] {
            assert_eq!((choose(call, &NEAR), choose(call, &FAR)), (near, far), "{call:?}");
        }
    }

    /// Few members have all from the root, and so have many who get little.
    #[test]
    fn broadcasts_in_parts() {
        let of = |bytes| Call::Broadcast { bytes };
        let many = Facts { members: MOST_SERVED + 1, ..FAR };
        let lineless = Facts { lines: false, ..many };
        assert_eq!(choose(of(PARTED_BYTES), &many), Algorithm::Parts);
        assert_eq!(choose(of(PARTED_BYTES), &lineless), Algorithm::Parts);
        for (bytes, facts) in [
            (PARTED_BYTES - 1, many),
            (PARTED_BYTES, Facts { members: MOST_SERVED, ..FAR }),
            (PARTED_BYTES, Facts { near: true, ..many }),
            (PARTED_BYTES, Facts { forced: Some(Forced::Direct), ..many }),
        ] {
            assert_eq!(choose(of(bytes), &facts), Algorithm::Direct, "{bytes}, {facts:?}");
        }
    }

    /// What near members do with calls that fit a line needs no facts.
    #[test]
    fn what_fits_a_line() {
        for each in [0, 1, LINE, LINE + 1] {
            for call in [
                Call::Broadcast { bytes: each },
                Call::Scatter { each, all: 4 * each },
                Call::Gather { each, all: 4 * each, to_all: true },
                Call::Gather { each, all: 4 * each, to_all: false },
                Call::AllToAll { each, all: 4 * each },
                reduce(each, false),
                reduce(each, true),
                Call::Strided { all: each },
                Call::Collect,
            ] {
                let fits = call.each().is_some_and(|bytes| bytes <= LINE);
                assert_eq!(fits, choose(call, &NEAR) == Algorithm::Line, "{call:?}");
            }
        }
    }

    #[test]
    fn forced() {
        let facts = Facts { forced: Some(Forced::Direct), ..NEAR };
        for call in [reduce(8, false), Call::Collect, Call::Strided { all: 8 }] {
            assert_eq!(choose(call, &facts), Algorithm::Direct);
        }
        let facts = Facts { lines: false, forced: Some(Forced::Eager), ..NEAR };
        assert_eq!(choose(reduce(8, false), &facts), Algorithm::Published);
    }

    #[test]
    fn what_the_network_makes() {
        let facts = Facts { in_network: 64, multicast_from: Some(EAGER_BYTES + 1), ..FAR };
        assert_eq!(choose(reduce(64, true), &facts), Algorithm::Network);
        assert_eq!(choose(Call::Broadcast { bytes: 64 }, &facts), Algorithm::Network);
        assert_eq!(
            choose(Call::Broadcast { bytes: EAGER_BYTES + 1 }, &facts),
            Algorithm::Multicast
        );
        let call = Call::Combine { bytes: 8, element: 8, goal: Goal::All, words: None };
        assert_eq!(choose(call, &facts), Algorithm::Line);
    }

    /// A switch that copies slowly is not asked where members would pass on parts; where they would
    /// not, it is.
    #[test]
    fn slow_copies() {
        let slow = Facts {
            members: MOST_SERVED + 1,
            multicast_from: Some(EAGER_BYTES + 1),
            multicast_beats_parts: false,
            ..FAR
        };
        let of = |bytes, facts: &Facts| choose(Call::Broadcast { bytes }, facts);
        assert_eq!(of(PARTED_BYTES - 1, &slow), Algorithm::Multicast);
        assert_eq!(of(PARTED_BYTES, &slow), Algorithm::Parts);
        let few = Facts { members: MOST_SERVED, ..slow };
        assert_eq!(of(PARTED_BYTES, &few), Algorithm::Multicast);
        let fast = Facts { multicast_beats_parts: true, ..slow };
        assert_eq!(of(PARTED_BYTES, &fast), Algorithm::Multicast);
    }

    /// What fits an eager buffer goes as everywhere; its writes are copied there.
    #[test]
    fn what_the_network_copies() {
        let facts = Facts { copies: true, ..FAR };
        let of = |bytes| choose(Call::Broadcast { bytes }, &facts);
        assert_eq!(of(LINE), Algorithm::Line);
        assert_eq!(of(EAGER_BYTES), Algorithm::Pushed);
        assert_eq!(of(EAGER_BYTES + 1), Algorithm::Copied);
        assert_eq!(of(PARTED_BYTES), Algorithm::Copied);
        let scatter = Call::Scatter { each: PARTED_BYTES, all: 4 * PARTED_BYTES };
        assert_eq!(choose(scatter, &facts), Algorithm::Direct);
        let lineless = Facts { lines: false, members: 100, ..facts };
        let bytes = PARTED_BYTES;
        assert_eq!(choose(Call::Broadcast { bytes }, &lineless), Algorithm::Parts);
    }

    #[test]
    fn by_nodes() {
        let on = |nodes, consecutive| Facts { nodes: Some(Shape { nodes, consecutive }), ..FAR };
        let (runs, dealt) = (on(2, true), on(2, false));
        for call in [
            Call::Broadcast { bytes: 8 },
            Call::Broadcast { bytes: 1 << 20 },
            Call::Gather { each: 1 << 20, all: 4 << 20, to_all: true },
            reduce(EAGER_BYTES / 4, false),
            reduce(EAGER_BYTES / 4, true),
        ] {
            assert_eq!([runs, dealt].map(|facts| choose(call, &facts)), [Algorithm::Nodes; 2]);
        }
        let larger = reduce(EAGER_BYTES / 4 + 8, false);
        assert_eq!(choose(larger, &runs), Algorithm::Nodes);
        for facts in [dealt, on(MOST_CHAINED + 1, true)] {
            assert_eq!(choose(larger, &facts), Algorithm::Rounds);
        }
        for call in [
            reduce(EAGER_BYTES / 4 + 8, true),
            Call::Combine { bytes: 1 << 20, element: 8, goal: Goal::Inclusive, words: None },
            Call::Scatter { each: 8, all: 32 },
            Call::AllToAll { each: 8, all: 32 },
            Call::Gather { each: 1 << 20, all: 4 << 20, to_all: false },
        ] {
            assert_ne!(choose(call, &runs), Algorithm::Nodes, "{call:?}");
        }
    }

    /// In a team so large that an eager buffer does not hold one element of each member.
    #[test]
    fn without_room_for_rounds() {
        let facts = Facts { members: EAGER_BYTES, lines: false, ..FAR };
        assert_eq!(choose(reduce(8, false), &facts), Algorithm::Published);
        assert_eq!(choose(reduce(EAGER_BYTES + 8, false), &facts), Algorithm::Direct);
    }
}
