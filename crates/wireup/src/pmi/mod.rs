//! PMI-1, which Hydra and `srun --mpi=pmi2` speak on the descriptor `PMI_FD`.
//!
//! A request and its answer are a line each. The descriptor belongs to the program's MPI too, so
//! these rules hold:
//!
//! * Only [`Pmi::end`] sends `finalize`: the server closes the connection, which MPI may need.
//! * Hydra kills all processes when the connection of one closes without `finalize`, once anything
//!   was said on it. So the process that looks after a node's PEs holds a
//!   [copy](Pmi::descriptor) of each connection until all of them have ended.
//! * Between two calls the server owes no answer: MPI would take it for its own.
//! * MPI may have sent `init` already, or may send it later. Hydra answers each `init`; Slurm only
//!   the first one ([`Pmi::answers_init_once`]), so that an MPI that comes later needs a [`Relay`].
//! * Slurm's server takes one `read` of 1,024 bytes for one request, so no line is longer, and none
//!   is sent before the last one was answered.
//! * Programs that the same processes run one after the other share a store, which keeps every
//!   value. Each program counts its forerunners by their marks, and has keys of its own.

mod answer;
mod parts;
mod relay;
mod stream;

use crate::error::{Error, Result};
use crate::exchange::Exchange;
use answer::Answer;
pub use relay::Relay;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use stream::{Lost, Stream};

const NAME: &str = "the launcher (PMI-1)";
const INIT: &str = "cmd=init pmi_version=1 pmi_subversion=1\n";
const GET_MAXES: &str = "cmd=get_maxes\n";
const GET_NAME: &str = "cmd=get_my_kvsname\n";
/// What Slurm's server reads of a request.
const LONGEST_LINE: usize = 1024;
/// Keys have room for this module's prefix, a PE and a part beside 20 characters of the caller's.
const SHORTEST_KEY: usize = 63;
/// Programs that processes can run one after the other.
const MOST_RUNS: u32 = 10_000;

/// How long answers may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long each answer may take but that of a fence.
    pub answer: Duration,
    /// How long the answer to `init` may take before this process asks whether MPI has sent it.
    pub init: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { answer: Duration::from_secs(30), init: Duration::from_secs(2) }
    }
}

/// A process's end of PMI-1.
pub struct Pmi {
    stream: Stream,
    limits: Limits,
    rank: u32,
    size: u32,
    kvs: String,
    longest_value: usize,
    /// How many programs these processes have run before.
    run: u32,
    answers_init_once: bool,
    broken: bool,
}

impl Pmi {
    /// The connection that this process's launcher has left in `PMI_FD`, if it has.
    ///
    /// # Errors
    /// Any [`Error`] of the launcher's.
    pub fn inherit() -> Result<Option<Self>> {
        let number = |name| -> Result<u32> {
            let value = std::env::var_os(name).unwrap_or_default().to_string_lossy().into_owned();
            let number = value.trim().parse::<u32>().ok().filter(|&number| number <= 1 << 30);
            number.ok_or(Error::Environment { name, value, problem: "is not a number" })
        };
        if std::env::var_os("PMI_FD").is_none() {
            return Ok(None);
        }
        let (fd, rank, size) = (number("PMI_FD")?, number("PMI_RANK")?, number("PMI_SIZE")?);
        if rank >= size {
            let problem = "is not below PMI_SIZE";
            let value = rank.to_string();
            return Err(Error::Environment { name: "PMI_RANK", value, problem });
        }
        // SAFETY: asks the kernel whether there is such a descriptor; a number that is none is
        // answered with an error. It is borrowed for this call.
        let named = unsafe { BorrowedFd::borrow_raw(fd as i32) };
        // The original is MPI's.
        let own = rustix::io::fcntl_dupfd_cloexec(named, 3).map_err(|_| Error::Environment {
            name: "PMI_FD",
            value: fd.to_string(),
            problem: "is not an open descriptor: a program in between has closed it",
        })?;
        Self::init(own, rank, size, Limits::default()).map(Some)
    }

    /// Begins to speak on a connection, as process `rank` of `size`.
    ///
    /// # Errors
    /// Any [`Error`] of the launcher's.
    pub fn init(fd: OwnedFd, rank: u32, size: u32, limits: Limits) -> Result<Self> {
        let mut pmi = Pmi {
            stream: Stream::new(fd),
            limits,
            rank,
            size,
            kvs: String::new(),
            longest_value: 0,
            run: 0,
            answers_init_once: false,
            broken: false,
        };
        pmi.say_init()?;
        pmi.learn_limits()?;
        pmi.kvs = pmi.name_of_store()?;
        let of = |run| key(run, rank, "run", 0);
        while pmi.lookup(&of(pmi.run))?.is_some() {
            pmi.run += 1;
            if pmi.run > MOST_RUNS {
                return Err(refuse("get", "a value", "was put by nobody"));
            }
        }
        pmi.store(&of(pmi.run), "1")?;
        Ok(pmi)
    }

