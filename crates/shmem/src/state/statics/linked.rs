//! Whether the program links this library, or has loaded it by `dlopen`.
//!
//! A program that loads the library while it runs (an interpreter, say) does not expect that its
//! variables become symmetric: it may have threads, and its variables are not the user's. So the
//! executable's data are shared only where the executable needs the library: itself, or by the
//! libraries that it needs.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};

/// What is known of the objects that the loader has loaded.
#[derive(Default)]
struct Objects {
    /// The names that each object needs, by the name of its file. The executable has no name.
    needs: HashMap<String, Vec<String>>,
    /// The file that contains this library.
    own: Option<String>,
}

/// Whether the executable contains this library or needs it.
pub fn is_linked() -> bool {
    let mut objects = Objects::default();
    // SAFETY: libc calls `object` during this call only, with a pointer to `objects`, which
    // outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(object), (&raw mut objects).cast()) };
    let Some(own) = &objects.own else { return true };
    is_needed(&objects.needs, own)
}

/// Whether the executable, which has no name, needs an object.
fn is_needed(needs: &HashMap<String, Vec<String>>, own: &str) -> bool {
    let (mut seen, mut next) = (Vec::new(), vec![""]);
    while let Some(name) = next.pop() {
        if name == own {
            return true;
        }
        if !seen.contains(&name) {
            seen.push(name);
            next.extend(needs.get(name).into_iter().flatten().map(String::as_str));
        }
    }
    false
}

unsafe extern "C" fn object(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    objects: *mut c_void,
) -> c_int {
    // SAFETY: libc passes a valid description with a table of `dlpi_phnum` headers, and the pointer
    // to the `Objects` that only this call of `is_linked` uses.
    let (info, headers, objects) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info, headers, &mut *objects.cast::<Objects>())
    };
    let name = match objects.needs.is_empty() || info.dlpi_name.is_null() {
        // The executable comes first.
        true => String::new(),
        // SAFETY: the loader's name of an object is a C string that lives as long as the object.
        false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned(),
    };
    let file = name.rsplit('/').next().unwrap_or_default().to_owned();
    let (base, here) = (info.dlpi_addr as usize, object as *const () as usize);
    let is_around = |h: &libc::Elf64_Phdr| {
        h.p_type == libc::PT_LOAD
            && here.wrapping_sub(base + h.p_vaddr as usize) < h.p_memsz as usize
    };
    if headers.iter().any(is_around) {
        objects.own = Some(file.clone());
    }
    let dynamic = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC);
    // SAFETY: the loader has mapped the object, and its dynamic section with it.
    let needed = dynamic.map(|h| unsafe { needed(base, base + h.p_vaddr as usize) });
    objects.needs.insert(file, needed.unwrap_or_default());
    0
}

/// The names that a dynamic section asks for.
///
/// # Safety
/// `section` is the dynamic section of an object that the loader has mapped at `base`.
unsafe fn needed(base: usize, section: usize) -> Vec<String> {
    const END: u64 = 0;
    const NEEDED: u64 = 1;
    const STRINGS: u64 = 5;
    let mut entry = section as *const [u64; 2];
    let (mut names, mut strings) = (Vec::new(), None);
    loop {
        // SAFETY: the section is an array of such pairs, which ends with one of `END`.
        let [tag, value] = unsafe { *entry };
        match tag {
            END => break,
            NEEDED => names.push(value as usize),
            // Most loaders add the base to the address, where they relocate the section.
            STRINGS => {
                strings = Some(value as usize + if (value as usize) < base { base } else { 0 })
            }
            _ => {}
        }
        entry = entry.wrapping_add(1);
    }
    let Some(strings) = strings else { return Vec::new() };
    // SAFETY: each value is the distance of a C string from the start of the object's strings.
    let name = |at| unsafe { CStr::from_ptr((strings + at) as *const _) };
    names.into_iter().map(|at| name(at).to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_needs_what_its_libraries_need() {
        let needs = |of: &str, what: &[&str]| {
            (of.to_owned(), what.iter().map(|name| (*name).to_owned()).collect())
        };
        let objects = HashMap::from([
            needs("", &["liba.so", "libc.so.6"]),
            needs("liba.so", &["libb.so", "liba.so"]),
            needs("libb.so", &[]),
            needs("libloaded.so", &["libmemonet.so.0"]),
        ]);
        assert!(is_needed(&objects, "libb.so") && is_needed(&objects, ""));
        assert!(!is_needed(&objects, "libmemonet.so.0") && !is_needed(&objects, "libloaded.so"));
    }

    #[test]
    fn tests_contain_the_library_and_need_libc() {
        let mut objects = Objects::default();
        // SAFETY: as in `is_linked`.
        unsafe { libc::dl_iterate_phdr(Some(object), (&raw mut objects).cast()) };
        assert!(is_linked() && objects.own.as_deref() == Some(""));
        assert!(
            objects.needs[""].iter().any(|name| name.starts_with("libc.so")),
            "{:?}",
            objects.needs
        );
    }
}
