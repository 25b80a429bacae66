//! What lies between the PEs.

use crate::setup::Setup;
use std::sync::OnceLock;

/// Endpoints between all PEs.
pub const ENDPOINTS: Setup = Setup::of("endpoints", "ofi:provider=tcp;ofi_rxm");
/// Whether there is a libfabric here. Without one, says so.
pub fn are_there() -> bool {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    let missing = MISSING.get_or_init(|| memonet_ofi::available("tcp;ofi_rxm").err());
    if let Some(why) = missing {
        eprintln!("SKIPPED, nothing was tested: {why}");
    }
    missing.is_none()
}
