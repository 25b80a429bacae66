//! Rules about the code itself that no other tool checks.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace's root")
}

/// Files and folders below one, but for what is built and hidden.
fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in
        std::fs::read_dir(dir).expect("a readable folder").map(|e| e.expect("an entry").path())
    {
        let name = entry.file_name().expect("a name").to_string_lossy();
        if entry.is_dir() && name != "target" && !name.starts_with('.') {
            walk(&entry, found);
        }
        found.push(entry);
    }
}

/// All Rust files of the workspace's crates, as paths from the root, with their text.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    walk(&root.join("crates"), &mut found);
    found.retain(|path| path.extension().is_some_and(|e| e == "rs"));
    let text = |path: PathBuf| {
        (
            path.strip_prefix(&root).expect("below the root").display().to_string(),
            std::fs::read_to_string(&path).expect("UTF-8"),
        )
    };
    let mut all: Vec<_> = found.into_iter().map(text).collect();
    all.sort();
    assert!(all.len() > 40, "the walk finds the sources");
    all
}

/// The code of a line, without a comment at its end.
fn code(line: &str) -> &str {
    let line = line.trim_start();
    if line.starts_with("//") { "" } else { line.split(" // ").next().unwrap_or(line) }
}

/// Lines of comments, or of a document, that are too wide, but for tables and drawings.
fn wide_lines<'a>(
    lines: impl Iterator<Item = (usize, &'a str)>,
    text_of: fn(&str) -> Option<&str>,
) -> Vec<usize> {
    let mut drawing = false;
    let mut wide = Vec::new();
    for (number, line) in lines {
        let Some(text) = text_of(line).map(str::trim_start) else {
            drawing = false;
            continue;
        };
        drawing ^= text.starts_with("```");
        if !drawing && !text.starts_with('|') && line.chars().count() > 100 {
            wide.push(number);
        }
    }
    wide
}

fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']))
}

#[test]
fn comments_and_documents_are_wrapped() {
    let mut wide = Vec::new();
    for (path, text) in sources() {
        let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
        wide.extend(wide_lines(lines, comment).into_iter().map(|line| format!("{path}:{line}")));
    }
    let mut all = Vec::new();
    walk(&root(), &mut all);
    for path in all.iter().filter(|path| path.extension().is_some_and(|end| end == "md")) {
        let text = std::fs::read_to_string(path).expect("UTF-8");
        // Four spaces begin a drawing or a program.
        let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
        let lines = lines.filter(|(_, line)| !line.starts_with("    "));
        let found = wide_lines(lines, |line| Some(line));
        wide.extend(found.into_iter().map(|line| format!("{}:{line}", path.display())));
    }
    assert!(wide.is_empty(), "wider than 100 columns: {wide:#?}");
}

/// Where a function begins, its indentation; nothing for other lines.
fn indent_of_function(line: &str) -> Option<&str> {
    let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
    let mut words = rest.split_whitespace();
    let is_modifier = |word: &&str| {
        let modifiers = ["const", "async", "unsafe", "extern", "\"C\"", "default"];
        word.starts_with("pub") || modifiers.contains(word)
    };
    (words.find(|word| !is_modifier(word)) == Some("fn")).then_some(indent)
}

