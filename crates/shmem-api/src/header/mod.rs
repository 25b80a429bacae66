//! The C headers.

mod c;
mod declarations;
pub mod extension;
mod generic;
mod inline;
pub mod standard;
