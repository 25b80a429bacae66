//! The conformance suite: what the contract in [`memonet_core::unstable::fabric`] and the
//! documentation of the public calls promise, asked of near peers and of far ones, at the fabric's
//! most helpful and at its least.
//!
//! What PEs are, threads here, is the business of [`ground`]: other crates run the same tests on
//! theirs.
//!
//! A test is a function of a [`setup::Setup`]; `on_every_fabric!` makes it a test on each. A test
//! that hangs fails after [`setup::PATIENCE`], and the others go on.

/// Makes each function a test on every fabric. Those whose PEs have several threads stand apart, as
/// not every fabric serves these.
macro_rules! on_every_fabric {
    (@ $module:ident $setup:ident [$($test:ident)*]) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::$test(crate::setup::$setup);
                }
            )*
        }
    };
    ($($test:ident),* $(,)? $(; with threads of their own: $($threads:ident),* $(,)?)?) => {
        on_every_fabric!(@ near NEAR [$($test)* $($($threads)*)?]);
        on_every_fabric!(@ far FAR [$($test)* $($($threads)*)?]);
        on_every_fabric!(@ late LATE [$($test)* $($($threads)*)?]);
        on_every_fabric!(@ shuffled SHUFFLED [$($test)* $($($threads)*)?]);
        on_every_fabric!(@ mixed MIXED [$($test)* $($($threads)*)?]);
        on_every_fabric!(@ dealt DEALT [$($test)* $($($threads)*)?]);
    };
}

mod algorithms;
mod among;
mod atomics;
mod attention;
mod barriers;
mod blocks;
mod checked;
mod collectives;
mod contradictions;
mod failure;
mod given_up;
mod ground;
mod histories;
mod jobs;
mod leaving;
mod limits;
mod locks;
mod mixed;
mod model;
mod multicast;
mod multicast_ends;
mod mutex_failures;
mod mutexes;
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
mod teams;
mod threads;
mod transfers;
mod two_jobs;
mod waits;
mod weak;
mod windows;
mod words;
