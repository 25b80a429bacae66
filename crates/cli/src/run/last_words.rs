//! The part of a PE's output that a report quotes: the message with which the PE failed, or else
//! its last line.
//!
//! A panic or a traceback has several lines, and the last one says little ("note: run with
//! `RUST_BACKTRACE=1` ..."). So the messages of Rust, C, C++, Python and the sanitizers are
//! recognised by their beginnings:
//!
//! ```text
//!   plain --"thread 'x' panicked at", "terminate called"--> message --"note:", "stack backtrace:"--> trace --other line--> plain
//!   plain --"Traceback (most recent call last)"--> traceback --first line that is not indented--> message
//! ```

/// Bytes of a line that are kept.
const LINE: usize = 400;
/// Lines of a message that are kept.
const LINES: usize = 8;

/// Messages of panics that follow from another panic: the earlier one says more.
const CONSEQUENCES: [&str; 5] = [
    "panic in a destructor during cleanup",
    "panic in a function that cannot unwind",
    "called `Result::unwrap()` on an `Err` value: Any {",
    "called `Result::unwrap()` on an `Err` value: PoisonError {",
    "a scoped thread panicked",
];

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Lines that belong to no message.
    #[default]
    Plain,
    /// A message, which may continue.
    Message,
    /// Lines after a message that say where, not why.
    Trace,
    /// The lines of a Python traceback before its message.
    Traceback,
}

/// The end of one output of a PE so far.
#[derive(Debug, Default)]
pub struct LastWords {
    /// The beginning of the last line, without its end.
    line: Vec<u8>,
    /// Whether that line has ended, so that further output begins a new one.
    finished: bool,
    /// A carriage return has come last: what follows in the line replaces it, as in progress bars.
    returned: bool,
    message: Vec<String>,
    /// The message before it, in case the new one turns out to be its consequence.
    earlier: Vec<String>,
    /// Lines of the message that are not kept.
    dropped: usize,
    /// Other lines have followed the message.
    buried: bool,
    reading: Reading,
}

