//! Environment variables: names that nobody reads, values that cannot be, limits that come from
//! them.

mod common;

use common::{pe, run};

/// `pe` with these arguments and settings, without a launcher.
fn alone(args: &[&str], settings: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut program = std::process::Command::new(pe());
    let output = program.args(args).envs(settings.iter().copied()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_variable_that_nobody_reads_is_told_once() {
    let told = |name: &str, nearest: &str| {
        format!(
            "memonet: there is no variable {name}, so it has no effect; the nearest is {nearest}."
        )
    };
    for (name, nearest) in
        [("MEMONET_BARIER", "MEMONET_BARRIER"), ("MEMONET_SEGMENTS_SIZE", "MEMONET_SEGMENT_SIZE")]
    {
        let setting = format!("{name}=tree");
        let ended = run(&["-n", "3", "--env", &setting, &pe(), "init"]);
        assert_eq!(ended.status, 0, "{ended:?}");
        assert!(
            ended.stderr.starts_with(&told(name, nearest)) && ended.stderr.lines().count() == 1,
            "{ended:?}"
        );
        let (status, stderr) = alone(&["init"], &[(name, "tree")]);
        assert_eq!(status, Some(0), "{stderr}");
        assert!(
            stderr.starts_with(&told(name, nearest)) && stderr.lines().count() == 1,
            "{stderr}"
        );
    }
}

#[test]
fn values_that_cannot_be_are_refused_with_those_that_can() {
    for (name, value, fix) in [
        ("MEMONET_CHECK", "yes", "Give 1"),
        ("MEMONET_LOG", "loud", "Use info, debug or trace"),
        ("MEMONET_BARRIER", "centrl", "everyone (up to 8 PEs), central, tree or dissemination"),
        ("MEMONET_COLLECTIVES", "fast", "line, eager, direct, multicast or nodes"),
        // Of what the program never uses, too.
        ("MEMONET_MULTICAST", "tre", "near, tree, network, hosts or udp:"),
        ("MEMONET_FABRIC", "near", "far, tcp or ofi"),
        ("MEMONET_SEGMENT_SIZE", "lots", "such as 512M"),
        ("MEMONET_SEGMENT_SIZE", "1M", "is less than 2 MiB"),
    ] {
        let (status, stderr) = alone(&["init"], &[(name, value)]);
        assert_eq!(status, Some(42), "{name}={value}: {stderr}");
        assert!(
            stderr.contains(&format!("{name}={value:?}")) && stderr.contains(fix),
            "{name}={value}: {stderr}"
        );
    }
}

/// Scripts clear variables so.
#[test]
fn an_empty_value_is_none() {
    for name in [
        "MEMONET_CHECK",
        "MEMONET_LOG",
        "MEMONET_BARRIER",
        "MEMONET_COLLECTIVES",
        "MEMONET_FABRIC",
        "MEMONET_MULTICAST",
        "MEMONET_SEGMENT_SIZE",
        "MEMONET_SYMMETRIC_LIBS",
    ] {
        assert_eq!(alone(&["init"], &[(name, "")]), (Some(0), String::new()), "{name}");
        let setting = format!("{name}=");
        let ended = run(&["-n", "2", "--env", &setting, &pe(), "soak", "1"]);
        assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{name}");
        // It is the same as what another PE does not have.
        let ended =
            run(&["-n", "1", &pe(), "init", ":", "-n", "1", "env", &setting, &pe(), "init"]);
        assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{name}");
    }
}

#[test]
fn the_launcher_refuses_once_what_each_pe_would_refuse() {
    for (options, named) in [
        (["--env", "MEMONET_BARRIER=foo"], "MEMONET_BARRIER=\"foo\" is no barrier algorithm"),
        (["--env", "MEMONET_COLLECTIVES=foo"], "MEMONET_COLLECTIVES=\"foo\" names no way"),
        (["--env", "MEMONET_CHECK=foo"], "MEMONET_CHECK=\"foo\" is neither 0 nor 1"),
        (["--fabric", "foo"], "'--fabric <SPEC>': names no fabric"),
        (["--fabric", "far:pace=1"], "'--fabric <SPEC>': "),
        (["--env", "MEMONET_FABRIC=foo"], "MEMONET_FABRIC=\"foo\" names no fabric"),
    ] {
        let ended = run(&[&options[..], &["-n", "3", "true"]].concat());
        assert_ne!(ended.status, 0, "{ended:?}");
        assert!(ended.stderr.contains(named), "{ended:?}");
    }
}

#[test]
fn an_error_names_the_variable_that_its_limit_comes_from() {
    let need = |settings: &[(&str, &str)]| alone(&["need", "99999999999999"], settings).1;
    let set = need(&[("MEMONET_SEGMENT_SIZE", "8M")]);
    assert!(
        set.contains(
            "no room for 99999999999999 bytes in a segment of 8388608 (MEMONET_SEGMENT_SIZE=8M)"
        ),
        "{set}"
    );
    assert!(!need(&[]).contains("(MEMONET_SEGMENT_SIZE"));
}

/// PEs that meet in different ways would wait for each other for ever.
#[test]
fn settings_that_differ_between_pes_are_refused() {
    for (name, value) in [
        ("MEMONET_BARRIER", "tree"),
        ("MEMONET_COLLECTIVES", "direct"),
        ("MEMONET_MULTICAST", "near"),
        ("MEMONET_FABRIC", "far"),
        ("MEMONET_CHECK", "1"),
    ] {
        let setting = format!("{name}={value}");
        let ended =
            run(&["-n", "1", &pe(), "init", ":", "-n", "1", "env", &setting, &pe(), "init"]);
        assert!(
            ended.status == 42
                && ended.stderr.contains("differs from what another PE of this job has"),
            "{ended:?}"
        );
    }
}

#[test]
fn choices_and_their_reasons_are_told_where_somebody_asks() {
    let said = |level: &str| {
        let mut job = std::process::Command::new(env!("CARGO_BIN_EXE_memonet"));
        let job = job.args(["run", "-n", "2", &pe(), "soak", "1"]).env("MEMONET_LOG", level);
        let output = job.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(said("off"), "");
    let info = said("info");
    for fact in ["PE 1 is process", "PE 1: one of 2, 2 of them near", "MEMONET_LOG=info"] {
        assert!(info.contains(fact), "{fact}: {info}");
    }
    assert!(!info.contains("barrier of"), "{info}");
    let debug = said("debug");
    assert_eq!(debug.matches("PE 0: barrier of 2 PEs").count(), 1, "each choice once: {debug}");
    assert!(debug.contains("pe.rs:"), "where the window is made: {debug}");
    assert!(!debug.contains("sleeps"), "{debug}");
}
