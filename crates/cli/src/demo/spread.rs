//! Deals a graph out to the PEs, and collects the ranks.

use memonet::{Job, Result, Window};

/// Gives each PE the edges that leave its nodes; collective. PE 0 passes the number of nodes and
/// all edges, the others nothing.
///
/// Returns the number of nodes and the edges of this PE. If PE 0 passes nothing, all PEs
/// get 0 nodes.
pub fn deal(job: &Job, graph: Option<(usize, &[[u32; 2]])>) -> Result<(usize, Vec<[u32; 2]>)> {
    let (nodes, all) = graph.unwrap_or_default();
    let mut parts = vec![Vec::new(); job.npes()];
    for &edge in all {
        parts[edge[0] as usize % job.npes()].push(edge);
    }
    let longest = parts.iter().map(Vec::len).max().unwrap_or(0);

    // All PEs make a window with the same length. So PE 0 first sends the lengths, in a window of
    // fixed length.
    let lengths = job.window::<[u64; 3]>(1)?;
    if job.pe() == 0 {
        for (pe, part) in parts.iter().enumerate() {
            lengths.put_one(pe, 0, [nodes as u64, longest as u64, part.len() as u64])?;
        }
    }
    job.barrier()?;
    let [nodes, longest, here] = lengths.read(0).map(|length| length as usize);

    let edges = job.window::<[u32; 2]>(longest)?;
    for (pe, part) in parts.iter().enumerate() {
        edges.put(pe, 0, part)?;
    }
    job.barrier()?;
    let mut mine = vec![[0; 2]; here];
    edges.read_into(0, &mut mine);
    Ok((nodes, mine))
}

/// Gets the rank of every node to the calling PE.
pub fn collect(job: &Job, nodes: usize, ranks: &Window<f64>) -> Result<Vec<f64>> {
    let mut all = vec![0.0; nodes];
    let mut part = vec![0.0; ranks.len()];
    for pe in 0..job.npes() {
        ranks.get(pe, 0, &mut part)?;
        for (node, rank) in (pe..nodes).step_by(job.npes()).zip(&part) {
            all[node] = *rank;
        }
    }
    Ok(all)
}
