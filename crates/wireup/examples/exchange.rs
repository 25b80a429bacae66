//! Processes of another launcher find each other:
//! `mpiexec -n 4 exchange [--limit SECONDS] [--mpi LIBRARY] [--meet FILE] [PROGRAM ARGUMENT...]`.
//!
//! Each puts a value, meets the others, and gets their values. Then those of each node meet, and
//! the nodes tell each other. With a PROGRAM, the process becomes that one afterwards: one of MPI's
//! shows that it may go on with the connection. With a LIBRARY, this process itself uses MPI after
//! the exchange. With a FILE, which is empty at first, the processes meet by it after their
//! sessions have ended, as those of a job do by their agent: see [`Pmix::end`].

use memonet_wireup::nodes::Neighbours;
use memonet_wireup::pmi::{Pmi, Relay};
use memonet_wireup::pmix::Pmix;
use memonet_wireup::{Error, Exchange};
use std::ffi::{CString, c_int, c_void};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1).peekable();
    let mut limit = Duration::from_secs(30);
    if words.next_if(|word| word == "--limit").is_some() {
        limit = Duration::from_secs_f64(words.next().ok_or("--limit SECONDS")?.parse()?);
    }
    let mpi = words.next_if(|word| word == "--mpi").map(|_| words.next().ok_or("--mpi LIBRARY"));
    let mpi = mpi.transpose()?;
    let meet = words.next_if(|word| word == "--meet").map(|_| words.next().ok_or("--meet FILE"));
    let meet = meet.transpose()?;
    let program = words.next().map(|program| {
        let mut command = Command::new(program);
        command.args(words);
        command
    });
    if let Some(mut pmi) = Pmi::inherit()? {
        exchange(&mut pmi, limit, "PMI-1")?;
        return match program {
            Some(program) if std::env::var_os("SLURM_STEP_ID").is_some() => relay(&pmi, program),
            Some(mut program) => Err(program.exec().into()),
            None => Ok(pmi.end()?),
        };
    }
    let mut pmix = Pmix::inherit()?.ok_or("no launcher has left a connection")?;
    exchange(&mut pmix, limit, "PMIx")?;
    let size = pmix.size();
    pmix.end()?;
    if let Some(file) = meet {
        meet_by(&file, size, limit)?;
    }
    if let Some(library) = mpi {
        use_mpi(&library)?;
    }
    program.map_or(Ok(()), |mut program| Err(program.exec().into()))
}

/// Adds a byte to the file, and waits until each process has.
fn meet_by(file: &str, size: u32, limit: Duration) -> Result<()> {
    let mut file = std::fs::OpenOptions::new().append(true).open(file)?;
    file.write_all(b".")?;
    let end = Instant::now() + limit;
    while file.metadata()?.len() < size.into() {
        if Instant::now() > end {
            return Err("some have not ended their sessions".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Begins and ends an MPI of this library.
fn use_mpi(library: &str) -> Result<()> {
    let library = memonet_dl::Library::open(&CString::new(library)?)?;
    let find = |name| library.symbol(name).ok_or("this library is no MPI");
    let (init, end) = (find(c"MPI_Init")?.as_ptr(), find(c"MPI_Finalize")?.as_ptr());
    // SAFETY: MPI's functions of these names have these types. No arguments are allowed.
    let status = unsafe {
        let init: extern "C" fn(*mut c_int, *mut c_void) -> c_int = std::mem::transmute(init);
        let end: extern "C" fn() -> c_int = std::mem::transmute(end);
        (init(std::ptr::null_mut(), std::ptr::null_mut()), end())
    };
    if status == (0, 0) { Ok(()) } else { Err(format!("MPI failed: {status:?}").into()) }
}

/// Runs a program whose MPI initialises after this process has.
fn relay(pmi: &Pmi, mut program: Command) -> Result<()> {
    let (near, later) = Relay::connection()?;
    let relay = Relay::new(pmi.descriptor().try_clone_to_owned()?, near);
    rustix::io::fcntl_setfd(&later, rustix::io::FdFlags::empty())?;
    let mut child = program.env("PMI_FD", later.as_raw_fd().to_string()).spawn()?;
    drop(later);
    relay.run()?;
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(status.to_string().into()) }
}

fn exchange(with: &mut impl Exchange, limit: Duration, how: &str) -> Result<()> {
    let (rank, size) = (with.rank(), with.size());
    let value = |rank: u32| vec![rank as u8; 3000];
    with.put("example", &value(rank))?;
    with.fence("the example's values", limit)?;
    for peer in 0..size {
        if with.get(peer, "example")? != value(peer) {
            return Err(format!("process {rank}: not what process {peer} has put").into());
        }
    }
    // Servers of PMIx look for such a value for 5 s, so there only pairs ask.
    if how != "PMIx" || size == 2 {
        let none = with.get(size - 1, "other");
        if !matches!(none, Err(Error::Nothing { .. })) {
            return Err(format!("a value that nobody has put: {none:?}").into());
        }
    }
    println!("{how}: {rank} of {size} has the values of all");

    let near = Neighbours::meet(with, limit)?;
    if near.leads() {
        for guest in near.welcome(limit)? {
            // Any descriptor; a job's memory, say.
            guest.give(std::io::stdin().as_fd())?;
        }
    } else {
        near.visit(None, limit)?;
    }
    let nodes = near.tell(with, b"", limit)?;
    if near.leads() {
        let nodes: Vec<_> = nodes.into_iter().map(|node| node.processes).collect();
        println!("{how}: {rank} leads {:?} of {nodes:?}", near.here());
    }
    Ok(with.fence("the example's end", limit)?)
}
