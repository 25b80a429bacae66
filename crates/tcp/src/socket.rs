//! Sending from where blocks lie, and receiving to where they go.
//!
//! The calls that send and receive take addresses, as other PEs may write to that memory meanwhile:
//! no reference to it may exist, and the calls of rustix take references.

use crate::wire::Piece;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::net::sockopt;
use std::io::{Error, ErrorKind, Result};
use std::time::Duration;

/// Most pieces that go in one call.
pub(crate) const PIECES: usize = 32;

/// Bytes that the system keeps of what a socket has not sent yet. What it has sent, and nobody has
/// acknowledged, does not count, so a long way still has as much under way as it needs. Without a
/// limit, a large put fills megabytes, which leave the cache before they are sent: 1 MiB between
/// two network namespaces went at 1.9 GB/s, and goes at 3.5 with this limit. 64 KiB and 512 KiB
/// gave 2.8 and 2.3.
const UNSENT_BYTES: libc::c_int = 128 << 10;

/// How long nothing passes until the other end's kernel is asked whether the stream still exists:
/// a firewall may forget a stream that is silent for minutes. And how often it is asked in vain
/// until the stream is over: a PE that waits for a word sends nothing, and would wait for ever. All
/// questions take a quarter of an hour, as the kernel tries so long to send. It answers for a
/// process that is stopped, too.
const SILENCE: Duration = Duration::from_secs(60);
const QUESTIONS: u32 = 15;

/// Prepares a socket for records and blocks: each leaves at once, and few wait to be sent. A stream
/// that is cut without a word ends some time.
pub fn prepare(socket: &impl AsFd) {
    // Not all sockets have these, nor need them: those of tests are no TCP.
    let _ = sockopt::set_tcp_nodelay(socket, true);
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, SILENCE);
    let _ = sockopt::set_tcp_keepintvl(socket, SILENCE);
    let _ = sockopt::set_tcp_keepcnt(socket, QUESTIONS);
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
    let (value, len) = (&UNSENT_BYTES as *const libc::c_int, size_of::<libc::c_int>());
    // SAFETY: the value is a constant of that many bytes, which the call only reads.
    unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, value.cast(), len as _);
    }
}

/// Sends the first of these bytes; gives how many, 0 if none can be taken now.
///
/// # Safety
/// The pieces are readable.
pub(crate) unsafe fn send(socket: BorrowedFd<'_>, pieces: &[Piece]) -> Result<usize> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // Cheaper by some hundredths of a round trip than a message header.
    if let [Piece { start, len, .. }] = *pieces {
        // SAFETY: the caller promises the piece.
        let sent = unsafe { libc::send(socket.as_raw_fd(), start.cast(), len, flags) };
        return was_sent(sent);
    }
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PIECES];
    for (part, piece) in parts.iter_mut().zip(pieces) {
        *part = libc::iovec { iov_base: piece.start.cast_mut().cast(), iov_len: piece.len };
    }
    // SAFETY: all zeros are a message header that names nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = pieces.len().min(PIECES) as _;
    // SAFETY: the header names `parts`, whose pieces the caller promises.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, flags) };
    was_sent(sent)
}

fn was_sent(sent: isize) -> Result<usize> {
    if sent >= 0 { Ok(sent as usize) } else { unless_busy(Error::last_os_error()).map(|()| 0) }
}

/// What has come on a socket.
pub(crate) enum Received {
    /// So many bytes.
    Bytes(usize),
    /// None now.
    Nothing,
    /// None ever.
    End,
}

/// Receives to `direct`, if there is something, and then to `buffer`.
///
/// # Safety
/// `direct` is writable for as many bytes as it says.
pub(crate) unsafe fn receive(
    socket: BorrowedFd<'_>,
    direct: Option<(*mut u8, usize)>,
    buffer: &mut [u8],
) -> Result<Received> {
    // Cheaper by some hundredths of a round trip than a message header.
    if direct.is_none() {
        let (start, len) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the buffer is writable.
        let came = unsafe { libc::recv(socket.as_raw_fd(), start, len, libc::MSG_DONTWAIT) };
        return received(came);
    }
    let mut parts = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2];
    let mut count = 0;
    for (start, len) in direct.into_iter().chain([(buffer.as_mut_ptr(), buffer.len())]) {
        parts[count] = libc::iovec { iov_base: start.cast(), iov_len: len };
        count += 1;
    }
    // SAFETY: as in `send`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = count as _;
    // SAFETY: the header names the buffer, and what the caller promises.
    let came = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_DONTWAIT) };
    received(came)
}

fn received(came: isize) -> Result<Received> {
    match came {
        0 => Ok(Received::End),
        came if came > 0 => Ok(Received::Bytes(came as usize)),
        _ => unless_busy(Error::last_os_error()).map(|()| Received::Nothing),
    }
}

/// Without memory for what is to be sent, the kernel has some later.
fn unless_busy(error: Error) -> Result<()> {
    match (error.kind(), error.raw_os_error()) {
        (ErrorKind::WouldBlock | ErrorKind::Interrupted, _) => Ok(()),
        (_, Some(libc::ENOBUFS | libc::ENOMEM)) => Ok(()),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn sockets_send_at_once_and_keep_little() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        prepare(&socket);
        let (mut value, mut len) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: both are variables of this function, and `len` says how long the value is.
        let got = unsafe {
            let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
            libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &mut len)
        };
        assert_eq!((got, value), (0, UNSENT_BYTES));
        assert!(socket.nodelay().unwrap());
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), SILENCE);
    }
}
