//! The rows of the bench: which there are, and which of them are asked for.

use super::row::Row;
use super::spec::Spec;
use super::table::SPECS;
use super::table_of_hosts::SPECS_OF_HOSTS;

/// Every row, in the order of the table. `cpus` bounds the barriers.
pub fn rows(cpus: usize) -> Vec<Row> {
    SPECS.iter().flat_map(|spec| spec.rows(cpus)).collect()
}

/// Every row that is measured between hosts, in the order of their table.
pub fn rows_of_hosts() -> Vec<Row> {
    SPECS_OF_HOSTS.iter().flat_map(|spec| spec.rows(0)).collect()
}

/// The specification of a row.
pub fn spec(row: &Row) -> &'static Spec {
    let found = SPECS.iter().chain(SPECS_OF_HOSTS).find(|spec| spec.name == row.spec);
    found.expect("rows are made from the specifications")
}

/// Leaves out of a quick bench what would take most of its time, unless it is asked for by its
/// whole name. Returns the names of what is left out.
pub fn leave_out_long(rows: &mut Vec<Row>, filters: &[String]) -> Vec<String> {
    let is_long = |row: &Row| row.pes > spec(row).special.most_quick_pes;
    let (long, short) = std::mem::take(rows)
        .into_iter()
        .partition(|row| is_long(row) && !filters.contains(&row.id));
    *rows = short;
    long.into_iter().map(|row: Row| row.id).collect()
}

/// The rows whose id contains one of the filters; all without filters.
pub fn select(rows: Vec<Row>, filters: &[String]) -> Vec<Row> {
    let wanted = |row: &Row| {
        filters.is_empty() || filters.iter().any(|filter| row.id.contains(filter.as_str()))
    };
    rows.into_iter().filter(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_complete() {
        let rows = rows(2);
        let ids: std::collections::BTreeSet<_> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), rows.len());
        for id in [
            "pingpong.8",
            "store_rate",
            "put_bandwidth.1048576",
            "get_bandwidth.67108864",
            "barrier.32",
            "startup.16",
        ] {
            assert!(ids.contains(id), "no row {id}");
        }
    }

    #[test]
    fn names_are_unique() {
        let all = || SPECS.iter().chain(SPECS_OF_HOSTS);
        let names: std::collections::BTreeSet<_> = all().map(|spec| spec.name).collect();
        assert_eq!(names.len(), all().count());
        let ids: std::collections::BTreeSet<_> =
            rows_of_hosts().into_iter().map(|row| row.id).collect();
        assert_eq!(ids.len(), rows_of_hosts().len());
    }

    #[test]
    fn documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench.md");
        let text = std::fs::read_to_string(path).unwrap();
        for spec in SPECS.iter().chain(SPECS_OF_HOSTS) {
            let is_end = |c: char| !c.is_alphanumeric() && c != '_';
            let begin = format!("`{}", spec.name);
            let mut rest = text.split(&begin).skip(1);
            assert!(
                rest.any(|rest| rest.starts_with(is_end)),
                "docs/bench.md has no `{}`",
                spec.name
            );
        }
    }

    #[test]
    fn barriers_reach_the_number_of_cpus() {
        assert!(rows(64).iter().any(|row| row.id == "barrier.64"));
        assert!(!rows(2).iter().any(|row| row.id == "barrier.64"));
    }

    #[test]
    fn a_quick_bench_leaves_out_what_takes_long_unless_it_is_named() {
        let left = |filter: &str| {
            let filters = [filter.to_owned()];
            leave_out_long(&mut select(rows(2), &filters), &filters)
        };
        assert_eq!(left("sim_barrier"), ["sim_barrier.65536", "sim_barrier_memory.65536"]);
        assert_eq!(left("sim_barrier.65536"), [""; 0]);
        assert_eq!(left("pingpong"), [""; 0]);
    }

    #[test]
    fn filters_select_by_part_of_the_id() {
        let ids = |filter: &str| -> Vec<String> {
            select(rows(2), &[filter.into()]).into_iter().map(|row| row.id).collect()
        };
        assert_eq!(ids("barrier.2"), ["barrier.2"]);
        assert_eq!(ids("startup"), ["startup.2", "startup.16"]);
        assert!(ids("nothing like it").is_empty());
    }
}
