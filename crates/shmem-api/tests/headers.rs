//! The headers compile without a warning in every language, and every name for all types chooses
//! the function that it should.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write;

use common::{C, CXX, Folder, compilers, symbols};
use memonet_shmem_api::{Table, table};

/// A name and what goes with it.
type Pair = (String, String);

/// A generic's calls: for each of its types, the C type's name, and the functions that one call
/// each must reach.
struct Generic {
    name: String,
    result: String,
    /// Arguments, with `@` for the type's name.
    arguments: Vec<String>,
    types: Vec<Pair>,
    /// What precedes and follows the type's name in the function's, with and without a context.
    functions: Vec<Pair>,
}

/// What the table says of its generics. The names are put together here anew.
fn generics(table: &Table) -> Vec<Generic> {
    let mut all = Vec::new();
    for template in table.templates() {
        let Some(generic) = &template.generic else { continue };
        if template.words.is_empty() {
            continue;
        }
        let mut by_operator: Vec<(Option<String>, Vec<Pair>)> = Vec::new();
        for (operator, over) in table.groups(template).expect("known classes") {
            let types: Vec<_> =
                table.types_of(&over).iter().map(|t| (t.name.clone(), t.c.clone())).collect();
            match by_operator.iter_mut().find(|(known, _)| *known == operator) {
                Some((_, list)) => list.extend(types),
                None => by_operator.push((operator, types)),
            }
        }
        for (operator, types) in by_operator {
            let fill = |text: &str| text.replace("{O}", operator.as_deref().unwrap_or_default());
            let (before, after) = template.prototype.name.split_once("{N}").expect("a type's name");
            let both = before.contains("{C}");
            let contexts = if both { &["", "ctx_"][..] } else { &[""] };
            all.push(Generic {
                name: fill(generic),
                result: template.prototype.result.base.clone(),
                arguments: template
                    .prototype
                    .named()
                    .map(|(kind, _)| argument(&kind.base, kind.pointer, kind.constant))
                    .collect(),
                types,
                functions: contexts
                    .iter()
                    .map(|ctx| (before.replace("{C}", ctx), fill(after)))
                    .collect(),
            });
        }
    }
    all
}

/// An argument for a parameter.
fn argument(base: &str, pointer: bool, constant: bool) -> String {
    match (base, pointer, constant) {
        ("{T}", true, false) => "variable_@".to_owned(),
        ("{T}", true, true) => "constant_@".to_owned(),
        ("{T}", false, _) => "variable_@[1]".to_owned(),
        ("shmem_team_t", ..) => "SHMEM_TEAM_WORLD".to_owned(),
        (_, false, _) => "1".to_owned(),
        (base, true, _) => format!("some_{base}"),
    }
}

/// A file that calls every generic with every type of its class, in each form.
fn calls(generics: &[Generic]) -> String {
    let mut text = String::from("#include <shmem.h>\n");
    text +=
        "static int some_int[2]; static size_t some_size_t[2]; static uint64_t some_uint64_t[2];\n";
    let types: BTreeSet<_> = generics.iter().flat_map(|generic| generic.types.clone()).collect();
    for (name, c) in &types {
        // The oldest C++ knows these by the names that the header gives them.
        let c = if c.contains("long long") { format!("memonet_{name}") } else { c.clone() };
        writeln!(text, "__extension__ typedef {c} type_{name};").unwrap();
        writeln!(
            text,
            "static type_{name} variable_{name}[2]; static const type_{name} constant_{name}[2] = {{0, 0}};"
        )
        .unwrap();
    }
    text += "void calls(void);\nvoid calls(void) {\n    (void)some_int; (void)some_size_t; (void)some_uint64_t;\n";
    for (name, _) in &types {
        writeln!(text, "    (void)variable_{name}; (void)constant_{name};").unwrap();
    }
    for generic in generics {
        for (name, _) in &generic.types {
            for form in 0..generic.functions.len() {
                let mut arguments = generic.arguments.clone();
                if form == 1 {
                    arguments.insert(0, "SHMEM_CTX_DEFAULT".to_owned());
                }
                let call = format!("{}({})", generic.name, arguments.join(", ").replace('@', name));
                match generic.result.as_str() {
                    "{T}" => writeln!(text, "    variable_{name}[0] = {call};"),
                    _ => writeln!(text, "    {call};"),
                }
                .unwrap();
            }
        }
    }
    text + "}\n"
}

/// The functions that those calls must reach: of two names of one type, the one that is in the
/// class.
fn reached(table: &Table, generics: &[Generic]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for generic in generics {
        for (name, _) in &generic.types {
            let other = table.type_named(name).expect("a type").same_as.clone();
            let chosen = other
                .filter(|other| generic.types.iter().any(|(name, _)| name == other))
                .unwrap_or_else(|| name.clone());
            all.extend(
                generic.functions.iter().map(|(before, after)| format!("{before}{chosen}{after}")),
            );
        }
    }
    all
}

