//! The table: its contents, how they are read, and the rules that they obey.

pub mod check;
pub mod expand;
pub mod generic;
pub mod model;
pub mod prototype;
pub mod read;
pub mod shape;
