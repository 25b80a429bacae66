//! Names that stand for the functions of all types.

use crate::table::model::{Over, Table, Template};

/// Whether a name stands for all types.
pub fn is_name(table: &Table, name: &str) -> bool {
    generics(table)
        .iter()
        .any(|(_, template, operator)| generic_name(template, operator.as_deref()) == name)
}

/// The name of a template for all types.
pub fn generic_name(template: &Template, operator: Option<&str>) -> String {
    let name = template.generic.as_deref().unwrap_or_default();
    name.replace("{O}", operator.unwrap_or_default())
}

/// The generic templates, each with one of its operators and with the classes of types for that
/// operator.
pub fn generics(table: &Table) -> Vec<(Vec<String>, &Template, Option<String>)> {
    let mut found: Vec<(Vec<String>, &Template, Option<String>)> = Vec::new();
    for template in table.templates().filter(|t| t.generic.is_some()) {
        for (operator, over) in table.groups(template).expect("a checked table") {
            let class = match over {
                Over::Class(class) => vec![class],
                _ => Vec::new(),
            };
            match found.last_mut() {
                Some((classes, last, known))
                    if std::ptr::eq(*last, template) && *known == operator =>
                {
                    classes.extend(class)
                }
                _ => found.push((class, template, operator)),
            }
        }
    }
    found
}

/// Whether the macros can choose the type of a template by its first or second argument. If a
/// context may come first, the template must have one class.
pub fn can_tell(template: &Template) -> bool {
    let forms = template.forms().count();
    match template.telling() {
        Some((place, _)) => place + forms <= 2 && (forms == 1 || template.words.len() == 1),
        None => !template.has_type(),
    }
}

/// The name of a function without `shmem_`, type and context.
pub fn base(template: &Template, operator: Option<&str>) -> String {
    let name = template.prototype.name.replace("{N}_", "").replace("{N}", "").replace("{C}", "");
    let name = name.replace("{O}", operator.unwrap_or_default());
    name.strip_prefix("shmem_").unwrap_or(&name).to_owned()
}
