//! Writes the output of PEs, in a thread of its own: a terminal or pipe that blocks must not keep
//! the launcher from noticing a death.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::lines::Sink;
use super::source::{LAUNCHER, Source, Target};
use super::wakeup::Wakeup;
use crate::unpoisoned::unpoisoned;

/// Other PEs count as silent when nothing was read from them for this long.
const QUIET: Duration = Duration::from_secs(1);
/// When a labelled line continues that another line broke, up to this many bytes are repeated.
const REPEATED_BYTES: usize = 4 << 10;

/// Reading from PEs pauses while more than this many bytes wait to be written.
const HIGH_BYTES: usize = 1 << 20;

/// The unfinished line at the end of an output.
struct Open {
    source: Source,
    /// The line so far, if it is labelled and short enough to be repeated.
    text: Option<Vec<u8>>,
    /// Its source has ended, so it stays as it is.
    ended: bool,
}

/// When PEs last wrote to an output.
#[derive(Default)]
struct Heard {
    /// The last PE that wrote, and when.
    last: Option<(usize, Instant)>,
    /// When any other PE last wrote.
    others: Option<Instant>,
}

impl Heard {
    fn note(&mut self, pe: usize, now: Instant) {
        match self.last {
            Some((last, at)) if last != pe => self.others = Some(at),
            _ => {}
        }
        self.last = Some((pe, now));
    }

    fn of_others_than(&self, pe: usize) -> Option<Instant> {
        match self.last {
            Some((last, at)) if last != pe => Some(at),
            _ => self.others,
        }
    }
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<(Target, Vec<u8>)>,
    bytes: usize,
    /// Outputs that accept nothing any more, and the error.
    broken: Vec<(Target, Errno)>,
    /// The launcher waits until the queue is empty.
    paused: bool,
    closed: bool,
}

pub struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Wakes the launcher's loop when the queue is empty again, or an output is broken.
    news: Wakeup,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        unpoisoned(self.queue.lock())
    }

    /// A message if standard output was lost, unless its reader had closed it.
    pub fn lost(&self) -> Option<String> {
        let queue = self.queue();
        let lost = queue
            .broken
            .iter()
            .find(|&&broken| broken.0 == Target::Stdout && broken.1 != Errno::PIPE);
        lost.map(|(_, why)| {
            format!(
                "output of the job was lost, as it could not be written to standard output: {why}"
            )
        })
    }
}

/// Puts lines of all sources into one order and hands them to the thread.
pub struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    batch: VecDeque<(Target, Vec<u8>)>,
    /// By output, as `slot` numbers them.
    open: [Option<Open>; 2],
    /// What has written there last.
    last: [Option<Source>; 2],
    heard: [Heard; 2],
    /// The beginnings of labelled lines that another line broke.
    broken: BTreeMap<Source, Vec<u8>>,
    /// Both outputs are one file.
    same: bool,
    label: bool,
}

