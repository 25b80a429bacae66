//! Initialising, leaving, ending a job.

use crate::program::{Job, c};

fn near_and_far(npes: usize, args: &[&str]) -> [Job; 2] {
    let job = || args.iter().fold(Job::new(c("setup.c"), npes), |job, arg| job.arg(arg));
    [job(), job().far(npes)]
}

#[test]
fn programs_begin_and_end_as_they_like() {
    for npes in [1, 2, 5] {
        for args in [
            &["queries"][..],
            &["again"],
            &["start_pes"],
            &["forks"],
            &["no finalize"],
            &["no finalize", "exit"],
            &["no init"],
            &["level", "0"],
            &["level", "1"],
            &["level", "2"],
            &["level", "3"],
        ] {
            for job in near_and_far(npes, args) {
                job.succeed();
            }
        }
        for job in near_and_far(npes, &["heap"]) {
            let job = job.env("SHMEM_SYMMETRIC_SIZE", "10M");
            job.succeed();
            let told = "memonet: shmem_malloc gives NULL: 9437184 bytes beside the 9437184 in use are more than SHMEM_SYMMETRIC_SIZE=10M allows";
            let ended = job.run();
            assert_eq!(ended.stderr.matches(told).count(), 1, "{ended:?}");
        }
    }
}

#[test]
fn small_stacks_are_enough() {
    for job in near_and_far(2, &["again"]) {
        job.wrapper(&["sh", "-c", "ulimit -s 400; exec \"$0\" \"$@\""]).succeed();
    }
}

#[test]
fn a_status_of_the_programs_own() {
    for job in near_and_far(3, &["status", "3"]) {
        assert_eq!(job.run().status, 3);
    }
}

/// A program that has finalised the library, or never initialised it, may end in any way: its job
/// does not fail.
#[test]
fn ends_without_the_library() {
    for how in ["_exit", "quick", "exec", "never"] {
        for job in near_and_far(3, &["after", how]) {
            let ended = job.run();
            assert!(ended.status == 0 && ended.stderr.is_empty(), "{how}: {ended:?}");
        }
    }
    // The launcher reports a program that fails, and the other PEs go on.
    for job in near_and_far(3, &["after", "3"]) {
        let ended = job.run();
        let others = ended.stdout.lines().filter(|&line| line == "went on").count();
        assert!(
            ended.status == 3 && others == 2 && ended.stderr.contains("finalised, then"),
            "{ended:?}"
        );
    }
}

#[test]
fn one_pe_ends_the_job() {
    for (status, pe, how) in
        [(0, 0, ""), (7, 1, "thread"), (0, 3, "thread"), (255, 2, ""), (1, 4, "")]
    {
        for far in [false, true] {
            let job = Job::new(c("exit.c"), 5).timeout_s(20);
            let job = job.arg(&status.to_string()).arg(&pe.to_string()).arg(how);
            let ended = if far { job.far(3) } else { job }.run();
            assert_eq!(ended.status, status, "{ended:?}");
            assert!(
                !ended.stdout.contains("went on")
                    && ended.stdout.contains(&format!("printed {pe}")),
                "{ended:?}"
            );
            // The end is on purpose, so there is no message.
            assert!(ended.stderr.is_empty() || status != 0, "{ended:?}");
        }
    }
}

/// A PE that ends the job, or learns of the end, may call anything in its exit handlers: it still
/// ends by itself.
#[test]
fn handlers_wait_for_nobody() {
    for (how, status, others) in [
        ("", 7, ""),
        ("finalizing", 7, ""),
        ("mistake", 1, "dest: "),
        ("death", 137, "PE 0 failed: killed by signal 9"),
    ] {
        for call in ["free", "barrier", "wait", "lock", "mistake", "exit", "finalize"] {
            let job = Job::new(c("exit.c"), 4).timeout_s(20);
            // Where a PE fails, the others look up where they were called for their messages. That
            // takes longer than the launcher waits, where the CPUs have other work.
            let job = if others.is_empty() { job } else { job.keep_going() };
            let ended = job.arg("7").arg("0").arg(how).arg(call).run();
            assert!(
                ended.status == status && ended.stderr.contains(others),
                "{how:?}, then {call}: {ended:?}"
            );
            assert!(
                !ended.stderr.contains("by memonet") && !ended.stderr.contains("panicked"),
                "{how:?}, then {call}: {ended:?}"
            );
            assert!(
                ended.stdout.contains("at exit") && !ended.stdout.contains("went on"),
                "{how:?}, then {call}: {ended:?}"
            );
            assert!(call != "finalize" || ended.stdout.contains("and on"), "{how:?}: {ended:?}");
        }
    }
    let ended = Job::new(c("exit.c"), 2).timeout_s(2).arg("7").arg("0").arg("").arg("loop").run();
    assert!(ended.status == 7 && ended.stderr.contains("has not ended after 2s"), "{ended:?}");
}

