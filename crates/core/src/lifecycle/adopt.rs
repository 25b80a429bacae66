//! Started by another launcher (`mpirun`, `mpiexec`, `srun`) on one machine: the PEs find each
//! other by themselves, so that programs that use memonet beside MPI work, started as MPI programs
//! are.
//!
//! PE 0 makes the job's memory and hands it to the others, through datagram sockets with abstract
//! names made of the launcher's process and the PE's number. A PE binds its socket, greets PE 0,
//! and waits for the descriptor. PE 0 binds its own, sends the descriptor to all who have bound
//! theirs by then, and after that to each who greets it. *None is left out:* who was not there when
//! PE 0 sent has bound after PE 0 did, and so its greeting arrives.
//!
//! *Programs that the same launcher's processes start one after the other do not meet.* A PE that
//! has the descriptor gives up its name and then says so, and PE 0 goes on when all have: what a
//! later PE 0 sends cannot arrive at an earlier PE. A later PE whose greeting an earlier PE 0 has
//! taken has bound its name, and so is found by the later PE 0.
//!
//! The other launcher tells nobody of deaths, and may let the others run: so these PEs [look after
//! each other](crate::lifecycle::watch).

use crate::base::clock::rough_now;
use crate::base::error::{Error, Result};
use crate::base::memory;
use crate::base::memory::JOB_FILE;
use crate::base::process::Identity;
use crate::base::process::{Stat, UNKNOWN};
use crate::endpoint::control::Control;
use crate::lifecycle::inherit::inherited;
use crate::lifecycle::launch::{JobFile, available_cpus};
use crate::lifecycle::watch::Watch;
use crate::window::descriptors;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, bind, sockopt};
use std::fs::DirEntry;
use std::path::Path;
use std::time::Duration;

/// Added to the number of a PE that has the descriptor.
const HAS: u64 = 1 << 32;
/// How long a PE waits for the others to be started.
const PATIENCE: Duration = Duration::from_secs(30);

/// Launchers, and the variables by which they say how many processes they have started, which of
/// them this is, and how many run here.
const KNOWN: [(&str, [&str; 3]); 4] = [
    (
        "Open MPI's mpirun",
        ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    ),
    ("an MPI launcher (PMI)", ["PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"]),
    ("Slurm's srun", ["SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"]),
    ("PALS", ["PALS_NRANKS", "PALS_RANKID", "PALS_LOCAL_SIZE"]),
];
/// Names of processes that start others for these launchers.
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

/// This process's place among those that another launcher has started.
pub(crate) struct Adopted {
    launcher: &'static str,
    rank: usize,
    size: usize,
}

/// Whether another launcher has started this process as one of several.
///
/// # Errors
/// [`Error::ForeignLauncher`] when they cannot form a job: each would believe that it is alone.
pub(crate) fn found() -> Result<Option<Adopted>> {
    let number = |variable: &str| std::env::var(variable).ok()?.trim().parse::<usize>().ok();
    let mut refused = None;
    for (launcher, [size_in, rank_in, local_in]) in KNOWN {
        let size = number(size_in).unwrap_or(1);
        if size > 1 {
            let several_nodes = launcher.contains("Slurm")
                && number("SLURM_STEP_NUM_NODES").is_some_and(|nodes| nodes > 1);
            if let Some(rank) = number(rank_in)
                .filter(|&rank| rank < size && number(local_in) == Some(size) && !several_nodes)
            {
                return Ok(Some(Adopted { launcher, rank, size }));
            }
            // Slurm has variables of other launchers, too, but not all of theirs.
            refused.get_or_insert(Error::ForeignLauncher { launcher, size, variable: size_in });
        }
    }
    refused.map_or(Ok(None), Err)
}

/// Whether another launcher has started this process, if only as the only one.
pub(crate) fn is_launched() -> bool {
    let launched = |(_, [size, ..]): &(&str, [&str; 3])| std::env::var_os(size).is_some();
    KNOWN.iter().any(launched) && found().is_ok()
}