impl Writer {
    /// A handle that outlives this value and its thread.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Starts the thread.
    pub fn start(label: bool) -> Result<Writer> {
        let news = Wakeup::new()?;
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new(), news });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("output".into())
            .spawn(move || write_all(&of_thread))
            .context("cannot start the thread that writes output")?;
        let file = |target: Target| {
            rustix::fs::fstat(target.fd()).map(|stat| (stat.st_dev, stat.st_ino)).ok()
        };
        let same = file(Target::Stdout).is_some() && file(Target::Stdout) == file(Target::Stderr);
        Ok(Writer {
            shared,
            thread: Some(thread),
            batch: VecDeque::new(),
            open: Default::default(),
            last: Default::default(),
            heard: Default::default(),
            broken: BTreeMap::new(),
            same,
            label,
        })
    }

    /// Writes a message of the launcher itself; each line is marked.
    pub fn say(&mut self, text: &str) {
        let text: String = text.lines().map(|line| format!("memonet: {line}\n")).collect();
        self.take(Source { pe: LAUNCHER, target: Target::Stderr }, text.as_bytes());
    }

    /// Passes all output so far to the thread. False if so much waits that reading should pause.
    pub fn flush(&mut self) -> bool {
        let mut queue = self.shared.queue();
        if !self.batch.is_empty() {
            queue.bytes += self.batch.iter().map(|(_, text)| text.len()).sum::<usize>();
            queue.pieces.append(&mut self.batch);
            self.shared.changed.notify_one();
        }
        queue.paused = queue.bytes > HIGH_BYTES;
        !queue.paused
    }

    /// Has the thread end once it has written all output so far, which is the last.
    pub fn close(&mut self) {
        self.flush();
        self.shared.queue().closed = true;
        self.shared.changed.notify_one();
    }

    /// Becomes readable when reading may continue, or an output is broken.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.shared.news.as_fd()
    }

    /// Clears the wake-up. Returns the broken outputs.
    pub fn take_news(&mut self) -> Vec<Target> {
        self.shared.news.clear();
        self.shared.queue().broken.iter().map(|&(target, _)| target).collect()
    }

    /// The number of an output. If both go to one file, they have one number.
    fn slot(&self, target: Target) -> usize {
        if self.same { 0 } else { target as usize }
    }

    /// Whether a message of the launcher would stand right below what this source has written.
    pub fn is_above_messages(&self, source: Source) -> bool {
        let messages = self.slot(Target::Stderr);
        self.slot(source.target) == messages && self.last[messages] == Some(source)
    }

    /// The time before which an unfinished line must not be written, because it would be broken, or
    /// would break another line.
    pub fn busy_until(&self, source: Source, now: Instant) -> Option<Instant> {
        let slot = self.slot(source.target);
        match &self.open[slot] {
            Some(open) if open.source == source => None,
            Some(open) if !open.ended => Some(now + QUIET),
            _ => {
                let heard = self.heard[slot].of_others_than(source.pe);
                heard.map(|at| at + QUIET).filter(|&until| until > now)
            }
        }
    }

    /// Begins a line, or continues the unfinished line of this source. Returns the line so far, if
    /// it is kept.
    fn begin(&mut self, source: Source) -> Option<Vec<u8>> {
        match self.open[self.slot(source.target)].take() {
            Some(open) if open.source == source => return open.text,
            Some(open) => {
                self.append(source.target, b"\n");
                if let Some(text) = open.text.filter(|_| !open.ended) {
                    self.broken.insert(open.source, text);
                }
            }
            None => {}
        }
        if !self.labels(source) {
            return None;
        }
        let text = self.broken.remove(&source).unwrap_or_default();
        self.append(source.target, label(source).as_bytes());
        self.append(source.target, &text);
        Some(text)
    }

    fn labels(&self, source: Source) -> bool {
        self.label && source.pe != LAUNCHER
    }

    fn append(&mut self, target: Target, text: &[u8]) {
        match self.batch.back_mut() {
            Some((last, buffer)) if *last == target => buffer.extend_from_slice(text),
            _ => self.batch.push_back((target, text.to_vec())),
        }
    }
}

impl Sink for Writer {
    fn take(&mut self, source: Source, text: &[u8]) {
        let before = self.begin(source);
        for (i, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
            if i > 0 && self.labels(source) {
                self.append(source.target, label(source).as_bytes());
            }
            self.append(source.target, line);
        }
        let (before, piece) = match text.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => (self.labels(source).then(Vec::new), &text[end + 1..]),
            None => (before, text),
        };
        let open = || Open {
            source,
            text: before
                .filter(|before| before.len() + piece.len() <= REPEATED_BYTES)
                .map(|before| [&before, piece].concat()),
            ended: false,
        };
        let slot = self.slot(source.target);
        self.open[slot] = (!piece.is_empty()).then(open);
        self.last[slot] = Some(source);
    }

    fn heard(&mut self, source: Source, now: Instant) {
        self.heard[self.slot(source.target)].note(source.pe, now);
    }

    fn ended(&mut self, source: Source) {
        self.broken.remove(&source);
        let open = &mut self.open[self.slot(source.target)];
        open.iter_mut().filter(|open| open.source == source).for_each(|open| open.ended = true);
    }
}

fn label(source: Source) -> String {
    format!("[{}] ", source.pe)
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_all(shared: &Shared) {
    let mut queue = shared.queue();
    loop {
        if let Some((target, text)) = queue.pieces.pop_front() {
            if !queue.broken.iter().any(|(broken, _)| *broken == target) {
                drop(queue);
                let written = write(target.fd(), &text);
                queue = shared.queue();
                if let Err(why) = written {
                    queue.broken.push((target, why));
                    shared.news.wake();
                }
            }
            queue.bytes -= text.len();
        } else if queue.closed {
            return;
        } else {
            if std::mem::take(&mut queue.paused) {
                shared.news.wake();
            }
            queue = unpoisoned(shared.changed.wait(queue));
        }
    }
}

/// Writes all of `text`. An error means that the output is broken.
fn write(fd: BorrowedFd<'_>, mut text: &[u8]) -> Result<(), Errno> {
    while !text.is_empty() {
        match rustix::io::write(fd, text) {
            Ok(n) => text = &text[n..],
            Err(Errno::INTR) => {}
            // The launcher has inherited a non-blocking output.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None);
            }
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_below_what_was_written_last() {
        let mut writer = Writer::start(false).unwrap();
        let [first, second] = [0, 1].map(|pe| Source { pe, target: Target::Stderr });
        assert!(!writer.is_above_messages(first));
        writer.take(first, b"");
        assert!(writer.is_above_messages(first) && !writer.is_above_messages(second));
        writer.take(second, b"");
        assert!(!writer.is_above_messages(first) && writer.is_above_messages(second));
        writer.say("");
        assert!(!writer.is_above_messages(second));
    }
}
