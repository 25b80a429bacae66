//! The secret of a job.

use memonet_core::{Error, Result};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use zeroize::Zeroize;

/// Bytes of a secret: as many as SHA-256 has, which no search goes through.
pub(super) const SECRET_BYTES: usize = 32;

/// What all agents of a job know, and nobody else. It does not print itself, and its bytes are
/// cleared when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// A new one, from the kernel's random numbers.
    pub fn random() -> Result<Self> {
        random().map(Secret)
    }

    /// One that the job's agents have got in another way.
    pub fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Self {
        Secret(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Random numbers that nobody can guess.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(got) => filled += got,
            Err(Errno::INTR) => {}
            Err(e) => {
                return Err(Error::System {
                    call: "getrandom".into(),
                    answer: e.into(),
                    hint: "memonet between hosts needs Linux 3.17 or later",
                });
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_differ_and_do_not_print_themselves() {
        let (a, b) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert!(a != b && a == a.clone());
        assert_eq!(format!("{a:?} {b:?}"), "Secret(..) Secret(..)");
    }
}
