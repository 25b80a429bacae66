//! `shmemx.h`: extensions, and the old names of standard functions that were extensions.

use crate::header::c::{bottom, by_class, forward, macro_over, pasted, section, section_of, top};
use crate::header::declarations::{constants, declarations, handles, structs};
use crate::table::generic::base;
use crate::table::model::{Over, Table, Template};

/// The header.
pub fn header(table: &Table) -> String {
    let mut out = top(
        "shmemx.h",
        "extensions of OpenSHMEM, and old names of functions that are standard now",
    );
    out += "#include \"shmem.h\"\n";
    out += &section(
        "Handles, and the access that a PE (`holder`) has to the window of another (`home`): SHMEMX_ACCESS_...",
    );
    for handle in [
        "barrier",
        "supersteps",
        "transfer",
        "window",
        "mutex",
        "rwlock",
        "region",
        "messages",
        "multicast",
    ] {
        out += &format!("typedef struct memonet_{handle} *shmemx_{handle}_t;\n");
    }
    out += "typedef int shmemx_right_t(int home, int holder);\n";
    out += &structs(table, true);
    out += &section("Constants");
    out += &constants(table, true);
    out += &handles(table, true);
    out += "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    for module in table.modules.iter().filter(|module| module.templates.iter().any(|t| t.extension))
    {
        out += &section_of(module);
        out += &declarations(table, module, "", true);
    }
    out += "\n#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n";
    let former = |template: &&Template| {
        let groups = table.groups(template).expect("a checked table");
        groups.iter().any(|(operator, _)| is_former(table, template, operator.as_deref()))
    };
    let templates: Vec<_> = table.templates().filter(former).collect();
    out += &section("Once extensions: functions for a type");
    for (class, rows) in by_class(table, &templates) {
        let mut lines = Vec::new();
        for (template, operator) in
            rows.iter().filter(|(t, operator)| is_former(table, t, operator.as_deref()))
        {
            for explicit in template.forms() {
                let callee = pasted(template, operator.as_deref(), explicit, "");
                let prototype = &template.prototype;
                let (result, parameters) =
                    (prototype.result.before_name("T"), prototype.c_parameters("T", explicit));
                let body = forward(&prototype.result, &callee, &prototype.arguments(explicit));
                lines.push(format!(
                    "static inline {result}{}({parameters}) {body}",
                    former_name(&callee)
                ));
            }
        }
        out += &macro_over(table, &class, "MEMONET_FORMER", &lines, false);
    }
    out += &section("Once extensions: functions without a type, and names for all types");
    for template in templates {
        for (operator, over) in table.groups(template).expect("a checked table") {
            let names: Vec<_> = match over {
                Over::Nothing => template
                    .forms()
                    .map(|explicit| template.function(None, None, explicit))
                    .collect(),
                _ => vec![format!("shmem_{}", base(template, operator.as_deref()))],
            };
            if template.generic.is_some() || over == Over::Nothing {
                out.extend(
                    names.iter().map(|name| format!("#define {} {name}\n", former_name(name))),
                );
            }
        }
    }
    out + &bottom("shmemx.h")
}

/// Whether functions of this template were once extensions.
pub fn is_former(table: &Table, template: &Template, operator: Option<&str>) -> bool {
    table.formerly.contains(&base(template, operator))
}

fn former_name(name: &str) -> String {
    name.replacen("shmem_", "shmemx_", 1)
}
