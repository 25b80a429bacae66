//! How PEs learn each other's addresses.

use crate::error::system;
use memonet_core::Result;
use memonet_core::unstable::fabric::Record;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg, sendmsg_addr, socket_with,
    sockopt,
};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Gives a PE the addresses of other PEs' endpoints.
pub trait Meeting: Send + Sync {
    /// What every PE knows alike of the job's nodes and of what lies between them.
    fn record(&self) -> Record;

    /// The job's number, the same at every PE: messages of other jobs are known by theirs.
    fn job(&self) -> u64;

    /// The address of this host at which PEs of the job reach it. An endpoint of a provider that
    /// goes by sockets is there.
    fn source(&self) -> IpAddr;

    /// This PE's own address, once, before anything else.
    ///
    /// # Errors
    /// When it cannot be told to others.
    fn begin(&self, address: &[u8]) -> Result<()>;

    /// Asks for a PE's address, which comes by [`next`](Self::next). Returns at once. Asked again,
    /// it comes again, from a PE whose process runs.
    ///
    /// # Errors
    /// When it will never come.
    fn ask(&self, pe: u32) -> Result<()>;

    /// The next thing that has come, asked for or not; never blocks.
    ///
    /// # Errors
    /// When none will come any more.
    fn next(&self) -> Result<Option<News>>;

    /// This process is the PE from now on; see [`Fabric::take_part`].
    ///
    /// # Errors
    /// Of the system.
    ///
    /// [`Fabric::take_part`]: memonet_core::unstable::fabric::Fabric::take_part
    fn take_part(&self, _to_successor: bool) -> Result<()> {
        Ok(())
    }

    /// Readable when [`next`](Self::next) has something.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// What comes of a meeting.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// A PE's address.
    Address {
        /// The PE.
        pe: u32,
        /// The address of its endpoint, as its provider writes it.
        address: Vec<u8>,
    },
    /// The address of a PE that was asked for will not come.
    Refused {
        /// The PE.
        pe: u32,
        /// Why.
        why: String,
    },
}

/// Between PEs of one machine, processes or threads: datagrams between sockets with names that no
/// file has.
///
/// A PE's socket has a name made of the job's number and its own. A datagram has the job's number
/// and is taken from a process of the same user only. A PE that asks tells its own address, so that
/// the PE that answers knows it too. A PE that has no socket yet is asked again, ever less often.
pub struct Local {
    record: Record,
    job: u64,
    me: u32,
    socket: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    address: Vec<u8>,
    /// What could not be sent yet: to which PE, and whether it is a question.
    pending: Vec<(u32, bool)>,
    /// PEs that could not be asked, and why.
    refused: Vec<(u32, String)>,
    pause: Duration,
    since: Option<Instant>,
}

/// Pauses before a PE is asked again.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// The mark, the job, the PE, and whether it is a question; the address follows.
const HEAD: usize = 24;
const MARK: u64 = u64::from_le_bytes(*b"memofi-1");
const MOST: usize = HEAD + 512;

