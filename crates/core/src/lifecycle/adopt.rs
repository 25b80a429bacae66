//! Jobs of another launcher (`mpirun`, `mpiexec`, `srun`) on one machine. The PEs find each other
//! by themselves, so that programs that use memonet beside MPI can be started as MPI programs.
//!
//! PE 0 makes the job's memory and sends its descriptor to the other PEs, through datagram sockets
//! with abstract names made of the launcher's process and the PE's number. Another PE binds its
//! socket, greets PE 0, and waits for the descriptor. PE 0 binds its own socket, sends the
//! descriptor to all PEs that have bound theirs by then, and after that to each PE that greets it.
//!
//! **I1.** *No PE is left out.* A PE that was not there when PE 0 sent has bound its socket after
//! PE 0 did, and so its greeting arrives.
//!
//! **I2.** *Programs that processes of one launcher start one after the other do not meet.* A PE
//! that has the descriptor gives up its name and then says so, and PE 0 goes on when all have. So
//! what a later PE 0 sends cannot arrive at an earlier PE. A later PE whose greeting an earlier PE
//! 0 has taken has bound its name, and so the later PE 0 finds it.
//!
//! Such a launcher publishes no deaths, and may let the other PEs run. So these PEs [watch each
//! other](crate::lifecycle::watch).

use crate::base::clock::rough_now;
use crate::base::error::{Error, Result};
use crate::base::memory::{self, JOB_FILE};
use crate::base::process::{Identity, Stat, UNKNOWN};
use crate::endpoint::control::Control;
use crate::lifecycle::foreign::Adopted;
use crate::lifecycle::inherit::inherited;
use crate::lifecycle::launch::{JobFile, cpus_of};
use crate::lifecycle::watch::Watch;
use crate::window::descriptors;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, bind, sockopt};
use std::fs::DirEntry;
use std::path::Path;
use std::time::Duration;

/// Added to a PE's number in the message that it has the descriptor.
const HAS: u64 = 1 << 32;
/// Time that a PE waits for the other PEs to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Names of processes that start others for launchers.
const STARTERS: [&str; 9] = [
    "hydra_pmi_proxy",
    "hydra_bstrap_pr",
    "orted",
    "prted",
    "prte",
    "prterun",
    "mpirun",
    "mpiexec",
    "slurmstepd",
];

impl Adopted {
    /// Meets the other PEs. Gives the job, this PE's number in it, and the watch of the others.
    ///
    /// When this returns at PE 0, all PEs have recorded their identities; at another PE, that PE
    /// has.
    pub(crate) fn join(&self) -> Result<(Control, usize, Option<Watch>)> {
        let mine = Identity::mine();
        let watch = mine.map(|mine| Watch::new(self.rank, self.size, mine));
        if let Some(control) = mine.and_then(|mine| left_by_predecessor(self.rank, self.size, mine))
        {
            return Ok((control, self.rank, watch));
        }
        let mut meeting = Meeting::new(self)?;
        let introduce = |control: &Control| {
            if let Some(mine) = mine {
                control.introduce(self.rank, mine);
            }
        };
        let control = if self.rank == 0 {
            let file = JobFile::create(self.size, cpus_of(self.size))?;
            introduce(file.control());
            // PEs that have the job's memory by then must not wait for this one.
            meeting.hand_out(file.fd()).inspect_err(|_| file.depart(0, UNKNOWN))?;
            file.into_control()?
        } else {
            let fd = meeting.ask()?;
            let size =
                memory::sealed_size(&fd).map_err(|problem| Error::ControlPage { problem })?;
            let control = Control::attach(fd, size, self.size, self.rank)?;
            introduce(&control);
            meeting.send(0, HAS, None)?;
            control
        };
        Ok((control, self.rank, watch))
    }
}

/// The job's memory, if this process has met the other PEs already, as another program that has not
/// taken part in anything.
pub(super) fn left_by_predecessor(pe: usize, npes: usize, mine: Identity) -> Option<Control> {
    let name = format!("/memfd:{} (deleted)", JOB_FILE);
    let is_a_job = |entry: &DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|file| file == Path::new(&name))
    };
    let descriptors = std::fs::read_dir("/proc/self/fd").ok()?.flatten().filter(is_a_job);
    let numbers: Vec<usize> =
        descriptors.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let attach = |number| {
        // A descriptor of another job may be closed: the program does not know it.
        let fd = inherited(number).ok()?;
        let size = memory::sealed_size(&fd).ok()?;
        let control = Control::attach(fd, size, npes, pe).ok()?;
        control.is_left_to_successor(pe, mine).then_some(control)
    };
    let control = numbers.into_iter().find_map(attach)?;
    control.mapping().hand_down(false);
    Some(control)
}

/// A PE's socket for meeting the others.
struct Meeting<'a> {
    pes: &'a Adopted,
    socket: OwnedFd,
    place: String,
    /// The moment at which the PE gives up, whatever arrives meanwhile.
    end: Duration,
}

const HINT: &str = "PEs that another launcher starts need Unix sockets, and one network namespace; `memonet run` needs neither";

impl<'a> Meeting<'a> {
    fn new(pes: &'a Adopted) -> Result<Self> {
        let socket = descriptors::open_socket(SocketFlags::empty(), HINT)?;
        let meeting = Meeting { pes, socket, place: starter(), end: rough_now() + START_TIMEOUT };
        bind(&meeting.socket, &meeting.address(pes.rank)?)
            .map_err(|e| Error::system("binding the socket to meet the other PEs", e, HINT))?;
        Ok(meeting)
    }

