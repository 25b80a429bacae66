//! Compiles: the control of this test.

use memonet as other;

mod inner {
    #[memonet::plain]
    pub struct Unit;

    #[memonet::plain]
    #[derive(Debug, Copy, Clone, PartialEq)]
    #[repr(transparent)]
    pub struct Wrapped<T>(pub T);
}

#[other::plain(crate = "memonet")]
struct Pair {
    a: u32,
    b: inner::Wrapped<f32>,
}

fn main() -> memonet::Result<()> {
    let team = memonet::init()?;
    team.world().broadcast(0, inner::Unit)?;
    team.world().broadcast(0, Pair { a: 1, b: inner::Wrapped(2.0) }).map(drop)
}
