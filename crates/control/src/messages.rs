//! The messages.

use std::ffi::OsString;
use std::net::SocketAddr;

use super::codec::{Bytes, wire_enum, wire_struct};

/// What an agent is to do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// The host, as the user has named it.
    pub host: String,
    /// The host's place in the list.
    pub node: u32,
    /// PEs of the job.
    pub npes: u32,
    /// The first PE of the node.
    pub first: u32,
    /// The programs of the node's PEs, in order.
    pub programs: Vec<Part>,
    /// Their environment, but for what names a host.
    pub environment: Vec<(OsString, OsString)>,
    /// Their working directory.
    pub folder: OsString,
    /// Whether to bind each PE to CPUs of its own; `None`: as it fits.
    pub bind: Option<bool>,
    /// Describe the binding.
    pub verbose: bool,
    /// Take silence for a loss.
    pub heartbeat: bool,
    /// The interface to listen on.
    pub interface: Option<String>,
    /// Collect the statistics of shared objects.
    pub stats: bool,
    /// Bytes for the events of each PE, for a timeline; 0: no events.
    pub events: u64,
}

/// Some PEs and their program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// PEs.
    pub n: u32,
    /// The program.
    pub program: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// What an agent has found on its host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// CPUs that the job may use.
    pub cpus: u32,
    /// Bytes of windows that each PE can have.
    pub heap: u64,
    /// Where the node's agent listens.
    pub addresses: Vec<SocketAddr>,
    /// The processor's architecture.
    pub architecture: String,
    /// Bytes of a page.
    pub page: u32,
    /// The provider of libfabric by which its PEs can reach those of other hosts; none where they
    /// are to use streams.
    pub provider: Option<String>,
}

/// The end of a process, as its agent has judged it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Death {
    /// The PE.
    pub pe: u32,
    /// The word of the state that the cause stands in; `None` for an end in order.
    pub cause: Option<u64>,
    /// The process that has ended, where it had joined under the one that was started.
    pub joined: Option<i32>,
    /// The PE had left the job in order before.
    pub after_finalizing: bool,
    /// It has ended by a signal that the agent has sent.
    pub sent: bool,
    /// What may help the user.
    pub hint: Option<String>,
}

/// What a PE waits for, as its agent knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeWaits {
    /// The PE.
    pub pe: u32,
    /// The word of its state.
    pub state: u64,
    /// What its process does, as a number.
    pub activity: u8,
    /// The system call in which it sleeps.
    pub call: String,
    /// What its program has called last, in words.
    pub last: String,
    /// Threads of its program; 0: not known.
    pub threads: u32,
    /// Those of them that sleep until another thread wakes them.
    pub idle: u32,
    /// Threads that wait, but for whose report was no room.
    pub lost: u32,
    /// The reports of its threads, as they have written them.
    pub waits: Vec<Bytes>,
}

/// From the launcher to an agent.
#[expect(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToAgent {
    /// Prepare for this job.
    Job { order: Order },
    /// Start the PEs: the job as `memonet_tcp::agent` describes it, secret included, and the bytes
    /// of windows that each PE has.
    Start { job: Bytes, heap: u64 },
    /// Input for PE 0; empty at its end.
    Stdin { bytes: Bytes },
    /// What has become of a PE. `place`: for a death, its place among all deaths of the job.
    State { pe: u32, state: u64, place: u32 },
    /// A PE has ended the whole job with this status.
    Exit { status: u8 },
    /// Send a signal to all PEs.
    Signal { number: i32 },
    /// End the PEs: SIGTERM, and a second later SIGKILL.
    Hurry {},
    /// End the PEs by SIGKILL, and yourself.
    End {},
    /// So many bytes of output were passed on.
    Written { bytes: u32 },
    /// The PE `from` of another node has got no stream to the PE `to` of this one.
    Unreached { from: u32, to: u32 },
    /// Nobody reads this output of the PEs any more: 0 for standard output, 1 for error.
    Closed { target: u8 },
    /// The launcher's clock shows this, in nanoseconds.
    Clock { sent: u64 },
    /// Ask the PEs what they wait for, by a question of this number.
    Ask { question: u32 },
}

