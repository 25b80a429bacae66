//! Reads the table: types, classes, constants, and modules of prototypes.

use std::fmt;

use crate::prototype::{Parameter, Prototype};

/// What is wrong with a table, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong with it.
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
    /// In C.
    pub c: String,
    /// In Rust.
    pub rust: String,
    /// The type that this is another name of.
    pub same_as: Option<String>,
    /// Old C++ has no such type.
    pub extension: bool,
    /// Rust cannot pass it by value.
    pub opaque: bool,
}

/// Types, by their place in the table, or such types with an operator each.
#[derive(Debug, Clone)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its types, unless it is one with operators.
    pub types: Vec<usize>,
    /// So many of them, the last ones, are not the standard's.
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
    /// In C.
    pub c: String,
    /// In Rust.
    pub rust: String,
    /// Its fields: C type and name.
    pub fields: Vec<(String, String)>,
}

/// The types that a template is for, in one go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    /// The class with this name.
    Class(String),
    /// One type.
    Type(usize),
    /// The function has no type.
    Nothing,
}

/// A prototype, and what it is for.
#[derive(Debug, Clone)]
pub struct Template {
    /// The prototype.
    pub prototype: Prototype,
    /// The words after `each` or `generic`.
    pub words: Vec<String>,
    /// The name for all types, if there is one.
    pub generic: Option<String>,
    /// It does not return.
    pub noreturn: bool,
    /// It is an extension.
    pub extension: bool,
    /// The header also has what it does in the usual case.
    pub inline: bool,
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
    /// The prefix that operations do not have.
    pub without: Option<String>,
    /// What the section is about.
    pub title: String,
    /// What else a user must know.
    pub notes: Vec<String>,
    /// Its functions.
    pub templates: Vec<Template>,
}

/// Everything.
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
    /// The operations that have an extension's name too.
    pub formerly: Vec<String>,
    /// The line that says so.
    pub formerly_line: usize,
}

