//! The signatures that a library must implement: one Rust function for each operation, however many
//! C functions call it.

use crate::table::expand::signature;
use crate::table::model::{Module, Table};

/// The signatures, by module, in the order of the table.
pub fn signatures(table: &Table) -> Vec<(String, Vec<String>)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for template in table.templates() {
        let module = &template.implementation.0;
        let found = signature(table, template).expect("a checked table");
        let list = match all.iter_mut().find(|(name, _)| name == module) {
            Some((_, list)) => list,
            None => {
                all.push((module.clone(), Vec::new()));
                &mut all.last_mut().expect("just pushed").1
            }
        };
        if !list.contains(&found) {
            list.push(found);
        }
    }
    all
}

/// The signatures as text, one a line.
pub fn text(table: &Table) -> String {
    let mut out = String::new();
    for (module, list) in signatures(table) {
        let title = table
            .modules
            .iter()
            .find(|m| m.name == module)
            .map_or("", |m: &Module| m.title.as_str());
        out += &format!("// {module}: {title}\n");
        for signature in list {
            out += &signature;
            out.push('\n');
        }
        out.push('\n');
    }
    out
}