impl LastWords {
    /// Takes the next output of the PE.
    pub fn take(&mut self, text: &[u8]) {
        for piece in text.split_inclusive(|&byte| byte == b'\n') {
            if std::mem::take(&mut self.finished) {
                self.line.clear();
            }
            let body = piece.strip_suffix(b"\n").unwrap_or(piece);
            for (number, part) in body.split(|&byte| byte == b'\r').enumerate() {
                self.returned |= number > 0;
                if !part.is_empty() && std::mem::take(&mut self.returned) {
                    self.line.clear();
                }
                let room = LINE.saturating_sub(self.line.len());
                self.line.extend_from_slice(&part[..part.len().min(room)]);
            }
            if body.len() < piece.len() {
                (self.finished, self.returned) = (true, false);
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        match (self.reading, opening(&line)) {
            (_, Some(reading)) => self.begin(reading, &line),
            (Reading::Plain, None) => self.buried |= !is_blank(&line),
            (Reading::Message, None) if is_end(&line) => self.reading = Reading::Trace,
            (Reading::Message, None) => self.go_on(&line),
            (Reading::Trace, None) if is_indented(&line) || is_end(&line) => {}
            (Reading::Trace, None) => {
                self.reading = Reading::Plain;
                self.buried = true;
            }
            (Reading::Traceback, None) if is_indented(&line) => {}
            (Reading::Traceback, None) => self.begin(Reading::Message, &line),
        }
        self.line = line;
    }

    fn begin(&mut self, reading: Reading, line: &[u8]) {
        self.reading = reading;
        self.buried = false;
        self.dropped = 0;
        self.earlier = std::mem::take(&mut self.message);
        // No report quotes the first line of a traceback; its message replaces it.
        self.message.push(text(line));
    }

    fn go_on(&mut self, line: &[u8]) {
        let line = text(line);
        let is_first = self.message.len() == 1;
        if is_first
            && !self.earlier.is_empty()
            && CONSEQUENCES.iter().any(|start| line.starts_with(start))
        {
            self.message = std::mem::take(&mut self.earlier);
            self.reading = Reading::Trace;
        } else if self.message.len() < LINES {
            self.message.push(line);
        } else {
            self.dropped += 1;
        }
    }

    /// Whether lines have come that may not belong to the message.
    fn is_buried(&self) -> bool {
        self.buried || !self.finished || self.reading == Reading::Message && self.dropped > 0
    }

    /// The lines of the message at the end of the output. If the PE has `failed_by_message`, other
    /// lines may follow the message.
    pub fn message(&self, failed_by_message: bool) -> Option<Vec<String>> {
        if self.message.is_empty() || self.is_buried() && !failed_by_message {
            return None;
        }
        let mut lines = self.message.clone();
        while lines.len() > 1 && lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        if self.dropped > 0 {
            lines.push("...".into());
        }
        Some(lines)
    }

    /// Whether this is the last line, and it was finished.
    pub fn has_ended_with(&self, line: &str) -> bool {
        self.finished && text(&self.line) == line
    }

    /// The beginning of the last line, and whether the line was finished. `None` without output, or
    /// if the line belongs to the message.
    pub fn last_line(&self) -> Option<(String, bool)> {
        let is_part = !self.message.is_empty() && !self.is_buried();
        let is_there = self.finished || !self.line.is_empty();
        (is_there && !is_part).then(|| (text(&self.line), self.finished))
    }
}

/// What a line begins, if it is the first line of a message.
fn opening(line: &[u8]) -> Option<Reading> {
    let contains = |part: &[u8]| line.windows(part.len()).any(|window| window == part);
    match line.first()? {
        // With the thread's number from Rust 1.91 on. Before 1.73, the message is in this line.
        b't' if line.starts_with(b"thread '") && contains(b" panicked at ") => {
            Some(Reading::Message)
        }
        b't' if line.starts_with(b"terminate called ") => Some(Reading::Message),
        b'T' if line.starts_with(b"Traceback (most recent call last)") => Some(Reading::Traceback),
        b'F' if line.starts_with(b"Fatal Python error: ") => Some(Reading::Message),
        b'S' if line.starts_with(b"SUMMARY: ") && contains(b"Sanitizer: ") => Some(Reading::Trace),
        _ if line.ends_with(b"' failed.") && contains(b": Assertion `") => Some(Reading::Trace),
        _ => None,
    }
}

/// Whether a line says that the message before it is complete.
fn is_end(line: &[u8]) -> bool {
    const ENDS: [&[u8]; 6] = [
        b"note: run with `RUST_BACKTRACE=",
        b"note: Some details are omitted, run with `RUST_BACKTRACE=",
        b"stack backtrace:",
        b"thread caused non-unwinding panic. aborting.",
        b"fatal runtime error: ",
        b"thread panicked while processing panic. aborting.",
    ];
    ENDS.iter().any(|end| line.starts_with(end))
}

fn is_blank(line: &[u8]) -> bool {
    line.trim_ascii().is_empty()
}

fn is_indented(line: &[u8]) -> bool {
    line.first().is_none_or(u8::is_ascii_whitespace)
}

fn text(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    // Colours and moves of the cursor would spoil the report.
    let text = anstream::adapter::strip_str(&text).to_string();
    let plain = |letter: &char| *letter == '\t' || !letter.is_control();
    let mut text = text.chars().filter(plain).collect::<String>().trim_end().to_owned();
    if line.len() >= LINE {
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(text: &str) -> LastWords {
        let mut words = LastWords::default();
        // In pieces of any size.
        let (first, second) = text.as_bytes().split_at(text.len() / 2);
        words.take(first);
        words.take(second);
        words
    }

    /// Checks what is quoted of an output after every kind of end.
    #[track_caller]
    fn assert_quoted(text: &str, message: &[&str]) {
        let words = after(text);
        assert_eq!(words.message(false).unwrap_or_default(), message, "of: {text}");
        assert_eq!(words.last_line(), None, "of: {text}");
    }

    #[test]
    fn the_message_of_a_panic() {
        let note =
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";
        let old = "thread 'main' panicked at 'my bug', src/x.rs:1:2";
        assert_quoted(&format!("before\n{old}\n{note}"), &[old]);
        let (at, numbered) = (
            "thread 'main' panicked at src/x.rs:1:2:",
            "thread 'main' (4711) panicked at src/x.rs:1:2:",
        );
        assert_quoted(&format!("{at}\nmy bug\n{note}"), &[at, "my bug"]);
        assert_quoted(&format!("\n{numbered}\nmy bug\n{note}"), &[numbered, "my bug"]);
        // A thread's second panic has no note.
        assert_quoted(&format!("{at}\nmy bug\n"), &[at, "my bug"]);
        let equal = ["assertion `left == right` failed: why", "  left: 1", " right: 2"];
        assert_quoted(
            &format!("{at}\n{}\n{note}", equal.join("\n")),
            &[&[at], &equal[..]].concat(),
        );
        let trace = "stack backtrace:\n   0: rust_begin_unwind\n             at /rustc/library/std.rs:1:2\n   1: main\n\
                     note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.\n";
        assert_quoted(&format!("{at}\nmy bug\n{trace}"), &[at, "my bug"]);
    }

    #[test]
    fn a_panic_that_follows_from_another_is_not_quoted() {
        let at = "thread 'worker' panicked at src/x.rs:1:2:";
        for consequence in CONSEQUENCES {
            let then = format!(
                "thread 'main' panicked at src/y.rs:1:2:\n{consequence} .. }}\nthread caused non-unwinding panic. aborting.\n"
            );
            assert_quoted(
                &format!("{at}\nmy bug\nnote: run with `RUST_BACKTRACE=1`\n{then}"),
                &[at, "my bug"],
            );
        }
        let second = "thread 'main' panicked at src/y.rs:1:2:\nanother bug\n";
        assert_quoted(
            &format!("{at}\nmy bug\n{second}"),
            &["thread 'main' panicked at src/y.rs:1:2:", "another bug"],
        );
    }

    #[test]
    fn the_message_of_c_and_cpp() {
        let thrown = "terminate called after throwing an instance of 'std::runtime_error'";
        assert_quoted(&format!("{thrown}\n  what():  my bug\n"), &[thrown, "  what():  my bug"]);
        let assertion = "prog: file.c:12: main: Assertion `x == 1' failed.";
        assert_quoted(&format!("{assertion}\n"), &[assertion]);
        let summary = "SUMMARY: AddressSanitizer: heap-use-after-free file.c:12 in main";
        assert_quoted(
            &format!("==1==ERROR: AddressSanitizer: heap\n    #0 main\n{summary}\n  =>0x0c\n"),
            &[summary],
        );
    }

    #[test]
    fn the_exception_of_a_traceback() {
        let trace = "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\n    f()\n    ^^^\n";
        assert_quoted(&format!("{trace}ValueError: my bug\n"), &["ValueError: my bug"]);
        assert_quoted(&format!("{trace}ValueError: my\nbug\n"), &["ValueError: my", "bug"]);
        let chained = "\nDuring handling of the above exception, another exception occurred:\n\n";
        assert_quoted(
            &format!("{trace}KeyError: 1\n{chained}{trace}ValueError: my bug\n"),
            &["ValueError: my bug"],
        );
    }

    #[test]
    fn what_came_after_a_message_is_quoted_too() {
        let at = "thread 'main' panicked at src/x.rs:1:2:";
        let words = after(&format!("{at}\ncaught\nnote: run with `RUST_BACKTRACE=1`\ngoing on\n"));
        assert_eq!(words.message(false), None);
        assert_eq!(words.message(true), Some(vec![at.into(), "caught".into()]));
        assert_eq!(words.last_line(), Some(("going on".into(), true)));
        // Without a note, nothing tells where the message ends.
        let words = after(&format!("{at}\n{}unfinished", "line\n".repeat(LINES)));
        assert_eq!(words.message(true).unwrap().len(), LINES + 1);
        assert_eq!(words.message(false), None);
        assert_eq!(words.last_line(), Some(("unfinished".into(), false)));
    }

    #[test]
    fn the_last_line_is_known_however_it_came() {
        let mut words = LastWords::default();
        assert_eq!(words.last_line(), None);
        words.take(b"a\nlong ");
        words.take(b"line\n");
        assert_eq!(words.last_line(), Some(("long line".into(), true)));
        words.take(b"b");
        assert_eq!(words.last_line(), Some(("b".into(), false)));
        words.take(&[b'x'; 1000]);
        assert_eq!(words.last_line().unwrap().0.len(), LINE + "...".len());
        words.take(b"\n  0%\r 50%\r");
        words.take(b"\x1b[A\x1b[31m100%\x1b[0m");
        assert_eq!(words.last_line(), Some(("100%".into(), false)));
        words.take(b"\r\n");
        assert_eq!(words.last_line(), Some(("100%".into(), true)));
        words.take(b"\n\n");
        assert_eq!(words.last_line(), Some((String::new(), true)));
        assert_eq!(words.message(true), None);
    }
}
