//! A store to a near peer is one predictable branch and one `mov`: read from machine code that is
//! optimised as in a release.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates of which a store is made, and the levels of their code. A store is compiled with the
/// probe, as in a release: the core gives it functions to inline, and a call of one that is not
/// inlined would be seen. To optimise the rest of the core as far would take twice as long.
const LEVELS: [(&str, &str); 2] = [("memonet-core", "opt-level=1"), ("memonet", "opt-level=3")];
/// What the release profile sets for their code.
const AS_IN_A_RELEASE: [&str; 3] =
    ["debug-assertions=false", "overflow-checks=false", "codegen-units=1"];

/// Builds `examples/store_probe.rs`, and gives its path. The other crates are those that the
/// workspace's tests have built: to build them for a release takes as long as the two that matter.
/// A call of one of them in a store would be seen.
fn probe() -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let target = target.parent().expect("a folder in the target folder");
    let mut build = Command::new(cargo);
    build.args(["build", "--workspace", "--example=store_probe"]);
    build.arg(concat!("--manifest-path=", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    build.arg("--target-dir").arg(target);
    for (package, level) in LEVELS {
        for setting in AS_IN_A_RELEASE.into_iter().chain([level]) {
            build.args(["--config", &format!("profile.dev.package.{package}.{setting}")]);
        }
    }
    assert!(build.status().expect("cargo starts").success(), "the probe builds");
    target.join("debug/examples/store_probe")
}

/// Instructions of a function in that program, from its entry on, without addresses.
fn instructions(probe: &Path, function: &str) -> Vec<String> {
    let listing = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", "-M", "intel", &format!("--disassemble={function}")])
        .arg(probe)
        .output()
        .expect("objdump (package binutils) is installed");
    let text = String::from_utf8_lossy(&listing.stdout).into_owned();
    let body: Vec<String> = text
        .lines()
        .skip_while(|line| !line.ends_with(&format!("<{function}>:")))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| Some(line.split_once(":\t")?.1.split('#').next()?.trim().to_string()))
        .collect();
    assert!(!body.is_empty(), "objdump shows {function}:\n{text}");
    body
}

/// The near path: from the entry, not taking the branch, to the return.
fn check_near_path(probe: &Path, function: &str) {
    let all = instructions(probe, function);
    let end = all.iter().position(|i| i == "ret").expect("the near path returns without a jump");
    let near = &all[..end];
    let is_jump = |i: &&String| i.starts_with('j');
    let writes_memory = |i: &&String| {
        i.split_once(' ')
            .is_some_and(|(_, operands)| operands.split(',').next().unwrap().contains('['))
            && !i.starts_with("cmp")
    };
    let jumps: Vec<_> = near.iter().filter(is_jump).collect();
    let writes: Vec<_> = near.iter().filter(writes_memory).collect();
    assert_eq!(jumps.len(), 1, "one branch, near or far:\n{near:#?}");
    assert_eq!(writes.len(), 1, "one instruction writes memory:\n{near:#?}");
    assert!(writes[0].starts_with("mov "), "and it is a plain mov:\n{near:#?}");
    assert!(
        near.iter().all(|i| !i.starts_with("call")
            && !i.starts_with("lock")
            && !i.contains("fence")
            && !i.starts_with("xchg")),
        "nothing else costs:\n{near:#?}"
    );
    assert!(near.len() <= 6, "tag, branch, pointer, value, store:\n{near:#?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_near_store_is_one_branch_and_one_mov() {
    let probe = probe();
    check_near_path(&probe, "store_probe_u64");
    check_near_path(&probe, "store_probe_u8");
}
