//! `memonet demo pagerank`, run as a user runs it, against what networkx computes for the same
//! file.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use flate2::{Compression, write::GzEncoder};
use tempfile::TempDir;

const DEBIAN: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/debian-bookworm-depends.txt.gz");
const PES: [usize; 4] = [1, 2, 4, 7];

/// The demo; PEs that no longer agree on who waits for whom would wait for ever, so `timeout` ends
/// it.
fn demo() -> Command {
    let mut command = Command::new("timeout");
    command.args(["300", env!("CARGO_BIN_EXE_memonet"), "demo", "pagerank"]).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Names with ranks, highest first.
type Ranks = Vec<(String, f64)>;

/// Takes `name rank` lines apart.
fn ranks(lines: &str) -> Ranks {
    let pair = |line: &str| {
        let (name, rank) = line.split_once(' ').unwrap();
        (name.to_owned(), rank.parse().unwrap())
    };
    lines.lines().map(pair).collect()
}

/// The 20 highest, from a table of `place rank name` lines.
fn shown(stdout: &str) -> Vec<String> {
    let table = stdout.lines().skip(1).take_while(|line| !line.is_empty());
    table.map(|line| line.split_whitespace().nth(2).unwrap().to_owned()).collect()
}

fn reference(file: &Path) -> Ranks {
    let python = std::env::var("MEMONET_TEST_PYTHON").unwrap_or("python3".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/pagerank_reference.py");
    let output =
        Command::new(&python).arg(script).arg(file).env("PYTHONUTF8", "1").output().unwrap_or_else(
            |e| panic!("{python}: {e}; set MEMONET_TEST_PYTHON to a Python that has networkx"),
        );
    assert!(
        output.status.success(),
        "{python} {script} failed; `{python} -m pip install networkx numpy scipy` installs what it needs, \
         or set MEMONET_TEST_PYTHON to a Python that has it\n{}",
        text(&output.stderr)
    );
    ranks(text(&output.stdout))
}

fn assert_same(ours: &Ranks, theirs: &Ranks, case: &str) {
    let expected: HashMap<_, _> = theirs.iter().cloned().collect();
    assert_eq!(ours.len(), expected.len(), "{case}: nodes");
    for (name, rank) in ours {
        let expected =
            expected.get(name).unwrap_or_else(|| panic!("{case}: networkx has no node {name:.80}"));
        assert!(
            (rank - expected).abs() < 1e-9,
            "{case}: {name:.80} has rank {rank}, networkx says {expected}"
        );
    }
    // Where ranks are the same, rounding decides who comes first; so the order is compared by rank,
    // not by name.
    for (place, ((_, ours), (_, theirs))) in ours.iter().zip(theirs).enumerate() {
        assert!(
            (ours - theirs).abs() < 1e-9,
            "{case}: the rank at place {place} is {ours}, networkx says {theirs}"
        );
    }
}

/// What networkx computes for Debian's packages.
fn of_debian() -> &'static Ranks {
    static RANKS: LazyLock<Ranks> = LazyLock::new(|| reference(DEBIAN.as_ref()));
    &RANKS
}

/// Ranks the file with each number of PEs; all must say what networkx says. Returns the last table.
fn check(file: &Path, theirs: &Ranks, extra: &[(&str, &str)]) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let all = folder.path().join("ranks");
    let mut table = Vec::new();
    for n in PES {
        let case = format!("{} with {n} PEs", file.display());
        let output = demo()
            .arg("-n")
            .arg(n.to_string())
            .arg("--ranks")
            .arg(&all)
            .arg(file)
            .envs(extra.iter().copied())
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{case}: {}: {}", output.status, text(&output.stderr));
        let ours = ranks(&std::fs::read_to_string(&all).unwrap());
        assert_same(&ours, theirs, &case);
        table = shown(text(&output.stdout));
        assert_eq!(table.len(), ours.len().min(20), "{case}: nodes shown");
        for (shown, (name, _)) in table.iter().zip(&ours) {
            assert!(
                name.starts_with(shown.trim_end_matches('…')),
                "{case}: shown is {shown}, written {name:.80}"
            );
        }
    }
    table
}

fn check_text(edges: &str) {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("edges.txt");
    std::fs::write(&file, edges).unwrap();
    check(&file, &reference(&file), &[]);
}

#[test]
fn debian_as_networkx_ranks_it() {
    let theirs: Vec<_> = of_debian().iter().take(20).map(|(name, _)| name.clone()).collect();
    assert_eq!(check(DEBIAN.as_ref(), of_debian(), &[]), theirs);

    let built_in = demo().output().unwrap();
    assert!(built_in.status.success());
    assert_eq!(shown(text(&built_in.stdout)), theirs, "without a file");
    let (told, out) = (text(&built_in.stderr), text(&built_in.stdout));
    assert!(told.contains("iteration "), "progress: {told}");
    assert!(out.contains("63,798 nodes, 275,520 edges\n"), "{out}");
}

#[test]
fn debian_through_a_fabric() {
    check(DEBIAN.as_ref(), of_debian(), &[("MEMONET_FABRIC", "far")]);
}

