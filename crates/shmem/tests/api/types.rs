//! `types.h`: the types of the table of the API, as lists for the programs' macros.

use memonet_shmem_api::table;
use std::fmt::Write;

/// For each class of types `EACH_class(X)`, which is `X(NAME, TYPE)` for each of them; where there
/// are operators, `X(OPERATOR, NAME, TYPE)`. And `EACH_TYPE(INTEGER, REAL, COMPLEX)`: all types
/// that have values, by what kind of number they are.
pub fn header() -> String {
    let table = table();
    let mut out = String::new();
    for class in table.classes.iter().filter(|class| class.operators.is_empty()) {
        write!(out, "#define EACH_{}(X)", class.name).unwrap();
        for kind in class.types.iter().map(|&place| &table.types[place]) {
            write!(out, " X({}, {})", kind.name, kind.c).unwrap();
        }
        out.push('\n');
    }
    for class in table.classes.iter().filter(|class| !class.operators.is_empty()) {
        write!(out, "#define EACH_{}(X)", class.name).unwrap();
        for (operator, over) in &class.operators {
            for place in &table.class(over).expect("a checked table").types {
                write!(
                    out,
                    " X({operator}, {}, {})",
                    table.types[*place].name, table.types[*place].c
                )
                .unwrap();
            }
        }
        out.push('\n');
    }
    out += "#define EACH_TYPE(INTEGER, REAL, COMPLEX)";
    let in_a_class = |place: &usize| table.classes.iter().any(|class| class.types.contains(place));
    for place in (0..table.types.len()).filter(in_a_class) {
        let kind = &table.types[place];
        if kind.c == "void" {
            continue;
        }
        let number = match kind.c.as_str() {
            c if c.contains("_Complex") => "COMPLEX",
            "float" | "double" | "long double" => "REAL",
            _ => "INTEGER",
        };
        write!(out, " {number}({}, {})", kind.name, kind.c).unwrap();
    }
    out + "\n"
}
