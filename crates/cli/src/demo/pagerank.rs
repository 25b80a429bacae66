//! PageRank over all PEs of a job: the example to read first.
//!
//! A node passes its rank on to the nodes it points to, in equal shares, over and over until the
//! ranks stay as they are. Node `v` lives on PE `v % npes`, at place `v / npes`, with its rank and
//! the edges that leave it. So a PE knows everything that its own nodes pass on. It sums that up
//! for each place on another PE, and puts the sums directly into that PE's window. No PE receives:
//! after the barrier all sums are in the windows.

use memonet::{Job, Plain, Result, Window};

/// The part of a rank that is passed on. The rest is spread evenly, as if the reader jumped to a
/// random node.
const DAMPING: f64 = 0.85;

/// The ranks, whose sum is 1, have settled when the changes of one iteration sum to less than this.
const SETTLED: f64 = 1e-12;

/// The outcome on each PE.
pub struct Outcome {
    /// The ranks: that of node `v` on PE `v % npes` at place `v / npes`.
    pub ranks: Window<f64>,
    /// Number of times that the ranks were passed on.
    pub iterations: usize,
    /// The puts of this PE.
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
/// After each iteration `progress` gets the number of iterations so far, and what the last one
/// changed.
pub fn pagerank(
    job: &Job,
    nodes: usize,
    edges: &[[u32; 2]],
    mut progress: impl FnMut(usize, f64),
) -> Result<Outcome> {
    let mut part = Part::new(job, nodes, edges)?;
    let barrier = job.world().new_barrier()?;
    let mut changed_here = f64::INFINITY;
    let mut iterations = 0;
    loop {
        let set = iterations % 2 * job.npes();
        let dangling_here = part.share_out();
        part.send(set, [dangling_here, changed_here])?;

        // This PE has sent everything. While the others still send, it does work that needs no
        // other PE: the sums of what its own nodes pass on to each other.
        let arrival = barrier.arrive()?;
        part.gather_own();
        arrival.wait()?;

        let [dangling, changed] = part.add_totals(set);
        if iterations > 0 {
            progress(iterations, changed);
        }
        if changed < SETTLED {
            return Ok(Outcome { ranks: part.ranks, iterations, sent: part.sent });
        }
        part.gather_from_others(set);
        changed_here = part.update(dangling);
        iterations += 1;
    }
}

/// The nodes of one PE, and what goes to and comes from the other PEs.
struct Part<'a> {
    job: &'a Job,
    /// Nodes of the whole graph.
    nodes: usize,
    /// Places in each PE's windows. Some PEs have one node more than the rest; windows are equally
    /// long everywhere, so each has room for it.
    room: usize,
    /// Number of edges that leave each node.
    links: Vec<f64>,
    /// Edges to each PE: the place here, and the position of the target in the list of places
    /// there.
    edges_to: Vec<Vec<[u32; 2]>>,
    /// Number of sums for each other PE.
    sums_for: Vec<usize>,
    /// The places that the sums from each other PE are for.
    places_from: Vec<Vec<u32>>,
    ranks: Window<f64>,
    /// The sums that arrive, a block from each PE. There are two sets of blocks, used in turn: a PE
    /// that has left the barrier first sends into one set while the others still read the other.
    inbox: Window<f64>,
    /// From each PE: the rank of its nodes that point nowhere, and what the last iteration changed
    /// there. Two sets, as in the inbox.
    totals: Window<[f64; 2]>,
    /// What each node passes on along each of its edges.
    share: Vec<f64>,
    /// What has arrived at each node.
    gathered: Vec<f64>,
    /// Space for the sums of one PE.
    block: Vec<f64>,
    sent: Sent,
}

