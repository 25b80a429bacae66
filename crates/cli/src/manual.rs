//! The manual pages and the shells' completions, made of the definition of the command line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

/// Where they are to go.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder `share` of an installation
    folder: PathBuf,
}

/// Where each shell looks for the completions of a command.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/memonet"),
    (Shell::Zsh, "zsh/site-functions/_memonet"),
    (Shell::Fish, "fish/vendor_completions.d/memonet.fish"),
];

/// Writes the files of `command` and of its subcommands, but for hidden ones.
pub fn write(args: &Args, command: Command) -> Result<()> {
    let pages = args.folder.join("man/man1");
    let make = |folder: &Path| {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))
    };
    make(&pages)?;
    let visible = without_hidden(command);
    let mut built = visible.clone().disable_help_subcommand(true);
    built.build();
    write_pages(&built, &pages)?;
    // The link of that name is the same command.
    write_file(&pages.join("oshrun.1"), b".so man1/memonet-oshrun.1\n")?;
    for (shell, place) in SHELLS {
        let (file, mut script) = (args.folder.join(place), Vec::new());
        make(file.parent().expect("each has a folder"))?;
        clap_complete::generate(shell, &mut visible.clone(), "memonet", &mut script);
        write_file(&file, &script)?;
    }
    Ok(())
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(command: &Command, folder: &Path) -> Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_pages(sub, folder)?;
    }
    let source = concat!("memonet ", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command.clone()).source(source);
    let mut page = Vec::new();
    man.render(&mut page).context("making a manual page")?;
    let page = with_usage(&String::from_utf8(page)?, &command.clone().render_usage().to_string());
    write_file(&folder.join(man.get_filename()), page.as_bytes())
}

/// The page, with the usage of `--help` as its synopsis: the other one names each option, without
/// its value.
fn with_usage(page: &str, usage: &str) -> String {
    const SYNOPSIS: &str = ".SH SYNOPSIS\n";
    let usage = usage.trim_start_matches("Usage: ").replace('\\', "\\e").replace('-', "\\-");
    let page = page.replace(".SH EXTRA\n", ".SH NOTES\n");
    match page
        .split_once(SYNOPSIS)
        .and_then(|(head, rest)| Some((head, rest.split_once("\n.SH ")?)))
    {
        Some((head, (_, rest))) => format!("{head}{SYNOPSIS}{usage}\n.SH {rest}"),
        None => page,
    }
}

fn write_file(file: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(file, bytes).with_context(|| format!("writing {}", file.display()))
}

/// Completions would offer hidden subcommands.
fn without_hidden(command: Command) -> Command {
    let shown: Vec<Command> =
        command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned().collect();
    let mut all =
        Command::new("memonet").version(env!("CARGO_PKG_VERSION")).arg_required_else_help(true);
    if let Some(about) = command.get_about() {
        all = all.about(about.clone());
    }
    all.subcommands(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn each_command_and_option_stands_in_all_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let command = crate::Cli::command();
        write(&Args { folder: folder.path().into() }, command.clone()).unwrap();
        let read = |place: &str| std::fs::read_to_string(folder.path().join(place)).unwrap();
        let scripts = SHELLS.map(|(_, place)| read(place));
        for sub in command.get_subcommands() {
            let name = sub.get_name();
            let page = folder.path().join(format!("man/man1/memonet-{name}.1"));
            assert_eq!(page.exists(), !sub.is_hide_set(), "{name}");
            if sub.is_hide_set() {
                let ends = |script: &String| script.contains(&format!("memonet__subcmd__{name}"));
                assert!(!scripts.iter().any(ends), "{name}");
                continue;
            }
            let page = std::fs::read_to_string(page).unwrap().replace('\\', "");
            for option in sub.get_arguments().filter(|option| !option.is_hide_set()) {
                let Some(long) = option.get_long() else { continue };
                assert!(page.contains(&format!("--{long}")), "{name} --{long}: {page}");
                assert!(scripts.iter().all(|script| script.contains(long)), "{name} --{long}");
            }
        }
        assert!(read("man/man1/memonet.1").contains("memonet"));
        let run = read("man/man1/memonet-run.1");
        assert!(run.contains(".SH SYNOPSIS\nmemonet run [OPTIONS] <PROGRAM>...\n.SH "), "{run}");
        assert!(run.contains(".SH NOTES\nExamples:\n"), "{run}");
        assert!(read("man/man1/oshrun.1").contains("memonet-oshrun.1"));
    }
}
