//! What a function does that the header can do in its place.

use crate::table::model::Template;

/// What a function does that can be inlined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Stores a value.
    Store,
    /// Loads one.
    Load,
    /// Copies to another PE.
    Put,
    /// Copies from one.
    Get,
}

impl Shape {
    /// That of a template, if its form is known here.
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
