//! The layout of everything that processes share, and nothing else.
//!
//! One memfd holds a job:
//!
//! ```text
//! 0            JobHeader            4096 bytes, written by the launcher before any PE starts, but for its last two lines
//! 4096         PeRecord[npes]       128 bytes each
//! ...          doorbell[npes]       4 bytes each, packed: one cache line shows sixteen
//! ...          ReportArea[npes]     32 KiB each: what the threads of a PE wait for, once the launcher has asked
//! segments     segment[npes]        `segment_stride` bytes each
//!                SystemArea           fixed tables of the library (below)
//!                holds[MAX_KEYS][npes]  u32: live remotes of this PE into (window, home)
//!                mail[npes]           u64: to which meeting that PE has last told this one that it has come
//!                staging[MAX_BARRIERS]  at `staging_offset`: two halves of `staging_bytes` for each team
//!                heap                 at `heap_offset`: windows
//!                globals              at `globals_offset`: where a front end may put the program's own static data
//! ```
//!
//! Nothing here is ever accessed through a reference: peers write it at any time. The types exist
//! for their sizes and offsets; [`crate::base::shm`] does the accesses.

use std::mem::{offset_of, size_of};
use std::ops::Range;

/// First eight bytes of a job's memory.
pub const MAGIC: u64 = u64::from_le_bytes(*b"memonet\0");
/// Raised with every change to this file that another version could misread.
pub const VERSION: u32 = 19;
/// Settings that all PEs of a job must have alike.
pub const SETTINGS: usize = 5;
/// Segments, and the heap in them, start on a huge page.
pub const HUGE_PAGE: u64 = 2 << 20;
/// Most that a block of a segment can be aligned to.
pub const ALIGNMENT: u64 = 1 << 30;
/// Most PEs of a job that are processes or threads.
pub const MAX_PES: usize = 4096;
/// Most PEs of a job at all; bounds the control page and keeps PE numbers in 16 bits.
pub const MAX_HOSTED: usize = 1 << 16;
/// Windows that may be alive at once.
pub const MAX_WINDOWS: usize = 4096;
/// Restricted windows that may be alive at once.
pub const MAX_KEYS: usize = 256;
/// Barriers (a team has one) that may be alive at once, per PE.
pub const MAX_BARRIERS: usize = 256;
/// Threads of a PE that may make teams without a parent at once.
// For loom, which tries what may come between any two looks: fewer.
pub const MAX_CALLS: usize = if cfg!(loom) { 2 } else { 30 };
/// Rounds of a dissemination barrier over [`MAX_HOSTED`].
pub const MAX_ROUNDS: usize = 16;

/// The control page.
#[derive(Debug)]
#[repr(C)]
pub struct JobHeader {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// Number of PEs.
    pub npes: u32,
    /// CPUs that the job may use on this node (affinity and cgroup quota).
    pub cpus: u32,
    /// 1 when sleepers order their announcements by `membarrier`, 0 when ringers fence.
    pub membarrier: u32,
    /// Length of the memfd.
    pub file_size: u64,
    /// Offset of segment 0.
    pub segments: u64,
    /// Distance between segments.
    pub segment_stride: u64,
    /// Offset of the heap in a segment.
    pub heap_offset: u64,
    /// Random; part of every key.
    pub job_id: u64,
    /// Offset of the globals in a segment.
    pub globals_offset: u64,
    /// Address at which each PE maps its own segment; 0: wherever there is room.
    pub own_segment: u64,
    /// Process id of the launcher.
    pub launcher: u32,
    /// Digests of the settings that all PEs must have alike, in the order of `ALIKE`
    /// (`lifecycle/alike.rs`); 0: no PE has joined. Written by the first PE that joins.
    pub settings: [u32; SETTINGS],
    _pad: [u32; 6],
    /// Number of PEs that are gone (dead, finalising or done).
    pub departures: u32,
    /// Number of deaths whose places in the order of deaths were decided here.
    pub deaths: u32,
    /// The exit status with which a PE has ended the whole job on purpose, as `status.rs` writes
    /// it.
    pub exit: u32,
    /// The launcher's question to all waits, what they are for; 0: none
    /// (`endpoint/reports.rs`).
    pub question: u32,
    _pad2: [u32; 12],
    /// Clock cycle until which waits on this node sleep at once, because other programs were seen
    /// on its CPUs ([wait](crate::unstable::wait)).
    pub interference_until: u64,
    /// Cycles by which `interference_until` was last moved.
    pub interference_window: u64,
    /// The `interference_until` after which waits have last probed: spun or yielded again.
    pub interference_probed: u64,
    /// Clock cycle at which that probing began.
    pub interference_probing_since: u64,
    /// Counts some of the writes of PEs that share CPUs (`wait/pulse.rs`); wraps.
    pub pulse: u32,
    /// The doorbell on which the launcher's threads sleep while nobody counts `pulse` on.
    pub pulse_bell: u32,
    _pad3: [u64; 3],
}

