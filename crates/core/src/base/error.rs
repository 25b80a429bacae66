//! Every error of the library: what happened, why, and what to do about it.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// Result of a memonet call.
pub type Result<T> = std::result::Result<T, Error>;

/// [`Result`] inside of the library: an error is a pointer, so that a result travels in registers.
pub(crate) type Quick<T> = std::result::Result<T, Box<Error>>;

impl From<Box<Error>> for Error {
    fn from(boxed: Box<Error>) -> Self {
        *boxed
    }
}

/// How a PE left the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Killed by this signal.
    Signal(i32),
    /// Ended with this exit status without finalising (0 means `_exit(0)`); -1 where nobody could
    /// see the status.
    Exit(i32),
    /// A PE of [`Job::threads`](crate::Job::threads) panicked.
    Panic,
    /// Finalised, in order, while this PE still waited for it.
    Finalized,
    /// Its host is lost, or the agent that started it there.
    Host(Lost),
    /// It may live: the connection between it and this PE has broken.
    Unreachable,
}

/// How it was noticed that a host is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// Nothing was heard of it for 2.4 seconds.
    Silent,
    /// The connection to its agent has closed.
    Closed,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cause::Signal(s) => write!(f, "killed by signal {s} ({})", signal_name(*s)),
            Cause::Exit(0) => write!(f, "left with _exit(0), without finalising"),
            Cause::Exit(-1) => f.write_str("ended without finalising"),
            Cause::Exit(c) => write!(f, "ended with exit status {c}"),
            Cause::Panic => write!(f, "panicked"),
            Cause::Finalized => write!(f, "finalised while others still waited for it"),
            Cause::Host(Lost::Silent) => {
                f.write_str("its host is lost: nothing was heard of it for 2.4 seconds")
            }
            Cause::Unreachable => {
                f.write_str("the connection to it has broken, and nobody says that it has ended")
            }
            Cause::Host(Lost::Closed) => {
                f.write_str("its host is lost: the connection to memonet's agent there has closed")
            }
        }
    }
}

fn on(host: Option<&str>) -> String {
    host.map_or_else(String::new, |host| format!(" on {host}"))
}

/// The usual name of a signal, for messages.
pub fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT, abort",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV, invalid memory access",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU, CPU time limit",
        libc::SIGXFSZ => "SIGXFSZ, file size limit",
        libc::SIGSYS => "SIGSYS",
        _ => "see signal(7)",
    }
}

/// The call of a program that has failed.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// The function.
    pub name: &'static str,
    /// The PE that called it.
    pub pe: usize,
    /// Where the program called it.
    pub at: &'static Location<'static>,
    /// Where the program has made the window that was used, if one was.
    pub window: Option<&'static Location<'static>>,
}

impl Call {
    /// The call that the program makes here.
    #[inline(always)]
    #[track_caller]
    pub(crate) fn here(
        name: &'static str,
        pe: usize,
        window: Option<&'static Location<'static>>,
    ) -> Call {
        Call { name, pe, at: Location::caller(), window }
    }

    /// Makes the call: its error names it. Where all goes well, costs nothing.
    #[inline(always)]
    pub(crate) fn of<R>(self, call: impl FnOnce() -> Result<R>) -> Result<R> {
        self.of_any(call)
    }

