//! `memonet doctor`: shows what this machine offers to jobs, what is wrong with it, and how to fix
//! it.

mod cgroup;
mod host;
mod hosts;
mod report;
mod talk;

use std::ffi::OsString;
use std::fs::read_to_string;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use memonet_core::unstable::launch::{available_cpus, cpu_list};
use memonet_core::unstable::settings::{self, Setting};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};

use crate::run;
use report::Report;

/// The arguments of `memonet doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Be a PE of the job that tests this machine
    #[arg(long, hide = true)]
    as_pe: bool,
    /// Be the end on a host of `memonet doctor --hosts`
    #[arg(long, hide = true)]
    as_host: bool,
    /// Show which algorithms barriers and collectives use on this machine
    #[arg(long, conflicts_with_all = ["settings", "Chosen"])]
    collectives: bool,
    /// Show the environment variables that memonet reads, and their values
    #[arg(long, conflicts_with = "Chosen")]
    settings: bool,
    /// Print the findings as JSON
    #[arg(long, conflicts_with_all = ["collectives", "settings"])]
    json: bool,
    #[command(flatten, next_help_heading = "Several hosts")]
    chosen: run::Chosen,
}

/// One check and its result.
struct Finding {
    verdict: Verdict,
    what: &'static str,
    found: String,
}

enum Verdict {
    Good,
    /// Jobs run, but could run better.
    Poor {
        fix: String,
    },
    /// No job can run.
    Bad {
        fix: String,
    },
}

use Verdict::{Bad, Good, Poor};

/// What is looked at on each host.
const CHECKS: &[fn() -> Finding] = &[
    cpus,
    memory,
    huge_pages,
    nodes,
    clock,
    memfd,
    pidfd,
    futex,
    membarrier,
    address_space,
    file_size,
    descriptors,
    processes,
];

/// `memonet doctor`.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.as_pe {
        return be_pe();
    }
    if args.as_host {
        return host::run();
    }
    if let Some(names) = args.chosen.names()? {
        return hosts::run(&args.chosen, &names, args.json);
    }
    if args.collectives {
        return collectives();
    }
    if args.settings {
        return list_settings();
    }
    let mut report = Report::new(args.json);
    let system = system();
    report.text(&format!("memonet {} on {system}\n", env!("CARGO_PKG_VERSION")));
    let own: [fn() -> Finding; 2] = [variables, job];
    for Finding { verdict, what, found } in CHECKS.iter().chain(&own).map(|check| check()) {
        report.line(verdict, what, &found);
    }
    let is_good = report.is_good();
    let summary = match is_good {
        true => "Jobs can run here.",
        false => "Jobs cannot run here until everything marked BAD is fixed.",
    };
    report.end(&system, summary)?;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The operating system and the architecture.
fn system() -> String {
    let system = rustix::system::uname();
    let [name, release, machine] =
        [system.sysname(), system.release(), system.machine()].map(|text| text.to_string_lossy());
    format!("{name} {release}, {machine}")
}

