//! The primitives of [`crate::base::shm`] as x86-64 instructions. Loads are acquire and stores
//! release on this processor.

use std::arch::asm;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Copies of at least this many bytes use streaming stores: a plain copy reads every destination
/// line before it overwrites it, which costs more than it saves where source and destination fill
/// most of the last cache that the core shares. Measured by `memonet bench bandwidth`.
pub fn stream_from() -> usize {
    static FROM: OnceLock<usize> = OnceLock::new();
    *FROM.get_or_init(|| {
        let caches = raw_cpuid::CpuId::new().get_cache_parameters();
        let sizes = caches.into_iter().flatten().map(|c| {
            c.associativity() * c.physical_line_partitions() * c.coherency_line_size() * c.sets()
        });
        let last = sizes.max().unwrap_or(USUAL_CACHE);
        (last / 8 * 3).max(LEAST_STREAMED)
    })
}

/// Where the processor does not tell: what most servers have for a core and its neighbours.
const USUAL_CACHE: usize = 32 << 20;
/// Shorter copies do not even ask.
const LEAST_STREAMED: usize = 1 << 20;

/// Copies of at least this many bytes, up to those that stream, use the processor's own instruction
/// where that is good: when source and destination together are more than the first cache holds, it
/// leaves the destination out of that.
fn string_from() -> usize {
    static FROM: OnceLock<usize> = OnceLock::new();
    *FROM.get_or_init(|| {
        let cpu = raw_cpuid::CpuId::new();
        let fast = cpu.get_extended_feature_info().is_some_and(|f| f.has_rep_movsb_stosb());
        // Of AMD's, Zen 3 and 4 say that it is fast; from some sources to some destinations it is
        // twenty times slower than loops.
        let amd = cpu.get_vendor_info().is_some_and(|vendor| vendor.as_str() == "AuthenticAMD");
        let newer = cpu.get_feature_info().is_some_and(|f| f.family_id() >= 0x1A);
        if !fast || amd && !newer {
            return usize::MAX;
        }
        let mut caches = cpu.get_cache_parameters().into_iter().flatten();
        let first = caches.find(|c| c.level() == 1 && c.cache_type() == raw_cpuid::CacheType::Data);
        let size = first.map(|c| {
            c.associativity() * c.physical_line_partitions() * c.coherency_line_size() * c.sets()
        });
        size.map_or(usize::MAX, |size| (size / 2).max(LEAST_STRING))
    })
}

/// Shorter copies do not even ask.
const LEAST_STRING: usize = 16 << 10;

macro_rules! loads_and_stores {
    ($($load:ident $store:ident $post:ident $cas:ident $mov:literal $ty:literal $reg:literal;)*) => {$(
        #[inline(always)]
        pub unsafe fn $load(p: *const u8) -> u64 {
            let v: u64;
            // SAFETY: the caller promises a mapped, aligned word at `p`; the instruction reads that
            // and nothing else.
            unsafe { asm!(concat!($mov, ", ", $ty, " ptr [{p}]"), p = in(reg) p, v = lateout(reg) v, options(nostack, preserves_flags)) };
            v
        }
        #[inline(always)]
        pub unsafe fn $store(p: *mut u8, v: u64) {
            // SAFETY: the caller promises a mapped, writable, aligned word at `p`; the instruction
            // writes that and nothing else.
            unsafe { asm!(concat!("mov ", $ty, " ptr [{p}], {v", $reg, "}"), p = in(reg) p, v = in(reg) v, options(nostack, preserves_flags)) };
        }
        #[inline(always)]
        pub unsafe fn $post(p: *mut u8, v: u64) {
            // SAFETY: as above. `nomem` holds as the word is not memory that Rust code accesses.
            unsafe { asm!(concat!("mov ", $ty, " ptr [{p}], {v", $reg, "}"), p = in(reg) p.expose_provenance(), v = in(reg) v, options(nostack, preserves_flags, nomem)) };
        }
        #[inline(always)]
        pub unsafe fn $cas(p: *mut u8, expected: u64, new: u64) -> u64 {
            let mut old = expected;
            // SAFETY: the caller promises a mapped, writable, aligned word at `p`; the instruction
            // touches that and nothing else.
            unsafe { asm!(concat!("lock cmpxchg ", $ty, " ptr [{p}], {v", $reg, "}"), p = in(reg) p, v = in(reg) new, inout("rax") old, options(nostack)) };
            old & (u64::MAX >> (64 - 8 * (bytes($ty))))
        }
    )*};
}

const fn bytes(name: &str) -> u32 {
    match name.as_bytes()[0] {
        b'b' => 1,
        b'w' => 2,
        b'd' => 4,
        _ => 8,
    }
}

