//! The core's conformance suite on simulated machines: the same files, with PEs that are
//! coroutines.
//!
//! Left out are the tests whose PEs have threads of their own, which a simulated PE has not; those
//! of shared memory alone; and those that show what the test fabric's disorder catches, as a
//! simulated network has an order of its own.

/// Makes each function a test on every machine. What a file is also for is for fabrics of threads.
macro_rules! on_every_fabric {
    (@ $module:ident $setup:ident [$($test:ident)*]) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::$test(crate::ground::$setup);
                }
            )*
        }
    };
    (
        $([also on $($also:ident),*])?
        $($test:ident),* $(,)?
        $(; with threads of their own: $($threads:ident),* $(,)?)?
        $(; about the choice of algorithms: $($choice:ident),* $(,)?)?
    ) => {
        on_every_fabric!(@ agents AGENTS [$($test)* $($($choice)*)?]);
        on_every_fabric!(@ remote_dma REMOTE_DMA [$($test)* $($($choice)*)?]);
        on_every_fabric!(@ memory_slot MEMORY_SLOT [$($test)* $($($choice)*)?]);
        on_every_fabric!(@ core_processor CORE_PROCESSOR [$($test)* $($($choice)*)?]);
        on_every_fabric!(@ shared SHARED [$($test)* $($($choice)*)?]);
        on_every_fabric!(@ command_word COMMAND_WORD [$($test)* $($($choice)*)?]);
        on_every_fabric!(@ shared_command_word SHARED_COMMAND_WORD [$($test)* $($($choice)*)?]);
        on_every_fabric!(@ infiniband INFINIBAND [$($test)* $($($choice)*)?]);
        on_every_fabric!(@ wires WIRES [$($test)* $($($choice)*)?]);
    };
}

mod ground;

macro_rules! of_the_core {
    ($($name:ident $path:literal),* $(,)?) => {
        $(
            #[path = $path]
            #[allow(dead_code, unused_imports, reason = "some tests are for threads")]
            mod $name;
        )*
    };
}

of_the_core!(
    atomics "../../../core/tests/conformance/atomics.rs",
    attention "../../../core/tests/conformance/attention.rs",
    barriers "../../../core/tests/conformance/barriers.rs",
    blocks "../../../core/tests/conformance/blocks.rs",
    collectives "../../../core/tests/conformance/collectives.rs",
    contradictions "../../../core/tests/conformance/contradictions.rs",
    failure "../../../core/tests/conformance/failure.rs",
    given_up "../../../core/tests/conformance/given_up.rs",
    jobs "../../../core/tests/conformance/jobs.rs",
    leaving "../../../core/tests/conformance/leaving.rs",
    limits "../../../core/tests/conformance/limits.rs",
    locks "../../../core/tests/conformance/locks.rs",
    messages "../../../core/tests/conformance/messages.rs",
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
    supersteps "../../../core/tests/conformance/supersteps.rs",
    teams "../../../core/tests/conformance/teams.rs",
    transfers "../../../core/tests/conformance/transfers.rs",
    values "../../../core/tests/conformance/values.rs",
    waits "../../../core/tests/conformance/waits.rs",
    windows "../../../core/tests/conformance/windows.rs",
    words "../../../core/tests/conformance/words.rs",
);
