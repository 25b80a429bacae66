use super::*;

const DIMMNET_2: &str = include_str!("../../../../machines/dimmnet-2.toml");

/// DIMMnet-2 with these lanes, `key = value` each.
fn parse(keys: &[(&str, &str)]) -> Result<Lanes, MachineError> {
    let parameter = |(key, value): &(&str, &str)| {
        let unit = if value.ends_with('0') { ", unit = \"B\"" } else { "" };
        format!("{key} = {{ value = {value}{unit}, assumed = \"a test\" }}\n")
    };
    let keys: String = keys.iter().map(parameter).collect();
    let text = format!("{DIMMNET_2}\n[variant.tested]\n{keys}");
    Lanes::read(&Machine::parse("tested", &text, Some("tested")).unwrap())
}

fn lanes(limit: u64, high: &[u64], low: &[u64]) -> Lanes {
    let (high, low) = (high.to_vec(), low.to_vec());
    Lanes { several: true, limit, high, low, levels: [0; LEVELS] }
}

/// The lanes that send, one after the other, where these have packets of so many bytes for ever.
fn order<const N: usize>(lanes: Lanes, ready: &[(usize, u64)]) -> [u8; N] {
    let mut arbiter = Arbiter::new(Arc::new(lanes));
    let mut of_lanes = Ready::default();
    ready.iter().for_each(|&(lane, bytes)| of_lanes[lane] = Some(bytes));
    std::array::from_fn(|_| arbiter.pick(&of_lanes).unwrap())
}

#[test]
fn lanes_of_a_table_take_turns_by_their_weights() {
    let tables = lanes(0, &[0, 0, 0], &[200, 100, 50]);
    let all = [(0, 100), (1, 100), (2, 100)];
    assert_eq!(order(tables.clone(), &all), [1, 2, 0, 0, 1, 2, 0, 0, 1]);
    // The last packet of a turn goes whole.
    assert_eq!(order(tables.clone(), &[(0, 150), (1, 40)]), [1, 1, 1, 0, 0, 1, 1, 1, 0]);
    assert_eq!(order(tables, &[(0, 1000)]), [0, 0, 0]);
}

#[test]
fn the_low_table_has_one_packet_after_the_limit() {
    let tables = |limit| lanes(limit, &[100, 0], &[0, 100]);
    let both = [(0, 100), (1, 100)];
    assert_eq!(order(tables(0), &both), [0, 1, 0, 1, 0, 1]);
    assert_eq!(order(tables(100), &both), [0, 1, 0, 1, 0, 1]);
    assert_eq!(order(tables(250), &both), [0, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!(order(tables(250), &[(1, 100)]), [1, 1]);
    // A lane in both tables comes by either.
    assert_eq!(order(lanes(200, &[100, 100], &[0, 100]), &both), [1, 0, 1, 1, 0, 1]);
}

/// What went while the low table had nothing to send does not count.
#[test]
fn the_limit_counts_from_when_a_low_packet_waits() {
    let mut arbiter = Arbiter::new(Arc::new(lanes(300, &[100, 0], &[0, 100])));
    let mut ready = Ready::default();
    ready[0] = Some(100);
    (0..10).for_each(|_| assert_eq!(arbiter.pick(&ready), Some(0)));
    ready[1] = Some(100);
    let next: Vec<_> = (0..4).map(|_| arbiter.pick(&ready).unwrap()).collect();
    assert_eq!(next, [0, 0, 1, 0], "the last of the ten counts, as nothing was ready after it");
}

#[test]
fn a_lane_that_is_not_ready_loses_the_rest_of_its_weight() {
    let mut arbiter = Arbiter::new(Arc::new(lanes(0, &[0, 0], &[300, 100])));
    let (both, other) = ([Some(100), Some(100)], [None, Some(100)]);
    let mut pick = |two: [Option<u64>; 2]| {
        let mut ready = Ready::default();
        ready[..2].copy_from_slice(&two);
        arbiter.pick(&ready).unwrap()
    };
    assert_eq!([both, both, other].map(&mut pick), [1, 0, 1]);
    assert_eq!([both; 5].map(&mut pick), [0, 0, 0, 1, 0], "a turn is whole again");
}

#[test]
fn management_goes_first() {
    let all = [(0, 100), (1, 100), (2, 100)];
    assert_eq!(order(lanes(0, &[1, 0], &[0, 1]), &all), [2, 2, 2]);
    assert_eq!(Arbiter::new(Arc::new(lanes(0, &[1], &[1]))).pick(&Ready::default()), None);
}

#[test]
fn levels_have_the_lanes_that_the_machine_says() {
    let tables = [("lanes.limit", "0"), ("lanes.0.low", "10"), ("lanes.1.high", "10")];
    let with = |more: &[(&'static str, &'static str)]| parse(&[&tables, more].concat());
    let plain = with(&[("lanes.count", "2")]).unwrap();
    let of = |lanes: &Lanes| [0, 1, 2, 15].map(|level| lanes.of(Service::Level(level)));
    assert_eq!((of(&plain), plain.of(Service::Management), plain.count()), ([0, 1, 0, 0], 2, 3));
    let set = with(&[("lanes.count", "2"), ("lanes.service.15", "1")]).unwrap();
    assert_eq!(of(&set), [0, 1, 0, 1]);
    let one = parse(&[]).unwrap();
    assert_eq!((one.clone(), one.count(), one.of(Service::Management)), (Lanes::one(), 1, 0));
    let most: Vec<String> = (0..15).map(|lane| format!("lanes.{lane}.high")).collect();
    let most: Vec<_> = most.iter().map(|key| (key.as_str(), "10")).collect();
    let most = [&[("lanes.count", "15"), ("lanes.limit", "0")], &most[..]].concat();
    let most = parse(&most).unwrap();
    assert_eq!((most.count(), most.of(Service::Management)), (MOST, 15));
}

#[test]
fn lanes_that_cannot_work_are_refused() {
    let error = |keys: &[(&str, &str)]| parse(keys).unwrap_err().to_string();
    let low = ("lanes.0.low", "10");
    assert!(error(&[("lanes.count", "16"), low]).contains("from 1 to 15"));
    assert!(error(&[("lanes.count", "1")]).contains("lane 0 would never send"));
    assert!(error(&[("lanes.count", "2"), low]).contains("lane 1 would never send"));
    assert!(error(&[("lanes.count", "1"), low]).contains("lanes.limit"));
    let four = ("lanes.service.3", "1");
    let limit = ("lanes.limit", "0");
    assert!(error(&[("lanes.count", "1"), low, limit, four]).contains("is lane 1"));
}