loads_and_stores! {
    load1 store1 post1 cas1 "movzx {v:e}" "byte" ":l";
    load2 store2 post2 cas2 "movzx {v:e}" "word" ":x";
    load4 store4 post4 cas4 "mov {v:e}" "dword" ":e";
    load8 store8 post8 cas8 "mov {v}" "qword" ":r";
}

macro_rules! exchanges {
    ($($name:ident $instruction:literal $ty:literal $reg:literal;)*) => {$(
        #[inline(always)]
        pub unsafe fn $name(p: *mut u8, mut v: u64) -> u64 {
            // SAFETY: the caller promises a mapped, writable, aligned word at `p`; the instruction
            // touches that and nothing else.
            unsafe { asm!(concat!($instruction, " ", $ty, " ptr [{p}], {v", $reg, "}"), p = in(reg) p, v = inout(reg) v, options(nostack)) };
            v & (u64::MAX >> (64 - 8 * (bytes($ty))))
        }
    )*};
}

exchanges! {
    fetch_add4 "lock xadd" "dword" ":e";
    fetch_add8 "lock xadd" "qword" ":r";
    swap4 "xchg" "dword" ":e";
    swap8 "xchg" "qword" ":r";
}

/// Nothing moves across it in the compiler; the processor keeps stores and loads in order by
/// itself.
#[inline(always)]
pub fn compiler_fence() {
    // SAFETY: an empty instruction sequence.
    unsafe { asm!("", options(nostack, preserves_flags)) };
}

/// As `compiler_fence`; `announce_barrier` makes it more where it has to be.
#[inline(always)]
pub fn light_fence() {
    compiler_fence();
}

/// Every earlier store is visible before any later load. A locked instruction does that, and sooner
/// than `mfence`.
#[inline(always)]
pub fn full_fence() {
    // SAFETY: the word at the top of the stack is this thread's own, and keeps its value.
    unsafe { asm!("lock or dword ptr [rsp], 0") };
}

/// Tells the processor that this is a spin loop.
#[inline(always)]
pub fn pause() {
    std::hint::spin_loop();
}

/// Asks for the line of `p`, to write to it soon. Changes nothing.
#[inline(always)]
pub fn prefetch_to_write(p: *const u8) {
    // SAFETY: a hint, for which any address will do.
    unsafe { asm!("prefetchw [{p}]", p = in(reg) p, options(nostack, preserves_flags)) };
}

/// Asks for the line of `p`, to read it soon. Changes nothing.
#[inline(always)]
pub fn prefetch_to_read(p: *const u8) {
    // SAFETY: a prefetch accesses nothing, whatever its address.
    unsafe { asm!("prefetcht0 [{p}]", p = in(reg) p, options(nostack, preserves_flags)) };
}

/// **Each byte is written once**, by a store of whole elements: who waits for one, and then writes
/// there itself, must not lose that to a second store of the same. So there are no pieces that
/// overlap, as copies elsewhere have at their ends.
///
/// # Safety
/// As for [`crate::base::shm::copy`].
#[inline(always)]
pub unsafe fn copy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: each call passes ranges that lie within `len` bytes of `dst` and `src`, which the
    // caller promises.
    unsafe {
        match len {
            0 => {}
            1 => store1(dst, load1(src)),
            2 => store2(dst, load2(src)),
            4 => store4(dst, load4(src)),
            8 => store8(dst, load8(src)),
            12 => {
                let (a, b) = (load8(src), load4(src.add(8)));
                store8(dst, a);
                store4(dst.add(8), b);
            }
            16 => {
                let (a, b) = (load8(src), load8(src.add(8)));
                store8(dst, a);
                store8(dst.add(8), b);
            }
            _ => copy_pieces(dst, src, len),
        }
    }
}

/// Copies of all other lengths. As C functions do not unwind, a caller has nothing to do after it,
/// and may end in a jump; so does this one where it calls another, and has no registers to save for
/// those who call none.
#[inline(never)]
unsafe extern "C" fn copy_pieces(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's promise is the one that is asked for; what the processor has is known.
    unsafe {
        if len < LEAST_BLOCKS {
            return copy_tail(dst, src, len);
        }
        match REGISTERS.load(Ordering::Relaxed) {
            WIDE if len < LEAST_STRING => copy_wide(dst, src, len),
            AVX if len < LEAST_STRING => copy_avx::<false>(dst, src, len),
            _ => copy_long(dst, src, len),
        }
    }
}

