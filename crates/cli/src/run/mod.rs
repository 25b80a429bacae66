//! `memonet run`: starts a job, stands by while it runs, and leaves nothing behind.
//!
//! ```text
//!                      memfd of the job: control page, segments
//!                     .---------+---------+---------.   inherited by all
//!                     |         |         |         |
//!   stdin ---------> PE 0      PE 1      PE 2      PE 3
//!                     | pipes   |         |         |
//!                     '---------+----+----+---------'
//!   signals --> [ launcher: one epoll loop over signalfd, pidfds, pipes ] --> whole lines
//! ```
//!
//! A PE's death makes its pidfd readable. The launcher first publishes it in the control page, so
//! that the waits of others end early, and then reports it. Where the process that joined runs
//! under another one (a script, a tool), the launcher watches both.

pub mod agent;
mod args;
mod binding;
mod course;
mod datagrams;
mod family;
mod guard;
mod hosts;
mod joined;
mod last_words;
mod limits;
mod lines;
mod machine;
mod mpi;
mod net;
mod no_cycles;
mod oom;
mod oshrun;
mod phase;
mod processes;
mod program;
mod pulse;
mod report;
mod seats;
mod signals;
mod source;
mod spawn;
mod spec;
mod starts;
mod stats;
mod supervisor;
mod trace;
mod values;
mod verdict;
mod waits;
mod wakers;
mod wakeup;
mod writer;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, bail};
use memonet_core::unstable::launch::{JobFile, check_settings};
use memonet_core::unstable::{log, settings};

pub use args::{Args, spell_out};
use course::{Fates, Outcome};
pub use hosts::Chosen;
pub use limits::pes_by_descriptors;
pub use memonet_control::frames::version;
pub use net::{describe, listen, reached_at};
use program::CannotStart;
pub use program::this_program;
pub use spec::{Options, Program, Spec};
pub use values::{nodes, pes};

/// `memonet run`.
pub fn run(args: Args) -> Result<ExitCode> {
    let mut spec = args.spec()?;
    hosts::fill_in(&mut spec.options)?;
    spec.options.several.check()?;
    carry_out(spec)
}

fn carry_out(spec: Spec) -> Result<ExitCode> {
    let outcome = start(spec)?;
    if let Some(signal) = outcome.interrupted {
        // At Ctrl-C, a shell ends its loop only when the signal has ended the command.
        signals::die_of(signal);
    }
    Ok(ExitCode::from(outcome.status))
}

/// The arguments of `memonet oshrun`, which reads them itself: their spelling is that of other
/// launchers.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<OsString>,
}

