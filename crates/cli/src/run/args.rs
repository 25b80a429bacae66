//! The command line of `memonet run`.

use std::ffi::{OsStr, OsString};

use anyhow::{Result, anyhow, bail};
use clap::{Command, FromArgMatches};
use memonet_core::unstable::settings::distance;

use super::spec::{ALL, Options, Program, Spec};
use super::stats::Form;
use super::values::pes;

/// The arguments of `memonet run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  memonet run -n 4 ./program arguments
  memonet run --hosts a:4,b:4 ./program           4 PEs on each of two hosts
  memonet run -n 1 ./server : -n 3 ./client       one job of 4 PEs, two programs
  memonet run -n 2 --label gdb -batch -ex run ./program
  memonet run -n 2 valgrind ./program
  memonet run --trace trace.json -n 4 ./program    then open trace.json in ui.perfetto.dev
  memonet run --machine dimmnet-1/D -n 2 ./program      on a simulated machine, in its time

Exit status: that of the first PE that failed (128 + the number of a signal that killed it), 124 after
--timeout, 126 or 127 if a program cannot be started, otherwise 0.")]
pub struct Args {
    #[command(flatten)]
    first: First,
    #[command(flatten)]
    options: Options,
}

/// The first program of a job: on several hosts, the list says how many PEs there are.
#[derive(Debug, clap::Args)]
struct First {
    /// Number of PEs (also -np)
    #[arg(
        short,
        value_name = "N",
        value_parser = pes,
        required_unless_present_any = ["hosts", "hostfile"]
    )]
    n: Option<usize>,
    /// Program and its arguments; ` : -n N PROGRAM [ARGUMENTS]...` adds another program to the job
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

