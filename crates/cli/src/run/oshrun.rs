//! `oshrun`: `memonet run` with the options of other launchers, for their users and scripts.
//!
//! A table lists the options of other launchers. Memonet obeys some, accepts more without a need
//! for them, and refuses a few. An option begins with one dash or two, and its value follows a
//! blank or a `=`.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result, bail};
use memonet_core::unstable::launch::available_cpus;

use super::hosts::list::{self, Host};
use super::spec::{ALL, Bind, Options, Program, Spec};
use super::stats::Form;
use super::values::{events, name_and_value, pes, seconds};
use crate::tell::tell;

/// What the command line asks for.
#[derive(Debug)]
pub enum Request {
    /// The list of options.
    Help,
    /// The version.
    Version,
    /// A job.
    Run(Box<Spec>),
}

/// The text of `oshrun --help`.
pub const HELP: &str = "Runs an OpenSHMEM program: `memonet run`, with the options of other launchers

Usage: oshrun [OPTIONS] PROGRAM [ARGUMENTS]... [: [OPTIONS] PROGRAM [ARGUMENTS]...]...

  -n, -np, -c N             Number of PEs [default: one for each CPU that this process may use]
  -x NAME[=VALUE]           Set an environment variable in all PEs; without a value, PEs inherit it anyway
  -env, -genv NAME VALUE    Set an environment variable in all PEs
  --bind-to WHAT            core (or hwthread): CPUs of its own for each PE; anything else: not bound
  --tag-output, -l          Start each line of output with the number of its PE (also --label, --prepend-rank)
  --timeout SECONDS         End the job after this time, with exit status 124, and say what each PE waits for
  --watch SECONDS           Say what each PE waits for whenever a wait has lasted this long
  --stats [FORM]            At the end, tell what each PE has done: a table, or json:FILE or html:FILE
  --trace FILE              Write a timeline of each PE's calls and waits, for ui.perfetto.dev
  --trace-events N          Keep so many events of each PE in the timeline
  --wdir FOLDER             Start the programs in this folder (also -wd)
  --machine NAME            Run on a simulated machine, one of `memonet machines`
  -H, --host, --hosts LIST  Run on these hosts: a:2,b:2. Without -n, as many PEs as there are slots
  -f, --hostfile FILE       Run on the hosts of a file, one in a line: `a`, `a:2` or `a slots=2`
  -N, -ppn N                PEs of each host, or of this machine without -n
  --launch-agent COMMAND    Start memonet on each host by `COMMAND HOST WORDS...`, not by ssh
  -iface, --interface NAME  Let hosts reach each other by this network interface
  -v, --verbose             Print the CPUs of each PE, and which options were ignored
  -h, --help, -V, --version

Options that have no meaning here are accepted: --mca NAME VALUE, --map-by WHAT, --rank-by WHAT, --oversubscribe,
--allow-run-as-root, --use-hwthread-cpus, -q, -genvall, -launcher NAME and some more.
`memonet run --help` lists further options of memonet: --fabric, --keep-going, and more for
simulated machines.

Exit status: that of `memonet run`.
";

/// What an option does.
#[derive(Debug, Clone, Copy)]
enum Does {
    Count,
    PerMachine,
    /// Name and value in one word, or a name alone.
    Export,
    /// Name and value in two words.
    Set,
    Label,
    Timeout,
    Watch,
    Stats,
    Trace,
    TraceEvents,
    Bind,
    Hosts,
    HostFile,
    LaunchAgent,
    Interface,
    Folder,
    Machine,
    Verbose,
    Help,
    Version,
    /// Nothing; this number of values follows.
    Nothing(usize),
}

