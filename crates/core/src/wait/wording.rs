//! A wait in words.

use super::report::Report;
use super::{Awaited, Words};
use std::time::Duration;

/// What a thread of PE `pe` waits for, by what can be seen in that PE's process.
pub fn told(pe: usize, wait: &Report, npes: usize) -> String {
    let who = match wait.thread == std::process::id() {
        true => String::new(),
        false => format!(" (thread {})", wait.thread),
    };
    let waited = time(Duration::from_nanos(wait.waited));
    let mut text = format!("PE {pe}{who} has waited {waited} ");
    if !wait.call.is_empty() {
        text += &format!("in {} ", wait.call);
        if !wait.at.is_empty() {
            text += &format!("at {} ", wait.at);
        }
    }
    text += &format!("for {}", purpose(wait, npes));
    let (role, pes) = match wait.what {
        Awaited::Lock if !wait.holders.all.is_empty() => ("held by", &wait.holders),
        Awaited::Lock => ("in its queue", &wait.missing),
        _ => ("missing", &wait.missing),
    };
    if !pes.all.is_empty() {
        text += &format!("; {role}: PE {}", ranges(&mut pes.all.clone()));
    }
    if let Some(outstanding) = wait.outstanding.as_ref().filter(|text| !text.is_empty()) {
        text += &format!("; outstanding: {outstanding}");
    }
    if wait.limited {
        text += "; a time limit ends this wait";
    }
    text
}

/// What a wait is for, in a job of `npes` PEs.
pub fn purpose(wait: &Report, npes: usize) -> String {
    let of_window = match wait.window.is_empty() {
        true => String::new(),
        false => format!(" of the window made at {}", wait.window),
    };
    match (&wait.words, wait.what) {
        (Some(words), _) => words_of(words, &of_window),
        (None, Awaited::Barrier) => format!("the barrier of {}", members(wait, npes)),
        (None, Awaited::Step) => {
            format!("the collective call of {}", members(wait, npes))
        }
        (None, Awaited::Peer) => format!("an answer of {}", members(wait, npes)),
        (None, Awaited::Lock) if !wait.window.is_empty() => format!("a lock in a word{of_window}"),
        (None, what) => what.to_string(),
    }
}

fn members(wait: &Report, npes: usize) -> String {
    match &wait.members {
        None => "all PEs".to_owned(),
        Some(pes) if pes.all.len() == npes => "all PEs".to_owned(),
        Some(pes) => {
            let more = if pes.cut { " and more" } else { "" };
            format!("PE {}{more}", ranges(&mut pes.all.clone()))
        }
    }
}

fn words_of(words: &Words, of_window: &str) -> String {
    let Words { address, count, all, comparison, wanted, seen } = words;
    let condition = match wanted.is_empty() {
        true => "to change".to_owned(),
        false => format!("to be {comparison} {wanted}"),
    };
    let place = |index: u64| match of_window.is_empty() {
        true => format!("the word at {:#x}", address),
        false => format!("word {index}{of_window}"),
    };
    match (&seen[..], *count) {
        ([(index, value)], 1) => format!("{} {condition}; it is {value}", place(*index)),
        ([_, ..], count) => {
            let which = if *all { "all" } else { "any" };
            let shown: Vec<String> =
                seen.iter().map(|(index, value)| format!("word {index} is {value}")).collect();
            let from = match of_window.is_empty() {
                true => format!(" from {address:#x} on"),
                false => of_window.to_owned(),
            };
            format!("{which} of {count} words{from} {condition}; {}", shown.join(", "))
        }
        _ => format!("words{of_window} {condition}"),
    }
}

/// A duration, to two digits.
pub fn time(time: Duration) -> String {
    let (number, unit) = match time.as_nanos() {
        0..1_000 => return format!("{} ns", time.as_nanos()),
        1_000..1_000_000 => (time.as_secs_f64() * 1e6, "us"),
        1_000_000..1_000_000_000 => (time.as_secs_f64() * 1e3, "ms"),
        _ => (time.as_secs_f64(), "s"),
    };
    match number < 10.0 {
        true => format!("{number:.1} {unit}"),
        false => format!("{number:.0} {unit}"),
    }
}

/// `0-3, 7` for 0, 1, 2, 3, 7.
pub fn ranges(pes: &mut [usize]) -> String {
    pes.sort_unstable();
    let runs = pes.chunk_by(|a, b| a + 1 == *b);
    let texts: Vec<String> = runs
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    texts.join(", ")
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_short() {
        assert_eq!(ranges(&mut [7, 0, 2, 1, 9, 10]), "0-2, 7, 9-10");
        assert_eq!(ranges(&mut [4]), "4");
    }

    #[test]
    fn times_have_two_digits() {
        let shown =
            [7, 1_250, 99_900, 3_210_000, 12_000_000_000].map(Duration::from_nanos).map(time);
        assert_eq!(shown, ["7 ns", "1.2 us", "100 us", "3.2 ms", "12 s"]);
    }
}
