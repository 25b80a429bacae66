//! What is built, compilers, and jobs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// What cargo has built of the workspace, as this test was.
pub static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
    let exe = std::env::current_exe().expect("this test");
    let profile = exe.parent().and_then(Path::parent).expect("its profile's folder").to_owned();
    // `make test` has built all of the workspace.
    if std::env::var_os("MEMONET_TEST_BUILT").is_none() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "memonet-shmem", "-p", "memonet-cli"]);
        build.arg("--target-dir").arg(profile.parent().expect("the folder of all profiles"));
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert_success(&mut build);
    }
    profile
});

/// An installation, moved from where it was made.
pub static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (made, prefix) = (folder.join("made"), folder.join("prefix"));
    assert_success(Command::new(tools().join("prefix")).arg(&*BUILT).arg(&made));
    let _ = std::fs::remove_dir_all(&prefix);
    std::fs::rename(&made, &prefix).expect("a folder that can be moved");
    prefix
});

/// The wrappers in the source tree.
pub fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tools")
}

/// A source file of these tests.
pub fn source(name: &str) -> String {
    format!("{}/tests/c/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A wrapper of the installation.
pub fn installed(name: &str) -> Command {
    command(&PREFIX.join("bin").join(name))
}

/// A command that our variables and the user's do not reach.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in ["OSHCC_CC", "OSHCXX_CXX", "CFLAGS", "LDFLAGS", "MEMONET_FABRIC", "LD_LIBRARY_PATH"]
    {
        command.env_remove(name);
    }
    command
}

pub fn assert_success(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.chars().take(3000).collect::<String>();
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

/// What a command prints that succeeds without a word of complaint.
#[track_caller]
pub fn printed(command: &mut Command) -> String {
    let output = assert_success(command);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(complaints.is_empty(), "{command:?}: {complaints}");
    String::from_utf8(output.stdout).expect("text")
}

/// A job of a program: `options` of the launcher, then the program and its arguments.
pub fn job(npes: usize, options: &[&str], program: &Path, arguments: &[&str]) -> Command {
    let mut launcher = command(&BUILT.join("memonet"));
    launcher.args(["run", "--timeout", "30", "-n", &npes.to_string()]);
    launcher.args(options).arg(program).args(arguments);
    launcher
}

/// Runs a job; its lines of output, sorted. It must succeed and say nothing on standard error.
#[track_caller]
pub fn lines(npes: usize, program: &Path) -> Vec<String> {
    let mut lines: Vec<String> =
        printed(&mut job(npes, &[], program, &[])).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// What `hello.c` prints.
#[track_caller]
pub fn assert_says_hello(program: &Path) {
    let expected = ["PE 0 of 3: 2", "PE 1 of 3: 0", "PE 2 of 3: 1"];
    assert_eq!(lines(3, program), expected, "{}", program.display());
}

/// Runs a job that must fail, and gives what it said on standard error.
#[track_caller]
pub fn complaint(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    assert!(!output.status.success(), "{command:?} succeeds: {output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether a tool is there that a test needs. Without it the test is skipped, or fails where
/// MEMONET_TEST_TOOLS is 1.
pub fn has(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok();
    let wanted = std::env::var("MEMONET_TEST_TOOLS").is_ok_and(|value| value == "1");
    assert!(
        there || !wanted,
        "{tool} is not installed, and MEMONET_TEST_TOOLS asks for it: `make deps`"
    );
    if !there {
        use std::io::Write as _;
        // Past the harness, which would keep it for itself.
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: {tool} is not installed. `make deps` does that");
    }
    there
}

/// An empty folder.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}
