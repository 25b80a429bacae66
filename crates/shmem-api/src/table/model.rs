//! The contents of the table: types, classes, constants, and modules of prototypes.

use std::fmt;

use crate::table::prototype::{Parameter, Prototype};

/// A mistake in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The line, counted from 1.
    pub line: usize,
    /// The mistake.
    pub problem: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for Error {}

/// A type that functions are for.
#[derive(Debug, Clone)]
pub struct Type {
    /// Its name within the names of functions.
    pub name: String,
    /// The name in C.
    pub c: String,
    /// The path in Rust.
    pub rust: String,
    /// The type that this is another name of.
    pub same_as: Option<String>,
    /// Whether old C++ lacks this type.
    pub extension: bool,
    /// Whether Rust cannot pass it by value.
    pub opaque: bool,
}

/// A class: either types, by their places in the table, or operators with a class each.
#[derive(Debug, Clone)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its types; empty if it has operators.
    pub types: Vec<usize>,
    /// The number of types at the end of the list that are not in the standard.
    pub beyond: usize,
    /// Operators, each with the name of a class.
    pub operators: Vec<(String, String)>,
}

/// A constant.
#[derive(Debug, Clone)]
pub struct Constant {
    /// The name of its type.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: i64,
    /// Its deprecated name.
    pub deprecated: Option<String>,
}

/// A struct that programs fill in.
#[derive(Debug, Clone)]
pub struct Struct {
    /// The name in C.
    pub c: String,
    /// The path in Rust.
    pub rust: String,
    /// Its fields: C type and name.
    pub fields: Vec<(String, String)>,
}

/// The types for which a template makes functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    /// The class with this name.
    Class(String),
    /// One type.
    Type(usize),
    /// The function has no type.
    Nothing,
}

/// A prototype, with the types for which it makes functions.
#[derive(Debug, Clone)]
pub struct Template {
    /// The prototype.
    pub prototype: Prototype,
    /// The words after `each` or `generic`.
    pub words: Vec<String>,
    /// The name for all types, if there is one.
    pub generic: Option<String>,
    /// Whether the function does not return.
    pub noreturn: bool,
    /// Whether it is an extension.
    pub extension: bool,
    /// Whether the header contains its usual case.
    pub inline: bool,
    /// Whether its first parameter may point to something volatile.
    pub volatile: bool,
    /// The Rust module and function that implement it.
    pub implementation: (String, String),
    /// Its line in the table.
    pub line: usize,
}

/// A section of the header.
#[derive(Debug, Clone)]
pub struct Module {
    /// The Rust module that implements it.
    pub name: String,
    /// The prefix of function names that operations do not have.
    pub without: Option<String>,
    /// The title of the section.
    pub title: String,
    /// Lines below the title.
    pub notes: Vec<String>,
    /// Its functions.
    pub templates: Vec<Template>,
}

/// The whole table.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// The types.
    pub types: Vec<Type>,
    /// The operators: name and Rust type.
    pub operators: Vec<(String, String)>,
    /// The classes.
    pub classes: Vec<Class>,
    /// The constants.
    pub constants: Vec<Constant>,
    /// The structs.
    pub structs: Vec<Struct>,
    /// The sections.
    pub modules: Vec<Module>,
    /// The operations that were extensions and keep their old names.
    pub formerly: Vec<String>,
    /// The line that lists former extensions.
    pub formerly_line: usize,
}

impl Table {
    /// The place of the type with this name.
    pub fn type_index(&self, name: &str) -> Result<usize, String> {
        let place = self.types.iter().position(|t| t.name == name);
        place.ok_or_else(|| format!("`{name}` is neither a type nor, here, a class"))
    }

    /// The type with this name.
    pub fn type_named(&self, name: &str) -> Result<&Type, String> {
        self.type_index(name).map(|place| &self.types[place])
    }

    /// The class with this name.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.classes.iter().find(|class| class.name == name)
    }

    /// The Rust type of an operator.
    pub fn operator(&self, name: &str) -> Result<&str, String> {
        let found = self.operators.iter().find(|(operator, _)| operator == name);
        found.map(|(_, rust)| rust.as_str()).ok_or_else(|| format!("there is no operator `{name}`"))
    }

    /// The Rust type for a C type that stands in a prototype or a struct.
    pub fn rust_of(&self, c: &str) -> Result<&str, String> {
        let structs = self.structs.iter().map(|s| (&s.c, &s.rust));
        let found = self
            .types
            .iter()
            .map(|t| (&t.c, &t.rust))
            .chain(structs)
            .find(|(known, _)| *known == c);
        found
            .map(|(_, rust)| rust.as_str())
            .ok_or_else(|| format!("`{c}` is not a type of the table"))
    }

    /// The names of a class's types that are not in the standard.
    pub fn beyond(&self, class: &str) -> Vec<&str> {
        let class = self.class(class).into_iter();
        let places = class.flat_map(|class| &class.types[class.types.len() - class.beyond..]);
        places.map(|&place| self.types[place].name.as_str()).collect()
    }

    /// All templates.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.modules.iter().flat_map(|module| &module.templates)
    }

    /// The types of a template, for each of its operators if it has operators.
    pub fn groups(&self, template: &Template) -> Result<Vec<(Option<String>, Over)>, String> {
        let mut groups = Vec::new();
        for word in &template.words {
            match self.class(word) {
                Some(class) if !class.operators.is_empty() => {
                    groups.extend(class.operators.iter().map(|(operator, over)| {
                        (Some(operator.clone()), Over::Class(over.clone()))
                    }));
                }
                Some(class) => groups.push((None, Over::Class(class.name.clone()))),
                None => groups.push((None, Over::Type(self.type_index(word)?))),
            }
        }
        if groups.is_empty() {
            groups.push((None, Over::Nothing));
        }
        Ok(groups)
    }

    /// The types of a group.
    pub fn types_of(&self, over: &Over) -> Vec<&Type> {
        match over {
            Over::Class(name) => self
                .class(name)
                .map_or(Vec::new(), |class| class.types.iter().map(|t| &self.types[*t]).collect()),
            Over::Type(place) => vec![&self.types[*place]],
            Over::Nothing => Vec::new(),
        }
    }
}

impl Constant {
    /// Whether it is the handle of a context or of a team.
    pub fn is_handle(&self) -> bool {
        matches!(self.kind.as_str(), "ctx" | "team")
    }

    /// Whether it belongs to the extension.
    pub fn is_extension(&self) -> bool {
        self.name.starts_with("SHMEMX_")
    }
}

impl Struct {
    /// Whether it belongs to the extension.
    pub fn is_extension(&self) -> bool {
        self.c.starts_with("shmemx_")
    }
}

impl Template {
    /// Whether the implementation is generic over a type.
    pub fn has_type(&self) -> bool {
        self.prototype.types().any(|kind| kind.base == "{T}")
    }

    /// Whether the implementation is generic over an operator.
    pub fn has_operator(&self) -> bool {
        self.prototype.name.contains("{O}")
    }

    /// The place of the argument that determines the type, not counting the context, and whether it
    /// points to `const`.
    pub fn telling(&self) -> Option<(usize, bool)> {
        let named = self.prototype.parameters.iter().filter(|p| **p != Parameter::Context);
        named.enumerate().find_map(|(place, p)| match p {
            Parameter::Named(kind, _) if kind.base == "{T}" && kind.pointer => {
                Some((place, kind.constant))
            }
            _ => None,
        })
    }
}
