//! A folder with the headers, and compilers that take files from it.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// The languages that the headers are for: compiler, standard, and the warnings that it must not
/// cause.
pub const C: &[&str] = &["c99", "c11", "c17", "gnu11"];
pub const CXX: &[&str] = &["c++98", "c++11", "c++17", "c++20"];

/// The C and the C++ compilers that are there; the system's own come last.
pub fn compilers() -> Vec<[&'static str; 2]> {
    let mut all = vec![["clang", "clang++"], ["cc", "c++"]];
    all.retain(|names| {
        names[0] == "cc" || Command::new(names[1]).arg("--version").output().is_ok()
    });
    all
}

pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("mpp")).expect("a folder in it");
        for (path, text) in memonet_shmem_api::headers() {
            std::fs::write(folder.path().join(path), text).expect("a header");
        }
        Self(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).expect("a file");
        self.path(name)
    }

    /// Compiles a text to an object file, with all compilers, with functions inlined and without;
    /// all warnings are errors. The file is that of the last, the system's compiler, without.
    pub fn compile(&self, standard: &str, text: &str) -> Result<PathBuf, String> {
        for names in compilers() {
            self.compile_with(names, standard, &["-O2"], text)?;
            self.compile_with(names, standard, &["-O0"], text)?;
        }
        Ok(self.path("test.o"))
    }

    /// The same with a certain compiler, and options.
    pub fn compile_with(
        &self,
        [cc, cxx]: [&str; 2],
        standard: &str,
        options: &[&str],
        text: &str,
    ) -> Result<PathBuf, String> {
        let is_cxx = standard.contains("++");
        let source = self.write(if is_cxx { "test.cpp" } else { "test.c" }, text);
        let object = self.path("test.o");
        let mut command = Command::new(if is_cxx { cxx } else { cc });
        command
            .args(["-c", "-Wall", "-Wextra", "-pedantic", "-Wundef", "-Wshadow", "-Werror"])
            .args(options);
        if !is_cxx {
            command.arg("-Wstrict-prototypes");
        }
        command.arg(format!("-std={standard}")).arg("-I").arg(self.0.path());
        run(command.arg("-o").arg(&object).arg(source)).map(|_| object)
    }
}

/// Runs a command: what it printed, or what it complained of.
pub fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let text = String::from_utf8_lossy(&output.stderr);
        Err(format!(
            "{command:?}: {}\n{}",
            output.status,
            text.chars().take(3000).collect::<String>()
        ))
    }
}

/// The symbols of a file that are of a kind, as `nm` calls it.
pub fn symbols(file: &PathBuf, kind: &str) -> BTreeSet<String> {
    let listed = run(Command::new("nm").arg(file)).expect("nm reads it");
    let rows = listed.lines().map(|line| line.split_whitespace().rev().collect::<Vec<_>>());
    rows.filter(|row| row.get(1) == Some(&kind)).map(|row| row[0].to_owned()).collect()
}