    /// [`of`](Self::of) a function with errors of its own form.
    #[inline(always)]
    pub(crate) fn of_any<R, E: Into<Error>>(
        self,
        call: impl FnOnce() -> std::result::Result<R, E>,
    ) -> Result<R> {
        match call() {
            Ok(value) => Ok(value),
            Err(error) => Err(error.into().of_call(Some(self))),
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Call { name, pe, at, window } = self;
        write!(f, "PE {pe}, {name} at {at}")?;
        window.map_or(Ok(()), |made| write!(f, ", of the window made at {made}"))
    }
}

fn called(call: &Option<Box<Call>>) -> String {
    call.as_ref().map_or_else(String::new, |call| format!(" ({call})"))
}

/// What a memonet call can fail with. Each message names the cause and the fix.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A PE that this call depends on is gone.
    #[error("PE {pe}{} failed: {cause}{}", on(host.as_deref()), called(call))]
    PeerFailed {
        /// The PE that is gone.
        pe: usize,
        /// How it went.
        cause: Cause,
        /// Its host, in a job on several.
        host: Option<Arc<str>>,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// The fabric between the PEs refused or failed; it names cause and fix.
    #[error("{fabric}: {problem}{}", called(call))]
    Fabric {
        /// Its name.
        fabric: &'static str,
        /// What it says.
        problem: String,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// The deadline given to a wait passed.
    #[error("still waiting after {after:?}, the deadline given to this wait{}", called(call))]
    Timeout {
        /// The deadline that was given.
        after: Duration,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// This PE's front end has ended the wait, by [`wait::Attention`](crate::wait::Attention).
    /// After a collective call the team can be used no more, as after
    /// [`PeerFailed`](Self::PeerFailed): members no longer agree on the next call. A PE that waited
    /// for a [`Lock`](crate::Lock) keeps its place in the queue, so no PE behind it gets the lock.
    /// Any other wait can be made again.
    #[error(
        "interrupted while this PE waited for {waiting}: its front end (Ctrl-C, say) asked for that. After a collective call or a lock, end the program, or go on without that team or lock{}",
        called(call)
    )]
    Interrupted {
        /// What it waited for, and which PEs were missing.
        waiting: String,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// A range outside of a window, region or block.
    #[error(
        "elements {index}..{index}+{count} are not all among the {len} that there are{}",
        called(call)
    )]
    OutOfBounds {
        /// First element asked for.
        index: usize,
        /// Number of elements asked for.
        count: usize,
        /// Elements that there are; in a window, per PE.
        len: usize,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// Index or size arithmetic that does not fit an address.
    #[error(
        "the byte offset of {index} elements of {size} bytes overflows an address{}",
        called(call)
    )]
    Overflow {
        /// Index or count of elements.
        index: usize,
        /// Bytes per element.
        size: usize,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// There is no such PE.
    #[error("there is no PE {pe}: the job (or team) has {npes}, numbered 0 to {}{}", npes - 1, called(call))]
    NoSuchPe {
        /// PE asked for.
        pe: usize,
        /// PEs there are.
        npes: usize,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// A word that is not aligned to its own size.
    #[error(
        "byte offset {offset} is not a multiple of the word's size, {size}: word operations need aligned words{}",
        called(call)
    )]
    Misaligned {
        /// Byte offset from the start of the window's part.
        offset: usize,
        /// Size of the word.
        size: usize,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// The window's access mode, or this PE's right to it, does not allow the operation.
    #[error(
        "no {wanted} access to PE {pe}'s part of this window: this PE has {granted:?}; ask the creator for the right{}",
        called(call)
    )]
    AccessDenied {
        /// PE whose part was asked for.
        pe: usize,
        /// What was asked for.
        wanted: &'static str,
        /// What this PE was granted.
        granted: crate::base::access::Access,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// A key that no window of this job ever had.
    #[error(
        "this key opens no window of PE {pe}: it was not made by that PE in this job, or its bytes were changed on the way{}",
        called(call)
    )]
    WrongKey {
        /// PE that the key names.
        pe: usize,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// A key that was valid once.
    #[error(
        "PE {pe} has revoked this key (key's epoch {key_epoch}, now {epoch}): ask it for a new one{}",
        called(call)
    )]
    Revoked {
        /// PE that revoked it.
        pe: usize,
        /// Epoch that the key carries.
        key_epoch: u64,
        /// Epoch now in force.
        epoch: u64,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// Two lengths that must match do not.
    #[error("{what}: {left} and {right}, which do not match{}", called(call))]
    Length {
        /// Which two.
        what: &'static str,
        /// The first.
        left: usize,
        /// The second.
        right: usize,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// A collective call was made with different arguments.
    #[error(
        "collective {call}: PE {pe} called it with {theirs}, this PE with {ours}; every member must make the same calls in the same order{}",
        called(at)
    )]
    Unequal {
        /// The collective call.
        call: &'static str,
        /// PE with the different argument.
        pe: usize,
        /// What it asked for.
        theirs: String,
        /// What this PE asked for.
        ours: String,
        /// The call that failed, where it was one of this program.
        at: Option<Box<Call>>,
    },
    /// Members of a team are in different collective calls.
    #[error(
        "PE {pe} is in another collective call, {theirs}, this PE in {ours}; every member must make the same calls in the same order{}",
        called(call)
    )]
    OtherCall {
        /// PE in the other call.
        pe: usize,
        /// What it called.
        theirs: String,
        /// What this PE called.
        ours: String,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// The segment has no free range of that size.
    #[error(
        "no room for {bytes} bytes in a segment of {capacity}{} ({free} free in pieces): free windows, or raise MEMONET_SEGMENT_SIZE{}",
        crate::base::settings::origin(crate::base::settings::ENV_SEGMENT_SIZE),
        called(call)
    )]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes of the heap of each segment.
        capacity: u64,
        /// Bytes free in all.
        free: u64,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// The writer of a multicast channel has left, and all that it published was read.
    #[error(
        "the writer of this multicast channel has left, and all that it published was read{}",
        called(call)
    )]
    Closed {
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// Nothing came from the other end of a multicast channel by datagrams, which may be alive.
    #[error(
        "nothing was heard of PE {pe} for {after:?} on a multicast channel by datagrams: these do not pass between it and this PE, or it is stopped, or computes for so long without a call that waits. Let UDP multicast pass (firewall, switch, route), or set MEMONET_MULTICAST=tree{}",
        called(call)
    )]
    Silent {
        /// Of whom nothing was heard.
        pe: usize,
        /// For how long.
        after: Duration,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// This reader of a multicast channel was dropped by the writer.
    #[error(
        "this PE was dropped from a multicast channel, as it stopped the writer for too long, or was not heard of: read faster, or make the channel with more capacity or a longer `drop_slow`{}",
        called(call)
    )]
    Dropped {
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// A table of fixed size is full.
    #[error("too many {what} at once: there can be {limit}{}", called(call))]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// An environment variable that cannot be right.
    #[error("{name}={value:?} {problem}. {fix}")]
    Environment {
        /// Variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        fix: &'static str,
    },
    /// The job's shared memory is not what this library expects.
    #[error(
        "the job's control page {problem}. Start all programs of a job with the `memonet run` of the same memonet version"
    )]
    ControlPage {
        /// What is wrong with it.
        problem: String,
    },
    /// Started by a launcher through which memonet cannot join.
    #[error(
        "started by {launcher} as one of {size} processes, which it gives no way to find each other: memonet would be {size} jobs of one PE. Start it with `srun --mpi=pmi2` under Slurm, or with `memonet run -n {size} PROGRAM`, or unset {variable} to run alone"
    )]
    ForeignLauncher {
        /// Launcher that was recognised.
        launcher: &'static str,
        /// Processes it started.
        size: usize,
        /// Variable by which it was recognised.
        variable: &'static str,
    },
    /// The operating system refused something.
    #[error("{call}: {answer}. {hint}")]
    System {
        /// What was tried.
        call: String,
        /// The system's answer.
        answer: std::io::Error,
        /// What usually helps.
        hint: &'static str,
    },
    /// Two PEs changed one element of a region, and neither had seen what the other did.
    #[error(
        "a data race: PE {first} and PE {second} both wrote element {element} of this region, and PE {second} had not acquired what PE {first} released; order the two with a lock or a barrier{}",
        called(call)
    )]
    DataRace {
        /// The first one of the elements.
        element: usize,
        /// The PE that released it first.
        first: usize,
        /// The PE that released it then.
        second: usize,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
    /// A call that this state of the job or object does not allow.
    #[error("{why}{}", called(call))]
    Misuse {
        /// What is wrong, and what to do.
        why: &'static str,
        /// The call that failed, where it was one of this program.
        call: Option<Box<Call>>,
    },
}

