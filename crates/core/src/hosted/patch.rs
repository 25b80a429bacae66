//! Replaces functions of the kernel and of libc in this process: writes a jump over their first
//! instructions.
//!
//! Symbols cannot intercept libc's calls of its own functions, statically linked programs, or
//! programs that find the kernel's functions by themselves. All of these run this code, and writing
//! to it makes a private copy for this process.

use std::ops::Range;

/// A function, and the pages of code that it lies in.
pub(super) struct Function {
    at: usize,
    pages: Range<usize>,
}

/// A function of libc or of the program.
pub(super) fn of_program(at: usize) -> Function {
    let mut segment = Segment { at, pages: to_pages(at..at + JUMP_BYTES) };
    // SAFETY: `find` is called with `segment` only before this returns.
    unsafe { libc::dl_iterate_phdr(Some(find), (&raw mut segment).cast()) };
    Function { at, pages: segment.pages }
}

/// The pages that hold these bytes.
fn to_pages(bytes: Range<usize>) -> Range<usize> {
    let page = crate::base::memory::page_size();
    bytes.start / page * page..bytes.end.next_multiple_of(page)
}

/// A search for the segment of code that has a function.
struct Segment {
    at: usize,
    pages: Range<usize>,
}

/// Looks for the segment in an object of this process.
unsafe extern "C" fn find(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    segment: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the linker gives the description of an object, and `of_program` its search.
    let (info, segment) = unsafe { (&*info, &mut *segment.cast::<Segment>()) };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: an object has so many headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    // Code alone: protection that is more than that is not put back.
    let is_code = |header: &&libc::Elf64_Phdr| {
        header.p_type == libc::PT_LOAD && header.p_flags & (libc::PF_X | libc::PF_W) == libc::PF_X
    };
    let bytes = headers.iter().filter(is_code).map(|header| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr) as usize;
        start..start.saturating_add(header.p_memsz as usize)
    });
    let Some(bytes) = bytes.into_iter().find(|bytes| {
        bytes.contains(&segment.at) && bytes.contains(&(segment.at + JUMP_BYTES - 1))
    }) else {
        return 0;
    };
    segment.pages = to_pages(bytes);
    1
}

/// A function of the vDSO, which the kernel maps into each process, if there is one.
pub(super) fn of_kernel(name: &str) -> Option<Function> {
    // SAFETY: reads a number from the auxiliary vector.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if base == 0 {
        return None;
    }
    // SAFETY: the kernel maps a whole ELF image there as long as the process lives. It ends with
    // the table of sections, whose place is in the header.
    let image = unsafe {
        let header = &*(base as *const libc::Elf64_Ehdr);
        let len =
            header.e_shoff as usize + usize::from(header.e_shnum) * usize::from(header.e_shentsize);
        std::slice::from_raw_parts(base as *const u8, len)
    };
    // The kernel changes the protection of the whole image only.
    let pages = base..(base + image.len()).next_multiple_of(crate::base::memory::page_size());
    let at = base + symbol(image, name)?;
    Some(Function { at, pages })
}

/// Offset in an ELF image of a function that has room for a jump; `None` where there is none, or
/// the image is invalid.
fn symbol(image: &[u8], name: &str) -> Option<usize> {
    let number = |at: usize, len: usize| -> Option<usize> {
        let mut word = [0; 8];
        word[..len].copy_from_slice(image.get(at..at.checked_add(len)?)?);
        usize::try_from(u64::from_le_bytes(word)).ok()
    };
    let (table, entry, count) = (number(0x28, 8)?, number(0x3A, 2)?, number(0x3C, 2)?);
    let section = |index: usize| table + index * entry;
    // Fields of a section: type at 4, offset at 0x18, size at 0x20, index of its strings at 0x28.
    const DYNAMIC_SYMBOLS: usize = 11;
    let symbols = (0..count).map(section).find(|&at| number(at + 4, 4) == Some(DYNAMIC_SYMBOLS))?;
    let (start, size, strings) =
        (number(symbols + 0x18, 8)?, number(symbols + 0x20, 8)?, number(symbols + 0x28, 4)?);
    let strings = number(section(strings) + 0x18, 8)?;
    // Fields of a symbol, in 24 bytes: name at 0, value at 8, size at 16.
    let found = (start..start.checked_add(size)?).step_by(24).find(|&at| {
        let text =
            number(at, 4).and_then(|from| image.get(strings + from..)?.get(..name.len() + 1));
        text.is_some_and(|text| &text[..name.len()] == name.as_bytes() && text[name.len()] == 0)
    })?;
    (number(found + 16, 8)? >= JUMP_BYTES).then(|| number(found + 8, 8))?
}

/// Bytes of a jump to any address.
const JUMP_BYTES: usize = 12;

/// A jump to an address: mov rax, there; jmp rax. The calling convention passes no argument in that
/// register and does not preserve it.
fn jump(there: usize) -> [u8; JUMP_BYTES] {
    let mut jump = [0x48, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xE0];
    jump[2..10].copy_from_slice(&(there as u64).to_le_bytes());
    jump
}

