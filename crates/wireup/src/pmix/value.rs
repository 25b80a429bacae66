//! Values of PMIx, read by the type that each names.

use super::abi::{kind, pmix_byte_object_t, pmix_data_t, pmix_value_t};
use std::ffi::{CStr, c_char};

/// What a value can be here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Value {
    Number(i128),
    Text(String),
    Bytes(Vec<u8>),
    /// One of another type.
    Other(u16),
}

/// Reads a value.
///
/// # Safety
/// The field that its type names is set, and what that points to is there.
pub(super) unsafe fn read(value: &pmix_value_t) -> Value {
    let data = &value.data;
    // SAFETY: the type names the field that is set, as the caller promises. Every bit pattern is a
    // number.
    unsafe {
        Value::Number(match value.kind {
            kind::SIZE | kind::UINT64 => data.uint64.into(),
            kind::INT | kind::INT32 => data.int32.into(),
            kind::INT8 => data.int8.into(),
            kind::INT16 => data.int16.into(),
            kind::INT64 => data.int64.into(),
            kind::UINT | kind::UINT32 | kind::PROC_RANK => data.uint32.into(),
            kind::UINT8 => data.uint8.into(),
            kind::UINT16 => data.uint16.into(),
            kind::BOOL => (data.flag != 0).into(),
            kind::STRING if !data.string.is_null() => {
                return Value::Text(CStr::from_ptr(data.string).to_string_lossy().into_owned());
            }
            kind::BYTE_OBJECT if data.bo.size == 0 => return Value::Bytes(Vec::new()),
            kind::BYTE_OBJECT if !data.bo.bytes.is_null() => {
                let bytes = std::slice::from_raw_parts(data.bo.bytes.cast::<u8>(), data.bo.size);
                return Value::Bytes(bytes.to_vec());
            }
            other => return Value::Other(other),
        })
    }
}

fn of(kind: u16, set: impl FnOnce(&mut pmix_data_t)) -> pmix_value_t {
    let mut data = pmix_data_t { largest: [0; 3] };
    set(&mut data);
    pmix_value_t { kind, data }
}

pub(super) fn of_flag(flag: bool) -> pmix_value_t {
    of(kind::BOOL, |data| data.flag = flag.into())
}

pub(super) fn of_int(number: i32) -> pmix_value_t {
    of(kind::INT, |data| data.int32 = number)
}

/// A value that points to `bytes`, for a call that reads them.
pub(super) fn of_bytes(bytes: &[u8]) -> pmix_value_t {
    let bytes =
        pmix_byte_object_t { bytes: bytes.as_ptr().cast::<c_char>().cast_mut(), size: bytes.len() };
    of(kind::BYTE_OBJECT, |data| data.bo = bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each type has its own field; the rest of the union is garbage.
    #[test]
    fn values_are_read_by_their_type() {
        let full = |kind| pmix_value_t { kind, data: pmix_data_t { largest: [u64::MAX; 3] } };
        for (kind, number) in [
            (kind::BOOL, 1),
            (kind::SIZE, u64::MAX.into()),
            (kind::INT, -1),
            (kind::INT8, -1),
            (kind::INT16, -1),
            (kind::INT32, -1),
            (kind::INT64, -1),
            (kind::UINT, u32::MAX.into()),
            (kind::UINT8, 255),
            (kind::UINT16, 65535),
            (kind::UINT32, u32::MAX.into()),
            (kind::UINT64, u64::MAX.into()),
            (kind::PROC_RANK, u32::MAX.into()),
        ] {
            // SAFETY: a number is set.
            assert_eq!(unsafe { read(&full(kind)) }, Value::Number(number), "type {kind}");
        }
        // SAFETY: no field is read of a type that is not known.
        assert_eq!(unsafe { read(&full(17)) }, Value::Other(17));
        // SAFETY: each is made of what lives on.
        unsafe {
            assert_eq!(read(&of_bytes(b"a\0b")), Value::Bytes(b"a\0b".to_vec()));
            assert_eq!(read(&of_bytes(b"")), Value::Bytes(Vec::new()));
            assert_eq!(read(&of_int(-5)), Value::Number(-5));
            assert_eq!(read(&of_flag(true)), Value::Number(1));
            let text = of(kind::STRING, |data| data.string = c"0,1".as_ptr().cast_mut());
            assert_eq!(read(&text), Value::Text("0,1".into()));
            for kind in [kind::STRING, kind::BYTE_OBJECT] {
                let null = of(kind, |data| data.largest = [0, 1, 0]);
                assert_eq!(read(&null), Value::Other(kind));
            }
        }
    }
}