impl Error {
    /// The call of the program that failed, where that is known.
    pub fn call(&self) -> Option<&Call> {
        match self {
            Error::PeerFailed { call, .. }
            | Error::Timeout { call, .. }
            | Error::OutOfBounds { call, .. }
            | Error::Overflow { call, .. }
            | Error::NoSuchPe { call, .. }
            | Error::Misaligned { call, .. }
            | Error::AccessDenied { call, .. }
            | Error::Length { call, .. }
            | Error::Fabric { call, .. }
            | Error::WrongKey { call, .. }
            | Error::Revoked { call, .. }
            | Error::DataRace { call, .. }
            | Error::Interrupted { call, .. }
            | Error::OtherCall { call, .. }
            | Error::Unequal { at: call, .. }
            | Error::OutOfMemory { call, .. }
            | Error::Closed { call }
            | Error::Silent { call, .. }
            | Error::Dropped { call }
            | Error::TooMany { call, .. }
            | Error::Misuse { call, .. } => call.as_deref(),
            _ => None,
        }
    }

    /// The error of another call of the program, or of none that a message should name.
    #[cold]
    pub fn of_call(mut self, of: Option<Call>) -> Self {
        match &mut self {
            Error::PeerFailed { call, .. }
            | Error::Timeout { call, .. }
            | Error::OutOfBounds { call, .. }
            | Error::Overflow { call, .. }
            | Error::NoSuchPe { call, .. }
            | Error::Misaligned { call, .. }
            | Error::AccessDenied { call, .. }
            | Error::Length { call, .. }
            | Error::Fabric { call, .. }
            | Error::WrongKey { call, .. }
            | Error::Revoked { call, .. }
            | Error::DataRace { call, .. }
            | Error::Interrupted { call, .. }
            | Error::OtherCall { call, .. }
            | Error::Unequal { at: call, .. }
            | Error::OutOfMemory { call, .. }
            | Error::Closed { call }
            | Error::Silent { call, .. }
            | Error::Dropped { call }
            | Error::TooMany { call, .. }
            | Error::Misuse { call, .. } => *call = of.map(Box::new),
            _ => {}
        }
        self
    }

    /// The error of a call that the state of the job or object does not allow.
    pub const fn misuse(why: &'static str) -> Self {
        Error::Misuse { why, call: None }
    }

    pub(crate) fn system(
        call: impl Into<String>,
        answer: impl Into<std::io::Error>,
        hint: &'static str,
    ) -> Self {
        Error::System { call: call.into(), answer: answer.into(), hint }
    }
}

/// The message: it is what people see of an error that `main` returns, or that is unwrapped.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
