//! Parts that all headers have: constants, handles and prototypes.

use crate::header::c::{by_class, c_name, macro_over, pasted};
use crate::table::generic::is_name;
use crate::table::model::{Constant, Module, Over, Table, Template};
use crate::version;

/// The definitions of the constants, either of the standard or of the extension.
pub fn constants(table: &Table, extension: bool) -> String {
    let mut out = String::new();
    if !extension {
        out += &format!("#define SHMEM_VENDOR_STRING \"{}\"\n", version::VENDOR);
        out += "/* The version of the library: major * 10000 + minor * 100 + patch. */\n";
        out += &format!("#define MEMONET_VERSION {}\n", version::number());
        out += &format!("#define MEMONET_VERSION_STRING \"{}\"\n", version::VERSION);
        out += "/* Open MPI defines it, and programs ask for it. */\n";
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

/// The constants that are handles, either of the standard or of the extension. A macro with the
/// name of the object hides it from C.
pub fn handles(table: &Table, extension: bool) -> String {
    let handles = table.constants.iter().filter(|c| c.is_handle() && c.is_extension() == extension);
    let mut out = String::from(
        "/* Macros for C. The objects are for tools that read headers but no macros with casts. */\n",
    );
    out += "#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    for Constant { kind, name, value, .. } in handles {
        let c = table.type_named(kind).map_or("", |t| &t.c);
        out += &format!("extern const {c} {name};\n#define {name} (({c}){value})\n");
    }
    out + "#ifdef __cplusplus\n}\n#endif\n"
}

/// The definitions of structs, either of the standard or of the extension.
pub fn structs(table: &Table, extension: bool) -> String {
    let mut out = String::new();
    for s in table.structs.iter().filter(|s| s.is_extension() == extension) {
        let fields: Vec<_> =
            s.fields.iter().map(|(kind, name)| format!("{kind} {name};")).collect();
        out += &format!("typedef struct {{ {} }} {};\n", fields.join(" "), s.c);
    }
    out
}

/// A prototype in C, without its semicolon.
fn prototype(template: &Template, name: &str, t: &str, explicit: bool) -> String {
    let noreturn = if template.noreturn { "MEMONET_NORETURN " } else { "" };
    format!(
        "{noreturn}MEMONET_DIRECT {}{name}({})",
        template.prototype.result.before_name(t),
        template.prototype.c_parameters(t, explicit)
    )
}

/// The prototypes of a section, either of the standard or of the extension.
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
            let overloaded = prefix.is_empty() && kind.is_some() && is_name(table, &name(false));
            out += &if overloaded {
                format!(
                    "#ifndef __cplusplus /* in C++ it is one of the overloads */\n{lines}#endif\n"
                )
            } else {
                lines
            };
        }
    }
    out
}
