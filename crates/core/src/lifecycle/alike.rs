//! Settings that all PEs of a job must have alike.
//!
//! They decide how PEs meet. PEs that meet in different ways wait for each other for ever. So each
//! PE compares its own with those of the first PE that has joined, when it joins.

use crate::base::digest::Digest;
use crate::base::error::{Error, Result};
use crate::base::layout::SETTINGS;
use crate::base::settings::{
    self, ENV_BARRIER, ENV_CHECK, ENV_COLLECTIVES, ENV_FABRIC, ENV_MULTICAST,
};
use crate::endpoint::control::Control;

/// The variables. Their order is that of `JobHeader::settings`.
const ALIKE: [&str; SETTINGS] =
    [ENV_BARRIER, ENV_COLLECTIVES, ENV_MULTICAST, ENV_FABRIC, ENV_CHECK];

/// Refuses settings that differ from those of the first PE that has joined.
///
/// # Errors
/// [`Error::Environment`].
pub(super) fn compare(control: &Control) -> Result<()> {
    let value = |name| settings::value(name).map(|value| value.to_string_lossy().into_owned());
    for (number, name) in ALIKE.into_iter().enumerate() {
        let value = value(name);
        let mine = digest(name, value.as_deref());
        if control.first_setting(number, mine) != mine {
            return Err(Error::Environment {
                name,
                value: value.unwrap_or_default(),
                problem: "differs from what another PE of this job has".into(),
                fix: "Give all PEs the same value, or none: `memonet run --env NAME=VALUE` does",
            });
        }
    }
    Ok(())
}

/// Stands for a value; never 0.
fn digest(name: &str, value: Option<&str>) -> u32 {
    // Each PE may have an interface of its own.
    let alike = match name {
        ENV_MULTICAST => value.map(|value| value.split('@').next().unwrap_or_default()),
        // What there is without it.
        ENV_CHECK => value.filter(|&value| value != "0"),
        _ => value,
    };
    let Some(alike) = alike else { return 1 };
    Digest::new().bytes(alike.bytes()).value() as u32 | 2
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_means_the_same_may_differ() {
        let of = |value| digest(ENV_MULTICAST, value);
        assert_eq!(of(Some("udp:239.0.0.1:4000@10.0.0.1")), of(Some("udp:239.0.0.1:4000")));
        assert_ne!(of(Some("udp:239.0.0.1:4000")), of(Some("udp:239.0.0.1:4001")));
        assert_ne!(of(None), of(Some("")));
        let check = |value| digest(ENV_CHECK, value);
        assert!(check(Some("0")) == check(None) && check(Some("1")) != check(None));
        let fabrics = ["far:seed=1@2", "far:seed=1@3"].map(|value| digest(ENV_FABRIC, Some(value)));
        assert_ne!(fabrics[0], fabrics[1]);
    }
}
