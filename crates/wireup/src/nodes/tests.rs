//! Jobs of threads, on nodes that are places of one machine.

use super::*;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};

const LONG: Duration = Duration::from_secs(60);

type Values = HashMap<(u32, String), Vec<u8>>;

/// A store in memory.
#[derive(Clone)]
struct Fake {
    rank: u32,
    size: u32,
    fence: Arc<Barrier>,
    values: Arc<Mutex<Values>>,
    gets: usize,
}

impl Fake {
    fn all(size: u32) -> Vec<Self> {
        let (fence, values) = (Arc::new(Barrier::new(size as usize)), Arc::default());
        let all = (0..size).map(|rank| Fake {
            rank,
            size,
            fence: fence.clone(),
            values: Arc::clone(&values),
            gets: 0,
        });
        all.collect()
    }
}

impl Exchange for Fake {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let before = self.values.lock().unwrap().insert((self.rank, key.into()), value.into());
        assert!(before.is_none(), "a key is used once");
        Ok(())
    }

    fn fence(&mut self, _: &'static str, _: Duration) -> Result<()> {
        self.fence.wait();
        Ok(())
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Vec<u8>> {
        self.gets += 1;
        let value = self.values.lock().unwrap().get(&(rank, key.into())).cloned();
        value.ok_or(Error::Nothing { rank, key: key.into() })
    }
}

/// What each process has found, by number.
fn run(places: &[u32]) -> Vec<(Neighbours, Vec<Node>, u64, usize)> {
    let job = |mut fake: Fake| {
        let place = format!("@{}", places[fake.rank as usize]);
        let near = Neighbours::meet_at(&place, &mut fake, LONG).unwrap();
        let file = |fd: &OwnedFd| fstat(fd).unwrap().st_ino;
        let shared = if near.leads() {
            let shared = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
            let guests = near.welcome(LONG).unwrap();
            let ranks: Vec<u32> = guests.iter().map(|guest| guest.rank).collect();
            assert_eq!(ranks, near.here()[1..]);
            for guest in &guests {
                // Each has left its own socket.
                assert!(guest.left.is_some());
                guest.give(shared.as_fd()).unwrap();
            }
            file(&shared)
        } else {
            file(&near.visit(Some(near.listener.as_fd()), LONG).unwrap())
        };
        let word = format!("node of {}", fake.rank);
        let nodes = near.tell(&mut fake, word.as_bytes(), LONG).unwrap();
        (near, nodes, shared, fake.gets)
    };
    std::thread::scope(|scope| {
        let fakes = Fake::all(places.len() as u32).into_iter();
        let threads: Vec<_> = fakes.map(|fake| scope.spawn(move || job(fake))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn all_find_the_nodes_that_there_are(places in proptest::collection::vec(0u32..4, 1..9)) {
        let found = run(&places);
        let on = |place| -> Vec<u32> {
            (0..places.len() as u32).filter(|&rank| places[rank as usize] == place).collect()
        };
        for (rank, (near, nodes, shared, gets)) in found.iter().enumerate() {
            let here = on(places[rank]);
            prop_assert_eq!(near.here(), &here);
            prop_assert_eq!(near.leads(), here[0] == rank as u32);
            prop_assert_eq!(near.are_all_here(), here.len() == places.len());
            prop_assert_eq!(near.nonce(), found[0].0.nonce());
            prop_assert_eq!(near.secret(), found[0].0.secret());
            prop_assert_eq!(*shared, found[here[0] as usize].2);
            if near.leads() {
                let mut all: Vec<Vec<u32>> = (0..4).map(on).filter(|on| !on.is_empty()).collect();
                all.sort();
                let told = |node: &Vec<u32>| format!("node of {}", node[0]).into_bytes();
                let node = |processes: Vec<u32>| Node { word: told(&processes), processes };
                let all: Vec<Node> = all.into_iter().map(node).collect();
                prop_assert_eq!(nodes, &all);
                // One for the job, one for each node.
                prop_assert_eq!(*gets, 1 + all.len());
            } else {
                prop_assert!(nodes.is_empty());
                prop_assert_eq!(*gets, 1);
            }
        }
    }

    #[test]
    fn garbage_is_no_node(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Some(node) = decode(&bytes) {
            prop_assert_eq!(encode(&node.processes, &node.word), bytes);
        }
    }
}

/// Two processes of one node, of which one has gone another way.
#[test]
fn those_are_named_who_do_not_come() {
    let mut fakes = Fake::all(2).into_iter();
    let (mut first, mut second) = (fakes.next().unwrap(), fakes.next().unwrap());
    std::thread::scope(|scope| {
        let other = scope.spawn(move || Neighbours::meet(&mut second, LONG).unwrap());
        let near = Neighbours::meet(&mut first, LONG).unwrap();
        let other = other.join().unwrap();
        let missing = near.welcome(Duration::from_millis(50)).err().unwrap().to_string();
        assert!(missing.starts_with("PEs 1 of 2"), "{missing}");
        drop(near);
        assert!(other.visit(None, LONG).is_err());
    });
}

#[test]
fn nodes_that_contradict_each_other_are_refused() {
    let job = [&MAGIC[..], &[7; 48]].concat();
    for (mine, others) in [
        (encode(&[0, 2], b""), Some(encode(&[1, 2], b""))),
        (encode(&[0, 1, 2, 3], b""), None),
        (encode(&[1], b""), None),
        (encode(&[0], b""), Some(encode(&[2], b""))),
        (encode(&[0, 0], b""), None),
        (vec![9, 0, 0, 0, 1], None),
    ] {
        let mut fake = Fake::all(3).remove(0);
        fake.fence = Arc::new(Barrier::new(1));
        let listener = open("", |_| Ok(())).unwrap();
        let near = Neighbours {
            rank: 0,
            size: 3,
            nonce: [0; 16],
            secret: [0; 32],
            here: vec![0],
            listener,
            leader: None,
        };
        fake.rank = 1;
        if let Some(others) = others {
            fake.put("node", &others).unwrap();
        }
        // What process 0 has put is replaced by what it might have put.
        struct Replaced(Fake, Vec<u8>);
        impl Exchange for Replaced {
            fn rank(&self) -> u32 {
                0
            }
            fn size(&self) -> u32 {
                3
            }
            fn put(&mut self, _: &str, _: &[u8]) -> Result<()> {
                Ok(())
            }
            fn fence(&mut self, _: &'static str, _: Duration) -> Result<()> {
                Ok(())
            }
            fn get(&mut self, rank: u32, key: &str) -> Result<Vec<u8>> {
                if rank == 0 { Ok(self.1.clone()) } else { self.0.get(rank, key) }
            }
        }
        let refused = near.tell(&mut Replaced(fake.clone(), mine), b"", LONG);
        assert!(matches!(refused, Err(Error::Value { .. })), "{refused:?}");
        let mut other = Replaced(fake, job[..55].to_vec());
        assert!(matches!(Neighbours::meet(&mut other, LONG), Err(Error::Value { rank: 0, .. })));
    }
}
