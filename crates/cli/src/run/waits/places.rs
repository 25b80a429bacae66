//! Where in the source of a C program the callers of waits are.
//!
//! A PE says which instruction of which file has made the call. Its lines stand in the file's debug
//! information, which the launcher reads, when somebody is to read the report: a wait that reads
//! files would be disturbed.

use std::collections::HashMap;
use std::path::Path;

use addr2line::Loader;
use memonet_core::unstable::wait::report::Instruction;

use super::answer::Answer;

/// The files that this report names, with what was read of them.
#[derive(Default)]
struct Files(HashMap<String, Option<Loader>>);

/// The answers, in which each wait says where its call was made, as far as can be found.
pub fn located(answers: &[Answer]) -> Vec<Answer> {
    let mut files = Files::default();
    let mut answers = answers.to_vec();
    for wait in answers.iter_mut().flat_map(|answer| &mut answer.waits) {
        if let Some(caller) = wait.caller.as_ref().filter(|_| wait.at.is_empty()) {
            wait.at = files.place(caller);
        }
    }
    answers
}

impl Files {
    /// The line of the source; where the file has no lines, the function; else the instruction.
    fn place(&mut self, caller: &Instruction) -> String {
        let Instruction { object, address } = caller;
        let read = || Loader::new(object).ok();
        let file = self.0.entry(object.clone()).or_insert_with(read).as_ref();
        let place = file.and_then(|file| line(file, *address).or_else(|| symbol(file, *address)));
        let name = || Path::new(object).file_name().unwrap_or_default().to_string_lossy();
        let place = place.unwrap_or_else(|| format!("{}+{address:#x}", name()));
        // It goes to a terminal, and is a file's contents.
        place.replace(char::is_control, "?")
    }
}

/// File and line. What the header inlines belongs to the line that calls it.
fn line(file: &Loader, address: u64) -> Option<String> {
    let mut frames = file.find_frames(address).ok()?;
    while let Ok(Some(frame)) = frames.next() {
        let Some(location) = frame.location else { continue };
        if let (Some(path), Some(line)) = (location.file, location.line)
            && !is_ours(Path::new(path))
        {
            return Some(format!("{}:{line}", short(Path::new(path)).display()));
        }
    }
    None
}

/// The function, and how far behind its beginning.
fn symbol(file: &Loader, address: u64) -> Option<String> {
    let symbol = file.find_symbol_info(address)?;
    Some(format!("{}+{:#x}", symbol.name(), address.wrapping_sub(symbol.address())))
}

/// Whether a source is a header of the library.
fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "shmem.h" || name == "shmemx.h")
}

/// A path as one would write it here.
fn short(path: &Path) -> &Path {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use memonet_core::unstable::wait::Awaited;

    use super::super::answer::Wait;
    use super::super::answer::tests::{wait, waits};
    use super::*;

    fn at(caller: Instruction) -> String {
        let wait = Wait { caller: Some(caller), ..wait(Awaited::Word) };
        located(&[waits(0, [wait])])[0].waits[0].at.clone()
    }

    #[test]
    fn an_instruction_of_this_program_has_its_line() {
        let this = std::env::current_exe().unwrap();
        // Where the program lies, which begins with the header of its file.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let first = maps.lines().find(|line| line.ends_with(this.to_str().unwrap())).unwrap();
        let base = u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
        let address = short as fn(&Path) -> &Path as usize as u64 - base;
        let place = at(Instruction { object: this.display().to_string(), address });
        assert!(place.contains("run/waits/places.rs:"), "{place}");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let of = |object: &str| at(Instruction { object: object.into(), address: 0x4321 });
        assert_eq!(of("/nowhere/at all"), "at all+0x4321");
        assert_eq!(of("/proc/self/status"), "status+0x4321");
        assert_eq!(of(""), "+0x4321");
        assert_eq!(of("/tmp/\u{1b}[2J"), "?[2J+0x4321");
    }
}
