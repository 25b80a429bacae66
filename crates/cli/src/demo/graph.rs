//! Reads an edge list: one `from to` pair a line, plain or gzip.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Cursor, Read};

use anyhow::{Context, Result, anyhow, bail, ensure};
use flate2::bufread::MultiGzDecoder;

/// A graph: names, and edges between their numbers.
#[derive(Debug)]
pub struct Graph {
    /// Node `v` is called `names[v]`; numbers follow the first mention in the file.
    pub names: Vec<String>,
    /// `[from, to]`, sorted, each edge once however often the file has it.
    pub edges: Vec<[u32; 2]>,
}

/// A file with a longer line is no edge list, but perhaps a device. It is refused before it fills
/// the memory.
const LONGEST_LINE: u64 = 64 << 20;

/// Reads the edge list `input`. Errors name it as `file`, with the line. Every 10,000 lines,
/// `progress` gets the number of lines read.
///
/// Words are separated by white space and may hold any other character. Empty lines and lines whose
/// first word starts with `#` are skipped. A line of more than two words is refused: the third
/// would be a weight, and this ranking has no weights.
pub fn read(input: impl Read, file: &str, mut progress: impl FnMut(usize)) -> Result<Graph> {
    let mut input = uncompressed(input).with_context(|| format!("cannot read {file}"))?;
    let mut numbers = HashMap::new();
    let mut edges = Vec::new();
    let mut line = Vec::new();
    for at in 1.. {
        if at % 10_000 == 0 {
            progress(at);
        }
        line.clear();
        let length = (&mut input).take(LONGEST_LINE).read_until(b'\n', &mut line).map_err(|e| {
            anyhow!("{file}:{at}: cannot read on ({e}): the file is cut off or damaged")
        })?;
        if length == 0 {
            ensure!(
                !edges.is_empty(),
                "{file}: no edge in {} lines; an edge list has one `from to` pair a line",
                at - 1
            );
            break;
        }
        ensure!(
            line.len() < LONGEST_LINE as usize,
            "{file}:{at}: the line goes on after {} MiB; this is no edge list",
            LONGEST_LINE >> 20
        );
        if let Some(edge) = pair(&line).with_context(|| format!("{file}:{at}"))? {
            let [from, to] = edge.map(|name| number(&mut numbers, name));
            edges.push([from?, to?]);
        }
    }
    edges.sort_unstable();
    edges.dedup();
    let mut names = vec![String::new(); numbers.len()];
    for (name, v) in numbers {
        names[v as usize] = name;
    }
    Ok(Graph { names, edges })
}

/// Recognises gzip by the first two bytes: a pipe has no name with an ending.
fn uncompressed<'a>(mut input: impl Read + 'a) -> std::io::Result<Box<dyn BufRead + 'a>> {
    let mut head = Vec::new();
    (&mut input).take(2).read_to_end(&mut head)?;
    let gzip = head == [0x1f, 0x8b];
    let whole = BufReader::new(Cursor::new(head).chain(input));
    Ok(if gzip { Box::new(BufReader::new(MultiGzDecoder::new(whole))) } else { Box::new(whole) })
}

/// The two names on a line; `None` for an empty line or a comment.
fn pair(line: &[u8]) -> Result<Option<[&str; 2]>> {
    let text = std::str::from_utf8(line).map_err(|e| {
        anyhow!("byte {} of the line is not UTF-8; names must be", e.valid_up_to() + 1)
    })?;
    // Some editors begin a file with a byte order mark, which is no part of the first name.
    let mut words = text.trim_start_matches('\u{feff}').split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (None, ..) => Ok(None),
        (Some(first), ..) if first.starts_with('#') => Ok(None),
        (Some(from), Some(to), None) => Ok(Some([from, to])),
        (Some(only), None, _) => {
            bail!("one word, `{}`; an edge is two, `from to`", printable(only))
        }
        _ => bail!(
            "{} words; an edge is two, `from to`, and has no weight",
            text.split_whitespace().count()
        ),
    }
}

/// The number of `name`. A new name gets the next number.
fn number(numbers: &mut HashMap<String, u32>, name: &str) -> Result<u32> {
    if let Some(&number) = numbers.get(name) {
        return Ok(number);
    }
    let next =
        u32::try_from(numbers.len()).context("more than 2^32 nodes, too many for this demo")?;
    numbers.insert(name.to_owned(), next);
    Ok(next)
}

