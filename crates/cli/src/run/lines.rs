//! Lines of output are passed on whole. An unfinished line is passed on after a silence, so that
//! prompts and progress appear.
//!
//! A line may arrive in pieces, with pauses in between. Its first piece is shown early only while
//! no other PE writes and no other unfinished line is shown: the next output of another PE would
//! break the line. So an unfinished line is kept while other PEs write. It is passed on when its PE
//! ends, when it becomes too long, or when it becomes too old.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use super::last_words::LastWords;
use super::source::Source;

/// An unfinished line is passed on when nothing was added to it for this long and its PE sleeps, as
/// at a prompt. (A PE that is ready to run may have lost its CPU in the middle of a line.)
const SILENCE: Duration = Duration::from_millis(100);
/// It is also passed on when it has been kept for this long, as with a progress bar that is redrawn
/// all the time. Both hold only while no other PE writes.
const PATIENCE: Duration = Duration::from_secs(1);
/// It is passed on when it has been kept for this long, even if other PEs write.
const OLDEST: Duration = Duration::from_secs(10);
/// It is passed on when it is longer than this.
const LONGEST_BYTES: usize = 1 << 20;
/// Output is withheld up to this length.
const WITHHELD_BYTES: usize = 64 << 20;

/// The standard output or error of one PE.
pub struct Stream {
    fd: Option<OwnedFd>,
    /// The PE and the output.
    pub source: Source,
    /// What was read and is to be passed on later, and whether the output ends behind it.
    withheld: Vec<u8>,
    has_ended: bool,
    /// The part of the unfinished line that was not passed on.
    unfinished: Vec<u8>,
    /// When its first byte arrived, and its last.
    since: Option<(Instant, Instant)>,
    /// The line is kept until then, because other PEs write.
    held: Option<Instant>,
    last_words: LastWords,
}

/// Takes lines for writing.
pub trait Sink {
    /// Takes whole lines, or the piece of a line.
    fn take(&mut self, source: Source, text: &[u8]);
    /// Something was read, and may be passed on later.
    fn heard(&mut self, source: Source, now: Instant);
    /// The source has ended: nothing follows a piece of a line.
    fn ended(&mut self, source: Source);
}

impl Stream {
    /// A stream that is read from `fd`, or [received](Self::receive).
    pub fn new(fd: Option<OwnedFd>, source: Source) -> Stream {
        Stream {
            fd,
            source,
            withheld: Vec::new(),
            has_ended: false,
            unfinished: Vec::new(),
            since: None,
            held: None,
            last_words: LastWords::default(),
        }
    }

    /// Its descriptor, until the stream has ended.
    pub fn fd(&self) -> Option<&OwnedFd> {
        self.fd.as_ref()
    }

    /// Stops reading: the PE's further writes fail.
    pub fn close(&mut self) {
        self.fd = None;
    }

    /// Reads once, as much as `scratch` has room for, and passes whole lines on; or keeps all, to
    /// `withhold` it until the next call that does not. False if there is nothing to read now.
    pub fn read(
        &mut self,
        withhold: bool,
        scratch: &mut Vec<u8>,
        now: Instant,
        sink: &mut impl Sink,
    ) -> bool {
        if !withhold {
            self.release(now, sink);
        }
        let Some(fd) = &self.fd else { return false };
        scratch.clear();
        match rustix::io::read(fd, spare_capacity(scratch)) {
            Ok(n) if n > 0 => self.withheld.extend_from_slice(scratch),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            _ => {
                self.close();
                self.has_ended = true;
            }
        }
        if !withhold || self.withheld.len() > WITHHELD_BYTES {
            self.release(now, sink);
        }
        self.fd.is_some()
    }

    /// Passes on what was withheld.
    fn release(&mut self, now: Instant, sink: &mut impl Sink) {
        if !self.withheld.is_empty() {
            let mut text = std::mem::take(&mut self.withheld);
            self.receive(&text, now, sink);
            text.clear();
            self.withheld = text;
        }
        if std::mem::take(&mut self.has_ended) {
            self.pass_on(sink);
            sink.ended(self.source);
        }
    }

    /// Takes what the PE has written next, and passes whole lines on.
    pub fn receive(&mut self, text: &[u8], now: Instant, sink: &mut impl Sink) {
        sink.heard(self.source, now);
        self.add(text, now, sink);
    }

    fn add(&mut self, text: &[u8], now: Instant, sink: &mut impl Sink) {
        let Some(end) = text.iter().rposition(|&byte| byte == b'\n').map(|at| at + 1) else {
            self.unfinished.extend_from_slice(text);
            self.last_words.take(text);
            self.since = Some((self.since.map_or(now, |(first, _)| first), now));
            if self.unfinished.len() > LONGEST_BYTES {
                self.pass_on(sink);
            }
            return;
        };
        let (whole, rest) = text.split_at(end);
        self.last_words.take(whole);
        if self.unfinished.is_empty() {
            sink.take(self.source, whole);
        } else {
            self.unfinished.extend_from_slice(whole);
            self.pass_on(sink);
        }
        self.since = None;
        self.held = None;
        if !rest.is_empty() {
            self.add(rest, now, sink);
        }
    }

