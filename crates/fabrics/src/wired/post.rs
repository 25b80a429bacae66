//! Short messages between processes of a node, with descriptors.

use memonet_core::{Error, Result};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::time::Duration;

/// The most descriptors of a message.
const MOST_FDS: usize = 3;
/// The longest message, in bytes.
const MOST_BYTES: usize = 4000;
const HINT: &str = "The agent of this node has ended: was it killed, or is there no memory left?";

/// Two ends that keep messages apart.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|e| system("socketpair", e, "Raise `ulimit -n`"))
}

/// Sends a message. It has room, as none was sent before.
pub fn send(to: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
    let bytes = &bytes[..bytes.len().min(MOST_BYTES)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let has_room = fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds));
    assert!(has_room, "no message has so many descriptors");
    loop {
        match sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(system("speaking with the agent of this node", e, HINT)),
        }
    }
}

/// The next message. It comes within `limit`.
pub fn receive(from: &OwnedFd, limit: Duration) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    let failed = |e| system("waiting for the agent of this node", e, HINT);
    sockopt::set_socket_timeout(from, sockopt::Timeout::Recv, Some(limit)).map_err(failed)?;
    let mut bytes = vec![0; MOST_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(from.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received.bytes,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(failed(Errno::TIMEDOUT)),
            Err(e) => return Err(failed(e)),
        }
    };
    if length == 0 {
        return Err(failed(Errno::PIPE));
    }
    bytes.truncate(length);
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((bytes, fds.flatten().collect()))
}

fn system(call: &str, e: Errno, hint: &'static str) -> Error {
    Error::System { call: call.into(), answer: e.into(), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(10);

    #[test]
    fn messages_arrive_with_their_descriptors() {
        let (a, b) = pair().unwrap();
        assert!(receive(&b, SOON).unwrap_err().to_string().contains("timed out"));
        let (near, far) = pair().unwrap();
        send(&a, b"two", &[far.as_fd(), near.as_fd()]).unwrap();
        send(&a, &[7; MOST_BYTES + 1], &[]).unwrap();
        let (bytes, fds) = receive(&b, SOON).unwrap();
        assert_eq!((&*bytes, fds.len()), (&b"two"[..], 2));
        send(&fds[0], b"x", &[]).unwrap();
        assert_eq!(receive(&near, SOON).unwrap().0, b"x");
        assert_eq!(receive(&b, SOON).unwrap().0.len(), MOST_BYTES);
        drop(a);
        assert!(receive(&b, SOON).unwrap_err().to_string().contains("has ended"));
    }
}
