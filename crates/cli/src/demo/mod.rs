//! `memonet demo`: small real programs on memonet. Read `pagerank.rs` first: the other files read
//! the graph, deal it out to the PEs, and print the result.

mod graph;
mod pagerank;
mod report;
mod spread;

use std::ffi::OsString;
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use memonet::Job;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::results::Results;
use crate::run;
use graph::Graph;

/// The dependencies between Debian 12's packages; built in, so that the demo needs no file.
const DEBIAN: &[u8] = include_bytes!("../../data/debian-bookworm-depends.txt.gz");
const DEBIAN_NAME: &str = "debian-bookworm-depends.txt.gz (built in)";

/// The longest time without a message to the user.
const SILENCE: Duration = Duration::from_secs(1);

/// Run a real program on real data
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    demo: Demo,
}

#[derive(Debug, clap::Subcommand)]
enum Demo {
    Pagerank(Pagerank),
}

/// Rank the nodes of a graph by PageRank, the graph spread over the PEs
#[derive(Debug, clap::Args)]
struct Pagerank {
    /// Number of PEs [default: 4]
    #[arg(short, value_parser = run::pes)]
    n: Option<usize>,
    /// Write every node's name and rank to this file, highest first
    #[arg(long, value_name = "FILE")]
    ranks: Option<PathBuf>,
    /// Edge list, plain or gzip, one `from to` pair a line [default: the dependencies between
    /// Debian 12's packages]
    file: Option<PathBuf>,
    /// The file to which a PE writes an error about its input, for the launcher to report.
    #[arg(long, hide = true)]
    complaint: Option<PathBuf>,
}

/// Runs a demo: starts a job of this program. The PEs call this function again, and find that they
/// are part of a job.
pub fn run(args: Args) -> Result<ExitCode> {
    let Demo::Pagerank(args) = args.demo;
    if memonet::unstable::launch::is_pe() { args.be_pe() } else { args.start() }
}

/// What PE 0 opens: the graph, and the file for all ranks, if the user wants one.
type Files = (Graph, Option<Results>);

impl Pagerank {
    fn start(&self) -> Result<ExitCode> {
        // The PEs inherit this file in memory.
        let complaint = memfd_create("complaint", MemfdFlags::empty()).context("memfd_create")?;
        let mut args = vec!["demo".into(), "pagerank".into()];
        args.push(format!("--complaint=/proc/self/fd/{}", complaint.as_raw_fd()).into());
        if let Some(path) = &self.ranks {
            let mut option = OsString::from("--ranks=");
            option.push(path);
            args.push(option);
        }
        args.extend(self.file.iter().flat_map(|path| ["--".into(), path.into()]));
        let program = run::this_program()?;
        let n = self.n.unwrap_or(4);
        let status = run::launch(run::Spec {
            programs: vec![run::Program { n, program: program.into(), args }],
            options: run::Options::default(),
        })?;
        match std::io::read_to_string(File::from(complaint))? {
            none if none.is_empty() => Ok(status),
            complaint => bail!(complaint),
        }
    }

    /// What each PE does.
    fn be_pe(&self) -> Result<ExitCode> {
        let job = memonet::init()?;
        if let Some(n) = self.n {
            ensure!(n == job.npes(), "-n {n} inside a job of {} PEs: leave -n out", job.npes());
        }
        match (self.rank(&job), &self.complaint) {
            // An unusable file must not be reported as the failure of a PE.
            (Err(error), Some(complaint)) if !error.is::<memonet::Error>() => {
                std::fs::write(complaint, format!("{error:#}"))?;
            }
            (result, _) => result?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn rank(&self, job: &Job) -> Result<()> {
        // Only PE 0 opens files: the input may be a pipe, and an error in it must be reported once.
        let files = (job.pe() == 0).then(|| self.open()).transpose();
        let graph = files.as_ref().ok().and_then(Option::as_ref).map(|(graph, _)| graph);
        let (nodes, edges) = spread::deal(job, graph.map(|g| (g.names.len(), &g.edges[..])))?;
        let files = files?;
        if nodes == 0 {
            return Ok(());
        }

        let began = Instant::now();
        let mut told = (0, began);
        let outcome = pagerank::pagerank(job, nodes, &edges, |iteration, changed| {
            if job.pe() == 0 && (iteration >= told.0 + 10 || told.1.elapsed() > SILENCE) {
                told = (iteration, Instant::now());
                eprintln!("iteration {iteration}: ranks changed by {changed:.1e}");
            }
        })?;
        let time = began.elapsed();

        let totals = job.window::<u64>(2)?;
        totals.remote(0, 0)?.add(outcome.sent.puts)?;
        totals.remote(0, 1)?.add(outcome.sent.bytes)?;
        job.barrier()?;
        let ranks =
            (job.pe() == 0).then(|| spread::collect(job, nodes, &outcome.ranks)).transpose()?;
        // The other PEs stay until PE 0 has got their ranks.
        job.barrier()?;

        if let (Some((graph, file)), Some(ranks)) = (files, ranks) {
            let order = report::ordered(&graph, &ranks);
            if let Some(file) = file {
                report::write_all(BufWriter::new(file.begin()?), &order)
                    .context("cannot write all ranks")?;
            }
            let work = report::Work {
                npes: job.npes(),
                iterations: outcome.iterations,
                time,
                puts: totals.read(0),
                bytes: totals.read(1),
            };
            report::print(BufWriter::new(std::io::stdout()), &graph, &order, &work)
                .context("cannot print the result")?;
        }
        Ok(())
    }

    fn open(&self) -> Result<Files> {
        let began = Instant::now();
        let mut told = began;
        let progress = |lines| {
            if told.elapsed() > SILENCE {
                told = Instant::now();
                eprintln!("{lines} lines read");
            }
        };
        let graph = match &self.file {
            None => graph::read(DEBIAN, DEBIAN_NAME, progress)?,
            Some(path) => {
                let file =
                    File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
                graph::read(file, &path.to_string_lossy(), progress)?
            }
        };
        let (nodes, edges) = (graph.names.len(), graph.edges.len());
        let (nodes, edges) =
            (report::count(nodes as u64, "node"), report::count(edges as u64, "edge"));
        eprintln!("{nodes} and {edges} read in {:.2?}", began.elapsed());
        // Before the ranking, which may take long: a wrong name is reported at once.
        let ranks = self.ranks.as_deref().map(Results::open_named).transpose()?;
        Ok((graph, ranks))
    }
}
