//! Reads the table, line by line.

use crate::table::check;
use crate::table::model::{Class, Constant, Error, Module, Struct, Table, Template, Type};
use crate::table::prototype::Prototype;

impl Table {
    /// Reads a table and checks it.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut table = Self::default();
        for (line, content) in lines(text) {
            table.line(line, &content).map_err(|problem| Error { line, problem })?;
        }
        check::check(&table)?;
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
        let (volatile, text) = flag(text, "volatile ");
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
            volatile,
            implementation,
            line,
        };
        self.modules.last_mut().expect("there is one, above").templates.push(template);
        Ok(())
    }

    fn plain_class(&self, name: &str) -> Result<&Class, String> {
        let class = self.class(name).ok_or_else(|| format!("there is no class `{name}`"))?;
        if class.operators.is_empty() {
            Ok(class)
        } else {
            Err(format!("class `{name}` has operators"))
        }
    }
}

/// The name of the operation that implements a function.
fn operation(name: &str, without: Option<&str>) -> String {
    let bare =
        ["{C}", "{N}", "{O}"].iter().fold(name.to_owned(), |name, hole| name.replace(hole, ""));
    let words: Vec<_> = bare.split('_').filter(|word| !word.is_empty()).collect();
    let joined = words.join("_");
    let short =
        joined.strip_prefix("shmem_").or_else(|| joined.strip_prefix("shmemx_")).unwrap_or(&joined);
    without.and_then(|prefix| short.strip_prefix(prefix)).unwrap_or(short).to_owned()
}

/// The lines without comments and empty lines, each joined with its continuations.
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
