//! Values as bytes: numbers in little-endian order, lengths before what they count.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use anyhow::{Context, Result, bail};

/// A value that travels.
pub trait Wire: Sized {
    /// Adds its bytes.
    fn put(&self, to: &mut Vec<u8>);

    /// Takes it from the front of `bytes`.
    ///
    /// # Errors
    /// When there is no such value there. `bytes` may have been used in part.
    fn take(bytes: &mut &[u8]) -> Result<Self>;
}

/// A message as bytes.
pub fn encode(value: &impl Wire) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.put(&mut bytes);
    bytes
}

/// The value that these bytes are, all of them.
///
/// # Errors
/// When they are no such value.
pub fn decode<T: Wire>(mut bytes: &[u8]) -> Result<T> {
    let value = T::take(&mut bytes)?;
    if !bytes.is_empty() {
        bail!("{} bytes too many", bytes.len());
    }
    Ok(value)
}

fn split<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let (front, rest) = bytes.split_at_checked(len).context("cut short")?;
    *bytes = rest;
    Ok(front)
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn put(&self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn take(bytes: &mut &[u8]) -> Result<Self> {
                let mut own = [0; size_of::<$type>()];
                own.copy_from_slice(split(bytes, size_of::<$type>())?);
                Ok(<$type>::from_le_bytes(own))
            }
        }
    )*};
}
number!(u8, u32, u64, i32);

impl Wire for bool {
    fn put(&self, to: &mut Vec<u8>) {
        to.push(u8::from(*self));
    }

    fn take(bytes: &mut &[u8]) -> Result<Self> {
        match u8::take(bytes)? {
            0 => Ok(false),
            1 => Ok(true),
            other => bail!("neither true nor false: {other}"),
        }
    }
}

/// Bytes as such: a [`Vec`] of them would be read one by one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Wire for Bytes {
    fn put(&self, to: &mut Vec<u8>) {
        (self.0.len() as u32).put(to);
        to.extend_from_slice(&self.0);
    }

    fn take(bytes: &mut &[u8]) -> Result<Self> {
        let len = u32::take(bytes)? as usize;
        Ok(Bytes(split(bytes, len)?.to_vec()))
    }
}

impl Wire for OsString {
    fn put(&self, to: &mut Vec<u8>) {
        Bytes(self.as_bytes().to_vec()).put(to);
    }

    fn take(bytes: &mut &[u8]) -> Result<Self> {
        Ok(OsString::from_vec(Bytes::take(bytes)?.0))
    }
}

impl Wire for String {
    fn put(&self, to: &mut Vec<u8>) {
        Bytes(self.as_bytes().to_vec()).put(to);
    }

    fn take(bytes: &mut &[u8]) -> Result<Self> {
        String::from_utf8(Bytes::take(bytes)?.0).context("not UTF-8")
    }
}

impl Wire for SocketAddr {
    fn put(&self, to: &mut Vec<u8>) {
        self.to_string().put(to);
    }

    fn take(bytes: &mut &[u8]) -> Result<Self> {
        String::take(bytes)?.parse().context("not an address")
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        (self.len() as u32).put(to);
        self.iter().for_each(|value| value.put(to));
    }

    fn take(bytes: &mut &[u8]) -> Result<Self> {
        // Each value has at least one byte, so a wrong number ends before it takes memory.
        (0..u32::take(bytes)?).map(|_| T::take(bytes)).collect()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        self.iter().for_each(|value| value.put(to));
    }

    fn take(bytes: &mut &[u8]) -> Result<Self> {
        bool::take(bytes)?.then(|| T::take(bytes)).transpose()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }

    fn take(bytes: &mut &[u8]) -> Result<Self> {
        Ok((A::take(bytes)?, B::take(bytes)?))
    }
}

/// Has a struct travel field by field.
macro_rules! wire_struct {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Wire for $name {
            fn put(&self, to: &mut Vec<u8>) {
                $(self.$field.put(to);)*
            }

            fn take(bytes: &mut &[u8]) -> anyhow::Result<Self> {
                Ok($name { $($field: $crate::codec::Wire::take(bytes)?),* })
            }
        }
    };
}

/// Has an enum travel: a number for the variant, then its fields.
macro_rules! wire_enum {
    ($name:ident { $($tag:literal => $variant:ident { $($field:ident),* }),* $(,)? }) => {
        impl $crate::codec::Wire for $name {
            fn put(&self, to: &mut Vec<u8>) {
                match self {
                    $($name::$variant { $($field),* } => {
                        to.push($tag);
                        $($field.put(to);)*
                    })*
                }
            }

            fn take(bytes: &mut &[u8]) -> anyhow::Result<Self> {
                match <u8 as $crate::codec::Wire>::take(bytes)? {
                    $($tag => Ok($name::$variant {
                        $($field: $crate::codec::Wire::take(bytes)?),*
                    }),)*
                    other => anyhow::bail!("no {} has the number {other}", stringify!($name)),
                }
            }
        }
    };
}

pub(super) use {wire_enum, wire_struct};
