//! One stream that is being made to another node.

use super::guests::send_whole;
use super::handshake::{Answer, Connecting, Link, Member, Refused, Step};
use super::listener::stream_socket;
use super::poll::{Poll, Token};
use super::secret::random;
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, connect, recv, sockopt};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a connection may take: a lost SYN is sent again after 1 and 3 seconds.
const CONNECT: Duration = Duration::from_secs(4);
/// How long a connection may take while there are addresses that have not been tried once.
const CONNECT_ONE_OF_SEVERAL: Duration = Duration::from_secs(1);
/// How long the other node may take to answer: longer than it lets a handshake take.
const ANSWER: Duration = Duration::from_secs(3);
/// How long a request may take, with all attempts.
pub(super) const GIVE_UP: Duration = Duration::from_secs(15);
/// How often all addresses are tried. The pauses between, which double, last 3.1 seconds together:
/// longer than a cut that a job survives.
const ROUNDS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(100);

const DOWN: &str = "The host is down, or a firewall is in the way: let TCP pass between the hosts, on all ports or on those of MEMONET_PORTS=lo-hi; or choose the network by --interface";

/// A PE's request for a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) link: Link,
    /// The program that the PE was when it asked.
    pub(super) generation: u32,
    /// When it asked.
    pub(super) asked: Instant,
}

/// What became of a request.
pub(super) enum Outcome {
    /// The stream, and the address at which the node was reached.
    Connected(OwnedFd, SocketAddr),
    /// Why there is none.
    Refused(String),
}

/// Why an address did not lead to a stream.
#[derive(Debug, Clone)]
enum Failure {
    /// The system says so.
    System(Errno),
    Silent(Duration),
    /// The other end has closed the connection in the handshake.
    Closed,
    Handshake(Refused),
}

impl Failure {
    /// Whether it may go better the next time.
    fn is_passing(&self) -> bool {
        !matches!(
            self,
            Failure::System(Errno::CONNREFUSED | Errno::AFNOSUPPORT | Errno::ACCESS | Errno::PERM)
                | Failure::Handshake(_)
        )
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::System(Errno::CONNREFUSED) => f.write_str("refuses the connection"),
            Failure::System(e) => write!(f, "{e}"),
            Failure::Silent(limit) => write!(f, "does not answer within {limit:?}"),
            Failure::Closed => f.write_str("closes the connection during the handshake"),
            Failure::Handshake(refused) => write!(f, "{refused}"),
        }
    }
}

enum State {
    /// Between two attempts.
    Paused,
    Connecting(OwnedFd),
    Proving(OwnedFd, Box<Connecting>),
}

/// A stream that is being made.
pub(super) struct Dial {
    pub(super) request: Request,
    token: Token,
    /// The node's name.
    name: String,
    addresses: Vec<SocketAddr>,
    /// The next one to try.
    next: usize,
    round: u32,
    failures: Vec<(SocketAddr, Failure)>,
    state: State,
    /// When the state ends.
    pub(super) deadline: Instant,
    limit: Duration,
    give_up: Instant,
}

impl Dial {
    /// Begins at the next [`expire`](Self::expire).
    pub(super) fn new(
        request: Request,
        token: Token,
        name: &str,
        addresses: Vec<SocketAddr>,
        now: Instant,
    ) -> Self {
        Dial {
            request,
            token,
            name: name.to_owned(),
            addresses,
            next: 0,
            round: 0,
            failures: Vec::new(),
            state: State::Paused,
            deadline: now,
            limit: Duration::ZERO,
            give_up: request.asked + GIVE_UP,
        }
    }

    /// The socket has something to say.
    pub(super) fn go_on(&mut self, member: &Member, poll: &Poll, now: Instant) -> Option<Outcome> {
        let moved = match &self.state {
            State::Paused => return None,
            State::Connecting(socket) => match sockopt::socket_error(socket) {
                Ok(Ok(())) => self.say_hello(member, poll, now),
                Ok(Err(e)) | Err(e) => Err(Failure::System(e)),
            },
            State::Proving(..) => match self.listen(member, poll) {
                Ok(Some(outcome)) => return Some(outcome),
                Ok(None) => Ok(()),
                Err(failure) => Err(failure),
            },
        };
        match moved {
            Ok(()) => None,
            Err(failure) => self.fail(failure, member, poll, now),
        }
    }