/// What is known of a PE; a cache line pair of its own.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct PeRecord {
    /// [`State`](crate::base::status::State): state, cause and its value in one word.
    pub status: u64,
    /// Process id; 0 before the PE has joined, and after the launcher has seen the process end.
    pub pid: u32,
    /// The number of the pid namespace in which it is that.
    pub namespace: u32,
    /// When that process started, in ticks since the machine did; 0: not known.
    pub started: u64,
    /// Address at which the PE has mapped its own segment. Written by the PE before it has joined.
    pub own_segment: u64,
    /// 1 when the PE has asked for the end of the whole job, and says that it ends by itself.
    pub exiting: u32,
    /// The PE's [`Participation`](crate::lifecycle::launch::Participation).
    pub part: u32,
    /// One more than the CPU on which the PE was when it last waited, where PEs share CPUs; 0: not
    /// known.
    pub cpu: u32,
}

/// Threads of a PE that can say at once what they wait for.
pub const REPORTS: usize = 15;
/// Bytes in which a thread says that.
pub const REPORT_BYTES: usize = 2048 - 16;

/// What a thread of a PE waits for.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Report {
    /// The question that the bytes answer; 0 while they are written. Written last.
    pub question: u32,
    /// Bytes of the report.
    pub len: u32,
    _pad: [u32; 2],
    /// A report, as `endpoint/reports.rs` writes it.
    pub bytes: [u8; REPORT_BYTES],
}

/// Where the threads of a PE answer the launcher's question. Written by the PE.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct ReportArea {
    /// In the upper half a question, in the lower one how many threads have begun to answer it.
    pub answers: u64,
    /// Where the thread that has joined notes its calls, in the memory of its process; 0: not told.
    /// Written last.
    pub note: u64,
    /// The number of that thread.
    pub thread: u32,
    /// Where the parts of a place lie in it: a byte each for the address of its file's name, the
    /// bytes of that name, and the line. 0: places are not told.
    pub place: u32,
    _pad: [u64; 253],
    /// The reports, in the order in which threads have begun them.
    pub reports: [Report; REPORTS],
}

/// Words by which the arguments of a collective are compared.
pub const SAID: usize = 8;

/// Bells of a barrier: a cache line of them.
pub const BELLS: usize = 16;

/// A 1 KiB block in which one barrier of one team lives; each PE has the same blocks.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct BarrierSlot {
    /// Phase of which the owner has done its part: nobody waits for it any more. Written by the
    /// owner, read by whoever wants to know who is late.
    pub done: u64,
    /// How many of the network's collectives the owner has come to, in the slot of the world. Read
    /// by who wants to know who did not.
    pub collectives: u64,
    /// The last step of the team that goes by nodes and of which the owner has done its part. Read
    /// by who wants to know whether a member that has left still owed something.
    pub relayed: u64,
    _pad: [u64; 13],
    /// `everyone` and `tree`: a byte per member or child, its low phase byte.
    pub gather: u64,
    _pad2: [u64; 15],
    /// `central`: arrivals so far, in the first member's block.
    pub counter: u64,
    _pad3: [u64; 7],
    /// `central`, in the first member's block: where those sleep who wait, by the CPU they are on.
    pub bells: [u32; BELLS],
    /// `central` and `tree`: the phase announced as complete.
    pub release: u64,
    _pad4: [u64; 15],
    /// `dissemination`: the phase in which the round's partner arrived.
    pub rounds: [u64; MAX_ROUNDS],
    /// Scratch of the agreement on a slot for a new team: the free slots of the owner.
    pub free_slots: [u64; MAX_BARRIERS / 64],
    /// Scratch of the same: a digest of the arguments that the owner gives; the two take turns.
    pub proposal: [u64; 2],
    /// Scratch of the same: whether the owner could take the slot.
    pub claim: u64,
    /// What the owner says of the collective that it is in, where that is compared:
    /// [`Team::compare`](crate::Team::compare).
    pub said: [u64; SAID],
    _pad6: [u64; 40 - SAID],
    /// Teams and barriers that the owner has had here and has dropped. Not cleared for the next
    /// one.
    pub ended: u64,
}

