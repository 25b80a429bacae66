//! Lines of output: they leave whole, and an unfinished one only after a silence, so that prompts and progress appear.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::writer::Source;

/// An unfinished line is passed on when nothing was added to it for this long and its PE sleeps, as at a prompt (one that
/// is ready to run may just have lost its CPU in the middle of a line) ...
const SILENCE: Duration = Duration::from_millis(100);
/// ... or when it has been kept for this long, as with a progress bar that is redrawn all the time ...
const PATIENCE: Duration = Duration::from_secs(1);
/// ... or when it is longer than this.
const LONGEST: usize = 1 << 20;
/// How much of the last line is kept for reports.
const SHOWN: usize = 200;

/// What one PE writes to its standard output or error.
pub struct Stream {
    fd: Option<OwnedFd>,
    /// Where it comes from.
    pub source: Source,
    /// The unfinished line, as far as it was not passed on.
    unfinished: Vec<u8>,
    /// When its first byte came, and its last.
    since: Option<(Instant, Instant)>,
    last_line: Vec<u8>,
}

/// Takes lines for writing.
pub trait Sink {
    /// Takes whole lines, or the piece of a line.
    fn take(&mut self, source: Source, text: &[u8]);
}

impl Stream {
    /// A stream that is read from `fd`.
    pub fn new(fd: OwnedFd, source: Source) -> Stream {
        Stream {
            fd: Some(fd),
            source,
            unfinished: Vec::new(),
            since: None,
            last_line: Vec::new(),
        }
    }

    /// Its descriptor, until its end.
    pub fn fd(&self) -> Option<&OwnedFd> {
        self.fd.as_ref()
    }

    /// Stops reading: the PE's further writes fail.
    pub fn close(&mut self) {
        self.fd = None;
    }

    /// Reads once and passes whole lines on. False when there is nothing to read now.
    pub fn read(&mut self, scratch: &mut [u8], now: Instant, sink: &mut impl Sink) -> bool {
        let Some(fd) = &self.fd else { return false };
        match rustix::io::read(fd, &mut *scratch) {
            Ok(n) if n > 0 => self.add(&scratch[..n], now, sink),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            _ => {
                self.pass_on(sink);
                self.close();
            }
        }
        self.fd.is_some()
    }

    fn add(&mut self, text: &[u8], now: Instant, sink: &mut impl Sink) {
        let Some(end) = text.iter().rposition(|&byte| byte == b'\n').map(|at| at + 1) else {
            self.unfinished.extend_from_slice(text);
            self.remember_piece(text);
            self.since = Some((self.since.map_or(now, |(first, _)| first), now));
            if self.unfinished.len() > LONGEST {
                self.pass_on(sink);
            }
            return;
        };
        let (whole, rest) = text.split_at(end);
        self.remember_piece(whole);
        if self.unfinished.is_empty() {
            sink.take(self.source, whole);
        } else {
            self.unfinished.extend_from_slice(whole);
            self.pass_on(sink);
        }
        self.since = None;
        if !rest.is_empty() {
            self.add(rest, now, sink);
        }
    }

    fn remember_piece(&mut self, text: &[u8]) {
        let tail = text.strip_suffix(b"\n").unwrap_or(text);
        let start = tail.iter().rposition(|&byte| byte == b'\n').map(|at| at + 1);
        if start.is_some() || self.last_line.ends_with(b"\n") {
            self.last_line.clear();
        }
        let line = &text[start.unwrap_or(0)..];
        // The newline is kept as the mark that the next piece begins a new line.
        let (body, mark) = (
            line.strip_suffix(b"\n").unwrap_or(line),
            if line.ends_with(b"\n") { "\n" } else { "" },
        );
        let room = SHOWN.saturating_sub(self.last_line.len());
        self.last_line.extend_from_slice(&body[..body.len().min(room)]);
        self.last_line.extend_from_slice(mark.as_bytes());
    }

