//! A store to a near peer is one predictable branch and one `mov`: read from the machine code of
//! the release build.

use std::path::PathBuf;
use std::process::Command;

/// Instructions of a function in the release build of `examples/store_probe.rs`, from its entry on,
/// without addresses.
fn instructions(function: &str) -> Vec<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    // The release build that everything else of the workspace shares: with the command, whose
    // dependencies have more features.
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("a folder in the target folder")
        .to_path_buf();
    let built = Command::new(cargo)
        .args([
            "build",
            "--release",
            "--package=memonet",
            "--package=memonet-cli",
            "--example",
            "store_probe",
            "--manifest-path",
            manifest,
            "--target-dir",
        ])
        .arg(&target)
        .status()
        .expect("cargo starts");
    assert!(built.success(), "the probe builds");
    let listing = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", "-M", "intel", &format!("--disassemble={function}")])
        .arg(target.join("release/examples/store_probe"))
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
fn check_near_path(function: &str) {
    let all = instructions(function);
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
    check_near_path("store_probe_u64");
    check_near_path("store_probe_u8");
}
