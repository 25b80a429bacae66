//! Machine files of any content: whatever is in them, there is a machine that works, or an error
//! that names where and what.

use memonet_core::unstable::fabric::FarAddress;
use memonet_core::unstable::shm::AtomicOp;
use memonet_sim::Machine;
use memonet_sim::host::{Atomic, HostOp, Op, Pe};
use memonet_sim::machine::{BUILT_IN, MachineError};
use memonet_sim::memory::PlainMemory;
use memonet_sim::packet::Payload;
use memonet_sim::world::{Happened, World};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Of the memory of each PE.
const BYTES: usize = 8192;
/// More than any of the calls below needs.
const EVENTS: u64 = 200_000;

/// A machine and its calls: all of them are answered, and what was written is there.
fn use_it(machine: &Machine, nodes: u32) -> Result<(), MachineError> {
    let mut world =
        World::build(machine, nodes, 1, Box::new(PlainMemory::new(nodes as usize, BYTES)))?;
    let last = nodes - 1;
    let at = |offset| FarAddress { pe: last, region: 0, offset };
    let block: Vec<u8> = (0..3000u32).map(|byte| byte as u8).collect();
    let calls = [
        HostOp::Store { to: at(8), word: Payload::word(8, 77) },
        HostOp::Put { to: at(4096), data: Payload::copy(&block), signal: None, reuse: true },
        HostOp::Atomic { at: at(16), size: 8, what: Atomic::Op(AtomicOp::Add, 5) },
        HostOp::Get { from: at(4096), len: 500 },
        HostOp::Fence,
        HostOp::Quiet,
    ];
    for (number, call) in calls.into_iter().enumerate() {
        let op = Op { pe: Pe(0), number: number as u32 };
        world.begin(op, call);
        let most = world.counts().events + EVENTS;
        loop {
            match world.next() {
                Some(Happened::Answered(answered, answer)) if answered == op => {
                    assert_eq!(answer.refused, None, "call {number}");
                    break;
                }
                Some(_) => assert!(world.counts().events < most, "call {number} has no end"),
                None => panic!("call {number} is never answered"),
            }
        }
    }
    let written = world.memory().read(Pe(0), at(8), 8).expect("it is there");
    assert_eq!(written.bits(), 77);
    let written = world.memory().read(Pe(0), at(4096), block.len()).expect("it is there");
    written.with(|written| assert_eq!(written, block));
    Ok(())
}

/// The machine of a text, and of each variant that it has.
fn try_all(text: &str) {
    let whole = Machine::parse("mine.toml", text, None);
    let names: BTreeSet<String> =
        whole.iter().flat_map(|machine| machine.variants().to_vec()).collect();
    let variants =
        names.iter().map(|name| Machine::parse("mine.toml", text, Some(name))).collect::<Vec<_>>();
    for machine in std::iter::once(whole).chain(variants) {
        for nodes in [1, 2, 5] {
            let error = match &machine {
                Ok(machine) => use_it(machine, nodes).err(),
                Err(error) => Some(error.clone()),
            };
            if let Some(error) = error {
                let says_where = error.line.is_some() || error.key.is_some();
                assert!(says_where && !error.problem.is_empty(), "{error}\n{text}");
            }
        }
    }
}

/// What a line of a machine file may become.
#[derive(Debug, Clone)]
enum Change {
    Remove,
    Twice,
    Value(String),
    Unit(String),
    Key(String),
    Byte(usize, u8),
    Swap(usize),
}

fn changes() -> impl Strategy<Value = (usize, Change)> {
    let values = [
        "0",
        "1",
        "-1",
        "0.5",
        "3",
        "17",
        "1e-9",
        "1e9",
        "1e18",
        "1e300",
        "inf",
        "nan",
        "9223372036854775807",
        "true",
        "\"star\"",
        "\"tree\"",
        "\"full\"",
        "\"source\"",
        "\"direct\"",
        "\"chain\"",
        "\"cut-through\"",
        "\"store-and-forward\"",
        "\"\"",
        "[1]",
        "{ value = 1 }",
    ];
    let units = [
        "ps",
        "ns",
        "s",
        "B",
        "GiB",
        "MB/s",
        "Gbit/s",
        "ns/B",
        "MHz",
        "cycles of dimm",
        "cycles of nothing",
        "",
        "parsec",
    ];
    let change = prop_oneof![
        Just(Change::Remove),
        Just(Change::Twice),
        prop::sample::select(values.to_vec()).prop_map(|value| Change::Value(value.into())),
        (0u64..100_000).prop_map(|value| Change::Value(value.to_string())),
        prop::sample::select(units.to_vec()).prop_map(|unit| Change::Unit(unit.into())),
        "[a-z_]{1,6}".prop_map(Change::Key),
        (any::<prop::sample::Index>(), any::<u8>())
            .prop_map(|(at, byte)| Change::Byte(at.index(120), byte)),
        (0usize..100).prop_map(Change::Swap),
    ];
    (0usize..200, change)
}

