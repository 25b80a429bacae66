//! Handing descriptors of restricted windows to those who have the right.
//!
//! Each PE that takes part binds a datagram socket to an abstract name made of the job's random
//! number and its own: gone with the process, invisible in the file system. A descriptor travels
//! with the number of its home and key slot; a message of another user, of another job, or with
//! anything unexpected in it is dropped.

use crate::base::error::{Error, Result};
use crate::base::lock;
use crate::endpoint::layers::Layer;
use crate::endpoint::pe::Pe;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, recvmsg,
    sendmsg_addr, socket_with, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex};

/// The socket of one PE.
pub(crate) struct Socket {
    fd: OwnedFd,
    job_id: u64,
}

/// What a message says: job, home, key slot and its generation.
type Message = [u64; 4];

/// A descriptor that has arrived.
pub(crate) struct Arrived {
    pub(crate) home: usize,
    pub(crate) slot: usize,
    pub(crate) generation: u64,
    /// Itself, if there was room for it.
    pub(crate) fd: Result<OwnedFd>,
}

/// This PE's own socket, once it is bound.
struct Own(Mutex<Option<Arc<Socket>>>);

impl Layer for Own {
    fn new(_pe: &Pe) -> Self {
        Own(Mutex::new(None))
    }
}

impl Socket {
    /// This PE's socket, bound at the first call.
    pub(crate) fn of(pe: &Pe) -> Result<Arc<Socket>> {
        let mut socket = lock(&pe.layer::<Own>().0);
        if let Some(socket) = &*socket {
            return Ok(socket.clone());
        }
        let hint = "Restricted windows need Unix sockets";
        let job_id = pe.control().job_id();
        let fd = open_socket(SocketFlags::NONBLOCK, hint)?;
        bind(&fd, &address(job_id, pe.me())?)
            .map_err(|e| Error::system("binding the socket for descriptors", e, hint))?;
        Ok(socket.insert(Arc::new(Socket { fd, job_id })).clone())
    }

    /// Sends a descriptor; false when the receiver has to take others first.
    pub(crate) fn send(
        &self,
        to: usize,
        home: usize,
        slot: usize,
        generation: u64,
        fd: BorrowedFd<'_>,
    ) -> Result<bool> {
        let message: Message = [self.job_id, home as u64, slot as u64, generation];
        let bytes = zerocopy::IntoBytes::as_bytes(&message);
        match send(&self.fd, &address(self.job_id, to)?, bytes, Some(fd), SendFlags::DONTWAIT) {
            Ok(()) => Ok(true),
            // The last: too many of this user's descriptors are under way.
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR | Errno::TOOMANYREFS) => Ok(false),
            Err(e) => Err(Error::system(
                format!("sending a descriptor to PE {to}"),
                e,
                "Restricted windows need Unix sockets, and all PEs in one network namespace",
            )),
        }
    }

    /// Takes the next descriptor that has arrived.
    pub(crate) fn receive(&self) -> Result<Option<Arrived>> {
        loop {
            let mut message: Message = [0; 4];
            let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut message);
            let (got, fd) = match receive(&self.fd, bytes, RecvFlags::DONTWAIT) {
                Ok(got) => got,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
                Err(e) => {
                    return Err(Error::system(
                        "receiving a descriptor",
                        e,
                        "Restricted windows need Unix sockets",
                    ));
                }
            };
            if got == size_of::<Message>() && message[0] == self.job_id {
                // The kernel delivers the message without the descriptor where the process has no
                // room for it.
                let fd = fd.ok_or_else(|| {
                    Error::system("taking a descriptor", Errno::MFILE, "Raise `ulimit -n`")
                });
                let [_, home, slot, generation] = message;
                return Ok(Some(Arrived {
                    home: home as usize,
                    slot: slot as usize,
                    generation,
                    fd,
                }));
            }
        }
    }
}

fn address(job_id: u64, pe: usize) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("memonet-{job_id:016x}-{pe}").as_bytes())
        .map_err(|e| Error::system("naming a socket", e, ""))
}

/// A datagram socket that is told who sends.
pub(crate) fn open_socket(flags: SocketFlags, hint: &'static str) -> Result<OwnedFd> {
    let fd =
        socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC | flags, None);
    let fd = fd.map_err(|e| Error::system("socket", e, hint))?;
    sockopt::set_socket_passcred(&fd, true).map_err(|e| Error::system("SO_PASSCRED", e, hint))?;
    Ok(fd)
}

/// Sends a message, and perhaps a descriptor.
pub(crate) fn send(
    socket: &OwnedFd,
    to: &SocketAddrUnix,
    message: &[u8],
    fd: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> std::result::Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fd.into_iter().collect();
    assert!(
        fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)),
        "the buffer was made for one descriptor"
    );
    sendmsg_addr(socket, to, &[IoSlice::new(message)], &mut control, flags).map(drop)
}

/// Receives a message of this user: its length, of which `message` may hold less, and the
/// descriptor in it. One of another user has no length, and no descriptor.
pub(crate) fn receive(
    socket: &OwnedFd,
    message: &mut [u8],
    flags: RecvFlags,
) -> std::result::Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1), ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket.as_fd(), &mut [IoSliceMut::new(message)], &mut control, flags)?;
    let (mut fd, mut ours) = (None, false);
    for part in control.drain() {
        match part {
            RecvAncillaryMessage::ScmRights(mut fds) => fd = fds.next(),
            RecvAncillaryMessage::ScmCredentials(credentials) => {
                ours = credentials.uid == rustix::process::getuid()
            }
            _ => {}
        }
    }
    Ok(if ours { (got.bytes, fd) } else { (0, None) })
}
