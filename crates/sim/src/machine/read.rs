//! Reading a machine file: from TOML to parameters by key, with a variant applied.

use super::built_in::BUILT_IN;
use super::error::MachineError;
use super::model::Machine;
use super::parameter::{Parameter, Source, Value};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use toml_edit::{Document, Item, TableLike};

/// A machine file, for errors that name its lines.
struct Reader<'a> {
    name: &'a str,
    text: &'a str,
}

pub(super) fn load(name: &str) -> Result<Machine, MachineError> {
    if let Some((file, text, variant)) = built_in(name) {
        return parse(file, text, variant);
    }
    let (path, variant) = match name.rsplit_once('/') {
        Some((path, variant)) if path.ends_with(".toml") => (path, Some(variant)),
        _ => (name, None),
    };
    if !path.ends_with(".toml") {
        let known: Vec<_> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        return Err(MachineError {
            machine: name.into(),
            line: None,
            key: None,
            problem: format!(
                "is not built in, and no file (those end in .toml); there are {}",
                known.join(", ")
            ),
        });
    }
    let error = |problem| MachineError { machine: path.into(), line: None, key: None, problem };
    let text = text_of(path).map_err(|problem| error(format!("cannot be read: {problem}")))?;
    parse(path, &text, variant)
}

/// The text of a file. Of a device or a pipe, reading might never end.
fn text_of(path: &str) -> std::io::Result<String> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    std::fs::read_to_string(path)
}

fn built_in(name: &str) -> Option<(&'static str, &'static str, Option<&str>)> {
    let (file, variant) = match name.split_once('/') {
        Some((file, variant)) => (file, Some(variant)),
        None => (name, None),
    };
    let &(file, text) = BUILT_IN.iter().find(|(built_in, _)| *built_in == file)?;
    Some((file, text, variant))
}

/// The keys of the parameters that any built-in machine of a kind has, in any variant.
pub(super) fn known(kind: &str) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for (name, text) in BUILT_IN {
        let machine = parse(name, text, None).ok().filter(|machine| machine.kind == kind);
        let variants = machine.iter().flat_map(|machine| machine.variants.iter());
        let variants: Vec<_> =
            variants.filter_map(|variant| parse(name, text, Some(variant)).ok()).collect();
        known.extend(
            machine.into_iter().chain(variants).flat_map(|machine| machine.parameters.into_keys()),
        );
    }
    known
}

pub(super) fn parse(
    name: &str,
    text: &str,
    variant: Option<&str>,
) -> Result<Machine, MachineError> {
    let reader = Reader { name, text };
    let document = Document::parse(text)
        .map_err(|error| reader.error(error.span(), None, error.message().trim().to_owned()))?;
    let root = document.as_table();
    let word = |key: &str| -> Result<(String, usize), MachineError> {
        let item = root.get(key).ok_or_else(|| {
            reader.error(None, Some(key), "is missing at the top of the file".into())
        })?;
        match item.as_str() {
            Some(text) => Ok((text.to_owned(), reader.line(item.span()).unwrap_or(1))),
            None => Err(reader.error(item.span(), Some(key), "must be a text".into())),
        }
    };
    let (summary, _) = word("summary")?;
    let (kind, kind_line) = word("kind")?;
    let mut parameters = BTreeMap::new();
    let mut sections = BTreeMap::new();
    for (key, item) in
        root.iter().filter(|(key, _)| !matches!(*key, "summary" | "kind" | "variant"))
    {
        sections.extend(reader.line(item.span()).map(|line| (key.to_owned(), line)));
        reader.collect(key.to_owned(), item, &mut parameters)?;
    }
    let variants: Vec<String> = match root.get("variant") {
        None => Vec::new(),
        Some(item) => match item.as_table_like() {
            Some(table) => table
                .iter()
                .map(|(name, item)| reader.variant(name, item))
                .collect::<Result<_, _>>()?,
            None => {
                return Err(reader.error(
                    item.span(),
                    Some("variant"),
                    "must be a section for each variant".into(),
                ));
            }
        },
    };
    let mut name = name.to_owned();
    if let Some(variant) = variant {
        for link in reader.chain(root, variant, &variants)?.into_iter().rev() {
            for (key, item) in link.iter().filter(|(key, _)| *key != "like") {
                reader.collect(key.to_owned(), item, &mut parameters)?;
            }
        }
        name = format!("{name}/{variant}");
    }
    let variant = variant.map(str::to_owned);
    Ok(Machine {
        name,
        summary,
        kind,
        kind_line,
        variants,
        variant,
        parameters,
        sections,
        asked: RefCell::default(),
    })
}

