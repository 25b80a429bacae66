//! How PEs of different hosts reach each other: by streams, or by libfabric.
//!
//! 1. The user [asks](Between::asked): `MEMONET_FABRIC` is `tcp`, `ofi`, `ofi:provider=NAME`, or
//!    not set.
//! 2. Each host [finds](Between::find) the provider of libfabric by which its PEs would do it.
//! 3. Whoever knows all hosts [decides](Between::decide): the launcher, or under another launcher
//!    the PE that leads a node, each from the same findings. All get the decision as part of the
//!    job's description.
//! 4. Each PE [compares](Between::check) it with what it is asked for itself.

use memonet_core::unstable::settings;
use memonet_core::{ENV_FABRIC, Error, Result};

/// What the user asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Between {
    /// libfabric where all hosts have the same provider for network cards with remote memory
    /// access, and otherwise streams.
    Best,
    /// Streams.
    Streams,
    /// libfabric, by the provider of this name, or by one for network cards.
    Libfabric(Option<String>),
}

/// What was decided, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The provider of libfabric; none for streams.
    pub provider: Option<String>,
    /// For the user.
    pub why: String,
}

const FIX: &str = "Between hosts write tcp, ofi, or ofi:provider=NAME (as fi_info names it), or unset it: it is tcp then, or ofi where all hosts have network cards with remote memory access";

impl Between {
    /// What the environment of this process asks for.
    ///
    /// # Errors
    /// [`Error::Environment`] for what is of one machine alone.
    pub fn asked() -> Result<Self> {
        let spec = settings::value(ENV_FABRIC);
        spec.map_or(Ok(Between::Best), |spec| Self::parse(&spec.to_string_lossy()))
    }

    /// What this value of `MEMONET_FABRIC` asks for.
    ///
    /// # Errors
    /// As for [`asked`](Self::asked).
    pub fn parse(spec: &str) -> Result<Self> {
        let provider = spec.strip_prefix("ofi:provider=");
        match (spec, provider) {
            (memonet_tcp::NAME, _) => Ok(Between::Streams),
            (memonet_ofi::NAME, _) => Ok(Between::Libfabric(None)),
            (_, Some(name)) if !name.is_empty() && !name.contains(',') => {
                Ok(Between::Libfabric(Some(name.into())))
            }
            _ => Err(Error::Environment {
                name: ENV_FABRIC,
                value: spec.into(),
                problem: "names no way between hosts: this job has several".into(),
                fix: FIX,
            }),
        }
    }

    /// Whether [`find`](Self::find) loads libfabric on this host.
    pub fn needs_libfabric(&self) -> bool {
        match self {
            Between::Streams => false,
            Between::Best => memonet_ofi::has_card(),
            Between::Libfabric(_) => true,
        }
    }

    /// The provider by which PEs of this host would do what is asked for; none for streams.
    ///
    /// # Errors
    /// What is missing here.
    pub fn find(&self) -> std::result::Result<Option<String>, String> {
        match self {
            Between::Streams => Ok(None),
            Between::Best => Ok(memonet_ofi::hardware().ok()),
            Between::Libfabric(None) => memonet_ofi::hardware().map(Some).map_err(|why| {
                format!("{why}. Name another provider (--fabric ofi:provider=NAME), or take --fabric tcp")
            }),
            Between::Libfabric(Some(name)) => memonet_ofi::provider(Some(name)).map(Some).map_err(
                |why| format!("libfabric cannot be used here: {why}. Install it (Debian: libfabric1) with that provider, or take --fabric tcp"),
            ),
        }
    }

    /// Decides for hosts that have found these providers.
    ///
    /// # Errors
    /// Where hosts differ, though the user has asked for libfabric.
    pub fn decide(&self, found: &[(&str, Option<&str>)]) -> std::result::Result<Decision, String> {
        let describe = |(host, provider): &(&str, Option<&str>)| match provider {
            Some(provider) => format!("{host} has the provider {provider}"),
            None => format!("{host} has none"),
        };
        let streams = |why: String| Ok(Decision { provider: None, why });
        let Some((first, rest)) = found.split_first() else { return streams(String::new()) };
        let other = rest.iter().find(|other| other.1 != first.1);
        let differ = |other| format!("of libfabric {}, and {}", describe(first), describe(other));
        match (self, other, first.1) {
            (Between::Streams, ..) => streams("as --fabric asks for".into()),
            (Between::Best, None, None) => {
                streams("no host has libfabric and network cards with remote memory access".into())
            }
            (Between::Best, Some(other), _) => streams(differ(other)),
            (_, None, Some(provider)) => {
                let why = match self {
                    Between::Libfabric(Some(_)) => "as --fabric asks for",
                    _ => "all hosts have network cards for it",
                };
                Ok(Decision { provider: Some(provider.into()), why: why.into() })
            }
            (_, other, _) => Err(format!(
                "hosts have no common way by libfabric: {}. Name a provider that all have (--fabric ofi:provider=NAME), or take --fabric tcp",
                other.map_or_else(|| describe(first), differ)
            )),
        }
    }

