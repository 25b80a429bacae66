//! Libraries that are found at run time, where they are installed: memonet itself needs libc alone.
//!
//! A program that is linked statically cannot load a library. A reference to `dlopen` would make
//! its linker warn about that, also where nothing is ever loaded. So `dlopen` is itself looked up:
//! a static program has none, and is told so.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

/// A library, loaded for ever.
#[derive(Clone, Copy, Debug)]
pub struct Library(NonNull<c_void>);

// SAFETY: it is never unloaded, and any thread may look symbols up.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

impl Library {
    /// Loads a library of this name, which the dynamic linker looks for, or of this path. Its
    /// constructors run, as for each library that the program is linked with.
    ///
    /// # Errors
    ///
    /// What the dynamic linker says, or that the program has none.
    pub fn open(name: &CStr) -> Result<Self, String> {
        open(name, 0)
    }

    /// The library of this name, if the program has loaded it already.
    pub fn loaded(name: &CStr) -> Option<Self> {
        open(name, libc::RTLD_NOLOAD).ok()
    }

    /// The address of a symbol, in its default version.
    pub fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: a library that stays loaded, and a string that ends with a zero.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    /// The address of a symbol in this version.
    pub fn versioned(self, name: &CStr, version: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: as above.
        NonNull::new(unsafe { libc::dlvsym(self.0.as_ptr(), name.as_ptr(), version.as_ptr()) })
    }
}

fn open(name: &CStr, flags: c_int) -> Result<Library, String> {
    // `dlopen` takes no name for the program itself.
    if name.is_empty() {
        return Err("a library has a name".into());
    }
    // SAFETY: a string that ends with a zero.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr()) };
    if function.is_null() {
        return Err("a program that is linked statically cannot load libraries".into());
    }
    // SAFETY: libc's function of this name has this type.
    let function = unsafe { std::mem::transmute::<*mut c_void, Open>(function) };
    // SAFETY: a string that ends with a zero; constructors may run.
    let handle = unsafe { function(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | flags) };
    NonNull::new(handle).map(Library).ok_or_else(why)
}

/// What the last call in this thread failed for.
fn why() -> String {
    // SAFETY: it gives a string, which stays until this thread's next call, or nothing.
    let text = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
    text.map_or("the dynamic linker does not say why".into(), |text| text.to_string_lossy().into())
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_their_symbols() {
        let libc = Library::open(c"libc.so.6").unwrap();
        assert!(libc.symbol(c"getpid").is_some());
        assert!(libc.symbol(c"no_such_symbol").is_none());
        assert!(libc.versioned(c"getpid", c"NO_SUCH_VERSION").is_none());
        assert!(Library::loaded(c"libc.so.6").is_some());
    }

    #[test]
    fn libraries_that_are_not_there() {
        let why = Library::open(c"libnosuch.so.9").unwrap_err();
        assert!(why.contains("libnosuch.so.9"), "{why}");
        assert!(Library::loaded(c"libnosuch.so.9").is_none());
        assert!(Library::open(c"").is_err());
    }
}
