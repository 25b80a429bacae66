#[memonet::plain]
struct Padded {
    charge: f32,
    position: [f64; 3],
}

fn main() -> memonet::Result<()> {
    memonet::init()?.world().all_gather(Padded { charge: 1.0, position: [0.0; 3] }).map(drop)
}