    /// The time of the state is over, if `now` says so.
    pub(super) fn expire(&mut self, member: &Member, poll: &Poll, now: Instant) -> Option<Outcome> {
        if now < self.deadline {
            return None;
        }
        match self.state {
            State::Paused => self.attempt(member, poll, now),
            _ => self.fail(Failure::Silent(self.limit), member, poll, now),
        }
    }

    /// This address does not do: tries the next one, at once or later, or gives up.
    fn fail(
        &mut self,
        failure: Failure,
        member: &Member,
        poll: &Poll,
        now: Instant,
    ) -> Option<Outcome> {
        self.state = State::Paused;
        self.failures.push((self.addresses[self.next], failure));
        self.next += 1;
        self.attempt(member, poll, now)
    }

    /// Tries addresses from the next one on, until one takes time.
    fn attempt(&mut self, member: &Member, poll: &Poll, now: Instant) -> Option<Outcome> {
        loop {
            if now >= self.give_up {
                return Some(self.refuse());
            }
            let Some(&address) = self.addresses.get(self.next) else {
                if !self.failures.iter().any(|(_, failure)| failure.is_passing())
                    || self.round + 1 == ROUNDS
                {
                    return Some(self.refuse());
                }
                self.deadline = (now + FIRST_PAUSE * (1 << self.round)).min(self.give_up);
                self.round += 1;
                self.next = 0;
                return None;
            };
            if self.next == 0 {
                self.failures.clear();
            }
            match self.reach(address, member, poll, now) {
                Ok(()) => return None,
                Err(failure) => {
                    self.state = State::Paused;
                    self.failures.push((address, failure));
                    self.next += 1;
                }
            }
        }
    }

    /// Begins a connection.
    fn reach(
        &mut self,
        address: SocketAddr,
        member: &Member,
        poll: &Poll,
        now: Instant,
    ) -> Result<(), Failure> {
        let socket = stream_socket(&address).map_err(Failure::System)?;
        let connected = connect(&socket, &address);
        if !matches!(connected, Ok(()) | Err(Errno::INPROGRESS | Errno::INTR)) {
            return Err(Failure::System(connected.expect_err("not connected")));
        }
        poll.add(&socket, self.token, EventFlags::OUT).map_err(Failure::System)?;
        self.state = State::Connecting(socket);
        let others_remain = self.round == 0 && self.next + 1 < self.addresses.len();
        self.set_limit(if others_remain { CONNECT_ONE_OF_SEVERAL } else { CONNECT }, now);
        if connected.is_ok() { self.say_hello(member, poll, now) } else { Ok(()) }
    }

    fn set_limit(&mut self, limit: Duration, now: Instant) {
        self.limit = limit;
        self.deadline = (now + limit).min(self.give_up);
    }

    fn say_hello(&mut self, member: &Member, poll: &Poll, now: Instant) -> Result<(), Failure> {
        let State::Connecting(socket) = std::mem::replace(&mut self.state, State::Paused) else {
            return Ok(());
        };
        let no_memory = |_| Failure::System(Errno::NOMEM);
        let (machine, hello) =
            Connecting::new(member, &self.request.link, &random().map_err(no_memory)?);
        sockopt::set_tcp_nodelay(&socket, true).map_err(Failure::System)?;
        if !send_whole(&socket, &hello) {
            return Err(Failure::Closed);
        }
        poll.change(&socket, self.token, EventFlags::IN).map_err(Failure::System)?;
        self.state = State::Proving(socket, Box::new(machine));
        self.set_limit(ANSWER, now);
        Ok(())
    }

    /// Takes what the other node says.
    fn listen(&mut self, member: &Member, poll: &Poll) -> Result<Option<Outcome>, Failure> {
        let State::Proving(socket, machine) = &mut self.state else { return Ok(None) };
        loop {
            let mut bytes = [0; 128];
            let wanted = machine.missing().min(bytes.len());
            let got = match recv(&*socket, &mut bytes[..wanted], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(Failure::Closed),
                Ok((_, got)) => got,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => return Err(Failure::Closed),
                Err(e) => return Err(Failure::System(e)),
            };
            match machine.receive(member, &bytes[..got]).map_err(Failure::Handshake)? {
                Step::More => {}
                Step::Send(proof) if send_whole(socket, &proof) => {}
                Step::Send(_) | Step::Asked(_) => return Err(Failure::Closed),
                Step::Answered(answer) => {
                    poll.remove(&*socket).map_err(Failure::System)?;
                    return Ok(Some(self.answered(answer)));
                }
            }
        }
    }