#[inline(never)]
unsafe extern "C" fn copy_long(dst: *mut u8, src: *const u8, len: usize) {
    let registers = registers();
    // SAFETY: as above. The head is shorter than the shortest of these copies.
    unsafe {
        if registers == NONE {
            return copy_string(dst, src, len);
        }
        if len >= LEAST_STREAMED && len >= stream_from() {
            return copy_avx::<true>(dst, src, len);
        }
        if len >= LEAST_STRING && len > string_from() {
            let head = (dst as usize).wrapping_neg() & 63;
            copy_head(dst, src, head);
            return copy_string(dst.add(head), src.add(head), len - head);
        }
        if registers == WIDE { copy_wide(dst, src, len) } else { copy_avx::<false>(dst, src, len) }
    }
}

/// From here on there is a whole block behind the head.
const LEAST_BLOCKS: usize = 256;

/// What blocks are copied with: the largest registers, of those that do not slow the processor
/// down; 0 until somebody has asked.
static REGISTERS: AtomicU8 = AtomicU8::new(0);
/// By the processor's own instruction.
const NONE: u8 = 1;
const AVX: u8 = 2;
/// AVX-512, of the generations that are as fast with it: those that also have its instructions on
/// bytes within registers.
const WIDE: u8 = 3;

#[cold]
fn registers() -> u8 {
    let wide = std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512vbmi2");
    let avx = std::arch::is_x86_feature_detected!("avx");
    let found = if wide {
        WIDE
    } else if avx {
        AVX
    } else {
        NONE
    };
    REGISTERS.store(found, Ordering::Relaxed);
    found
}

/// Half as many stores as with AVX: a copy in the first cache takes a tenth less, and what follows
/// waits behind fewer. Leaves nothing in the upper halves of the other registers.
///
/// # Safety
/// As for [`copy`], of [`LEAST_BLOCKS`] or more; the processor has AVX-512.
#[inline(always)]
unsafe fn copy_wide(dst: *mut u8, src: *const u8, len: usize) {
    let head = (dst as usize).wrapping_neg() & 63;
    // SAFETY: head, blocks and tail are `len` bytes together, which the caller promises at both
    // ends; the blocks are aligned.
    unsafe {
        copy_head(dst, src, head);
        let (d, s, rest) = (dst.add(head), src.add(head), len - head);
        let blocks = rest / 256;
        if blocks > 0 {
            wide_blocks(d, s, blocks);
        }
        copy_tail(d.add(256 * blocks), s.add(256 * blocks), rest % 256)
    }
}

/// # Safety
/// As for [`copy`], of [`LEAST_BLOCKS`] or more; the processor has AVX.
#[inline(always)]
unsafe fn copy_avx<const STREAM: bool>(dst: *mut u8, src: *const u8, len: usize) {
    // To an aligned destination, or it would be slower.
    let head = (dst as usize).wrapping_neg() & 31;
    // SAFETY: head, blocks and tail are `len` bytes together, which the caller promises at both
    // ends; the blocks are aligned.
    unsafe {
        copy_head(dst, src, head);
        let (d, s, rest) = (dst.add(head), src.add(head), len - head);
        let blocks = rest / 128;
        if STREAM {
            stream_blocks(d, s, blocks)
        } else {
            avx_blocks(d, s, blocks)
        }
        // It clears the upper halves of all of these.
        asm!("vzeroupper",
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _, out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack, preserves_flags, nomem));
        copy_tail(d.add(128 * blocks), s.add(128 * blocks), rest % 128)
    }
}