/// The options of other launchers: Open MPI and PRRTE, Hydra (MPICH, SOS), OSSS-UCX.
#[rustfmt::skip]
const OPTIONS: &[(&[&str], Does)] = &[
    (&["n", "np", "c"], Does::Count),
    (&["N", "ppn", "npernode", "perhost", "ppr"], Does::PerMachine),
    (&["x"], Does::Export),
    (&["env", "genv"], Does::Set),
    (&["l", "label", "tag-output", "prepend-rank"], Does::Label),
    (&["timeout"], Does::Timeout),
    (&["watch"], Does::Watch),
    (&["stats"], Does::Stats),
    (&["trace"], Does::Trace),
    (&["trace-events"], Does::TraceEvents),
    (&["bind-to", "binding"], Does::Bind),
    (&["H", "host", "hosts"], Does::Hosts),
    (&["hostfile", "machinefile", "f", "default-hostfile"], Does::HostFile),
    (&["launch-agent"], Does::LaunchAgent),
    (&["iface", "interface"], Does::Interface),
    (&["wdir", "wd"], Does::Folder),
    (&["machine"], Does::Machine),
    (&["v", "verbose", "report-bindings", "display-map"], Does::Verbose),
    (&["h", "help"], Does::Help),
    (&["V", "version"], Does::Version),
    (&["mca", "gmca", "prtemca", "pmixmca", "omca"], Does::Nothing(2)),
    (&["map-by", "rank-by", "launcher", "rmk", "genvlist", "envlist", "prefix", "personality", "output", "display",
       "runtime-options", "rankmap", "usize", "stdin"], Does::Nothing(1)),
    (&["oversubscribe", "nooversubscribe", "overload-allowed", "allow-run-as-root", "use-hwthread-cpus", "q", "quiet", "genvall",
       "envall", "bind-to-core", "bycore", "byslot", "bynode", "nolocal", "debug-daemons", "enable-recovery",
       "disable-hostname-propagation", "print-all-exitcodes"], Does::Nothing(0)),
];

/// Reads the words that follow `oshrun`.
pub fn read(words: impl Iterator<Item = OsString>) -> Result<Request> {
    let words: Vec<OsString> = words.collect();
    let mut reader = Reader::default();
    let mut programs: Vec<(Option<usize>, &[OsString])> = Vec::new();
    for part in words.split(|word| word == ":") {
        let mut part = part.iter();
        (reader.count, reader.each, reader.hosts) = (None, None, None);
        while let Some(option) = option(&mut part)? {
            match reader.take(option, &mut part)? {
                Some(request) => return Ok(request),
                None => continue,
            }
        }
        let here = reader.place()?;
        programs.push((reader.count.or(here), part.as_slice()));
    }
    let alone = programs.len() == 1;
    let mut spec = Spec::default();
    for (count, words) in programs {
        let [program, args @ ..] = words else {
            bail!(
                "there is no program to run. Write e.g. `oshrun -n 4 ./program`; `oshrun --help` lists the options"
            );
        };
        let n = match count {
            Some(n) => n,
            None if alone && reader.options.several.is_asked() => ALL,
            None if alone => available_cpus(),
            None => bail!(
                "{}: of several programs, each needs its number of PEs (-n)",
                program.display()
            ),
        };
        spec.programs.push(Program { n, program: program.clone(), args: args.to_vec() });
    }
    if reader.options.trace_events.is_some() && reader.options.trace.is_none() {
        bail!("--trace-events needs --trace, the file of the timeline");
    }
    reader.say_ignored();
    if let Some(folder) = &reader.folder {
        std::env::set_current_dir(folder).with_context(|| format!("--wdir {folder}"))?;
    }
    spec.options = reader.options;
    Ok(Request::Run(Box::new(spec)))
}

/// An option: its spelling, its effect, and the value that came with a `=`.
struct Given {
    spelling: String,
    does: Does,
    value: Option<String>,
}

/// The unread words of one program.
type Words<'a> = std::slice::Iter<'a, OsString>;

/// The values of an option.
struct Values<'a, 'b> {
    spelling: &'a str,
    /// The value that came with a `=`.
    first: Option<String>,
    words: &'a mut Words<'b>,
}

