//! Records: 24 bytes, and perhaps a payload.

use memonet_core::unstable::shm::AtomicOp;

/// Bytes of a header.
pub const HEADER: usize = 24;

/// Of the protocol: both ends must have the same.
pub(super) const VERSION: u64 = 0x6d6e_7463_7000_0002;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The first one in each direction.
    Hello = 1,
    /// Stores a word.
    Store,
    /// Updates a word, without an answer.
    Apply,
    /// Writes a block.
    Put,
    /// Reads a block.
    Get,
    /// Updates a word, and answers what it held.
    Update,
    /// Compares a word and swaps it, and answers what it held.
    CompareSwap,
    /// Asks for an acknowledgement.
    Flush,
    /// Says how many counted records have been applied.
    Ack,
    /// Answers a get.
    Data,
    /// Answers an update, or a compare and swap.
    Word,
    /// Nothing follows.
    Close,
    /// Says that something was not allowed.
    Refused,
}

const KINDS: [Kind; 13] = [
    Kind::Hello,
    Kind::Store,
    Kind::Apply,
    Kind::Put,
    Kind::Get,
    Kind::Update,
    Kind::CompareSwap,
    Kind::Flush,
    Kind::Ack,
    Kind::Data,
    Kind::Word,
    Kind::Close,
    Kind::Refused,
];

/// Why a record cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    /// There is no such record.
    #[error("a record of kind {0}, which does not exist")]
    Kind(u8),
    /// The first record is not a hello of this version.
    #[error("no hello of this version of memonet")]
    Hello,
    /// A hello in the midst of the stream, or something after a close.
    #[error("a {0:?} record at the wrong time")]
    Time(Kind),
    /// It is for another PE.
    #[error("a {0:?} record for PE {1}")]
    Pe(Kind, u32),
    /// Its range is not all in memory that is shared.
    #[error("a {0:?} record for {2} bytes at {1} of a region that does not have them")]
    Range(Kind, u64, u64),
    /// Its word is not aligned, or has no such size or operation.
    #[error("a {0:?} record for a word at {1} with size and operation {2:#x}")]
    Word(Kind, u64, u8),
    /// It answers something else, or nothing.
    #[error("a {0:?} record that answers no request")]
    Answer(Kind),
    /// It acknowledges what was not sent, or less than before.
    #[error("an acknowledgement of {0} records, which were not sent or were acknowledged before")]
    Ack(u64),
    /// It asks for more answers than may be under way.
    #[error("more requests at once than the protocol allows")]
    Requests,
}

/// A header, read or to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// Size of a word, and operation.
    pub aux: u8,
    /// In which region.
    pub region: u16,
    /// The target.
    pub pe: u32,
    /// Where in that region.
    pub offset: u64,
    /// As the table of records says.
    pub value: u64,
}

impl Header {
    /// Its bytes.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.kind as u8;
        bytes[1] = self.aux;
        bytes[2..4].copy_from_slice(&self.region.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.pe.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    /// What bytes say.
    ///
    /// # Errors
    /// [`Bad::Kind`].
    #[inline]
    pub fn from_bytes(bytes: &[u8; HEADER]) -> Result<Self, Bad> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let index = usize::from(bytes[0]).wrapping_sub(1);
        Ok(Header {
            kind: *KINDS.get(index).ok_or(Bad::Kind(bytes[0]))?,
            aux: bytes[1],
            region: u16::from_le_bytes([bytes[2], bytes[3]]),
            pe: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            offset: word(8),
            value: word(16),
        })
    }

    /// The size of its word, for an operation that takes words of these sizes.
    #[inline]
    pub(super) fn word_size(&self, sizes: &[usize]) -> Result<usize, Bad> {
        let size = usize::from(self.aux & 15);
        let right = sizes.contains(&size) && self.offset.is_multiple_of(size as u64);
        right.then_some(size).ok_or(self.bad_word())
    }

    pub(super) fn bad_word(&self) -> Bad {
        Bad::Word(self.kind, self.offset, self.aux)
    }
}

/// Operations by their number.
const OPS: [AtomicOp; 5] =
    [AtomicOp::Add, AtomicOp::And, AtomicOp::Or, AtomicOp::Xor, AtomicOp::Swap];

/// Size and operation in one byte.
pub(super) fn aux_of(size: usize, op: AtomicOp) -> u8 {
    let number = match op {
        AtomicOp::Add => 0,
        AtomicOp::And => 1,
        AtomicOp::Or => 2,
        AtomicOp::Xor => 3,
        AtomicOp::Swap => 4,
    };
    size as u8 | number << 4
}

/// The operation in such a byte.
pub(super) fn op_of(aux: u8) -> Option<AtomicOp> {
    OPS.get(usize::from(aux >> 4)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_operations_have_their_numbers() {
        for (index, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, index + 1);
        }
        for op in OPS {
            assert_eq!(op_of(aux_of(8, op)), Some(op));
        }
        assert_eq!(op_of(5 << 4 | 8), None);
    }
}
