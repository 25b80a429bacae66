//! Messages between an agent and its PEs: datagrams in order (SOCK_SEQPACKET), with descriptors.
//!
//! | kind | from | number | with it |
//! |---|---|---|---|
//! | hello | PE | version | |
//! | connect | PE | the PE to connect to | |
//! | return | PE | the other end | a socket that came for the program that this process was before |
//! | record | agent | the PE itself | a sealed memory file with the job's description |
//! | connected, accepted | agent | the other end | a socket |
//! | refused | agent | the PE that was asked for | why |
//! | unreached | agent | a PE that has got no stream to this one | |

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Version of these messages, which the hello names.
pub(super) const VERSION: u32 = 2;

/// The longest text; longer ones are cut.
const MOST_TEXT: usize = 4000;
const HEAD: usize = 8;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Hello,
    Connect,
    Return,
    Record,
    Connected,
    Accepted,
    Refused,
    Unreached,
}

const KINDS: [Kind; 8] = [
    Kind::Hello,
    Kind::Connect,
    Kind::Return,
    Kind::Record,
    Kind::Connected,
    Kind::Accepted,
    Kind::Refused,
    Kind::Unreached,
];

/// A message that has come.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) number: u32,
    pub(super) text: String,
    pub(super) fd: Option<OwnedFd>,
}

/// Result of [`receive`].
#[derive(Debug)]
pub(super) enum Received {
    Message(Message),
    /// Something that is no message.
    Garbage,
    /// Nothing yet.
    Nothing,
    /// The other end is closed.
    End,
}

/// Sends a message without blocking.
pub(super) fn send(
    channel: impl AsFd,
    kind: Kind,
    number: u32,
    text: &str,
    fd: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let code = KINDS.iter().position(|&other| other == kind).expect("each kind is listed") as u32;
    let head = [code.to_le_bytes(), number.to_le_bytes()].concat();
    let text = &text[..text.floor_char_boundary(MOST_TEXT)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fd.into_iter().collect();
    assert!(
        fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)),
        "the buffer was made for one descriptor"
    );
    let parts = [IoSlice::new(&head), IoSlice::new(text.as_bytes())];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(channel.as_fd(), &parts, &mut control, flags) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop),
        }
    }
}

/// Receives a message without blocking.
pub(super) fn receive(channel: impl AsFd) -> Result<Received, Errno> {
    let mut bytes = [0u8; HEAD + MOST_TEXT];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match recvmsg(channel.as_fd(), &mut parts, &mut control, flags) {
            Ok(got) => break got.bytes,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(Errno::CONNRESET) => return Ok(Received::End),
            Err(e) => return Err(e),
        }
    };
    let mut fd = None;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = part {
            fd = fds.next();
        }
    }
    if got == 0 {
        return Ok(Received::End);
    }
    let Some((head, text)) = bytes[..got].split_first_chunk::<HEAD>() else {
        return Ok(Received::Garbage);
    };
    let [code, number] = [0, 4].map(|at| u32::from_le_bytes([0, 1, 2, 3].map(|i| head[at + i])));
    let kind = KINDS.get(code as usize);
    let (Some(&kind), Ok(text)) = (kind, std::str::from_utf8(text)) else {
        return Ok(Received::Garbage);
    };
    Ok(Received::Message(Message { kind, number, text: text.to_owned(), fd }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn messages_arrive_with_their_descriptors() {
        let (a, b) = pair();
        for (number, kind) in (0..).zip(KINDS) {
            let (near, far) = pair();
            send(&a, kind, number, "why: ä", Some(far.as_fd())).unwrap();
            drop(far);
            let Received::Message(message) = receive(&b).unwrap() else { panic!("{kind:?}") };
            assert_eq!((message.kind, message.number, &*message.text), (kind, number, "why: ä"));
            let far = message.fd.unwrap();
            let flags = rustix::io::fcntl_getfd(&far).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            send(&far, Kind::Hello, 9, "", None).unwrap();
            assert!(matches!(receive(&near), Ok(Received::Message(Message { number: 9, .. }))));
        }
        assert!(matches!(receive(&b), Ok(Received::Nothing)));
        drop(a);
        assert!(matches!(receive(&b), Ok(Received::End)));
    }

    #[test]
    fn long_texts_are_cut_and_garbage_is_known() {
        let (a, b) = pair();
        send(&a, Kind::Refused, 1, &"ä".repeat(MOST_TEXT), None).unwrap();
        let Received::Message(message) = receive(&b).unwrap() else { panic!("no message") };
        assert_eq!(message.text, "ä".repeat(MOST_TEXT / 2));
        for garbage in [&b"x"[..], &[8, 0, 0, 0, 0, 0, 0, 0], &[0, 0, 0, 0, 0, 0, 0, 0, 0xff]] {
            rustix::net::send(&a, garbage, SendFlags::empty()).unwrap();
            assert!(matches!(receive(&b), Ok(Received::Garbage)), "{garbage:?}");
        }
    }
}
