//! The published experiments: what came out last, and what must come out.
//!
//! `tests/golden/NAME.txt` has the rows of each experiment. A change to a model or a machine file
//! shows here; when it is meant, `MEMONET_BLESS=1` writes them anew.

use memonet_sim::reproduce::{
    EXPERIMENTS, Experiment, Outcome, Role, Row, SCALE, errors, experiments, scale,
};
use std::fmt::Write;
use std::path::Path;

fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    for row in &outcome.rows {
        let published = row.published.map_or("-".into(), |published| published.to_string());
        let error = row.error_percent().map_or("-".into(), |error| format!("{error:+.2} %"));
        writeln!(
            text,
            "{} {:.6} {} {published} {error} {:?}{}",
            row.id,
            row.simulated,
            row.unit,
            row.role,
            if row.contradiction.is_some() { " flagged" } else { "" }
        )
        .unwrap();
    }
    for curve in &outcome.curves {
        let points: Vec<_> = curve.points.iter().map(|(x, y)| format!("{x}:{y:.6}")).collect();
        writeln!(text, "{} / {}: {}", curve.figure, curve.label, points.join(" ")).unwrap();
    }
    text
}

fn check(experiment: &Experiment, outcome: &Outcome) {
    let table = table(outcome);
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{}.txt", experiment.name));
    if std::env::var_os("MEMONET_BLESS").is_some() {
        std::fs::write(&path, table).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    for (now, then) in table.lines().zip(golden.lines()) {
        assert_eq!(
            now, then,
            "left is what came out now, right is the golden row; if it is meant, run with MEMONET_BLESS=1"
        );
    }
    assert_eq!(
        table.lines().count(),
        golden.lines().count(),
        "{} has other rows than its golden table",
        experiment.name
    );
}

#[test]
fn what_comes_out_is_what_came_out() {
    EXPERIMENTS.iter().for_each(|experiment| check(experiment, &experiment.run().unwrap()));
}

/// Whoever knows a published figure's name finds its row by that.
#[test]
fn every_published_result_has_a_row_of_its_name() {
    let published = include_str!("../src/reproduce/published.toml");
    let published = toml_edit::Document::parse(published).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let table = |experiment: &Experiment| {
        std::fs::read_to_string(golden.join(format!("{}.txt", experiment.name))).unwrap()
    };
    let tables: Vec<_> = EXPERIMENTS.iter().map(table).collect();
    let has = |id: &str| {
        tables.iter().flat_map(|table| table.lines()).any(|row| row.split(' ').next() == Some(id))
    };
    let mut results = 0;
    for (system, sections) in published.iter() {
        let Some(figures) = sections.get("results").and_then(|results| results.as_table_like())
        else {
            continue;
        };
        for (name, figure) in figures.iter().filter(|&(name, _)| name != "kind") {
            let variants = figure
                .as_table_like()
                .map(|table| table.iter().map(|(variant, _)| format!(".{variant}")).collect());
            for variant in variants.unwrap_or_else(|| vec![String::new()]) {
                let id = format!("{system}.{name}{variant}");
                assert!(has(&id), "{id} has no row");
                results += 1;
            }
        }
    }
    assert!(results >= 30, "{results} results");
}

/// Up to 64 nodes: more take too long here.
#[test]
fn what_comes_out_on_many_nodes_is_what_came_out() {
    let mut told = 0;
    let outcome = scale(64, |_| told += 1).unwrap();
    assert_eq!(told, outcome.curves.iter().map(|curve| curve.points.len()).sum::<usize>());
    check(&SCALE, &outcome);
}

/// What rounds cost grows with their number, a chain with its length, wires by the microcluster.
#[test]
fn more_nodes_take_longer_in_the_way_of_their_network() {
    let outcome = scale(64, |_| ()).unwrap();
    let times = |figure: &str, machine: &str| -> Vec<f64> {
        let curve = outcome
            .curves
            .iter()
            .find(|curve| curve.figure.contains(figure) && curve.label.starts_with(machine));
        curve.unwrap().points.iter().map(|&(_, time)| time).collect()
    };
    for curve in &outcome.curves {
        assert_eq!(curve.points.len(), 5, "{}", curve.label);
        assert!(
            curve.points.windows(2).all(|pair| pair[0].1 <= pair[1].1),
            "{} {}: {:?}",
            curve.figure,
            curve.label,
            curve.points
        );
    }
    let rounds = times("dissemination", "rdma-100g");
    assert!(rounds[4] < 8.0 * rounds[0], "six rounds in place of one: {rounds:?}");
    let chain = times("all-reduce", "scc");
    assert!(chain[4] > 3.0 * chain[2], "a chain of 64 boards in place of 8: {chain:?}");
}

#[test]
fn twice_the_same() {
    for experiment in experiments(Some("dimmnet-1.loops")) {
        assert_eq!(experiment.run().unwrap(), experiment.run().unwrap());
    }
}

fn rows(name: &str) -> Vec<Row> {
    experiments(Some(name)).iter().flat_map(|experiment| experiment.run().unwrap().rows).collect()
}

#[test]
fn what_was_not_fitted_is_predicted_well() {
    let rows = rows("dimmnet-1");
    let (median, largest, count) = errors(&rows).unwrap();
    assert!(median <= 8.0 && largest <= 20.0 && count >= 3, "{median} {largest} {count}");
}

/// One constant for the CPU, one for the machine: what the P3-850's rows were fitted on.
#[test]
fn no_more_is_fitted_than_may_be() {
    let fitted = |name| -> Vec<String> {
        rows(name).into_iter().filter(|row| row.role == Role::Fitted).map(|row| row.id).collect()
    };
    let loops = ["dimmnet-1.internal_loop.D", "dimmnet-1.external_loop.D"];
    assert_eq!(
        fitted("dimmnet-1.loops"),
        loops,
        "the external loop is the internal one and a component"
    );
    assert_eq!(fitted("dimmnet-1.barrier"), ["dimmnet-1.barrier_mmx.D"]);
}

#[test]
fn a_tree_of_eight_grows_more_slowly_than_an_exchange_of_pairs() {
    let rows = rows("dimmnet-1.barrier");
    let time = |id: String| rows.iter().find(|row| row.id == id).unwrap().simulated;
    let growth =
        |name: &str| time(format!("dimmnet-1.{name}.64")) / time(format!("dimmnet-1.{name}.2"));
    assert!(growth("barrier_tree") < growth("barrier_shuffle") / 2.0);
    assert!(time("dimmnet-1.barrier_tree.64".into()) < time("dimmnet-1.barrier_shuffle.64".into()));
}