    /// When the unfinished line is due.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|(first, last)| (last + SILENCE).min(first + PATIENCE))
    }

    /// Waits for another silence, unless it has been kept long enough. True when it waits.
    pub fn postpone(&mut self, now: Instant) -> bool {
        let patient = self.since.filter(|(first, _)| now < *first + PATIENCE);
        self.since = patient.map(|(first, _)| (first, now)).or(self.since);
        patient.is_some()
    }

    /// Passes an unfinished line on.
    pub fn pass_on(&mut self, sink: &mut impl Sink) {
        if !self.unfinished.is_empty() {
            sink.take(self.source, &self.unfinished);
            self.unfinished.clear();
        }
        self.since = None;
    }

    /// The beginning of its last line, and whether the line was finished; `None` when there was no output.
    pub fn last_line(&self) -> Option<(String, bool)> {
        let finished = self.last_line.ends_with(b"\n");
        let text = String::from_utf8_lossy(&self.last_line).trim_end().to_owned();
        (!self.last_line.is_empty()).then_some((text, finished))
    }
}

#[cfg(test)]
mod tests {
    use super::super::writer::Target;
    use super::*;

    #[derive(Default)]
    struct Taken(Vec<String>);

    impl Sink for Taken {
        fn take(&mut self, _: Source, text: &[u8]) {
            self.0.push(String::from_utf8_lossy(text).into_owned());
        }
    }

    fn stream() -> (Stream, Taken, Instant) {
        let (fd, _) = rustix::pipe::pipe().unwrap();
        let source = Source {
            pe: 0,
            target: Target::Stdout,
        };
        (Stream::new(fd, source), Taken::default(), Instant::now())
    }

    #[test]
    fn lines_leave_whole() {
        let (mut stream, mut taken, now) = stream();
        stream.add(b"one\ntw", now, &mut taken);
        stream.add(b"o", now, &mut taken);
        stream.add(b"\nthree\nfour", now, &mut taken);
        assert_eq!(taken.0, ["one\n", "two\nthree\n"]);
        assert_eq!(stream.last_line(), Some(("four".into(), false)));
    }

    #[test]
    fn an_unfinished_line_is_due_after_silence_and_kept_only_so_long() {
        let (mut stream, mut taken, now) = stream();
        assert_eq!(stream.due(), None);
        stream.add(b"0", now, &mut taken);
        assert_eq!(stream.due(), Some(now + SILENCE));
        for tenth in 1..20 {
            stream.add(b".", now + tenth * SILENCE / 2, &mut taken);
        }
        assert_eq!(stream.due(), Some(now + PATIENCE));
        assert!(stream.postpone(now + PATIENCE / 2));
        assert_eq!(stream.due(), Some(now + PATIENCE / 2 + SILENCE));
        assert!(!stream.postpone(now + PATIENCE));
        stream.pass_on(&mut taken);
        assert_eq!((taken.0.len(), stream.due()), (1, None));
    }

    #[test]
    fn the_last_line_is_known_however_it_came() {
        let (mut stream, mut taken, now) = stream();
        assert_eq!(stream.last_line(), None);
        stream.add(b"a\nlong ", now, &mut taken);
        stream.pass_on(&mut taken);
        stream.add(b"line\n", now, &mut taken);
        assert_eq!(stream.last_line(), Some(("long line".into(), true)));
        stream.add(b"b", now, &mut taken);
        assert_eq!(stream.last_line(), Some(("b".into(), false)));
        stream.add(&[b'x'; 1000], now, &mut taken);
        assert_eq!(stream.last_line().unwrap().0.len(), SHOWN);
        stream.add(b"\n\n", now, &mut taken);
        assert_eq!(stream.last_line(), Some((String::new(), true)));
    }

    #[test]
    fn a_very_long_line_is_not_kept() {
        let (mut stream, mut taken, now) = stream();
        stream.add(&vec![b'x'; LONGEST + 1], now, &mut taken);
        assert_eq!(taken.0.len(), 1);
    }
}
