//! One relay of the job, as the launcher knows it.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use memonet_control::events::listen;
use memonet_control::relay::ToRelay;
use memonet_control::stream::{Receiver, Sender};
use memonet_control::vigil::Vigil;

use super::call::{Call, Caller, Role};
use super::node::{Event, Pipe, token};

/// Up to so many hosts, the launcher calls all agents itself, unless the user says otherwise.
const DIRECT: usize = 32;
/// Time for a relay to reach an agent. After that, the launcher calls it itself.
pub const REACH: Duration = Duration::from_secs(5);
/// A relay is lost of whose stream nothing was heard for this long. After the longest cut that a
/// job survives, TCP sends again 3.2 s after the cut began.
pub const SILENCE: Duration = Duration::from_secs(5);

/// A relay on the host of the first of its nodes.
pub struct Relay {
    /// Its place among nodes and relays, for events.
    number: usize,
    pub host: Arc<str>,
    /// The nodes whose agents it calls.
    pub nodes: Range<usize>,
    /// How often it was called.
    pub attempt: usize,
    pub call: Option<Call>,
    pipe: Pipe,
    to: Option<Sender<OwnedFd>>,
    pub from: Option<Receiver<OwnedFd>>,
    /// It has answered with the right version.
    pub has_greeted: bool,
    pub vigil: Vigil,
}

/// The nodes of each relay of a job on so many hosts, of which up to `direct` need none: about as
/// many relays as nodes of each.
pub fn shares(hosts: usize, direct: Option<usize>) -> Vec<Range<usize>> {
    if hosts <= direct.unwrap_or(DIRECT) {
        return Vec::new();
    }
    let each = hosts.isqrt() + usize::from(hosts.isqrt().pow(2) < hosts);
    (0..hosts).step_by(each).map(|first| first..hosts.min(first + each)).collect()
}

impl Relay {
    /// A relay that will be called. `number` is behind those of all nodes.
    pub fn new(number: usize, host: &str, nodes: Range<usize>, pipe: Pipe) -> Relay {
        Relay {
            number,
            host: host.into(),
            nodes,
            attempt: 0,
            call: None,
            pipe,
            to: None,
            from: None,
            has_greeted: false,
            vigil: Vigil::begin(Instant::now()),
        }
    }

    /// Calls it.
    pub fn call(&mut self, caller: &Caller, events: &OwnedFd) -> Result<()> {
        self.pipe.drain()?;
        let call = caller.call(Some(&self.host), self.attempt, Role::Relay, &self.pipe.read)?;
        listen(events, &call.pidfd, token(self.number, Event::End))?;
        rustix::io::ioctl_fionbio(&call.errors, true)?;
        listen(events, &call.errors, token(self.number, Event::Errors))?;
        let from = Receiver::new(call.output.try_clone()?)?;
        listen(events, from.fd(), token(self.number, Event::Output))?;
        self.to = Some(Sender::new(self.pipe.share()?)?);
        (self.call, self.from) = (Some(call), Some(from));
        Ok(())
    }

    pub fn send(&mut self, message: &ToRelay) {
        if let Some(to) = &mut self.to {
            to.send(message);
        }
    }

    /// Adds a heartbeat for all of its agents.
    pub fn beat(&mut self) {
        self.to.iter_mut().for_each(Sender::beat);
    }

    /// Sends what there is room for.
    pub fn flush(&mut self, events: &OwnedFd) -> Result<()> {
        let room = token(self.number, Event::Room);
        self.to.as_mut().map_or(Ok(()), |to| to.flush(events, room))
    }

    /// Whether it has said something that was not read.
    pub fn has_more(&self) -> bool {
        let waits = |from: &Receiver<OwnedFd>| rustix::io::ioctl_fionread(from.fd());
        self.from.as_ref().is_some_and(|from| waits(from).is_ok_and(|n| n > 0))
    }

    /// What its call has written to its standard error, if anything has come.
    pub fn errors(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 4096];
        let read = rustix::io::read(&self.call.as_ref()?.errors, &mut bytes);
        bytes.truncate(read.unwrap_or_default());
        Some(bytes).filter(|bytes| !bytes.is_empty())
    }

    /// Ends it. It passes on nothing more.
    pub fn end(&mut self) {
        (self.to, self.from) = (None, None);
        self.call.iter().for_each(Call::kill);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_about_as_many_as_they_are_long() {
        assert!(shares(DIRECT, None).is_empty() && shares(40, Some(40)).is_empty());
        for hosts in [1, 2, 3, 5, 33, 36, 37, 40, 1000, 4096] {
            let shares = shares(hosts, Some(0));
            let longest = shares.iter().map(ExactSizeIterator::len).max().unwrap();
            assert!(shares.iter().flat_map(Clone::clone).eq(0..hosts), "{shares:?}");
            assert!(shares.len() <= longest && (longest - 1) * (longest - 1) < hosts, "{hosts}");
        }
        assert_eq!(shares(DIRECT + 8, None)[5], 35..40);
    }
}
