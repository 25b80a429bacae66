//! The kinds of functions that the header can inline.

use crate::table::model::Template;

/// The work of a function that can be inlined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Stores a value.
    Store,
    /// Loads a value.
    Load,
    /// Copies to another PE.
    Put,
    /// Copies from another PE.
    Get,
}

impl Shape {
    /// The shape of a template, if the header can inline it.
    pub fn of(template: &Template) -> Option<Self> {
        let names: Vec<_> = template.prototype.named().map(|(_, name)| name).collect();
        match (template.implementation.1.as_str(), names.as_slice()) {
            ("p", ["dest", "value", "pe"]) => Some(Shape::Store),
            ("g", ["source", "pe"]) => Some(Shape::Load),
            ("put" | "put_nbi", ["dest", "source", "nelems", "pe"]) => Some(Shape::Put),
            ("get" | "get_nbi", ["dest", "source", "nelems", "pe"]) => Some(Shape::Get),
            _ => None,
        }
    }
}
