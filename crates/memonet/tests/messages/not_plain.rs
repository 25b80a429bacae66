struct Particle {
    position: [f64; 3],
}

fn main() -> memonet::Result<()> {
    let job = memonet::init()?;
    let particles = job.window::<Particle>(10)?;
    println!("{}", particles.len());
    Ok(())
}
