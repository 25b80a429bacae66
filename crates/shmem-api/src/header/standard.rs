//! `shmem.h` and `pshmem.h`.

use crate::header::c::{bottom, c_name, define, list_name, section, top};
use crate::header::declarations::{constants, declarations, handles, structs};
use crate::header::{generic, inline};
use crate::table::expand::once;
use crate::table::model::{Over, Table, Type};

/// `shmem.h`.
pub fn header(table: &Table) -> String {
    let mut out = top("shmem.h", "the C API of OpenSHMEM 1.6");
    out += "#include <stddef.h>\n#include <stdint.h>\n";
    out += &section("Constants");
    out += &constants(table, false);
    out += &section("Deprecated names of constants");
    out += &deprecated(table);
    out += &section("Handles, and structs that programs fill in");
    out += "typedef struct memonet_ctx *shmem_ctx_t;\ntypedef struct memonet_team *shmem_team_t;\n";
    out += &handles(table, false);
    out += &structs(table, false);
    out += &section("Types that old C++ accepts only in this form");
    out += "#ifdef __GNUC__\n#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored \"-Wlong-long\"\n#endif\n";
    for t in table.types.iter().filter(|t| t.extension) {
        out += &format!("__extension__ typedef {} {};\n", t.c, c_name(t));
    }
    out += "#ifdef __GNUC__\n#pragma GCC diagnostic pop\n#endif\n";
    out += &section(
        "Types, as lists of (NAME, TYPE); lists ..._ONCE leave out second names of a type",
    );
    out += &lists(table);
    out += &section("Functions that do not return");
    out += NORETURN;
    out += &section("Direct calls, without the jump that lazy binding would need");
    out += DIRECT;
    out += &section("Whether the compiler inlines some functions");
    out += inline::CONDITION;
    out += "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    for module in &table.modules {
        out += &section(&module.title);
        out += &declarations(table, module, "", false);
    }
    out += &inline::definitions(table);
    out += "\n#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n";
    out += &generic::c11(table);
    out += &generic::cxx(table);
    out + &bottom("shmem.h")
}

/// `pshmem.h`: the functions of `shmem.h` under the names by which profiling tools call them.
pub fn profiling(table: &Table) -> String {
    let mut out =
        top("pshmem.h", "the functions of shmem.h by the names that profiling tools call");
    out +=
        "/* A tool's own calls must reach the functions that it defines, so none is inlined. */\n";
    out += "#ifndef SHMEMX_NO_INLINE\n#define SHMEMX_NO_INLINE\n#endif\n";
    out += "#include \"shmem.h\"\n\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    for module in &table.modules {
        out += &section(&module.title);
        out += &declarations(table, module, "p", false);
    }
    out + "\n#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n" + &bottom("pshmem.h")
}

const NORETURN: &str = "\
#if defined(__cplusplus) && __cplusplus >= 201103L
#define MEMONET_NORETURN [[noreturn]]
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L && __STDC_VERSION__ < 202311L
#define MEMONET_NORETURN _Noreturn
#elif defined(__GNUC__)
#define MEMONET_NORETURN __attribute__((__noreturn__))
#else
#define MEMONET_NORETURN
#endif
";

const DIRECT: &str = "\
#ifdef __has_attribute
#if __has_attribute(__noplt__)
#define MEMONET_DIRECT __attribute__((__noplt__))
#endif
#endif
#ifndef MEMONET_DIRECT
#define MEMONET_DIRECT
#endif
";

fn deprecated(table: &Table) -> String {
    let old = table.constants.iter().filter_map(|c| Some((c.deprecated.as_ref()?, &c.name)));
    let mut out: String = old.map(|(old, new)| format!("#define {old} {new}\n")).collect();
    out += "#define _SHMEM_VENDOR_STRING SHMEM_VENDOR_STRING\n";
    out
}

/// The classes that templates are for, in the order of the table.
fn used_classes(table: &Table) -> Vec<&str> {
    let mut used = Vec::new();
    for template in table.templates() {
        used.extend(
            table.groups(template).expect("a checked table").into_iter().map(|(_, over)| over),
        );
    }
    let named =
        table.classes.iter().filter(|class| used.contains(&Over::Class(class.name.clone())));
    named.map(|class| class.name.as_str()).collect()
}

fn lists(table: &Table) -> String {
    let entry = |t: &&Type| format!("X({}, {})", t.name, c_name(t));
    let mut out = String::new();
    for class in used_classes(table) {
        let beyond = table.beyond(class);
        if !beyond.is_empty() {
            out += &format!(
                "/* Not in the standard here, but in other libraries: {}. */\n",
                beyond.join(", ")
            );
        }
        let (full, distinct) = (list_name(table, class, false), list_name(table, class, true));
        let first = once(table, class);
        if full == distinct {
            out += &define(&format!("{full}(X)"), first.iter().map(entry));
        } else {
            out += &define(&format!("{distinct}(X)"), first.iter().map(entry));
            let all = table.types_of(&Over::Class(class.to_owned()));
            let rest =
                all.iter().filter(|t| !first.iter().any(|other| other.name == t.name)).map(entry);
            out += &define(
                &format!("{full}(X)"),
                std::iter::once(format!("{distinct}(X)")).chain(rest),
            );
        }
    }
    out
}
