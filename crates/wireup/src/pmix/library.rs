//! libpmix, loaded where a launcher speaks PMIx.

use super::abi;
use crate::error::{Error, Result};
use std::ffi::{CStr, CString, c_void};

/// The name that 3, 4 and 5 have.
const NAME: &CStr = c"libpmix.so.2";
/// Where the launcher says that it is installed, and folders that have its library there.
const PREFIXES: [&str; 2] = ["PMIX_INSTALL_PREFIX", "PMIX_PREFIX"];
const FOLDERS: [&str; 3] = ["lib", "lib64", "lib/openmpi"];

/// The functions that are used. The library stays loaded until the process ends.
pub(super) struct Library {
    pub(super) init: abi::Init,
    pub(super) put: abi::Put,
    pub(super) commit: abi::Commit,
    pub(super) fence_nb: abi::FenceNb,
    pub(super) get: abi::Get,
    pub(super) finalize: abi::Finalize,
    pub(super) error_string: abi::ErrorString,
}

impl Library {
    /// The library that the program's MPI uses; else that of the system, or of the launcher.
    pub(super) fn load() -> Result<Self> {
        let prefixes = PREFIXES.iter().filter_map(|name| std::env::var(name).ok());
        let prefixes = prefixes.filter(|prefix| !prefix.is_empty());
        let mut paths = prefixes.flat_map(|prefix| {
            let path = move |folder| format!("{prefix}/{folder}/{}", NAME.to_string_lossy());
            FOLDERS.iter().filter_map(move |folder| CString::new(path(folder)).ok())
        });
        let handle = open(NAME, libc::RTLD_NOLOAD)
            .or_else(|| open(NAME, 0))
            .or_else(|| paths.find_map(|path| open(&path, 0)));
        let Some(handle) = handle else {
            return Err(missing("loading libpmix.so.2, by which the launcher can be asked"));
        };
        let find = |name: &CStr| {
            // SAFETY: the handle is one of `dlopen`, and is never closed.
            let at = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if at.is_null() {
                return Err(missing(&format!(
                    "finding {} in libpmix.so.2",
                    name.to_string_lossy()
                )));
            }
            Ok(at)
        };
        macro_rules! function {
            ($name:literal, $kind:ty) => {
                // SAFETY: the library's function of this name has this type, in each version that
                // has the library's name.
                unsafe { std::mem::transmute::<*mut c_void, $kind>(find($name)?) }
            };
        }
        Ok(Library {
            init: function!(c"PMIx_Init", abi::Init),
            put: function!(c"PMIx_Put", abi::Put),
            commit: function!(c"PMIx_Commit", abi::Commit),
            fence_nb: function!(c"PMIx_Fence_nb", abi::FenceNb),
            get: function!(c"PMIx_Get", abi::Get),
            finalize: function!(c"PMIx_Finalize", abi::Finalize),
            error_string: function!(c"PMIx_Error_string", abi::ErrorString),
        })
    }

    /// The library's word for a status.
    pub(super) fn explain(&self, status: i32) -> String {
        // SAFETY: the function takes any number; it gives a text that is never freed.
        let text = unsafe { (self.error_string)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: a C string, which stays.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{} ({status})", text.to_string_lossy())
    }
}

/// Loads a library. Without a path `dlopen` would give the program itself.
fn open(path: &CStr, flags: i32) -> Option<*mut c_void> {
    if path.is_empty() {
        return None;
    }
    // SAFETY: `path` is a C string. The library's constructors run, as for each library of the
    // program.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | flags) };
    (!handle.is_null()).then_some(handle)
}

fn missing(call: &str) -> Error {
    // SAFETY: gives a text, or nothing, which stays until this thread's next call.
    let text = unsafe { libc::dlerror() };
    let answer = if text.is_null() {
        "no such library".into()
    } else {
        // SAFETY: a C string, as above.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    Error::System {
        call: call.into(),
        answer: std::io::Error::other(answer),
        hint: "Install OpenPMIx (Debian: libpmix2), or set LD_LIBRARY_PATH to where the launcher has it",
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn no_path_is_no_library() {
        assert!(open(c"", 0).is_none());
        assert!(open(c"libthere-is-none.so.2", 0).is_none());
        assert!(missing("loading").to_string().starts_with("loading: "));
    }
}
