//! What the library has chosen, and why, for people who ask: `MEMONET_LOG`.
//!
//! | level | lines |
//! |---|---|
//! | `info` | facts of the start: the place of each PE, how it waits, its fabric |
//! | `debug` | choices, each line once a process: barriers, collectives, channels, windows |
//! | `trace` | choices each time that they are made, waits that sleep, interference |
//!
//! A line is one write to standard error, so lines of several PEs do not mix. Where nothing is
//! asked for, a choice costs one relaxed load.

use crate::base::error::{Error, Result};
use crate::base::lock;
use crate::base::settings::ENV_LOG;
use std::collections::HashSet;
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{LazyLock, Mutex};

/// How much somebody wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Facts of the start.
    Info = 1,
    /// Choices, each line once.
    Debug,
    /// All, each time.
    Trace,
}

/// The level that is asked for; 0: none.
static LEVEL: AtomicU8 = AtomicU8::new(0);
/// Lines that were written, below [`Level::Trace`].
static SAID: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
/// Lines that are remembered. A program that makes teams for ever says no more after them.
const MOST_SAID: usize = 10_000;

/// What the environment of this process asks for.
///
/// # Errors
/// [`Error::Environment`] for a word that is no level.
pub fn asked() -> Result<Option<Level>> {
    parse(&std::env::var_os(ENV_LOG).unwrap_or_default().to_string_lossy())
}

fn parse(text: &str) -> Result<Option<Level>> {
    match text {
        "" | "off" => Ok(None),
        "info" => Ok(Some(Level::Info)),
        "debug" => Ok(Some(Level::Debug)),
        "trace" => Ok(Some(Level::Trace)),
        _ => Err(Error::Environment {
            name: ENV_LOG,
            value: text.into(),
            problem: "is no level".into(),
            fix: "Use info, debug or trace, or unset it",
        }),
    }
}

/// Obeys the environment, when a job begins.
///
/// # Errors
/// As for [`asked`].
pub(crate) fn begin() -> Result<()> {
    LEVEL.store(asked()?.map_or(0, |level| level as u8), Ordering::Relaxed);
    Ok(())
}

/// Whether lines of a level are written.
#[inline]
pub fn is_on(level: Level) -> bool {
    LEVEL.load(Ordering::Relaxed) >= level as u8
}

/// Writes a line about a PE. Below [`Level::Trace`], each line once.
#[cold]
pub fn write(pe: usize, text: fmt::Arguments<'_>) {
    let line = format!("memonet: PE {pe}: {text}\n");
    if !is_on(Level::Trace) {
        let mut said = lock(&SAID);
        if said.len() == MOST_SAID || !said.insert(line.clone()) {
            return;
        }
    }
    // Nobody can be told that standard error takes nothing.
    drop(std::io::stderr().write_all(line.as_bytes()));
}

/// `log!(Level, number of the PE, "text", ...)`: evaluates the rest only where the level is on.
macro_rules! log {
    ($level:ident, $pe:expr, $($text:tt)+) => {
        if $crate::base::log::is_on($crate::base::log::Level::$level) {
            $crate::base::log::write($pe, format_args!($($text)+));
        }
    };
}
pub(crate) use log;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_words() {
        assert_eq!(parse("").unwrap(), None);
        assert_eq!(parse("debug").unwrap(), Some(Level::Debug));
        assert!(Level::Info < Level::Trace);
        let refused = parse("loud").unwrap_err().to_string();
        assert!(refused.contains("MEMONET_LOG") && refused.contains("info"), "{refused}");
    }
}