/// What comes behind `name = ` in a line, up to a comma or the end of the table.
fn with_part(line: &str, name: &str, new: &str) -> String {
    let Some(start) = line.find(&format!("{name} = ")).map(|at| at + name.len() + 3) else {
        return line.into();
    };
    let end = line[start..].find([',', '}']).map_or(line.len(), |end| start + end);
    format!("{}{new} {}", &line[..start], &line[end..])
}

fn changed(text: &str, changes: &[(usize, Change)]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (at, change) in changes {
        let at = at % lines.len();
        match change {
            Change::Remove => drop(lines.remove(at)),
            Change::Twice => lines.insert(at, lines[at].clone()),
            Change::Value(value) => lines[at] = with_part(&lines[at], "value", value),
            Change::Unit(unit) => lines[at] = with_part(&lines[at], "unit", &format!("\"{unit}\"")),
            Change::Key(key) => {
                if let Some((_, rest)) = lines[at].split_once(" = ") {
                    lines[at] = format!("{key} = {rest}");
                }
            }
            Change::Byte(column, byte) => {
                let mut bytes = lines[at].clone().into_bytes();
                if let Some(place) = bytes.get_mut(*column) {
                    *place = *byte;
                }
                lines[at] = String::from_utf8_lossy(&bytes).into_owned();
            }
            Change::Swap(other) => {
                let other = other % lines.len();
                lines.swap(at, other);
            }
        }
        if lines.is_empty() {
            lines.push(String::new());
        }
    }
    lines.join("\n") + "\n"
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        try_all(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_toml_of_parameters(keys in prop::collection::vec(("[a-c]{1,2}(\\.[a-c]{1,2}){0,2}", "(1|-0.5|\"x\"|\\{ value = 1, assumed = \"x\" \\}|\\{ like = \"a\" \\})"), 0..8)) {
        let lines: String = keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        try_all(&format!("summary = \"x\"\nkind = \"loggp\"\n{lines}"));
        try_all(&format!("summary = \"x\"\nkind = \"loggp\"\n[variant]\n{lines}"));
    }

    #[test]
    fn changed_machines(which in 0..BUILT_IN.len(), changes in prop::collection::vec(changes(), 1..4)) {
        try_all(&changed(BUILT_IN[which].1, &changes));
    }
}

#[test]
fn unchanged_machines() {
    for (_, text) in BUILT_IN {
        try_all(text);
    }
}

/// A missing parameter names its key; one that nobody reads, and one that is wrong, their line too.
/// For each parameter of each machine.
#[test]
fn each_parameter_is_needed_and_looked_at() {
    for (name, text) in BUILT_IN {
        let machine = Machine::parse(name, text, None).unwrap();
        if !machine.variants().is_empty() {
            continue;
        }
        let build =
            |text: &str| Machine::parse(name, text, None).and_then(|machine| use_it(&machine, 2));
        build(text).unwrap_or_else(|error| panic!("{error}"));
        for (key, parameter) in machine.parameters() {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let line = lines.remove(parameter.line - 1);
            let leaf = key.rsplit('.').next().unwrap();
            assert!(line.starts_with(leaf), "{name}, line {}: {line}", parameter.line);
            if let Err(error) = build(&(lines.join("\n") + "\n")) {
                assert!(
                    error.to_string().contains(leaf) || error.key.is_some(),
                    "{name} without {key}: {error}"
                );
            }
            lines.insert(parameter.line - 1, with_part(&line, "value", "[1]"));
            let error = build(&(lines.join("\n") + "\n")).expect_err("no parameter is a list");
            assert_eq!(
                (error.key.as_deref(), error.line),
                (Some(key), Some(parameter.line)),
                "{error}"
            );
            lines[parameter.line - 1] = format!("un{line}");
            let error =
                build(&(lines.join("\n") + "\n")).expect_err("no parameter has such a name");
            assert!(error.key.is_some(), "{error}");
        }
    }
}
