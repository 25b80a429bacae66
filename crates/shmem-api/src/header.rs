//! The C headers: constants, types and prototypes here; names for all types in `generic`,
//! extensions in `extension`.

use crate::generic;
use crate::inline;
use crate::prototype::CType;
use crate::table::{Constant, Module, Over, Table, Template, Type};

/// How long a line may get.
const WIDTH: usize = 120;

/// `shmem.h`.
pub fn standard(table: &Table) -> String {
    let mut out = top("shmem.h", "the C API of OpenSHMEM 1.6");
    out += "#include <stddef.h>\n#include <stdint.h>\n";
    out += &section("Constants");
    out += &constants(table, false);
    out += &section("Deprecated names of constants");
    out += &deprecated(table);
    out += &section("Handles, and what programs fill in");
    out += "typedef struct memonet_ctx *shmem_ctx_t;\ntypedef struct memonet_team *shmem_team_t;\n";
    out += &handles(table, false);
    out += &structs(table);
    out += &section("Types that old C++ takes only like this");
    out += "#ifdef __GNUC__\n#pragma GCC diagnostic push\n#pragma GCC diagnostic ignored \"-Wlong-long\"\n#endif\n";
    for t in table.types.iter().filter(|t| t.extension) {
        out += &format!("__extension__ typedef {} {};\n", t.c, c_name(t));
    }
    out += "#ifdef __GNUC__\n#pragma GCC diagnostic pop\n#endif\n";
    out += &section(
        "Types, as lists of (NAME, TYPE); ..._ONCE without those that are another one by a second name",
    );
    out += &lists(table);
    out += &section("Functions that do not return");
    out += NORETURN;
    out += &section(
        "Calls that go straight to the function, not by way of a jump that lazy binding would need",
    );
    out += DIRECT;
    out += &section("Whether some functions are inlined");
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

/// `pshmem.h`: the same functions under the names by which profiling tools call them.
pub fn profiling(table: &Table) -> String {
    let mut out =
        top("pshmem.h", "the functions of shmem.h by the names that profiling tools call");
    out += "/* The functions that a tool defines are not to be passed by where it calls them itself. */\n";
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

/// The first lines of a header.
pub fn top(file: &str, what: &str) -> String {
    let guard = guard(file);
    format!(
        "/* memonet: {what}. Generated from crates/shmem-api/src/shmem.api; change that. */\n#ifndef {guard}\n#define {guard}\n\n"
    )
}

/// The last ones.
pub fn bottom(file: &str) -> String {
    format!("\n#endif /* {} */\n", guard(file))
}

fn guard(file: &str) -> String {
    format!("MEMONET_{}", file.to_uppercase().replace('.', "_"))
}

/// A comment before a part.
pub fn section(title: &str) -> String {
    format!("\n/* {title}. */\n")
}

/// The beginning of a module's.
pub fn section_of(module: &Module) -> String {
    let lines: Vec<_> =
        std::iter::once(format!("{}.", module.title)).chain(module.notes.iter().cloned()).collect();
    format!("\n/* {} */\n", lines.join("\n   "))
}

/// The definitions of the constants: of the standard, or of the extension.
pub fn constants(table: &Table, extension: bool) -> String {
    let mut out = String::new();
    if !extension {
        out += &format!("#define SHMEM_VENDOR_STRING \"{}\"\n", crate::VENDOR);
        out += "/* Of the library: major * 10000 + minor * 100 + patch. */\n";
        out += &format!("#define MEMONET_VERSION {}\n", crate::version());
        out += &format!("#define MEMONET_VERSION_STRING \"{}\"\n", crate::VERSION);
        out += "/* Open MPI's, which programs ask for. */\n";
        out += "#define OSHMEM_SPEC_VERSION (SHMEM_MAJOR_VERSION * 10000 + SHMEM_MINOR_VERSION * 100)\n";
    }
    for constant in
        table.constants.iter().filter(|c| !c.is_handle() && c.is_extension() == extension)
    {
        let value = match (constant.kind.as_str(), constant.value) {
            ("long", value) if value >= 0 => format!("{value}L"),
            ("long", value) => format!("({value}L)"),
            (_, value) if value >= 0 => value.to_string(),
            (_, value) => format!("({value})"),
        };
        out += &format!("#define {} {value}\n", constant.name);
    }
    out
}

/// The constants that are handles: of the standard, or of the extension. A macro of the same name
/// hides the object from C.
pub fn handles(table: &Table, extension: bool) -> String {
    let handles = table.constants.iter().filter(|c| c.is_handle() && c.is_extension() == extension);
    let mut out = String::from(
        "/* Macros for C; and objects, for what reads headers but no macros with casts in them. */\n",
    );
    out += "#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    for Constant { kind, name, value, .. } in handles {
        let c = table.type_named(kind).map_or("", |t| &t.c);
        out += &format!("extern const {c} {name};\n#define {name} (({c}){value})\n");
    }
    out + "#ifdef __cplusplus\n}\n#endif\n"
}

fn deprecated(table: &Table) -> String {
    let old = table.constants.iter().filter_map(|c| Some((c.deprecated.as_ref()?, &c.name)));
    let mut out: String = old.map(|(old, new)| format!("#define {old} {new}\n")).collect();
    out += "#define _SHMEM_VENDOR_STRING SHMEM_VENDOR_STRING\n";
    out
}

fn structs(table: &Table) -> String {
    let mut out = String::new();
    for s in &table.structs {
        let fields: Vec<_> =
            s.fields.iter().map(|(kind, name)| format!("{kind} {name};")).collect();
        out += &format!("typedef struct {{ {} }} {};\n", fields.join(" "), s.c);
    }
    out
}

/// How a type is written in the headers.
pub fn c_name(t: &Type) -> String {
    if t.extension { format!("memonet_{}", t.name) } else { t.c.clone() }
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

/// The types of a class without those that are another one of it by a second name.
pub fn once<'a>(table: &'a Table, class: &str) -> Vec<&'a Type> {
    let all = table.types_of(&Over::Class(class.to_owned()));
    let twice =
        |t: &Type| t.same_as.as_ref().is_some_and(|other| all.iter().any(|t| t.name == *other));
    all.iter().copied().filter(|t| !twice(t)).collect()
}

