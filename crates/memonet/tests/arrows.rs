//! Imports point one way: no file imports from a layer above its own, and no files import each
//! other in a circle.
//!
//! The test reads the library code of a crate as text. Each path that begins with `crate`, `super`
//! or `self`, or with a module that the file declares, is an arrow from that file to the file that
//! defines the name. A re-export is no stop on the way: the arrow goes on to the definition. The
//! root of a crate (`lib.rs`, `main.rs`) stands above all the modules that it declares.
//!
//! Test code counts nowhere: a test may look at everything.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::path::Path;

/// What holds for a crate.
struct Rules {
    /// The crate's folder below `crates`.
    name: &'static str,
    /// Folders and files of `src`, without their ends, from the bottom to the top. Where there are
    /// any, each file belongs to one.
    layers: &'static [&'static str],
    /// Imports of a layer above that are still allowed: from a file, to a layer.
    allowed: &'static [(&'static str, &'static str)],
    /// Whether files may import each other in a circle.
    circles: Circles,
}

/// Which circles of files a crate may have.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "a crate may need each of them for a while")]
enum Circles {
    Allowed,
    /// A file may import from a module that it is part of, and that module from the file.
    WithAncestors,
    Forbidden,
}

const CRATES: &[Rules] = &[
    Rules {
        name: "core",
        layers: &[
            "base",
            "endpoint",
            "wait",
            "sync",
            "team",
            "job",
            "window",
            "messages",
            "multicast",
            "collective",
            "dsm",
            "supersteps",
            "lifecycle",
            "hosted",
            "far",
        ],
        allowed: &[],
        circles: Circles::Allowed,
    },
    Rules { name: "control", layers: &[], allowed: &[], circles: Circles::Forbidden },
    Rules { name: "fabrics", layers: &[], allowed: &[], circles: Circles::Forbidden },
    Rules { name: "trace", layers: &[], allowed: &[], circles: Circles::Forbidden },
    Rules { name: "sim", layers: &[], allowed: &[], circles: Circles::WithAncestors },
    Rules { name: "cli", layers: &[], allowed: &[], circles: Circles::WithAncestors },
    Rules { name: "wireup", layers: &[], allowed: &[], circles: Circles::WithAncestors },
    Rules { name: "dl", layers: &[], allowed: &[], circles: Circles::Forbidden },
    Rules { name: "macros", layers: &[], allowed: &[], circles: Circles::Forbidden },
    Rules { name: "memonet", layers: &[], allowed: &[], circles: Circles::Forbidden },
    Rules { name: "ofi", layers: &[], allowed: &[], circles: Circles::Forbidden },
    Rules { name: "python", layers: &[], allowed: &[], circles: Circles::Forbidden },
    Rules { name: "repair", layers: &[], allowed: &[], circles: Circles::Forbidden },
    Rules { name: "tcp", layers: &[], allowed: &[], circles: Circles::Forbidden },
    Rules { name: "shmem", layers: &["state", "calls"], allowed: &[], circles: Circles::Forbidden },
    Rules {
        name: "shmem-api",
        layers: &["version", "near", "table", "header", "library"],
        allowed: &[],
        circles: Circles::Forbidden,
    },
];

#[test]
fn each_crate_has_rules() {
    let crates = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    let mut crates: Vec<String> =
        crates.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut ruled: Vec<&str> = CRATES.iter().map(|rules| rules.name).collect();
    crates.sort();
    ruled.sort();
    assert_eq!(crates, ruled);
}

#[test]
fn imports_point_down() {
    let mut wrong = Vec::new();
    for rules in CRATES {
        let arrows = arrows(rules.name);
        wrong.extend(upward(rules, &arrows));
        let arrows = match rules.circles {
            Circles::Allowed => continue,
            Circles::WithAncestors => without_ancestors(arrows),
            Circles::Forbidden => arrows,
        };
        let circles = circles(&arrows).into_iter();
        wrong.extend(circles.map(|circle| format!("{}: {}", rules.name, circle.join(" -> "))));
    }
    assert!(wrong.is_empty(), "imports that point up, or in a circle: {wrong:#?}");
}