/// Steps of a team's collectives after which they use the same lines and eager buffers again. Where
/// all interleavings are tried, as few as can show it.
pub const TURNS: usize = if cfg!(loom) { 2 } else { 4 };
/// Bytes of an eager buffer.
pub const EAGER_BYTES: usize = 1024;

/// What a member of a team publishes in its collectives of middling size, a part for each turn. In
/// the slot of the team's barrier.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct EagerBuffer {
    /// Anything.
    pub bytes: [[u8; EAGER_BYTES]; TURNS],
}

/// Fewest and most bytes of each half of a staging area, where the values lie of which a member
/// makes a collective. A half is a multiple of the fewest, so that all areas together fill huge
/// pages.
pub const STAGING_BYTES: [u64; 2] = [4 << 10, 256 << 10];
/// Bytes of a heap for one byte of all staging areas, as far as [`STAGING_BYTES`] lets them grow.
const HEAP_PER_STAGING: u64 = 4;

/// Bytes that a line carries.
pub const LINE: usize = 56;
/// Most members of a team that have lines.
pub const MAX_LINED: usize = 64;

/// A cache line in which one member of a team tells another that it has come to a step of a
/// collective, and gives it a few bytes.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct StepLine {
    /// Anything. Complete when `number` is that of the step.
    pub bytes: [u8; LINE],
    /// The step.
    pub number: u64,
}

/// Where the members of a team tell its owner: a line of each rank for each turn. Steps that go by
/// nodes number the lines otherwise. In the slot of the team's barrier.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Lines {
    /// By rank, then by turn.
    pub of: [[StepLine; TURNS]; MAX_LINED],
}

/// What a PE grants to holders of a key of a restricted window.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Grant {
    /// Grows at each revocation. 0: no grant.
    pub epoch: u64,
    /// Random; a key that was not made from this grant has another.
    pub nonce: u64,
    /// Bytes of the owner's part.
    pub len: u64,
    _pad: [u64; 5],
}

/// The arguments of the collective call a PE is in, for all members to compare.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct CollectiveRequest {
    /// Which call (the private module `agree` names them).
    pub kind: u64,
    /// Bytes per PE.
    pub size: u64,
    /// Alignment.
    pub align: u64,
    /// Access mode and options.
    pub options: u64,
    /// What the elements are called, and how many make a row.
    pub element: [u64; 2],
    /// Of all else that is asked for.
    pub digest: [u64; 2],
    /// How each of two steps of the call went for this PE: 0 unknown, 1 well, 2 not.
    pub outcome: [u64; 2],
    _pad: [u64; 6],
    /// Windows that this PE has dropped (snapshot made for this call).
    pub dropped: [u64; MAX_WINDOWS / 64],
}

/// Whose turn it is to make a team without a parent.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Turns {
    /// Sets of PEs for which threads of the owner have called; 0: none. Written by the owner.
    pub calls: [u64; MAX_CALLS],
    /// The set whose turn it is at the owner; 0: none.
    pub turn: u64,
    /// Of a set that the owner leads: the number with which it begins to meet; 0: not yet. Written
    /// by the owner in its turn.
    pub begins: u64,
}

