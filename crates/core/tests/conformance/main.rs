//! The conformance suite. It tests the promises of the contract in
//! [`memonet_core::unstable::fabric`] and of the public calls' documentation, for near and far
//! peers, on each fabric: the most helpful and the least helpful one, sockets, libfabric. Where
//! libfabric is missing, its tests say so and are skipped.
//!
//! [`ground`] makes the PEs, threads here. The simulator runs these tests on PEs of its own.
//!
//! A test is a function of a [`setup::Setup`]; `on_every_fabric!` makes it a test on each. A test
//! that hangs fails after [`setup::PATIENCE`], and the others go on.

/// Makes each function a test on every fabric. Functions whose PEs have several threads are listed
/// apart, because not every fabric supports these. So are those about the choice of algorithms for
/// collectives, which depends on nodes alone: they run once for each sort of nodes, on the fabric
/// that disturbs its messages most, and once on sockets.
///
/// Three set-ups run other code than the rest only in what some files are about, which name them:
///
/// * `recorded`: operations on windows and segments, waits, and the counters of shared data and
///   channels. The library's own operations are not recorded.
/// * `copying`: what notifies all members of a team at once.
/// * `streams_dealt`: what asks which PEs share a node. For other code, these PEs are those of
///   `streams_mixed` with other numbers, which `dealt` has, too.
macro_rules! on_every_fabric {
    (@ $module:ident $setup:ident [$($test:ident)*]) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    if crate::setup::$setup.is_here() {
                        super::$test(crate::setup::$setup);
                    }
                }
            )*
        }
    };
    (@ also [] $tests:tt) => {};
    (@ also [recorded $($rest:ident)*] $tests:tt) => {
        on_every_fabric!(@ recorded RECORDED $tests);
        on_every_fabric!(@ also [$($rest)*] $tests);
    };
    (@ also [copying $($rest:ident)*] $tests:tt) => {
        on_every_fabric!(@ copying COPYING $tests);
        on_every_fabric!(@ also [$($rest)*] $tests);
    };
    (@ also [streams_dealt $($rest:ident)*] $tests:tt) => {
        on_every_fabric!(@ streams_dealt STREAMS_DEALT $tests);
        on_every_fabric!(@ also [$($rest)*] $tests);
    };
    (
        $([also on $($also:ident),*])?
        $($test:ident),* $(,)?
        $(; with threads of their own: $($threads:ident),* $(,)?)?
        $(; about the choice of algorithms: $($choice:ident),* $(,)?)?
    ) => {
        on_every_fabric!(@ near NEAR [$($test)* $($($threads)*)? $($($choice)*)?]);
        on_every_fabric!(@ far FAR [$($test)* $($($threads)*)?]);
        on_every_fabric!(@ late LATE [$($test)* $($($threads)*)?]);
        on_every_fabric!(@ shuffled SHUFFLED [$($test)* $($($threads)*)? $($($choice)*)?]);
        on_every_fabric!(@ mixed MIXED [$($test)* $($($threads)*)? $($($choice)*)?]);
        on_every_fabric!(@ dealt DEALT [$($test)* $($($threads)*)? $($($choice)*)?]);
        on_every_fabric!(@ streams STREAMS [$($test)* $($($threads)*)?]);
        on_every_fabric!(
            @ streams_mixed STREAMS_MIXED [$($test)* $($($threads)*)? $($($choice)*)?]
        );
        on_every_fabric!(@ libfabric LIBFABRIC [$($test)* $($($threads)*)?]);
        on_every_fabric!(@ also [$($($also)*)?] [$($test)* $($($threads)*)?]);
    };
}

mod algorithms;
mod among;
mod atomics;
mod attention;
mod barriers;
mod blocks;
mod calls;
mod checked;
mod collectives;
mod contradictions;
mod dying;
mod events;
mod failure;
mod given_up;
mod ground;
mod histories;
mod jobs;
mod leaving;
mod limits;
mod locks;
mod messages;
mod mixed;
mod model;
mod multicast;
mod multicast_ends;
mod mutex_failures;
mod mutexes;
mod nodes;
mod orders;
mod outside;
mod refusals;
mod regions;
mod restricted;
mod revoking;
mod rwlocks;
mod segments;
mod setup;
mod splits;
mod strided;
mod supersteps;
mod teams;
mod threads;
mod transfers;
mod two_jobs;
mod values;
mod waits;
mod weak;
mod windows;
mod words;