/// A function fits on a screen. A few lines more are no reason to tear a table apart.
#[test]
fn functions_fit_on_a_screen() {
    const LINES: usize = 95;
    let mut long = Vec::new();
    for (path, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let Some(indent) = indent_of_function(line) else { continue };
            let ends = |line: &&str| line.strip_prefix(indent).is_some_and(|l| l.starts_with('}'));
            if line.ends_with(['}', ';']) {
                continue;
            }
            let length = lines[start..].iter().position(ends).map_or(0, |end| end + 1);
            if length > LINES {
                long.push(format!("{path}:{}: {length} lines", start + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than {LINES} lines: {long:#?}");
}

/// What stands between two marks, at each place of the first.
fn between<'a>(
    text: &'a str,
    before: &'static str,
    after: &'static str,
) -> impl Iterator<Item = &'a str> {
    let rests = text.match_indices(before).map(move |(at, _)| &text[at + before.len()..]);
    rests.filter_map(move |rest| Some(rest.split_once(after)?.0))
}

#[test]
fn every_file_belongs_to_a_module() {
    let all = sources();
    let declared: HashSet<&str> = (all.iter())
        .flat_map(|(_, text)| {
            between(text, "mod ", ";").chain(between(text, "#[path = \"", ".rs\"]"))
        })
        .collect();
    for (path, _) in
        all.iter().filter(|(path, _)| path.contains("/src/") && !path.contains("/src/bin/"))
    {
        let file = Path::new(path);
        let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
        let (stem, folder) = (name(file), name(file.parent().unwrap()));
        let module = if stem == "mod" { &folder } else { &stem };
        assert!(
            matches!(module.as_str(), "lib" | "main") || declared.contains(module.as_str()),
            "no module declares {path}: it is never compiled"
        );
    }
}

/// Calls that have one home each: where else they stand, somebody waits, reads a clock, or touches
/// shared memory on his own.
#[test]
fn banned_calls_stay_in_their_home() {
    let wait: &[&str] = &["wait/", "base/shm/"];
    // The test fabric is a network with a clock of its own.
    let clock: &[&str] = &["base/clock.rs", "far.rs"];
    let memory: &[&str] = &["base/shm/"];
    let rules: &[(&str, &[&str])] = &[
        ("spin_loop", wait),
        ("yield_now", &["base/shm/"]),
        ("sched_yield", wait),
        (
            "futex",
            &[
                "wait/",
                "base/shm/",
                "base/doorbell.rs",
                "hosted/turn.rs",
                "hosted/threads.rs",
                "hosted/gate.rs",
            ],
        ),
        ("thread::sleep", &[]),
        ("Instant::now", clock),
        ("SystemTime", &[]),
        ("rdtsc", clock),
        // The program's own calls of the kernel, passed on; and a symbol that may be missing.
        ("asm!", &["base/shm/", "hosted/threads.rs", "hosted/replaced.rs"]),
        ("read_volatile", memory),
        ("write_volatile", memory),
        ("from_ptr", memory),
        ("membarrier(", &["base/shm/", "endpoint/", "wait/", "base/doorbell.rs", "far.rs"]),
        // The latter for code.
        ("mmap(", &["base/memory.rs", "hosted/patch.rs"]),
        ("far::", &[]),
        ("static mut", &[]),
        ("todo!", &[]),
        ("unimplemented!", &[]),
        ("dbg!", &[]),
        ("#[ignore", &[]),
    ];
    let mut found = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| path.starts_with("crates/core/src/")) {
        let library = text.split("#[cfg(all(test").next().unwrap_or(text);
        for (number, line) in library.lines().enumerate() {
            for (call, homes) in rules {
                let home =
                    homes.iter().any(|home| path["crates/core/src/".len()..].starts_with(home))
                        || path.contains("loom_tests");
                if code(line).contains(call) && !home {
                    found.push(format!("{path}:{}: {call} belongs into {homes:?}", number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The list of settings is what users are told of, and by which a name that nobody reads is found.
#[test]
fn every_variable_is_in_the_list_of_settings() {
    for (path, text) in sources() {
        if !path.contains("/src/") || path.ends_with("core/src/base/settings.rs") {
            continue;
        }
        for line in text.lines().map(code).filter(|line| line.contains("ENV_")) {
            let names =
                line.split('"').skip(1).step_by(2).filter(|name| name.starts_with("MEMONET_"));
            for name in names {
                assert!(
                    memonet_core::unstable::settings::is_known(name),
                    "{path}: {name} is not in core/src/base/settings.rs"
                );
            }
        }
    }
}

#[test]
fn the_core_knows_nobody_above_it() {
    for (path, text) in sources().iter().filter(|(path, _)| path.starts_with("crates/core/src/")) {
        for (number, line) in text.lines().enumerate() {
            // A message for programs names the attribute.
            let line = line.replace("#[memonet::plain]", "");
            assert!(
                !code(&line).contains("memonet::") && !code(&line).contains("memonet_cli"),
                "{path}:{}: {line}",
                number + 1
            );
        }
    }
}

/// What documents link to is there; so are the files and folders that the map names, by the ends of
/// their paths.
#[test]
fn documents_name_what_exists() {
    let root = root();
    let read = |path: &Path| std::fs::read_to_string(path).expect("UTF-8");
    let mut missing = Vec::new();
    for document in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/bench.md",
        "docs/cluster.md",
        "docs/conformance.md",
        "docs/decisions.md",
        "docs/machines.md",
        "docs/multicast.md",
        "docs/openshmem.md",
        "docs/performance.md",
        "docs/python.md",
        "docs/shared-data.md",
        "docs/sight.md",
        "docs/soundness.md",
        "docs/sources.md",
    ] {
        let path = root.join(document);
        let text = read(&path);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let files = links.filter(|link| !link.contains("://"));
        missing.extend(files.filter(|file| !path.with_file_name(file).exists()).map(str::to_owned));
    }
    let mut all = Vec::new();
    walk(&root, &mut all);
    let map = read(&root.join("ARCHITECTURE.md"));
    let words = map.split('`').skip(1).step_by(2).filter(|word| !word.contains([' ', '*']));
    let files = words.filter(|word| {
        [".rs", ".c", ".py", ".md", ".api", "/"].iter().any(|end| word.ends_with(end))
    });
    missing.extend(
        files.filter(|file| !all.iter().any(|path| path.ends_with(file))).map(str::to_owned),
    );
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Functions and other items that the guides for developers name are there.
#[test]
fn guides_name_what_exists() {
    let code: String = sources().into_iter().map(|(_, text)| text).collect();
    let is_item = |word: &&str| {
        let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
        word.contains("::") || word.contains('_') && word.chars().all(is_name)
    };
    let mut missing = Vec::new();
    for document in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root().join(document)).expect("UTF-8");
        let words = text.split('`').skip(1).step_by(2).filter(|word| !word.contains([' ', '/']));
        let names = words.filter(is_item).filter_map(|word| word.rsplit("::").next());
        missing.extend(names.filter(|name| !code.contains(name)).map(str::to_owned));
    }
    // An attribute of C.
    missing.retain(|name| name != "gnu_inline");
    assert!(missing.is_empty(), "{missing:#?}");
}