/// A further program of a job: the words between two `:`.
#[derive(Debug, clap::Args)]
struct Part {
    #[arg(short, value_name = "N", value_parser = pes)]
    n: usize,
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

impl Args {
    /// The job that these arguments ask for.
    pub fn spec(self) -> Result<Spec> {
        let Args { mut options, first: First { n, command } } = self;
        if let Some(fabric) = options.fabric.take() {
            options.environment.push(("MEMONET_FABRIC".into(), fabric));
        }
        let mut parts = command.split(|word| word == ":");
        let first = parts.next().unwrap_or_default();
        // On several hosts: as many as the hosts have room for.
        let mut programs = vec![program(n.unwrap_or(ALL), first)?];
        for words in parts {
            let Part { n, command } = Part::read(words)?;
            programs.push(program(n, &command)?);
        }
        if n.is_none() && programs.len() > 1 {
            bail!(
                "with several programs, each needs its number of PEs: give the first one -n, too"
            );
        }
        Ok(Spec { programs, options })
    }
}

fn program(n: usize, words: &[OsString]) -> Result<Program> {
    match words {
        // clap accepts any word as a program, because a program's arguments may be any words.
        [option, ..] if option.as_encoded_bytes().starts_with(b"-") => {
            Err(no_option(&option.to_string_lossy(), std::iter::empty()))
        }
        [program, args @ ..] => Ok(Program { n, program: program.clone(), args: args.to_vec() }),
        [] => bail!(
            "there is no program before ` : `. Write e.g. `memonet run -n 1 ./server : -n 3 ./client`"
        ),
    }
}

impl Part {
    fn read(words: &[OsString]) -> Result<Part> {
        let command =
            <Part as clap::Args>::augment_args(Command::new("memonet run").no_binary_name(true));
        let parsed = command
            .try_get_matches_from(words)
            .and_then(|matches| Part::from_arg_matches(&matches));
        parsed.map_err(|error| {
            let rendered = error.render().to_string();
            let cause: Vec<&str> = rendered.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let cause = cause.join(" ");
            let cause = cause.trim_start_matches("error: ");
            let what = words.join(OsStr::new(" "));
            anyhow::anyhow!(
                "after ` : `, in `{}`: {cause}. Each part is `-n N PROGRAM [ARGUMENTS]...`; options of the whole job stand before the first program",
                what.display()
            )
        })
    }
}

/// Replaces `-np` and `--np`, the spelling of other launchers, by `-n`, and `--stats FORM` by
/// `--stats=FORM`, wherever that is an option of memonet, of which `command` is the command line,
/// and not of a program. Refuses options that there are not: clap would take them for the program,
/// and miss the options behind them.
pub fn spell_out(
    command: &Command,
    words: impl Iterator<Item = OsString>,
) -> Result<Vec<OsString>> {
    let ours = || command.find_subcommand("run").into_iter().flat_map(Command::get_arguments);
    let takes_value = |word: &OsStr| {
        let word = word.to_str().unwrap_or_default();
        let takes =
            |arg: &&clap::Arg| arg.get_action().takes_values() && !arg.is_require_equals_set();
        ours().filter(takes).any(|arg| match word.strip_prefix("--") {
            Some(long) => arg.get_long() == Some(long),
            None => arg.get_short().is_some_and(|short| word == format!("-{short}")),
        })
    };
    // clap adds the one for help later.
    let longs = || ours().filter_map(clap::Arg::get_long).chain(["help"]);
    let shorts = || ours().filter_map(clap::Arg::get_short).chain(['h']);
    let check = |word: &OsStr| {
        let text = word.to_string_lossy();
        let option = text.split('=').next().unwrap_or_default();
        let is_there = match option.strip_prefix("--") {
            Some(long) => longs().any(|known| known == long),
            None => shorts().any(|short| option[1..].starts_with(short)),
        };
        if is_there { Ok(()) } else { Err(no_option(option, longs())) }
    };

    let words: Vec<OsString> = words.collect();
    if words.get(1).is_none_or(|subcommand| subcommand != "run") {
        return Ok(words);
    }
    let (mut in_options, mut is_value, mut may_be_form) = (true, false, false);
    let mut spelled = words[..2].to_vec();
    for mut word in words.into_iter().skip(2) {
        let is_form = may_be_form && word.to_str().is_some_and(Form::is_meant);
        may_be_form = in_options && !is_value && word == "--stats";
        if let Some(stats) = spelled.last_mut().filter(|_| is_form) {
            stats.push("=");
            stats.push(word);
            continue;
        }
        if !in_options {
            in_options = word == ":";
        } else if is_value {
            is_value = false;
        } else {
            if let Some(n) = word.to_str().and_then(spelled_np) {
                word = n.into();
            }
            is_value = takes_value(&word);
            in_options = word.as_encoded_bytes().starts_with(b"-") && word != "--";
            if in_options {
                check(&word)?;
            }
        }
        spelled.push(word);
    }
    Ok(spelled)
}

/// `-n` or `-n=4` for these options of other launchers.
fn spelled_np(word: &str) -> Option<String> {
    let value = ["-np", "--np"].iter().find_map(|np| word.strip_prefix(np))?;
    (value.is_empty() || value.starts_with('=')).then(|| format!("-n{value}"))
}

fn no_option<'a>(option: &str, longs: impl Iterator<Item = &'a str>) -> anyhow::Error {
    let name = option.trim_start_matches('-');
    let nearest = longs.min_by_key(|long| distance(name, long));
    // Else it is none of them, misspelled.
    let nearest = nearest.filter(|long| 2 * distance(name, long) <= name.len());
    let nearest = nearest.map_or_else(String::new, |long| format!("; the nearest is --{long}"));
    anyhow!("there is no option {option}{nearest}. `memonet run --help` lists all")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(line: &str) -> Result<String> {
        let run = <Args as clap::Args>::augment_args(Command::new("run"));
        let memonet = Command::new("memonet").subcommand(run);
        let words = spell_out(&memonet, line.split(' ').map(OsString::from))?;
        Ok(words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    fn np(line: &str) -> String {
        spelled(line).unwrap()
    }

    #[test]
    fn np_is_n_where_it_is_ours() {
        assert_eq!(np("memonet run -np 2 prog"), "memonet run -n 2 prog");
        assert_eq!(
            np("memonet run --bind core -np 2 prog -np 3"),
            "memonet run --bind core -n 2 prog -np 3"
        );
        assert_eq!(
            np("memonet run --label -n 1 a -np : -np 2 b -np"),
            "memonet run --label -n 1 a -np : -n 2 b -np"
        );
        assert_eq!(np("memonet run --env -np -np 2 prog"), "memonet run --env -np -n 2 prog");
        assert_eq!(np("memonet demo -np 2"), "memonet demo -np 2");
        assert_eq!(np("memonet run --np 2 prog --np 3"), "memonet run -n 2 prog --np 3");
        assert_eq!(np("memonet run --np=2 prog : --np 3 b"), "memonet run -n=2 prog : -n 3 b");
    }

    #[test]
    fn options_that_there_are_not_are_told_from_arguments() {
        let told = |line: &str| spelled(line).unwrap_err().to_string();
        for line in ["--timeot 3 -n 4 true", "--timeot=3 -n 4 true", "-n 4 --timeot 3 true"] {
            let said = told(&format!("memonet run {line}"));
            assert!(said.contains("no option --timeot; the nearest is --timeout."), "{said}");
        }
        assert!(told("memonet run -n 1 a : --lable -n 1 b").contains("nearest is --label"));
        for other in ["-x", "--foo"] {
            let said = told(&format!("memonet run {other} -n 1 a"));
            assert!(said.contains(&format!("no option {other}. ")), "{said}");
        }
        for line in
            ["-v -n4 a --timeot", "--help", "-h", "--env=--x=1 -- --y", "-n 1 -- -a : -n 2 b"]
        {
            assert_eq!(np(&format!("memonet run {line}")), format!("memonet run {line}"));
        }
    }

    #[test]
    fn a_form_of_statistics_may_stand_apart() {
        assert_eq!(
            np("memonet run --stats json:a --stats -np 2 --stats html:b prog --stats json:c"),
            "memonet run --stats=json:a --stats -n 2 --stats=html:b prog --stats json:c"
        );
        assert_eq!(
            np("memonet run -n 2 --stats prog json:a"),
            "memonet run -n 2 --stats prog json:a"
        );
        assert_eq!(np("memonet run --env --stats json:a"), "memonet run --env --stats json:a");
        // What is neither a form nor a program is refused as a form.
        assert_eq!(np("memonet run --stats xml:a prog"), "memonet run --stats=xml:a prog");
    }
}