impl Reader<'_> {
    fn line(&self, span: Option<std::ops::Range<usize>>) -> Option<usize> {
        let start = span?.start.min(self.text.len());
        Some(1 + self.text.as_bytes()[..start].iter().filter(|&&byte| byte == b'\n').count())
    }

    fn error(
        &self,
        span: Option<std::ops::Range<usize>>,
        key: Option<&str>,
        problem: String,
    ) -> MachineError {
        MachineError {
            machine: self.name.into(),
            line: self.line(span),
            key: key.map(str::to_owned),
            problem,
        }
    }

    /// The name of a variant, which must be a section that can be named after a `/`.
    fn variant(&self, name: &str, item: &Item) -> Result<String, MachineError> {
        let problem = match item.as_table_like() {
            Some(_) if name.is_empty() || name.contains('/') => "must have a name, without a slash",
            Some(_) => return Ok(name.to_owned()),
            None => "must be a section",
        };
        Err(self.error(item.span(), Some(&format!("variant.{name}")), problem.into()))
    }

    /// The variant, the variant that it is like, and so on.
    fn chain<'d>(
        &self,
        root: &'d toml_edit::Table,
        variant: &str,
        variants: &[String],
    ) -> Result<Vec<&'d dyn TableLike>, MachineError> {
        let mut chain = Vec::new();
        let mut next = Some((variant.to_owned(), None));
        while let Some((name, span)) = next.take() {
            let section =
                root.get("variant").and_then(|all| all.get(&name)).and_then(Item::as_table_like);
            let Some(section) = section else {
                let known = match variants {
                    [] => "it has none".to_owned(),
                    known => format!("there are {}", known.join(", ")),
                };
                return Err(self.error(
                    span,
                    None,
                    format!("there is no variant {name:?}; {known}"),
                ));
            };
            chain.push(section);
            if let Some(like) = section.get("like") {
                let key = format!("variant.{name}.like");
                let Some(other) = like.as_str() else {
                    return Err(self.error(
                        like.span(),
                        Some(&key),
                        "must be the name of a variant".into(),
                    ));
                };
                if chain.len() > variants.len() {
                    return Err(self.error(
                        like.span(),
                        Some(&key),
                        "is like itself, by way of others".into(),
                    ));
                }
                next = Some((other.to_owned(), like.span()));
            }
        }
        Ok(chain)
    }

    /// Puts the parameters in `item` into `parameters`. They replace parameters of their keys.
    fn collect(
        &self,
        key: String,
        item: &Item,
        parameters: &mut BTreeMap<String, Parameter>,
    ) -> Result<(), MachineError> {
        let Some(table) = item.as_table_like() else {
            let problem = "must be a section, or a parameter with a value and its source: { value = ..., source = \"...\" }";
            return Err(self.error(item.span(), Some(&key), problem.into()));
        };
        if table.get("value").is_some() {
            let parameter = self.parameter(&key, item, table)?;
            parameters.insert(key, parameter);
            return Ok(());
        }
        table
            .iter()
            .try_for_each(|(name, item)| self.collect(format!("{key}.{name}"), item, parameters))
    }

    fn parameter(
        &self,
        key: &str,
        item: &Item,
        table: &dyn TableLike,
    ) -> Result<Parameter, MachineError> {
        let (mut value, mut unit, mut sources) = (None, String::new(), Vec::new());
        for (name, part) in table.iter() {
            let text = || match part.as_str() {
                Some(text) if !text.trim().is_empty() => Ok(text.to_owned()),
                _ => Err(self.error(part.span(), Some(key), format!("needs a text as its {name}"))),
            };
            match name {
                "value" => {
                    value = part
                        .as_integer()
                        .map(|number| Value::Number(number as f64))
                        .or_else(|| part.as_float().map(Value::Number))
                        .or_else(|| part.as_bool().map(Value::Flag))
                        .or_else(|| part.as_str().map(|text| Value::Text(text.to_owned())));
                }
                "unit" => unit = text()?,
                "source" => sources.push(Source::Published(text()?)),
                "fitted" => sources.push(Source::Fitted(text()?)),
                "assumed" => sources.push(Source::Assumed(text()?)),
                _ => {
                    let problem = format!(
                        "has an unknown part {name:?}; there are value, unit, source, fitted, assumed"
                    );
                    return Err(self.error(part.span(), Some(key), problem));
                }
            }
        }
        let value = value.ok_or_else(|| {
            self.error(item.span(), Some(key), "has a value that is no number, text or flag".into())
        })?;
        let [source] = <[Source; 1]>::try_from(sources).map_err(|_| {
            let problem = "must say where it is from by exactly one of source, fitted, assumed";
            self.error(item.span(), Some(key), problem.into())
        })?;
        Ok(Parameter {
            value,
            unit,
            source,
            line: self.line(item.span()).unwrap_or(1),
            used: Cell::new(false),
        })
    }
}
