use super::*;
use proptest::prelude::*;

fn address() -> impl Strategy<Value = SocketAddr> {
    let ip = prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ];
    (ip, any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
}

fn costs() -> impl Strategy<Value = Costs> {
    (any::<[u32; 4]>(), any::<[bool; 2]>()).prop_map(|([a, b, c, d], [gets, atomics])| Costs {
        put_ns: a.into(),
        get_ns: b.into(),
        bytes_per_s: c.into(),
        hardware_gets: gets,
        hardware_atomics: atomics,
        eager_bytes: d as usize,
    })
}

/// Each node has a PE; further PEs are anywhere.
fn job() -> impl Strategy<Value = Job> {
    (1..20usize).prop_flat_map(|count| {
        let nodes = (
            prop::collection::vec("[a-zé.0-9-]{1,40}", count),
            prop::collection::vec(prop::collection::vec(address(), 0..4), count),
            prop::collection::vec(1..=MOST_CPUS, count),
            prop::collection::vec(0..count as u32, 0..60),
            0..count as u32,
        );
        let provider = prop::option::of("[a-z;_é]{1,40}");
        let rest = (prop::option::of(costs()), provider, any::<[u8; 16]>(), any::<[u8; 32]>());
        (nodes, rest).prop_map(|((names, addresses, cpus, more, node), rest)| {
            let (costs, provider, id, secret) = rest;
            let node_of: Vec<u32> = more.into_iter().chain(0..names.len() as u32).collect();
            let pes = |node| node_of.iter().filter(|&&of| of as usize == node).count() as u32;
            let nodes = names.into_iter().zip(addresses).zip(cpus).enumerate();
            let nodes = nodes
                .map(|(i, ((name, addresses), cpus))| NodeInfo {
                    name,
                    addresses,
                    cpus,
                    pes: pes(i),
                })
                .collect();
            let secret = Secret::from_bytes(secret);
            Job { id, secret, node, nodes, node_of, costs, provider }
        })
    })
}

proptest! {
    #[test]
    fn bytes_say_what_was_said(job in job(), cut: prop::sample::Index) {
        let bytes = job.encode().unwrap();
        prop_assert_eq!(Job::decode(&bytes).unwrap(), job.clone());
        let description = job.description();
        prop_assert_eq!(&bytes[SECRET_BYTES..], &description.encode().unwrap()[..]);
        prop_assert!(Job::decode(&bytes[..cut.index(bytes.len())]).is_err());
        prop_assert_eq!(Job::decode(&[&bytes[..], &[0]].concat()), Err(Wrong::Length));
    }

    /// What is read of any bytes keeps all bounds.
    #[test]
    fn garbage_is_refused_or_a_job(
        job in job(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = job.encode().unwrap().to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(read) = Job::decode(&bytes) {
            prop_assert_eq!(&read.encode().unwrap()[..], &bytes[..]);
        }
    }

    #[test]
    fn noise_is_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..300), magic: bool) {
        if magic && bytes.len() >= 12 {
            bytes[..8].copy_from_slice(&MAGIC);
            bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        }
        if let Ok(read) = Description::decode(&bytes) {
            prop_assert_eq!(read.encode().unwrap(), bytes);
        }
    }
}

fn small() -> Job {
    let node = |name: &str| NodeInfo { name: name.into(), addresses: vec![], cpus: 1, pes: 1 };
    Job {
        id: [1; 16],
        secret: Secret::from_bytes([7; 32]),
        node: 0,
        nodes: vec![node("a"), node("b")],
        node_of: vec![0, 1],
        costs: None,
        provider: None,
    }
}

#[test]
fn what_breaks_a_bound_is_not_written() {
    let breaks: [fn(&mut Job); 11] = [
        |job| job.node_of.clear(),
        |job| job.node_of = vec![0; MOST_PES + 1],
        |job| job.nodes.clear(),
        |job| job.node = 2,
        |job| job.node_of[0] = 2,
        |job| job.nodes[0].pes = 2,
        |job| job.nodes[1].name = "x".repeat(LONGEST_NAME + 1),
        |job| job.nodes[1].cpus = 0,
        |job| job.provider = Some(String::new()),
        |job| job.provider = Some("x".repeat(LONGEST_NAME + 1)),
        |job| job.nodes[1].addresses = vec![([1, 2, 3, 4], 5).into(); MOST_ADDRESSES + 1],
    ];
    assert!(small().encode().is_ok());
    for (number, change) in breaks.iter().enumerate() {
        let mut job = small();
        change(&mut job);
        assert!(matches!(job.encode(), Err(Wrong::Bounds(_))), "{number}");
    }
}

#[test]
fn another_version_says_so() {
    let mut bytes = small().description().encode().unwrap();
    bytes[8] = 9;
    assert_eq!(Description::decode(&bytes), Err(Wrong::Version(9)));
    assert_eq!(Description::decode(b"#!/bin/sh"), Err(Wrong::NoJob));
}

#[test]
fn the_largest_jobs_fit() {
    let mut job = small();
    let addresses = vec![([0xfd; 16], 40000).into(); 4];
    let name = "node-with-a-rather-long-name.of.a.cluster".to_owned();
    let node = NodeInfo { name, addresses, cpus: 256, pes: 4 };
    job.nodes = vec![node; 1000];
    job.node_of = (0..4000).map(|pe| pe / 4).collect();
    assert_eq!(Job::decode(&job.encode().unwrap()), Ok(job));
}
