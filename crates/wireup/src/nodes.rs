//! Which processes share a node, and what each node tells the others.
//!
//! 1. Process 0 puts the job's nonce and secret. All meet in a fence.
//! 2. Each process listens at an abstract socket that nonce and number name. All meet in a fence.
//! 3. Each process connects to all such names. A process answers that shares the node, as abstract
//!    names belong to a network namespace. One of another user does not count.
//! 4. The lowest process of each node *leads* it: the others tell it their numbers, and get from it
//!    what the node shares, by the connections of step 3.
//! 5. Each leader puts what the other nodes are to know of its node. All meet in a fence.
//!
//! *All agree on the nodes.* Each process has bound its name before the fence of step 2, and holds
//! it until step 4 is over, so answering is symmetric and transitive. A leader that reads the
//! others' words in step 5 checks that each process is in one node.
//!
//! *Few look-ups.* The lowest process that is in no node read so far leads its own. So a leader
//! asks once for each node, and nobody else asks.

use crate::error::{Error, Result};
use crate::exchange::Exchange;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// How what process 0 puts begins: the version of what follows, and of all that is put here.
const MAGIC: [u8; 8] = *b"memonet\x01";
const HINT: &str = "PEs on one node need Unix sockets, and one network namespace";
/// Time between two looks at a queue that is full, or empty.
const PAUSE: Duration = Duration::from_millis(1);

/// A process among those of its node.
pub struct Neighbours {
    rank: u32,
    size: u32,
    nonce: [u8; 16],
    secret: [u8; 32],
    /// Processes of this node in order, this one among them.
    here: Vec<u32>,
    listener: OwnedFd,
    /// Where another process leads.
    leader: Option<OwnedFd>,
}

/// A node, as its leader tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its processes in order; the first one leads.
    pub processes: Vec<u32>,
    /// What its leader has told.
    pub word: Vec<u8>,
}

/// A process that has come to the leader of its node.
pub struct Guest {
    /// Its number.
    pub rank: u32,
    /// A descriptor that it has left here.
    pub left: Option<OwnedFd>,
    connection: OwnedFd,
}

impl Neighbours {
    /// Steps 1 to 3. Each fence takes at most `limit`.
    ///
    /// # Errors
    /// Any [`Error`].
    pub fn meet(with: &mut impl Exchange, limit: Duration) -> Result<Self> {
        Self::meet_at("", with, limit)
    }

    /// [`meet`](Self::meet) for processes of which only those of one `place` meet.
    fn meet_at(place: &str, with: &mut impl Exchange, limit: Duration) -> Result<Self> {
        let (rank, size) = (with.rank(), with.size());
        if rank == 0 {
            let mut job = MAGIC.to_vec();
            job.extend_from_slice(&random::<48>()?);
            with.put("job", &job)?;
        }
        with.fence("the job's number", limit)?;
        let job = with.get(0, "job")?;
        let Some(job) = job.strip_prefix(&MAGIC).filter(|job| job.len() == 48) else {
            let problem = "is not of this version of memonet";
            return Err(Error::Value { rank: 0, key: "job".into(), problem });
        };
        let nonce: [u8; 16] = job[..16].try_into().expect("checked");
        let secret = job[16..].try_into().expect("checked");
        let listener = open("binding a socket to meet the node's PEs", |socket| {
            bind(socket, &address(place, &nonce, rank)?)?;
            // One for each process, and as many of strangers.
            listen(socket, size.saturating_mul(2).min(4096) as i32)
        })?;
        with.fence("the sockets of the node's PEs", limit)?;
        let end = Instant::now() + limit;
        let (mut here, mut leader) = (Vec::new(), None);
        for peer in 0..size {
            if peer == rank {
                here.push(peer);
            } else if let Some(connection) = call(&address(place, &nonce, peer), end)? {
                if here.is_empty() {
                    leader = Some(connection);
                }
                here.push(peer);
            }
        }
        Ok(Neighbours { rank, size, nonce, secret, here, listener, leader })
    }

    /// What tells this job from all others.
    pub fn nonce(&self) -> &[u8; 16] {
        &self.nonce
    }

    /// What the job's nodes prove to each other that they know.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// The processes of this node in order, this one among them.
    pub fn here(&self) -> &[u32] {
        &self.here
    }

