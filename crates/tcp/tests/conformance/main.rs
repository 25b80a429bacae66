//! The core's conformance suite on the protocol: the same files, with streams between the PEs.

/// Makes each function a test on all PEs far from each other, and on two mixtures.
macro_rules! on_every_fabric {
    (@ $module:ident $setup:ident [$($test:ident)*]) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::$test(crate::fabrics::$setup);
                }
            )*
        }
    };
    ($($test:ident),* $(,)? $(; with threads of their own: $($threads:ident),* $(,)?)?) => {
        on_every_fabric!(@ streams STREAMS [$($test)* $($($threads)*)?]);
        on_every_fabric!(@ pairs PAIRS [$($test)* $($($threads)*)?]);
        on_every_fabric!(@ dealt DEALT [$($test)* $($($threads)*)?]);
    };
}

mod fabrics;

macro_rules! of_the_core {
    ($($name:ident $path:literal),* $(,)?) => {
        $(
            #[path = $path]
            #[allow(dead_code, unused_imports, reason = "some tests are for other fabrics")]
            mod $name;
        )*
    };
}

of_the_core!(
    among "../../../core/tests/conformance/among.rs",
    atomics "../../../core/tests/conformance/atomics.rs",
    attention "../../../core/tests/conformance/attention.rs",
    barriers "../../../core/tests/conformance/barriers.rs",
    blocks "../../../core/tests/conformance/blocks.rs",
    collectives "../../../core/tests/conformance/collectives.rs",
    contradictions "../../../core/tests/conformance/contradictions.rs",
    failure "../../../core/tests/conformance/failure.rs",
    given_up "../../../core/tests/conformance/given_up.rs",
    ground "../../../core/tests/conformance/ground.rs",
    histories "../../../core/tests/conformance/histories.rs",
    jobs "../../../core/tests/conformance/jobs.rs",
    leaving "../../../core/tests/conformance/leaving.rs",
    limits "../../../core/tests/conformance/limits.rs",
    locks "../../../core/tests/conformance/locks.rs",
    mixed "../../../core/tests/conformance/mixed.rs",
    model "../../../core/tests/conformance/model.rs",
    multicast "../../../core/tests/conformance/multicast.rs",
    multicast_ends "../../../core/tests/conformance/multicast_ends.rs",
    mutex_failures "../../../core/tests/conformance/mutex_failures.rs",
    mutexes "../../../core/tests/conformance/mutexes.rs",
    orders "../../../core/tests/conformance/orders.rs",
    refusals "../../../core/tests/conformance/refusals.rs",
    regions "../../../core/tests/conformance/regions.rs",
    restricted "../../../core/tests/conformance/restricted.rs",
    revoking "../../../core/tests/conformance/revoking.rs",
    rwlocks "../../../core/tests/conformance/rwlocks.rs",
    segments "../../../core/tests/conformance/segments.rs",
    setup "../../../core/tests/conformance/setup.rs",
    splits "../../../core/tests/conformance/splits.rs",
    strided "../../../core/tests/conformance/strided.rs",
    teams "../../../core/tests/conformance/teams.rs",
    threads "../../../core/tests/conformance/threads.rs",
    transfers "../../../core/tests/conformance/transfers.rs",
    two_jobs "../../../core/tests/conformance/two_jobs.rs",
    waits "../../../core/tests/conformance/waits.rs",
    windows "../../../core/tests/conformance/windows.rs",
    words "../../../core/tests/conformance/words.rs",
);
