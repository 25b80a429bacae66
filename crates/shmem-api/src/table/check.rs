//! Checks that a table describes an API: it names nothing unknown, defines nothing twice, and gives
//! each operation one signature.

use std::collections::{HashMap, HashSet};

use crate::table::expand::{functions, once, signature};
use crate::table::generic::{self, base};
use crate::table::model::{Error, Over, Table, Template};
use crate::table::prototype::{Parameter, is_name};
use crate::table::shape::Shape;

/// Checks a table after it was read.
pub fn check(table: &Table) -> Result<(), Error> {
    let mut signatures: HashMap<_, String> = HashMap::new();
    for template in table.templates() {
        let at = |problem| Error { line: template.line, problem };
        self::template(table, template).map_err(at)?;
        let found = signature(table, template).map_err(at)?;
        // The names of parameters may differ; their types may not.
        let types = types_only(&found);
        match signatures.insert(template.implementation.clone(), types.clone()) {
            Some(known) if known != types => {
                let (module, operation) = &template.implementation;
                return Err(at(format!(
                    "`{module}::{operation}` would be both `{known}` and `{types}`"
                )));
            }
            _ => {}
        }
    }
    let mut names = HashSet::new();
    for function in functions(table).map_err(|(line, problem)| Error { line, problem })? {
        let at = |problem| Error { line: function.template.line, problem };
        if !is_name(&function.name) || function.name.contains(['{', '}']) {
            return Err(at(format!("`{}` is not the name of a function", function.name)));
        }
        if !names.insert(function.name.clone()) {
            return Err(at(format!("`{}` is there twice", function.name)));
        }
    }
    let mut generics = HashSet::new();
    for (classes, template, operator) in generic::generics(table) {
        let at = |problem| Error { line: template.line, problem };
        let name = generic::generic_name(template, operator.as_deref());
        if !generics.insert(name.clone()) {
            return Err(at(format!("`{name}` is a name for all types twice")));
        }
        let types: Vec<_> = classes.iter().flat_map(|class| once(table, class)).collect();
        let distinct: HashSet<_> =
            types.iter().map(|t| t.same_as.as_ref().unwrap_or(&t.name)).collect();
        if distinct.len() != types.len() {
            return Err(at(format!("`{name}` has a type twice, and a macro could not choose")));
        }
    }
    let bases: HashSet<_> =
        table.templates().flat_map(|template| former_bases(table, template)).collect();
    match table.formerly.iter().find(|name| !bases.contains(*name)) {
        Some(name) => Err(Error {
            line: table.formerly_line,
            problem: format!("nothing is called `{name}` now"),
        }),
        None => Ok(()),
    }
}

/// The names by which the table can list a template as a former extension.
fn former_bases(table: &Table, template: &Template) -> Vec<String> {
    let groups = table.groups(template).unwrap_or_default();
    groups.iter().map(|(operator, _)| base(template, operator.as_deref())).collect()
}

fn template(table: &Table, template: &Template) -> Result<(), String> {
    let name = &template.prototype.name;
    let groups = table.groups(template)?;
    let operators = groups.iter().filter(|(operator, _)| operator.is_some()).count();
    if template.has_operator() != (operators == groups.len()) {
        return Err(format!("`{name}` has a place for an operator exactly if its types have one"));
    }
    if template.has_type() == template.words.is_empty() {
        return Err(format!("`{name}` says `each` or `generic` exactly if it is for types"));
    }
    if template.generic.is_some() && !generic::can_tell(template) {
        return Err(format!("no argument that macros look at tells which `{name}` is meant"));
    }
    if template.generic.is_some() && groups.iter().any(|(_, over)| matches!(over, Over::Type(_))) {
        return Err(format!("`{name}` is `generic`, which needs classes of types"));
    }
    let values = template.prototype.types().filter(|kind| kind.is_value()).count();
    let opaque = groups.iter().flat_map(|(_, over)| table.types_of(over)).any(|t| t.opaque);
    if opaque && values > 1 {
        return Err(format!(
            "`{name}` takes or returns more than one value of a type that Rust cannot pass"
        ));
    }
    if template.volatile {
        let first = template.prototype.parameters.first();
        if !matches!(first, Some(Parameter::Named(kind, _)) if kind.pointer && !kind.constant) {
            return Err(format!("`{name}` is `volatile`, but its first parameter cannot be"));
        }
    }
    if template.inline && Shape::of(template).is_none() {
        return Err(format!("`{name}` is `inline`, but what it does is not known to the header"));
    }
    Ok(())
}

/// A signature without the names of the parameters.
fn types_only(signature: &str) -> String {
    let Some((head, rest)) = signature.split_once('(') else {
        return signature.to_owned();
    };
    let words = rest.split(", ").map(|p| p.split_once(": ").map_or(p, |(_, kind)| kind));
    format!("{head}({}", words.collect::<Vec<_>>().join(", "))
}
