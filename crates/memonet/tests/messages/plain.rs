//! Compiles: the control of this test.

use memonet as other;

mod inner {
    #[memonet::plain]
    pub struct Unit;

    #[memonet::plain]
    #[derive(Debug, Copy, Clone, PartialEq)]
    #[repr(transparent)]
    pub struct Wrapped<T>(pub T);

    /// A type may have the name of one that is not plain.
    #[memonet::plain]
    pub struct Box {
        pub corners: [f32; 4 & 6],
    }
}

#[memonet::plain]
struct Place {
    r#box: inner::Box,
    of: std::marker::PhantomData<Vec<bool>>,
}

#[other::plain(crate = "memonet")]
struct Pair {
    a: u32,
    b: inner::Wrapped<f32>,
    c: Option<std::num::NonZeroU32>,
}

fn main() -> memonet::Result<()> {
    let team = memonet::init()?;
    team.world().broadcast(0, inner::Unit)?;
    team.world().broadcast(0, Pair { a: 1, b: inner::Wrapped(2.0), c: None }).map(drop)
}