/// Copies the pieces of which the bits of a length tell, one behind the other.
macro_rules! copy_by_bits {
    ($(#[$doc:meta])* $name:ident: $($bytes:literal)*) => {
        $(#[$doc])*
        #[allow(unused_assignments, reason = "behind the last piece nothing follows")]
        #[inline(always)]
        unsafe fn $name(mut dst: *mut u8, mut src: *const u8, len: usize) {
            if len == 0 {
                return;
            }
            // SAFETY: the pieces have `len` bytes together, which the caller promises at both ends.
            unsafe {
                $(if len & $bytes != 0 {
                    copy_piece::<$bytes>(dst, src);
                    (dst, src) = (dst.add($bytes), src.add($bytes));
                })*
            }
        }
    };
}

copy_by_bits! {
    /// Less than [`LEAST_BLOCKS`] bytes: all pieces are aligned where the beginning is.
    copy_tail: 128 64 32 16 8 4 2 1
}

copy_by_bits! {
    /// Less than 64 bytes: all pieces are aligned where the end is.
    copy_head: 1 2 4 8 16 32
}

#[inline(always)]
unsafe fn copy_piece<const BYTES: usize>(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller promises so many bytes at both ends.
    unsafe {
        match BYTES {
            1 => store1(dst, load1(src)),
            2 => store2(dst, load2(src)),
            4 => store4(dst, load4(src)),
            8 => store8(dst, load8(src)),
            16 => copy16(dst, src),
            32 => copy32(dst, src),
            64 => copy64(dst, src),
            128 => {
                copy64(dst, src);
                copy64(dst.add(64), src.add(64));
            }
            _ => unreachable!("the powers of two of the two functions above"),
        }
    }
}

#[inline(always)]
unsafe fn copy16(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller promises 16 bytes at both ends.
    unsafe {
        asm!("movdqu {a}, [{s}]", "movdqu [{d}], {a}", s = in(reg) src, d = in(reg) dst, a = out(xmm_reg) _, options(nostack, preserves_flags))
    };
}

#[inline(always)]
unsafe fn copy32(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller promises 32 bytes at both ends.
    unsafe {
        asm!(
            "movdqu {a}, [{s}]", "movdqu {b}, [{s} + 16]", "movdqu [{d}], {a}", "movdqu [{d} + 16], {b}",
            s = in(reg) src, d = in(reg) dst, a = out(xmm_reg) _, b = out(xmm_reg) _, options(nostack, preserves_flags)
        )
    };
}

#[inline(always)]
unsafe fn copy64(dst: *mut u8, src: *const u8) {
    // SAFETY: the caller promises 64 bytes at both ends.
    unsafe {
        asm!(
            "movdqu {a}, [{s}]", "movdqu {b}, [{s} + 16]", "movdqu {c}, [{s} + 32]", "movdqu {e}, [{s} + 48]",
            "movdqu [{d}], {a}", "movdqu [{d} + 16], {b}", "movdqu [{d} + 32], {c}", "movdqu [{d} + 48], {e}",
            s = in(reg) src, d = in(reg) dst,
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(xmm_reg) _, options(nostack, preserves_flags)
        )
    };
}

unsafe fn copy_string(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller promises `len` bytes at both ends; the direction flag is clear at every
    // asm block's entry.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") dst => _, inout("rsi") src => _, options(nostack, preserves_flags))
    };
}

#[inline(always)]
unsafe fn wide_blocks(dst: *mut u8, src: *const u8, blocks: usize) {
    // SAFETY: the caller promises `blocks * 256` bytes at both ends, at least one block, a
    // destination aligned to 64, and AVX-512.
    unsafe {
        asm!(
            ".p2align 5",
            "2:",
            "vmovdqu64 zmm16, [{s}]",
            "vmovdqu64 zmm17, [{s} + 64]",
            "vmovdqu64 zmm18, [{s} + 128]",
            "vmovdqu64 zmm19, [{s} + 192]",
            "vmovdqa64 [{d}], zmm16",
            "vmovdqa64 [{d} + 64], zmm17",
            "vmovdqa64 [{d} + 128], zmm18",
            "vmovdqa64 [{d} + 192], zmm19",
            "add {s}, 256",
            "add {d}, 256",
            "dec {n}",
            "jnz 2b",
            s = inout(reg) src => _, d = inout(reg) dst => _, n = inout(reg) blocks => _,
            out("xmm16") _, out("xmm17") _, out("xmm18") _, out("xmm19") _,
            options(nostack),
        );
    }
}

macro_rules! block_loops {
    ($($name:ident $mov:literal $end:literal;)*) => {$(
        #[inline(always)]
        unsafe fn $name(dst: *mut u8, src: *const u8, blocks: usize) {
            // SAFETY: the caller promises `blocks * 128` bytes at both ends, a destination aligned
            // to 32, and AVX.
            unsafe {
                asm!(
                    ".p2align 5",
                    "2:",
                    "vmovdqu ymm0, [{s}]",
                    "vmovdqu ymm1, [{s} + 32]",
                    "vmovdqu ymm2, [{s} + 64]",
                    "vmovdqu ymm3, [{s} + 96]",
                    concat!($mov, " [{d}], ymm0"),
                    concat!($mov, " [{d} + 32], ymm1"),
                    concat!($mov, " [{d} + 64], ymm2"),
                    concat!($mov, " [{d} + 96], ymm3"),
                    "sub {s}, -128",
                    "sub {d}, -128",
                    "dec {n}",
                    "jnz 2b",
                    $end,
                    s = inout(reg) src => _, d = inout(reg) dst => _, n = inout(reg) blocks => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                    options(nostack),
                );
            }
        }
    )*};
}

block_loops! {
    avx_blocks "vmovdqa" "";
    // Streaming stores are not ordered with other stores; the fence makes the copy keep its place
    // among them.
    stream_blocks "vmovntdq" "sfence";
}