/// From an agent to the launcher.
#[expect(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToLauncher {
    /// What the agent has found; it waits for the start.
    Ready { findings: Findings },
    /// It cannot be, and with which exit status the job is to end.
    Refused { why: String, status: u8 },
    /// The processes of its PEs.
    Started { processes: Vec<i32> },
    /// What a PE has written: 0 for standard output, 1 for error. Empty at its end.
    Output { pe: u32, target: u8, bytes: Bytes },
    /// A process has ended.
    Ended { death: Death },
    /// What has become of a PE.
    State { pe: u32, state: u64 },
    /// A PE has ended the whole job with this status.
    Exit { status: u8 },
    /// A message for the user.
    Say { text: String },
    /// So many bytes of input were passed on.
    Taken { bytes: u32 },
    /// A piece of what its PEs have recorded. The pieces follow each other.
    Stats { piece: Bytes },
    /// The PE `from` of this node has got no stream to the PE `to` of another one.
    Unreached { from: u32, to: u32 },
    /// The clock of its host shows `here`, as an answer to the launcher's clock.
    Clock { sent: u64, here: u64 },
    /// A part of the events of a PE, and where it begins among them.
    Events { pe: u32, at: u64, bytes: Bytes },
    /// What a PE waits for: an answer to the question of this number.
    Waits { question: u32, waits: PeWaits },
    /// All answers to the question of this number were given.
    Asked { question: u32 },
    /// All has ended. Nothing follows.
    Finished {},
}

/// Some deaths that stand next to each other in the order of a job's deaths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Nodes that are lost with this entry.
    pub nodes: Vec<u32>,
    /// PEs in their order, each with the word of its state: dead, or on a lost node, done.
    pub pes: Vec<(u32, u64)>,
}

/// From an agent to the other agents of its job, which another launcher has started.
#[expect(missing_docs, reason = "each message says what its fields are")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AmongAgents {
    /// What has become of a PE of the sender's node.
    State { pe: u32, state: u64 },
    /// A PE has ended the whole job with this status.
    Exit { status: u8 },
    /// The PE `from` of the sender's node has got no stream to the PE `to` of another one.
    Unreached { from: u32, to: u32 },
    /// The sender has lost this node; the word of the state that its PEs are in then.
    Lost { node: u32, state: u64 },
    /// The sender takes the order of deaths from the receiver from now on. Its order so far.
    Follow { order: Vec<Entry> },
    /// What comes next in the order of deaths.
    Order { entries: Vec<Entry> },
    /// All has ended. Nothing follows.
    Finished {},
}

wire_struct!(Entry { nodes, pes });
wire_enum!(AmongAgents {
    0 => State { pe, state },
    1 => Exit { status },
    2 => Unreached { from, to },
    3 => Lost { node, state },
    4 => Follow { order },
    5 => Order { entries },
    6 => Finished {},
});
wire_struct!(Order {
    host,
    node,
    npes,
    first,
    programs,
    environment,
    folder,
    bind,
    verbose,
    heartbeat,
    interface,
    stats,
    events,
});
wire_struct!(Part { n, program, args });
wire_struct!(Findings { cpus, heap, addresses, architecture, page, provider });
wire_struct!(Death { pe, cause, joined, after_finalizing, sent, hint });
wire_struct!(PeWaits { pe, state, activity, call, last, threads, idle, lost, waits });
wire_enum!(ToAgent {
    0 => Job { order },
    1 => Start { job, heap },
    2 => Stdin { bytes },
    3 => State { pe, state, place },
    4 => Exit { status },
    5 => Signal { number },
    6 => Hurry {},
    7 => Written { bytes },
    8 => Closed { target },
    9 => End {},
    10 => Unreached { from, to },
    11 => Clock { sent },
    12 => Ask { question },
});
wire_enum!(ToLauncher {
    0 => Ready { findings },
    1 => Refused { why, status },
    2 => Started { processes },
    3 => Output { pe, target, bytes },
    4 => Ended { death },
    5 => State { pe, state },
    6 => Exit { status },
    7 => Say { text },
    8 => Taken { bytes },
    9 => Finished {},
    10 => Stats { piece },
    11 => Unreached { from, to },
    12 => Clock { sent, here },
    13 => Events { pe, at, bytes },
    14 => Waits { question, waits },
    15 => Asked { question },
});

