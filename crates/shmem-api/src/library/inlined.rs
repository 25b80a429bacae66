//! For the library: the number of PEs that the header's tables hold, and the functions that the
//! header inlines.

use crate::library::names::own;
use crate::near::PES;
use crate::table::expand::{Function, functions};
use crate::table::model::Table;

/// The source text. It lists each function by the name that programs call and by the library's own
/// name. The two addresses differ where a tool has defined the former.
pub fn source(table: &Table) -> String {
    let mut out = format!(
        "// Generated from crates/shmem-api/src/shmem.api.\npub const NEAR_PES: usize = {PES};\n"
    );
    let all = functions(table).expect("a checked table");
    // Values that Rust cannot pass are larger than a word.
    let opaque = |f: &Function<'_>| f.kind.is_some_and(|t| t.opaque);
    let names: Vec<_> =
        all.into_iter().filter(|f| f.template.inline && !opaque(f)).map(|f| f.name).collect();
    out += "unsafe extern \"C\" {\n";
    for name in &names {
        out += &format!("    fn {name}();\n    fn {}();\n", own(name));
    }
    out += &format!("}}\nstatic INLINED: [Names; {}] = [\n", names.len());
    for name in &names {
        out += &format!("    Names({name} as *const c_void, {} as *const c_void),\n", own(name));
    }
    out + "];\n"
}
