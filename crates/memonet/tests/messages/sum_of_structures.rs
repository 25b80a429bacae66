#[memonet::plain]
struct Force {
    of: [f64; 3],
}

fn main() -> memonet::Result<()> {
    memonet::init()?.world().all_reduce(memonet::Sum, Force { of: [0.0; 3] }).map(drop)
}