/// Files of a crate by their paths below `src`, each with the files that it imports from.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Imports of a layer above, and entries of the list of allowed ones that nothing needs any more.
fn upward(rules: &Rules, arrows: &Arrows) -> Vec<String> {
    let mut found = Vec::new();
    let mut unused: BTreeSet<_> = rules.allowed.iter().copied().collect();
    let place = |file: &str| rules.layers.iter().position(|layer| is_in(file, layer));
    for (from, imports) in arrows.iter().filter(|(file, _)| !is_root(file)) {
        let Some(from_place) = place(from) else {
            if !rules.layers.is_empty() {
                found.push(format!("{}: {from} belongs to no layer", rules.name));
            }
            continue;
        };
        for to in imports {
            // The root is above all layers.
            let to_layer = place(to).map_or("", |place| rules.layers[place]);
            let is_upward = place(to).is_none_or(|to_place| to_place > from_place);
            let is_allowed = rules.allowed.contains(&(from.as_str(), to_layer));
            unused.remove(&(from.as_str(), to_layer));
            if is_upward && !is_allowed {
                found.push(format!("{}: {from} imports from {to}", rules.name));
            }
        }
    }
    let message = |(from, to)| format!("{}: allowed for nothing: {from} -> {to}", rules.name);
    found.extend(unused.into_iter().map(message));
    found
}

fn is_root(file: &str) -> bool {
    matches!(file, "lib.rs" | "main.rs")
}

fn is_in(file: &str, layer: &str) -> bool {
    file.strip_prefix(layer).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// The arrows but for those to a module that the file is part of.
fn without_ancestors(mut arrows: Arrows) -> Arrows {
    for (from, imports) in &mut arrows {
        imports.retain(|to| {
            let folder = to.strip_suffix("/mod.rs").or_else(|| to.strip_suffix(".rs"));
            !is_root(to) && !folder.is_some_and(|folder| is_in(from, folder))
        });
    }
    arrows
}

/// A shortest circle through each file that lies on one and on no circle found before.
fn circles(arrows: &Arrows) -> Vec<Vec<&str>> {
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for start in arrows.keys().map(String::as_str) {
        if !known.contains(start)
            && let Some(circle) = shortest_circle(arrows, start)
        {
            known.extend(circle.iter().copied());
            found.push(circle);
        }
    }
    found
}

fn shortest_circle<'a>(arrows: &'a Arrows, start: &'a str) -> Option<Vec<&'a str>> {
    let mut before: HashMap<&str, &str> = HashMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(file) = next.pop_front() {
        for to in arrows[file].iter().map(String::as_str) {
            if to == start {
                let mut circle = vec![start, file];
                while let Some(&file) = before.get(circle.last().expect("not empty")) {
                    circle.push(file);
                }
                circle.reverse();
                return Some(circle);
            }
            if !before.contains_key(to) {
                before.insert(to, file);
                next.push_back(to);
            }
        }
    }
    None
}

/// The names of nested modules, from the root of the crate on.
type Module = Vec<String>;

/// What a file says about modules.
#[derive(Default)]
struct File {
    /// Its path below `src`.
    path: String,
    /// Modules with files of their own.
    children: Vec<String>,
    /// All paths of the crate's names, from the crate's root on.
    paths: Vec<Module>,
    /// The names that `use` makes, and what each stands for.
    aliases: HashMap<String, Module>,
}

/// The arrows between the files of a crate.
fn arrows(name: &str) -> Arrows {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let root = ["lib.rs", "main.rs"].into_iter().find(|root| folder.join(root).exists());
    let mut files = HashMap::new();
    read(&folder, root.expect("a root of the crate"), Vec::new(), &mut files);
    let mut arrows = Arrows::new();
    for (module, file) in &files {
        let imports = file.paths.iter().map(|path| resolve(&files, path));
        let mut imports: BTreeSet<_> = imports.filter(|to| *to != file.path).collect();
        if module.is_empty() {
            imports
                .extend(file.children.iter().map(|child| files[&vec![child.clone()]].path.clone()));
        }
        arrows.insert(file.path.clone(), imports);
    }
    arrows
}

/// Reads a file of a module, and those of the modules that it declares.
fn read(folder: &Path, path: &str, module: Module, files: &mut HashMap<Module, File>) {
    let text = std::fs::read_to_string(folder.join(path)).expect("UTF-8");
    let mut file = parse(&without_tests(&tokens(&text)), &module);
    file.path = path.to_owned();
    let below = match path.strip_suffix("mod.rs") {
        Some(below) => below.to_owned(),
        None if is_root(path) => String::new(),
        None => format!("{}/", path.trim_end_matches(".rs")),
    };
    // A file that only a `#[path]` names is left out.
    file.children.retain(|child| {
        let places = [format!("{below}{child}.rs"), format!("{below}{child}/mod.rs")];
        let place = places.iter().find(|place| folder.join(place).exists());
        if let Some(place) = place {
            read(folder, place, [module.clone(), vec![child.clone()]].concat(), files);
        }
        place.is_some()
    });
    files.insert(module, file);
}

/// The file that defines what a path leads to.
fn resolve(files: &HashMap<Module, File>, path: &[String]) -> String {
    let mut path = path.to_vec();
    // More re-exports of re-exports than anybody writes; a glob may lead in a circle.
    for _ in 0..8 {
        let (module, names) = split(files, &path);
        match names.first().and_then(|name| files[module].aliases.get(name)) {
            Some(target) if *target != path => path = [target, &names[1..]].concat(),
            _ => break,
        }
    }
    files[split(files, &path).0].path.clone()
}

/// The innermost module that has a file, and the names that remain.
fn split<'a>(files: &HashMap<Module, File>, path: &'a [String]) -> (&'a [String], &'a [String]) {
    let depths = (0..=path.len()).rev();
    let depth = depths.into_iter().find(|&depth| files.contains_key(&path[..depth]));
    path.split_at(depth.expect("the root has a file"))
}

