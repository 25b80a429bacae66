//! The writer of Chrome's trace format, which `ui.perfetto.dev` and `chrome://tracing` open. It
//! writes each event at once, and keeps none.
//!
//! A viewer drops a slice that begins inside another slice of its track and ends after it, without
//! a word. So callers give slices of one track that lie apart or inside each other, the outer one
//! first. Viewers round starts and durations to whole nanoseconds, each by itself, and neighbours
//! that touch would then overlap. So both are whole nanoseconds here.
//!
//! An arrow is two events. A viewer fastens each to the last slice of its track that was written,
//! so the end of an arrow follows its slice. Perfetto reads events by time, and those of one moment
//! in the order of the file. It drops an arrow whose end it reads before its beginning, so the end
//! is at a later moment.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter, Write as _};
use std::io::{self, Write};

/// The largest number that viewers, which are written in JavaScript, show exactly.
const MOST_EXACT: u64 = 1 << 53;

/// A timeline that is being written.
#[derive(Debug)]
pub struct Timeline<W> {
    out: W,
    separator: &'static str,
    processes: u32,
    threads: u32,
    queued: u64,
}

/// A group of tracks, with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group(u32);

/// A track of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Track {
    group: Group,
    number: u32,
}

/// An argument of an event, as a viewer shows it beside the event.
pub type Argument<'a> = (&'a str, Value<'a>);

/// The value of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number.
    Number(u64),
    /// A text.
    Text(Cow<'a, str>),
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Value::Number(number)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(text.into())
    }
}

impl From<String> for Value<'_> {
    fn from(text: String) -> Self {
        Value::Text(text.into())
    }
}

/// A range of time, in nanoseconds since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first nanosecond.
    pub start: u64,
    /// The one after the last.
    pub end: u64,
}

