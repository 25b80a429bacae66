//! What every call needs: the job, the place of symmetric memory, and the objects that handles
//! stand for.
//!
//! Calls import the names below; inside this folder, files import each other by their own names.

mod address;
mod argument;
mod caller;
pub mod contexts;
pub mod environment;
mod fatal;
pub mod handle;
mod inlined;
mod library;
pub mod lock;
pub mod near;
pub mod record;
mod shared;
mod statics;
pub mod teams;

pub use argument::{bytes, check_result};
pub use fatal::{die, fail, or_die};
pub use library::{State, current, get, join, set_current};
