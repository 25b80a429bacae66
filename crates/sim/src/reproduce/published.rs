//! Published figures: `data/published.toml`, whose head explains its form.

use super::outcome::Claim;
use std::sync::OnceLock;
use toml_edit::{Document, Item, TableLike};

/// What was published of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    pub claim: Claim,
    /// The authors did not measure it.
    pub estimate: bool,
    /// How the publication contradicts itself.
    pub contradiction: Option<String>,
}

fn document() -> &'static Document<String> {
    static DOCUMENT: OnceLock<Document<String>> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let text = include_str!("../../data/published.toml");
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

fn kind(section: &dyn TableLike) -> Option<&str> {
    section.get("kind").and_then(Item::as_str)
}

/// The result of this id: SYSTEM.NAME of the section `results`, or SYSTEM.SECTION.NAME.
pub fn published(id: &str) -> Option<Published> {
    let (system, name) = id.split_once('.')?;
    let system = get(document().as_table(), system)?.as_table_like()?;
    let in_section = || {
        let (section, name) = name.split_once('.')?;
        let section = system.get(section)?.as_table_like()?;
        (kind(section) == Some("result")).then_some(())?;
        get(section, name)
    };
    let results = system.get("results").and_then(Item::as_table_like);
    read(results.and_then(|results| get(results, name)).or_else(in_section)?)
}

/// A result as the file writes it. Nothing for a table of variants, and for what is no result.
fn read(item: &Item) -> Option<Published> {
    if let Some(value) = number(item) {
        return Some(Published { claim: Claim::Is(value), estimate: false, contradiction: None });
    }
    let table = item.as_table_like()?;
    let part = |name: &str| table.get(name).and_then(number);
    let claim = (part("value").map(Claim::Is))
        .or_else(|| part("at_least").map(Claim::AtLeast))
        .or_else(|| part("at_most").map(Claim::AtMost))
        .or_else(|| Some(Claim::Between(part("from")?, part("to")?)))?;
    Some(Published {
        claim,
        estimate: table.get("estimate").and_then(Item::as_bool) == Some(true),
        contradiction: table.get("flagged").and_then(Item::as_str).map(str::to_owned),
    })
}

/// The published component of this path.
pub fn component(path: &str) -> Option<f64> {
    let (section, name) = path.rsplit_once('.')?;
    let section = get(document().as_table(), section)?.as_table_like()?;
    (kind(section) == Some("component")).then(|| number(section.get(name)?)).flatten()
}

/// The published component in a column of the row of this path.
pub fn component_of(path: &str, column: usize) -> Option<f64> {
    let (section, name) = path.rsplit_once('.')?;
    let section = get(document().as_table(), section)?.as_table_like()?;
    let is_component = kind(section) == Some("component");
    let row = section.get(name)?.as_array()?;
    let cell = row.get(column).filter(|_| is_component)?;
    cell.as_float().or_else(|| cell.as_integer().map(|number| number as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(id: &str) -> Option<Claim> {
        published(id).map(|published| published.claim)
    }

    #[test]
    fn results_and_components_are_kept_apart() {
        assert_eq!(claim("dimmnet-1.internal_loop.D"), Some(Claim::Is(756.0)));
        assert_eq!(claim("dimmnet-1.internal_loop"), None);
        assert_eq!(claim("dimmnet-1.stages.llcm_write"), None);
        assert_eq!(claim("dimmnet-1.outside_swif.E"), None);
        assert_eq!(claim("fagus.comm_sync_aotf_us"), Some(Claim::Is(29.8033)));
        assert_eq!(claim("nobody.knows"), None);
        assert_eq!(component("dimmnet-1.outside_swif.E"), Some(130.0));
        assert_eq!(component("dimmnet-1.results.round_trip"), None);
        assert_eq!(component("fagus.results.share_botf"), None);
        assert_eq!(component_of("dimmnet-1.stages.swif_receive", 1), Some(144.0));
        assert_eq!(component_of("dimmnet-1.stages.swif_receive", 9), None);
    }

    #[test]
    fn bounds_estimates_and_contradictions_are_read() {
        assert_eq!(claim("sr2201.bandwidth_mb_s_at_least"), Some(Claim::AtLeast(280.0)));
        assert_eq!(claim("memory-channel-2.bidirectional_mb_s"), Some(Claim::AtMost(133.0)));
        assert_eq!(claim("sr2201.peak_reached_at_bytes"), Some(Claim::Between(2e4, 3e4)));
        let design = published("dimmnet-1.design.remote_write").unwrap();
        assert_eq!((design.claim, design.estimate), (Claim::Is(270.0), true));
        let least = published("dimmnet-1.minimum.send").unwrap();
        assert!(!least.estimate && least.contradiction.unwrap().contains("115"));
    }

    #[test]
    fn every_section_says_what_it_is() {
        for (system, sections) in document().as_table() {
            let sections = sections.as_table_like().expect("systems have sections");
            assert!(sections.get("paper").is_some_and(Item::is_str), "{system} has no paper");
            for (name, section) in sections.iter().filter(|&(name, _)| name != "paper") {
                let kind = section.as_table_like().and_then(kind);
                assert!(matches!(kind, Some("component" | "result")), "{system}.{name}");
            }
        }
    }
}
