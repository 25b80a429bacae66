//! The table: what it says, how it is read, and what must hold for it.

pub mod check;
pub mod expand;
pub mod generic;
pub mod model;
pub mod prototype;
pub mod read;
pub mod shape;
