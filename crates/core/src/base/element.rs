//! What the elements of a front end are called.

/// For front ends whose elements are not known by their Rust type: what PEs compare of them, beside
/// bytes. PEs that give different ones get [`Unequal`](crate::Error::Unequal), which says both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct ElementName {
    /// Cut off, or filled up with zeros.
    name: [u8; 8],
    row: u64,
}

impl ElementName {
    /// What the elements are called, of which eight bytes are compared, and how many of them make a
    /// row of the array.
    pub fn new(name: &str, row: usize) -> Self {
        let mut element = ElementName { row: row as u64, ..Self::default() };
        for (byte, &given) in element.name.iter_mut().zip(name.as_bytes()) {
            *byte = given;
        }
        element
    }

    /// As words that PEs compare: zeros where the elements have no name.
    pub(crate) fn words(self) -> [u64; 2] {
        [u64::from_le_bytes(self.name), self.row]
    }

    /// What these words say, to be put behind a number of bytes.
    pub(crate) fn describe([name, row]: [u64; 2]) -> String {
        let name = name.to_le_bytes();
        match (String::from_utf8_lossy(&name).trim_end_matches('\0'), row) {
            ("", _) => String::new(),
            (name, 1) => format!(" of {name:?}"),
            (name, row) => format!(" of {name:?} in rows of {row}"),
        }
    }
}
