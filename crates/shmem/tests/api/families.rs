//! A program for each family of functions, in jobs of all sizes, on shared memory and on the test
//! network.

use crate::program::{Job, Language, Source, c};

/// What has one name for all types.
pub const GENERIC: &[&str] = &["amo.c", "move.c", "reduce.c", "rma.c", "signal.c", "wait.c"];

/// Sizes of jobs on shared memory, and which part of the cases they go through: one in so many, and
/// others for each size.
const SIZES: [(usize, usize); 9] =
    [(1, 1), (2, 1), (3, 1), (4, 2), (5, 3), (6, 3), (7, 3), (8, 3), (17, 4)];
/// PEs on the test network, which takes its time.
const FAR_SIZES: [(usize, usize); 4] = [(1, 4), (2, 1), (3, 4), (5, 12)];

fn everywhere(file: &'static str) {
    for (npes, every) in SIZES {
        // Where it goes through a part, this one meets before each reduction.
        let every = if file == "reduce.c" { 1 } else { every };
        let job = Job::new(c(file), npes).env("EVERY", &every.to_string());
        job.env("SEED", &npes.to_string()).succeed();
    }
    for (seed, (npes, every)) in FAR_SIZES.into_iter().enumerate() {
        let job = Job::new(c(file), npes).far(seed);
        job.env("EVERY", &every.to_string()).env("SEED", &seed.to_string()).succeed();
    }
    // Nodes of 2 and 1; nodes to which PEs are dealt in turn, with other numbers of CPUs.
    for (npes, settings) in [(3, "delay_us=20,reorder=1"), (4, "deal=1,cpus=1")] {
        Job::new(c(file), npes).mixed(settings).env("EVERY", "8").succeed();
    }
    // A PE that records makes each call by its long way.
    Job::new(c(file), 3).recorded().env("EVERY", "2").succeed();
    Job::new(c(file), 3).recorded().mixed("delay_us=20,reorder=1").env("EVERY", "8").succeed();
    // With all checks on, nothing is wrong either.
    Job::new(c(file), 3).env("MEMONET_CHECK", "1").env("EVERY", "3").succeed();
}

macro_rules! families {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            everywhere(concat!(stringify!($name), ".c"));
        }
    )*};
}
families!(active amo context exchange extension lock memory messages mix multicast order reduce rma session sets shared signal team threads wait);

#[test]
fn moving_collectives() {
    everywhere("move.c");
}

/// The PE in the middle belongs to more active sets than a job has teams.
#[test]
fn more_sets_than_teams() {
    Job::new(c("many_sets.c"), 28).succeed();
}

#[test]
fn other_orders() {
    for seed in 1..6 {
        let job = |npes| Job::new(c("mix.c"), npes).env("SEED", &seed.to_string());
        job(2 + seed).succeed();
        job(2 + seed % 3).far(seed).succeed();
    }
}

#[test]
fn names_for_all_types() {
    for language in [Language::GenericC, Language::Cxx] {
        for file in GENERIC {
            for npes in [1, 3] {
                Job::new(Source { file, language }, npes).succeed();
            }
        }
    }
}
