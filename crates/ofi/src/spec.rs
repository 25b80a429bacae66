//! The fabric as users ask for it, between PEs of one machine.

use crate::fabric::Ofi;
use crate::meeting::Local;
use memonet_core::Result;
use memonet_core::unstable::Seat;
use memonet_core::unstable::fabric::Fabric;
use memonet_core::unstable::mixture::{self, Mixture};

/// How users write it.
pub const USAGE: &str = "Write ofi, or ofi:SETTINGS with provider=NAME (as fi_info names it; one with hardware if it is left out), nodes=N (PEs of a node, which are near; 1 if it is left out), deal=0 or 1, cpus=N (of every other node), and commas between; unset it for shared memory";

/// Which provider, and which PEs are near to each other: `ofi`, or `ofi:provider=verbs,nodes=2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    provider: Option<String>,
    mixture: Mixture,
}

impl Spec {
    /// Reads settings; or says what is wrong with them.
    ///
    /// # Errors
    /// A setting that there is not, or a value that cannot be.
    pub fn parse(settings: &str) -> std::result::Result<Self, String> {
        let (mut provider, mut others) = (None, Vec::new());
        for setting in settings.split(',') {
            match setting.strip_prefix("provider=") {
                Some("") => return Err("names no provider".into()),
                Some(name) => provider = Some(name.to_owned()),
                None => others.push(setting),
            }
        }
        let mut mixture = Mixture { nodes: 1, ..Mixture::default() };
        // There is no chance here that a seed could repeat.
        mixture::parse(&others.join(","), |key, number| key == "seed" || mixture.set(key, number))?;
        Ok(Spec { provider, mixture })
    }

    /// The fabric of a PE.
    ///
    /// # Errors
    /// As for [`Ofi::new`].
    pub fn connect(&self, seat: &Seat) -> Result<Box<dyn Fabric>> {
        let record = self.mixture.record(seat.npes(), seat.cpus());
        let meeting = Local::new(record, seat.job(), seat.pe() as u32)?;
        let fabric = Ofi::new(seat, self.provider.as_deref(), Box::new(meeting))?;
        Ok(Box::new(fabric.crowded(seat.npes() > seat.cpus())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs() {
        let spec = Spec::parse("").unwrap();
        assert_eq!((spec.provider, spec.mixture.nodes), (None, 1));
        let spec = Spec::parse("nodes=2,provider=tcp;ofi_rxm,deal=1,seed=7").unwrap();
        assert_eq!(spec.provider.as_deref(), Some("tcp;ofi_rxm"));
        assert_eq!(spec.mixture, Mixture { nodes: 2, deal: true, cpus: 0 });
        for bad in ["nodes", "nodes=x", "provider=", "pace=1"] {
            assert!(Spec::parse(bad).is_err(), "{bad}");
        }
    }
}
