//! How much a link keeps (W8).

/// Longer payloads are sent from where they lie.
pub const COPIED: usize = 4096;
/// Longer answers are sent from where they lie.
pub const COPIED_ANSWER: usize = 512;
/// With so many bytes of records to send, no more are added before some are sent.
pub const ROOM: usize = 64 << 10;
/// So many payloads wait to be sent from where they lie.
pub const PIECES: usize = 256;
/// So many requests wait for an answer.
pub const REQUESTS: usize = 1024;
