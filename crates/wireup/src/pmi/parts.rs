//! Values of any bytes as texts that PMI-1 can carry: short, and without blanks.
//!
//! A value is cut into parts. A part is the number of parts that follow it, a `-`, and bytes in
//! hexadecimal digits. So a reader knows from each part whether there is another one.

use std::fmt::Write;

/// The texts of a value, none longer than `longest`.
pub(super) fn split(value: &[u8], longest: usize) -> Vec<String> {
    // A number of parts has at most ten digits.
    let bytes = (longest.saturating_sub(11) / 2).max(1);
    let parts = value.len().div_ceil(bytes).max(1);
    let text = |part: usize| {
        let piece = value.chunks(bytes).nth(part).unwrap_or(&[]);
        let mut text = format!("{}-", parts - 1 - part);
        for byte in piece {
            write!(text, "{byte:02x}").expect("a string takes all");
        }
        text
    };
    (0..parts).map(text).collect()
}

/// Reads a part: how many follow it, and its bytes.
pub(super) fn read(text: &str) -> Result<(usize, Vec<u8>), &'static str> {
    const NONE: &str = "is not a part of a value";
    let (follow, digits) = text.split_once('-').ok_or(NONE)?;
    let is_number = follow.bytes().all(|byte| byte.is_ascii_digit());
    let follow = follow.parse().ok().filter(|_| is_number).ok_or(NONE)?;
    if digits.len() % 2 != 0 {
        return Err("is cut off");
    }
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    let bytes = digits.as_bytes().chunks(2).map(byte).collect::<Option<_>>().ok_or(NONE)?;
    Ok((follow, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_make_the_value_again(
            value in proptest::collection::vec(any::<u8>(), 0..300),
            longest in 13usize..200,
        ) {
            let parts = split(&value, longest);
            let mut again = Vec::new();
            for (part, text) in parts.iter().enumerate() {
                prop_assert!(text.len() <= longest && !text.contains([' ', '=', '\n']));
                let (follow, bytes) = read(text).unwrap();
                prop_assert_eq!(follow, parts.len() - 1 - part);
                again.extend(bytes);
            }
            prop_assert_eq!(again, value);
        }

        #[test]
        fn garbage_is_refused_without_a_panic(text in ".{0,40}") {
            if let Ok((follow, bytes)) = read(&text) {
                prop_assert!(text.starts_with(|c: char| c.is_ascii_digit()));
                prop_assert!(bytes.len() * 2 + follow.to_string().len() < text.len());
            }
        }
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for wrong in ["", "-", "-00", "0", "0-0", "0-0g", "+1-00", "1-é", "99999999999999999999-"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