impl<'a> Part<'a> {
    fn new(job: &'a Job, nodes: usize, edges: &[[u32; 2]]) -> Result<Self> {
        let (me, npes) = (job.pe(), job.npes());
        let mine = (me..nodes).step_by(npes).len();
        let room = nodes.div_ceil(npes);
        let mut links = vec![0.0; mine];
        let mut edges_to = vec![Vec::new(); npes];
        for &[from, to] in edges {
            let (from, to) = (from as usize / npes, to as usize);
            links[from] += 1.0;
            edges_to[to % npes].push([from as u32, (to / npes) as u32]);
        }
        let mut sent = Sent::default();
        let (sums_for, places_from) = tell_places(job, &mut edges_to, room, &mut sent)?;
        let ranks = job.window::<f64>(room)?;
        for place in 0..mine {
            ranks.write(place, 1.0 / nodes as f64);
        }
        Ok(Self {
            job,
            nodes,
            room,
            links,
            edges_to,
            sums_for,
            places_from,
            ranks,
            inbox: job.window(2 * npes * room)?,
            totals: job.window(2 * npes)?,
            share: vec![0.0; mine],
            gathered: vec![0.0; mine],
            block: vec![0.0; room],
            sent,
        })
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let me = self.job.pe();
        (0..self.job.npes()).filter(move |&pe| pe != me)
    }

    /// Divides each rank among the edges of its node. Returns the rank of the nodes that have none.
    fn share_out(&mut self) -> f64 {
        let mut dangling = 0.0;
        for (place, &links) in self.links.iter().enumerate() {
            match links {
                0.0 => dangling += self.ranks.read(place),
                _ => self.share[place] = self.ranks.read(place) / links,
            }
        }
        dangling
    }

    /// Puts into each other PE the sums for its places, and the totals of this PE.
    fn send(&mut self, set: usize, totals: [f64; 2]) -> Result<()> {
        let slot = set + self.job.pe();
        for pe in self.others() {
            let sums = &mut self.block[..self.sums_for[pe]];
            sum_up(&self.edges_to[pe], &self.share, sums);
            self.sent.put(&self.inbox, pe, slot * self.room, sums)?;
            self.sent.put(&self.totals, pe, slot, &[totals])?;
        }
        self.totals.write(slot, totals);
        Ok(())
    }

    /// Sums up what the nodes of this PE pass on to each other.
    fn gather_own(&mut self) {
        sum_up(&self.edges_to[self.job.pe()], &self.share, &mut self.gathered);
    }

    /// The totals of the job. All PEs add equal numbers in the same order, so that all stop at the
    /// same iteration.
    fn add_totals(&self, set: usize) -> [f64; 2] {
        (0..self.job.npes()).fold([0.0; 2], |[dangling, changed], pe| {
            let [d, c] = self.totals.read(set + pe);
            [dangling + d, changed + c]
        })
    }

    /// Adds the sums that other PEs have put into the inbox.
    fn gather_from_others(&mut self, set: usize) {
        for pe in self.others() {
            let places = &self.places_from[pe];
            let sums = &mut self.block[..places.len()];
            self.inbox.read_into((set + pe) * self.room, sums);
            for (&place, sum) in places.iter().zip(sums) {
                self.gathered[place as usize] += *sum;
            }
        }
    }

    /// Makes ranks of what has arrived. Returns by how much they changed.
    fn update(&self, dangling: f64) -> f64 {
        let everybody = (1.0 - DAMPING + DAMPING * dangling) / self.nodes as f64;
        let mut changed = 0.0;
        for (place, sum) in self.gathered.iter().enumerate() {
            let rank = everybody + DAMPING * sum;
            changed += (rank - self.ranks.read(place)).abs();
            self.ranks.write(place, rank);
        }
        changed
    }
}

/// Sends each other PE, once, the list of its places to which `edges_to` lead. From then on bare
/// sums travel, in the order of that list. The target of each edge becomes its position in the
/// list.
///
/// Returns the lengths of the lists sent, and the lists that arrived.
fn tell_places(
    job: &Job,
    edges_to: &mut [Vec<[u32; 2]>],
    room: usize,
    sent: &mut Sent,
) -> Result<(Vec<usize>, Vec<Vec<u32>>)> {
    let (me, npes) = (job.pe(), job.npes());
    // From each PE: the number of places, then the places.
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

/// Sums up, for each target of `edges`, the `share` of each source.
fn sum_up(edges: &[[u32; 2]], share: &[f64], sums: &mut [f64]) {
    sums.fill(0.0);
    for &[from, to] in edges {
        sums[to as usize] += share[from as usize];
    }
}
