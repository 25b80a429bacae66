//! Connections that were accepted and are not proved yet.

use super::handshake::{Accepting, Link, Member, Step};
use super::poll::{Poll, Token};
use super::secret::random;
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most guests at a time.
pub(super) const MOST: usize = 64;
/// How long a handshake may take.
pub(super) const LIMIT: Duration = Duration::from_secs(2);
/// How long one that has not said anything true keeps its place when others wait for one.
const GRACE: Duration = Duration::from_millis(200);
/// How long no connection is accepted when there is no descriptor or memory for it.
const PAUSE: Duration = Duration::from_millis(50);

struct Guest {
    socket: OwnedFd,
    machine: Accepting,
    since: Instant,
}

/// Connections that are not proved yet.
#[derive(Default)]
pub(super) struct Guests {
    all: HashMap<u32, Guest>,
    next: u32,
    paused_until: Option<Instant>,
    /// How many were sent away.
    pub(super) refused: u64,
}

/// A connection that has proved itself, and waits for an answer.
pub(super) struct Proved {
    pub(super) link: Link,
    pub(super) socket: OwnedFd,
    pub(super) machine: Accepting,
}

impl Guests {
    /// Whether another one may come. If there are too many, one that has been silent gives way.
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        if self.paused_until.is_some_and(|until| now < until) {
            return false;
        }
        self.paused_until = None;
        if self.all.len() < MOST {
            return true;
        }
        let oldest = self.all.iter().filter(|(_, guest)| !guest.machine.has_heard());
        let oldest = oldest.min_by_key(|(_, guest)| guest.since);
        match oldest.map(|(&number, guest)| (number, guest.since)) {
            Some((number, since)) if now >= since + GRACE => {
                self.send_away(number);
                true
            }
            _ => false,
        }
    }

    /// Accepts what waits at a listening socket, as long as there is room.
    pub(super) fn accept(&mut self, listener: &OwnedFd, poll: &Poll, now: Instant) {
        while self.has_room(now) {
            let socket = match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                // The other end has given up meanwhile.
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => continue,
                Err(_) => {
                    self.paused_until = Some(now + PAUSE);
                    return;
                }
            };
            let number = self.next;
            self.next = self.next.wrapping_add(1);
            let is_ready = poll.add(&socket, Token::Guest(number), EventFlags::IN).is_ok();
            match random() {
                Ok(nonce) if is_ready => {
                    let machine = Accepting::new(&nonce);
                    self.all.insert(number, Guest { socket, machine, since: now });
                }
                _ => {
                    self.paused_until = Some(now + PAUSE);
                    return;
                }
            }
        }
    }

    /// Goes on with a guest that has said something.
    pub(super) fn go_on(&mut self, number: u32, member: &Member, poll: &Poll) -> Option<Proved> {
        let guest = self.all.get_mut(&number)?;
        match listen_to(guest, member) {
            Heard::Nothing => None,
            Heard::Proof(link) if poll.remove(&guest.socket).is_ok() => {
                let Guest { socket, machine, .. } = self.all.remove(&number)?;
                Some(Proved { link, socket, machine })
            }
            Heard::Proof(_) | Heard::Lies => {
                self.send_away(number);
                None
            }
        }
    }

    /// Sends those away that have taken too long.
    pub(super) fn expire(&mut self, now: Instant) {
        let late = self.all.iter().filter(|(_, guest)| now >= guest.since + LIMIT);
        let late: Vec<u32> = late.map(|(&number, _)| number).collect();
        late.into_iter().for_each(|number| self.send_away(number));
    }

    /// When there is something to do, though nothing comes.
    pub(super) fn due(&self) -> Option<Instant> {
        let is_full = self.all.len() >= MOST;
        let due = self.all.values().map(|guest| {
            let limit = if is_full && !guest.machine.has_heard() { GRACE } else { LIMIT };
            guest.since + limit
        });
        due.chain(self.paused_until).min()
    }

    /// Closes the connection. Nothing is said: a stranger learns nothing.
    fn send_away(&mut self, number: u32) {
        self.all.remove(&number);
        self.refused += 1;
    }
}

enum Heard {
    Nothing,
    Proof(Link),
    Lies,
}

fn listen_to(guest: &mut Guest, member: &Member) -> Heard {
    loop {
        let mut bytes = [0; 128];
        let wanted = guest.machine.missing().min(bytes.len());
        let got = match recv(&guest.socket, &mut bytes[..wanted], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Heard::Lies,
            Ok((_, got)) => got,
            Err(Errno::AGAIN) => return Heard::Nothing,
            Err(Errno::INTR) => continue,
            Err(_) => return Heard::Lies,
        };
        match guest.machine.receive(member, &bytes[..got]) {
            Ok(Step::More) => {}
            Ok(Step::Send(answer)) if send_whole(&guest.socket, &answer) => {}
            Ok(Step::Asked(link)) => return Heard::Proof(link),
            Ok(Step::Send(_) | Step::Answered(_)) | Err(_) => return Heard::Lies,
        }
    }
}

/// Sends a message of a handshake, for which an empty buffer always has room.
pub(super) fn send_whole(socket: &OwnedFd, bytes: &[u8]) -> bool {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match send(socket, bytes, flags) {
            Err(Errno::INTR) => {}
            sent => return sent == Ok(bytes.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::handshake::Connecting;
    use super::super::listener::{Listener, Options};
    use super::super::secret::Secret;
    use super::*;
    use std::io::Write;
    use std::net::TcpStream;

    #[test]
    fn silent_guests_give_way_and_others_keep_their_places() {
        let options = Options { interface: Some("127.0.0.1".into()), ..Options::default() };
        let listener = Listener::bind(&options).unwrap();
        let address = listener.addresses()[0];
        let (sockets, poll) = (listener.into_sockets(), Poll::new().unwrap());
        let mut guests = Guests::default();
        let now = Instant::now();
        let member = |node| Member::new(&Secret::from_bytes([1; 32]), [0; 16], node, &[0, 1]);
        let link = Link { from_node: 0, to_node: 1, from_pe: 0, to_pe: 1 };
        // The first one says hello.
        let mut heard = TcpStream::connect(address).unwrap();
        heard.write_all(&Connecting::new(&member(0), &link, &[0; 32]).1).unwrap();
        guests.accept(&sockets[0], &poll, now);
        poll.wait(None).unwrap();
        assert!(guests.go_on(0, &member(1), &poll).is_none() && guests.all[&0].machine.has_heard());
        let silent: Vec<_> = (1..MOST + 3).map(|_| TcpStream::connect(address).unwrap()).collect();
        let later = now + GRACE / 2;
        guests.accept(&sockets[0], &poll, later);
        assert_eq!(guests.all.len(), MOST);
        assert!(!guests.has_room(now + GRACE) && guests.refused == 0);
        assert_eq!(guests.due(), Some(later + GRACE));
        // The three that wait come in, and the one that was heard stays.
        guests.accept(&sockets[0], &poll, later + GRACE);
        assert!((MOST - 1..=MOST).contains(&guests.all.len()) && guests.refused >= 3);
        assert!(guests.all.contains_key(&0));
        assert_eq!(guests.all.keys().max(), Some(&(MOST as u32 + 2)));
        guests.expire(now + LIMIT);
        assert!(!guests.all.contains_key(&0));
        guests.expire(later + GRACE + LIMIT);
        assert!(guests.all.is_empty());
        drop(silent);
    }
}
