//! Particles that pull at each other, step by step:
//! `memonet run -n 4 target/release/examples/water [PARTICLES]`.
//!
//! Each PE moves its own part, and reads where all others are. The energy of motion is summed up
//! under a mutex.

use memonet::Result;
use memonet::dsm::{Mutex, Region};

#[path = "common/report.rs"]
mod report;

const STEPS: usize = 10;
const STEP: f64 = 1e-3;

type Vector = [f64; 3];

fn main() -> Result<()> {
    let count = report::argument(2000);
    let job = memonet::init()?;
    let (me, n) = (job.pe(), job.npes());
    let mine = me * count / n..(me + 1) * count / n;
    // 24 bytes each: a page of 1536 bytes holds 64 of them.
    let places =
        Region::<Vector>::with(&job, count, memonet::dsm::RegionOptions::new().page(1536))?;
    let energy = Mutex::new(&job, &[0.0; STEPS])?;
    places
        .write(mine.clone())?
        .write_from(mine.start, &mine.clone().map(start).collect::<Vec<_>>());
    places.barrier()?;

    let clock = report::Clock::start();
    let mut speeds = vec![[0.0; 3]; mine.len()];
    for step in 0..STEPS {
        let all = places.read(0..count)?.to_vec();
        // Nobody moves before all have looked.
        job.barrier()?;
        let (moved, own) = advance(&all, mine.clone(), &mut speeds);
        places.write(mine.clone())?.write_from(mine.start, &moved);
        energy.lock()?[step] += own;
        places.barrier()?;
    }
    let parallel = clock.seconds();

    let sums = *energy.lock()?;
    let right = || {
        let mut all: Vec<Vector> = (0..count).map(start).collect();
        let (mut speeds, mut energies) = (vec![[0.0; 3]; count], Vec::new());
        let clock = report::Clock::start();
        for _ in 0..STEPS {
            let (moved, own) = advance(&all, 0..count, &mut speeds);
            all = moved;
            energies.push(own);
        }
        let sequential = clock.seconds();
        // Places bit for bit; sums but for the order of their terms.
        let close = sums.iter().zip(&energies).all(|(a, b)| (a - b).abs() <= 1e-9 * b);
        Ok((close && places.read(0..count)?.to_vec() == all, sequential))
    };
    report::end(&job, right, parallel, &[places.stats(), energy.stats()])
}

fn start(particle: usize) -> Vector {
    [0, 1, 2].map(|axis| (report::hash((3 * particle + axis) as u64) % 10_000) as f64 / 100.0)
}

/// New places of some of the particles, and their energy of motion.
fn advance(
    all: &[Vector],
    some: std::ops::Range<usize>,
    speeds: &mut [Vector],
) -> (Vec<Vector>, f64) {
    let mut energy = 0.0;
    let moved = some.zip(speeds).map(|(particle, speed)| {
        let place = all[particle];
        let mut pull = [0.0; 3];
        for other in all {
            let way = [0, 1, 2].map(|axis| other[axis] - place[axis]);
            let square = way.iter().map(|x| x * x).sum::<f64>() + 0.01;
            let strength = 1.0 / (square * square.sqrt());
            (0..3).for_each(|axis| pull[axis] += strength * way[axis]);
        }
        (0..3).for_each(|axis| speed[axis] += STEP * pull[axis]);
        energy += speed.iter().map(|v| v * v).sum::<f64>() / 2.0;
        [0, 1, 2].map(|axis| place[axis] + STEP * speed[axis])
    });
    (moved.collect(), energy)
}
