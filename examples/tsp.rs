//! The shortest tour through some cities, by branch and bound:
//! `memonet run -n 4 target/release/examples/tsp [CITIES]`.
//!
//! The best tour so far is shared under a mutex, and so is the number of the next piece of work.
//! The bound of the best is also kept by each PE, and looked up anew with each piece: an old one
//! only prunes less.

use memonet::Result;
use memonet::dsm::Mutex;

#[path = "common/report.rs"]
mod report;

const MOST: usize = 20;

/// Length and order of a tour.
type Tour = [u32; MOST + 1];

struct Search {
    distances: Vec<Vec<u32>>,
    /// The least that leaving each city takes.
    least: Vec<u32>,
    best: Tour,
}

impl Search {
    fn new(cities: usize) -> Self {
        let place = |city: usize| {
            (report::hash(2 * city as u64) % 1000, report::hash(2 * city as u64 + 1) % 1000)
        };
        let distance = |a: usize, b: usize| {
            let ((ax, ay), (bx, by)) = (place(a), place(b));
            ((ax.abs_diff(bx).pow(2) + ay.abs_diff(by).pow(2)) as f64).sqrt() as u32
        };
        let distances: Vec<Vec<u32>> =
            (0..cities).map(|a| (0..cities).map(|b| distance(a, b)).collect()).collect();
        let least = (0..cities)
            .map(|a| (0..cities).filter(|&b| b != a).map(|b| distances[a][b]).min().unwrap_or(0))
            .collect();
        Search { distances, least, best: [u32::MAX; MOST + 1] }
    }

    /// All tours that begin so.
    fn descend(&mut self, tour: &mut Vec<usize>, length: u32) {
        let (cities, last) = (self.distances.len(), tour[tour.len() - 1]);
        if tour.len() == cities {
            let length = length + self.distances[last][0];
            if length < self.best[0] {
                self.best[0] = length;
                (0..cities).for_each(|i| self.best[i + 1] = tour[i] as u32);
            }
            return;
        }
        let rest: u32 = (0..cities)
            .filter(|city| *city == last || !tour.contains(city))
            .map(|city| self.least[city])
            .sum();
        if length + rest >= self.best[0] {
            return;
        }
        for next in (1..cities).filter(|next| !tour.contains(next)).collect::<Vec<_>>() {
            tour.push(next);
            self.descend(tour, length + self.distances[last][next]);
            tour.pop();
        }
    }

    /// Piece `number` of the work: tours with a certain second and third city.
    fn piece(&mut self, number: usize) {
        let others = self.distances.len() - 1;
        let (second, third) = (1 + number / others, 1 + number % others);
        if second != third {
            let length = self.distances[0][second] + self.distances[second][third];
            self.descend(&mut vec![0, second, third], length);
        }
    }
}

fn main() -> Result<()> {
    let cities = report::argument(13);
    assert!((4..=MOST).contains(&cities), "4 to {MOST} cities");
    let pieces = (cities - 1) * (cities - 1);
    let job = memonet::init()?;
    let best = Mutex::new(&job, &[u32::MAX; MOST + 1])?;
    let next = Mutex::new(&job, &0usize)?;
    let mut search = Search::new(cities);
    job.barrier()?;

    let clock = report::Clock::start();
    loop {
        let mut guard = next.lock()?;
        let number = *guard;
        *guard += 1;
        drop(guard);
        if number >= pieces {
            break;
        }
        search.best = *best.lock()?;
        search.piece(number);
        let mut best = best.lock()?;
        if search.best[0] < best[0] {
            *best = search.best;
        }
    }
    job.barrier()?;
    let parallel = clock.seconds();

    let found: Tour = *best.lock()?;
    let right = || {
        let clock = report::Clock::start();
        let mut alone = Search::new(cities);
        (0..pieces).for_each(|number| alone.piece(number));
        // Of several tours of that length any will do.
        let tour: Vec<usize> = found[1..=cities].iter().map(|&city| city as usize).collect();
        let length: u32 =
            (0..cities).map(|i| alone.distances[tour[i]][tour[(i + 1) % cities]]).sum();
        let mut sorted = tour.clone();
        sorted.sort_unstable();
        let is_tour = sorted.into_iter().eq(0..cities) && length == found[0];
        Ok((is_tour && alone.best[0] == found[0], clock.seconds()))
    };
    report::end(&job, right, parallel, &[best.stats(), next.stats()])
}