    /// When the unfinished line is due.
    pub fn due(&self) -> Option<Instant> {
        let due = self.since.map(|(first, last)| (last + SILENCE).min(first + PATIENCE));
        due.map(|due| self.held.map_or(due, |held| due.max(held)))
    }

    /// Whether the unfinished line, which is due, is kept for longer, because other PEs write until
    /// `busy`, or because its PE is ready to run.
    pub fn is_kept(
        &mut self,
        now: Instant,
        busy: Option<Instant>,
        ready_to_run: impl FnOnce() -> bool,
    ) -> bool {
        match busy {
            Some(until) => self.hold(now, until),
            None => ready_to_run() && self.postpone(now),
        }
    }

    /// Waits for another silence, unless the line has been kept long enough. True if it waits.
    fn postpone(&mut self, now: Instant) -> bool {
        let patient = self.since.filter(|(first, _)| now < *first + PATIENCE);
        self.since = patient.map(|(first, _)| (first, now)).or(self.since);
        patient.is_some()
    }

    /// Keeps the line until `until`, because other PEs write, unless it is too old. True if it is
    /// kept.
    fn hold(&mut self, now: Instant, until: Instant) -> bool {
        let is_young = self.since.is_some_and(|(first, _)| now < first + OLDEST);
        self.held = is_young.then_some(until);
        is_young
    }

    /// Passes an unfinished line on.
    pub fn pass_on(&mut self, sink: &mut impl Sink) {
        if !self.unfinished.is_empty() {
            sink.take(self.source, &self.unfinished);
            self.unfinished.clear();
        }
        self.since = None;
        self.held = None;
    }

    /// The end of its output.
    pub fn last_words(&self) -> &LastWords {
        &self.last_words
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::Target;
    use super::*;

    #[derive(Default)]
    struct Taken(Vec<String>);

    impl Sink for Taken {
        fn take(&mut self, _: Source, text: &[u8]) {
            self.0.push(String::from_utf8_lossy(text).into_owned());
        }

        fn heard(&mut self, _: Source, _: Instant) {}

        fn ended(&mut self, _: Source) {}
    }

    fn stream() -> (Stream, Taken, Instant) {
        let (fd, _) = rustix::pipe::pipe().unwrap();
        let source = Source { pe: 0, target: Target::Stdout };
        (Stream::new(Some(fd), source), Taken::default(), Instant::now())
    }

    #[test]
    fn lines_leave_whole() {
        let (mut stream, mut taken, now) = stream();
        stream.add(b"one\ntw", now, &mut taken);
        stream.add(b"o", now, &mut taken);
        stream.add(b"\nthree\nfour", now, &mut taken);
        assert_eq!(taken.0, ["one\n", "two\nthree\n"]);
        assert_eq!(stream.last_words().last_line(), Some(("four".into(), false)));
    }

    #[test]
    fn withheld_output_comes_later_and_its_end_after_it() {
        let (fd, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&fd, true).unwrap();
        let mut stream = Stream::new(Some(fd), Source { pe: 0, target: Target::Stdout });
        let (mut taken, now, mut scratch) =
            (Taken::default(), Instant::now(), Vec::with_capacity(64));
        rustix::io::write(&writer, b"one\ntwo").unwrap();
        assert!(stream.read(true, &mut scratch, now, &mut taken));
        assert!(!stream.read(true, &mut scratch, now, &mut taken));
        assert!(taken.0.is_empty());
        assert!(!stream.read(false, &mut scratch, now, &mut taken));
        assert_eq!(taken.0, ["one\n"]);
        rustix::io::write(&writer, b"\nthree").unwrap();
        drop(writer);
        while stream.read(true, &mut scratch, now, &mut taken) {}
        assert_eq!((taken.0.len(), stream.fd().is_none()), (1, true));
        assert!(!stream.read(false, &mut scratch, now, &mut taken));
        assert_eq!(taken.0, ["one\n", "two\n", "three"]);
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
    fn an_unfinished_line_is_kept_while_others_write_until_it_is_old() {
        let (mut stream, mut taken, now) = stream();
        stream.add(b"ab", now, &mut taken);
        let later = now + PATIENCE;
        assert!(stream.hold(later, later + PATIENCE));
        assert_eq!(stream.due(), Some(later + PATIENCE));
        assert!(!stream.hold(now + OLDEST, now + OLDEST + PATIENCE));
        assert!(stream.due() < Some(now + OLDEST));
        assert!(stream.hold(later, later + PATIENCE));
        stream.add(b"c\nd", later, &mut taken);
        assert_eq!((taken.0, stream.due()), (vec!["abc\n".to_owned()], Some(later + SILENCE)));
    }

    #[test]
    fn a_very_long_line_is_not_kept() {
        let (mut stream, mut taken, now) = stream();
        stream.add(&vec![b'x'; LONGEST_BYTES + 1], now, &mut taken);
        assert_eq!(taken.0.len(), 1);
    }
}