#[test]
fn one_edge() {
    check_text("a b\n");
}

#[test]
fn one_node_with_a_self_loop() {
    check_text("a a\n");
}

#[test]
fn a_ring() {
    check_text("a b\nb c\nc d\nd e\ne a\n");
}

#[test]
fn a_self_loop_counts_as_an_edge() {
    check_text("a a\na b\nb c\nc c\nc a\n");
}

#[test]
fn an_edge_given_twice_counts_once() {
    check_text("a b\na b\na c\na b\nc a\n");
}

#[test]
fn only_dangling_targets() {
    check_text("a x\nb x\nc x\nc y\n");
}

#[test]
fn comments_empty_lines_odd_gaps_and_other_alphabets() {
    check_text("# a comment of many words\n\n \t\nä\tß  \r\nß 語\u{3000}\n  # x\n語 ä");
}

#[test]
fn a_name_of_half_a_million_characters() {
    let long = "x".repeat(500_000);
    check_text(&format!("{long} {long}y\n{long}y a\n"));
}

/// Hubs, isolated pairs, loops, nodes that nothing leads to or from; from a fixed seed.
#[test]
fn a_random_graph_with_hubs() {
    let mut state = 1u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let edges: String = (0..3000)
        .map(|_| {
            let below = 1 + random(500);
            format!("v{} v{}\n", random(500), random(below))
        })
        .collect();
    check_text(&edges);
}

#[test]
fn gzip_is_known_by_its_bytes_and_a_pipe_will_do() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(b"a b\nb c\n").unwrap();
    let bytes = encoder.finish().unwrap();
    let mut child =
        demo().arg("/dev/stdin").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(shown(text(&output.stdout)), ["c", "b", "a"]);
}

/// Two nodes on PEs 0 and 1 of 3, each pointing to the other. The ranks are right from the start,
/// so one iteration changes nothing and the next look sees it.
#[test]
fn operations_are_counted() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("edges.txt");
    std::fs::write(&file, "a b\nb a\n").unwrap();
    let report =
        |n: &str| text(&demo().args(["-n", n]).arg(&file).output().unwrap().stdout).to_owned();
    let alone = report("1");
    assert!(alone.contains(" 1 on 1 PE\n") && alone.contains(" 0 operations, 0 bytes "), "{alone}");
    let three = report("3");
    // Once: a list from each to each, 4 bytes and 4 more for the one place in two of them. Twice:
    // two totals, 16 bytes, from each to each, and one sum, 8 bytes, from either node to the other.
    assert!(three.contains(" 22 operations, 256 bytes "), "{three}");
}

/// Runs the demo on what cannot be ranked and returns its one complaint.
fn complaint(file: &Path, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = demo().args(arguments).arg(file).output().unwrap();
    let told = text(&stderr);
    assert_eq!(status.code(), Some(1), "{told}");
    assert_eq!(text(&stdout), "", "{told}");
    // On a slow machine, words of progress may come first.
    let complaints: Vec<_> = told.lines().filter(|line| !line.ends_with(" lines read")).collect();
    assert_eq!(complaints.len(), 1, "one line, not several: {told}");
    assert!(complaints[0].contains(&file.display().to_string()), "the file is named: {told}");
    complaints[0].to_owned()
}

fn complaint_on(bytes: &[u8], expected: &str) {
    let folder = TempDir::new().unwrap();
    let file: PathBuf = folder.path().join("edges");
    std::fs::write(&file, bytes).unwrap();
    for n in ["1", "4"] {
        let told = complaint(&file, &["-n", n]);
        assert!(told.contains(&format!("edges{expected}")), "with {n} PEs: {told}");
        assert!(told.len() < 400, "{told}");
    }
}

#[test]
fn bad_files_are_refused_by_name_and_line() {
    complaint_on(b"", ": no edge in 0 lines");
    complaint_on(b"# only\n\n# comments\n", ": no edge in 3 lines");
    complaint_on(b"a b\nc d\nlonely\n", ":3: one word, `lonely`");
    complaint_on(b"a b\nc d 0.5\n", ":2: 3 words");
    complaint_on(b"a b\nc \xff\xfe\n", ":2: byte 3 of the line is not UTF-8");
    complaint_on("x".repeat(1_000_000).as_bytes(), ":1: one word, `xxx");
    complaint_on(b"\x1f\x8b but not gzip", ":1: cannot read on");
    let whole = std::fs::read(DEBIAN).unwrap();
    complaint_on(&whole[..whole.len() - 100], ":27");
}

#[test]
fn files_that_cannot_be_opened_are_named() {
    let folder = TempDir::new().unwrap();
    let told = complaint(&folder.path().join("missing"), &[]);
    assert!(told.contains("No such file or directory"), "{told}");
    let told = complaint(folder.path(), &[]);
    assert!(told.contains("Is a directory"), "{told}");

    let output = demo().arg("--ranks").arg(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "", "told before the work, not after it");
    assert!(text(&output.stderr).contains(&format!("cannot write {}", folder.path().display())));
}