#[cfg(test)]
mod tests {
    use super::super::codec::{Wire, decode, encode};
    use super::*;
    use proptest::prelude::*;
    use proptest::strategy::BoxedStrategy;
    use std::os::unix::ffi::OsStringExt;

    fn word() -> impl Strategy<Value = OsString> {
        prop::collection::vec(any::<u8>(), 0..40).prop_map(OsString::from_vec)
    }

    fn bytes() -> impl Strategy<Value = Bytes> {
        prop::collection::vec(any::<u8>(), 0..100).prop_map(Bytes)
    }

    fn part() -> impl Strategy<Value = Part> {
        (any::<u32>(), word(), prop::collection::vec(word(), 0..3))
            .prop_map(|(n, program, args)| Part { n, program, args })
    }

    fn order() -> impl Strategy<Value = Order> {
        let numbers = (any::<u32>(), any::<u32>(), any::<u32>(), any::<Option<String>>());
        let words = (
            any::<String>(),
            prop::collection::vec(part(), 0..3),
            prop::collection::vec((word(), word()), 0..3),
            word(),
        );
        let options = any::<(Option<bool>, bool, bool, bool, u64)>();
        (numbers, words, options).prop_map(|(numbers, words, options)| Order {
            node: numbers.0,
            npes: numbers.1,
            first: numbers.2,
            interface: numbers.3,
            host: words.0,
            programs: words.1,
            environment: words.2,
            folder: words.3,
            bind: options.0,
            verbose: options.1,
            heartbeat: options.2,
            stats: options.3,
            events: options.4,
        })
    }

    fn addresses() -> impl Strategy<Value = Vec<SocketAddr>> {
        prop::collection::vec(any::<SocketAddr>(), 0..3).prop_map(|mut all| {
            for address in &mut all {
                // The text of an address has neither.
                if let SocketAddr::V6(six) = address {
                    six.set_flowinfo(0);
                    six.set_scope_id(0);
                }
            }
            all
        })
    }

    fn to_agent() -> BoxedStrategy<ToAgent> {
        prop_oneof![
            order().prop_map(|order| ToAgent::Job { order }),
            (bytes(), any::<u64>()).prop_map(|(job, heap)| ToAgent::Start { job, heap }),
            bytes().prop_map(|bytes| ToAgent::Stdin { bytes }),
            any::<(u32, u64, u32)>().prop_map(|(pe, state, place)| ToAgent::State {
                pe,
                state,
                place
            }),
            any::<u8>().prop_map(|status| ToAgent::Exit { status }),
            any::<i32>().prop_map(|number| ToAgent::Signal { number }),
            Just(ToAgent::Hurry {}),
            Just(ToAgent::End {}),
            any::<u32>().prop_map(|bytes| ToAgent::Written { bytes }),
            any::<u8>().prop_map(|target| ToAgent::Closed { target }),
            any::<(u32, u32)>().prop_map(|(from, to)| ToAgent::Unreached { from, to }),
            any::<u64>().prop_map(|sent| ToAgent::Clock { sent }),
            any::<u32>().prop_map(|question| ToAgent::Ask { question }),
        ]
        .boxed()
    }

    fn pe_waits() -> impl Strategy<Value = PeWaits> {
        let words = any::<(u32, u64, u8, String, String, u32, u32, u32)>();
        (words, prop::collection::vec(bytes(), 0..3)).prop_map(|(words, waits)| {
            let (pe, state, activity, call, last, threads, idle, lost) = words;
            PeWaits { pe, state, activity, call, last, threads, idle, lost, waits }
        })
    }

    type Parts = (u32, Option<u64>, Option<i32>, bool, bool, Option<String>);

