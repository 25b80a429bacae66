//! What the figures of all commands have in common: their font, and the extent and the numbers of
//! an axis.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::style::{FontStyle, register_font};

/// The SVG names this family too; viewers without it take their own sans-serif.
pub const FONT: &str = "sans-serif";

/// Makes the built-in font known to plotters, which looks for no fonts of the machine: there need
/// not be any.
pub fn register_built_in_font() -> Result<()> {
    register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT)
        .map_err(|_| anyhow!("the built-in font is damaged"))
}

/// From the smallest to the largest value, with `room` around them on a logarithmic axis.
pub fn extent(values: impl Iterator<Item = f64> + Clone, room: f64) -> Range<f64> {
    values.clone().fold(f64::INFINITY, f64::min) / room..values.fold(0.0, f64::max) * room
}

/// A number on an axis, with three digits, or as many as stand before the point.
pub fn number(value: f64) -> String {
    let decimals = (2.0 - value.abs().log10().floor()).clamp(0.0, 12.0) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.1 + 0.2, "0.3"),
            (0.012345, "0.0123"),
            (1.0, "1"),
            (2.5, "2.5"),
            (1234.5, "1234"),
            (20000.0, "20000"),
            (0.0, "0"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
