//! The writable data of the objects that the loader has loaded.

use super::linked::is_linked;
use memonet_core::unstable::segment::page_size;
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The variable that names libraries with symmetric static data.
pub use memonet_core::unstable::settings::ENV_SYMMETRIC_LIBS as ENV_LIBS;

/// Writable data of a loaded object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data {
    pub pages: Range<usize>,
    /// The end of the bytes that come from the file; untouched bytes behind it are zero.
    pub file_end: usize,
}

/// Whether `address` lies in the program's constants, which are never symmetric.
pub fn is_constant(mut address: usize) -> bool {
    // SAFETY: libc calls `constant` during this call only, with a pointer to `address`, which
    // outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(constant), (&raw mut address).cast()) == FOUND }
}

const FOUND: c_int = 1;
const LOOKED: c_int = 2;

unsafe extern "C" fn constant(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    address: *mut c_void,
) -> c_int {
    // SAFETY: libc passes a valid description with a table of `dlpi_phnum` headers, and the pointer
    // to the address that `is_constant` gave it.
    let (base, headers, address) = unsafe {
        let info = &*info;
        (
            info.dlpi_addr as usize,
            std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
            *address.cast::<usize>(),
        )
    };
    let around = |h: &&libc::Elf64_Phdr| {
        address.wrapping_sub(base + h.p_vaddr as usize) < h.p_memsz as usize
    };
    let read_only = |h: &libc::Elf64_Phdr| {
        h.p_type == libc::PT_GNU_RELRO || h.p_type == libc::PT_LOAD && h.p_flags == libc::PF_R
    };
    if headers.iter().filter(around).any(read_only) { FOUND } else { LOOKED }
}

/// The writable data of the executable and of the libraries that the user names.
pub fn search() -> Search {
    let wanted = std::env::var(ENV_LIBS).unwrap_or_default();
    let wanted: Vec<_> =
        wanted.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let mut search = Search {
        missing: wanted.clone(),
        wanted,
        found: Vec::new(),
        first: true,
        linked: is_linked(),
        interpreter: false,
    };
    // SAFETY: libc calls `object` during this call only, with a pointer to `search`, which outlives
    // the call.
    unsafe { libc::dl_iterate_phdr(Some(object), (&raw mut search).cast()) };
    search
}

/// The end of a message: the libraries that the user names and the loader has not loaded.
pub fn not_loaded() -> String {
    match search().missing.join(", ") {
        none if none.is_empty() => none,
        missing => format!(". Of the libraries named there, these are not loaded: {missing}"),
    }
}

pub struct Search {
    wanted: Vec<String>,
    /// The wanted libraries that are not loaded.
    missing: Vec<String>,
    pub found: Vec<Data>,
    first: bool,
    /// Whether the executable's data are wanted.
    linked: bool,
    /// Whether the executable asks for a loader, as a dynamically linked one does.
    pub interpreter: bool,
}

unsafe extern "C" fn object(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: libc passes a valid description, and the pointer to the `Search` that only this call
    // of `search` uses.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    let name = if info.dlpi_name.is_null() {
        c""
    } else {
        // SAFETY: the loader's name of an object is a C string that lives as long as the object.
        unsafe { CStr::from_ptr(info.dlpi_name) }
    };
    let name = name.to_string_lossy();
    let file = name.rsplit('/').next().unwrap_or_default();
    search.missing.retain(|missing| missing != file);
    // The executable comes first.
    let executable = std::mem::replace(&mut search.first, false);
    // SAFETY: the loader's table has `dlpi_phnum` headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    search.interpreter |= executable && headers.iter().any(|h| h.p_type == libc::PT_INTERP);
    if executable && search.linked || search.wanted.iter().any(|wanted| wanted == file) {
        search.found.extend(data_of(headers, info.dlpi_addr as usize, page_size()));
    }
    0
}

/// The pages of an object at `base` that stay writable after relocation.
fn data_of(headers: &[libc::Elf64_Phdr], base: usize, page: usize) -> Vec<Data> {
    let range = |header: &libc::Elf64_Phdr| {
        let start = base + header.p_vaddr as usize;
        start..start + header.p_memsz as usize
    };
    // The loader protects whole pages.
    let relro = headers.iter().find(|h| h.p_type == libc::PT_GNU_RELRO).map(|h| {
        let relro = range(h);
        relro.start / page * page..relro.end / page * page
    });
    let writable = |h: &&libc::Elf64_Phdr| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_W != 0;
    let data = headers.iter().filter(writable).map(|header| {
        let whole = range(header);
        let mut pages = whole.start / page * page..whole.end.next_multiple_of(page);
        if let Some(relro) = &relro
            && relro.start <= pages.start
            && pages.start < relro.end
        {
            pages.start = relro.end.min(pages.end);
        }
        Data {
            file_end: (whole.start + header.p_filesz as usize)
                .next_multiple_of(page)
                .min(pages.end),
            pages,
        }
    });
    data.filter(|data| !data.pages.is_empty()).collect()
}

/// For each page, whether it may hold bytes other than zero.
pub fn touched_pages(data: &Data) -> Vec<bool> {
    const PRESENT_OR_SWAPPED: u64 = 3 << 62;
    let page = page_size();
    let count = data.pages.len() / page;
    let mut entries = vec![0u8; 8 * count];
    let map = std::fs::File::open("/proc/self/pagemap");
    let known = map.is_ok_and(|map| {
        map.read_exact_at(&mut entries, (data.pages.start / page * 8) as u64).is_ok()
    });
    let touched = |i: usize| {
        let entry = u64::from_ne_bytes(entries[8 * i..8 * i + 8].try_into().expect("eight bytes"));
        !known || entry & PRESENT_OR_SWAPPED != 0 || data.pages.start + i * page < data.file_end
    };
    (0..count).map(touched).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u32, flags: u32, vaddr: u64, file: u64, memory: u64) -> libc::Elf64_Phdr {
        libc::Elf64_Phdr {
            p_type: kind,
            p_flags: flags,
            p_offset: 0,
            p_vaddr: vaddr,
            p_paddr: vaddr,
            p_filesz: file,
            p_memsz: memory,
            p_align: 4096,
        }
    }

    #[test]
    fn relro_and_code_stay_as_they_are() {
        let rw = libc::PF_R | libc::PF_W;
        let headers = [
            header(libc::PT_LOAD, libc::PF_R | libc::PF_X, 0x1000, 0x800, 0x800),
            header(libc::PT_LOAD, rw, 0x3d90, 0x400, 0x9000),
            header(libc::PT_GNU_RELRO, libc::PF_R, 0x3d90, 0x270, 0x270),
        ];
        let base = 0x55_0000_0000;
        let pages = base + 0x4000..base + 0xd000;
        assert_eq!(data_of(&headers, base, 4096), [Data { pages, file_end: base + 0x5000 }]);
        // Without RELRO; and with RELRO over all of the data.
        let pages = base + 0x3000..base + 0xd000;
        assert_eq!(data_of(&headers[..2], base, 4096), [Data { pages, file_end: base + 0x5000 }]);
        let all = [
            header(libc::PT_LOAD, rw, 0x3000, 0x1000, 0x1000),
            header(libc::PT_GNU_RELRO, libc::PF_R, 0x3000, 0x1000, 0x1000),
        ];
        assert_eq!(data_of(&all, base, 4096), []);
    }
}
