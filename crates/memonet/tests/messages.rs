//! What the compiler says of mistakes that many make at first: the cause and the fix, first.

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