    fn to_launcher() -> BoxedStrategy<ToLauncher> {
        let findings = (any::<(u32, u64, u32, String, Option<String>)>(), addresses());
        prop_oneof![
            findings.prop_map(|((cpus, heap, page, architecture, provider), addresses)| {
                let findings = Findings { cpus, heap, addresses, architecture, page, provider };
                ToLauncher::Ready { findings }
            }),
            any::<(String, u8)>().prop_map(|(why, status)| ToLauncher::Refused { why, status }),
            any::<Vec<i32>>().prop_map(|processes| ToLauncher::Started { processes }),
            (any::<(u32, u8)>(), bytes()).prop_map(|((pe, target), bytes)| ToLauncher::Output {
                pe,
                target,
                bytes
            }),
            any::<Parts>().prop_map(|(pe, cause, joined, after_finalizing, sent, hint)| {
                let death = Death { pe, cause, joined, after_finalizing, sent, hint };
                ToLauncher::Ended { death }
            }),
            any::<(u32, u64)>().prop_map(|(pe, state)| ToLauncher::State { pe, state }),
            any::<u8>().prop_map(|status| ToLauncher::Exit { status }),
            any::<String>().prop_map(|text| ToLauncher::Say { text }),
            any::<u32>().prop_map(|bytes| ToLauncher::Taken { bytes }),
            bytes().prop_map(|piece| ToLauncher::Stats { piece }),
            any::<(u64, u64)>().prop_map(|(sent, here)| ToLauncher::Clock { sent, here }),
            (any::<(u32, u64)>(), bytes()).prop_map(|((pe, at), bytes)| ToLauncher::Events {
                pe,
                at,
                bytes
            }),
            any::<(u32, u32)>().prop_map(|(from, to)| ToLauncher::Unreached { from, to }),
            (any::<u32>(), pe_waits())
                .prop_map(|(question, waits)| ToLauncher::Waits { question, waits }),
            any::<u32>().prop_map(|question| ToLauncher::Asked { question }),
            Just(ToLauncher::Finished {}),
        ]
        .boxed()
    }

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        let entry = any::<(Vec<u32>, Vec<(u32, u64)>)>();
        prop::collection::vec(entry.prop_map(|(nodes, pes)| Entry { nodes, pes }), 0..3)
    }

    fn among_agents() -> BoxedStrategy<AmongAgents> {
        prop_oneof![
            any::<(u32, u64)>().prop_map(|(pe, state)| AmongAgents::State { pe, state }),
            any::<u8>().prop_map(|status| AmongAgents::Exit { status }),
            any::<(u32, u32)>().prop_map(|(from, to)| AmongAgents::Unreached { from, to }),
            any::<(u32, u64)>().prop_map(|(node, state)| AmongAgents::Lost { node, state }),
            entries().prop_map(|order| AmongAgents::Follow { order }),
            entries().prop_map(|entries| AmongAgents::Order { entries }),
            Just(AmongAgents::Finished {}),
        ]
        .boxed()
    }

    /// A value is read as it was written, and none of its beginnings, or more than it, is a value.
    fn travels<T: Wire + PartialEq + std::fmt::Debug>(value: &T) {
        let bytes = encode(value);
        assert_eq!(decode::<T>(&bytes).unwrap(), *value);
        for len in 0..bytes.len() {
            assert!(decode::<T>(&bytes[..len]).is_err());
        }
        assert!(decode::<T>(&[&bytes[..], &[0]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn messages_travel(
            to_agent in to_agent(),
            to_launcher in to_launcher(),
            among_agents in among_agents(),
        ) {
            travels(&to_agent);
            travels(&to_launcher);
            travels(&among_agents);
        }

        #[test]
        fn garbage_is_an_error_or_a_message(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(message) = decode::<ToAgent>(&bytes) {
                prop_assert_eq!(decode::<ToAgent>(&encode(&message)).unwrap(), message);
            }
            if let Ok(message) = decode::<ToLauncher>(&bytes) {
                prop_assert_eq!(decode::<ToLauncher>(&encode(&message)).unwrap(), message);
            }
            if let Ok(message) = decode::<AmongAgents>(&bytes) {
                prop_assert_eq!(decode::<AmongAgents>(&encode(&message)).unwrap(), message);
            }
        }

        /// A message in which one byte is another.
        #[test]
        fn a_changed_byte_harms_nothing(message in to_agent(), at: usize, byte: u8) {
            let mut bytes = encode(&message);
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = decode::<ToAgent>(&bytes);
        }
    }
}