/// The calls of names for all types that are for no type.
const UNTYPED: &str = "\
void untyped(void);
void untyped(void) {
    long sync[SHMEM_BARRIER_SYNC_SIZE] = {SHMEM_SYNC_VALUE};
    const int zero = 0;
    shmem_signal_add(some_uint64_t, 1, 0);
    shmem_signal_add(SHMEM_CTX_DEFAULT, some_uint64_t, 1, 0);
    shmem_signal_set(some_uint64_t, 1, 0);
    shmem_signal_set(SHMEM_CTX_DEFAULT, some_uint64_t, 1, 0);
    shmem_sync(SHMEM_TEAM_WORLD);
    shmem_sync(zero, 0, 1, sync);
    shmem_p(variable_int, shmem_g(&variable_int[1], 0) + shmem_atomic_fetch_add(SHMEM_CTX_DEFAULT, variable_int, 1, 0), 0);
}
";

const UNTYPED_REACHED: &[&str] = &[
    "shmem_signal_add",
    "shmem_ctx_signal_add",
    "shmem_signal_set",
    "shmem_ctx_signal_set",
    "shmem_sync",
    "shmem_team_sync",
];

#[test]
fn every_generic_reaches_every_function() {
    let folder = Folder::new();
    let generics = generics(table());
    assert!(generics.len() > 60, "{}", generics.len());
    let text = calls(&generics) + UNTYPED;
    let mut expected = reached(table(), &generics);
    expected.extend(UNTYPED_REACHED.iter().map(|name| (*name).to_owned()));
    for standard in ["c11", "gnu11", "c17"].iter().chain(CXX) {
        let object =
            folder.compile(standard, &text).unwrap_or_else(|error| panic!("{standard}: {error}"));
        let found: BTreeSet<_> =
            symbols(&object, "U").into_iter().filter(|name| name.contains("shmem")).collect();
        let missing: Vec<_> = expected.difference(&found).collect();
        let surplus: Vec<_> = found.difference(&expected).collect();
        assert!(
            missing.is_empty() && surplus.is_empty(),
            "{standard}: missing {missing:?}, surplus {surplus:?}"
        );
    }
}

/// What programs of OpenSHMEM 1.3 wait for is volatile, and so are their locks.
const VOLATILE: &str = "\
static volatile long word, lock;
void watch(volatile int32_t *, volatile unsigned short *);
void watch(volatile int32_t *small, volatile unsigned short *shorter) {
    const int status[1] = {0};
    shmem_wait_until(&word, SHMEM_CMP_EQ, 1L);
    shmem_wait_until(small, SHMEM_CMP_EQ, 1);
    shmem_wait_until_all(shorter, 1, status, SHMEM_CMP_EQ, 1);
    if (shmem_test(&word, SHMEM_CMP_EQ, 1L) && shmem_test_any(small, 1, status, SHMEM_CMP_EQ, 1)) return;
#ifdef __cplusplus
    shmem_long_wait_until(&word, SHMEM_CMP_EQ, 1);
    shmem_int32_wait_until(small, SHMEM_CMP_EQ, 1);
    shmem_long_wait(&word, 1);
    shmem_wait(&word, 1);
    shmem_set_lock(&lock);
    if (!shmem_test_lock(&lock)) shmem_clear_lock(&lock);
#else
    (void)lock;
#endif
}
";

#[test]
fn what_pes_wait_for_may_be_volatile() {
    let folder = Folder::new();
    let text = format!("#include <shmem.h>\n{VOLATILE}");
    for names in compilers() {
        for standard in ["c11", "gnu11", "c17"].iter().chain(CXX) {
            let object = folder.compile_with(names, standard, &[], &text);
            let object = object.unwrap_or_else(|error| panic!("{names:?} {standard}: {error}"));
            let found = symbols(&object, "U");
            let mut expected = vec!["shmem_long_wait_until", "shmem_ushort_wait_until_all"];
            if standard.contains("++") {
                expected.extend(["shmem_long_wait", "shmem_set_lock", "shmem_clear_lock"]);
            }
            assert!(expected.iter().all(|&name| found.contains(name)), "{standard}: {found:?}");
        }
    }
    // Nothing else may be.
    for call in ["shmem_p(&word, 1L, 0);", "shmem_wait_until((const long *)&lock, 0, 0);"] {
        let text = format!("{text}void wrong(void);\nvoid wrong(void) {{ {call} }}\n");
        for standard in ["c11", "c++11"] {
            assert!(folder.compile(standard, &text).is_err(), "{standard}: {call}");
        }
    }
}

