//! What the figures of all commands have in common: their font, and the extent of an axis.

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