    /// Refuses a job whose PEs reach each other in another way than this one asks for.
    ///
    /// # Errors
    /// [`Error::Environment`].
    pub fn check(&self, provider: Option<&str>) -> Result<()> {
        let agrees = match self {
            Between::Best => true,
            Between::Streams => provider.is_none(),
            Between::Libfabric(None) => provider.is_some(),
            Between::Libfabric(Some(name)) => provider == Some(name),
        };
        if agrees {
            return Ok(());
        }
        let has = provider.map_or("tcp".into(), |provider| format!("ofi:provider={provider}"));
        Err(Error::Environment {
            name: ENV_FABRIC,
            value: std::env::var_os(ENV_FABRIC).unwrap_or_default().to_string_lossy().into_owned(),
            problem: format!("is not what the job has between its hosts: {has}"),
            fix: "Set it alike for all PEs, before the job starts",
        })
    }
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.provider {
            Some(provider) => write!(f, "libfabric (fabric ofi, provider {provider})")?,
            None => write!(f, "streams (fabric tcp)")?,
        }
        write!(f, ": {}", self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERBS: Option<&str> = Some("verbs;ofi_rxm");

    #[test]
    fn what_is_of_one_machine_is_refused() {
        let libfabric = |name: Option<&str>| Between::Libfabric(name.map(str::to_owned));
        assert_eq!(Between::parse("tcp").unwrap(), Between::Streams);
        assert_eq!(Between::parse("ofi").unwrap(), libfabric(None));
        assert_eq!(
            Between::parse("ofi:provider=tcp;ofi_rxm").unwrap(),
            libfabric(Some("tcp;ofi_rxm"))
        );
        for bad in
            ["", "far", "tcp:nodes=2", "ofi:nodes=2", "ofi:provider=", "ofi:provider=a,nodes=2"]
        {
            let error = Between::parse(bad).unwrap_err().to_string();
            assert!(error.contains("this job has several"), "{error}");
        }
    }

    #[test]
    fn hosts_decide_alike() {
        let decide = |asked: &Between, found: &[(&str, Option<&str>)]| asked.decide(found);
        let ofi = Between::Libfabric(None);
        let provider =
            |asked, found: &[(&str, Option<&str>)]| decide(asked, found).unwrap().provider;
        let (both, one) = ([("a", VERBS), ("b", VERBS)], [("a", VERBS), ("b", None)]);
        assert_eq!(provider(&Between::Best, &both).as_deref(), VERBS);
        assert_eq!(provider(&ofi, &both).as_deref(), VERBS);
        assert_eq!(provider(&Between::Best, &one), None);
        assert_eq!(provider(&Between::Best, &[("a", None), ("b", None)]), None);
        assert_eq!(provider(&Between::Streams, &both), None);
        let said = decide(&Between::Best, &one).unwrap().to_string();
        assert!(said.contains("a has the provider verbs;ofi_rxm, and b has none"), "{said}");
        for found in [one, [("a", None), ("b", VERBS)], [("a", None), ("b", None)]] {
            let why = decide(&ofi, &found).unwrap_err();
            assert!(why.contains("a has ") && why.contains("--fabric tcp"), "{why}");
        }
    }

    #[test]
    fn a_pe_that_asks_for_another_way_is_refused() {
        assert!(Between::Best.check(VERBS).is_ok() && Between::Best.check(None).is_ok());
        assert!(Between::Streams.check(None).is_ok() && Between::Streams.check(VERBS).is_err());
        let ofi = |name: Option<&str>| Between::Libfabric(name.map(str::to_owned));
        assert!(ofi(None).check(VERBS).is_ok() && ofi(VERBS).check(VERBS).is_ok());
        assert!(ofi(None).check(None).is_err() && ofi(Some("efa")).check(VERBS).is_err());
    }
}
