//! Compiles the C programs and runs them as jobs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

/// A network that brings messages late and in another order.
pub const FAR: &str = "far:delay_us=20,reorder=1,seed=";

/// A program and how it is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    pub file: &'static str,
    pub language: Language,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Language {
    /// A function for each type.
    C,
    /// One name for all types.
    GenericC,
    /// The program in C++.
    Cxx,
}

pub const fn c(file: &'static str) -> Source {
    Source { file, language: Language::C }
}

/// All programs.
pub static PROGRAMS: &[&str] = &[
    "amo.c",
    "active.c",
    "context.c",
    "exchange.c",
    "exit.c",
    "extension.c",
    "lock.c",
    "many_sets.c",
    "memory.c",
    "messages.c",
    "misuse.c",
    "mix.c",
    "move.c",
    "multicast.c",
    "order.c",
    "reduce.c",
    "rma.c",
    "session.c",
    "sets.c",
    "setup.c",
    "shared.c",
    "signal.c",
    "team.c",
    "threads.c",
    "wait.c",
];

/// Programs and the object files they are linked from.
struct Built {
    program: PathBuf,
    object: PathBuf,
}

/// What is there before any of the programs: folder of the library and the launcher, options that
/// select a linker, and a folder for the programs.
struct Ground {
    profile: PathBuf,
    linker: Vec<String>,
    folder: tempfile::TempDir,
}

static GROUND: LazyLock<Ground> = LazyLock::new(|| {
    let profile = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned();
    // `cargo test` builds neither the static library nor the launcher by itself; `make test` does.
    if std::env::var_os("MEMONET_TEST_BUILT").is_none() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "memonet-shmem", "-p", "memonet-cli"]);
        build.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "the library does not build");
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("types.h"), crate::types::header()).unwrap();
    Ground { profile, linker: fast_linker(), folder }
});

/// Options for the linker that Rust brings, which takes a fifth of the time of the system's. None
/// on platforms where Rust has none.
fn fast_linker() -> Vec<String> {
    let asked = Command::new("rustc")
        .args(["--print", "target-libdir"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    let Ok(output) = asked else { return Vec::new() };
    let libraries = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let linkers = libraries.with_file_name("bin").join("gcc-ld");
    match linkers.join("ld.lld").exists() {
        true => vec![format!("-B{}", linkers.display()), "-fuse-ld=lld".into()],
        false => Vec::new(),
    }
}

type Slot = Arc<OnceLock<Built>>;
static BUILT: LazyLock<Mutex<HashMap<Source, Slot>>> = LazyLock::new(Mutex::default);

/// Compiles a program, once.
fn built(source: Source) -> Slot {
    let slot = BUILT.lock().unwrap().entry(source).or_default().clone();
    slot.get_or_init(|| compile(source));
    slot
}

fn compile(source: Source) -> Built {
    let ground = &*GROUND;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/api/c");
    let stem = source.file.trim_end_matches(".c");
    let program = ground.folder.path().join(format!("{stem}-{:?}", source.language));
    let object = program.with_added_extension("o");
    let mut compiler = Command::new(if source.language == Language::Cxx { "c++" } else { "cc" });
    match source.language {
        Language::C => compiler.args(["-std=gnu11", "-O1"]),
        Language::GenericC => compiler.args(["-std=gnu11", "-DGENERIC"]),
        Language::Cxx => compiler.args(["-x", "c++", "-std=gnu++17", "-DGENERIC"]),
    };
    compiler.args([
        "-c",
        "-fwrapv",
        "-pthread",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-function",
    ]);
    compiler.arg("-I").arg(env!("MEMONET_INCLUDE")).arg("-I").arg(ground.folder.path());
    succeed(compiler.arg("-o").arg(&object).arg(folder.join(source.file)));
    let mut linker = Command::new("c++");
    linker.args(&ground.linker).arg("-o").arg(&program).arg(&object);
    linker.arg(ground.profile.join("libmemonet_shmem.a"));
    succeed(linker.args(["-Wl,--strip-debug", "-lpthread", "-ldl", "-lm"]));
    Built { program, object }
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {text}");
}

/// The functions of the library that a program calls.
pub fn called(source: Source) -> Vec<String> {
    let output =
        Command::new("nm").arg("-u").arg(&built(source).get().unwrap().object).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect()
}

/// A job to be run.
#[derive(Clone)]
pub struct Job {
    pub source: Source,
    pub npes: usize,
    fabric: Option<String>,
    recorded: bool,
    keeps_going: bool,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
    wrapper: Vec<String>,
    timeout_s: u32,
}

/// How a job ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit status of the launcher.
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Job {
    pub fn new(source: Source, npes: usize) -> Self {
        Job {
            source,
            npes,
            fabric: None,
            recorded: false,
            keeps_going: false,
            args: Vec::new(),
            env: Vec::new(),
            wrapper: Vec::new(),
            timeout_s: 60,
        }
    }

    /// On the test network.
    pub fn far(mut self, seed: usize) -> Self {
        self.fabric = Some(format!("{FAR}{seed}"));
        self
    }

    /// With two PEs on a node, and the test network between nodes.
    pub fn mixed(mut self, settings: &str) -> Self {
        self.fabric = Some(format!("far:nodes=2,{settings}"));
        self
    }

    /// With PEs that record what they do.
    pub fn recorded(mut self) -> Self {
        self.recorded = true;
        self
    }

    /// After a failure, other PEs have the whole timeout to end.
    pub fn keep_going(mut self) -> Self {
        self.keeps_going = true;
        self
    }

    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.into());
        self
    }

    pub fn env(mut self, name: &'static str, value: &str) -> Self {
        self.env.push((name, value.into()));
        self
    }

    /// Run by this command, which gets the program's path as its last argument.
    pub fn wrapper(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(|&word| word.into()).collect();
        self
    }

    /// For what has to end soon.
    pub fn timeout_s(mut self, seconds: u32) -> Self {
        self.timeout_s = seconds;
        self
    }

    pub fn run(&self) -> Ended {
        let built = built(self.source);
        let mut command = Command::new(GROUND.profile.join("memonet"));
        command.args([
            "run",
            "-n",
            &self.npes.to_string(),
            "--timeout",
            &self.timeout_s.to_string(),
        ]);
        if let Some(fabric) = &self.fabric {
            command.args(["--fabric", fabric]);
        }
        if self.recorded {
            command.arg("--stats");
        }
        if self.keeps_going {
            command.arg("--keep-going");
        }
        for name in
            ["SHMEM_SYMMETRIC_SIZE", "SMA_SYMMETRIC_SIZE", "MEMONET_CHECK", "MEMONET_FABRIC"]
        {
            command.env_remove(name);
        }
        for (name, value) in &self.env {
            command.env(name, value);
        }
        command.args(&self.wrapper).arg(&built.get().unwrap().program).args(&self.args);
        let output = command.stdin(Stdio::null()).output().unwrap();
        Ended {
            status: output.status.code().expect("the launcher is not killed"),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs the job: every PE must say that it is done.
    pub fn succeed(&self) {
        let ended = self.run();
        let done = ended.stdout.lines().filter(|&line| line == "done").count();
        let start: String = ended.stderr.chars().take(3000).collect();
        assert!(
            ended.status == 0 && done == self.npes,
            "{:?}, {} PEs, {:?}, {:?}: status {}, {done} done\n{start}",
            self.source,
            self.npes,
            self.fabric,
            self.args,
            ended.status
        );
    }
}
