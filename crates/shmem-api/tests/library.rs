//! The exported functions, with made-up implementations, as libraries: symbols that a profiling
//! tool can replace, static and shared.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use common::{Folder, run, symbols};

/// What implementations need to know.
const TYPES: &str = "
#![allow(warnings)]
mod state {
    pub mod handle {
        #[repr(transparent)] #[derive(Clone, Copy)] pub struct Ctx(pub usize);
        impl Ctx { pub const DEFAULT: Ctx = Ctx(1); }
        #[repr(transparent)] #[derive(Clone, Copy)] pub struct Team(pub usize);
        #[repr(transparent)] #[derive(Clone, Copy)] pub struct Barrier(pub usize);
        #[repr(transparent)] #[derive(Clone, Copy)] pub struct Transfer(pub usize);
        #[repr(transparent)] #[derive(Clone, Copy)] pub struct Supersteps(pub usize);
        #[repr(transparent)] #[derive(Clone, Copy)] pub struct Window(pub usize);
        #[repr(transparent)] #[derive(Clone, Copy)] pub struct Mutex(pub usize);
        #[repr(transparent)] #[derive(Clone, Copy)] pub struct RwLock(pub usize);
        #[repr(transparent)] #[derive(Clone, Copy)] pub struct Region(pub usize);
        #[repr(transparent)] #[derive(Clone, Copy)] pub struct Messages(pub usize);
        #[repr(transparent)] #[derive(Clone, Copy)] pub struct Multicast(pub usize);
        #[repr(C)] pub struct Right([u8; 0]);
        #[repr(C)] pub struct TeamConfig { n: core::ffi::c_int }
        #[repr(C)] pub struct SessionConfig { n: usize }
        #[repr(C)] pub struct Stats { n: [u64; 5] }
    }
    pub mod near {
        #[repr(C)] pub struct Area { pub start: usize, pub words: usize, pub bias: usize }
        #[repr(C)] pub struct Near {
            pub heap: Area, pub written: usize, pub statics: Area, pub stride: usize, pub npes: usize, pub me: usize, pub apart: [usize; 256]
        }
        #[repr(C)] pub struct Reads { pub left: usize, pub npes: usize, pub apart: [usize; 256] }
    }
    pub mod record { pub fn call(_name: &str) {} pub fn brief(_name: &str) {} }
    mod inlined {
        use core::ffi::c_void;
        struct Names(*const c_void, *const c_void);
        unsafe impl Sync for Names {}
        include!(\"inlined.rs\");
    }
}
mod calls {
    pub mod operation {
        #[repr(C, align(16))] #[derive(Clone, Copy)] pub struct LongDouble([u8; 16]);
        #[repr(C)] #[derive(Clone, Copy)] pub struct Complex<T>(T, T);
        pub struct And; pub struct Or; pub struct Xor; pub struct Max; pub struct Min; pub struct Sum; pub struct Prod;
    }
";

/// A library whose functions say their name and end the program, except for a few that work on
/// local memory.
fn source() -> String {
    let mut text = TYPES.to_owned();
    for line in memonet_shmem_api::signatures().lines() {
        match line.strip_prefix("// ") {
            Some(title) => {
                let module = title.split(':').next().unwrap();
                let end =
                    if text.ends_with('\n') && text.contains("// module") { "}\n" } else { "" };
                text += &format!("{end}// module\npub mod {module} {{\n    use core::ffi::*;\n");
            }
            None if line.is_empty() => {}
            None => {
                let name = line["pub unsafe fn ".len()..].split(['<', '(']).next().unwrap();
                let body = match name {
                    "p" => "dest.write(value)",
                    "g" => "source.read()",
                    "pcontrol" => "println!(\"{call} {level}\")",
                    "put_nbi" => "println!(\"{call} {} {} {nelems} {pe}\", ctx.0, size_of::<T>())",
                    _ => "{ println!(\"{call}\"); std::process::exit(3) }",
                };
                text += &format!("    {line} {{ {body} }}\n");
            }
        }
    }
    text + "}\n}\nmod api { include!(\"api.rs\"); }\n"
}

struct Library {
    folder: Folder,
    archive: PathBuf,
    shared: PathBuf,
}

/// The library, built once: it takes a while.
static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let folder = Folder::new();
    folder.write("api.rs", &memonet_shmem_api::rust());
    folder.write("inlined.rs", &memonet_shmem_api::inlined());
    let source = folder.write("library.rs", &source());
    let archive = folder.path("liblibrary.a");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args([
        "--edition=2024",
        "--crate-type=staticlib",
        "-Cpanic=abort",
        "-Ccodegen-units=2",
    ]);
    run(command.arg("-o").arg(&archive).arg(source)).expect("rustc takes it");
    let names = memonet_shmem_api::symbols();
    let lines: String = names.iter().map(|name| format!("{name}; p{name};\n")).collect();
    let script = folder.write("script", &format!("MEMONET {{ global:\n{lines}local: *; }};\n"));
    let shared = folder.path("liblibrary.so");
    let mut command = Command::new("cc");
    command
        .arg("-shared")
        .arg("-o")
        .arg(&shared)
        .arg(format!("-Wl,--version-script={},-z,text", script.display()));
    run(command.arg("-Wl,--whole-archive").arg(&archive).arg("-Wl,--no-whole-archive"))
        .expect("it links");
    Library { folder, archive, shared }
});

