//! `oshcc` and its other names, in the source tree and installed.

use std::path::Path;
use std::process::Command;

use crate::common::{
    BUILT, PREFIX, assert_says_hello, command, complaint, folder, installed, printed, source, tools,
};

/// A wrapper of the source tree, for what this test was built with.
fn of_tree(name: &str) -> Command {
    let mut wrapper = command(&tools().join(name));
    let (targets, profile) = (BUILT.parent().unwrap(), BUILT.file_name().unwrap());
    wrapper.env("CARGO_TARGET_DIR", targets).env("MEMONET_PROFILE", profile);
    wrapper
}

fn args(words: &[&str], mut wrapper: Command) -> Command {
    wrapper.args(words);
    wrapper
}

#[test]
fn every_language_compiles_and_runs() {
    let folder = folder();
    let program = folder.path().join("program");
    let hello = source("hello.c");
    for wrapper in [of_tree, installed] {
        for (name, options) in [
            ("oshcc", &["-std=c99"][..]),
            ("oshcc", &["-std=c11"]),
            ("oshc++", &["-std=c++11", "-x", "c++"]),
        ] {
            let mut compile = wrapper(name);
            compile
                .args(["-Wall", "-Wextra", "-Werror", "-o"])
                .arg(&program)
                .args(options)
                .arg(&hello);
            assert_eq!(printed(&mut compile), "");
            assert_says_hello(&program);
        }
    }
}

#[test]
fn compiling_and_linking_are_two_steps() {
    let folder = folder();
    for wrapper in [of_tree, installed] {
        let (object, program) = (folder.path().join("hello.o"), folder.path().join("hello"));
        // What is for linking alone, clang complains of.
        printed(
            wrapper("oshcc")
                .args(["-c", "-fPIC", "-o"])
                .args([object.as_path(), Path::new(&source("hello.c"))]),
        );
        printed(wrapper("oshcc").arg("-o").args([&program, &object]));
        assert_says_hello(&program);
    }
}

// Many wrappers link it, so many programs do not ask for it.
#[test]
fn mathematics_need_no_word_and_cost_none() {
    let folder = folder();
    let text = folder.path().join("power.c");
    let power = "#include <math.h>\nint main(int count, char **words) { (void)words; return pow(count, 0.5) != 1; }\n";
    std::fs::write(&text, power).unwrap();
    for (file, needs_it) in [(text.display().to_string(), true), (source("hello.c"), false)] {
        let program = folder.path().join("program");
        printed(installed("oshcc").args(["-Wl,--no-as-needed", "-o"]).arg(&program).arg(&file));
        let needed = printed(Command::new("readelf").arg("-d").arg(&program));
        assert_eq!(needed.contains("[libm.so"), needs_it, "{file}: {needed}");
    }
}

#[test]
fn commands_are_shown_as_they_are_run() {
    let (prefix, cc) = (PREFIX.display(), "compiler --of ours");
    let shown = |words: &[&str]| {
        let mut wrapper = args(words, installed("oshcc"));
        printed(wrapper.env("OSHCC_CC", cc)).trim_end().to_owned()
    };
    let compile = format!("-I{prefix}/include");
    let link = format!("-L{prefix}/lib -Wl,-rpath,{prefix}/lib -lmemonet -Wl,--as-needed,-lm");
    let link_static = format!("-L{prefix}/lib -lmemonet -lpthread -ldl -lm");
    for show in ["-show", "--show", "-showme", "--showme"] {
        assert_eq!(shown(&[show, "x.c", "-o", "x"]), format!("{cc} {compile} x.c -o x {link}"));
    }
    for only in ["-c", "-E", "-S", "-M", "-MM", "-fsyntax-only"] {
        assert_eq!(shown(&["x.c", only, "-show"]), format!("{cc} {compile} x.c {only}"));
    }
    for kind in ["-static", "-static-pie"] {
        assert_eq!(
            shown(&["-show", kind, "x.o"]),
            format!("{cc} {compile} {kind} x.o {link_static}")
        );
    }
    // Questions to the compiler have nothing to link; what looks like an option may be a value.
    assert_eq!(shown(&["-show"]), format!("{cc} {compile} {link}"));
    assert_eq!(shown(&["-show", "-o", "-c", "x.o"]), format!("{cc} {compile} -o -c x.o {link}"));
    assert_eq!(shown(&["--showme:compile"]), compile);
    assert_eq!(shown(&["--showme:link"]), link);
    assert_eq!(shown(&["-static", "--showme:link"]), link_static);
    assert_eq!(shown(&["--showme:incdirs"]), format!("{prefix}/include"));
    assert_eq!(shown(&["--showme:libdirs"]), format!("{prefix}/lib"));
    assert_eq!(shown(&["--showme:libs"]), "memonet");
    assert_eq!(shown(&["--showme:command"]), cc);
    assert!(shown(&["--showme:version"]).contains(env!("CARGO_PKG_VERSION")));
    assert!(shown(&[]).starts_with("usage: oshcc"));
    let why = complaint(&mut args(&["--showme:nonsense"], installed("oshcc")));
    assert!(why.contains("there is no --showme:nonsense"), "{why}");
}

#[test]
fn names_decide_on_the_language() {
    for (name, compiler) in [
        ("oshcc", "their cc"),
        ("oshc++", "their c++"),
        ("oshCC", "their c++"),
        ("oshcxx", "their c++"),
    ] {
        let mut wrapper = args(&["--showme:command"], installed(name));
        wrapper.env("OSHCC_CC", "their cc").env("OSHCXX_CXX", "their c++");
        assert_eq!(printed(&mut wrapper).trim_end(), compiler, "{name}");
    }
    // Without a file, nothing is linked: the compiler answers.
    let version = printed(&mut args(&["--version"], installed("oshcc")));
    assert_eq!(version, printed(Command::new("cc").arg("--version")));
}

#[test]
fn links_to_a_wrapper_lead_to_its_own_folder() {
    let folder = folder();
    let link = folder.path().join("oshcc");
    std::os::unix::fs::symlink(PREFIX.join("bin/oshcc"), folder.path().join("step")).unwrap();
    std::os::unix::fs::symlink("step", &link).unwrap();
    let incdirs = printed(command(&link).arg("--showme:incdirs"));
    assert_eq!(incdirs.trim_end(), format!("{}/include", PREFIX.display()));
}

#[test]
fn without_a_library_it_says_how_to_get_one() {
    let mut wrapper = of_tree("oshcc");
    let why = complaint(wrapper.env("CARGO_TARGET_DIR", "/nonexistent").arg("x.c"));
    assert!(why.contains("/nonexistent") && why.contains("cargo build --release"), "{why}");
}
