//! Where the program has called the library, for reports of long waits and messages of errors.
//!
//! All exported functions, and those to which they jump, stand in one section of the library, of
//! which the linker knows the ends.
//! So the program is where the frame lies that follows those of that section. Calls pay nothing:
//! only who asks walks the stack.

use memonet_core::unstable::callers::Instruction;
use std::ffi::{CStr, c_int, c_void};
use std::path::Path;

unsafe extern "C" {
    #[link_name = "__start_memonet_calls"]
    static START: u8;
    #[link_name = "__stop_memonet_calls"]
    static STOP: u8;
}

/// Makes the section be there in programs that use no exported function.
#[unsafe(link_section = "memonet_calls")]
extern "C" fn anchor() {}

#[used]
static ANCHOR: extern "C" fn() = anchor;

/// The instruction of the program that has called the library, if this thread is in a call.
fn instruction() -> Option<usize> {
    let calls = (&raw const START).addr()..(&raw const STOP).addr();
    let (mut within, mut found) = (false, None);
    backtrace::trace(|frame| {
        // A frame has the address to which its function returns, behind the call.
        let at = frame.ip().addr().wrapping_sub(1);
        let is_call = calls.contains(&at);
        found = (within && !is_call).then_some(at);
        within |= is_call;
        found.is_none()
    });
    found
}

/// The program's instruction, by file and address.
pub fn caller() -> Option<Instruction> {
    let mut search = Search { instruction: instruction()? as u64, found: None };
    // SAFETY: `look` is called with `search` only before this returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    let (object, address) = search.found?;
    let object = match object.is_empty() {
        true => std::env::current_exe().ok()?.into_os_string().into_string().ok()?,
        false => object,
    };
    Some(Instruction { object, address })
}

struct Search {
    instruction: u64,
    /// The name of the object that has it, which the program's own has none, and its address there.
    found: Option<(String, u64)>,
}

/// Looks for the instruction in an object of this process.
unsafe extern "C" fn look(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the linker gives the description of an object, and `caller` its search.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    // SAFETY: an object has so many headers.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let address = search.instruction.wrapping_sub(info.dlpi_addr);
    let has = |header: &libc::Elf64_Phdr| {
        header.p_type == libc::PT_LOAD && address.wrapping_sub(header.p_vaddr) < header.p_memsz
    };
    if !headers.iter().any(has) {
        return 0;
    }
    let name = match info.dlpi_name.is_null() {
        true => String::new(),
        // SAFETY: a name of the linker's, which ends with a zero.
        false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned(),
    };
    search.found = Some((name, address));
    1
}

/// The program's instruction for a message: file and line, else the function; nothing where neither
/// is known, or this thread is in no call.
pub fn place() -> Option<String> {
    let instruction = instruction()?;
    let (mut line, mut function) = (None, None);
    backtrace::resolve(std::ptr::without_provenance_mut(instruction), |symbol| {
        // What the header inlines belongs to the line that calls it.
        let ours = |path: &&Path| path.file_name().is_some_and(|name| name == "shmem.h");
        if let (Some(file), Some(number), None) =
            (symbol.filename().filter(|path| !ours(path)), symbol.lineno(), &line)
        {
            let here = std::env::current_dir().unwrap_or_default();
            let file = file.strip_prefix(here).unwrap_or(file);
            line = Some(format!("{}:{number}", file.display()));
        }
        function = function.take().or_else(|| Some(symbol.name()?.to_string()));
    });
    line.or(function)
}
