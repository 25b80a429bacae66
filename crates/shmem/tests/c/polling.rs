//! A program that polls without success, by calls that do not wait, yields to the PE that shares
//! its CPU. So does one that polls its own memory without a call, after it has written.

use std::path::Path;

use crate::common::{BUILT, command, folder, installed, printed, source};

/// Runs the program with two PEs on one CPU.
fn on_one_cpu(program: &Path, environment: &[&str]) -> String {
    let mut launcher = command(Path::new("taskset"));
    launcher.arg("1").arg(BUILT.join("memonet")).args(["run", "--timeout", "60", "-n", "2", "env"]);
    printed(launcher.args(environment).arg(program))
}

#[test]
fn who_looks_in_vain_gives_way() {
    let folder = folder();
    let program = folder.path().join("program");
    for option in ["-O2", "-DSHMEMX_NO_INLINE"] {
        let mut compile = installed("oshcc");
        compile.args(["-Wall", "-Wextra", "-Werror", option, "-o"]).arg(&program);
        printed(compile.arg(source("polling.c")));
        for environment in [&[][..], &["MEMONET_CHECK=1"]] {
            let said = on_one_cpu(&program, environment);
            let mut lines: Vec<_> = said.lines().collect();
            lines.sort_unstable();
            let expected = ["PE 0: gives way", "PE 1: gives way"];
            assert_eq!(lines, expected, "{option} {environment:?}");
        }
    }
}
