//! The messages of a launcher and a relay.
//!
//! A relay is a process on one host of a large job. It starts the agents of some hosts, and passes
//! on what they and the launcher say to each other. Agents are named by their nodes. A heartbeat of
//! the launcher's is for all of them.

use super::codec::{Bytes, wire_enum};

/// From the launcher to a relay.
#[expect(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToRelay {
    /// Start these agents, each on its host; an empty name is the relay's own host. `reach`: the
    /// words before the host of a command there, if they are not ssh's. `heartbeat`: take silence
    /// for a loss.
    Call { agents: Vec<(u32, String)>, reach: Option<String>, heartbeat: bool },
    /// Pass on a message.
    Pass { node: u32, message: Bytes },
    /// End the process that has started this agent.
    HangUp { node: u32 },
}

/// From a relay to the launcher.
#[expect(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromRelay {
    /// A part of the agent's control stream.
    Passed { node: u32, bytes: Bytes },
    /// What the process that has started the agent has written to its standard error.
    Errors { node: u32, bytes: Bytes },
    /// That process has ended. Nothing more comes of the agent.
    Ended { node: u32 },
}

wire_enum!(ToRelay {
    0 => Call { agents, reach, heartbeat },
    1 => Pass { node, message },
    2 => HangUp { node },
});
wire_enum!(FromRelay {
    0 => Passed { node, bytes },
    1 => Errors { node, bytes },
    2 => Ended { node },
});

#[cfg(test)]
mod tests {
    use super::super::codec::{Wire, decode, encode};
    use super::*;
    use proptest::prelude::*;

    /// A value is read as it was written, and none of its beginnings is a value.
    fn travels<T: Wire + PartialEq + std::fmt::Debug>(value: &T) {
        let bytes = encode(value);
        assert_eq!(decode::<T>(&bytes).unwrap(), *value);
        for len in 0..bytes.len() {
            assert!(decode::<T>(&bytes[..len]).is_err());
        }
    }

    proptest! {
        #[test]
        fn messages_travel(
            node: u32,
            bytes in prop::collection::vec(any::<u8>(), 0..100),
            agents: Vec<(u32, String)>,
            reach: Option<String>,
            heartbeat: bool,
        ) {
            let bytes = Bytes(bytes);
            travels(&ToRelay::Call { agents, reach, heartbeat });
            travels(&ToRelay::Pass { node, message: bytes.clone() });
            travels(&ToRelay::HangUp { node });
            travels(&FromRelay::Passed { node, bytes: bytes.clone() });
            travels(&FromRelay::Errors { node, bytes });
            travels(&FromRelay::Ended { node });
        }

        #[test]
        fn garbage_is_an_error_or_a_message(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(message) = decode::<ToRelay>(&bytes) {
                prop_assert_eq!(decode::<ToRelay>(&encode(&message)).unwrap(), message);
            }
            if let Ok(message) = decode::<FromRelay>(&bytes) {
                prop_assert_eq!(decode::<FromRelay>(&encode(&message)).unwrap(), message);
            }
        }
    }
}
