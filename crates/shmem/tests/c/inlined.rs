//! Inlined code does what the functions do, however a program is linked, and passes by no tool that
//! replaces a function.

use std::path::{Path, PathBuf};

use crate::common::{folder, installed, job, printed, source};
use crate::statics::WAYS;

const TOOL: &str = "#include <pshmem.h>\n\
    #ifdef __cplusplus\nextern \"C\"\n#endif\n\
    void shmem_int_p(int *dest, int value, int pe) { pshmem_int_p(dest, value + 100, pe); }\n";

/// Compiles with functions inlined.
fn compiled(folder: &Path, name: &str, wrapper: &str, options: &[&str]) -> PathBuf {
    let program = folder.join("program");
    let mut compile = installed(wrapper);
    compile.args(["-Wall", "-Wextra", "-Werror", "-O2", "-o"]).arg(&program).args(options);
    printed(compile.arg(source(name)));
    program
}

/// Runs it with three PEs: each says whether words went without a call before it was initialised,
/// then, in a child, and after it had finalised.
#[track_caller]
fn assert_open(
    options: &[&str],
    environment: &[&str],
    program: &Path,
    expected: &str,
    way: &[&str],
) {
    let arguments = [environment, &[program.to_str().expect("text")]].concat();
    let mut said: Vec<_> = printed(&mut job(3, options, Path::new("env"), &arguments))
        .lines()
        .map(str::to_owned)
        .collect();
    said.sort();
    let all = [0, 1, 2].map(|pe| format!("PE {pe}: {expected}"));
    assert_eq!(said, all, "{way:?}, {options:?}, {environment:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn words_arrive_without_a_call() {
    let folder = folder();
    for wrapper in ["oshcc", "oshc++"] {
        let language: &[&str] = if wrapper == "oshcc" { &[] } else { &["-x", "c++"] };
        for way in WAYS.iter().chain(&[&["-DSHMEMX_NO_INLINE"][..]]) {
            let program =
                compiled(folder.path(), "inlined.c", wrapper, &[way, language, &["-O2"]].concat());
            let expected = if way[0] == "-DSHMEMX_NO_INLINE" { "-1 -1 255 -1" } else { "0 1 0 0" };
            assert_open(&[], &[], &program, expected, way);
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn far_and_with_all_checks_functions_are_called() {
    let folder = folder();
    let program = compiled(folder.path(), "inlined.c", "oshcc", &[]);
    assert_open(&["--fabric", "far:delay_us=20,reorder=1"], &[], &program, "0 0 0 0", &[]);
    assert_open(&[], &["MEMONET_CHECK=1"], &program, "0 0 0 0", &[]);
}

/// In the program, whatever its language; or before it.
#[test]
fn tools_see_calls_that_could_be_inlined() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    // One that includes nothing but what the program does has the header's definitions before its
    // own.
    let late =
        TOOL.replace("pshmem.h>\n", "shmem.h>\nvoid pshmem_int_p(int *dest, int value, int pe);\n");
    for (name, text) in [("tool.c", TOOL), ("tool.cpp", TOOL), ("late.c", &late)] {
        std::fs::write(at(name), text).unwrap();
    }
    let assert_seen = |environment: &[&str], program: &Path, how: &str| {
        let arguments = [environment, &[program.to_str().expect("text")]].concat();
        // The program finds another number than it expects.
        let mut launch = job(3, &["--keep-going"], Path::new("env"), &arguments);
        let output = launch.output().unwrap();
        let mut said: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
        said.sort_unstable();
        assert_eq!(
            said,
            ["PE 0 of 3: 102", "PE 1 of 3: 100", "PE 2 of 3: 101"],
            "{how}: {output:?}"
        );
    };
    for way in [&["-fPIE"][..], &["-no-pie", "-fno-pie"], &["-static"], &["-flto"]] {
        for tool in ["tool.c", "tool.cpp", "late.c"] {
            let object = at("tool.o");
            let wrapper = if tool.ends_with("pp") { "oshc++" } else { "oshcc" };
            printed(
                installed(wrapper)
                    .args(["-O2", "-c", "-o", &object, &at(tool)])
                    .args(way.iter().filter(|word| **word != "-static")),
            );
            let program =
                compiled(folder.path(), "hello.c", "oshcc", &[way, &[object.as_str()]].concat());
            assert_seen(&[], &program, &format!("{tool} {way:?}"));
        }
    }
    let library = at("tool.so");
    printed(installed("oshcc").args(["-O2", "-shared", "-fPIC", "-o", &library, &at("tool.c")]));
    for way in [&["-fPIE"][..], &["-no-pie", "-fno-pie"]] {
        let program = compiled(folder.path(), "hello.c", "oshcc", way);
        assert_seen(&[&format!("LD_PRELOAD={library}")], &program, &format!("{way:?}"));
        let program = compiled(folder.path(), "inlined.c", "oshcc", way);
        let preload = format!("LD_PRELOAD={library}");
        let mut launch = job(
            1,
            &["--keep-going"],
            Path::new("env"),
            &[&preload, program.to_str().expect("text")],
        );
        let said = String::from_utf8(launch.output().unwrap().stdout).unwrap();
        assert!(cfg!(not(target_arch = "x86_64")) || said == "PE 0: 0 0 0 0\n", "{said}");
    }
}