    /// The connection, for a process that is to keep it open.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.descriptor()
    }

    /// Ends the session of a process that is no more, by a copy of its connection: what nobody has
    /// ended, Hydra takes for a failure. A session that MPI has ended is left alone. Gives the
    /// connection back: under `-disable-auto-cleanup`, Hydra signals all processes when it closes.
    pub fn end_for(connection: OwnedFd, limit: Duration) -> OwnedFd {
        let (stream, end) = (Stream::new(connection), Instant::now() + limit);
        let mut is_open = stream.send("cmd=finalize\n").is_ok();
        while is_open {
            // The answer to a request of the process may come before.
            let line = stream.one_of_lines(end);
            is_open = line.is_ok_and(|line| !line.starts_with(b"cmd=finalize_ack"));
        }
        stream.into_descriptor()
    }

    /// Ends the session, of a process that ends in order and whose MPI needs it no more.
    ///
    /// # Errors
    /// Any [`Error`] of the launcher's. One whose MPI has ended the session is no longer there.
    pub fn end(mut self) -> Result<()> {
        const ASK: &str = "finalize";
        let line = self.ask(ASK, "cmd=finalize\n")?;
        check(ASK, &line, "finalize_ack", |answer| Ok(answer.is_success()? != Some(false)))
    }

    /// Whether the server has not answered this process's `init`, as the program's MPI had sent one
    /// before: as Slurm's does.
    pub fn answers_init_once(&self) -> bool {
        self.answers_init_once
    }

    /// The node of each process as the launcher tells it, in its own words.
    ///
    /// # Errors
    /// Any [`Error`] of the launcher's.
    pub fn process_mapping(&mut self) -> Result<Option<String>> {
        self.lookup("PMI_process_mapping")
    }

    fn say_init(&mut self) -> Result<()> {
        const ASK: &str = "init";
        let is_right = |answer: &Answer<'_>| {
            let version = answer.number("pmi_version")?;
            Ok(answer.is_success()? == Some(true) && version == Some(1))
        };
        self.send(INIT)?;
        let early = Instant::now() + self.limits.init.min(self.limits.answer);
        match self.stream.line(early) {
            Ok(line) => return check(ASK, &line, "response_to_init", is_right),
            Err(Lost::Silence) => {}
            Err(lost) => return Err(self.lost(ASK, lost, self.limits.init)),
        }
        // An MPI that has initialised already has taken the only answer, or the server is slow. It
        // answers in order: what comes first says which. A slow one may have read both requests at
        // once, and dropped the second; then the third brings the streams into step again.
        self.send(GET_MAXES)?;
        let end = Instant::now() + self.limits.answer;
        let line = self.one_of_lines(ASK, end)?;
        if parse(ASK, &line)?.command() == "maxes" {
            self.answers_init_once = true;
            return Ok(());
        }
        check(ASK, &line, "response_to_init", is_right)?;
        self.send(GET_NAME)?;
        let mut line = self.one_of_lines(ASK, end)?;
        if parse(ASK, &line)?.command() == "maxes" {
            line = self.receive(ASK, end)?;
        }
        check(ASK, &line, "my_kvsname", |_| Ok(true))
    }

    fn learn_limits(&mut self) -> Result<()> {
        const ASK: &str = "get_maxes";
        let line = self.ask(ASK, GET_MAXES)?;
        let mut limits = (0, 0);
        check(ASK, &line, "maxes", |answer| {
            let of =
                |name| Ok::<_, &'static str>(answer.number(name)?.unwrap_or(0).max(0) as usize);
            limits = (of("keylen_max")?, of("vallen_max")?);
            Ok(answer.is_success()? != Some(false))
        })?;
        // Both count the byte at the end of a C string.
        if limits.0 <= SHORTEST_KEY || limits.1 < 128 {
            let text = String::from_utf8_lossy(&line).into_owned();
            return Err(refuse(ASK, &text, "leaves too little room for keys or values"));
        }
        self.longest_value = limits.1 - 1;
        Ok(())
    }

    fn name_of_store(&mut self) -> Result<String> {
        const ASK: &str = "get_my_kvsname";
        let line = self.ask(ASK, GET_NAME)?;
        let mut name = None;
        check(ASK, &line, "my_kvsname", |answer| {
            name = answer.field("kvsname")?.map(str::to_owned);
            Ok(answer.is_success()? != Some(false))
        })?;
        let name = name.filter(|name| !name.is_empty() && name.len() <= 256);
        name.ok_or_else(|| refuse(ASK, &String::from_utf8_lossy(&line), "names no store"))
    }

    fn store(&mut self, key: &str, value: &str) -> Result<()> {
        const ASK: &str = "put";
        let request = format!("cmd=put kvsname={} key={key} value={value}\n", self.kvs);
        debug_assert!(request.len() <= LONGEST_LINE);
        let line = self.ask(ASK, &request)?;
        check(ASK, &line, "put_result", |answer| Ok(answer.is_success()? == Some(true)))
    }

    fn lookup(&mut self, key: &str) -> Result<Option<String>> {
        const ASK: &str = "get";
        let line = self.ask(ASK, &format!("cmd=get kvsname={} key={key}\n", self.kvs))?;
        let mut value = None;
        check(ASK, &line, "get_result", |answer| {
            let found = answer.is_success()?.ok_or("does not say whether there is a value")?;
            if found {
                value = Some(answer.field("value")?.ok_or("has no value")?.to_owned());
            }
            Ok(true)
        })?;
        Ok(value)
    }

    fn ask(&mut self, what: &str, request: &str) -> Result<Vec<u8>> {
        self.send(request)?;
        self.receive(what, Instant::now() + self.limits.answer)
    }

    fn send(&mut self, request: &str) -> Result<()> {
        if self.broken {
            return Err(Error::Broken { launcher: NAME });
        }
        self.stream.send(request).inspect_err(|_| self.broken = true)
    }

    fn receive(&mut self, what: &str, end: Instant) -> Result<Vec<u8>> {
        self.stream.line(end).map_err(|lost| self.lost(what, lost, self.limits.answer))
    }

    fn one_of_lines(&mut self, what: &str, end: Instant) -> Result<Vec<u8>> {
        self.stream.one_of_lines(end).map_err(|lost| self.lost(what, lost, self.limits.answer))
    }

    /// Why no answer has come; nothing more can be asked then.
    fn lost(&mut self, what: &str, lost: Lost, after: Duration) -> Error {
        self.broken = true;
        match lost {
            Lost::Silence => Error::Silent { launcher: NAME, request: what.into(), after },
            Lost::Garbage(bytes, problem) => {
                refuse(what, &String::from_utf8_lossy(&bytes), problem)
            }
            Lost::System(errno) => Stream::system(errno),
        }
    }

    /// Characters of a value that a request with this key has room for.
    fn room(&self, key: &str) -> usize {
        let rest = "cmd=put kvsname= key= value=\n".len() + self.kvs.len() + key.len();
        LONGEST_LINE.saturating_sub(rest).min(self.longest_value)
    }
}