/// What a reader of a multicast channel and the writer of its ring tell each other; a cache line
/// pair of its own. In the segment of whoever writes the ring, before the ring, one for each
/// reader. On a channel between hosts, also what a host's PE and the writer tell each other.
#[derive(Debug, Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C, align(128))]
pub struct ReaderLine {
    /// What lies below this in the ring the reader is done with. Written by the reader.
    pub position: u64,
    /// Not 0: the writer goes on without this reader. Written by the writer.
    pub dropped: u64,
    /// What lies below this has reached the reader's host. Written by the host's PE that receives.
    pub received: u64,
    /// The ways by which probes of the channel have reached that PE, as bits. Written by it.
    pub heard: u64,
    /// Not 0: no more probes will come. Written by the writer, in the segment of that PE.
    pub probed: u64,
    _pad: [u64; 11],
}

/// Head of every segment.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct SystemArea {
    /// Collective calls on the heap.
    pub request: CollectiveRequest,
    /// Grants of restricted windows, by key slot.
    pub grants: [Grant; MAX_KEYS],
    /// Barriers.
    pub barriers: [BarrierSlot; MAX_BARRIERS],
    /// Eager buffers of the teams that the barriers belong to.
    pub eager_buffers: [EagerBuffer; MAX_BARRIERS],
    /// Teams without a parent.
    pub turns: Turns,
    /// Their lines.
    pub lines: [Lines; MAX_BARRIERS],
}

const _: () = {
    assert!(offset_of!(JobHeader, version) == 8);
    assert!(offset_of!(JobHeader, file_size) == 24);
    assert!(offset_of!(JobHeader, job_id) == 56);
    assert!(offset_of!(JobHeader, own_segment) == 72);
    assert!(offset_of!(JobHeader, departures) == 128);
    assert!(offset_of!(JobHeader, question) == 140);
    assert!(offset_of!(JobHeader, interference_until) == 192);
    assert!(offset_of!(JobHeader, pulse) == 224);
    assert!(size_of::<JobHeader>() == 256);
    assert!(size_of::<PeRecord>() == 128);
    assert!(size_of::<Report>() == 2048 && size_of::<ReportArea>() == 32 << 10);
    assert!(offset_of!(ReportArea, reports) == 2048);
    assert!(size_of::<BarrierSlot>() == 1024);
    assert!(offset_of!(BarrierSlot, gather) == 128);
    assert!(offset_of!(BarrierSlot, counter) == 256);
    assert!(offset_of!(BarrierSlot, bells) == 320);
    assert!(offset_of!(BarrierSlot, release) == 384);
    assert!(offset_of!(BarrierSlot, rounds) == 512);
    assert!(offset_of!(BarrierSlot, free_slots) == 640);
    assert!(offset_of!(BarrierSlot, ended) == 1016);
    assert!(size_of::<Grant>() == 64);
    assert!(size_of::<Turns>() == if cfg!(loom) { 128 } else { 256 } && MAX_PES <= 1 << 16);
    assert!(size_of::<CollectiveRequest>() == 128 + MAX_WINDOWS / 8);
    assert!(size_of::<ReaderLine>() == 128 && offset_of!(ReaderLine, dropped) == 8);
    assert!(offset_of!(SystemArea, barriers) % 128 == 0);
    assert!(
        size_of::<EagerBuffer>() == TURNS * EAGER_BYTES
            && offset_of!(SystemArea, eager_buffers) % 128 == 0
    );
    assert!(size_of::<StepLine>() == 64 && offset_of!(StepLine, number) == LINE);
    assert!(
        size_of::<Lines>() == MAX_LINED * TURNS * 64 && offset_of!(SystemArea, lines) % 128 == 0
    );
    assert!((2 * STAGING_BYTES[0] * MAX_BARRIERS as u64).is_multiple_of(HUGE_PAGE));
    assert!(size_of::<SystemArea>() < 4 * HUGE_PAGE as usize);
    assert!(1 << MAX_ROUNDS >= MAX_HOSTED);
};

/// Where the pieces of a job of `npes` PEs lie in its memfd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Number of PEs.
    pub npes: usize,
    /// Offset of segment 0.
    pub segments: u64,
    /// Distance between segments.
    pub segment_stride: u64,
    /// Offset of the staging areas in a segment.
    pub staging_offset: u64,
    /// Bytes of each half of a staging area.
    pub staging_bytes: usize,
    /// Offset of the heap in a segment.
    pub heap_offset: u64,
    /// Offset of the globals in a segment.
    pub globals_offset: u64,
}

