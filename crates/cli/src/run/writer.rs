//! Writing out what PEs wrote, in a thread of its own: a terminal or pipe that takes nothing more must not keep the
//! launcher from noticing a death.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::lines::Sink;

/// Reading from PEs pauses above this many bytes, and goes on when they are written.
const HIGH: usize = 1 << 20;

/// One of the launcher's outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Target {
    fn fd(self) -> BorrowedFd<'static> {
        match self {
            Target::Stdout => rustix::stdio::stdout(),
            Target::Stderr => rustix::stdio::stderr(),
        }
    }
}

/// Who writes, and where to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// A PE, or [`LAUNCHER`].
    pub pe: usize,
    /// To which output.
    pub target: Target,
}

/// The launcher itself as a source.
pub const LAUNCHER: usize = usize::MAX;

#[derive(Default)]
struct Queue {
    pieces: VecDeque<(Target, Vec<u8>)>,
    bytes: usize,
    /// Outputs that take nothing any more, and why.
    broken: Vec<(Target, Errno)>,
    /// The launcher waits for the queue to shrink.
    paused: bool,
    closed: bool,
}

pub struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Tells the launcher's loop that the queue is empty again, or an output broken.
    news: OwnedFd,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What of the standard output was lost, and not because nobody wanted to read it.
    pub fn lost(&self) -> Option<String> {
        let queue = self.queue();
        let lost = queue
            .broken
            .iter()
            .find(|&&broken| broken.0 == Target::Stdout && broken.1 != Errno::PIPE);
        lost.map(|(_, why)| format!("output of the job was lost, as it could not be written to standard output: {why}"))
    }
}

/// Puts lines of all sources into one order and hands them to the thread.
pub struct Writer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    batch: VecDeque<(Target, Vec<u8>)>,
    /// Whose unfinished line stands at the end of each output; with one terminal for both, they are one.
    open: [Option<Source>; 2],
    same: bool,
    label: bool,
}

impl Writer {
    /// What is to be asked when this value, and with it the thread, is gone.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Starts the thread.
    pub fn start(label: bool) -> Result<Writer> {
        let news = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("eventfd")?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            news,
        });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("output".into())
            .spawn(move || write_all(&of_thread))
            .context("cannot start the thread that writes output")?;
        let file = |target: Target| rustix::fs::fstat(target.fd()).map(|stat| (stat.st_dev, stat.st_ino)).ok();
        let same = file(Target::Stdout).is_some() && file(Target::Stdout) == file(Target::Stderr);
        Ok(Writer {
            shared,
            thread: Some(thread),
            batch: VecDeque::new(),
            open: [None; 2],
            same,
            label,
        })
    }

    /// Says something in the launcher's own name, each line marked.
    pub fn say(&mut self, text: &str) {
        let text: String = text.lines().map(|line| format!("memonet: {line}\n")).collect();
        self.take(
            Source {
                pe: LAUNCHER,
                target: Target::Stderr,
            },
            text.as_bytes(),
        );
    }

    /// Hands over what was taken. False when so much is waiting that no more should be read.
    pub fn flush(&mut self) -> bool {
        let mut queue = self.shared.queue();
        if !self.batch.is_empty() {
            queue.bytes += self.batch.iter().map(|(_, text)| text.len()).sum::<usize>();
            queue.pieces.append(&mut self.batch);
            self.shared.changed.notify_one();
        }
        queue.paused = queue.bytes > HIGH;
        !queue.paused
    }

    /// Becomes readable when reading may go on, or an output broke.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.shared.news.as_fd()
    }

    /// Takes note of the news: outputs that broke.
    pub fn take_news(&mut self) -> Vec<Target> {
        let _ = rustix::io::read(&self.shared.news, &mut [0; 8]);
        self.shared.queue().broken.iter().map(|&(target, _)| target).collect()
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
        let open = self.open[if self.same { 0 } else { source.target as usize }];
        if open.is_some_and(|other| other != source) {
            self.append(source.target, b"\n");
        }
        if self.label && source.pe != LAUNCHER {
            let label = format!("[{}] ", source.pe);
            for (i, line) in text.split_inclusive(|&byte| byte == b'\n').enumerate() {
                if i > 0 || open != Some(source) {
                    self.append(source.target, label.as_bytes());
                }
                self.append(source.target, line);
            }
        } else {
            self.append(source.target, text);
        }
        self.open[if self.same { 0 } else { source.target as usize }] = (!text.ends_with(b"\n")).then_some(source);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.flush();
        self.shared.queue().closed = true;
        self.shared.changed.notify_one();
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
                    let _ = rustix::io::write(&shared.news, &1u64.to_ne_bytes());
                }
            }
            queue.bytes -= text.len();
        } else if queue.closed {
            return;
        } else {
            if std::mem::take(&mut queue.paused) {
                let _ = rustix::io::write(&shared.news, &1u64.to_ne_bytes());
            }
            queue = shared.changed.wait(queue).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

/// An error when the output takes no more.
fn write(fd: BorrowedFd<'_>, mut text: &[u8]) -> Result<(), Errno> {
    while !text.is_empty() {
        match rustix::io::write(fd, text) {
            Ok(n) => text = &text[n..],
            Err(Errno::INTR) => {}
            // Whoever started the launcher made the output non-blocking.
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None);
            }
            Err(why) => return Err(why),
        }
    }
    Ok(())
}