impl Values<'_, '_> {
    fn next(&mut self) -> Result<String> {
        let Self { spelling, first, words } = self;
        if let Some(value) = first.take() {
            return Ok(value);
        }
        let word = words.next().with_context(|| format!("{spelling}: a value is missing"))?;
        let text = word.clone().into_string().ok();
        text.with_context(|| format!("{spelling}: its value is not text"))
    }

    /// A form of statistics, which may be left out: a word that is none is the next option or the
    /// program.
    fn form(&mut self) -> Option<String> {
        if let Some(value) = self.first.take() {
            return Some(value);
        }
        let word = self.words.as_slice().first()?.to_str().filter(|word| Form::is_meant(word))?;
        self.words.next();
        Some(word.to_owned())
    }
}

/// The next option; `None` where the program begins.
fn option(words: &mut Words<'_>) -> Result<Option<Given>> {
    let Some(word) = words.as_slice().first() else {
        return Ok(None);
    };
    if !word.as_encoded_bytes().starts_with(b"-") {
        return Ok(None);
    }
    words.next();
    if word == "--" {
        return Ok(None);
    }
    let word =
        word.to_str().with_context(|| format!("the option {} is not text", word.display()))?;
    let name = word.strip_prefix("--").unwrap_or(&word[1..]);
    let known =
        |name: &str| OPTIONS.iter().find(|(names, _)| names.contains(&name)).map(|(_, does)| *does);
    let given = |spelling: &str, does, value: Option<&str>| Given {
        spelling: spelling.to_owned(),
        does,
        value: value.map(str::to_owned),
    };
    if let Some(does) = known(name) {
        return Ok(Some(given(word, does, None)));
    }
    if let Some((name, value)) = name.split_once('=')
        && let Some(does) = known(name)
    {
        return Ok(Some(given(&word[..word.len() - value.len() - 1], does, Some(value))));
    }
    if let Some(number) = name.strip_prefix('n')
        && number.parse::<usize>().is_ok()
    {
        return Ok(Some(given("-n", Does::Count, Some(number))));
    }
    bail!(
        "there is no option {word}. `oshrun --help` lists all, `memonet run --help` those of memonet's own launcher"
    )
}

#[derive(Default)]
struct Reader {
    options: Options,
    /// PEs of the program that is being read.
    count: Option<usize>,
    /// Its PEs on each host, and the hosts.
    each: Option<usize>,
    hosts: Option<Vec<Host>>,
    /// Whether it is the first one.
    is_later: bool,
    folder: Option<String>,
    ignored: Vec<String>,
}

impl Reader {
    /// Carries out an option, whose values follow. Returns the request, if the option ends the
    /// reading.
    fn take(&mut self, given: Given, words: &mut Words<'_>) -> Result<Option<Request>> {
        let Given { spelling, does, value } = given;
        let mut values = Values { spelling: &spelling, first: value, words };
        let within = || spelling.clone();
        match does {
            Does::Count => self.count = Some(pes(&values.next()?).with_context(within)?),
            Does::PerMachine => self.each = Some(pes(&values.next()?).with_context(within)?),
            Does::Export => {
                let text = values.next()?;
                if text.contains('=') {
                    self.set(name_and_value(&text).with_context(within)?)?;
                }
            }
            Does::Set => {
                let pair = (values.next()?, values.next()?);
                self.set(pair)?;
            }
            Does::Label => self.options.label = true,
            Does::Timeout => {
                self.options.timeout = Some(seconds(&values.next()?).with_context(within)?)
            }
            Does::Watch => {
                self.options.watch = Some(seconds(&values.next()?).with_context(within)?)
            }
            Does::Stats => {
                let form = match values.form() {
                    Some(text) => text.parse().map_err(anyhow::Error::msg).with_context(within)?,
                    None => Form::Table,
                };
                self.options.stats.push(form);
            }
            Does::Trace => self.options.trace = Some(values.next()?.into()),
            Does::TraceEvents => {
                self.options.trace_events = Some(events(&values.next()?).with_context(within)?)
            }
            Does::Bind => self.options.bind = bind(&values.next()?),
            Does::Hosts => self.name(list::parse(&values.next()?).with_context(within)?)?,
            Does::HostFile => self.name(list::read(Path::new(&values.next()?))?)?,
            Does::LaunchAgent => self.options.several.launch_agent = Some(values.next()?),
            Does::Interface => self.options.several.interface = Some(values.next()?),
            Does::Folder => self.start_in(&spelling, values.next()?)?,
            Does::Machine => self.options.simulated.machine = Some(values.next()?),
            Does::Verbose => self.options.verbose = true,
            Does::Help => return Ok(Some(Request::Help)),
            Does::Version => return Ok(Some(Request::Version)),
            Does::Nothing(count) => {
                let mut words = vec![spelling.clone()];
                for _ in 0..count {
                    words.push(values.next()?);
                }
                self.ignored.push(words.join(" "));
            }
        }
        Ok(None)
    }

