//! A C prototype: its pieces, and their forms in C and in Rust.

/// A C type: an optional `const`, a name (or `{T}`, the type that the function is for), and perhaps
/// a `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CType {
    /// Whether it points to `const`.
    pub constant: bool,
    /// The type's name.
    pub base: String,
    /// Whether it is a pointer.
    pub pointer: bool,
}

/// One parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameter {
    /// `{C}`: the implementation takes a context.
    Context,
    /// `...`
    Rest,
    /// A type and a name.
    Named(CType, String),
}

/// A prototype with its placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype {
    /// The type of its result.
    pub result: CType,
    /// The function's name.
    pub name: String,
    /// The parameters.
    pub parameters: Vec<Parameter>,
}

impl CType {
    /// Whether it is `{T}` itself, not a pointer to it.
    pub fn is_value(&self) -> bool {
        !self.pointer && self.base == "{T}"
    }

    /// Whether it is `void`.
    pub fn is_void(&self) -> bool {
        !self.pointer && self.base == "void"
    }

    /// The type in C, in front of a name.
    pub fn before_name(&self, t: &str) -> String {
        let constant = if self.constant { "const " } else { "" };
        let base = self.base.replace("{T}", t);
        format!("{constant}{base} {}", if self.pointer { "*" } else { "" })
    }

    /// The type in Rust, given the Rust type of its base.
    pub fn rust(&self, base: &str) -> String {
        match (self.pointer, self.constant) {
            (false, _) => base.to_owned(),
            (true, false) => format!("*mut {base}"),
            (true, true) => format!("*const {base}"),
        }
    }
}

impl Prototype {
    /// Reads a prototype up to its closing parenthesis. Gives the rest of the text too.
    pub fn parse(text: &str) -> Result<(Self, &str), String> {
        let (head, rest) = text.split_once('(').ok_or("a prototype has parentheses")?;
        let (inside, after) = rest.split_once(')').ok_or("a prototype's parenthesis is closed")?;
        let (result, name) = declaration(head)?;
        let parameters = match inside.trim() {
            "void" => Vec::new(),
            list => list.split(',').map(parameter).collect::<Result<_, _>>()?,
        };
        let contexts = parameters.iter().filter(|p| **p == Parameter::Context).count();
        if contexts > 1 || name.contains("{C}") && contexts == 0 {
            return Err(format!("`{name}` has no place, or several, for its context"));
        }
        Ok((Self { result, name, parameters }, after.trim()))
    }

    /// The named parameters.
    pub fn named(&self) -> impl Iterator<Item = (&CType, &str)> {
        self.parameters.iter().filter_map(|p| match p {
            Parameter::Named(kind, name) => Some((kind, name.as_str())),
            _ => None,
        })
    }

    /// The types of the result and of the named parameters.
    pub fn types(&self) -> impl Iterator<Item = &CType> {
        std::iter::once(&self.result).chain(self.named().map(|(kind, _)| kind))
    }

    /// Whether the implementation takes a context.
    pub fn context(&self) -> bool {
        self.parameters.contains(&Parameter::Context)
    }

    /// The parameters in C; with `explicit`, the context is one of them.
    pub fn c_parameters(&self, t: &str, explicit: bool) -> String {
        let written = self.parameters.iter().filter_map(|p| match p {
            Parameter::Context => explicit.then(|| "shmem_ctx_t ctx".to_owned()),
            Parameter::Rest => Some("...".to_owned()),
            Parameter::Named(kind, name) => Some(kind.before_name(t) + name),
        });
        let list: Vec<_> = written.collect();
        if list.is_empty() { "void".to_owned() } else { list.join(", ") }
    }

    /// The names of the arguments in C; with `explicit`, the context is one of them.
    pub fn arguments(&self, explicit: bool) -> String {
        let context = (explicit && self.context()).then_some("ctx");
        let list: Vec<_> = context.into_iter().chain(self.named().map(|(_, name)| name)).collect();
        list.join(", ")
    }
}

fn parameter(text: &str) -> Result<Parameter, String> {
    match text.trim() {
        "{C}" => Ok(Parameter::Context),
        "..." => Ok(Parameter::Rest),
        text => declaration(text).map(|(kind, name)| Parameter::Named(kind, name)),
    }
}

/// A type and a name.
fn declaration(text: &str) -> Result<(CType, String), String> {
    let spaced = text.replace('*', " * ");
    let mut words: Vec<_> = spaced.split_whitespace().collect();
    let name = words
        .pop()
        .filter(|name| is_name(name))
        .ok_or_else(|| format!("`{}` has no name", text.trim()))?;
    let pointer = words.last() == Some(&"*");
    if pointer {
        words.pop();
    }
    let constant = words.first() == Some(&"const");
    let base = words[usize::from(constant)..].join(" ");
    if base.is_empty() || base.contains('*') {
        return Err(format!("`{}` has no type that is understood", text.trim()));
    }
    Ok((CType { constant, base, pointer }, name.to_owned()))
}

/// Whether a word is an identifier, which may contain placeholders.
pub fn is_name(word: &str) -> bool {
    !word.is_empty()
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '{' | '}'))
}
