//! An installation: what is where, and how build systems find it.

use std::path::Path;
use std::process::Command;

use crate::common::{
    BUILT, PREFIX, assert_says_hello, assert_success, folder, has, installed, printed, source,
};

#[test]
fn oshrun_runs_what_oshcc_makes() {
    let folder = folder();
    let program = folder.path().join("program");
    printed(installed("oshcc").arg("-o").arg(&program).arg(source("hello.c")));
    let line =
        ["-np", "2", "--oversubscribe", "--mca", "btl", "self", "--tag-output", "--timeout", "30"];
    let output = printed(installed("oshrun").args(line).arg(&program));
    let mut output: Vec<_> = output.lines().collect();
    output.sort_unstable();
    assert_eq!(output, ["[0] PE 0 of 2: 1", "[1] PE 1 of 2: 0"]);
    let help = printed(installed("oshrun").arg("--help"));
    for part in ["Usage: oshrun", "--watch SECONDS", "--stats [FORM]", "--trace FILE"] {
        assert!(help.contains(part), "{help}");
    }
    assert!(
        printed(installed("memonet").args(["oshrun", "--version"]))
            .contains(env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn oshrun_shows_what_pes_do() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    printed(installed("oshcc").arg("-o").arg(at("program")).arg(source("hello.c")));
    let stats = format!("json:{}", at("stats.json").display());
    let mut oshrun = installed("oshrun");
    oshrun.args(["-np", "2", "--watch", "30", "--stats", &stats, "--stats", "--trace"]);
    let output = assert_success(oshrun.arg(at("trace.json")).arg(at("program")));
    let table = String::from_utf8_lossy(&output.stderr);
    assert!(table.contains("shmem_barrier_all"), "{table}");
    for file in ["stats.json", "trace.json"] {
        let text = std::fs::read_to_string(at(file)).expect(file);
        serde_json::from_str::<serde_json::Value>(&text).expect(file);
        assert!(text.contains("shmem_barrier_all"), "{file}");
    }
}

#[test]
fn manual_pages_and_completions_lie_where_they_are_looked_for() {
    for (file, says) in [
        ("man/man1/memonet-run.1", "hostfile"),
        ("man/man1/oshrun.1", ".so man1/memonet-oshrun.1"),
        ("bash-completion/completions/memonet", "doctor"),
        ("zsh/site-functions/_memonet", "doctor"),
        ("fish/vendor_completions.d/memonet.fish", "doctor"),
    ] {
        let text = std::fs::read_to_string(PREFIX.join("share").join(file)).expect(file);
        assert!(text.contains(says), "{file}: {text}");
    }
}

#[test]
fn pkg_config_knows_it() {
    if !has("pkg-config") {
        return;
    }
    let folder = folder();
    let program = folder.path().join("program");
    // The library need not be where the loader looks.
    for linking in [&[][..], &["--static"]] {
        let mut ask = Command::new("pkg-config");
        ask.env("PKG_CONFIG_PATH", PREFIX.join("lib/pkgconfig")).args(["--cflags", "--libs"]);
        let flags = printed(ask.args(linking).arg("memonet"));
        let mut compile = Command::new("cc");
        compile.arg(source("hello.c")).arg("-o").arg(&program).args(flags.split_whitespace());
        if !linking.is_empty() {
            compile.arg("-static");
        }
        printed(&mut compile);
        assert_says_hello(&program);
    }
    let mut version = Command::new("pkg-config");
    version.env("PKG_CONFIG_PATH", PREFIX.join("lib/pkgconfig")).args(["--modversion", "memonet"]);
    assert_eq!(printed(&mut version).trim_end(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn cmake_finds_it() {
    if !has("cmake") {
        return;
    }
    let folder = folder();
    let text = format!(
        "cmake_minimum_required(VERSION 3.10)\nproject(test C)\n\
         find_package(memonet 99 QUIET)\nif(memonet_FOUND)\n  message(FATAL_ERROR \"version 99\")\nendif()\n\
         find_package(memonet 0.1 REQUIRED)\n\
         add_executable(shared {hello})\ntarget_link_libraries(shared memonet::memonet)\n\
         add_executable(static {hello})\ntarget_link_libraries(static memonet::memonet-static)\n\
         add_executable(all_static {hello})\ntarget_link_libraries(all_static memonet::memonet-static -static)\n",
        hello = source("hello.c")
    );
    std::fs::write(folder.path().join("CMakeLists.txt"), text).unwrap();
    let build = folder.path().join("build");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(folder.path()).arg("-B").arg(&build);
    assert_success(configure.arg(format!("-DCMAKE_PREFIX_PATH={}", PREFIX.display())));
    assert_success(Command::new("cmake").arg("--build").arg(&build));
    for program in ["shared", "static", "all_static"] {
        assert_says_hello(&build.join(program));
    }
    let needed =
        |program: &str| printed(Command::new("readelf").arg("-d").arg(build.join(program)));
    assert!(needed("shared").contains("[libmemonet.so.0]"));
    assert!(!needed("static").contains("libmemonet"));
}

fn files(below: &Path) -> Vec<String> {
    let listed =
        printed(Command::new("find").arg(below).args(["!", "-type", "d", "-printf", "%P\\n"]));
    let mut files: Vec<String> = listed.lines().map(str::to_owned).collect();
    files.sort();
    files
}

/// `make` with a goal and settings, of what is built, with `folder`/stage for the root of the
/// system.
fn make(folder: &Path, words: &[&str]) -> Command {
    let (targets, stage) = (folder.join("targets"), folder.join("stage"));
    if !targets.exists() {
        std::fs::create_dir(&targets).unwrap();
        std::os::unix::fs::symlink(&*BUILT, targets.join("release")).unwrap();
    }
    let mut make = Command::new("make");
    make.arg("-C").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    make.env_remove("MAKEFLAGS").args(["CARGO=true", "PREFIX=/opt/there"]).args(words);
    make.arg(format!("TARGET={}", targets.display())).arg(format!("DESTDIR={}", stage.display()));
    make
}

#[test]
fn make_installs_and_uninstalls() {
    let folder = folder();
    let stage = folder.path().join("stage");
    let make = |goal: &str| assert_success(&mut make(folder.path(), &[goal]));
    // Files of other packages stay.
    let other = stage.join("opt/there/lib/libother.a");
    std::fs::create_dir_all(other.parent().unwrap()).unwrap();
    std::fs::write(&other, "").unwrap();
    make("install");
    let there = stage.join("opt/there");
    let mut expected = files(&PREFIX);
    expected.push("lib/libother.a".to_owned());
    expected.sort();
    assert_eq!(files(&there), expected);
    for name in [
        "bin/memonet",
        "bin/oshcc",
        "include/mpp/shmem.h",
        "lib/libmemonet.so.0",
        "lib/pkgconfig/memonet.pc",
    ] {
        assert!(expected.iter().any(|file| file == name), "{name}");
    }
    let program = folder.path().join("program");
    printed(Command::new(there.join("bin/oshcc")).arg("-o").arg(&program).arg(source("hello.c")));
    assert_says_hello(&program);
    make("uninstall");
    assert_eq!(files(&stage), ["opt/there/lib/libother.a"]);
    let folders =
        printed(Command::new("find").arg(&there).args(["-type", "d", "-printf", "%P\\n"]));
    assert!(
        !folders.contains("mpp") && !folders.contains("pkgconfig") && !folders.contains("cmake"),
        "{folders}"
    );
}

/// Other libraries' names for the library are links, and only where they are wanted; what another
/// library has there stays.
#[test]
fn aliases_are_installed_where_they_are_wanted() {
    let folder = folder();
    let lib = folder.path().join("stage/opt/there/lib");
    let aliases = ["liboshmem.a", "liboshmem.so", "libsma.a", "libsma.so"];
    let there = || {
        let all = files(&lib);
        aliases.iter().filter(|alias| all.iter().any(|file| file == *alias)).count()
    };
    // The build was complete before the installation.
    let install = |aliases: &str| {
        let make = make(folder.path(), &["install", "-o", "prefix", aliases]);
        let _ = std::os::unix::fs::symlink(&*PREFIX, folder.path().join("targets/prefix"));
        make
    };
    for none in ["ALIASES=", "ALIASES=0"] {
        assert_success(&mut install(none));
        assert_eq!(there(), 0);
    }
    // Twice: one's own links are replaced.
    for _ in 0..2 {
        assert_success(&mut install("ALIASES=1"));
        assert_eq!(there(), aliases.len());
    }
    let program = folder.path().join("program");
    for name in ["-lsma", "-loshmem"] {
        let mut compile = Command::new("cc");
        compile.arg("-I").arg(lib.join("../include")).arg("-L").arg(&lib);
        compile.arg(source("hello.c")).arg("-o").arg(&program);
        compile.args([name, "-lm", &format!("-Wl,-rpath,{}", lib.display())]);
        printed(&mut compile);
        assert_says_hello(&program);
        printed(compile.args(["-static", name, "-lpthread", "-ldl", "-lm"]));
        assert_says_hello(&program);
    }
    // One of another library.
    std::fs::remove_file(lib.join("libsma.so")).unwrap();
    std::os::unix::fs::symlink("libother.so.1", lib.join("libsma.so")).unwrap();
    let refused = install("ALIASES=1").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("lib/libsma.so is another library's"),
        "{said}"
    );
    assert_success(&mut make(folder.path(), &["uninstall"]));
    assert_eq!(files(&lib), ["libsma.so"]);
}