/// The name of a PE's socket. It does not tell the job's number, which a PE proves to know.
fn name(job: u64, pe: u32) -> rustix::io::Result<SocketAddrUnix> {
    let mut mixed = job ^ 0x510E_527F_ADE6_82D1;
    for _ in 0..2 {
        mixed = (mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    }
    SocketAddrUnix::new_abstract_name(format!("memonet-ofi-{mixed:016x}-{pe}").as_bytes())
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

impl Local {
    /// That of PE `me` of this job.
    ///
    /// # Errors
    /// When the system has no more sockets.
    pub fn new(record: Record, job: u64, me: u32) -> Result<Self> {
        let made = || -> rustix::io::Result<OwnedFd> {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
            sockopt::set_socket_passcred(&socket, true)?;
            bind(&socket, &name(job, me)?)?;
            Ok(socket)
        };
        let socket = made().map_err(|error| system("a socket for the fabric", error))?;
        Ok(Local { record, job, me, socket, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Tells a PE this one's address. False where it has to be tried again.
    fn tell(&self, address: &[u8], pe: u32, asks: bool) -> rustix::io::Result<bool> {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MARK.to_le_bytes());
        head[8..16].copy_from_slice(&self.job.to_le_bytes());
        head[16..20].copy_from_slice(&self.me.to_le_bytes());
        head[20] = asks.into();
        let pieces = [IoSlice::new(&head), IoSlice::new(address)];
        let (mut none, to) = (SendAncillaryBuffer::default(), name(self.job, pe)?);
        match sendmsg_addr(&self.socket, &to, &pieces, &mut none, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(true),
            // It has no socket yet, or its queue is full.
            Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Tries all that could not be told before. What fails is tried again, too: the system may have
    /// lacked something for a while.
    fn try_pending(&self, state: &mut State) {
        for (pe, asks) in std::mem::take(&mut state.pending) {
            let told = self.tell(&state.address, pe, asks);
            if !matches!(told, Ok(true)) {
                state.pending.push((pe, asks));
            }
            // One that is not answered asks again.
            if let Err(error) = told
                && asks
            {
                state.refused.push((pe, format!("asking for its address: {error}")));
            }
        }
        if !state.pending.is_empty() {
            state.pause = (state.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            state.since = Some(Instant::now());
        }
    }

    /// What has come: from which PE, whether it asks, its address. Nothing where what came is not
    /// of this job.
    fn read(&self) -> rustix::io::Result<Option<(u32, bool, Vec<u8>)>> {
        let mut bytes = [0; MOST];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let pieces = &mut [IoSliceMut::new(&mut bytes)];
        let count = recvmsg(&self.socket, pieces, &mut control, RecvFlags::DONTWAIT)?.bytes;
        let user = rustix::process::geteuid();
        let is_ours = control.drain().any(
            |said| matches!(said, RecvAncillaryMessage::ScmCredentials(who) if who.uid == user),
        );
        let is_of_job =
            count > HEAD && word(&bytes[..8]) == MARK && word(&bytes[8..16]) == self.job;
        let pe = u32::from_le_bytes(bytes[16..20].try_into().expect("4 bytes"));
        let address = || bytes[HEAD..count].to_vec();
        Ok((is_ours && is_of_job).then(|| (pe, bytes[20] != 0, address())))
    }
}

impl Meeting for Local {
    fn record(&self) -> Record {
        self.record.clone()
    }

    fn job(&self) -> u64 {
        self.job
    }

    fn source(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }

    fn begin(&self, address: &[u8]) -> Result<()> {
        self.state().address = address.to_vec();
        Ok(())
    }

    fn ask(&self, pe: u32) -> Result<()> {
        let state = &mut *self.state();
        state.pending.push((pe, true));
        state.pause = Duration::ZERO;
        self.try_pending(state);
        Ok(())
    }

    fn next(&self) -> Result<Option<News>> {
        let state = &mut *self.state();
        let is_due = state.since.is_none_or(|since| since.elapsed() >= state.pause);
        if !state.pending.is_empty() && is_due {
            self.try_pending(state);
        }
        if let Some((pe, why)) = state.refused.pop() {
            return Ok(Some(News::Refused { pe, why }));
        }
        loop {
            match self.read() {
                Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                Err(error) => return Err(system("taking an address", error)),
                Ok(None) => {}
                Ok(Some((pe, asks, address))) => {
                    if asks {
                        state.pending.push((pe, false));
                        self.try_pending(state);
                    }
                    return Ok(Some(News::Address { pe, address }));
                }
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(job: u64, me: u32) -> Local {
        let local = Local::new(Record::all_far(), job, me).unwrap();
        local.begin(&[me as u8; 16]).unwrap();
        local
    }

    fn next(local: &Local) -> (u32, Vec<u8>) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            if let Some(News::Address { pe, address }) = local.next().unwrap() {
                return (pe, address);
            }
            std::thread::yield_now();
        }
        panic!("nothing came");
    }

    fn job() -> u64 {
        let mut bytes = [0; 8];
        rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()).unwrap();
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn two_that_start_one_after_the_other() {
        let job = job();
        let first = local(job, 0);
        first.ask(1).unwrap();
        assert_eq!(first.next().unwrap(), None, "it has no socket yet");
        let second = local(job, 1);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(next(&first), (1, vec![1; 16])));
            assert_eq!(next(&second), (0, vec![0; 16]), "who asks tells its own");
            scope.spawn(|| while second.next().unwrap().is_some() {});
        });
    }

    /// A PE to which nothing can be sent at all: here, as the address is too long for a datagram.
    #[test]
    fn an_error_belongs_to_its_question() {
        let job = job();
        let (one, two) = (local(job, 0), local(job, 1));
        one.begin(&vec![0; 8 << 20]).unwrap();
        one.ask(1).unwrap();
        let Some(News::Refused { pe: 1, why }) = one.next().unwrap() else { panic!("it was told") };
        assert!(why.contains("asking for its address"), "{why}");
        one.begin(&[7; 16]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while one.next().unwrap() != Some(News::Address { pe: 1, address: vec![1; 16] }) {}
            });
            assert_eq!(next(&two), (0, vec![7; 16]), "it was asked again");
            while !two.state().pending.is_empty() {
                _ = two.next();
            }
        });
    }

    #[test]
    fn other_jobs_are_not_listened_to() {
        let job = job();
        let one = local(job, 0);
        let mut stranger = local(job, 1);
        stranger.job ^= 1;
        let pieces = [0; HEAD + 8];
        let to = name(job, 0).unwrap();
        let mut none = SendAncillaryBuffer::default();
        let bytes = [IoSlice::new(&pieces)];
        sendmsg_addr(&stranger.socket, &to, &bytes, &mut none, SendFlags::empty()).unwrap();
        assert_eq!(one.next().unwrap(), None);
    }
}