    /// Whether this process leads its node.
    pub fn leads(&self) -> bool {
        self.leader.is_none()
    }

    /// Whether all processes are on this node.
    pub fn are_all_here(&self) -> bool {
        self.here.len() == self.size as usize
    }

    /// Of the leader: waits until the other processes of the node have come.
    ///
    /// # Errors
    /// [`Error::Fence`], which names those that have not.
    pub fn welcome(&self, limit: Duration) -> Result<Vec<Guest>> {
        let end = Instant::now() + limit;
        let mut guests: Vec<Guest> = Vec::new();
        while guests.len() + 1 < self.here.len() {
            let connection = match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(connection) => connection,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) if Instant::now() < end => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(Errno::AGAIN) => return Err(self.missing(&guests, limit)),
                Err(e) => return Err(system("waiting for the node's PEs", e)),
            };
            // Those that have only asked who is here have gone, and so are strangers.
            let Some((rank, left)) = introduction(&connection, end)? else { continue };
            let is_expected = self.here[1..].contains(&rank);
            if is_expected && guests.iter().all(|guest| guest.rank != rank) {
                guests.push(Guest { rank, left, connection });
            }
        }
        guests.sort_by_key(|guest| guest.rank);
        Ok(guests)
    }

    fn missing(&self, guests: &[Guest], after: Duration) -> Error {
        let has_come = |rank: &u32| guests.iter().any(|guest| guest.rank == *rank);
        let missing = self.here[1..].iter().filter(|rank| !has_come(rank));
        let missing: Vec<String> = missing.map(u32::to_string).collect();
        let missing = format!("PEs {}", missing.join(", "));
        Error::Fence { fence: "the PEs of this node", missing, size: self.here.len() as u32, after }
    }

    /// Of a process that does not lead: tells the leader that it has come, leaves a descriptor
    /// there, and waits for what the leader [gives](Guest::give).
    ///
    /// # Errors
    /// Any [`Error`].
    pub fn visit(&self, leaves: Option<BorrowedFd<'_>>, limit: Duration) -> Result<OwnedFd> {
        let leader = self.leader.as_ref().expect("another process leads");
        send(leader, &self.rank.to_le_bytes(), leaves)?;
        sockopt::set_socket_timeout(leader, sockopt::Timeout::Recv, Some(limit))
            .map_err(|e| system("SO_RCVTIMEO", e))?;
        let gone = |answer: std::io::Error| Error::System {
            call: format!("waiting for PE {}, which leads this node,", self.here[0]),
            answer,
            hint: "It has ended, or is stopped: see its own message",
        };
        match receive(leader, &mut [0; 4]) {
            Ok((4, Some(given))) => Ok(given),
            Ok(_) => Err(gone(std::io::Error::other("it has closed the connection"))),
            Err(e) => Err(gone(if e == Errno::AGAIN { Errno::TIMEDOUT } else { e }.into())),
        }
    }

    /// Step 5: the leader tells of its node. Gives a leader all nodes, in the order of their first
    /// processes, and any other process nothing.
    ///
    /// # Errors
    /// Any [`Error`].
    pub fn tell(
        &self,
        with: &mut impl Exchange,
        word: &[u8],
        limit: Duration,
    ) -> Result<Vec<Node>> {
        if self.leads() {
            with.put("node", &encode(&self.here, word))?;
        }
        with.fence("what each node tells", limit)?;
        let mut node_of: Vec<Option<usize>> = vec![None; self.size as usize];
        let mut nodes: Vec<Node> = Vec::new();
        for first in (0..self.size).filter(|_| self.leads()) {
            if node_of[first as usize].is_some() {
                continue;
            }
            let wrong = |problem| Error::Value { rank: first, key: "node".into(), problem };
            let node = decode(&with.get(first, "node")?).ok_or_else(|| wrong("is no node"))?;
            if node.processes.first() != Some(&first) || !node.processes.is_sorted() {
                return Err(wrong("is another node"));
            }
            for &process in &node.processes {
                match node_of.get_mut(process as usize) {
                    Some(of @ None) => *of = Some(nodes.len()),
                    _ => return Err(wrong("has a PE that is elsewhere, or nowhere")),
                }
            }
            nodes.push(node);
        }
        Ok(nodes)
    }
}