    fn answered(&mut self, answer: Answer) -> Outcome {
        let pe = self.request.link.to_pe;
        match (answer, std::mem::replace(&mut self.state, State::Paused)) {
            (Answer::Taken, State::Proving(socket, _)) => {
                Outcome::Connected(socket, self.addresses[self.next])
            }
            (Answer::Full, _) => Outcome::Refused(format!(
                "PE {pe} on {} takes no stream: thousands wait for it already. It is stopped, or waits in no call of memonet",
                self.name
            )),
            _ => Outcome::Refused(departed(pe, &self.name)),
        }
    }

    fn refuse(&mut self) -> Outcome {
        let pe = self.request.link.to_pe;
        if self.failures.is_empty() && !self.addresses.is_empty() {
            return Outcome::Refused(crowded_out(pe, &self.name));
        }
        let tried: Vec<String> =
            self.failures.iter().map(|(address, why)| format!("{address} {why}")).collect();
        let is_refused = |failure: &Failure| matches!(failure, Failure::System(Errno::CONNREFUSED));
        let is_other =
            |failure: &Failure| matches!(failure, Failure::Closed | Failure::Handshake(_));
        let fix = if self.failures.iter().any(|(_, failure)| is_other(failure)) {
            "Another job or program may listen there: choose ports that only this job uses (MEMONET_PORTS=lo-hi)"
        } else if self.failures.iter().all(|(_, failure)| is_refused(failure)) {
            "Its agent has ended, or a firewall is in the way: let TCP pass between the hosts, on all ports or on those of MEMONET_PORTS=lo-hi"
        } else {
            DOWN
        };
        let tried =
            if tried.is_empty() { "it has no address".to_owned() } else { tried.join("; ") };
        Outcome::Refused(format!("PE {pe} on {} cannot be reached: {tried}. {fix}", self.name))
    }
}

/// Why there is no stream to a PE, where others to its node have failed for so long that this one
/// has not had its turn.
pub(super) fn crowded_out(pe: u32, name: &str) -> String {
    format!(
        "PE {pe} on {name} cannot be reached: no stream to this host was made in {GIVE_UP:?}. {DOWN}"
    )
}

/// Why there is no stream to a PE that has left.
pub(super) fn departed(pe: u32, name: &str) -> String {
    format!(
        "PE {pe} on {name} has left the job: it has finalised, or failed, as the job's report says"
    )
}

#[cfg(test)]
mod tests {
    use super::super::guests::Guests;
    use super::super::secret::Secret;
    use super::*;
    use rustix::net::{bind, getsockname, listen};

    const LINK: Link = Link { from_node: 0, to_node: 1, from_pe: 0, to_pe: 1 };

    /// A socket that nobody serves: connections to it wait. And its address.
    fn silent() -> (OwnedFd, SocketAddr) {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = stream_socket(&any).unwrap();
        bind(&socket, &any).unwrap();
        listen(&socket, 100).unwrap();
        let address = getsockname(&socket).unwrap().try_into().unwrap();
        (socket, address)
    }

    fn closed() -> SocketAddr {
        silent().1
    }

    struct World {
        secret: Secret,
        member: Member,
        poll: Poll,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            let secret = Secret::random().unwrap();
            let member = Member::new(&secret, [0; 16], 0, &[0, 1]);
            World { secret, member, poll: Poll::new().unwrap(), now: Instant::now() }
        }

        fn dial(&self, addresses: &[SocketAddr]) -> Dial {
            let request = Request { link: LINK, generation: 0, asked: self.now };
            Dial::new(request, Token::Dial(0), "b", addresses.to_vec(), self.now)
        }

