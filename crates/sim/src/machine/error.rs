//! Mistakes in machine files.

/// A mistake in a machine file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("machine {machine}{}: {}{problem}", .line.map(|line| format!(", line {line}")).unwrap_or_default(),
    .key.as_ref().map(|key| format!("{key} ")).unwrap_or_default())]
pub struct MachineError {
    /// The name or path of the machine.
    pub machine: String,
    /// The line of the mistake, if it is on one.
    pub line: Option<usize>,
    /// The key that the mistake is about, with its sections, if it is about one.
    pub key: Option<String>,
    /// What is wrong, and what to do.
    pub problem: String,
}
