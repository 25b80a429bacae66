//! What the compiler says of mistakes that many make at first: the cause and the fix, first. And
//! what errors of the library say: the call that has failed, with its line.

use memonet::{Cmp, Error, Job, JobOptions, MulticastOptions, Result, Sum};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library with which this test was built, or a newer one, and the folder of what it needs.
fn library() -> (PathBuf, PathBuf) {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libmemonet-") && name.ends_with(".rlib")
    };
    let made = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).unwrap();
    let all = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    (all.filter(is_library).max_by_key(made).expect("this test needs the library"), folder)
}

/// What the compiler says of a program; nothing, where it compiles.
fn compile(program: &str) -> String {
    let (library, folder) = library();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages").join(program);
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    // The compiler replaces what is at its output's place.
    let output = tempfile::tempdir().expect("a folder");
    let output = Command::new(compiler)
        .args(["--edition=2024", "--emit=metadata", "-Adead_code", "--out-dir"])
        .arg(output.path())
        // Their descriptors stay with make.
        .env_remove("MAKEFLAGS")
        .env_remove("MFLAGS")
        .env_remove("CARGO_MAKEFLAGS")
        .arg("--extern")
        .arg(format!("memonet={}", library.display()))
        .arg(format!("-Ldependency={}", folder.display()))
        .arg(source)
        .output()
        .expect("a compiler");
    String::from_utf8(output.stderr).unwrap()
}

/// A program is refused. The first error is `first`; all of it says `wanted`.
fn told(program: &str, first: &str, wanted: &[&str]) {
    let text = compile(program);
    assert!(text.starts_with(&format!("error[E0277]: {first}")), "{text}");
    for words in wanted {
        assert!(text.contains(words), "no `{words}` in:\n{text}");
    }
}

#[test]
fn a_program_with_plain_structures_compiles() {
    assert_eq!(compile("plain.rs"), "");
}

#[test]
fn who_forgets_the_attribute_is_told_of_it() {
    let wanted = ["not_plain.rs:7:", "write `#[memonet::plain]` before"];
    told("not_plain.rs", "`Particle` is not plain data", &wanted);
}

#[test]
fn gaps_between_fields_are_told() {
    told("padded.rs", "`Padded` has 4 total byte(s) of padding", &["adding explicit fields"]);
}

#[test]
fn an_operator_that_does_not_know_the_type_names_the_one_that_does() {
    let wanted = ["`By(|lower, higher| ...)`"];
    told("sum_of_structures.rs", "`memonet::Sum` does not combine `Force`", &wanted);
}

/// One error each, and none of another crate's.
#[test]
fn what_is_never_plain_is_told_with_what_to_use_instead() {
    let text = compile("never_plain.rs");
    let told = [
        ("5:11", "`String` is not plain data", "use an array of bytes"),
        ("12:10", "`bool` is not plain data", "use a `u8`"),
        ("16:15", "`Vec` is not plain data", "use an array, or an index into a window"),
        ("19:1", "`memonet::plain` is for structures", "Use a number"),
        ("24:10", "plain data have an attribute", "write `#[memonet::plain]`"),
    ];
    for (at, what, instead) in told {
        let error = format!("error: {what}");
        let error = text.split("\n\n").find(|error_of| error_of.starts_with(&error));
        let error = error.unwrap_or_else(|| panic!("no `{what}` in:\n{text}"));
        assert!(error.contains(instead) && error.contains(&format!("rs:{at}")), "{text}");
    }
    assert!(!text.contains("zerocopy") && text.contains("due to 5 previous errors"), "{text}");
}

/// The error of a call, with the line of this file at which the call stands.
macro_rules! error_of {
    ($call:expr) => {{
        let line = line!();
        (line, $call.map(drop).expect_err("it is refused"))
    }};
}

/// An error is of this kind, and its message ends with the call: PE, function and line.
#[track_caller]
fn names((line, error): (u32, Error), is_it: impl Fn(&Error) -> bool, pe: usize, name: &str) {
    assert!(is_it(&error), "{error}");
    let call = error.call().expect("a call that is known");
    assert_eq!((call.name, call.pe, call.at.line()), (name, pe, line), "{error}");
    let end = format!(" (PE {pe}, {name} at {}:{line}:", call.at.file());
    assert!(error.to_string().contains(&end), "{error}");
}

/// Runs a program on two PEs.
fn on_two(options: &JobOptions, program: impl Fn(&Job) -> Result<()> + Sync) {
    let ended = Job::threads_with(options, 2, |job| program(&job)).unwrap();
    ended.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn errors_of_what_is_made_name_the_call() {
    on_two(&JobOptions::new(), |job| {
        let error = error_of!(job.window::<u8>(1 << 60));
        names(error, |error| matches!(error, Error::OutOfMemory { .. }), job.pe(), "Job::window");
        let mut kept = Vec::new();
        let error = loop {
            let (line, made) = (line!(), job.world().new_barrier());
            match made {
                Ok(barrier) => kept.push(barrier),
                Err(error) => break (line, error),
            }
        };
        names(error, |error| matches!(error, Error::TooMany { .. }), job.pe(), "Team::new_barrier");
        Ok(())
    });
}

#[test]
fn errors_of_channels_name_the_call() {
    on_two(&JobOptions::new(), |job| {
        let mut closing = job.multicast::<u64>(0, &[1], MulticastOptions::new())?;
        let options = MulticastOptions::new().drop_slow(std::time::Duration::ZERO);
        let mut slow = job.multicast::<u64>(0, &[1], options.capacity(64))?;
        if job.pe() == 0 {
            drop(closing);
            (0..1000).try_for_each(|block| slow.publish(&[block]))?;
            return job.barrier();
        }
        let error = error_of!(closing.recv(&mut Vec::new()));
        names(error, |error| matches!(error, Error::Closed { .. }), 1, "Multicast::recv");
        job.barrier()?;
        let error = error_of!(slow.peek());
        names(error, |error| matches!(error, Error::Dropped { .. }), 1, "Multicast::peek");
        Ok(())
    });
    // It would take ten seconds.
    let (line, refused) =
        error_of!(Job::threads(1, |job| job.window::<u8>(1 << 60)).unwrap().remove(0));
    let silent = Error::Silent { pe: 7, after: std::time::Duration::ZERO, call: None };
    let error = (line, silent.of_call(refused.call().copied()));
    names(error, |error| matches!(error, Error::Silent { .. }), 0, "Job::window");
}

#[test]
fn errors_of_collective_calls_and_waits_name_the_call() {
    on_two(&JobOptions::new().check(true), |job| {
        let (name, error) = match job.pe() {
            0 => ("Team::all_reduce", error_of!(job.world().all_reduce(Sum, 1))),
            _ => ("Team::broadcast", error_of!(job.world().broadcast(0, 1))),
        };
        names(error, |error| matches!(error, Error::OtherCall { .. }), job.pe(), name);
        Ok(())
    });
    on_two(&JobOptions::new(), |job| {
        let word = job.window::<u64>(1)?;
        job.attention().call();
        let error = error_of!(word.wait_until(0, Cmp::Eq, 1));
        let is_it = |error: &Error| matches!(error, Error::Interrupted { .. });
        names(error, is_it, job.pe(), "Window::wait_until");
        job.attention().dismiss();
        job.barrier()
    });
}
