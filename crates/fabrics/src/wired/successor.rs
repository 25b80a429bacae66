//! A program that a PE becomes by `exec` before it takes part in its job: it finds the channel to
//! the agent among its descriptors, by the name that the agent has given it.

use memonet_core::Result;
use rustix::fd::{BorrowedFd, FromRawFd, OwnedFd};
use rustix::net::{SocketAddrUnix, bind, getsockname};

use super::common::system;

/// How the name of the channel of a process begins. The number is that which the process has for
/// itself, and keeps.
fn prefix(pid: u32) -> Vec<u8> {
    format!("memonet-seat-{pid}-").into_bytes()
}

/// Names a PE's end of its channel. The PE's number keeps names apart: processes of several PID
/// namespaces may have one number, and those that have ended early have none, which is 0.
pub fn name(channel: &OwnedFd, pid: u32, job: &[u8; 16], pe: u32) -> Result<()> {
    let rest = format!("{:032x}-{pe}", u128::from_le_bytes(*job));
    let name = [prefix(pid), rest.into_bytes()].concat();
    SocketAddrUnix::new_abstract_name(&name)
        .and_then(|name| bind(channel, &name))
        .map_err(|e| system("naming a channel", e, "PEs of several hosts need Unix sockets"))
}

/// The channel that the program has left which this process was before.
pub fn left() -> Option<OwnedFd> {
    let prefix = prefix(std::process::id());
    let entries = std::fs::read_dir("/proc/self/fd").ok()?.flatten();
    let numbers: Vec<i32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let is_left = |&number: &i32| {
        // SAFETY: asks the kernel about a number, which it answers with an error for a bad one. It
        // is borrowed for this call.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let name = getsockname(fd).ok().and_then(|name| SocketAddrUnix::try_from(name).ok());
        name.is_some_and(|name| name.abstract_name().is_some_and(|n| n.starts_with(&prefix)))
    };
    let number = numbers.into_iter().filter(|&number| number > 2).find(is_left)?;
    // SAFETY: it is open, and nothing in this program owns it: the program before has left it, and
    // this one does not know it.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wired::post;

    #[test]
    fn only_a_channel_of_this_process_is_found() {
        let ((a, _a), (b, _b)) = (post::pair().unwrap(), post::pair().unwrap());
        name(&a, std::process::id() + 1, &[1; 16], 0).unwrap();
        assert!(left().is_none());
        name(&b, std::process::id(), &[1; 16], 1).unwrap();
        // Both own the descriptor now.
        let found = std::mem::ManuallyDrop::new(left().unwrap());
        assert_eq!(std::os::fd::AsRawFd::as_raw_fd(&*found), std::os::fd::AsRawFd::as_raw_fd(&b));
    }

    #[test]
    fn processes_with_one_number_have_channels_of_their_own() {
        let ((a, _a), (b, _b)) = (post::pair().unwrap(), post::pair().unwrap());
        name(&a, 0, &[2; 16], 0).unwrap();
        name(&b, 0, &[2; 16], 1).unwrap();
    }
}