impl<W: Write> Timeline<W> {
    /// Begins a timeline.
    ///
    /// # Errors
    /// Those of the writer, as for all functions here.
    pub fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(Timeline { out, separator: "\n", processes: 0, threads: 0, queued: 0 })
    }

    /// Adds a group of tracks. Viewers show groups in the order in which they were added.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn group(&mut self, name: &str) -> io::Result<Group> {
        self.processes += 1;
        let number = self.processes;
        self.event(format_args!("\"ph\":\"M\",\"pid\":{number},\"name\":\"process_name\""))?;
        self.arguments(&[("name", name.into())])?;
        self.event(format_args!("\"ph\":\"M\",\"pid\":{number},\"name\":\"process_sort_index\""))?;
        self.arguments(&[("sort_index", u64::from(number).into())])?;
        Ok(Group(number))
    }

    /// Adds a track. Viewers show tracks in the order in which they were added.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn track(&mut self, group: Group, name: &str) -> io::Result<Track> {
        self.threads += 1;
        let track = Track { group, number: self.threads };
        self.event(format_args!("\"ph\":\"M\",{track},\"name\":\"thread_name\""))?;
        self.arguments(&[("name", name.into())])?;
        self.event(format_args!("\"ph\":\"M\",{track},\"name\":\"thread_sort_index\""))?;
        self.arguments(&[("sort_index", u64::from(track.number).into())])?;
        Ok(track)
    }

    /// Adds a slice.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn slice(
        &mut self,
        track: Track,
        name: &str,
        span: Span,
        arguments: &[Argument<'_>],
    ) -> io::Result<()> {
        let (start, lasts) = (Micros(span.start), Micros(span.end.saturating_sub(span.start)));
        self.event(format_args!("\"ph\":\"X\",{track},\"ts\":{start},\"dur\":{lasts},\"name\":"))?;
        self.text(name)?;
        self.arguments(arguments)
    }

    /// Adds a slice that may overlap others. Viewers stack such slices, those of one name together,
    /// so the name should say of which track they are.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn overlapping(
        &mut self,
        track: Track,
        name: &str,
        span: Span,
        arguments: &[Argument<'_>],
    ) -> io::Result<()> {
        self.queued += 1;
        let id = self.queued;
        for (phase, time) in [("b", span.start), ("e", span.end)] {
            let at = Micros(time);
            self.event(format_args!(
                "\"ph\":\"{phase}\",\"cat\":\"queue\",\"id\":{id},{track},\"ts\":{at},\"name\":"
            ))?;
            self.text(name)?;
            self.arguments(arguments)?;
        }
        Ok(())
    }

    /// Adds a mark.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn mark(&mut self, track: Track, name: &str, at: u64) -> io::Result<()> {
        let at = Micros(at);
        self.event(format_args!("\"ph\":\"i\",\"s\":\"t\",{track},\"ts\":{at},\"name\":"))?;
        self.text(name)?;
        self.arguments(&[])
    }

    /// Adds the beginning of an arrow, at the slice that was written last. `id` is that of its end,
    /// and of no other arrow.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn arrow_from(&mut self, track: Track, id: u64, at: u64) -> io::Result<()> {
        self.half_arrow(format_args!("\"ph\":\"s\""), track, id, at)
    }

    /// Adds the end of an arrow, at the slice that was written last.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn arrow_to(&mut self, track: Track, id: u64, at: u64) -> io::Result<()> {
        self.half_arrow(format_args!("\"ph\":\"f\",\"bp\":\"e\""), track, id, at)
    }

    fn half_arrow(
        &mut self,
        phase: fmt::Arguments<'_>,
        track: Track,
        id: u64,
        at: u64,
    ) -> io::Result<()> {
        let at = Micros(at);
        self.event(format_args!(
            "{phase},\"cat\":\"cause\",\"name\":\"cause\",\"id\":{id},{track},\"ts\":{at}}}"
        ))
    }

    /// Ends the timeline. Viewers show `about` among what they know of the whole file.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn end(mut self, about: &[Argument<'_>]) -> io::Result<W> {
        self.out.write_all(b"\n],\"otherData\":{")?;
        self.members(about)?;
        self.out.write_all(b"}}\n")?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Begins an event with what comes before its arguments.
    fn event(&mut self, fields: fmt::Arguments<'_>) -> io::Result<()> {
        write!(self.out, "{}{{{fields}", self.separator)?;
        self.separator = ",\n";
        Ok(())
    }

    /// Ends an event with its arguments.
    fn arguments(&mut self, arguments: &[Argument<'_>]) -> io::Result<()> {
        self.out.write_all(b",\"args\":{")?;
        self.members(arguments)?;
        self.out.write_all(b"}}")
    }

    fn members(&mut self, all: &[Argument<'_>]) -> io::Result<()> {
        for (at, (name, value)) in all.iter().enumerate() {
            if at > 0 {
                self.out.write_all(b",")?;
            }
            self.text(name)?;
            self.out.write_all(b":")?;
            match value {
                Value::Number(number) if *number <= MOST_EXACT => write!(self.out, "{number}")?,
                Value::Number(number) => write!(self.out, "\"{number}\"")?,
                Value::Text(text) => self.text(text)?,
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        write!(self.out, "{}", Quoted(text))
    }
}

/// A text as JSON has it. By hand: the library for JSON would make comparisons of numbers with its
/// values known to all who use the simulator, and the types of some numbers unknown.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}"),
                '\0'..' ' => write!(f, "\\u{:04x}", u32::from(c)),
                _ => f.write_char(c),
            }?;
        }
        f.write_char('"')
    }
}

impl Display for Track {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\"pid\":{},\"tid\":{}", self.group.0, self.number)
    }
}

/// Nanoseconds, written as microseconds.
struct Micros(u64);

impl Display for Micros {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_is_read_as_it_was_written(text: String) {
            let quoted = Quoted(&text).to_string();
            prop_assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), text);
        }
    }
}
