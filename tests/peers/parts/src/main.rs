//! One row of one library: `parts LIBRARY ROW PAGE SECONDS`. memonet's is started by `memonet run
//! -n 2`; with `parts memonet simulated PROGRAM`, by `memonet run --machine`.

mod channels;
mod locks;
mod measure;
mod page;
#[cfg(feature = "aeron")]
mod with_aeron;
#[cfg(feature = "iceoryx2")]
mod with_iceoryx2;
mod with_memonet;
mod with_pipe;
#[cfg(feature = "zeromq")]
mod with_zeromq;

use anyhow::{Context, Result, bail, ensure};
use channels::{End, Read, Write, stream, there_and_back};
use page::{Page, Side};
use std::io::{PipeReader, PipeWriter};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["memonet", "simulated", what] => with_memonet::simulated(&memonet::init()?, what),
        ["memonet", row, path, seconds] => {
            let (job, page) = (memonet::init()?, page::map(path)?);
            // Its launcher has bound the process.
            let side = Side::new(job.pe(), page);
            with_memonet::row(&job, &side, row, seconds.parse()?)
        }
        ["parking_lot", row, path, seconds] => {
            let page = page::map(path)?;
            locks::parking_lot(row, seconds.parse()?, [0, 1].map(|me| Side::new(me, page)))
        }
        [library, row, path, seconds] => {
            let pipes = [std::io::pipe()?, std::io::pipe()?];
            let row = Row { library, row, path, seconds: seconds.parse()?, pipes };
            #[cfg(feature = "aeron")]
            if library == "aeron" {
                fork(|| with_aeron::driver(&format!("{path}.aeron")))?;
            }
            in_two_processes(page::map(path)?, |side| row.measure(side))
        }
        _ => bail!("parts LIBRARY ROW PAGE SECONDS"),
    }
}

/// This process is side 0, and its child side 1. Nothing was started before.
fn in_two_processes(page: *const Page, run: impl Fn(&Side) -> Result<()>) -> Result<()> {
    let child = fork(|| {
        let side = Side::new(1, page);
        side.pin()?;
        run(&side)
    })?;
    let side = Side::new(0, page);
    side.pin()?;
    run(&side)?;
    let mut status = 0;
    // SAFETY: waits for the child, which nobody else does.
    unsafe { libc::waitpid(child, &mut status, 0) };
    ensure!(status == 0, "side 1 ended with status {status}");
    Ok(())
}

/// A child that ends when `run` does, or when this process dies.
fn fork(run: impl FnOnce() -> Result<()>) -> Result<libc::pid_t> {
    // SAFETY: this process has one thread.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error()).context("fork"),
        0 => {
            // SAFETY: plain numbers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let done = run();
            if let Err(error) = &done {
                eprintln!("side 1: {error:?}");
            }
            // SAFETY: the child has nothing to hand over.
            unsafe { libc::_exit(done.is_err() as i32) }
        }
        child => Ok(child),
    }
}

struct Row<'a> {
    library: &'a str,
    row: &'a str,
    /// A build without rivals needs none.
    #[allow(dead_code)]
    path: &'a str,
    seconds: f64,
    /// Both sides have all ends.
    pipes: [(PipeReader, PipeWriter); 2],
}

impl Row<'_> {
    fn measure(&self, side: &Side) -> Result<()> {
        match self.library {
            "pthread" => locks::pthread(side, self.row, self.seconds, false),
            "robust" => locks::pthread(side, self.row, self.seconds, true),
            "pipe" => self.by_pipe(side),
            #[cfg(feature = "iceoryx2")]
            "iceoryx2" => self.by_iceoryx2(side),
            #[cfg(feature = "aeron")]
            "aeron" => self.by_aeron(side),
            #[cfg(feature = "zeromq")]
            "zeromq" => self.by_zeromq(side),
            other => bail!("{other} is unknown, or was left out of this build"),
        }
    }

    fn words(&self) -> usize {
        match self.row {
            row if row.starts_with("64_KiB") => 8192,
            row if row.starts_with("64_B") => 8,
            _ => 1,
        }
    }

    /// `sender` and `receiver` make the ends of channel 0, to side 1, or 1, to side 0.
    fn by<W: Write, R: Read>(
        &self,
        side: &Side,
        len: usize,
        sender: impl Fn(usize) -> Result<W>,
        receiver: impl Fn(usize) -> Result<R>,
    ) -> Result<()> {
        if self.row.starts_with("latency") {
            let (write, read) = (sender(side.me)?, receiver(1 - side.me)?);
            side.meet();
            return there_and_back(side, self.row, self.seconds, write, read);
        }
        let end = if side.me == 0 { End::Write(sender(0)?) } else { End::Read(receiver(0)?) };
        side.meet();
        stream(side, self.row, self.seconds, len, end)
    }

    fn by_pipe(&self, side: &Side) -> Result<()> {
        let len = self.words();
        let sender = |channel: usize| Ok(with_pipe::Sender(self.pipes[channel].1.try_clone()?));
        let receiver = |channel: usize| {
            let pipe = self.pipes[channel].0.try_clone()?;
            Ok(with_pipe::Receiver { pipe, message: vec![0; len] })
        };
        self.by(side, len, sender, receiver)
    }

    #[cfg(feature = "iceoryx2")]
    fn by_iceoryx2(&self, side: &Side) -> Result<()> {
        let node = with_iceoryx2::node()?;
        // Two messages by default: of short ones more fit the caches.
        let buffer = (self.words() == 8).then_some(256);
        let name = |channel| format!("{}/{channel}", self.path);
        let services = [
            with_iceoryx2::Service::new(&node, &name(0), buffer)?,
            with_iceoryx2::Service::new(&node, &name(1), buffer)?,
        ];
        let sender = |channel: usize| services[channel].sender(self.words());
        self.by(side, self.words(), sender, |channel| services[channel].receiver())
    }

    #[cfg(feature = "aeron")]
    fn by_aeron(&self, side: &Side) -> Result<()> {
        let directory = format!("{}.aeron", self.path);
        let aeron = with_aeron::client(&directory)?;
        let len = self.words().min(with_aeron::MOST_WORDS);
        let stream = |channel: usize| 1000 + channel as i32;
        let sender = |channel| with_aeron::sender(&aeron, stream(channel), len);
        let receiver = |channel| with_aeron::receiver(&aeron, stream(channel), len);
        self.by(side, len, sender, receiver)
    }

    #[cfg(feature = "zeromq")]
    fn by_zeromq(&self, side: &Side) -> Result<()> {
        let path = format!("{}.zeromq", self.path);
        if side.me == 1 {
            side.meet();
        }
        let socket = with_zeromq::Socket::new(&path, side.me == 0)?;
        if side.me == 0 {
            side.meet();
        }
        self.by(side, 1, |_| Ok(socket), |_| Ok(socket))
    }
}