impl Table {
    /// Reads a table and checks that it is one.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut table = Self::default();
        for (line, content) in lines(text) {
            table.line(line, &content).map_err(|problem| Error { line, problem })?;
        }
        crate::check::check(&table)?;
        Ok(table)
    }

    fn line(&mut self, line: usize, text: &str) -> Result<(), String> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "type" | "opaque" | "extension" => self.read_type(text),
            "operator" => {
                let (name, rust) = arrow(rest)?;
                self.operators.push((name.to_owned(), rust.to_owned()));
                Ok(())
            }
            "class" => self.read_class(rest),
            "constant" => self.read_constant(rest),
            "struct" => self.read_struct(rest),
            "module" => self.read_module(rest),
            "note" => {
                let module = self.modules.last_mut().ok_or("a note is of the module before it")?;
                module.notes.push(rest.to_owned());
                Ok(())
            }
            "formerly" => {
                let names = rest.strip_prefix("shmemx:").ok_or("formerly what?")?;
                self.formerly_line = line;
                self.formerly.extend(names.split_whitespace().map(str::to_owned));
                Ok(())
            }
            _ => self.read_template(line, text),
        }
    }

    fn read_type(&mut self, text: &str) -> Result<(), String> {
        let (flags, rest) = text.split_once("type ").ok_or("a type says `type`")?;
        let (name, rest) = colon(rest)?;
        let (c, rust) = arrow(rest)?;
        let (rust, same_as) = match rust.split_once(" = ") {
            Some((rust, other)) => (rust, Some(self.type_named(other)?.name.clone())),
            None => (rust, None),
        };
        self.types.push(Type {
            name: name.to_owned(),
            c: c.to_owned(),
            rust: rust.to_owned(),
            same_as,
            extension: flags.contains("extension"),
            opaque: flags.contains("opaque"),
        });
        Ok(())
    }

    fn read_class(&mut self, text: &str) -> Result<(), String> {
        let (name, rest) = colon(text)?;
        let mut class =
            Class { name: name.to_owned(), types: Vec::new(), beyond: 0, operators: Vec::new() };
        let (standard, beyond) = rest.split_once(" | ").unwrap_or((rest, ""));
        for word in standard.split_whitespace() {
            if let Some((operator, over)) = word.split_once('*') {
                self.operator(operator)?;
                self.plain_class(over)?;
                class.operators.push((operator.to_owned(), over.to_owned()));
            } else if let Ok(other) = self.plain_class(word) {
                let types = other.types.clone();
                class.types.extend(types);
            } else {
                class.types.push(self.type_index(word)?);
            }
        }
        for word in beyond.split_whitespace() {
            class.types.push(self.type_index(word)?);
            class.beyond += 1;
        }
        if class.types.is_empty() == class.operators.is_empty() {
            return Err(format!("class `{name}` has either types or operators"));
        }
        self.classes.push(class);
        Ok(())
    }

    fn read_constant(&mut self, text: &str) -> Result<(), String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let (&[kind, name, "=", value], deprecated) =
            words.split_at_checked(4).ok_or("a constant is `TYPE NAME = VALUE`")?
        else {
            return Err("a constant is `TYPE NAME = VALUE`".to_owned());
        };
        self.type_named(kind)?;
        self.constants.push(Constant {
            kind: kind.to_owned(),
            name: name.to_owned(),
            value: value.parse().map_err(|_| format!("`{value}` is not a number"))?,
            deprecated: deprecated.first().map(|name| (*name).to_owned()),
        });
        Ok(())
    }

    fn read_struct(&mut self, text: &str) -> Result<(), String> {
        let (c, rest) = arrow(text)?;
        let (rust, fields) = rest.split_once(": ").ok_or("a struct has fields after a colon")?;
        let fields = fields.split(',').map(|field| {
            let (kind, name) =
                field.trim().rsplit_once(' ').ok_or("a field has a type and a name")?;
            Ok((kind.to_owned(), name.to_owned()))
        });
        self.structs.push(Struct {
            c: c.to_owned(),
            rust: rust.to_owned(),
            fields: fields.collect::<Result<_, String>>()?,
        });
        Ok(())
    }

    fn read_module(&mut self, text: &str) -> Result<(), String> {
        let (head, title) = colon(text)?;
        let (name, without) = match head.split_once(" without ") {
            Some((name, prefix)) => (name, Some(prefix.to_owned())),
            None => (head, None),
        };
        self.modules.push(Module {
            name: name.to_owned(),
            without,
            title: title.to_owned(),
            notes: Vec::new(),
            templates: Vec::new(),
        });
        Ok(())
    }

    fn read_template(&mut self, line: usize, text: &str) -> Result<(), String> {
        let module = self
            .modules
            .last()
            .ok_or("this is neither a definition nor, after a `module`, a prototype")?;
        let (extension, text) = flag(text, "shmemx ");
        let (noreturn, text) = flag(text, "noreturn ");
        let (inline, text) = flag(text, "inline ");
        let (generic, text) = flag(text, "generic");
        let (each, text) = flag(text, "each ");
        let (words, text) = if generic || each {
            text.split_once(':').ok_or("a colon follows the types")?
        } else {
            ("", text)
        };
        let (words, name) = match words.split_once("as ") {
            Some((words, name)) => (words, Some(name.trim())),
            None => (words, None),
        };
        let (prototype, after) = Prototype::parse(text)?;
        let implementation = match after.strip_prefix("= ") {
            Some(path) => {
                let (module, operation) =
                    path.split_once("::").ok_or("an implementation is `= MODULE::OPERATION`")?;
                (module.to_owned(), operation.to_owned())
            }
            None if after.is_empty() => {
                (module.name.clone(), operation(&prototype.name, module.without.as_deref()))
            }
            None => return Err(format!("`{after}` follows the prototype")),
        };
        let generic = generic.then(|| match name {
            Some(name) => name.to_owned(),
            None => prototype.name.replace("{C}", "").replace("{N}_", ""),
        });
        let words = words.split_whitespace().map(str::to_owned).collect();
        let template = Template {
            prototype,
            words,
            generic,
            noreturn,
            extension,
            inline,
            implementation,
            line,
        };
        self.modules.last_mut().expect("there is one, above").templates.push(template);
        Ok(())
    }

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

    fn plain_class(&self, name: &str) -> Result<&Class, String> {
        let class = self.class(name).ok_or_else(|| format!("there is no class `{name}`"))?;
        if class.operators.is_empty() {
            Ok(class)
        } else {
            Err(format!("class `{name}` has operators"))
        }
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

    /// Names of a class's types that are not the standard's there.
    pub fn beyond(&self, class: &str) -> Vec<&str> {
        let class = self.class(class).into_iter();
        let places = class.flat_map(|class| &class.types[class.types.len() - class.beyond..]);
        places.map(|&place| self.types[place].name.as_str()).collect()
    }

    /// All templates.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        self.modules.iter().flat_map(|module| &module.templates)
    }

    /// What a template is for: each of its operators, if it has any, with the types.
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
    /// Whether it stands for a context or a team, and is no number to C.
    pub fn is_handle(&self) -> bool {
        matches!(self.kind.as_str(), "ctx" | "team")
    }

    /// Whether it is the extension's.
    pub fn is_extension(&self) -> bool {
        self.name.starts_with("SHMEMX_")
    }
}

impl Template {
    /// Whether the implementation is for any type.
    pub fn has_type(&self) -> bool {
        self.prototype.types().any(|kind| kind.base == "{T}")
    }

    /// Whether the implementation is for any operator.
    pub fn has_operator(&self) -> bool {
        self.prototype.name.contains("{O}")
    }

    /// The place of the argument that tells the type, not counting the context.
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

/// The operation that implements a function.
fn operation(name: &str, without: Option<&str>) -> String {
    let bare =
        ["{C}", "{N}", "{O}"].iter().fold(name.to_owned(), |name, hole| name.replace(hole, ""));
    let words: Vec<_> = bare.split('_').filter(|word| !word.is_empty()).collect();
    let joined = words.join("_");
    let short =
        joined.strip_prefix("shmem_").or_else(|| joined.strip_prefix("shmemx_")).unwrap_or(&joined);
    without.and_then(|prefix| short.strip_prefix(prefix)).unwrap_or(short).to_owned()
}

/// The lines that say something, with those that continue them.
fn lines(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        match found.last_mut() {
            Some((_, last)) if line.starts_with(' ') => {
                last.push(' ');
                last.push_str(content);
            }
            _ => found.push((number + 1, content.to_owned())),
        }
    }
    found
}

fn flag<'a>(text: &'a str, word: &str) -> (bool, &'a str) {
    match text.strip_prefix(word) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

fn arrow(text: &str) -> Result<(&str, &str), String> {
    text.split_once(" -> ").ok_or_else(|| format!("`{text}` lacks its ` -> `"))
}

fn colon(text: &str) -> Result<(&str, &str), String> {
    text.split_once(": ").ok_or_else(|| format!("`{text}` lacks its colon"))
}
