//! PageRank over all PEs of a job: the example to read first.
//!
//! A node passes its rank on to the nodes it points to, in equal shares, over and over until the
//! ranks stay as they are. Node `v` lives on PE `v % npes`, at place `v / npes`, with its rank and
//! the edges that leave it. So a PE knows all that its own nodes pass on. It sums that up for each
//! place it leads to on another PE, and puts the sums straight into that PE's window. Nobody
//! receives: once the barrier says that all have sent, what arrived is simply there.

use memonet::{Job, Plain, Result, Window};

/// The part of a rank that is passed on; the rest is spread evenly, as if the reader jumped to a
/// random node.
const DAMPING: f64 = 0.85;

/// The ranks, which sum to 1, have settled when one iteration changes them by less than this in
/// all.
const SETTLED: f64 = 1e-12;

/// What came out, on each PE.
pub struct Outcome {
    /// The ranks: that of node `v` on PE `v % npes` at place `v / npes`.
    pub ranks: Window<f64>,
    /// How often the ranks were passed on.
    pub iterations: usize,
    /// What this PE sent.
    pub sent: Sent,
}

/// Counts puts into others' windows.
#[derive(Default)]
pub struct Sent {
    /// Puts.
    pub puts: u64,
    /// Bytes that they moved.
    pub bytes: u64,
}

impl Sent {
    fn put<T: Plain>(
        &mut self,
        window: &Window<T>,
        pe: usize,
        index: usize,
        from: &[T],
    ) -> Result<()> {
        if from.is_empty() {
            return Ok(());
        }
        self.puts += 1;
        self.bytes += size_of_val(from) as u64;
        window.put(pe, index, from)
    }
}

/// Ranks a graph of `nodes` nodes; collective. `edges` are those that leave the nodes of this PE,
/// as `[from, to]`, each once.
///
/// After each iteration `progress` is told how many there were and what the last one changed.
pub fn pagerank(
    job: &Job,
    nodes: usize,
    edges: &[[u32; 2]],
    mut progress: impl FnMut(usize, f64),
) -> Result<Outcome> {
    let (me, npes) = (job.pe(), job.npes());
    let others: Vec<usize> = (0..npes).filter(|&pe| pe != me).collect();
    let mine = (me..nodes).step_by(npes).len();
    // Some PEs have one node more than the rest. Windows are equally long everywhere, so there is
    // room for it on all.
    let room = nodes.div_ceil(npes);
    let mut sent = Sent::default();

    let mut links = vec![0.0; mine];
    let mut edges_to = vec![Vec::new(); npes];
    for &[from, to] in edges {
        let (from, to) = (from as usize / npes, to as usize);
        links[from] += 1.0;
        edges_to[to % npes].push([from as u32, (to / npes) as u32]);
    }

    let (sums_for, places_from) = tell_places(job, &mut edges_to, room, &mut sent)?;

    let ranks = job.window::<f64>(room)?;
    // The sums that arrive, a block from each PE. There are two sets of blocks, used in turn:
    // whoever is past the barrier first sends into one set while the others still read the other.
    let inbox = job.window::<f64>(2 * npes * room)?;
    // From each PE: the rank of its nodes that point nowhere, and what the last iteration changed
    // there.
    let totals = job.window::<[f64; 2]>(2 * npes)?;
    let barrier = job.world().new_barrier()?;

    for place in 0..mine {
        ranks.write(place, 1.0 / nodes as f64);
    }
    let mut changed_here = f64::INFINITY;
    let mut share = vec![0.0; mine];
    let mut block = vec![0.0; room];
    let mut gathered = vec![0.0; mine];
    let mut iterations = 0;

    loop {
        let set = iterations % 2 * npes;
        let mut dangling_here = 0.0;
        for place in 0..mine {
            match links[place] {
                0.0 => dangling_here += ranks.read(place),
                count => share[place] = ranks.read(place) / count,
            }
        }

        for &pe in &others {
            let sums = &mut block[..sums_for[pe]];
            sum_up(&edges_to[pe], &share, sums);
            sent.put(&inbox, pe, (set + me) * room, sums)?;
            sent.put(&totals, pe, set + me, &[[dangling_here, changed_here]])?;
        }
        totals.write(set + me, [dangling_here, changed_here]);

        // This PE has sent all it had to. While the others get there, it does what needs nobody:
        // what its nodes pass on to each other.
        let arrival = barrier.arrive()?;
        sum_up(&edges_to[me], &share, &mut gathered);
        arrival.wait()?;

        // All PEs add the same numbers in the same order, so all stop at the same iteration.
        let (mut dangling, mut changed) = (0.0, 0.0);
        for pe in 0..npes {
            let [d, c] = totals.read(set + pe);
            dangling += d;
            changed += c;
        }
        if iterations > 0 {
            progress(iterations, changed);
        }
        if changed < SETTLED {
            return Ok(Outcome { ranks, iterations, sent });
        }

        for &pe in &others {
            let places = &places_from[pe];
            let sums = &mut block[..places.len()];
            inbox.read_into((set + pe) * room, sums);
            for (&place, sum) in places.iter().zip(sums) {
                gathered[place as usize] += *sum;
            }
        }
        let everybody = (1.0 - DAMPING + DAMPING * dangling) / nodes as f64;
        changed_here = 0.0;
        for (place, sum) in gathered.iter().enumerate() {
            let rank = everybody + DAMPING * sum;
            changed_here += (rank - ranks.read(place)).abs();
            ranks.write(place, rank);
        }
        iterations += 1;
    }
}

/// Tells each other PE, once, the places there to which `edges_to` it lead: from then on bare sums
/// travel, in the order of that list. The edges get the position in the list as their target.
///
/// Returns the lengths of the lists sent, and the lists that arrived.
fn tell_places(
    job: &Job,
    edges_to: &mut [Vec<[u32; 2]>],
    room: usize,
    sent: &mut Sent,
) -> Result<(Vec<usize>, Vec<Vec<u32>>)> {
    let (me, npes) = (job.pe(), job.npes());
    // From each PE: how many places, and which.
    let row = 1 + room;
    let lists = job.window::<u32>(npes * row)?;
    let mut lengths = vec![0; npes];
    for pe in (0..npes).filter(|&pe| pe != me) {
        let mut list = vec![0];
        let mut position = vec![None; room];
        for [_, to] in &mut edges_to[pe] {
            *to = *position[*to as usize].get_or_insert_with(|| {
                list.push(*to);
                list.len() as u32 - 2
            });
        }
        lengths[pe] = list.len() - 1;
        list[0] = lengths[pe] as u32;
        sent.put(&lists, pe, me * row, &list)?;
    }
    job.barrier()?;
    let arrived = (0..npes).map(|pe| {
        let mut list = vec![0; lists.read(pe * row) as usize];
        lists.read_into(pe * row + 1, &mut list);
        list
    });
    Ok((lengths, arrived.collect()))
}

/// Sums up what `edges` bring to each target from nodes with these `share`s.
fn sum_up(edges: &[[u32; 2]], share: &[f64], sums: &mut [f64]) {
    sums.fill(0.0);
    for &[from, to] in edges {
        sums[to as usize] += share[from as usize];
    }
}