impl Geometry {
    /// Offset of the PE records.
    pub const RECORDS: u64 = 4096;

    /// The geometry of `npes` segments that hold at least `heap` bytes of windows each; `None` when
    /// it would not fit in an address.
    pub fn new(npes: usize, heap: u64) -> Option<Self> {
        if npes == 0 || npes > MAX_HOSTED {
            return None;
        }
        let n = npes as u64;
        let control = Self::RECORDS + n * size_of::<PeRecord>() as u64 + n * 4;
        let control = control.next_multiple_of(align_of::<ReportArea>() as u64)
            + n * size_of::<ReportArea>() as u64;
        let system = size_of::<SystemArea>() as u64 + (MAX_KEYS as u64 * 4 + 8) * n;
        let staging_offset = system.next_multiple_of(HUGE_PAGE);
        let heap = heap.checked_next_multiple_of(HUGE_PAGE)?.max(HUGE_PAGE);
        let (halves, [least, most]) = (2 * MAX_BARRIERS as u64, STAGING_BYTES);
        let half = (heap / HEAP_PER_STAGING / halves).clamp(least, most) / least * least;
        let heap_offset = staging_offset + halves * half;
        let globals = (heap / 4).next_multiple_of(HUGE_PAGE);
        let globals_offset = heap.checked_add(heap_offset)?;
        let segment_stride = globals_offset.checked_add(globals)?;
        let geometry = Geometry {
            npes,
            segments: control.next_multiple_of(HUGE_PAGE),
            segment_stride,
            staging_offset,
            staging_bytes: half as usize,
            heap_offset,
            globals_offset,
        };
        segment_stride
            .checked_mul(n)?
            .checked_add(geometry.segments)
            .filter(|&size| size <= i64::MAX as u64)?;
        Some(geometry)
    }

    /// Length of the memfd.
    pub fn file_size(&self) -> u64 {
        self.segments + self.segment_stride * self.npes as u64
    }

    /// A team's staging area in each segment: the source, then the destination.
    pub fn staging(&self, slot: usize) -> Range<u64> {
        let bytes = 2 * self.staging_bytes as u64;
        let start = self.staging_offset + slot as u64 * bytes;
        start..start + bytes
    }

    /// Bytes for windows in each segment.
    pub fn heap_size(&self) -> u64 {
        self.globals_offset - self.heap_offset
    }

    /// Bytes for globals in each segment: a quarter of the heap's.
    pub fn globals_size(&self) -> u64 {
        self.segment_stride - self.globals_offset
    }

    /// What the start of a PE's own segment is aligned to in its process, so that its blocks can
    /// be: to more than a segment's size none is.
    pub fn alignment(&self) -> u64 {
        ALIGNMENT.min(1 << self.segment_stride.ilog2())
    }

    /// Offset of a PE's record.
    pub fn record(&self, pe: usize) -> u64 {
        Self::RECORDS + (pe * size_of::<PeRecord>()) as u64
    }

    /// Offset of a PE's doorbell.
    pub fn doorbell(&self, pe: usize) -> u64 {
        self.record(self.npes) + 4 * pe as u64
    }

    /// Offset of the place where a PE's threads say what they wait for.
    pub fn reports(&self, pe: usize) -> u64 {
        let first = self.doorbell(self.npes).next_multiple_of(align_of::<ReportArea>() as u64);
        first + (pe * size_of::<ReportArea>()) as u64
    }

    /// Offset of a PE's segment.
    pub fn segment(&self, pe: usize) -> u64 {
        self.segments + self.segment_stride * pe as u64
    }

    /// Offset, in a segment, of the word in which PE `from` tells the owner that it has come to a
    /// meeting.
    pub fn mail(&self, from: usize) -> u64 {
        (size_of::<SystemArea>() + 4 * MAX_KEYS * self.npes + 8 * from) as u64
    }

    /// Offset, in a segment, of the count of the owner's live remotes into `home`'s part of the
    /// restricted window in slot `key`.
    pub fn hold(&self, key: usize, home: usize) -> u64 {
        (size_of::<SystemArea>() + 4 * (key * self.npes + home)) as u64
    }
}
