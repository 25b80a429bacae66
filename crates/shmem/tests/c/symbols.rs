//! The symbols that the libraries define and need, and tools that replace functions.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::common::{PREFIX, assert_says_hello, folder, installed, lines, printed, source};

/// All names of the interface, those for tools, and what the header refers to.
fn names() -> BTreeSet<String> {
    let names = memonet_shmem_api::symbols();
    let objects = memonet_shmem_api::objects().into_iter().map(str::to_owned);
    names.iter().flat_map(|name| [name.clone(), format!("p{name}")]).chain(objects).collect()
}

/// Names and kinds of the symbols that `nm` lists.
fn symbols(options: &[&str], file: &Path) -> BTreeSet<(String, char)> {
    let listed =
        printed(Command::new("nm").args(options).args(["--format=posix", "--no-sort"]).arg(file));
    let entry = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next()?;
        Some((name.to_owned(), words.next()?.chars().next()?))
    };
    listed.lines().filter_map(entry).collect()
}

#[test]
fn libraries_define_the_interface_and_nothing_else() {
    for (options, file) in [
        (&["--dynamic", "--defined-only"], "lib/libmemonet.so"),
        (&["--extern-only", "--defined-only"], "lib/libmemonet.a"),
    ] {
        let found = symbols(options, &PREFIX.join(file));
        let defined: BTreeSet<String> = found.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(defined, names(), "{file}");
        // A tool replaces the ones, and calls the others.
        for (name, kind) in &found {
            let expected = match name.as_str() {
                name if name.starts_with("SHMEM") => 'R',
                // Of zeros alone, where it has no place in a file.
                name if memonet_shmem_api::objects().contains(&name) => {
                    if *kind == 'B' {
                        'B'
                    } else {
                        'D'
                    }
                }
                name if defined.contains(&format!("p{name}")) => 'W',
                _ => 'T',
            };
            assert_eq!(*kind, expected, "{name} in {file}");
        }
    }
}

#[test]
fn the_shared_library_needs_libc_alone() {
    let dynamic = printed(
        Command::new("readelf").args(["--dynamic", "--wide"]).arg(PREFIX.join("lib/libmemonet.so")),
    );
    let of = |kind: &str| {
        let lines = dynamic.lines().filter(|line| line.contains(kind));
        let name = |line: &str| Some(line.split_once('[')?.1.trim_end_matches(']').to_owned());
        lines.filter_map(name).collect::<Vec<_>>()
    };
    assert_eq!(of("(SONAME)"), ["libmemonet.so.0"]);
    let needed = of("(NEEDED)");
    assert!(needed.contains(&"libc.so.6".to_owned()), "{needed:?}");
    let others: Vec<_> = needed
        .iter()
        .filter(|name| !name.starts_with("libc.so") && !name.starts_with("ld-linux"))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(!dynamic.contains("TEXTREL"));
}

/// Handles are objects, too, for languages that take no macros from a header: with the macros'
/// values.
#[test]
fn handles_are_objects_with_the_value_of_the_macro() {
    let folder = folder();
    let (text, program) = (folder.path().join("handles.c"), folder.path().join("handles"));
    let (names, objects): (Vec<_>, Vec<_>) =
        memonet_shmem_api::objects().into_iter().partition(|name| name.starts_with("SHMEM"));
    assert!(
        names.contains(&"SHMEM_TEAM_WORLD")
            && names.contains(&"SHMEM_CTX_DEFAULT")
            && objects.len() == 2
    );
    let mut source = "#include <shmemx.h>\nstatic const void *values[] = {".to_owned();
    source.extend(names.iter().map(|name| format!("{name}, ")));
    source += "};\n";
    source.extend(names.iter().map(|name| format!("#undef {name}\n")));
    source += "int main(void) {\n    shmem_init();\n    int right = shmem_team_my_pe(SHMEM_TEAM_WORLD) == shmem_my_pe();\n";
    source.extend(
        names
            .iter()
            .enumerate()
            .map(|(i, name)| format!("    right = right && {name} == values[{i}];\n")),
    );
    source += "    shmem_finalize();\n    return !right;\n}\n";
    std::fs::write(&text, source).unwrap();
    for kind in ["-fPIE", "-no-pie", "-static"] {
        printed(installed("oshcc").arg(kind).arg("-o").args([&program, &text]));
        assert!(lines(2, &program).is_empty(), "{kind}");
    }
}