#[test]
fn a_wrong_type_is_no_call() {
    let folder = Folder::new();
    let with = |call: &str| {
        format!(
            "#include <shmem.h>\nstatic struct {{ int a; }} wrong[2];\nvoid f(void);\nvoid f(void) {{ (void)wrong; {call} }}\n"
        )
    };
    for standard in ["c11", "c++11"] {
        for call in ["", "shmem_quiet();"] {
            folder.compile(standard, &with(call)).expect("a file without such a call compiles");
        }
        for call in [
            "shmem_put(wrong, wrong, 1, 0);",
            "shmem_put(SHMEM_CTX_DEFAULT, wrong, wrong, 1, 0);",
            "shmem_sum_reduce(SHMEM_TEAM_WORLD, wrong, wrong, 1);",
            "shmem_wait_until(wrong, SHMEM_CMP_EQ, 0);",
            "static float x; shmem_atomic_add(&x, 1, 0);",
        ] {
            assert!(folder.compile(standard, &with(call)).is_err(), "{standard}: {call}");
        }
    }
}

const USE: &str = "\
#include <mpp/shmem.h>
#include <mpp/shmemx.h>
#include <pshmem.h>
#if SHMEM_MAJOR_VERSION != 1 || SHMEM_MINOR_VERSION != 6 || _SHMEM_CMP_EQ != SHMEM_CMP_EQ || SHMEM_REDUCE_MIN_WRKDATA_SIZE < 1
#error constants
#endif
#if OSHMEM_SPEC_VERSION != 10600
#error the name of Open MPI
#endif
extern int compiled;
int compiled = sizeof SHMEM_VENDOR_STRING <= SHMEM_MAX_NAME_LEN;
static shmem_ctx_t ctx[] = {SHMEM_CTX_INVALID, SHMEM_CTX_DEFAULT};
static shmem_team_t team[] = {SHMEM_TEAM_INVALID, SHMEM_TEAM_WORLD, SHMEM_TEAM_SHARED, SHMEMX_TEAM_NODE};
static shmem_team_config_t config = {1};
static shmem_ctx_session_config_t session = {1};
static const long hints = SHMEM_MALLOC_ATOMICS_REMOTE | SHMEM_MALLOC_SIGNAL_REMOTE;
static long psync[SHMEM_SYNC_SIZE + _SHMEM_BCAST_SYNC_SIZE];
int leave(void);
int leave(void) {
    static int source, dest;
    (void)ctx, (void)team, (void)config, (void)session, (void)hints, (void)psync;
    shmemx_int_ibput(&dest, &source, 1, 1, 1, 1, 0);
    shmemx_pcontrol(1, \"name\");
    switch (shmem_my_pe()) {
    case SHMEM_THREAD_SINGLE: case SHMEM_THREAD_MULTIPLE: return shmemx_wtime() > 0;
    default: pshmem_global_exit(shmemx_int_sum_inscan(SHMEM_TEAM_WORLD, &dest, &source, 1));
    }
}
";

#[test]
fn programs_compile_in_every_language() {
    let folder = Folder::new();
    for standard in C.iter().chain(CXX) {
        folder.compile(standard, USE).unwrap_or_else(|error| panic!("{standard}: {error}"));
    }
    for standard in ["c11", "c++11"] {
        let text = USE.replace("shmemx_int_ib", "shmemx_ib");
        folder.compile(standard, &text).expect("a name for all types that was an extension once");
    }
}

/// A file that takes the address of everything that is declared.
fn addresses(prefix: &str, names: &[String]) -> String {
    let mut text = String::from(
        "#include <pshmem.h>\n#include <shmemx.h>\ntypedef void (*any)(void);\nextern const any all[];\nconst any all[] = {\n",
    );
    for name in names {
        writeln!(text, "    (any){prefix}{name},").unwrap();
    }
    text + "};\n"
}

#[test]
fn every_function_is_declared() {
    let folder = Folder::new();
    let names = memonet_shmem_api::symbols();
    let standard: Vec<_> =
        names.iter().filter(|name| !name.starts_with("shmemx_")).cloned().collect();
    for c in C {
        let object = folder
            .compile(c, &addresses("", &names))
            .unwrap_or_else(|error| panic!("{c}: {error}"));
        assert_eq!(symbols(&object, "U").len(), names.len());
    }
    for language in C.iter().chain(CXX) {
        let object = folder
            .compile(language, &addresses("p", &standard))
            .unwrap_or_else(|error| panic!("{language}: {error}"));
        assert_eq!(symbols(&object, "U").len(), standard.len());
    }
}

/// A word by every function that can be inlined, of those that have a type of 8 bytes; and the same
/// one twice, and again.
const WORDS: &str = "\
#include <shmem.h>
void words(double *there, double *here, int pe);
void words(double *there, double *here, int pe) {
    shmem_double_p(there, *here, pe);
    shmem_ctx_double_p(SHMEM_CTX_DEFAULT, there, *here, pe);
    *here = shmem_double_g(there, pe) + shmem_ctx_double_g(SHMEM_CTX_DEFAULT, there, pe);
    shmem_double_put(there, here, 1, pe);
    shmem_putmem_nbi(there, here, 8, pe);
    shmem_double_get(here, there, 1, pe);
    shmem_ctx_get64_nbi(SHMEM_CTX_DEFAULT, here, there, 1, pe);
}
void again(int *there);
void again(int *there) {
    shmem_int_p(there, 1, 0);
    shmem_int_p(there, 1, 0);
    shmem_int_p(there, 2, 0);
}
";

/// The instructions that the compiler was not to look into.
fn opaque(
    folder: &Folder,
    names: [&str; 2],
    standard: &str,
    options: &[&str],
    text: &str,
) -> usize {
    let file = folder
        .compile_with(names, standard, &[options, &["-S"]].concat(), text)
        .unwrap_or_else(|error| panic!("{standard}: {error}"));
    let text = std::fs::read_to_string(file).expect("assembly");
    text.lines().filter(|line| line.trim() == "#APP").count()
}

#[test]
#[cfg(target_arch = "x86_64")]
fn every_word_is_one_instruction_of_its_own() {
    let folder = Folder::new();
    for names in compilers() {
        for standard in C.iter().chain(CXX) {
            for level in ["-O1", "-O2", "-O3"] {
                let found = opaque(&folder, names, standard, &[level], WORDS);
                assert!(found >= 8 + 3, "{names:?} {standard} {level}: {found}");
            }
            // Where it is not wanted, nothing is inlined.
            for options in
                [&["-O0"][..], &["-Os"], &["-O2", "-fno-inline"], &["-O2", "-DSHMEMX_NO_INLINE"]]
            {
                assert_eq!(
                    opaque(&folder, names, standard, options, WORDS),
                    0,
                    "{names:?} {standard} {options:?}"
                );
            }
        }
        // By names for all types, too; what is no word, or not known to be one, is the function's.
        let generic = "#include <shmem.h>\nstatic long x[9];\nvoid f(const long *from, size_t n, int pe);\n\
            void f(const long *from, size_t n, int pe) {\n";
        for (call, words) in [
            ("shmem_p(x, 1, pe);", 1),
            ("shmem_put_nbi(x, from, 1, pe);", 1),
            ("shmem_put(SHMEM_CTX_DEFAULT, x, from, 1, pe);", 1),
            ("shmem_put(x, from, n, pe);", 0),
            ("shmem_put(x, from, 2, pe);", 0),
            ("shmem_put(x, from, 0, pe);", 0),
            ("shmem_put(x, from, (size_t)1 << 61, pe);", 0),
            ("shmem_putmem(x, from, 3, pe);", 0),
            ("shmem_put128(x, from, 1, pe);", 0),
        ] {
            for standard in ["c11", "c++17"] {
                let text = format!("{generic}    (void)from; (void)n; {call}\n}}\n");
                let found = opaque(&folder, names, standard, &["-O2"], &text);
                assert_eq!(found > 0, words > 0, "{names:?} {standard}: {call}: {found}");
            }
        }
    }
}

/// A tool defines functions that the header has inlined.
#[test]
fn tools_define_what_is_inlined() {
    let folder = Folder::new();
    let tool = |head: &str| {
        format!(
            "{head}\n#ifdef __cplusplus\nextern \"C\" {{\n#endif\nvoid pshmem_int_p(int *dest, int value, int pe);\n\
             void shmem_int_p(int *dest, int value, int pe) {{ pshmem_int_p(dest, value + 1, pe); }}\n#ifdef __cplusplus\n}}\n#endif\n\
             void after(int *dest);\nvoid after(int *dest) {{ shmem_int_p(dest, 1, 0); }}\n"
        )
    };
    for standard in C.iter().chain(CXX) {
        folder
            .compile(standard, &tool("#include <pshmem.h>"))
            .unwrap_or_else(|error| panic!("{standard}: {error}"));
    }
    // Clang's C++ knows no second definition.
    let text = tool("#include <shmem.h>");
    for names in compilers() {
        for standard in
            C.iter().chain(CXX).filter(|standard| names[0] == "cc" || !standard.contains("++"))
        {
            let object = folder.compile_with(names, standard, &["-O2"], &text);
            let object = object.unwrap_or_else(|error| panic!("{names:?} {standard}: {error}"));
            assert!(symbols(&object, "T").contains("shmem_int_p"));
        }
        for standard in C.iter().chain(CXX) {
            let object =
                folder.compile_with(names, standard, &["-O2", "-DSHMEMX_NO_INLINE"], &text);
            object.unwrap_or_else(|error| panic!("{names:?} {standard}: {error}"));
        }
    }
}
