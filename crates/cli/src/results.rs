//! Files for results. They are opened before the work that leads to these, so that a wrong name is
//! told at once, and keep what they have until there is something new.

use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::Context;

/// A file that was opened, and has its old contents.
pub struct Results {
    file: File,
    /// What others write there, too, stays.
    is_shared: bool,
}

impl Results {
    /// Opens a file, or makes it.
    pub fn open(path: &Path) -> io::Result<Results> {
        // Standard output, for example. In /dev/shm lie files like any others.
        let is_shared = (path.starts_with("/dev") && !path.starts_with("/dev/shm"))
            || path.starts_with("/proc");
        let mut options = File::options();
        let options = options.write(true).create(true).append(is_shared).truncate(false);
        Ok(Results { file: options.open(path)?, is_shared })
    }

    /// [`open`](Self::open), with an error that says what cannot be written.
    pub fn open_named(path: &Path) -> anyhow::Result<Results> {
        Results::open(path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The file, for new contents.
    pub fn begin(self) -> io::Result<File> {
        if !self.is_shared && self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn old_contents_stay_until_there_are_new_ones() {
        let folders = [tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")];
        for folder in folders.map(Result::unwrap) {
            let path = folder.path().join("results");
            std::fs::write(&path, "the old ones").unwrap();
            drop(Results::open(&path).unwrap());
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "the old ones");
            Results::open(&path).unwrap().begin().unwrap().write_all(b"new").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
            assert!(Results::open(&folder.path().join("none/results")).is_err());
        }
        Results::open(Path::new("/dev/null")).unwrap().begin().unwrap().write_all(b"x").unwrap();
    }
}
