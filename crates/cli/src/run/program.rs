//! Finding the program, before any PE is started: a wrong name is reported once, and ends no PE.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{Access, access};

use super::spec::Program;

/// A program that cannot be started, with the exit status that shells use for it.
#[derive(Debug)]
pub struct CannotStart {
    pub status: u8,
    pub message: String,
}

impl std::fmt::Display for CannotStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CannotStart {}

/// A program file and its arguments, ready for `execve`.
pub struct Image {
    /// Its file.
    pub path: CString,
    /// Its name as given, and its arguments.
    pub argv: Vec<CString>,
}

impl Image {
    /// The program as the user named it.
    pub fn name(&self) -> String {
        self.argv[0].to_string_lossy().into_owned()
    }

    /// Whether the program is run by valgrind.
    pub fn is_valgrind(&self) -> bool {
        self.path.as_bytes().rsplit(|&byte| byte == b'/').next() == Some(b"valgrind")
    }
}

/// This program, to be started as PEs.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find the memonet program, to start it as PEs")
}

/// Finds a program as a shell does.
pub fn find(program: &Program) -> Result<Image> {
    let path = locate(&program.program)?;
    let argv = std::iter::once(&program.program).chain(&program.args);
    Ok(Image {
        path: c_string(path.into_os_string())?,
        argv: argv.map(|word| c_string(word.clone())).collect::<Result<_>>()?,
    })
}

/// A string in the form that the kernel expects.
pub fn c_string(text: OsString) -> Result<CString> {
    CString::new(text.into_vec())
        .context("a program, argument or environment variable with a zero byte in it")
}

fn locate(name: &OsStr) -> Result<PathBuf> {
    let cannot = |status, message: String| {
        let message = format!("cannot start {}: {message}", name.display());
        anyhow::Error::from(CannotStart { status, message })
    };
    if name.as_bytes().contains(&b'/') {
        let path = Path::new(name);
        return match usable(path) {
            Ok(()) => Ok(path.into()),
            Err(Unusable::Missing(error)) => Err(cannot(127, format!("{error}. Check the path"))),
            Err(Unusable::Directory) => {
                Err(cannot(126, "it is a directory. Name a program in it".into()))
            }
            Err(Unusable::NotExecutable) => {
                Err(cannot(126, format!("it is not executable. Use `chmod +x {}`", name.display())))
            }
        };
    }
    let search = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut candidates = std::env::split_paths(&search).map(|folder| folder.join(name));
    if let Some(found) = candidates.find(|candidate| usable(candidate).is_ok()) {
        return Ok(found);
    }
    let here = Path::new(".").join(name);
    Err(match usable(&here) {
        Ok(()) if !name.is_empty() => {
            cannot(127, format!("it is not in PATH. There is one here: write {}", here.display()))
        }
        _ => cannot(
            127,
            "it is not in PATH. Check the name, or give a path such as ./program".into(),
        ),
    })
}

enum Unusable {
    Missing(std::io::Error),
    Directory,
    NotExecutable,
}

fn usable(path: &Path) -> Result<(), Unusable> {
    match std::fs::metadata(path) {
        Err(error) => Err(Unusable::Missing(error)),
        Ok(metadata) if metadata.is_dir() => Err(Unusable::Directory),
        Ok(_) => access(path, Access::EXEC_OK).map_err(|_| Unusable::NotExecutable),
    }
}