/// Lists the environment variables.
fn list_settings() -> Result<ExitCode> {
    for Setting { name, what } in settings::all() {
        let now = std::env::var_os(name).map_or("unset".into(), |value| format!("is {value:?}"));
        println!("  {name} ({now})\n      {what}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Explains the table of ways.
const LEGEND: &str = "
  line       stored into a cache line of each member that needs it, together with the sender's arrival
  published  in the sender's eager buffer, where members read it; `eager` forces it, and through a
             fabric has data put there
  direct     between the members' windows, after their owners arrive and before they leave

Where a network copies datagrams (`memonet run --machine dimmnet-2`), a broadcast to two or more
members uses multicast instead of `direct`, once the team has broadcast so many bytes in all.
`multicast` forces it for every size; any other forced way rules it out.

`memonet bench barrier broadcast all_reduce` measures them.";

/// Shows the choices of teams of several sizes on this machine.
fn collectives() -> Result<ExitCode> {
    const SIZES: [usize; 6] = [8, 256, 1024, 4096, 64 << 10, 16 << 20];
    println!(
        "Barriers ({} forces an algorithm) and collectives ({} forces a way):\n",
        memonet::ENV_BARRIER,
        memonet::ENV_COLLECTIVES
    );
    let sizes: String = SIZES
        .iter()
        .map(|&bytes| format!("{:>11}", size(bytes as u64).replace("bytes", "B")))
        .collect();
    println!("  PEs  barrier        {sizes}  (from each member)");
    for npes in [2, 4, 8, 16, 32] {
        let choices = memonet::Job::threads(npes, |job| {
            let team = job.world();
            let ways: String = SIZES
                .iter()
                .map(|&bytes| format!("{:>11}", team.collective_algorithm(bytes).to_string()))
                .collect();
            let network = match team.most_in_network() {
                0 => String::new(),
                most => {
                    format!("  few numbers, and up to {most} bytes of a broadcast, in the network")
                }
            };
            let multicast = match team.multicast_from() {
                None => String::new(),
                Some(least) => format!("  broadcasts from {least} bytes on by multicast"),
            };
            format!(
                "{:<14}{ways}{network}{multicast}",
                team.split_barrier().algorithm().to_string()
            )
        })?;
        println!("  {npes:>3}  {}", choices[0]);
    }
    println!("{LEGEND}");
    Ok(ExitCode::SUCCESS)
}

fn good(what: &'static str, found: impl Into<String>) -> Finding {
    Finding { verdict: Good, what, found: found.into() }
}

fn poor(what: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { verdict: Poor { fix: fix.into() }, what, found: found.into() }
}

fn bad(what: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Finding {
    Finding { verdict: Bad { fix: fix.into() }, what, found: found.into() }
}

/// The text of a file of one line; `None` without such a file.
fn line(path: &str) -> Option<String> {
    Some(read_to_string(path).ok()?.trim().to_owned())
}

fn cpus() -> Finding {
    let list = cpu_list();
    let usable = available_cpus();
    let found = format!("{}: {}", list.len(), picture(&list));
    if usable < list.len() {
        let fix = format!(
            "more than {usable} PEs share CPUs, and wait by sleeping; raise cpu.max of the cgroup (docker: --cpus) for more"
        );
        return poor("CPUs", format!("{found}, but a cgroup quota leaves {usable}"), fix);
    }
    good("CPUs", found)
}

/// Cores in brackets, packages apart: `[0 4] [1 5] | [2 6] [3 7]`.
fn picture(cpus: &[usize]) -> String {
    let topology =
        |cpu: usize, file: &str| line(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/{file}"));
    let mut placed: Vec<_> = cpus
        .iter()
        .map(|&cpu| (topology(cpu, "physical_package_id"), topology(cpu, "core_id"), cpu))
        .map(|(package, core, cpu)| {
            (package.and_then(|p| p.parse().ok()), core.and_then(|c| c.parse().ok()), cpu)
        })
        .collect::<Vec<(Option<i32>, Option<usize>, usize)>>();
    placed.sort_unstable();
    let package = |cores: &[(Option<i32>, Option<usize>, usize)]| {
        let core = |threads: &[(Option<i32>, Option<usize>, usize)]| {
            let numbers: Vec<String> = threads.iter().map(|(_, _, cpu)| cpu.to_string()).collect();
            format!("[{}]", numbers.join(" "))
        };
        cores.chunk_by(|a, b| a.1.is_some() && a.1 == b.1).map(core).collect::<Vec<_>>().join(" ")
    };
    placed.chunk_by(|a, b| a.0 == b.0).map(package).collect::<Vec<_>>().join(" | ")
}

fn variables() -> Finding {
    let names = || std::env::vars_os().map(|(name, _)| name);
    let unknown = settings::complaints(names());
    if !unknown.is_empty() {
        return poor("variables", unknown.join("; "), "correct their names, or unset them");
    }
    let is_set = |setting: &Setting| std::env::var_os(setting.name).is_some();
    let set: Vec<&str> = settings::all().filter(is_set).map(|setting| setting.name).collect();
    match set.is_empty() {
        true => good("variables", "none of memonet's is set"),
        false => good(
            "variables",
            format!("{}: `memonet doctor --settings` explains them", set.join(", ")),
        ),
    }
}

fn memory() -> Finding {
    let info = read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| -> Option<u64> {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    let (Some(total), Some(available)) = (field("MemTotal"), field("MemAvailable")) else {
        return poor("memory", "unknown: /proc/meminfo cannot be read", "mount /proc");
    };
    let found = format!("{}, {} available", size(total), size(available));
    match cgroup::MEMORY.least().filter(|&limit| limit < total) {
        Some(limit) => {
            let fix = "a PE that needs more is killed (SIGKILL, SIGBUS); raise memory.max (docker: --memory) for more";
            poor("memory", format!("{found}, but the cgroup's limit is {}", size(limit)), fix)
        }
        None => good("memory", found),
    }
}

fn huge_pages() -> Finding {
    let base = memonet_core::unstable::segment::page_size();
    let Some(modes) = line("/sys/kernel/mm/transparent_hugepage/shmem_enabled") else {
        return poor(
            "pages",
            format!("{base} bytes, no huge pages for shared memory"),
            "large windows cost more TLB misses; use a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        );
    };
    let mode = modes.split(['[', ']']).nth(1).unwrap_or("unknown");
    let found = format!("{base} bytes; huge pages for shared memory: {mode}");
    match mode {
        "never" | "deny" => {
            let fix = "large windows may cost more TLB misses: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";
            poor("pages", found, fix)
        }
        _ => good("pages", found),
    }
}

fn nodes() -> Finding {
    match line("/sys/devices/system/node/online") {
        Some(nodes) if nodes != "0" => good("NUMA nodes", nodes),
        _ => good("NUMA nodes", "one"),
    }
}

fn clock() -> Finding {
    let source = line("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_else(|| "unknown".into());
    let began = Instant::now();
    let reads = 1000;
    let _ = (0..reads).map(|_| Instant::now()).max();
    let each = began.elapsed() / reads;
    let found = format!("{source}, {each:?} a read");
    if each > Duration::from_micros(1) {
        return poor(
            "clock",
            found,
            "waits and measurements read it: boot with clocksource=tsc, or use a machine whose TSC is stable",
        );
    }
    good("clock", found)
}

fn memfd() -> Finding {
    let made = memfd_create("memonet-doctor", MemfdFlags::CLOEXEC);
    match made.and_then(|fd| ftruncate(&fd, 1 << 30)) {
        Ok(()) => good("memfd", "there; needs no /dev/shm"),
        Err(error) => bad(
            "memfd",
            error.to_string(),
            "use Linux 3.17 or newer, and a seccomp profile that allows memfd_create",
        ),
    }
}

fn pidfd() -> Finding {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => good("pidfd", "there"),
        Err(error) => bad(
            "pidfd",
            error.to_string(),
            "use Linux 5.9 or newer, and a seccomp profile that allows pidfd_open",
        ),
    }
}

fn futex() -> Finding {
    let word = std::sync::atomic::AtomicU32::new(0);
    match rustix::thread::futex::wake(&word, rustix::thread::futex::Flags::empty(), 1) {
        Ok(_) => good("futex", "there"),
        Err(error) => bad(
            "futex",
            error.to_string(),
            "use a kernel with CONFIG_FUTEX, and a seccomp profile that allows futex",
        ),
    }
}

fn membarrier() -> Finding {
    // SAFETY: MEMBARRIER_CMD_QUERY takes no pointer and changes nothing.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
    if commands >= 0 && commands & i64::from(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 {
        return good("membarrier", "expedited, between processes");
    }
    let fix = "wake-ups use fences instead, which are a little slower; use Linux 4.16 or newer, and a seccomp profile that allows membarrier";
    poor("membarrier", "not between processes", fix)
}

fn limit(resource: Resource) -> Option<u64> {
    getrlimit(resource).current
}

fn address_space() -> Finding {
    size_limit("address space", Resource::As, "ulimit -v unlimited")
}

fn file_size() -> Finding {
    size_limit("file size", Resource::Fsize, "ulimit -f unlimited")
}

/// A limit that segments shrink to fit, and the command that lifts it.
fn size_limit(what: &'static str, resource: Resource, lift: &str) -> Finding {
    match limit(resource) {
        None => good(what, "unlimited"),
        Some(bytes) => poor(
            what,
            format!("limited to {}", size(bytes)),
            format!("segments shrink to fit: `{lift}` for larger windows"),
        ),
    }
}

fn descriptors() -> Finding {
    let limits = getrlimit(Resource::Nofile);
    let pes = run::pes_by_descriptors(limits.maximum);
    let text = |limit: Option<u64>| limit.map_or("unlimited".into(), |limit| limit.to_string());
    let found = format!(
        "{} (at most {}): enough for {pes} PEs",
        text(limits.current),
        text(limits.maximum)
    );
    if pes == 0 {
        return bad(
            "descriptors",
            found,
            "raise the hard limit: `ulimit -Hn 4096` as root, or nofile in /etc/security/limits.conf",
        );
    }
    if pes < available_cpus() {
        return poor(
            "descriptors",
            found,
            "raise the hard limit: `ulimit -Hn` as root, or nofile in /etc/security/limits.conf",
        );
    }
    good("descriptors", found)
}

fn processes() -> Finding {
    match [limit(Resource::Nproc), cgroup::PROCESSES.least()].into_iter().flatten().min() {
        Some(max) if max < available_cpus() as u64 + 2 => poor(
            "processes",
            format!("at most {max}"),
            "raise it: `ulimit -u`, or pids.max of the cgroup (docker: --pids-limit)",
        ),
        Some(max) => good("processes", format!("at most {max}")),
        None => good("processes", "unlimited"),
    }
}

/// Runs a job of two PEs, both this program.
fn job() -> Finding {
    let attempt = || -> Result<Duration> {
        let program = run::Program {
            n: 2,
            program: run::this_program()?.into(),
            args: ["doctor", "--as-pe"].map(OsString::from).into(),
        };
        let options =
            run::Options { timeout: Some(Duration::from_secs(20)), ..run::Options::default() };
        let began = Instant::now();
        let status = run::launch(run::Spec { programs: vec![program], options })?;
        ensure!(status == ExitCode::SUCCESS, "a job of two PEs failed, see above");
        Ok(began.elapsed())
    };
    match attempt() {
        Ok(time) => good("job of two", format!("stores, barrier and end in {time:.1?}")),
        Err(error) => bad(
            "job of two",
            format!("{error:#}"),
            "fix what is marked BAD above; if nothing is, please report this with the output above",
        ),
    }
}

fn be_pe() -> Result<ExitCode> {
    let job = memonet::init()?;
    let window = job.window::<u64>(1)?;
    let peer = (job.pe() + 1) % job.npes();
    window.remote(peer, 0)?.store(1 + job.pe() as u64);
    job.barrier()?;
    let sender = (job.pe() + job.npes() - 1) % job.npes();
    let seen = window.read(0);
    ensure!(
        seen == 1 + sender as u64,
        "PE {} found {seen} where PE {sender} had stored {}",
        job.pe(),
        1 + sender
    );
    job.finalize()?;
    Ok(ExitCode::SUCCESS)
}

fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.3} {}", units[unit]).replace(".000", "")
}