impl Adopted {
    /// The number of this PE in the job.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Meets the others. Gives the job, this PE's number in it, and what looks after the others.
    ///
    /// All PEs have said which process they are when this returns at PE 0; at another PE, that one
    /// has.
    pub(crate) fn join(&self) -> Result<(Control, usize, Option<Watch>)> {
        let mine = Identity::mine();
        let watch = mine.map(|mine| Watch::new(self.rank, self.size, mine));
        if let Some(control) = mine.and_then(|mine| self.left_by_predecessor(mine)) {
            return Ok((control, self.rank, watch));
        }
        let mut meeting = Meeting::new(self)?;
        let introduce = |control: &Control| {
            if let Some(mine) = mine {
                control.introduce(self.rank, mine);
            }
        };
        let control = if self.rank == 0 {
            let file = JobFile::create(self.size, self.cpus())?;
            introduce(file.control());
            // Those that have the job's memory by then are not to wait for this PE.
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

    /// The job's memory, where this process has met the others already, as another program, which
    /// has not taken part in anything.
    fn left_by_predecessor(&self, mine: Identity) -> Option<Control> {
        let name = format!("/memfd:{} (deleted)", JOB_FILE);
        let is_a_job = |entry: &DirEntry| {
            std::fs::read_link(entry.path()).is_ok_and(|file| file == Path::new(&name))
        };
        let descriptors = std::fs::read_dir("/proc/self/fd").ok()?.flatten().filter(is_a_job);
        let numbers: Vec<usize> =
            descriptors.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let attach = |number| {
            // The program knows nothing of it: what is not this PE's may be closed.
            let fd = inherited(number).ok()?;
            let size = memory::sealed_size(&fd).ok()?;
            let control = Control::attach(fd, size, self.size, self.rank).ok()?;
            control.is_left_to_successor(self.rank, mine).then_some(control)
        };
        let control = numbers.into_iter().find_map(attach)?;
        control.mapping().hand_down(false);
        Some(control)
    }

    /// CPUs of all PEs together: where the launcher has bound this one to some, the others have as
    /// many of their own.
    fn cpus(&self) -> usize {
        // SAFETY: asks for a number.
        let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1) as usize;
        match available_cpus() {
            mine if mine < online => (mine * self.size).min(online),
            mine => mine,
        }
    }
}

/// A PE's socket.
struct Meeting<'a> {
    pes: &'a Adopted,
    socket: OwnedFd,
    place: String,
    /// When it waits no longer, whatever arrives meanwhile.
    end: Duration,
}

const HINT: &str = "PEs that another launcher starts need Unix sockets, and one network namespace; `memonet run` needs neither";

impl<'a> Meeting<'a> {
    fn new(pes: &'a Adopted) -> Result<Self> {
        let socket = descriptors::open_socket(SocketFlags::empty(), HINT)?;
        let meeting = Meeting { pes, socket, place: starter(), end: rough_now() + PATIENCE };
        bind(&meeting.socket, &meeting.address(pes.rank)?)
            .map_err(|e| Error::system("binding the socket to meet the other PEs", e, HINT))?;
        Ok(meeting)
    }

    fn address(&self, rank: usize) -> Result<SocketAddrUnix> {
        SocketAddrUnix::new_abstract_name(format!("memonet-join-{}-{rank}", self.place).as_bytes())
            .map_err(|e| Error::system("naming a socket", e, HINT))
    }

    /// Sends this PE's number, or that with [`HAS`], and perhaps a descriptor; false when the
    /// receiver is not there yet.
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

    /// The next message of a PE of this user: its number, perhaps with [`HAS`], and the descriptor
    /// in it.
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

    /// Gives every other PE the job's memory; all have it when this returns.
    fn hand_out(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let mut sent = vec![false; self.pes.size];
        for (rank, sent) in sent.iter_mut().enumerate().skip(1) {
            *sent = self.send(rank, 0, Some(fd))?;
        }
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

    /// Asks PE 0 for the job's memory. This PE's name is free again when it returns, which PE 0 is
    /// still to be told.
    fn ask(&mut self) -> Result<OwnedFd> {
        // Where it is not there yet, it will look for this PE.
        self.send(0, 0, None)?;
        loop {
            if let (0, Some(fd)) = self.receive()? {
                // Closes the one with the name.
                self.socket = descriptors::open_socket(SocketFlags::empty(), HINT)?;
                return Ok(fd);
            }
        }
    }
}

/// What all processes of one job have in common and no other job has: the process that started
/// them, and what the launcher calls the job.
fn starter() -> String {
    let is_starter = |stat: &Stat| STARTERS.contains(&stat.name.as_str());
    let parent = std::os::unix::process::parent_id() as i32;
    let mut pid = parent;
    // A shell or a debugger may stand in between.
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

    /// Whatever arrives, a PE waits for the others no longer than it says.
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
