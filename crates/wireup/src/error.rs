//! What can go wrong between a process and its launcher.

use std::time::Duration;

/// Result of a call to the launcher.
pub type Result<T> = std::result::Result<T, Error>;

/// What a call to the launcher can fail with. Each message names the cause and the fix.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A variable of the launcher's that cannot be right.
    #[error(
        "{name}={value:?} {problem}. The launcher sets it; unset it to run this program without that launcher"
    )]
    Environment {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The launcher's answer is not one of the protocol's.
    #[error(
        "{launcher} answered {request} with {answer}, which {problem}. Start the program with `memonet run`, or with another launcher"
    )]
    Answer {
        /// What is spoken with the launcher.
        launcher: &'static str,
        /// What was asked for.
        request: String,
        /// What came.
        answer: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The launcher did not answer.
    #[error(
        "{launcher} has not answered {request} in {after:?}. It is stopped, or the program's MPI speaks another protocol with it: try `memonet run`"
    )]
    Silent {
        /// What is spoken with the launcher.
        launcher: &'static str,
        /// What was asked for.
        request: String,
        /// How long this process has waited.
        after: Duration,
    },
    /// Not all processes have come to a fence.
    #[error(
        "{missing} of {size} processes did not come to the fence {fence:?} within {after:?}. All processes that the launcher starts have to initialise memonet; some have ended before, or do not use it"
    )]
    Fence {
        /// What the fence is for.
        fence: &'static str,
        /// Which processes are missing, as far as the launcher lets one know.
        missing: String,
        /// How many processes there are.
        size: u32,
        /// How long this process has waited.
        after: Duration,
    },
    /// The connection to the launcher broke in an earlier call.
    #[error(
        "an earlier call to {launcher} failed, and what it answers now belongs to that call. Start the program again"
    )]
    Broken {
        /// What is spoken with the launcher.
        launcher: &'static str,
    },
    /// A process has put nothing under a key.
    #[error(
        "process {rank} has put nothing under {key:?}: it runs another version of memonet, or another program. Start one program of one memonet version everywhere"
    )]
    Nothing {
        /// The process asked for.
        rank: u32,
        /// The key.
        key: String,
    },
    /// A value that is not as its process has put it.
    #[error(
        "what process {rank} has put under {key:?} {problem}: it runs another version of memonet, or the launcher's store is damaged. Start one memonet version everywhere"
    )]
    Value {
        /// The process asked for.
        rank: u32,
        /// The key.
        key: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// What the process that speaks with the launcher for this one was told.
    #[error("{0}")]
    Session(String),
    /// The operating system refused something.
    #[error("{call}: {answer}. {hint}")]
    System {
        /// What was tried.
        call: String,
        /// The system's answer.
        answer: std::io::Error,
        /// What usually helps.
        hint: &'static str,
    },
}

/// The message: it is what people see of an error that `main` returns, or that is unwrapped.
impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