/// Words, `::` and single characters of Rust source, without comments and literals.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let mut len = first.len_utf8();
        if rest.starts_with("//") {
            len = rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("r\"") || rest.starts_with("r#") {
            let hashes = rest[1..].chars().take_while(|&c| c == '#').count();
            let end = format!("\"{}", "#".repeat(hashes));
            let body = 2 + hashes;
            len = rest[body..].find(&end).map_or(rest.len(), |at| body + at + end.len());
        } else if first == '"' {
            len = quoted(rest);
        } else if first == '\'' {
            // Otherwise the name of a lifetime follows.
            let mut next = rest.chars().skip(1);
            let is_character = next.next() == Some('\\') || next.next() == Some('\'');
            len = if is_character { quoted(rest) } else { 1 };
        } else if is_word(first) {
            len = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            found.push(&rest[..len]);
        } else if !first.is_whitespace() {
            len = if rest.starts_with("::") { 2 } else { len };
            found.push(&rest[..len]);
        }
        rest = &rest[len..];
    }
    found
}

/// The length of a literal that ends with the character that it begins with.
fn quoted(text: &str) -> usize {
    let quote = text.as_bytes()[0];
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            _ if byte == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Leaves out each item that only tests have.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let Some(&first) = rest.first() {
        let for_tests =
            [&["#", "[", "cfg", "(", "test"][..], &["#", "[", "cfg", "(", "all", "(", "test"]];
        if for_tests.iter().any(|attribute| rest.starts_with(attribute)) {
            rest = &rest[item(rest)..];
        } else {
            kept.push(first);
            rest = &rest[1..];
        }
    }
    kept
}