#[test]
fn all_end_the_job_at_once() {
    let ended = Job::new(c("exit.c"), 5).arg("20").arg("0").arg("all").timeout_s(20).run();
    assert!((20..25).contains(&ended.status), "{ended:?}");
}

#[test]
fn limits_of_the_heap() {
    for (name, text) in [
        ("SHMEM_SYMMETRIC_SIZE", "64M"),
        ("SHMEM_SYMMETRIC_SIZE", "67108864"),
        ("SMA_SYMMETRIC_SIZE", "65536K"),
    ] {
        Job::new(c("memory.c"), 3).arg("64").env(name, text).succeed();
    }
    // The standard's own examples: a product is rounded up, and what follows the unit is ignored.
    for (text, bytes) in [("3.1M", 3250586), ("20kk", 20 << 10), (".5m_", 1 << 19), ("7", 7)] {
        let job = Job::new(c("memory.c"), 2).arg("bytes").arg(&bytes.to_string());
        job.env("SHMEM_SYMMETRIC_SIZE", text).succeed();
    }
    for name in ["SHMEM_SYMMETRIC_SIZE", "SMA_SYMMETRIC_SIZE"] {
        let ended = Job::new(c("memory.c"), 2).arg("64").env(name, "many").run();
        let said = ended.stderr.contains(&format!("{name}=\"many\""));
        assert!(ended.status != 0 && said, "{ended:?}");
    }
}

/// A PE that went on without memory would leave the others waiting for it.
#[test]
fn one_limit_for_all_heaps() {
    let of_pe = |text: &str| format!("[ $MEMONET_PE = 1 ] && export SHMEM_SYMMETRIC_SIZE={text}; ");
    for (text, said) in [("1M", "1048576"), ("64M", "67108864")] {
        let script = of_pe(text) + "exec \"$0\" \"$@\"";
        let job = Job::new(c("memory.c"), 2).wrapper(&["sh", "-c", &script]).timeout_s(20);
        let job = job.arg("bytes").arg(&(2 << 20).to_string());
        for (all, theirs) in [(None, ""), (Some("2M"), "2097152")] {
            let ended = all.map_or(job.clone(), |all| job.clone().env("SHMEM_SYMMETRIC_SIZE", all));
            let ended = ended.run();
            let told = ["shmem_malloc", "SHMEM_SYMMETRIC_SIZE", said, theirs];
            let told = told.iter().all(|word| ended.stderr.contains(word));
            assert!(ended.status == 1 && told, "{text}, {all:?}: {ended:?}");
        }
    }
}

/// The standard's variables by which a user asks about the library, and their old names.
#[test]
fn the_library_tells_about_itself() {
    for [version, info, debug] in
        [["SHMEM_VERSION", "SHMEM_INFO", "SHMEM_DEBUG"], ["SMA_VERSION", "SMA_INFO", "SMA_DEBUG"]]
    {
        let said = |name| {
            let ended = Job::new(c("session.c"), 2).env(name, "").run();
            assert_eq!(ended.status, 0, "{}", ended.stderr);
            ended.stderr
        };
        assert_eq!(
            said(version),
            format!("memonet: memonet {}, OpenSHMEM 1.6\n", env!("CARGO_PKG_VERSION"))
        );
        let told = said(info);
        for name in
            ["SHMEM_VERSION", "SHMEM_INFO", "SHMEM_SYMMETRIC_SIZE", "SHMEM_DEBUG", "MEMONET_CHECK"]
        {
            assert_eq!(told.matches(&format!("memonet: {name} (")).count(), 1, "{told}");
        }
        let told = said(debug);
        for pe in 0..2 {
            assert!(told.contains(&format!("memonet: PE {pe}: process ")), "{told}");
        }
        assert!(
            told.contains("one of 2 PEs, which reach each other by shared memory")
                && told.contains("checks that cost time are off"),
            "{told}"
        );
    }
}

/// A value without a meaning is an error.
#[test]
fn settings_that_are_none() {
    let checks = |value| Job::new(c("session.c"), 2).env("MEMONET_CHECK", value);
    for value in ["0", "1", ""] {
        checks(value).succeed();
    }
    for value in ["banana", "yes", "10", " 1"] {
        let ended = checks(value).run();
        let told = format!("MEMONET_CHECK={value:?} is neither 0 nor 1. Give 1 for all checks");
        assert!(ended.status != 0 && ended.stderr.contains(&told), "{ended:?}");
    }
}

/// A job whose PEs have lost what joins them does not become as many jobs of one.
#[test]
fn without_the_jobs_descriptor() {
    let ended = Job::new(c("session.c"), 2).wrapper(&["env", "-u", "MEMONET_JOB_FD"]).run();
    let told = " is set without MEMONET_JOB_FD, by which a PE finds its job. Start the program with `memonet run`; or unset";
    assert!(ended.status != 0 && ended.stderr.contains(told), "{ended:?}");
    let alone = ["env", "-u", "MEMONET_JOB_FD", "-u", "MEMONET_PE", "-u", "MEMONET_NPES"];
    Job::new(c("session.c"), 1).wrapper(&alone).succeed();
}