/// `oshrun`, if the first word, which is the name of the command, or the second word says so.
pub fn oshrun(mut words: impl Iterator<Item = OsString>) -> Option<Result<ExitCode>> {
    let name = words.next()?;
    let is_oshrun = std::path::Path::new(&name).file_name().is_some_and(|name| name == "oshrun");
    if !is_oshrun && words.next()? != "oshrun" {
        return None;
    }
    Some(oshrun::read(words).and_then(|request| match request {
        oshrun::Request::Help => {
            print!("{}", oshrun::HELP);
            Ok(ExitCode::SUCCESS)
        }
        oshrun::Request::Version => {
            println!("oshrun (memonet) {}", env!("CARGO_PKG_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
        oshrun::Request::Run(spec) => carry_out(*spec),
    }))
}

/// Starts a job and returns when it has ended, with its exit status. Error reports of the job go to
/// stderr.
///
/// Call this from the main thread, before other threads exist: it handles the signals of the whole
/// process, and the PEs are killed when the thread that started them ends.
pub fn launch(spec: Spec) -> Result<ExitCode> {
    Ok(ExitCode::from(start(spec)?.status))
}

/// The exit status for an error: 126 or 127 for a program that cannot be started, as in shells.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    error.downcast_ref::<CannotStart>().map_or(ExitCode::FAILURE, |e| ExitCode::from(e.status))
}

fn start(mut spec: Spec) -> Result<Outcome> {
    // A PE of a simulated machine may have started this command, which is none.
    memonet_core::unstable::hosted::see_real_time();
    spec.options.verbose |= log::asked()?.is_some();
    spec.options.tell_of_keep_going();
    spec.options.check_files()?;
    let npes = spec.programs.iter().map(|program| program.n).sum();
    check_settings(npes, |variable| spec.options.of_pes(variable))?;
    if spec.options.several.is_asked() {
        if spec.options.simulated.machine.is_some() {
            bail!(
                "a simulated machine lies in one process, which is on this machine: leave out the list of hosts, or --machine"
            );
        }
        return hosts::run(spec);
    }
    start_here(spec)
}

fn start_here(spec: Spec) -> Result<Outcome> {
    let Spec { programs, mut options } = spec;
    // Once, instead of by each PE.
    options.fabric_of_pes().map(|fabric| memonet_fabrics::parse(&fabric)).transpose()?;
    let forms = stats::Forms::open(&options.stats)?;
    let npes = programs.iter().map(|program| program.n).sum();
    let images = programs.iter().map(program::find).collect::<Result<Vec<_>>>()?;
    let mpi = mpi::find(&images, &programs);
    if let Some(found) = mpi.as_ref().filter(|_| options.simulated.machine.is_some()) {
        bail!(found.refusal());
    }
    let trace = trace::Trace::begin(&options)?;
    let plan = machine::plan(&options.simulated, trace.is_some())?;
    let wanted = Wanted { forms, trace, machine: plan.as_ref().map(machine::Plan::report) };
    let binding = match plan {
        Some(_) => binding::simulated(options.bind),
        None => binding::plan(npes, options.bind)?,
    };
    let nofile = limits::raise_descriptors(npes)?;
    let (segment, note) = limits::segment_size(&images, &options, plan.is_some())?;
    // From here on, a signal that would end this process is read while the PEs run, so that nothing
    // is left behind.
    let signals = signals::Signals::catch()?;
    let guard = guard::Guard::post(guard::Beats::default())?;
    let cpus = if plan.is_some() { 1 } else { binding.usable() };
    let job = JobFile::create_with(npes, cpus, segment)?;
    let passages = plan.as_ref().map(|plan| plan.passages(npes)).transpose()?;
    if let Some(passages) = &passages {
        let (name, value) = passages.environment();
        options.environment.push((name.into(), value));
    }

    let room = trace::bytes_for(&options, npes);
    let make = || stats::Records::make((npes, 0, npes), room, &mut options.environment);
    let records = wanted.needs_records().then(make).transpose()?.map(Arc::new);
    let spawner = spawn::Spawner::new(&job, &guard, &signals, nofile, &options)?;
    let family = family::Family::found(guard)?;
    let mut supervisor = supervisor::Supervisor::new(job, signals, family, &options)?;
    records.iter().for_each(|records| supervisor.tell_of(records.clone()));
    let described = options.verbose.then(|| binding.describe(0, npes));
    let complaints = settings::complaints(options.names_of_variables());
    let warning = mpi.map(|found| found.warning());
    let notes = complaints.into_iter().chain(note).chain(warning).chain(described);
    notes.for_each(|text| supervisor.say(&text));
    let of_each = images.iter().zip(&programs);
    let of_pe = of_each.flat_map(|(image, program)| std::iter::repeat_n(image, program.n));
    let mut starts =
        starts::Starts { spawner, images: of_pe.collect(), binding: &binding, first: 0 };
    match plan.zip(passages) {
        _ if supervisor.is_interrupted()? => {}
        Some((plan, passages)) => {
            supervisor.job().keep_asking();
            supervisor.simulate(plan.start(supervisor.job(), passages, binding.of_machine())?)?
        }
        None => supervisor = start_all(npes, supervisor, &mut starts)?,
    }
    let _keepers = pulse::Keepers::start(binding.shared_cpus(), supervisor.job());
    let (outcome, fates) = supervisor.watch(&mut starts)?;
    Ok(match records {
        Some(records) => wanted.write(&records, npes, fates, outcome),
        None => outcome,
    })
}

/// Starts the PEs of this machine. Ends those that have started if one cannot.
fn start_all(
    npes: usize,
    mut supervisor: supervisor::Supervisor,
    starts: &mut starts::Starts<'_>,
) -> Result<supervisor::Supervisor> {
    let _aside = starts.binding.step_aside(npes);
    match (0..npes).try_for_each(|pe| supervisor.start(pe, starts)) {
        Ok(()) => Ok(supervisor),
        Err(error) => {
            supervisor.give_up();
            Err(error)
        }
    }
}

/// What the user wants to read of a job when it is over.
struct Wanted {
    forms: Option<stats::Forms>,
    trace: Option<trace::Trace>,
    /// Of a simulated machine.
    machine: Option<machine::Report>,
}

impl Wanted {
    fn needs_records(&self) -> bool {
        self.forms.is_some() || self.trace.is_some()
    }

    fn write(
        self,
        records: &stats::Records,
        npes: usize,
        fates: Fates,
        mut outcome: Outcome,
    ) -> Outcome {
        if let Some(trace) = self.trace {
            let stages = self.machine.as_ref().and_then(machine::Report::stages);
            outcome = trace.write_here(records.file(), fates, stages, outcome);
        }
        if let Some(forms) = self.forms {
            let machine = self.machine.as_ref().map(machine::Report::text);
            let told = records.read().map(|told| stats::Report::new(npes, told, machine));
            outcome = outcome.reported(told.and_then(|told| forms.write(&told)));
        }
        outcome
    }
}
