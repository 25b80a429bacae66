//! docs/machines.md has every parameter that building a machine asks for, and no other.

use memonet_sim::Machine;
use memonet_sim::machine::{Asked, BUILT_IN};
use std::collections::{BTreeMap, BTreeSet};

const DOCUMENT: &str = include_str!("../../../docs/machines.md");
/// The heading of the parameters of a kind, which its name follows.
const OF_KIND: &str = "### Parameters of kind ";
const OF_EVERY_KIND: &str = "### Parameters of every kind";

/// The rows of a table of parameters: what each must be, and its default.
type Table = BTreeMap<String, (String, String)>;

/// The part of the document under a heading.
fn part(heading: &str) -> &'static str {
    let begin = DOCUMENT.find(heading).unwrap_or_else(|| panic!("no {heading:?}"));
    let rest = &DOCUMENT[begin + heading.len()..];
    rest.find("\n#").map_or(rest, |end| &rest[..end])
}

fn table(heading: &str) -> Table {
    let rows = part(heading).lines().filter_map(|line| line.strip_prefix("| `"));
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_end_matches(" |").split(" | ").collect();
        let [key, what, default, meaning] = cells[..] else { panic!("four cells: {line}") };
        assert!(!meaning.is_empty(), "{line}");
        (key.trim_end_matches('`').to_owned(), (what.to_owned(), default.to_owned()))
    };
    let rows: Vec<_> = rows.map(row).collect();
    let table: Table = rows.iter().cloned().collect();
    assert_eq!(table.len(), rows.len(), "{heading}: a key stands there twice");
    table
}

/// What all built-in machines of each kind are asked for, in all variants.
fn asked() -> BTreeMap<String, BTreeMap<String, Asked>> {
    let mut kinds: BTreeMap<String, BTreeMap<String, Asked>> = BTreeMap::new();
    for &(name, _) in BUILT_IN {
        let file = Machine::load(name).unwrap();
        let variants = file.variants().iter().map(|variant| format!("{name}/{variant}"));
        for name in std::iter::once(name.to_owned()).chain(variants) {
            let machine = Machine::load(&name).unwrap();
            if machine.check().is_err() {
                assert_eq!(machine.variant(), None, "{name}");
                continue;
            }
            let kind = kinds.entry(machine.kind().to_owned()).or_default();
            for (key, wanted) in machine.asked() {
                let known = kind.entry(numbered(&key)).or_default();
                known.optional |= wanted.optional;
                if !wanted.what.is_empty() {
                    known.what = wanted.what;
                }
            }
        }
    }
    kinds
}

/// A key as the document has it: with an N for a number.
fn numbered(key: &str) -> String {
    let part = |part: &str| match part.parse::<u32>() {
        Ok(_) => "N".to_owned(),
        Err(_) => part.to_owned(),
    };
    key.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// What a key of the document must say, as the code asks for it.
fn compare(kind: &str, key: &str, asked: &Asked, (what, default): &(String, String)) {
    // What no built-in machine has is asked for by its presence alone.
    assert!(asked.what.is_empty() || asked.what == *what, "{kind}, {key}: {asked:?}, not {what}");
    let needed = default.starts_with("needed");
    assert_eq!(needed, !asked.optional, "{kind}, {key}: {asked:?}, and its default is {default}");
}

#[test]
fn the_document_has_what_the_code_asks_for() {
    let (every, loggp) = (table(OF_EVERY_KIND), table(&format!("{OF_KIND}`loggp`")));
    let documented: BTreeSet<_> = DOCUMENT
        .lines()
        .filter_map(|line| Some(line.strip_prefix(OF_KIND)?.trim_matches('`').to_owned()))
        .collect();
    let asked = asked();
    assert_eq!(documented, asked.keys().cloned().collect(), "kinds");
    let mut asked_of_any = BTreeSet::new();
    for (kind, asked) in &asked {
        let own = table(&format!("{OF_KIND}`{kind}`"));
        let mut all: Table =
            every.iter().chain(&own).map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(all.len(), every.len() + own.len(), "{kind} repeats a key of every kind");
        if kind == "sync-network" {
            all.extend(loggp.clone());
        }
        for (key, wanted) in asked.iter().filter(|(key, _)| !key.starts_with("clock.")) {
            let row =
                all.get(key).unwrap_or_else(|| panic!("{kind}: {key} is not in the document"));
            compare(kind, key, wanted, row);
        }
        for key in own.keys() {
            assert!(asked.contains_key(key), "{kind}: nothing asks for {key}");
        }
        asked_of_any.extend(asked.keys());
    }
    for key in every.keys() {
        assert!(asked_of_any.contains(key), "nothing asks for {key}");
    }
}

#[test]
fn the_example_is_a_machine() {
    let part = part("## Machine files");
    let begin = part.find("```toml\n").expect("an example") + "```toml\n".len();
    let text = &part[begin..][..part[begin..].find("```").expect("its end")];
    for variant in [None, Some("slow")] {
        Machine::parse("mine.toml", text, variant).and_then(|machine| machine.check()).unwrap();
    }
}

/// Whatever a machine cites is in the table of sources, and whatever is there is cited.
#[test]
fn sources_are_documented() {
    let document = include_str!("../../../docs/sources.md");
    let known: BTreeSet<_> =
        document.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let mut cited = BTreeSet::new();
    for (name, text) in BUILT_IN {
        for source in text.split(" source = \"").skip(1) {
            let found = known.iter().find(|&&known| source.starts_with(known));
            cited.insert(*found.unwrap_or_else(|| panic!("{name} cites {source:.60}")));
        }
    }
    assert_eq!(cited, known);
}
