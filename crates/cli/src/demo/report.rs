//! Shows the highest ranks, and the work of the ranking.

use std::io::{Result, Write};
use std::time::Duration;

use super::graph::{Graph, printable};

/// Number of nodes that are shown.
const SHOWN: usize = 20;

/// The work of all PEs together.
pub struct Work {
    pub npes: usize,
    pub iterations: usize,
    pub time: Duration,
    pub puts: u64,
    pub bytes: u64,
}

/// The nodes with their ranks, highest first. Nodes of equal rank are ordered by name.
pub fn ordered<'g>(graph: &'g Graph, ranks: &[f64]) -> Vec<(&'g str, f64)> {
    let mut order: Vec<_> =
        graph.names.iter().map(String::as_str).zip(ranks.iter().copied()).collect();
    order.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    order
}

/// Prints the nodes of highest rank, and the work of the ranking.
pub fn print(mut out: impl Write, graph: &Graph, order: &[(&str, f64)], work: &Work) -> Result<()> {
    writeln!(out, "      rank         name")?;
    for (at, (name, rank)) in order.iter().take(SHOWN).enumerate() {
        writeln!(out, "{:>4}  {rank:.9}  {}", at + 1, printable(name))?;
    }
    let Work { npes, iterations, time, puts, bytes } = *work;
    let edges = graph.edges.len();
    let rate = (edges * iterations) as f64 / time.as_secs_f64() / 1e6;
    writeln!(out)?;
    writeln!(
        out,
        "graph       {}, {}",
        count(graph.names.len() as u64, "node"),
        count(edges as u64, "edge")
    )?;
    writeln!(out, "iterations  {iterations} on {}", count(npes as u64, "PE"))?;
    writeln!(out, "time        {:.1} ms, {rate:.1} million edges/s", time.as_secs_f64() * 1e3)?;
    writeln!(
        out,
        "sent        {}, {} moved (barriers not counted)",
        count(puts, "operation"),
        count(bytes, "byte")
    )?;
    out.flush()
}

/// A number of things, in the singular or plural.
pub fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", grouped(number))
}

/// A number in groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Writes all nodes, one `name rank` pair a line, with all digits of the rank.
pub fn write_all(mut out: impl Write, order: &[(&str, f64)]) -> Result<()> {
    for (name, rank) in order {
        writeln!(out, "{name} {rank:e}")?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_in_threes() {
        assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn one_is_not_many() {
        let counts = [0, 1, 2, 1001].map(|n| count(n, "edge"));
        assert_eq!(counts, ["0 edges", "1 edge", "2 edges", "1,001 edges"]);
        let (mut text, work) = (
            Vec::new(),
            Work { npes: 1, iterations: 1, time: Duration::from_millis(1), puts: 1, bytes: 1 },
        );
        let graph = Graph { names: vec!["a".into()], edges: vec![[0, 0]] };
        print(&mut text, &graph, &[("a", 1.0)], &work).unwrap();
        let text = String::from_utf8(text).unwrap();
        for line in [" 1 node, 1 edge\n", " 1 on 1 PE\n", " 1 operation, 1 byte moved "] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn equal_ranks_are_ordered_by_name() {
        let graph = Graph { names: ["c", "a", "b"].map(String::from).into(), edges: vec![] };
        assert_eq!(ordered(&graph, &[0.2, 0.2, 0.6]), [("b", 0.6), ("a", 0.2), ("c", 0.2)]);
    }
}
