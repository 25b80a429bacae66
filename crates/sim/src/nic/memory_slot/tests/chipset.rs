//! Addresses that the NIC recovers from rows and columns.

use super::*;
use command::Chipset;

/// The NIC of a board with a Pro133 finds the kick page; told that it is another chipset, it takes
/// the store for one to another page.
#[test]
fn a_wrong_rule_sends_a_store_elsewhere() {
    let mut bench = Bench::new("dimmnet-1/D", 2);
    bench.command(0, command::map(4, &seed(1, 0x2000)));
    let store = |value| HostOp::Command(command::kick(4, 16, Payload::word(2, value)));
    assert_eq!(bench.ask(0, store(1)).refused, None);
    bench.settle();
    assert_eq!(bench.seen(1, 0x2010, 2), [1, 0]);
    let page = |chipset: Chipset, bench: &mut Bench| {
        bench.command(0, command::recover_as(chipset));
        bench.ask(0, store(2)).refused
    };
    // Bit 14 is on a row's line of the Pro133, on which the BX has bit 16.
    let refused = page(Chipset::Bx, &mut bench).expect("that page is not mapped");
    assert!(refused.contains("kick page 16, which is not mapped"), "{refused}");
    bench.command(0, command::map(16, &seed(1, 0x3000)));
    assert_eq!(page(Chipset::Bx, &mut bench), None);
    bench.settle();
    assert_eq!((bench.seen(1, 0x2010, 2), bench.seen(1, 0x3010, 2)), (vec![1, 0], vec![2, 0]));
    assert_eq!(page(Chipset::Pro133, &mut bench), None);
    bench.settle();
    assert_eq!(bench.seen(1, 0x2010, 2), [2, 0]);
    let unknown = HostOp::Command(command::recover_as(Chipset::I845));
    assert!(bench.ask(0, unknown).refused.unwrap().contains("first version"));
}

/// The stages of a store do not depend on the rule: recovery is wires.
#[test]
fn every_supported_chipset_works_and_the_others_are_refused() {
    let with = |chipset: &str, version: &str| {
        let text = include_str!("../../../../../../machines/dimmnet-1.toml")
            .replace(
                "chipset_rule = { value = \"Pro133\"",
                &format!("chipset_rule = {{ value = \"{chipset}\""),
            )
            .replace(
                "version = { value = \"first\"",
                &format!("version = {{ value = \"{version}\""),
            );
        Machine::parse("board", &text, Some("D")).unwrap()
    };
    let all = ["BX", "i810", "i815", "Pro133", "Pro266", "KT133", "KT266", "P4X266", "P4M266"];
    let mut times = Vec::new();
    for (chipset, version) in
        all.map(|chipset| (chipset, "first")).into_iter().chain([("i845", "second")])
    {
        let mut bench = Bench::of(&with(chipset, version), 2);
        bench.command(0, command::map(9, &seed(1, 0)));
        bench.command(0, command::kick(9, 8, Payload::word(4, 7)));
        bench.settle();
        assert_eq!(bench.seen(1, 8, 1), [7], "{chipset}");
        times.push(bench.world.now());
    }
    assert!(times.iter().all(|time| *time == times[0]), "{times:?}");
    let said = with("i845", "first").check().unwrap_err().to_string();
    assert!(said.contains("host.chipset_rule is i845") && said.contains("send.version"), "{said}");
    assert!(said.contains("KT266") && with("SiS630", "second").check().is_err(), "{said}");
}
