//! Machines: TOML files in which every number says where it is from.
//!
//! ```toml
//! summary = "What it is, in a line"
//! kind = "loggp"                                   # which NICs: a file in nic/
//!
//! [clock]                                          # clocks that times may be given in cycles of
//! dimm = { value = 100, unit = "MHz", source = "data/published.toml, dimmnet-1.environments" }
//!
//! [nic]
//! send_queue = { value = 2, unit = "cycles of dimm", source = "data/published.toml, dimmnet-1.stages" }
//! overhead   = { value = 214, unit = "ns", fitted = "on the round trip of environment D" }
//!
//! [variant.E]                                      # `NAME/E`: what differs
//! like = "D"                                       # first, another variant's differences
//! clock.dimm = { value = 133, unit = "MHz", assumed = "the board was never built" }
//! ```
//!
//! A parameter is a table with a `value`; every other table is a section. Each parameter has
//! exactly one of `source` (who published it), `fitted` (on what) and `assumed` (why so). A variant
//! may set and add any parameter. A file whose machine exists only in variants leaves out the
//! parameters that its variants set.
//!
//! The code that builds the machine reads parameters through [`Section`]. Then [`Machine::finish`]
//! refuses parameters that were not read. So an unknown, a missing, and an unused parameter are all
//! errors that name line and key. Only the section `program` is left to programs: it has times of
//! software that is not the library's, such as that of a published experiment.

mod built_in;
mod error;
mod model;
mod parameter;
mod read;
mod section;
mod units;

pub use built_in::BUILT_IN;
pub use error::MachineError;
pub use model::{Asked, Machine};
pub use parameter::{Parameter, Source, Value};
pub use section::Section;
pub use units::Rate;

impl Machine {
    /// The machine of this name, perhaps with a variant (`dimmnet-1/D`): a built-in one, or that of
    /// a file (`./mine.toml`, `./mine.toml/D`).
    ///
    /// # Errors
    /// [`MachineError`]: no such machine or variant, not TOML, a parameter that is not one.
    pub fn load(name: &str) -> Result<Machine, MachineError> {
        read::load(name)
    }

    /// The machine of this text, which errors call `name`.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn parse(name: &str, text: &str, variant: Option<&str>) -> Result<Machine, MachineError> {
        read::parse(name, text, variant)
    }
}