/// The length of an item with its attributes: to its semicolon, or to the end of its block.
fn item(tokens: &[&str]) -> usize {
    let mut depth = 0;
    for (at, &token) in tokens.iter().enumerate() {
        match token {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        // A field or an argument ends with what is around it.
        if depth < 0 {
            return at;
        }
        if depth == 0 && matches!(token, ";" | "}") {
            return at + 1;
        }
    }
    tokens.len()
}

/// Finds the modules and paths in a file of a module.
fn parse(tokens: &[&str], module: &Module) -> File {
    let mut file = File::default();
    let declared = tokens.windows(3).filter(|words| words[0] == "mod" && words[2] == ";");
    file.children = declared.map(|words| words[1].to_owned()).collect();
    // Modules in braces, and how deep each began.
    let mut inner: Vec<(usize, String)> = Vec::new();
    let (mut at, mut depth, mut in_use) = (0, 0, false);
    while at < tokens.len() {
        let next = tokens.get(at + 1).copied().unwrap_or_default();
        match tokens[at] {
            "mod" if tokens.get(at + 2) == Some(&"{") => inner.push((depth, next.to_owned())),
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inner.pop_if(|(began, _)| *began == depth);
            }
            "use" => in_use = true,
            ";" => in_use = false,
            word if next == "::" && (at == 0 || !matches!(tokens[at - 1], "::" | "$")) => {
                let names = inner.iter().map(|(_, name)| name.clone());
                let here: Module = module.iter().cloned().chain(names).collect();
                let is_child = file.children.iter().any(|child| child == word);
                let from = match word {
                    "crate" | "self" | "super" => Some(here),
                    _ => is_child.then(|| module.clone()),
                };
                if let Some(from) = from {
                    let mut leaves = Vec::new();
                    at = leaves_of(tokens, at, from, &mut leaves);
                    for (path, name) in leaves {
                        if in_use && let Some(name) = name {
                            file.aliases.insert(name, path.clone());
                        }
                        file.paths.push(path);
                    }
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    file
}

/// Reads a path from `at` on, or the tree of paths of a `use`. Gives where it ends; of each path
/// also the name that it makes, if it is no glob.
fn leaves_of(
    tokens: &[&str],
    mut at: usize,
    mut path: Module,
    leaves: &mut Vec<(Module, Option<String>)>,
) -> usize {
    let is_name = |token: &str| token.starts_with(|c: char| c.is_alphabetic() || c == '_');
    loop {
        match tokens[at] {
            "{" => {
                at += 1;
                while tokens[at] != "}" {
                    at = leaves_of(tokens, at, path.clone(), leaves);
                    at += usize::from(tokens[at] == ",");
                }
                return at + 1;
            }
            "*" => {
                leaves.push((path, None));
                return at + 1;
            }
            "crate" => path.clear(),
            "super" => drop(path.pop()),
            "self" => {}
            name => path.push(name.to_owned()),
        }
        at += 1;
        let goes_on =
            tokens[at] == "::" && (matches!(tokens[at + 1], "{" | "*") || is_name(tokens[at + 1]));
        if goes_on {
            at += 1;
            continue;
        }
        let mut name = path.last().cloned();
        if tokens[at] == "as" {
            name = Some(tokens[at + 1].to_owned());
            at += 2;
        }
        leaves.push((path, name));
        return at;
    }
}

#[test]
fn paths_are_found_in_code_alone() {
    let text = r##"
        // crate::comment::A
        use crate::{a::{self, B as C}, d::*};
        pub use child::Name;
        mod child;
        mod inner { use super::super::e::F; const S: &str = "crate::string::G"; }
        fn f<'a>(_: &'a u8) -> char { crate::h::i::<u8>(r#"crate::raw::J"#, '"'); '\'' }
        #[cfg(all(test, not(loom)))]
        mod tests { use crate::test::K; }
    "##;
    let file = parse(&without_tests(&tokens(text)), &vec!["m".to_owned()]);
    let paths: Vec<_> = file.paths.iter().map(|path| path.join("::")).collect();
    assert_eq!(paths, ["a", "a::B", "d", "m::child::Name", "e::F", "h::i"]);
    assert_eq!(file.aliases["C"], ["a", "B"]);
    assert_eq!(file.children, ["child"]);
}

#[test]
fn circles_and_upward_imports_are_found() {
    let arrows: Arrows = [("a/b.rs", "c.rs"), ("c.rs", "d.rs"), ("d.rs", "a/b.rs")]
        .map(|(from, to)| (from.to_owned(), BTreeSet::from([to.to_owned()])))
        .into();
    assert_eq!(circles(&arrows), [["a/b.rs", "c.rs", "d.rs", "a/b.rs"]]);
    let rules =
        Rules { name: "x", layers: &["d", "c", "a"], allowed: &[], circles: Circles::Forbidden };
    assert_eq!(upward(&rules, &arrows), ["x: d.rs imports from a/b.rs"]);
    let rules = Rules { allowed: &[("d.rs", "a"), ("c.rs", "a")], ..rules };
    assert_eq!(upward(&rules, &arrows), ["x: allowed for nothing: c.rs -> a"]);
}
