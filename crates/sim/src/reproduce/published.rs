//! Published figures: `published.toml`.

use std::sync::OnceLock;
use toml_edit::{Document, Item, TableLike};

fn document() -> &'static Document<String> {
    static DOCUMENT: OnceLock<Document<String>> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let text = include_str!("published.toml");
        Document::parse(text.to_owned())
            .expect("the file that is built in is TOML: a test reads it")
    })
}

fn number(item: &Item) -> Option<f64> {
    item.as_float().or_else(|| item.as_integer().map(|number| number as f64))
}

fn get<'a>(table: &'a dyn TableLike, path: &str) -> Option<&'a Item> {
    match path.split_once('.') {
        None => table.get(path),
        Some((first, rest)) => get(table.get(first)?.as_table_like()?, rest),
    }
}

/// The published result of this id, SYSTEM.NAME, if it is known and is one number.
pub fn published(id: &str) -> Option<f64> {
    let (system, name) = id.split_once('.')?;
    let results = get(document().as_table(), &format!("{system}.results"))?.as_table_like()?;
    number(get(results, name)?)
}

/// The published component of this path.
pub fn component(path: &str) -> Option<f64> {
    let (section, name) = path.rsplit_once('.')?;
    let section = get(document().as_table(), section)?.as_table_like()?;
    let is_component = section.get("kind").and_then(Item::as_str) == Some("component");
    is_component.then(|| number(section.get(name)?)).flatten()
}

/// The published component in a column of the row of this path.
pub fn component_of(path: &str, column: usize) -> Option<f64> {
    let (section, name) = path.rsplit_once('.')?;
    let section = get(document().as_table(), section)?.as_table_like()?;
    let is_component = section.get("kind").and_then(Item::as_str) == Some("component");
    let row = section.get(name)?.as_array()?;
    let cell = row.get(column).filter(|_| is_component)?;
    cell.as_float().or_else(|| cell.as_integer().map(|number| number as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_components_are_kept_apart() {
        assert_eq!(published("dimmnet-1.internal_loop.D"), Some(756.0));
        assert_eq!(published("dimmnet-1.internal_loop.B"), None);
        assert_eq!(published("fagus.comm_sync_aotf_us"), Some(29.8033));
        assert_eq!(published("nobody.knows"), None);
        assert_eq!(component("dimmnet-1.outside_swif.E"), Some(130.0));
        assert_eq!(component("dimmnet-1.results.round_trip"), None);
        assert_eq!(component("fagus.results.share_botf"), None);
        assert_eq!(component_of("dimmnet-1.stages.swif_receive", 1), Some(144.0));
        assert_eq!(component_of("dimmnet-1.stages.swif_receive", 9), None);
    }

    #[test]
    fn every_section_says_what_it_is() {
        for (system, sections) in document().as_table() {
            for (name, section) in sections.as_table_like().expect("systems have sections").iter() {
                let kind = section.get("kind").and_then(Item::as_str);
                assert!(matches!(kind, Some("component" | "result")), "{system}.{name}");
                assert_eq!(kind == Some("result"), name == "results", "{system}.{name}");
            }
        }
    }
}