/// A name without control characters, cut to the width of a line: safe to show on a terminal.
pub fn printable(name: &str) -> String {
    const WIDTH: usize = 60;
    let mut shown: String =
        name.chars().take(WIDTH).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if name.chars().nth(WIDTH).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::{Read, Write};

    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;

    use super::{Graph, Result, printable};

    fn read(input: impl Read, file: &str) -> Result<Graph> {
        super::read(input, file, |_| ())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn edges(graph: &Graph) -> Vec<(&str, &str)> {
        graph
            .edges
            .iter()
            .map(|edge| edge.map(|v| graph.names[v as usize].as_str()).into())
            .collect()
    }

    fn refusal(input: impl Read) -> String {
        format!("{:#}", read(input, "FILE").unwrap_err())
    }

    #[test]
    fn an_edge_is_two_words_a_line() {
        let graph = read("\u{feff}b c\n\ta\u{3000}b  \r\n".as_bytes(), "").unwrap();
        assert_eq!(graph.names, ["b", "c", "a"]);
        assert_eq!(edges(&graph), [("b", "c"), ("a", "b")]);
    }

    #[test]
    fn the_last_line_needs_no_end() {
        assert_eq!(edges(&read(&b"a b\nb c"[..], "").unwrap()), [("a", "b"), ("b", "c")]);
    }

    #[test]
    fn comments_and_empty_lines_are_skipped_but_counted() {
        assert_eq!(
            edges(&read(&b"# x\n\n \t\n  #y z w\na b#c\n"[..], "").unwrap()),
            [("a", "b#c")]
        );
        assert!(refusal(&b"# x\n\na b\nc\n"[..]).starts_with("FILE:4: one word, `c`"));
    }

    #[test]
    fn an_edge_counts_once_and_may_lead_back() {
        assert_eq!(
            edges(&read(&b"a a\na b\na b\na a\n"[..], "").unwrap()),
            [("a", "a"), ("a", "b")]
        );
    }

    #[test]
    fn gzip_is_known_by_its_bytes() {
        let mut twice = gzip(b"a b\nb ");
        twice.extend(gzip(b"c\n"));
        assert_eq!(edges(&read(&twice[..], "").unwrap()), [("a", "b"), ("b", "c")]);
    }

    #[test]
    fn refusals_name_file_and_line() {
        assert!(refusal(&b"a b\na b 0.5\n"[..]).starts_with("FILE:2: 3 words"));
        assert_eq!(
            refusal(&b"a b\nb \xff\n"[..]),
            "FILE:2: byte 3 of the line is not UTF-8; names must be"
        );
        assert!(refusal(&b""[..]).starts_with("FILE: no edge in 0 lines"));
        assert!(refusal(&b"# a b\n\n"[..]).starts_with("FILE: no edge in 2 lines"));
        assert!(refusal(&gzip(b"")[..]).starts_with("FILE: no edge in 0 lines"));

        let lines: String = (0..9999).map(|i| format!("{i} {}\n", i * i)).collect();
        let whole = gzip(lines.as_bytes());
        let cut = refusal(&whole[..whole.len() / 2]);
        let line: usize =
            cut.strip_prefix("FILE:").unwrap().split(':').next().unwrap().parse().unwrap();
        assert!((2..9999).contains(&line), "{cut}");
        assert!(cut.contains("cut off"), "{cut}");
    }

    #[test]
    fn a_long_line_is_a_line() {
        let long = "x".repeat(1_000_000);
        assert_eq!(read(format!("{long} {long}\n").as_bytes(), "").unwrap().edges, [[0, 0]]);
        assert!(refusal(long.as_bytes()).len() < 200);
    }

    #[test]
    fn an_endless_line_is_refused() {
        assert!(refusal(std::io::repeat(0)).starts_with("FILE:1: the line goes on after 64 MiB"));
    }

    #[test]
    fn printable_has_no_control_characters_and_ends() {
        assert_eq!(printable("\u{1b}[2Jé"), "\u{fffd}[2Jé");
        assert_eq!(printable(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(printable(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            pairs in prop::collection::vec(("[^\\s#\u{feff}]\\S{0,3}", "\\S{1,4}", "[ \\t\u{3000}]{1,2}", "(\r?\n){1,3}|\n# x y z\n"), 1..50),
            compressed: bool,
        ) {
            let text: String = pairs.iter().map(|(from, to, gap, end)| [from, gap, to, end].map(String::as_str).concat()).collect();
            let bytes = if compressed { gzip(text.as_bytes()) } else { text.into_bytes() };
            let graph = read(&bytes[..], "").unwrap();
            let expected: BTreeSet<_> = pairs.iter().map(|(from, to, ..)| (from.as_str(), to.as_str())).collect();
            prop_assert_eq!(graph.edges.len(), expected.len());
            prop_assert_eq!(edges(&graph).into_iter().collect::<BTreeSet<_>>(), expected);
        }

        #[test]
        fn anything_is_read_or_refused(bytes in prop::collection::vec(prop_oneof![Just(b' '), Just(b'\n'), Just(b'a'), any::<u8>()], 0..200)) {
            match read(&bytes[..], "FILE") {
                Ok(graph) => prop_assert!(graph.edges.iter().flatten().all(|&v| (v as usize) < graph.names.len())),
                Err(e) => {
                    let message = format!("{e:#}");
                    prop_assert!(message.contains("FILE"), "{}", message);
                }
            }
        }
    }
}