/// The macros for the version.
#[test]
fn the_header_knows_the_version() {
    let folder = folder();
    let (text, program) = (folder.path().join("version.c"), folder.path().join("version"));
    let numbers: Vec<u32> =
        env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse().unwrap()).collect();
    let number = (numbers[0] * 100 + numbers[1]) * 100 + numbers[2];
    let source = format!(
        "#include <shmem.h>\n#include <stdio.h>\n#if MEMONET_VERSION < {number} || MEMONET_VERSION > {number}\n#error\n#endif\n\
         int main(void) {{ puts(MEMONET_VERSION_STRING); return 0; }}\n"
    );
    std::fs::write(&text, source).unwrap();
    printed(installed("oshcc").arg("-o").args([&program, &text]));
    assert_eq!(printed(&mut Command::new(&program)), concat!(env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn functions_can_be_replaced() {
    let folder = folder();
    let program = folder.path().join("program");
    let tool = folder.path().join("tool.c");
    std::fs::write(
        &tool,
        "#include <pshmem.h>\nvoid shmem_int_p(int *dest, int value, int pe) { pshmem_int_p(dest, value + 100, pe); }\n\
         int shmem_n_pes(void) { return pshmem_n_pes(); }\n",
    )
    .unwrap();
    for kind in ["-fPIE", "-static"] {
        let mut compile = installed("oshcc");
        // The program finds another number than it sends.
        compile.args([kind, "-Dreturn=return 0 &&", "-o"]).arg(&program).arg(source("hello.c"));
        printed(compile.args(["-Ureturn"]).arg(&tool));
        let output = crate::common::job(3, &["--keep-going"], &program, &[]).output().unwrap();
        let mut found: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
        found.sort_unstable();
        assert_eq!(found, ["PE 0 of 3: 102", "PE 1 of 3: 100", "PE 2 of 3: 101"], "{kind}");
    }
}

/// The static library keeps the names of Rust's own to itself.
#[test]
fn another_rust_library_fits_beside_it() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(
        at("other.rs"),
        "#[unsafe(no_mangle)] pub extern \"C\" fn other() -> i32 {\n\
             std::panic::set_hook(Box::new(|_| ()));\n\
             match std::panic::catch_unwind(|| { let v: Vec<i32> = Vec::new(); v[std::env::args().count()] }) { Ok(_) => 1, Err(_) => 77 }\n\
         }\n",
    )
    .unwrap();
    std::fs::write(
        at("program.cpp"),
        "#include <shmem.h>\n#include <stdexcept>\n#include <stdio.h>\nextern \"C\" int other();\n\
         int main() {\n    shmem_init();\n    int caught = 0;\n\
             try { throw std::runtime_error(\"\"); } catch (std::exception &) { caught = 1; }\n\
             printf(\"%d %d\\n\", other(), caught);\n    shmem_finalize();\n}\n",
    )
    .unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut build = Command::new(rustc);
    build.args(["--edition=2024", "--crate-type=staticlib", "-o"]).arg(at("libother.a"));
    crate::common::assert_success(build.arg(at("other.rs")));
    let linked =
        [format!("{}/lib/libmemonet.a", PREFIX.display()), at("libother.a").display().to_string()];
    for (first, last) in [(0, 1), (1, 0)] {
        let mut compile = Command::new("c++");
        compile
            .arg("-I")
            .arg(PREFIX.join("include"))
            .arg("-o")
            .args([at("program"), at("program.cpp")]);
        printed(compile.args([&linked[first], &linked[last]]).args(["-lpthread", "-ldl", "-lm"]));
        assert_eq!(lines(2, &at("program")), ["77 1", "77 1"]);
    }
}

#[test]
fn the_order_of_libraries_does_not_matter() {
    let folder = folder();
    let program = folder.path().join("program");
    let lib = PREFIX.join("lib");
    let mut compile = Command::new("cc");
    compile.arg("-I").arg(PREFIX.join("include")).arg("-L").arg(&lib);
    compile.arg(format!("-Wl,--no-as-needed,-rpath,{}", lib.display()));
    printed(compile.args(["-lmemonet", "-lm", &source("hello.c"), "-o"]).arg(&program));
    assert_says_hello(&program);
}