/// The macro that lists a class.
pub fn list_name(table: &Table, class: &str, distinct: bool) -> String {
    let both = once(table, class).len() == table.types_of(&Over::Class(class.to_owned())).len();
    format!(
        "MEMONET_TYPES_{}{}",
        class.to_uppercase(),
        if distinct && !both { "_ONCE" } else { "" }
    )
}

fn lists(table: &Table) -> String {
    let entry = |t: &&Type| format!("X({}, {})", t.name, c_name(t));
    let mut out = String::new();
    for class in used_classes(table) {
        let beyond = table.beyond(class);
        if !beyond.is_empty() {
            out += &format!(
                "/* Not of the standard here, but of other libraries: {}. */\n",
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

/// A macro of words, over as many lines as it takes.
fn define(head: &str, words: impl Iterator<Item = String>) -> String {
    let mut out = format!("#define {head}");
    let mut width = out.len();
    for word in words {
        if width + word.len() + 3 > WIDTH {
            out += " \\\n   ";
            width = 3;
        }
        width += word.len() + 1;
        out = out + " " + &word;
    }
    out + "\n"
}

/// A function's name in a macro whose parameter N is the type's name.
pub fn pasted(template: &Template, operator: Option<&str>, explicit: bool, prefix: &str) -> String {
    let name = template.function(Some("##N##"), operator, explicit);
    format!("{prefix}{}", name.trim_end_matches('#'))
}

/// A prototype in C, without what follows it.
fn prototype(template: &Template, name: &str, t: &str, explicit: bool) -> String {
    let noreturn = if template.noreturn { "MEMONET_NORETURN " } else { "" };
    format!(
        "{noreturn}MEMONET_DIRECT {}{name}({})",
        template.prototype.result.before_name(t),
        template.prototype.c_parameters(t, explicit)
    )
}

/// The prototypes of a section, standard or extensions.
pub fn declarations(table: &Table, module: &Module, prefix: &str, extension: bool) -> String {
    let templates: Vec<_> = module.templates.iter().filter(|t| t.extension == extension).collect();
    let bodies = |template: &Template, name: &dyn Fn(bool) -> String, t: &str| -> Vec<String> {
        template
            .forms()
            .map(|explicit| prototype(template, &name(explicit), t, explicit) + ";")
            .collect()
    };
    let mut out = String::new();
    for (class, rows) in by_class(table, &templates) {
        let mut written = Vec::new();
        for (template, operator) in &rows {
            written.extend(bodies(
                template,
                &|explicit| pasted(template, operator.as_deref(), explicit, prefix),
                "T",
            ));
        }
        out += &macro_over(table, &class, "MEMONET_DECLARE", &written, false);
    }
    for template in templates {
        for (_, over) in table.groups(template).expect("a checked table") {
            let kind = match over {
                Over::Class(_) => continue,
                Over::Type(place) => Some(&table.types[place]),
                Over::Nothing => None,
            };
            let name = |explicit| {
                prefix.to_owned()
                    + &template.function(kind.map(|t| t.name.as_str()), None, explicit)
            };
            let lines =
                bodies(template, &name, &kind.map(c_name).unwrap_or_default()).join("\n") + "\n";
            let overloaded =
                prefix.is_empty() && kind.is_some() && generic::is_name(table, &name(false));
            out += &if overloaded {
                format!("#ifndef __cplusplus /* there, one of the overloads */\n{lines}#endif\n")
            } else {
                lines
            };
        }
    }
    out
}

/// Templates, each with one of its operators if it has any.
type Rows<'a> = Vec<(&'a Template, Option<String>)>;

/// The templates of each class, with their operators, in the order in which classes come up.
pub fn by_class<'a>(table: &Table, templates: &[&'a Template]) -> Vec<(String, Rows<'a>)> {
    let mut found: Vec<(String, Rows<'a>)> = Vec::new();
    for template in templates {
        for (operator, over) in table.groups(template).expect("a checked table") {
            let Over::Class(class) = over else { continue };
            match found.iter_mut().find(|(name, _)| *name == class) {
                Some((_, rows)) => rows.push((*template, operator)),
                None => found.push((class, vec![(*template, operator)])),
            }
        }
    }
    found
}

/// Lines for each type of a class: a macro, its use, and its end.
pub fn macro_over(
    table: &Table,
    class: &str,
    name: &str,
    lines: &[String],
    distinct: bool,
) -> String {
    let list = list_name(table, class, distinct);
    let body = lines.join(" \\\n    ");
    format!("#define {name}(N, T) \\\n    {body}\n{list}({name})\n#undef {name}\n")
}

/// The body of a function that only calls another one.
pub fn forward(result: &CType, callee: &str, arguments: &str) -> String {
    let word = if result.is_void() { "" } else { "return " };
    format!("{{ {word}{callee}({arguments}); }}")
}

/// The name of a function for all types, without `shmem_`: what remains without type and context.
pub fn base(template: &Template, operator: Option<&str>) -> String {
    let name = template.prototype.name.replace("{N}_", "").replace("{N}", "").replace("{C}", "");
    let name = name.replace("{O}", operator.unwrap_or_default());
    name.strip_prefix("shmem_").unwrap_or(&name).to_owned()
}