#[test]
fn every_symbol_is_weak_and_every_other_strong() {
    let names: BTreeSet<_> = memonet_shmem_api::symbols().into_iter().collect();
    let profiling: BTreeSet<_> = names.iter().map(|name| format!("p{name}")).collect();
    for file in [&LIBRARY.archive, &LIBRARY.shared] {
        let (weak, strong) = (symbols(file, "W"), symbols(file, "T"));
        let missing: Vec<_> =
            names.difference(&weak).chain(profiling.difference(&strong)).collect();
        assert!(missing.is_empty(), "{file:?} lacks {missing:?}");
    }
    let ours = |set: BTreeSet<String>| {
        set.into_iter().filter(|name| name.contains("shmem")).collect::<BTreeSet<_>>()
    };
    let unknown: Vec<_> =
        ours(symbols(&LIBRARY.shared, "T")).difference(&profiling).cloned().collect();
    assert!(unknown.is_empty(), "the shared library exports {unknown:?}");
}

/// A program, a tool that replaces one of its functions, and what they print.
const PROGRAM: &str = "
#include <shmem.h>
#include <shmemx.h>
#include <stdio.h>
int main(void) {
    long double there[2] = {0, 0}, value = 1 / 3.0L;
    shmem_longdouble_p(&there[0], value, 7);
    shmem_ctx_longdouble_p(SHMEM_CTX_DEFAULT, &there[1], -value, 7);
    long double back = shmem_longdouble_g(&there[0], 7) + 2 * shmem_ctx_longdouble_g(SHMEM_CTX_DEFAULT, &there[1], 7);
    int number = 0;
    shmem_int_p(&number, 5, 0);
    float real = 2.5F;
    shmem_float_p(&real, shmem_float_g(&real, 0) * 2, 0);
    printf(\"%d %d %g\\n\", back == -value, shmem_int_g(&number, 0), (double)real);
    fflush(stdout);
    shmem_pcontrol(3, \"region\", 1.5);
    shmem_put128_nbi(there, there, 9, 4);
    shmem_ctx_int_put_nbi((shmem_ctx_t)77, &number, &number, 8, 3);
    shmemx_nodename();
    return 0;
}
";

const TOOL: &str = "
#include <pshmem.h>
void shmem_int_p(int *dest, int value, int pe) { pshmem_int_p(dest, value * 100, pe); }
";

fn output(arguments: &[&Path]) -> String {
    let folder = &LIBRARY.folder;
    let include = folder.path("");
    let program = folder.path(&format!("program{}", arguments.len()));
    let mut command = Command::new("cc");
    command
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror"])
        .arg("-I")
        .arg(&include)
        .arg("-o")
        .arg(&program)
        .args(arguments);
    run(command.arg(format!("-Wl,-rpath,{}", include.display())).args([
        "-lpthread",
        "-ldl",
        "-lm",
    ]))
    .expect("a program");
    let output = Command::new(&program).output().expect("it runs");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn functions_arrive_and_tools_replace_them() {
    let program = LIBRARY.folder.write("program.c", PROGRAM);
    let tool = LIBRARY.folder.write("tool.c", TOOL);
    let rest = "shmem_pcontrol 3\nshmem_put128_nbi 1 16 9 4\nshmem_ctx_int_put_nbi 77 4 8 3\nshmemx_nodename\n";
    for library in [&LIBRARY.archive, &LIBRARY.shared] {
        assert_eq!(output(&[&program, library]), format!("1 5 5\n{rest}"), "{library:?}");
        assert_eq!(output(&[&program, &tool, library]), format!("1 500 5\n{rest}"), "{library:?}");
    }
}
