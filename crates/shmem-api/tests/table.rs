//! The table says what the specification says, as far as counting shows it; what is no table is an
//! error that names the line.

use std::collections::HashSet;

use memonet_shmem_api::{Error, Table, symbols};
use proptest::prelude::*;

const TEXT: &str = include_str!("../src/shmem.api");

#[test]
fn nothing_is_there_twice() {
    let all = symbols();
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
    assert!(all.iter().all(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')));
}

/// How many types each of the specification's tables lists, and what that makes of the functions.
#[test]
fn families_have_their_size() {
    const RMA: usize = 24;
    const SIZES: usize = 5;
    const AMO: usize = 12;
    const EXTENDED: usize = 14;
    // Three of them are not the standard's.
    const BITWISE: usize = 7 + 3;
    let all = symbols();
    let count = |test: &dyn Fn(&str) -> bool| all.iter().filter(|name| test(name)).count();
    let ends = |end: &str| count(&|name: &str| name.ends_with(end));
    let starts = |start: &str, end: &str| {
        count(&|name: &str| name.starts_with(start) && name.ends_with(end))
    };
    // Each with and without a context: of types, of sizes, of memory.
    let put = count(&|name| name.ends_with("_put") && !name.starts_with("shmemx_"));
    assert_eq!(put, 2 * RMA);
    assert_eq!(
        starts("shmem_put", "") + starts("shmem_ctx_put", ""),
        2 * (SIZES + 1) * 4,
        "put, put_nbi, put_signal, put_signal_nbi"
    );
    assert_eq!(
        starts("shmem_get", "") + starts("shmem_ctx_get", ""),
        2 * (SIZES + 1) * 2 + 1,
        "get, get_nbi; shmem_ctx_get_team"
    );
    assert_eq!(ends("_put_nbi"), 2 * RMA);
    assert_eq!(ends("_put_signal_nbi"), 2 * RMA);
    assert_eq!(ends("_g"), 2 * RMA);
    for strided in ["iput", "iget", "ibput", "ibget"] {
        let sized =
            starts(&format!("shmem_{strided}"), "") + starts(&format!("shmem_ctx_{strided}"), "");
        assert_eq!(ends(&format!("_{strided}")) + sized, 2 * (RMA + SIZES), "{strided}");
    }
    assert_eq!(ends("_atomic_fetch"), 2 * EXTENDED);
    assert_eq!(ends("_atomic_compare_swap"), 2 * AMO);
    assert_eq!(ends("_atomic_fetch_xor_nbi"), 2 * BITWISE);
    // Standard AMO types, and the two short ones.
    assert_eq!(ends("_wait_until_some_vector"), AMO + 2);
    assert_eq!(ends("_wait_until"), AMO + 2 + 2, "with those of signals and the oldest");
    // Integers without a sign or of a fixed width; integers and reals; those and complex numbers.
    assert_eq!(ends("_xor_reduce"), 14);
    assert_eq!(ends("_max_reduce"), RMA);
    assert_eq!(ends("_prod_reduce"), RMA + 2);
    assert_eq!(ends("_sum_exscan"), RMA + 2);
    assert_eq!(ends("_and_to_all"), 4);
    assert_eq!(ends("_min_to_all"), 7);
    assert_eq!(ends("_sum_to_all"), 9);
    assert_eq!(starts("shmem_alltoalls", ""), 3, "of memory, and two deprecated sizes");
    assert_eq!(starts("shmem_", "_fadd"), 3);
    assert_eq!(
        starts("shmem_", "_swap") - 2 * EXTENDED - 2 * AMO,
        5 + 1,
        "beside atomic_swap and atomic_compare_swap; with the oldest"
    );
}

#[test]
fn the_unusual_names_are_there() {
    let all: HashSet<_> = symbols().into_iter().collect();
    for name in [
        "start_pes",
        "_my_pe",
        "_num_pes",
        "shmalloc",
        "shmemalign",
        "shrealloc",
        "shfree",
        "shmem_wait",
        "shmem_wait_until",
        "shmem_swap",
        "shmem_sync",
        "shmem_barrier",
        "shmem_pcontrol",
        "shmem_udcflush_line",
        "shmem_query_initialized",
        "shmem_team_ptr",
        "shmem_ctx_session_start",
        "shmem_ctx_pe_quiet",
        "shmem_ctx_signal_set",
        "shmem_put128_signal_nbi",
        "shmem_ctx_longdouble_g",
        "shmem_complexd_sum_inscan",
        "shmem_int_atomic_fetch_and",
        "shmem_ctx_long_atomic_xor",
        "shmem_longlong_atomic_fetch_or_nbi",
    ] {
        assert!(all.contains(name), "{name}");
    }
}

/// Every implementation has one signature, and it is listed once.
#[test]
fn operations_are_few() {
    let text = memonet_shmem_api::signatures();
    let mut module = "";
    let mut seen = HashSet::new();
    for line in text.lines() {
        match line.strip_prefix("// ") {
            Some(title) => module = title.split(':').next().unwrap(),
            None if line.is_empty() => {}
            None => {
                let name = line
                    .strip_prefix("pub unsafe fn ")
                    .expect(line)
                    .split(['<', '('])
                    .next()
                    .unwrap();
                assert!(seen.insert((module, name)), "{module}::{name} twice");
            }
        }
    }
    assert!(text.contains(
        "pub unsafe fn put<T>(call: &'static str, ctx: crate::state::handle::Ctx, dest: *mut T, source: *const T, nelems: usize, pe: c_int)\n"
    ));
    assert!(seen.len() < 190, "{}", seen.len());
}

fn problem(extra: &str) -> Error {
    Table::parse(&format!("{TEXT}\n{extra}\n")).err().unwrap_or_else(|| panic!("a table: {extra}"))
}

#[test]
fn notes_stand_below_the_title() {
    let text = "type int: int -> c_int\nmodule x: Titles\nnote One line,\nnote another\nshmemx int shmemx_x(int pe)";
    let table = Table::parse(text).unwrap();
    assert_eq!(table.modules[0].notes, ["One line,", "another"]);
    let below = |title: &str| {
        memonet_shmem_api::header_x()
            .contains(&format!("\n/* {title}\n   All PEs create a mutex together"))
    };
    assert!(below("Entry consistency: data that belong to a lock, and arrive with it."));
}

#[test]
fn mistakes_are_named_with_their_line() {
    let last = TEXT.lines().count() + 2;
    for (extra, expected) in [
        ("void shmem_x(int)", "has no type"),
        ("void shmem_x(quad q)", "`quad` is not a type"),
        ("void shmem_x(int a", "closed"),
        ("int", "parentheses"),
        ("void shmem_quiet(void)", "`shmem_quiet` is there twice"),
        ("void shmem_{C}x(int a)", "place"),
        ("void shmem_x({T} *a)", "exactly if it is for types"),
        ("each rma: void shmem_x(int a)", "exactly if it is for types"),
        ("each none: void shmem_{N}_x({T} *a)", "neither a type nor"),
        ("each rma: void shmem_x({T} *a)", "there twice"),
        ("each rma: void shmem_{O}_{N}_x({T} *a)", "operator"),
        ("each longdouble: void shmem_{N}_x({T} a, {T} b)", "Rust cannot pass"),
        ("generic rma: void shmem_{N}_x(int a, {T} *b, {T} c, int d) = rma::p", "would be both"),
        ("generic rma: void shmem_{N}_x(int a, int b, {T} *c)", "macros look at"),
        ("generic integers fixed: void shmem_{N}_x({T} *c)", "type twice"),
        ("generic int: void shmem_{N}_x({T} *c)", "classes"),
        ("generic rma: void shmem_{N}_put({T} *a) = rma::other", "twice"),
        ("inline void shmem_x(int a)", "not known"),
        ("volatile void shmem_x(const long *a)", "cannot be"),
        ("volatile void shmem_x(int a, long *b)", "cannot be"),
        ("void shmem_x(void) rest", "follows"),
        ("void shmem_x(void) = rest", "MODULE::OPERATION"),
        ("class empty:", "colon"),
        ("class odd: float sum*rma", "either"),
        ("class odd: avg*rma", "operator"),
        ("class odd: float | rma", "neither a type nor"),
        ("class odd: sum*scan", "has operators"),
        ("type odd float", "colon"),
        ("type odd: float", "->"),
        ("type odd: float -> f32 = nothing", "nothing"),
        ("constant int X", "NAME = VALUE"),
        ("constant int X = y", "not a number"),
        ("constant odd X = 1", "odd"),
        ("struct x -> y", "fields"),
        ("formerly shmemx: nothing", "nothing is called"),
        ("formerly x: nothing", "formerly what"),
    ] {
        let error = problem(extra);
        assert!(error.problem.contains(expected), "{extra}: {error}");
        assert_eq!(error.line, last, "{extra}: {error}");
        assert!(error.to_string().starts_with(&format!("line {last}: ")));
    }
    assert_eq!(Table::parse("int shmem_x(void)").unwrap_err().line, 1);
    assert!(Table::parse("note of nothing").unwrap_err().problem.contains("the module before"));
    assert_eq!(Table::parse("# comment\n\nclass x: y\n").unwrap_err().line, 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A table that lost or gained something is a table or an error, never a panic.
    #[test]
    fn damaged_tables_do_not_panic(at in 0..TEXT.len(), lost in 0..40_usize, gained in "[a-z{}():*,=# \n]{0,12}") {
        let mut bytes = TEXT.as_bytes().to_vec();
        let end = (at + lost).min(bytes.len());
        bytes.splice(at..end, gained.bytes());
        let _ = Table::parse(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn noise_does_not_panic(noise in "(type|class|module|each|generic|[a-z]{1,3}|[{}():*,=#\n ]){0,40}") {
        let _ = Table::parse(&noise);
    }
}
