//! Pieces of C from which the headers are made.

use crate::table::expand::once;
use crate::table::model::{Module, Over, Table, Template, Type};
use crate::table::prototype::CType;

/// The largest number of columns of a line.
const WIDTH: usize = 120;

/// The first lines of a header.
pub fn top(file: &str, what: &str) -> String {
    let guard = guard(file);
    format!(
        "/* memonet: {what}. Generated from crates/shmem-api/src/shmem.api; change that. */\n#ifndef {guard}\n#define {guard}\n\n"
    )
}

/// The last lines of a header.
pub fn bottom(file: &str) -> String {
    format!("\n#endif /* {} */\n", guard(file))
}

fn guard(file: &str) -> String {
    format!("MEMONET_{}", file.to_uppercase().replace('.', "_"))
}

/// The comment at the beginning of a section.
pub fn section(title: &str) -> String {
    format!("\n/* {title}. */\n")
}

/// The comment at the beginning of a module's section.
pub fn section_of(module: &Module) -> String {
    let lines: Vec<_> =
        std::iter::once(format!("{}.", module.title)).chain(module.notes.iter().cloned()).collect();
    format!("\n/* {} */\n", lines.join("\n   "))
}

/// The name of a type in the headers.
pub fn c_name(t: &Type) -> String {
    if t.extension { format!("memonet_{}", t.name) } else { t.c.clone() }
}

/// The name of the macro that lists the types of a class.
pub fn list_name(table: &Table, class: &str, distinct: bool) -> String {
    let both = once(table, class).len() == table.types_of(&Over::Class(class.to_owned())).len();
    format!(
        "MEMONET_TYPES_{}{}",
        class.to_uppercase(),
        if distinct && !both { "_ONCE" } else { "" }
    )
}

/// The definition of a macro of words, over several lines.
pub fn define(head: &str, words: impl Iterator<Item = String>) -> String {
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

/// Templates, each with one of its operators if it has operators.
type Rows<'a> = Vec<(&'a Template, Option<String>)>;

/// The templates of each class with their operators. Classes are in the order of their first use.
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

/// Lines for each type of a class: the definition of a macro, its use, and its end.
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

/// The body of a function that only calls another function.
pub fn forward(result: &CType, callee: &str, arguments: &str) -> String {
    let word = if result.is_void() { "" } else { "return " };
    format!("{{ {word}{callee}({arguments}); }}")
}
