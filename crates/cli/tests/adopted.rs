//! PEs that another launcher has started: they find each other by themselves.

mod common;

use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Variables by which launchers say size, rank, and how many processes are here.
const LAUNCHERS: [[&str; 3]; 3] = [
    ["OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    ["PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS"],
    ["PALS_NRANKS", "PALS_RANKID", "PALS_LOCAL_SIZE"],
];

/// Runs `pe ring` in `n` processes, started in this order as by that launcher.
fn ring(launcher: [&str; 3], order: &[usize], fails: &str) -> Vec<Output> {
    let n = order.len().to_string();
    let start = |rank: &usize| {
        let mut command = Command::new(common::pe());
        command
            .args(["ring", fails])
            .env(launcher[0], &n)
            .env(launcher[1], rank.to_string())
            .env(launcher[2], &n);
        // Apart from the jobs of other tests, which this process starts too.
        command.env("PMIX_NAMESPACE", format!("{launcher:?}{order:?}{fails}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = order.iter().map(start).collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

#[test]
fn processes_find_each_other_in_any_order() {
    for launcher in LAUNCHERS {
        for order in [vec![0, 1], vec![1, 0], vec![2, 0, 1], vec![4, 3, 2, 1, 0]] {
            let n = order.len();
            for (rank, end) in order.iter().zip(ring(launcher, &order, "nobody")) {
                let expected = format!("{rank} of {n} after {}\n", (rank + n - 1) % n);
                assert_eq!(
                    String::from_utf8_lossy(&end.stdout),
                    expected,
                    "{}",
                    String::from_utf8_lossy(&end.stderr)
                );
                assert!(end.status.success());
            }
        }
    }
}

#[test]
fn who_ends_in_failure_tells_the_others() {
    for (rank, end) in ring(LAUNCHERS[1], &[0, 1, 2], "1").into_iter().enumerate() {
        let error = String::from_utf8_lossy(&end.stderr);
        assert_eq!(end.status.code(), Some(if rank == 1 { 3 } else { 42 }), "{error}");
        assert_eq!(error.contains("PE 1 failed: ended with exit status 3"), rank != 1, "{error}");
    }
}

/// A process that does not outlive a test which fails.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The other launcher tells nobody. Collected by its parent or not, who has ended is missed,
/// whichever way the others wait.
#[test]
fn who_dies_is_missed() {
    for (how, cause) in [
        ("kill", "killed by signal 9"),
        ("segv", "killed by signal 11"),
        ("_exit", "left with _exit(0)"),
    ] {
        for collected in [true, false] {
            let mut children: Vec<_> = (0..4)
                .map(|rank: usize| {
                    let mut command = Command::new(common::pe());
                    command.args(["die", how]).env("PMIX_NAMESPACE", format!("{how}{collected}"));
                    command.envs(LAUNCHERS[1].iter().zip(["4", &rank.to_string(), "4"]));
                    Ending(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
                })
                .collect();
            let mut last = children.pop().unwrap();
            if collected {
                common::wait(&mut last.0);
            }
            for (rank, child) in children.iter_mut().enumerate() {
                assert_eq!(common::wait(&mut child.0).code(), Some(42));
                let said = common::collect(child.0.stdout.take().unwrap()).join().unwrap();
                // How it was, not every kernel tells once the process has been collected.
                let told =
                    said.contains(cause) || collected && said.contains("ended without finalising");
                assert!(
                    said.starts_with(&format!("PE {rank} saw: PE 3 failed: ")) && told,
                    "{said}"
                );
            }
        }
    }
}

#[test]
fn processes_on_several_machines_are_no_job() {
    let output = Command::new(common::pe())
        .args(["ring", "nobody"])
        .envs([("PMI_SIZE", "4"), ("PMI_RANK", "1"), ("MPI_LOCALNRANKS", "2")])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success()
            && error.contains("memonet run -n 4")
            && error.contains("PMI_SIZE"),
        "{error}"
    );
}

/// Slurm sets some of the variables of another launcher, beside all of its own.
#[test]
fn variables_of_several_launchers_are_no_obstacle() {
    let start = |rank: usize| {
        let mut command = Command::new(common::pe());
        command.args(["ring", "nobody"]).env("PMIX_NAMESPACE", "several");
        for size in ["PMI_SIZE", "SLURM_STEP_NUM_TASKS"] {
            command.env(size, "2");
        }
        for number in ["PMI_RANK", "SLURM_PROCID"] {
            command.env(number, rank.to_string());
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for pe in [0, 1].map(start) {
        let output = pe.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Programs that do not wait for each other but to meet: some are at the next one, or the one
/// after, before others have left the first.
#[test]
fn programs_one_after_the_other_do_not_meet() {
    const PES: usize = 12;
    let folder = tempfile::tempdir().unwrap();
    let launcher = folder.path().join("mpirun");
    // A shell for each rank, of another name than the launcher.
    let each =
        format!("for i in $(seq 60); do '{}' init || echo $PMI_RANK: $i; done", common::pe());
    let text = format!(
        "#!/bin/sh\nfor rank in $(seq 0 {last}); do\n\
         PMI_SIZE={PES} MPI_LOCALNRANKS={PES} PMI_RANK=$rank sh -c \"$EACH\" &\n\
         done\nwait\n",
        last = PES - 1,
    );
    std::fs::write(&launcher, text).unwrap();
    let mut mode = std::fs::metadata(&launcher).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o700);
    std::fs::set_permissions(&launcher, mode).unwrap();
    let output = Command::new(&launcher).env("EACH", each).output().unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.is_empty() && err.is_empty(), "{out}{err}");
}

/// Under another launcher nobody asks PEs what they wait for, so SIGQUIT to a PE does, and the PE
/// goes on.
#[test]
fn sigquit_to_a_pe_says_what_it_waits_for() {
    let waits = common::example("waits");
    let folder = tempfile::tempdir().unwrap();
    let said = |rank: usize| std::fs::read_to_string(folder.path().join(rank.to_string()));
    let start = |rank: usize| {
        let mut command = Command::new(&waits);
        command.arg("barrier").env("PMIX_NAMESPACE", "quit").env("MEMONET_LOG", "info");
        command.envs(LAUNCHERS[1].iter().zip(["2", &rank.to_string(), "2"]));
        let errors = std::fs::File::create(folder.path().join(rank.to_string())).unwrap();
        common::usual_signals(&mut command);
        Ending(command.stdout(Stdio::null()).stderr(errors).spawn().unwrap())
    };
    let pes = [0, 1].map(start);
    let waits_for = [" in Job::barrier at crates/cli/examples/waits.rs:", " to be >= 5; it is 4\n"];
    for (rank, waits_for) in waits_for.into_iter().enumerate() {
        let count = |part: &str| said(rank).unwrap().matches(part).count();
        let process = pes[rank].0.id();
        let ask = || common::send(process as i32, rustix::process::Signal::QUIT);
        common::until("it joins", || count("says at SIGQUIT what it waits for") == 1);
        // At first it may wait for the other one to join.
        common::until(waits_for, || {
            ask();
            std::thread::sleep(Duration::from_millis(100));
            count(waits_for) > 0
        });
        let asked = format!("PE {rank} (process {process}), what its threads wait for:");
        let waited = format!("memonet: PE {rank} has waited ");
        for _ in 0..3 {
            let before = [&*asked, &*waited, waits_for].map(count);
            ask();
            for (part, before) in [&*asked, &*waited, waits_for].into_iter().zip(before) {
                common::until(part, || count(part) > before);
            }
            assert!(count(&waited) <= count(&asked), "{}", said(rank).unwrap());
        }
    }
    assert!(said(0).unwrap().contains(" for the barrier of all PEs; missing: PE 1\n"));
}
