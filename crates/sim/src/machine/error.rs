//! Mistakes in machine files.

/// What is wrong with a machine file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("machine {machine}{}: {}{problem}", .line.map(|line| format!(", line {line}")).unwrap_or_default(),
    .key.as_ref().map(|key| format!("{key} ")).unwrap_or_default())]
pub struct MachineError {
    /// The name or path that was asked for.
    pub machine: String,
    /// The line, where there is one.
    pub line: Option<usize>,
    /// The key, with the sections it is in, where it is about one.
    pub key: Option<String>,
    /// What is wrong, and what to do.
    pub problem: String,
}