    fn address(&self, rank: usize) -> Result<SocketAddrUnix> {
        SocketAddrUnix::new_abstract_name(format!("memonet-join-{}-{rank}", self.place).as_bytes())
            .map_err(|e| Error::system("naming a socket", e, HINT))
    }

    /// Sends this PE's number, with [`HAS`] or without, and a descriptor if there is one; false if
    /// the receiver is not there yet.
    fn send(&self, to: usize, says: u64, fd: Option<BorrowedFd<'_>>) -> Result<bool> {
        let bytes = (self.pes.rank as u64 | says).to_ne_bytes();
        loop {
            match descriptors::send(
                &self.socket,
                &self.address(to)?,
                &bytes,
                fd,
                SendFlags::NOSIGNAL,
            ) {
                Ok(()) => return Ok(true),
                Err(Errno::CONNREFUSED) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(e) => return Err(Error::system(format!("sending to PE {to}"), e, HINT)),
            }
        }
    }

    /// Receives the next message: a PE's number, with [`HAS`] or without, and a descriptor.
    fn receive(&self) -> Result<(u64, Option<OwnedFd>)> {
        loop {
            let mut bytes = [0u8; 8];
            let left = self.end.saturating_sub(rough_now());
            let received = if left.is_zero() {
                Err(Errno::TIMEDOUT)
            } else {
                sockopt::set_socket_timeout(&self.socket, sockopt::Timeout::Recv, Some(left))
                    .map_err(|e| Error::system("SO_RCVTIMEO", e, HINT))?;
                descriptors::receive(&self.socket, &mut bytes, RecvFlags::empty())
            };
            let (length, fd) = match received {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(e) => {
                    let Adopted { launcher, size, .. } = self.pes;
                    return Err(Error::system(
                        format!("meeting the other {} PEs that {launcher} has started", size - 1),
                        if e == Errno::AGAIN { Errno::TIMEDOUT } else { e },
                        "All of them have to initialise memonet, on one machine; or start them with `memonet run -n N`",
                    ));
                }
            };
            if length == bytes.len() {
                return Ok((u64::from_ne_bytes(bytes), fd));
            }
        }
    }

    /// Sends the job's memory to every other PE. All have it when this returns.
    fn hand_out(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let mut sent = vec![false; self.pes.size];
        for (rank, sent) in sent.iter_mut().enumerate().skip(1) {
            *sent = self.send(rank, 0, Some(fd))?;
        }
        // I1, I2
        let mut has = vec![false; self.pes.size];
        has[0] = true;
        while has.contains(&false) {
            let (says, _) = self.receive()?;
            let rank = (says & !HAS) as usize;
            if rank == 0 || rank >= self.pes.size {
                continue;
            }
            if says & HAS != 0 {
                has[rank] = true;
            } else if !sent[rank] {
                sent[rank] = self.send(rank, 0, Some(fd))?;
            }
        }
        Ok(())
    }

    /// Asks PE 0 for the job's memory. When this returns, this PE's name is free again, but PE 0
    /// does not know that yet.
    fn ask(&mut self) -> Result<OwnedFd> {
        // I1: if PE 0 is not there yet, it will find this PE.
        self.send(0, 0, None)?;
        loop {
            if let (0, Some(fd)) = self.receive()? {
                // I2: closes the socket with the name.
                self.socket = descriptors::open_socket(SocketFlags::empty(), HINT)?;
                return Ok(fd);
            }
        }
    }
}

/// A name that all processes of a job share and no other job has: of the process that started them,
/// and of the launcher's job.
fn starter() -> String {
    let is_starter = |stat: &Stat| STARTERS.contains(&stat.name.as_str());
    let parent = std::os::unix::process::parent_id() as i32;
    let mut pid = parent;
    // A shell or a debugger may have been started in between.
    while let Some(stat) = Stat::of(pid).filter(|stat| !is_starter(stat) && stat.parent > 1) {
        pid = stat.parent;
    }
    let pid = if Stat::of(pid).is_some_and(|stat| is_starter(&stat)) { pid } else { parent };
    let since = Stat::of(pid).map_or(0, |stat| stat.started);
    let namespace: String = ["PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"]
        .iter()
        .filter_map(|name| std::env::var(name).ok())
        .collect();
    let namespace = namespace
        .bytes()
        .fold(0u64, |hash, byte| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
    format!("{}-{pid}-{since}-{namespace:x}", rustix::process::getuid().as_raw())
}

#[cfg(all(test, not(any(loom, miri))))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Messages do not extend the time that a PE waits for the others.
    #[test]
    fn messages_give_the_missing_no_more_time() {
        const MOST: usize = 1000;
        let pe = |rank| Adopted { launcher: "a test", rank, size: 4002 };
        let (listens, talks) = (pe(4000), pe(4001));
        let (mut listener, talker) =
            (Meeting::new(&listens).unwrap(), Meeting::new(&talks).unwrap());
        let over = AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let talking = scope.spawn(|| {
                let sent = (0..MOST).take_while(|_| !over.load(Ordering::Relaxed)).map(|_| {
                    assert!(talker.send(4000, 0, None).unwrap());
                    std::thread::sleep(Duration::from_millis(5));
                });
                sent.count()
            });
            listener.end = rough_now() + Duration::from_millis(100);
            let ended = std::iter::repeat_with(|| listener.receive()).find(Result::is_err);
            over.store(true, Ordering::Relaxed);
            assert!(matches!(ended, Some(Err(Error::System { .. }))), "it waits until an error");
            talking.join().unwrap()
        });
        assert!((1..MOST).contains(&sent), "messages until it gave up: {sent}");
    }
}
