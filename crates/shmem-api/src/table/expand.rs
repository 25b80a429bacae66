//! From templates to functions: all C functions, and the Rust functions that implement them.

use crate::table::model::{Over, Table, Template, Type};
use crate::table::prototype::{CType, Parameter};

/// One C function.
pub struct Function<'a> {
    /// Its name.
    pub name: String,
    /// The template that it was made from.
    pub template: &'a Template,
    /// The type that it is for.
    pub kind: Option<&'a Type>,
    /// Its operator.
    pub operator: Option<String>,
    /// Whether the context is a parameter.
    pub explicit: bool,
}

impl Template {
    /// A function's name.
    pub fn function(&self, kind: Option<&str>, operator: Option<&str>, explicit: bool) -> String {
        let name = self.prototype.name.replace("{C}", if explicit { "ctx_" } else { "" });
        name.replace("{N}", kind.unwrap_or_default()).replace("{O}", operator.unwrap_or_default())
    }

    /// Its forms: without a context, and with one.
    pub fn forms(&self) -> impl Iterator<Item = bool> + use<> {
        let both = self.prototype.name.contains("{C}");
        [false, true].into_iter().filter(move |explicit| both || !explicit)
    }
}

/// All functions of the table.
pub fn functions(table: &Table) -> Result<Vec<Function<'_>>, (usize, String)> {
    let mut all = Vec::new();
    for template in table.templates() {
        for (operator, over) in
            table.groups(template).map_err(|problem| (template.line, problem))?
        {
            let kinds: Vec<_> = match over {
                Over::Nothing => vec![None],
                _ => table.types_of(&over).into_iter().map(Some).collect(),
            };
            for kind in kinds {
                for explicit in template.forms() {
                    let name = template.function(
                        kind.map(|t| t.name.as_str()),
                        operator.as_deref(),
                        explicit,
                    );
                    all.push(Function {
                        name,
                        template,
                        kind,
                        operator: operator.clone(),
                        explicit,
                    });
                }
            }
        }
    }
    Ok(all)
}

/// The Rust type for a C type in a template whose `{T}` stands for `t`.
pub fn rust_type(table: &Table, kind: &CType, t: &str) -> Result<String, String> {
    let base = if kind.base == "{T}" { t } else { table.rust_of(&kind.base)? };
    Ok(kind.rust(base))
}

/// The result in a Rust signature, with its arrow.
pub fn rust_result(table: &Table, template: &Template, t: &str) -> Result<String, String> {
    let result = &template.prototype.result;
    match (template.noreturn, result.is_void()) {
        (true, _) => Ok(" -> !".to_owned()),
        (_, true) => Ok(String::new()),
        _ => Ok(format!(" -> {}", rust_type(table, result, t)?)),
    }
}

/// The signature of the function that implements a template.
pub fn signature(table: &Table, template: &Template) -> Result<String, String> {
    let generics: Vec<_> = [(template.has_type(), "T"), (template.has_operator(), "O")]
        .into_iter()
        .filter_map(|(has, name)| has.then_some(name))
        .collect();
    let generics =
        if generics.is_empty() { String::new() } else { format!("<{}>", generics.join(", ")) };
    let mut parameters = vec!["call: &'static str".to_owned()];
    for parameter in &template.prototype.parameters {
        match parameter {
            Parameter::Context => {
                parameters.push(format!("ctx: {}", table.rust_of("shmem_ctx_t")?))
            }
            Parameter::Rest => {}
            Parameter::Named(kind, name) => {
                parameters.push(format!("{name}: {}", rust_type(table, kind, "T")?))
            }
        }
    }
    let result = rust_result(table, template, "T")?;
    Ok(format!(
        "pub unsafe fn {}{generics}({}){result}",
        template.implementation.1,
        parameters.join(", ")
    ))
}

/// The types of a class, without second names of a type.
pub fn once<'a>(table: &'a Table, class: &str) -> Vec<&'a Type> {
    let all = table.types_of(&Over::Class(class.to_owned()));
    let twice =
        |t: &Type| t.same_as.as_ref().is_some_and(|other| all.iter().any(|t| t.name == *other));
    all.iter().copied().filter(|t| !twice(t)).collect()
}