/// Makes calls of each function go to the one at the address beside it. False where the processor
/// or the kernel does not allow it. Functions of one segment are replaced together: to change the
/// protection of a part takes far longer than to write to it.
///
/// # Safety
/// Each function has at least [`JUMP_BYTES`] bytes and the signature of the one beside it, and no
/// thread is in it.
pub(super) unsafe fn replace(all: impl IntoIterator<Item = (Function, usize)>) -> bool {
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort_unstable_by_key(|(theirs, _)| theirs.at);
    // SAFETY: as the caller promises.
    all.chunk_by(|(one, _), (next, _)| next.pages.start <= one.pages.end)
        .all(|together| unsafe { replace_in_pages(together) })
}

/// [`replace`] of functions whose pages overlap or follow each other, in the order of their
/// addresses.
///
/// # Safety
/// As for [`replace`].
unsafe fn replace_in_pages(together: &[(Function, usize)]) -> bool {
    let pages = together.iter().map(|(theirs, _)| &theirs.pages);
    let start = pages.clone().map(|pages| pages.start).min().unwrap_or(0);
    let len = pages.map(|pages| pages.end).max().unwrap_or(0) - start;
    let (start, code) = (start as *mut libc::c_void, libc::PROT_READ | libc::PROT_EXEC);
    // SAFETY: these pages are code of this process: whole segments, or those of single functions.
    // Only the bytes that the caller promises change, and no thread runs them.
    unsafe {
        if libc::mprotect(start, len, code | libc::PROT_WRITE) != 0 {
            return false;
        }
        for (theirs, ours) in together {
            std::ptr::copy_nonoverlapping(jump(*ours).as_ptr(), theirs.at as *mut u8, JUMP_BYTES);
        }
        libc::mprotect(start, len, code);
    }
    true
}

/// An address at which a function can still be called after it is [replaced](replace): a copy of
/// its first instructions, and a jump to the rest. `None` where those are not the usual
/// instructions that save registers, or the kernel does not allow it.
///
/// # Safety
/// There is a function at `theirs`, as it was compiled.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
pub(super) unsafe fn elsewhere(theirs: &Function) -> Option<usize> {
    let page = crate::base::memory::page_size();
    // SAFETY: the slice ends with the segment of the function, or with its page, so it is mapped.
    let code =
        unsafe { std::slice::from_raw_parts(theirs.at as *const u8, theirs.pages.end - theirs.at) };
    let begin = whole(code)?;
    let instructions = [&code[..begin], &jump(theirs.at + begin)].concat();
    let (prot, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses an unused page, which is never unmapped.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), page, prot, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return None;
        }
        std::ptr::copy_nonoverlapping(instructions.as_ptr(), at.cast(), instructions.len());
        (libc::mprotect(at, page, libc::PROT_READ | libc::PROT_EXEC) == 0).then_some(at as usize)
    }
}

/// Bytes of the first instructions that together have [`JUMP_BYTES`] or more, if all of them are
/// known not to depend on their address.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn whole(code: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < JUMP_BYTES {
        at += match code.get(at..)? {
            // endbr64
            [0xF3, 0x0F, 0x1E, 0xFA, ..] => 4,
            // push
            [0x50..=0x57, ..] => 1,
            [0x41, 0x50..=0x57, ..] => 2,
            // sub rsp, number
            [0x48, 0x83, 0xEC, _, ..] => 4,
            [0x48, 0x81, 0xEC, _, _, _, _, ..] => 7,
            // mov register, register; with a prefix for 64 bits or r8 to r15
            [0x89, 0xC0..=0xFF, ..] => 2,
            [0x40..=0x4F, 0x89, 0xC0..=0xFF, ..] => 3,
            _ => return None,
        };
    }
    Some(at)
}