        /// Lets a dial go on to its end, and time pass as it wants, while nobody answers; how
        /// many pauses and limits there were, and why it ends.
        fn pass(&mut self, dial: &mut Dial) -> (usize, String) {
            let soon = Some(Duration::from_millis(50));
            for times in 0..100 {
                let mut outcome = dial.expire(&self.member, &self.poll, self.now);
                while outcome.is_none() && !self.poll.wait(soon).unwrap().is_empty() {
                    outcome = dial.go_on(&self.member, &self.poll, self.now);
                }
                match outcome {
                    Some(Outcome::Refused(why)) => return (times, why),
                    Some(Outcome::Connected(..)) => panic!("nobody answers"),
                    None => assert!(dial.deadline > self.now, "it would be called without end"),
                }
                self.now = dial.deadline;
            }
            panic!("it does not end");
        }
    }

    #[test]
    fn what_nobody_answers_ends_in_time() {
        let (_socket, address) = silent();
        let mut world = World::new();
        let began = world.now;
        for addresses in [vec![address], vec![address; 5]] {
            let (_, why) = world.pass(&mut world.dial(&addresses));
            assert!(why.contains(&format!("{address} does not answer within")), "{why}");
            assert!(why.contains("firewall") && why.contains("--interface"), "{why}");
        }
        assert_eq!(world.now - began, 2 * GIVE_UP);
    }

    /// Both ends of a stream leave the polls that looked at them: a PE has the sockets then, and
    /// what comes on them would wake the agents for ever.
    #[test]
    fn agents_do_not_look_at_streams_that_are_made() {
        let (listener, address) = silent();
        let (ours, theirs) = (World::new(), Poll::new().unwrap());
        let mut dial = ours.dial(&[address]);
        let theirs_member = Member::new(&ours.secret, [0; 16], 1, &[0, 1]);
        let mut guests = Guests::default();
        assert!(dial.expire(&ours.member, &ours.poll, ours.now).is_none());
        let (near, far) = loop {
            let soon = Some(Duration::from_millis(1));
            guests.accept(&listener, &theirs, ours.now);
            if !theirs.wait(soon).unwrap().is_empty()
                && let Some(proved) = guests.go_on(0, &theirs_member, &theirs)
            {
                let answer = proved.machine.answer(&theirs_member, Answer::Taken);
                assert!(send_whole(&proved.socket, &answer));
                ours.poll.wait(None).unwrap();
                match dial.go_on(&ours.member, &ours.poll, ours.now) {
                    Some(Outcome::Connected(socket, at)) if at == address => {
                        break (socket, proved.socket);
                    }
                    _ => panic!("no stream"),
                }
            }
            if !ours.poll.wait(soon).unwrap().is_empty() {
                assert!(dial.go_on(&ours.member, &ours.poll, ours.now).is_none());
            }
        };
        assert!(send_whole(&near, b"bytes") && send_whole(&far, b"bytes"));
        for poll in [ours.poll, theirs] {
            assert_eq!(poll.wait(Some(Duration::from_millis(50))).unwrap(), []);
        }
    }

    /// An agent listens before others know its address: a port that is closed stays so.
    #[test]
    fn closed_ports_are_tried_once() {
        let mut world = World::new();
        let addresses = [closed(), closed()];
        let (times, why) = world.pass(&mut world.dial(&addresses));
        assert_eq!(times, 0);
        assert!(addresses.iter().all(|a| why.contains(&format!("{a} refuses"))), "{why}");
        assert!(why.contains("Its agent has ended"), "{why}");
        let (times, why) = world.pass(&mut world.dial(&[]));
        assert!(times == 0 && why.contains("has no address"), "{why}");
    }

    /// A cut that jobs survive lasts less than the pauses.
    #[test]
    fn what_may_pass_is_tried_for_some_seconds() {
        // No network has this address, and no route leads to it.
        let nowhere = SocketAddr::from(([255, 255, 255, 255], 1));
        let mut world = World::new();
        let began = world.now;
        let (times, why) = world.pass(&mut world.dial(&[nowhere, closed()]));
        assert!(times as u32 == ROUNDS - 1 && !why.contains("agent has ended"), "{why}");
        assert!((2500..GIVE_UP.as_millis()).contains(&(world.now - began).as_millis()), "{why}");
    }
}
