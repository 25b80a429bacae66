//! The launcher's reports of deaths.

use std::collections::BTreeMap;

use memonet_core::unstable::launch::UNKNOWN;
use memonet_core::unstable::wait::wording::ranges;
use memonet_core::{Cause, ENV_CHECK};

use super::lines::Stream;
use super::oom::Kills;
use super::spec::Options;

/// Facts that may explain a death.
pub struct Hints {
    /// The user has switched the expensive checks on or off.
    pub checked: bool,
    /// Kills for lack of memory.
    pub kills: Kills,
}

impl Hints {
    /// The facts at the beginning of the job.
    pub fn new(options: &Options) -> Hints {
        Hints { checked: options.decides(ENV_CHECK), kills: Kills::so_far() }
    }
}

/// The full report of a failure: the PE, the cause, and the end of its output, but for a line that
/// stands right above the report, as `is_above` says of a stream's last line.
pub fn failure(
    who: &str,
    after_finalizing: bool,
    cause: Cause,
    hint: Option<String>,
    streams: &[Stream; 2],
    is_above: impl Fn(&Stream) -> bool,
) -> String {
    let finalized = if after_finalizing { "finalised, then " } else { "" };
    let mut text = format!("{who}: {finalized}{}", how(cause));
    if let Some(hint) = hint {
        text += &format!(". {hint}");
    }
    // After the message of a panic or an abort, destructors and handlers may write more.
    let by_message = matches!(cause, Cause::Exit(101) | Cause::Signal(libc::SIGABRT));
    for (name, stream) in ["output", "error output"].iter().zip(streams) {
        let words = stream.last_words();
        let is_shown = |line: &str| is_above(stream) && words.has_ended_with(line);
        if let Some(message) = words.message(by_message)
            && !matches!(&message[..], [line] if is_shown(line))
        {
            text += &format!("\n  from its {name}: {}", message.join("\n    "));
        }
        if let Some((line, finished)) = words.last_line().filter(|(line, _)| !is_shown(line)) {
            let unfinished = if finished { "" } else { ", unfinished" };
            text += &format!("\n  last line of its {name}{unfinished}: {line}");
        }
    }
    text
}

fn how(cause: Cause) -> String {
    match cause {
        UNKNOWN => "ended without finalising, and this kernel does not report how".into(),
        cause => cause.to_string(),
    }
}

/// What may explain a cause.
pub fn hint(cause: Cause, hints: &mut Hints) -> Option<String> {
    let hint = match cause {
        Cause::Signal(libc::SIGSEGV) if !hints.checked => {
            "If it called OpenSHMEM, MEMONET_CHECK=1 may name the call and the argument"
        }
        Cause::Signal(libc::SIGKILL) => return Some(hints.kills.explain()),
        Cause::Signal(libc::SIGBUS) => {
            "Often: no memory left for a page of a window (a limit of the cgroup, or a file that shrank)"
        }
        Cause::Exit(0) => "Return from main or call exit(0) instead, which finalise",
        _ => return None,
    };
    Some(hint.into())
}

/// The launcher's exit status for a failure.
pub fn exit_status(cause: Cause) -> u8 {
    match cause {
        Cause::Signal(signal) => 128 + signal as u8,
        // A failure must have a status other than 0.
        Cause::Exit(0) | Cause::Finalized | Cause::Unreachable => 1,
        Cause::Exit(code) => code as u8,
        Cause::Panic => 101,
        // What was left of it has been killed.
        Cause::Host(_) => 128 + libc::SIGKILL as u8,
    }
}

/// The deaths that followed the first one, in one line.
#[derive(Default)]
pub struct Followers(BTreeMap<String, Vec<usize>>);

impl Followers {
    /// Adds a death.
    pub fn add(&mut self, pe: usize, cause: Cause, by_launcher: bool) {
        let how = if by_launcher { format!("{cause} by memonet") } else { how(cause) };
        self.0.entry(how).or_default().push(pe);
    }

    /// The line; `None` without deaths.
    pub fn describe(mut self) -> Option<String> {
        let groups: Vec<String> =
            self.0.iter_mut().map(|(how, pes)| format!("PE {}: {how}", ranges(pes))).collect();
        (!groups.is_empty()).then(|| format!("then {}", groups.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn followers_are_grouped() {
        let mut followers = Followers::default();
        assert_eq!(Followers::default().describe(), None);
        for pe in [3, 1, 2] {
            followers.add(pe, Cause::Exit(1), false);
        }
        followers.add(0, Cause::Signal(15), true);
        let text = followers.describe().unwrap();
        assert_eq!(
            text,
            "then PE 1-3: ended with exit status 1; PE 0: killed by signal 15 (SIGTERM) by memonet"
        );
    }
}