#[cfg(all(test, not(loom), target_arch = "x86_64", target_env = "gnu"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[inline(never)]
    extern "C" fn theirs(number: u64) -> u64 {
        std::hint::black_box(number).wrapping_mul(3).rotate_left(7) ^ 0x1234_5678_9ABC
    }

    extern "C" fn ours(number: u64) -> u64 {
        number + 1
    }

    #[test]
    fn callers_get_the_other() {
        let call: extern "C" fn(u64) -> u64 = std::hint::black_box(theirs);
        assert_ne!(call(7), 8);
        let both = (of_program(theirs as *const () as usize), ours as *const () as usize);
        // SAFETY: a function of more bytes than a jump, which only this test calls.
        assert!(unsafe { replace([both]) });
        assert_eq!(call(7), 8);
    }

    /// So their protection is changed once.
    #[test]
    fn functions_of_libc_are_of_one_segment_of_code() {
        let all = [libc::getenv as *const () as usize, libc::mmap as *const () as usize];
        let [one, other] = all.map(of_program);
        assert_eq!(one.pages, other.pages);
        let is_in = |at: &usize| one.pages.contains(at);
        assert!(
            all.iter().all(is_in) && all[0].abs_diff(all[1]) > crate::base::memory::page_size()
        );
    }

    #[test]
    fn a_function_that_is_replaced_stays_what_it_was_elsewhere() {
        let page = crate::base::memory::page_size();
        // push r15; push rbx; mov rbx, rdi; sub rsp, 0x88; lea rax, [rbx + 5]; add rsp, 0x88; pop
        // rbx; pop r15; ret
        let code: [u8; 28] = [
            0x41, 0x57, 0x53, 0x48, 0x89, 0xFB, 0x48, 0x81, 0xEC, 0x88, 0, 0, 0, 0x48, 0x8D, 0x43,
            5, 0x48, 0x81, 0xC4, 0x88, 0, 0, 0, 0x5B, 0x41, 0x5F, 0xC3,
        ];
        let (all, flags) = (
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: the kernel chooses an unused page, and the code fits into it.
        let at = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), page, all, flags, -1, 0);
            assert!(at != libc::MAP_FAILED);
            std::ptr::copy_nonoverlapping(code.as_ptr(), at.cast(), code.len());
            at as usize
        };
        // SAFETY: at both addresses is a function of this signature.
        let call =
            |at: usize| unsafe { std::mem::transmute::<usize, extern "C" fn(u64) -> u64>(at) }(7);
        // SAFETY: the function above, which no thread runs.
        let kept = unsafe { elsewhere(&of_program(at)) }.expect("all its instructions are known");
        assert_eq!((call(at), call(kept)), (12, 12));
        // SAFETY: as above.
        assert!(unsafe { replace([(of_program(at), ours as *const () as usize)]) });
        assert_eq!((call(at), call(kept)), (8, 12));
    }

    /// Functions of one page, of neighbouring pages, across a boundary and of a page far away.
    #[test]
    fn functions_are_replaced_in_any_order_and_no_byte_beside_them() {
        const PAGES: usize = 8;
        let page = crate::base::memory::page_size();
        let len = PAGES * page;
        let (code, flags) =
            (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // mov eax, edi; ret; and the rest of the room that a jump needs.
        let theirs = [0x89, 0xF8, 0xC3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90];
        let places = [7 * page, 64, 5 * page - 5, 0, page + 16, 2 * page - JUMP_BYTES, 32];
        // SAFETY: the kernel chooses unused pages, and all places lie in them.
        let base = unsafe {
            let at = libc::mmap(std::ptr::null_mut(), len, code | libc::PROT_WRITE, flags, -1, 0);
            assert!(at != libc::MAP_FAILED);
            std::ptr::write_bytes(at.cast::<u8>(), 0xCC, len);
            for place in places {
                std::ptr::copy_nonoverlapping(theirs.as_ptr(), at.cast::<u8>().add(place), 12);
            }
            assert_eq!(libc::mprotect(at, len, code), 0);
            at as usize
        };
        let all = places.map(|place| (of_program(base + place), ours as *const () as usize));
        // SAFETY: the functions above, which no thread runs.
        assert!(unsafe { replace(all) });
        for place in places {
            // SAFETY: a function of this signature.
            let call =
                unsafe { std::mem::transmute::<usize, extern "C" fn(u64) -> u64>(base + place) };
            assert_eq!(call(7), 8, "{place}");
        }
        // SAFETY: the pages are mapped and readable.
        let bytes = unsafe { std::slice::from_raw_parts(base as *const u8, len) };
        let changed = bytes.iter().filter(|&&byte| byte != 0xCC).count();
        assert!(changed <= places.len() * JUMP_BYTES, "{changed} bytes");
    }

    #[test]
    fn what_means_another_thing_elsewhere_stays_where_it_is() {
        let pushes = [0x50; JUMP_BYTES];
        assert_eq!(whole(&pushes), Some(JUMP_BYTES));
        for other in [
            &[0xE8, 1, 0, 0, 0][..],
            &[0x77, 3],
            &[0x48, 0x89, 0x05, 1, 0, 0, 0],
            &[0x80, 0x3D, 1, 0, 0, 0, 0],
        ] {
            for before in 0..JUMP_BYTES {
                let code = [&pushes[..before], other, &pushes[..]].concat();
                assert_eq!(whole(&code), None, "{before} pushes before {other:x?}");
            }
        }
        assert_eq!(whole(&pushes[..JUMP_BYTES - 1]), None);
    }

    #[test]
    fn the_kernels_functions_are_found() {
        assert!(of_kernel("__vdso_clock_gettime").is_some());
        assert!(of_kernel("__vdso_clock_gettim").is_none() && of_kernel("nonsense").is_none());
    }

    proptest! {
        #[test]
        fn any_image_is_read_or_refused(mut image in proptest::collection::vec(any::<u8>(), 0..600), small: bool) {
            if small && image.len() > 0x40 {
                // Numbers that lie in the image.
                for at in [0x28, 0x29] {
                    image[at] %= 2;
                }
                image[0x2A..0x30].fill(0);
            }
            symbol(&image, "x");
        }
    }
}
