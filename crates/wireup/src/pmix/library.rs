//! libpmix, loaded where a launcher speaks PMIx.

use super::abi;
use crate::error::{Error, Result};
use memonet_dl as dl;
use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;

/// The name that 3, 4 and 5 have.
const NAME: &CStr = c"libpmix.so.2";
/// Where the launcher says that it is installed, and folders that have its library there.
const PREFIXES: [&str; 3] = ["PMIX_INSTALL_PREFIX", "PMIX_PREFIX", "OPAL_PREFIX"];
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
    /// The library that the program's MPI uses; else the launcher's, or that of the system. One of
    /// another version than the launcher's may make its server print errors: 4.2 does so with 5.0.
    pub(super) fn load() -> Result<Self> {
        let prefixes = PREFIXES.iter().filter_map(|name| std::env::var(name).ok());
        let prefixes = prefixes.filter(|prefix| !prefix.is_empty());
        let mut paths = prefixes.flat_map(|prefix| {
            let path = move |folder| format!("{prefix}/{folder}/{}", NAME.to_string_lossy());
            FOLDERS.iter().filter_map(move |folder| CString::new(path(folder)).ok())
        });
        let found = dl::Library::loaded(NAME)
            .or_else(|| paths.find_map(|path| dl::Library::open(&path).ok()))
            .map_or_else(|| dl::Library::open(NAME), Ok)
            .map_err(|why| missing("loading libpmix.so.2, by which the launcher is asked", why))?;
        let find = |name: &CStr| {
            let name_of = name.to_string_lossy();
            found.symbol(name).map(NonNull::as_ptr).ok_or_else(|| {
                missing("finding a function in libpmix.so.2", format!("it has no {name_of}"))
            })
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

/// Whether the program's MPI has begun the library in this process, and not ended it.
pub(super) fn has_begun() -> bool {
    let Some(library) = dl::Library::loaded(NAME) else { return false };
    let Some(function) = library.symbol(c"PMIx_Initialized") else { return false };
    // SAFETY: the library's function of this name has this type; it takes nothing.
    unsafe { std::mem::transmute::<*mut c_void, abi::Initialized>(function.as_ptr())() != 0 }
}

fn missing(call: &str, why: String) -> Error {
    Error::System {
        call: call.into(),
        answer: std::io::Error::other(why),
        hint: "Install OpenPMIx (Debian: libpmix2), or set LD_LIBRARY_PATH to where the launcher has it",
    }
}