impl Guest {
    /// Gives the process a descriptor.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn give(&self, fd: BorrowedFd<'_>) -> Result<()> {
        send(&self.connection, &self.rank.to_le_bytes(), Some(fd))
    }
}

fn address(place: &str, nonce: &[u8; 16], rank: u32) -> std::result::Result<SocketAddrUnix, Errno> {
    let nonce = u128::from_le_bytes(*nonce);
    SocketAddrUnix::new_abstract_name(format!("memonet-{nonce:032x}-{rank}{place}").as_bytes())
}

fn open(
    what: &str,
    set_up: impl FnOnce(&OwnedFd) -> std::result::Result<(), Errno>,
) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.map_err(|e| system("socket(AF_UNIX)", e))?;
    set_up(&socket).map_err(|e| system(what, e))?;
    Ok(socket)
}

/// A connection to a process of this user at an address; none where nobody is there.
fn call(
    address: &std::result::Result<SocketAddrUnix, Errno>,
    end: Instant,
) -> Result<Option<OwnedFd>> {
    const WHAT: &str = "looking for the node's PEs";
    let address = address.as_ref().map_err(|e| system("naming a socket", *e))?;
    let socket = open(WHAT, |_| Ok(()))?;
    loop {
        match connect(&socket, address) {
            Ok(()) => break,
            Err(Errno::CONNREFUSED) => return Ok(None),
            Err(Errno::INTR) => {}
            // Its queue is full.
            Err(Errno::AGAIN) if Instant::now() < end => std::thread::sleep(PAUSE),
            Err(e) => return Err(system(WHAT, e)),
        }
    }
    let peer = sockopt::socket_peercred(&socket).map_err(|e| system("SO_PEERCRED", e))?;
    if peer.uid != rustix::process::geteuid() {
        return Ok(None);
    }
    rustix::io::ioctl_fionbio(&socket, false).map_err(|e| system("FIONBIO", e))?;
    Ok(Some(socket))
}

/// The number that a process of this user tells, and the descriptor that it leaves.
fn introduction(connection: &OwnedFd, end: Instant) -> Result<Option<(u32, Option<OwnedFd>)>> {
    let peer = sockopt::socket_peercred(connection).map_err(|e| system("SO_PEERCRED", e))?;
    if peer.uid != rustix::process::geteuid() {
        return Ok(None);
    }
    let left = end.saturating_duration_since(Instant::now()).max(PAUSE);
    sockopt::set_socket_timeout(connection, sockopt::Timeout::Recv, Some(left))
        .map_err(|e| system("SO_RCVTIMEO", e))?;
    let mut rank = [0; 4];
    match receive(connection, &mut rank) {
        Ok((4, left)) => Ok(Some((u32::from_le_bytes(rank), left))),
        Ok(_) | Err(_) => Ok(None),
    }
}

fn send(to: &OwnedFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(fd) = fd.as_ref() {
        let has_room = control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(fd)));
        debug_assert!(has_room);
    }
    loop {
        match sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            // Few bytes go at once, as the queue is empty.
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(system("speaking with a PE of this node", e)),
        }
    }
}

fn receive(
    from: &OwnedFd,
    bytes: &mut [u8],
) -> std::result::Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut buffers = [IoSliceMut::new(bytes)];
        match recvmsg(from.as_fd(), &mut buffers, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((received.bytes, fds.flatten().next()))
}

/// The number of processes, their numbers, and the leader's word.
fn encode(processes: &[u32], word: &[u8]) -> Vec<u8> {
    let numbers = std::iter::once(processes.len() as u32).chain(processes.iter().copied());
    let mut bytes: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
    bytes.extend_from_slice(word);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Node> {
    let (count, rest) = bytes.split_first_chunk()?;
    let (numbers, word) = rest.split_at_checked(u32::from_le_bytes(*count) as usize * 4)?;
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    let processes = numbers.chunks(4).map(number).collect();
    Some(Node { processes, word: word.to_vec() })
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(length) => filled += length,
            Err(Errno::INTR) => {}
            Err(e) => return Err(system("getrandom", e)),
        }
    }
    Ok(bytes)
}

fn system(call: &str, answer: Errno) -> Error {
    Error::System { call: call.into(), answer: answer.into(), hint: HINT }
}

#[cfg(test)]
mod tests;
