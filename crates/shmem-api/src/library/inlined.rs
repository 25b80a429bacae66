//! For the library: the layout of the objects that the header reads, and the functions that the
//! header inlines.

use crate::library::names::own;
use crate::near::{FIELDS, LAST, PES, READS_FIELDS};
use crate::table::expand::{Function, functions};
use crate::table::model::Table;

/// For the library: that its object is laid out as the header believes, and the functions that are
/// inlined, by the name that programs call and by the library's own. They differ where somebody has
/// defined the former.
pub fn source(table: &Table) -> String {
    let mut out = format!(
        "pub const NEAR_PES: usize = {PES};\nconst _: () = assert!(size_of::<usize>() == 8);\n"
    );
    for (object, fields) in [("Near", FIELDS), ("Reads", READS_FIELDS)] {
        for (place, path) in fields.iter().chain([&LAST]).enumerate() {
            out += &format!(
                "const _: () = assert!(core::mem::offset_of!(crate::near::{object}, {path}) == {});\n",
                place * 8
            );
        }
    }
    let all = functions(table).expect("a checked table");
    // What Rust cannot pass is no word either.
    let opaque = |f: &Function<'_>| f.kind.is_some_and(|t| t.opaque);
    let names: Vec<_> =
        all.into_iter().filter(|f| f.template.inline && !opaque(f)).map(|f| f.name).collect();
    out += "unsafe extern \"C\" {\n";
    for name in &names {
        out += &format!("    fn {name}();\n    fn {}();\n", own(name));
    }
    out += &format!("}}\npub static INLINED: [crate::near::Names; {}] = [\n", names.len());
    for name in &names {
        out += &format!(
            "    crate::near::Names({name} as *const c_void, {} as *const c_void),\n",
            own(name)
        );
    }
    out + "];\n\n"
}