impl Exchange for Pmi {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, name: &str, value: &[u8]) -> Result<()> {
        // No number of parts makes the key longer.
        let room = self.room(&key(self.run, self.rank, name, usize::MAX));
        for (part, text) in parts::split(value, room).iter().enumerate() {
            self.store(&key(self.run, self.rank, name, part), text)?;
        }
        Ok(())
    }

    fn fence(&mut self, named: &'static str, limit: Duration) -> Result<()> {
        const ASK: &str = "barrier_in";
        self.send("cmd=barrier_in\n")?;
        match self.stream.line(Instant::now() + limit) {
            Ok(line) => check(ASK, &line, "barrier_out", |a| Ok(a.is_success()? != Some(false))),
            Err(Lost::Silence) => {
                self.broken = true;
                let missing = "some (PMI-1 does not say which)".into();
                Err(Error::Fence { fence: named, missing, size: self.size, after: limit })
            }
            Err(lost) => Err(self.lost(ASK, lost, limit)),
        }
    }

    fn get(&mut self, rank: u32, name: &str) -> Result<Vec<u8>> {
        let wrong = |problem| Error::Value { rank, key: name.into(), problem };
        let mut value = Vec::new();
        let mut expected = None;
        for part in 0.. {
            let text = self.lookup(&key(self.run, rank, name, part))?;
            let text = match text {
                None if part == 0 => return Err(Error::Nothing { rank, key: name.into() }),
                None => return Err(wrong("is not complete")),
                Some(text) => text,
            };
            let (follow, bytes) = parts::read(&text).map_err(wrong)?;
            if expected.is_some_and(|expected| expected != follow) {
                return Err(wrong("has a part of another value"));
            }
            value.extend(bytes);
            match follow.checked_sub(1) {
                None => break,
                next => expected = next,
            }
        }
        Ok(value)
    }
}

/// A key that neither MPI nor another run of a program has.
fn key(run: u32, rank: u32, name: &str, part: usize) -> String {
    format!("mn{run}-{rank}-{name}-{part}")
}

fn parse<'a>(request: &str, line: &'a [u8]) -> Result<Answer<'a>> {
    Answer::parse(line).map_err(|problem| refuse(request, &String::from_utf8_lossy(line), problem))
}

/// Checks that an answer is the expected one, and is right by its fields.
fn check(
    request: &str,
    line: &[u8],
    expected: &str,
    is_right: impl FnOnce(&Answer<'_>) -> std::result::Result<bool, &'static str>,
) -> Result<()> {
    let answer = parse(request, line)?;
    let problem = if answer.command() != expected {
        "belongs to another request"
    } else {
        match is_right(&answer) {
            Ok(true) => return Ok(()),
            Ok(false) => "says that it has failed",
            Err(problem) => problem,
        }
    };
    Err(refuse(request, &String::from_utf8_lossy(line), problem))
}

fn refuse(request: &str, answer: &str, problem: &'static str) -> Error {
    const SHOWN: usize = 100;
    let mut text: String = answer.chars().take(SHOWN).collect();
    if text.len() < answer.len() {
        text.push('…');
    }
    Error::Answer { launcher: NAME, request: request.into(), answer: format!("{text:?}"), problem }
}

#[cfg(test)]
mod tests;
