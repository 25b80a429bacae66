//! Machine files: every built-in one can be built and used; every mistake is an error that names
//! line and key.

use memonet_sim::machine::{BUILT_IN, Source};
use memonet_sim::memory::PlainMemory;
use memonet_sim::world::World;
use memonet_sim::{Machine, Options, run};

/// All built-in machines, with all of their variants; a file that has variants may need one.
fn all() -> Vec<String> {
    let mut names = Vec::new();
    for &(name, _) in BUILT_IN {
        let machine = Machine::load(name).unwrap_or_else(|e| panic!("{e}"));
        match machine.variants() {
            [] => names.push(name.to_owned()),
            variants => names.extend(variants.iter().map(|variant| format!("{name}/{variant}"))),
        }
    }
    names
}

#[test]
fn every_machine_runs_a_program() {
    for name in all() {
        let machine = Machine::load(&name).unwrap_or_else(|e| panic!("{e}"));
        let done = run(&machine, 2, &Options::default(), |job| job.barrier())
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(done.results.iter().all(Result::is_ok), "{name}");
        assert!(done.end.0 > 0, "{name}: a barrier takes time");
    }
}

/// One software constant for the CPU, one for the machine: more would be a table of answers.
#[test]
fn no_machine_has_more_than_two_fitted_constants() {
    for name in all() {
        let machine = Machine::load(&name).unwrap_or_else(|e| panic!("{e}"));
        let fitted = machine
            .parameters()
            .filter(|(_, parameter)| matches!(parameter.source, Source::Fitted(_)));
        let fitted: Vec<_> = fitted.map(|(key, _)| key).collect();
        assert!(fitted.len() <= 2, "{name}: {fitted:?}");
    }
}

#[test]
fn files_and_built_in_machines_have_the_same_names() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    let mut built_in: Vec<_> = BUILT_IN.iter().map(|&(name, _)| name.to_owned()).collect();
    built_in.sort();
    assert_eq!(files, built_in);
}

/// A machine without variants, to be changed.
fn text() -> &'static str {
    BUILT_IN.iter().find(|(name, _)| *name == "gigabit-ethernet-udp").unwrap().1
}

/// What is wrong with the machine of this text.
fn complaint(text: &str, variant: Option<&str>) -> String {
    let build = |machine: Machine| {
        World::build(&machine, 2, 1, Box::new(PlainMemory::new(2, 64))).map(drop)
    };
    let error =
        Machine::parse("mine.toml", text, variant).and_then(build).expect_err("it is wrong");
    error.to_string()
}

/// The line on which a key stands first.
fn line_of(text: &str, key: &str) -> usize {
    1 + text.lines().position(|line| line.starts_with(key)).unwrap()
}

/// The machine with a change.
fn with(from: &str, to: &str) -> String {
    assert!(text().contains(from), "{from}");
    text().replacen(from, to, 1)
}

/// The machine with a parameter that none of its kind has.
fn with_wings() -> String {
    format!("{}\n[nic.extra]\nwings = {{ value = 2, assumed = \"why not\" }}\n", text())
}

#[test]
fn unused_parameters_are_named() {
    let unused = with_wings();
    assert_eq!(
        complaint(&unused, None),
        format!(
            "machine mine.toml, line {}: nic.extra.wings is unknown to machines of kind \"loggp\", or of no use beside the others; remove it",
            line_of(&unused, "wings")
        )
    );
}

#[test]
fn missing_parameters_are_named_with_what_may_be_a_misspelling() {
    let missing = with("gap = ", "# gap = ");
    assert_eq!(
        complaint(&missing, None),
        format!(
            "machine mine.toml, line {}: nic.gap is missing in this section; machines of kind \"loggp\" need it",
            line_of(&missing, "[nic]")
        )
    );
    let misspelt = with_wings().replacen("gap = ", "gapp = ", 1);
    assert_eq!(
        complaint(&misspelt, None),
        format!(
            "machine mine.toml, line {}: nic.gap is missing in this section; machines of kind \"loggp\" need it, and none that is built in has nic.gapp \
             (line {}), nic.extra.wings (line {})",
            line_of(&misspelt, "[nic]"),
            line_of(&misspelt, "gapp"),
            line_of(&misspelt, "wings")
        )
    );
    let bare = misspelt.replacen("[nic]", "[nick]", 1);
    assert!(
        complaint(&bare, None).contains(&format!("nick.gapp (line {})", line_of(&bare, "gapp"))),
        "{}",
        complaint(&bare, None)
    );
}

/// A change of the machine, the key on whose line the mistake is, and what the error says.
const MISTAKES: [(&str, &str, &str, &str); 13] = [
    (
        "gap = { value = 0, unit = \"us\"",
        "gap = { value = 0, unit = \"cycles of sand\"",
        "gap",
        "clock.sand is missing, and nic.gap is in cycles of it",
    ),
    (
        "remote_dma = { value = false",
        "remote_dma = { value = \"false\"",
        "remote_dma",
        "nic.remote_dma is \"false\"; it must be true or false",
    ),
    (
        ", assumed = \"the CPU and the link are slower than the NIC\"",
        ", assumed = \"\"",
        "gap",
        "nic.gap needs a text as its assumed",
    ),
    (
        "gap = { value = 0, unit = \"us\"",
        "gap = { value = 0, unit = \"fortnights\"",
        "gap",
        "nic.gap has the unit \"fortnights\"",
    ),
    ("gap = { value = 0", "gap = { value = -1", "gap", "nic.gap is -1; it must be a time"),
    (
        "gap = { value = 0",
        "gap = { velue = 0",
        "gap",
        "nic.gap.velue must be a section, or a parameter",
    ),
    (
        ", assumed = \"the CPU",
        ", source = \"me\", assumed = \"the CPU",
        "gap",
        "exactly one of source, fitted, assumed",
    ),
    (
        ", assumed = \"the CPU and the link are slower than the NIC\"",
        "",
        "gap",
        "exactly one of source, fitted, assumed",
    ),
    (
        "look = { value = 100",
        "look = { value = 0",
        "look",
        "host.look is 0, and time would stand still",
    ),
    ("packet = { value = 1472", "packet = { value = 0.5", "packet", "nic.packet is 0.5 \"B\""),
    (
        "shape = { value = \"star\"",
        "shape = { value = \"moebius\"",
        "shape",
        "must be one of direct, star, tree",
    ),
    // No kind of NIC passes packets on.
    (
        "shape = { value = \"star\"",
        "shape = { value = \"chain\"",
        "shape",
        "topology.shape is \"chain\"; it must be one of direct, star, tree",
    ),
    ("kind = \"loggp\"", "kind = \"pigeon\"", "kind", "kind is \"pigeon\"; there are"),
];

