//! The layout of a job's memory: parts in order, disjoint, aligned, and within the file, for any
//! number of PEs and any size.

use memonet_core::unstable::layout::{
    BarrierSlot, Geometry, HUGE_PAGE, JobHeader, MAX_BARRIERS, MAX_HOSTED, MAX_KEYS, PeRecord,
    SystemArea,
};
use proptest::prelude::*;

/// Sizes of heaps: small, round, odd, and larger than the address space.
fn heaps() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..1u64 << 20,
        (0..44u32).prop_map(|shift| 1 << shift),
        0..1u64 << 45,
        (0..64u32, any::<u64>()).prop_map(|(shift, ragged)| ragged >> shift),
        (0..1u64 << 22).prop_map(|less| u64::MAX - less),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_lie_side_by_side(npes in 1..=MAX_HOSTED, heap in heaps(), pe: prop::sample::Index, key in 0..MAX_KEYS, home: prop::sample::Index) {
        let Some(g) = Geometry::new(npes, heap) else {
            // Refused only if the parts would not fit into a file.
            prop_assert!(u128::from(heap) * npes as u128 > i64::MAX as u128 / 2);
            return Ok(());
        };
        let (pe, home) = (pe.index(npes), home.index(npes));
        prop_assert_eq!(g.npes, npes);
        prop_assert!(g.heap_size() >= heap, "at least what was asked for");
        prop_assert!(g.heap_size() - heap <= 2 * HUGE_PAGE, "and not much more");

        // The control part: header, records, doorbells.
        prop_assert!(size_of::<JobHeader>() as u64 <= Geometry::RECORDS);
        prop_assert!(g.record(pe).is_multiple_of(align_of::<PeRecord>() as u64));
        prop_assert!(g.record(0) >= Geometry::RECORDS);
        prop_assert!(g.record(npes - 1) + size_of::<PeRecord>() as u64 <= g.doorbell(0));
        prop_assert!(g.doorbell(pe).is_multiple_of(4));
        prop_assert!(g.doorbell(npes - 1) + 4 <= g.segments);
        if pe > 0 {
            prop_assert!(g.record(pe) >= g.record(pe - 1) + size_of::<PeRecord>() as u64);
            prop_assert!(g.doorbell(pe) >= g.doorbell(pe - 1) + 4);
            prop_assert!(g.segment(pe) >= g.segment(pe - 1) + g.segment_stride);
        }

        // Segments: tables, counts of holds, mail, heap.
        prop_assert_eq!(g.segment(0), g.segments);
        prop_assert!(g.segment(pe).is_multiple_of(HUGE_PAGE) && g.heap_offset.is_multiple_of(HUGE_PAGE));
        prop_assert!(g.hold(0, 0) >= size_of::<SystemArea>() as u64);
        prop_assert!(g.hold(key, home).is_multiple_of(4));
        prop_assert!(g.hold(MAX_KEYS - 1, npes - 1) + 4 <= g.mail(0) && g.mail(0).is_multiple_of(8));
        prop_assert!(g.mail(npes - 1) + 8 <= g.heap_offset);
        prop_assert!(g.mail(npes - 1) + 8 <= g.staging(0).start);
        prop_assert_eq!(g.staging(0).end, g.staging(1).start);
        prop_assert_eq!(g.staging(MAX_BARRIERS - 1).end, g.heap_offset);
        prop_assert_eq!(g.heap_offset + g.heap_size(), g.globals_offset);
        prop_assert_eq!(g.globals_offset + g.globals_size(), g.segment_stride);
        prop_assert!(g.globals_size() >= g.heap_size() / 4 && g.globals_offset.is_multiple_of(HUGE_PAGE));
        prop_assert!(g.segment(npes - 1) + g.segment_stride <= g.file_size());
        prop_assert!(g.file_size() <= i64::MAX as u64);
    }

    /// Two counts of holds are never the same word.
    #[test]
    fn holds_are_apart(npes in 1..=MAX_HOSTED, a: (prop::sample::Index, prop::sample::Index), b: (prop::sample::Index, prop::sample::Index)) {
        let g = Geometry::new(npes, 1 << 20).unwrap();
        let [a, b] = [a, b].map(|(key, home)| (key.index(MAX_KEYS), home.index(npes)));
        prop_assert_eq!(a == b, g.hold(a.0, a.1).abs_diff(g.hold(b.0, b.1)) < 4);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    for npes in [0, MAX_HOSTED + 1, usize::MAX] {
        assert_eq!(Geometry::new(npes, 1 << 20), None, "{npes} PEs");
    }
    for heap in [u64::MAX, u64::MAX - HUGE_PAGE, i64::MAX as u64, u64::MAX / 2] {
        assert_eq!(Geometry::new(2, heap), None, "{heap} bytes");
    }
    assert!(Geometry::new(MAX_HOSTED, 0).is_some());
}

/// Words that different PEs often store to do not share a cache line.
#[test]
fn hot_words_have_lines_of_their_own() {
    assert!(
        size_of::<PeRecord>().is_multiple_of(128) && size_of::<BarrierSlot>().is_multiple_of(128)
    );
    assert!(align_of::<BarrierSlot>() >= 128);
}
