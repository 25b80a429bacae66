//! A barrier of very many PEs: `scale MACHINE PES [STACK_KIB]`.

use memonet_sim::{Machine, Options, now, run};
use std::time::Instant;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let machine = Machine::load(&args[1]).unwrap_or_else(|e| panic!("{e}"));
    let n = args[2].parse().unwrap();
    let options = Options {
        segment: Some(2 << 20),
        stack: args.get(3).map_or(64, |kib| kib.parse().unwrap()) << 10,
        ..Options::default()
    };
    let start = Instant::now();
    let done = run(&machine, n, &options, |job| {
        job.barrier().unwrap();
        now()
    })
    .unwrap_or_else(|e| panic!("{e}"));
    let time = start.elapsed();
    let resident = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = resident.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    println!(
        "{n} PEs: barrier {:?} in virtual time; {time:.2?} real, {}.{:03} s of CPU, {} events, {:.2} M/s; {peak}",
        done.results.iter().max().unwrap(),
        cpu.tv_sec,
        cpu.tv_nsec / 1_000_000,
        done.counts.events,
        done.counts.events as f64 / time.as_secs_f64() / 1e6
    );
}