#[test]
fn mistakes_name_line_and_key() {
    for (from, to, key, says) in MISTAKES {
        let text = with(from, to);
        let said = complaint(&text, None);
        assert!(said.contains(says), "{said}");
        assert!(said.contains(&format!("line {}:", line_of(&text, key))), "{said}");
    }
}

/// Packets of 64 B and of 1 MiB are allowed, as the error says.
#[test]
fn packets_have_limits() {
    for (name, packet) in
        [("sr2201", "packet = { value = 1024"), ("dimmnet-2", "packet = { value = 2048")]
    {
        let text = BUILT_IN.iter().find(|(built_in, _)| *built_in == name).unwrap().1;
        assert!(text.contains(packet), "{name}");
        let with = |bytes: u32| text.replacen(packet, &format!("packet = {{ value = {bytes}"), 1);
        for bytes in [64, 1 << 20] {
            let machine = Machine::parse("mine.toml", &with(bytes), None).unwrap();
            World::build(&machine, 2, 1, Box::new(PlainMemory::new(2, 64)))
                .unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        for bytes in [63, (1 << 20) + 1] {
            let said = complaint(&with(bytes), None);
            assert!(said.contains("nic.packet must be from 64 B to 1 MiB"), "{name}: {said}");
        }
    }
}

#[test]
fn what_is_no_machine_file_is_named_by_its_line() {
    assert!(complaint("kind = ", None).contains("line 1"), "not TOML");
    let variant = format!("{}\n[variant]\nquick = 7\n", text());
    let line = variant.lines().count();
    assert_eq!(
        complaint(&variant, Some("quick")),
        format!("machine mine.toml, line {line}: variant.quick must be a section")
    );
}

/// Of a missing parameter, no clock is taken for the misspelling: clocks have any names.
#[test]
fn clocks_are_named_where_a_clock_is_missing() {
    let clock = "\n[clock]\nsun = { value = 1, unit = \"MHz\", assumed = \"a test\" }\n";
    let gap = complaint(&format!("{}{clock}", with("gap = ", "# gap = ")), None);
    assert!(gap.contains("nic.gap is missing") && !gap.contains("sun"), "{gap}");
}

#[test]
fn variants_can_be_named() {
    for name in ["", "a/b"] {
        let said = complaint(&format!("{}\n[variant.{name:?}]\n", text()), None);
        assert!(said.contains("must have a name, without a slash"), "{said}");
    }
    // Of a variant that lacks a parameter, the others are no way out.
    let lacking = format!("{}\n[variant.slow]\n", with("gap = ", "# gap = "));
    assert!(complaint(&lacking, None).contains("or name one of the variants slow"));
    assert!(!complaint(&lacking, Some("slow")).contains("or name"));
}

#[test]
fn variants_differ_where_they_say() {
    let variants = format!(
        "{}\n[variant.quick]\nhost.look = {{ value = 7, unit = \"ns\", assumed = \"a test\" }}\n\
         [variant.quicker]\nlike = \"quick\"\nnic.gap = {{ value = 3, unit = \"cycles of cpu\", assumed = \"a test\" }}\n\
         clock.cpu = {{ value = 200, unit = \"MHz\", assumed = \"a test\" }}\n[variant.vain]\nlike = \"vain\"\n",
        text()
    );
    let machine = Machine::parse("mine", &variants, Some("quicker")).unwrap();
    assert_eq!((machine.name(), machine.variants().len()), ("mine/quicker", 3));
    assert_eq!(machine.section("host").time("look").unwrap().0, 7_000);
    assert_eq!(machine.section("nic").time("gap").unwrap().0, 15_000);
    assert_eq!(
        Machine::parse("mine", &variants, None).unwrap().section("host").time("look").unwrap().0,
        100_000
    );
    assert!(complaint(&variants, Some("vain")).contains("is like itself"));
    assert!(complaint(&variants, Some("other")).contains("there are quick, quicker, vain"));
}

#[test]
fn unknown_names_are_answered_with_the_known() {
    let error = Machine::load("hypercube").unwrap_err().to_string();
    assert!(error.contains("rdma-100g"), "{error}");
    assert!(Machine::load("/nowhere/x.toml").unwrap_err().to_string().contains("cannot be read"));
    // A file that has no end.
    let endless = std::env::temp_dir().join(format!("endless-{}.toml", std::process::id()));
    std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
    let error = Machine::load(endless.to_str().unwrap()).unwrap_err().to_string();
    std::fs::remove_file(&endless).unwrap();
    assert!(error.contains("no regular file"), "{error}");
}