    fn start_in(&mut self, spelling: &str, folder: String) -> Result<()> {
        if self.folder.as_ref().is_some_and(|before| *before != folder) {
            bail!(
                "{spelling}: all programs of a job start in the same folder. Use `sh -c 'cd FOLDER && exec PROGRAM'` for one of them"
            );
        }
        self.folder = Some(folder);
        Ok(())
    }

    fn set(&mut self, pair: (String, String)) -> Result<()> {
        let (name, value) = &pair;
        if name.is_empty() || name.contains('=') {
            bail!("{name:?} is no name of an environment variable");
        }
        let before = self.options.environment.iter().find(|(other, _)| other == name);
        if before.is_some_and(|(_, other)| other != value) {
            bail!(
                "{name} is given two values, but has one value in all PEs. Use `env {name}={value} PROGRAM` for one of several programs"
            );
        }
        self.options.environment.push(pair);
        Ok(())
    }

    fn name(&mut self, hosts: Vec<Host>) -> Result<()> {
        if self.hosts.as_ref().is_some_and(|before| *before != hosts) {
            bail!("there are two lists of hosts. Give one");
        }
        self.hosts = Some(hosts);
        Ok(())
    }

    /// After the options of a program: where the job runs. Returns the number of PEs that the hosts
    /// ask for, if they are this machine.
    fn place(&mut self) -> Result<Option<usize>> {
        let (each, hosts) = (self.each, self.hosts.take());
        let is_later = std::mem::replace(&mut self.is_later, true);
        let Some(mut hosts) = hosts else { return Ok(each) };
        if hosts.iter().all(|host| is_this_machine(&host.name)) {
            let slots = hosts.iter().map(|host| host.slots);
            let slots = slots.flatten().reduce(usize::saturating_add);
            return Ok(each.or(slots));
        }
        hosts.iter_mut().for_each(|host| host.slots = each.or(host.slots));
        let list = Some(list::text(&hosts));
        if is_later && self.options.several.hosts != list {
            bail!(
                "all programs of a job run on one list of hosts: give it to the first program. PEs fill the hosts in order"
            );
        }
        self.options.several.hosts = list;
        Ok(None)
    }

    fn say_ignored(&self) {
        if self.options.verbose {
            for option in &self.ignored {
                tell(format_args!("{option} has no meaning here and is ignored"));
            }
        }
    }
}

/// What `--bind-to` asks for.
fn bind(text: &str) -> Option<Bind> {
    // Modifiers such as `:overload-allowed` follow a colon.
    match text.split(':').next() {
        // That modifier asks for the default: each PE gets CPUs of its own if there are enough,
        // else each CPU gets equally many PEs.
        Some("core" | "hwthread" | "rr" | "user") if text.contains("overload-allowed") => None,
        Some("core" | "hwthread" | "rr" | "user") => Some(Bind::Core),
        _ => Some(Bind::None),
    }
}

fn is_this_machine(host: &str) -> bool {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    matches!(host, "localhost" | "127.0.0.1" | "::1")
        || name.split('.').next() == host.split('.').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn spec(line: &str) -> Result<Spec> {
        match read(line.split(' ').map(OsString::from))? {
            Request::Run(spec) => Ok(*spec),
            other => bail!("{other:?}"),
        }
    }

    /// Programs with their PEs, and arguments.
    fn programs(line: &str) -> Vec<(usize, String)> {
        let words = |program: Program| {
            let words: Vec<_> = std::iter::once(program.program).chain(program.args).collect();
            (program.n, words.join(std::ffi::OsStr::new(" ")).into_string().unwrap())
        };
        spec(line).unwrap().programs.into_iter().map(words).collect()
    }

    #[track_caller]
    fn refused(line: &str, why: &str) {
        let error = format!("{:#}", spec(line).unwrap_err());
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn numbers_of_pes_as_others_write_them() {
        for line in [
            "-n 3 a -n 7",
            "-np 3 a -n 7",
            "--np 3 a -n 7",
            "--n=3 a -n 7",
            "-c 3 a -n 7",
            "-n3 a -n 7",
            "-n 3 -- a -n 7",
        ] {
            assert_eq!(programs(line), [(3, "a -n 7".to_owned())], "{line}");
        }
        assert_eq!(programs("a b"), [(available_cpus(), "a b".to_owned())]);
        assert_eq!(programs("-N 5 a"), [(5, "a".to_owned())]);
        assert_eq!(programs("-ppn 5 -n 2 a"), [(2, "a".to_owned())]);
        assert_eq!(programs("-n 1 a x : -np 2 b"), [(1, "a x".to_owned()), (2, "b".to_owned())]);
        refused("-n 0 a", "at least one PE");
        refused("-n many a", "not a number");
        refused("-n", "a value is missing");
        refused("-n 2", "no program");
        refused("-n 2 a :", "no program");
        refused("-n 2 a : b", "each needs its number");
        refused("--frobnicate a", "there is no option --frobnicate");
    }

    #[test]
    fn what_has_a_meaning_takes_effect() {
        let line = "-l --timeout 2.5 -x A=b=c -x PATH -genv D e --bind-to core -v -n 1 a";
        let options = spec(line).unwrap().options;
        assert!(options.label && options.verbose);
        assert_eq!(
            (options.timeout, options.bind),
            (Some(Duration::from_millis(2500)), Some(Bind::Core))
        );
        assert_eq!(
            spec("--machine scc -n 1 a").unwrap().options.simulated.machine.as_deref(),
            Some("scc")
        );
        let set =
            [("A", "b=c"), ("D", "e")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(options.environment, set);
    }

    #[test]
    fn sight_is_asked_for_as_of_memonet_run() {
        let line = "--watch 10 --stats --stats json:a -stats=html:b --trace t.json --trace-events 9 p json:c";
        let Spec { programs, options } = spec(line).unwrap();
        assert_eq!(options.watch, Some(Duration::from_secs(10)));
        assert_eq!(options.stats, [Form::Table, Form::Json("a".into()), Form::Html("b".into())]);
        assert_eq!(options.trace.as_deref(), Some(Path::new("t.json")));
        assert_eq!(options.trace_events, Some(9));
        assert_eq!((&*programs[0].program, programs[0].args.len()), ("p".as_ref(), 1));
        assert_eq!(spec("--stats p").unwrap().options.stats, [Form::Table]);
        refused("--stats=xml:a p", "--stats");
        refused("--stats json: p", "json: needs a file");
        refused("--watch soon p", "not a number of seconds");
        refused("--trace", "--trace: a value is missing");
        refused("--trace-events 9 p", "needs --trace");
    }

    #[test]
    fn bindings() {
        let bind = |what: &str| spec(&format!("--bind-to {what} a")).unwrap().options.bind;
        assert_eq!(bind("core"), Some(Bind::Core));
        assert_eq!(bind("none"), Some(Bind::None));
        assert_eq!(bind("socket"), Some(Bind::None));
        assert_eq!(bind("core:overload-allowed"), None);
    }

    #[test]
    fn what_has_none_is_passed_over() {
        let line = "--mca btl self,vader --oversubscribe --allow-run-as-root --map-by ppr:1:core -q --use-hwthread-cpus -genvall \
                    -launcher fork -n 2 a --mca x";
        assert_eq!(programs(line), [(2, "a --mca x".to_owned())]);
        refused("--mca btl", "--mca: a value is missing");
    }

    #[test]
    fn this_machine_alone() {
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        assert_eq!(programs("-H localhost:3,localhost:1 a"), [(4, "a".to_owned())]);
        assert_eq!(programs(&format!("--host {name} -n 2 a")), [(2, "a".to_owned())]);
        assert_eq!(programs("-H 127.0.0.1 -N 3 a"), [(3, "a".to_owned())]);
        refused("-hostfile /nonexistent/hosts a", "/nonexistent/hosts");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# two\nlocalhost slots=2 max_slots=4\n\n").unwrap();
        assert_eq!(
            programs(&format!("--hostfile {} a", file.path().display())),
            [(2, "a".to_owned())]
        );
    }

    #[test]
    fn hosts_as_others_write_them() {
        let read = |line: &str| {
            let Spec { programs, options } = spec(line).unwrap();
            let counts: Vec<usize> = programs.iter().map(|program| program.n).collect();
            (counts, options.several.hosts.unwrap_or_default())
        };
        let of = |counts: &[usize], list: &str| (counts.to_vec(), list.to_owned());
        assert_eq!(read("-n 4 -H a:2,b:2 p"), of(&[4], "a:2,b:2"));
        assert_eq!(read("-host a,a,b p"), of(&[ALL], "a:2,b"));
        assert_eq!(read("-hosts a,b -ppn 3 p"), of(&[ALL], "a:3,b:3"));
        assert_eq!(read("-N 2 -n 3 --hosts=a,b:7 p"), of(&[3], "a:2,b:2"));
        assert_eq!(read("-H localhost,b p"), of(&[ALL], "localhost,b"));
        assert_eq!(read("-H a,b -n 1 p : -n 2 q"), of(&[1, 2], "a,b"));
        assert_eq!(read("-H a,b -n 1 p : -H a,b -n 2 q"), of(&[1, 2], "a,b"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# two\na slots = 2 max_slots=4\nb:1\n").unwrap();
        for option in ["-f", "--hostfile", "-machinefile"] {
            let line = format!("{option} {} p", file.path().display());
            assert_eq!(read(&line), of(&[ALL], "a:2,b:1"));
        }
        let several = spec("-H a,b -iface ib0 --launch-agent rsh p").unwrap().options.several;
        assert_eq!(
            (several.interface.as_deref(), several.launch_agent.as_deref()),
            (Some("ib0"), Some("rsh"))
        );
        refused("-H a,b -H a p", "two lists of hosts");
        refused("-n 1 p : -H a,b -n 1 q", "give it to the first program");
        refused("-H a,b -n 1 p : -H a,c -n 1 q", "one list of hosts");
        refused("-H a,b p : -n 1 q", "each needs its number");
        refused("-H a[1-3] p", "names no host");
    }

    #[test]
    fn contradictions_are_refused() {
        refused("-x A=1 -n 1 a : -x A=2 -n 1 b", "A is given two values");
        assert!(spec("-x A=1 -n 1 a : -x A=1 -n 1 b").is_ok());
        refused("-env = x a", "no name");
        refused("-wdir /a -n 1 a : -wdir /b -n 1 b", "the same folder");
    }

    #[test]
    fn asking() {
        let ask = |line: &str| read(line.split(' ').map(OsString::from)).unwrap();
        assert!(matches!(ask("--help"), Request::Help));
        assert!(matches!(ask("-n 2 -h a"), Request::Help));
        assert!(matches!(ask("-V"), Request::Version));
        for option in OPTIONS.iter().flat_map(|(names, _)| *names) {
            let spellings = OPTIONS.iter().filter(|(names, _)| names.contains(option)).count();
            assert_eq!(spellings, 1, "{option} stands in the table twice");
        }
    }
}
