//! Bytes in a memory file that nobody can change.

use memonet_core::{Error, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

const ALL: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::WRITE).union(SealFlags::SEAL);

fn failed(call: &'static str) -> impl Fn(Errno) -> Error {
    move |e| Error::System {
        call: call.into(),
        answer: e.into(),
        hint: "The job's description travels in a memory file (memfd): check the limits of memory and `ulimit -n`",
    }
}

/// A file with these bytes, for ever.
pub(super) fn file(name: &str, bytes: &[u8]) -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags).map_err(failed("memfd_create"))?;
    let mut written = 0;
    while written < bytes.len() {
        written += rustix::io::pwrite(&file, &bytes[written..], written as u64)
            .map_err(failed("writing to a memfd"))?;
    }
    rustix::fs::fcntl_add_seals(&file, ALL).map_err(failed("sealing a memfd"))?;
    Ok(file)
}

/// The bytes of such a file; an error for any other file, or a longer one.
pub(super) fn read(file: impl AsFd, most: usize) -> Result<Vec<u8>> {
    let wrong = |what: &str| Error::Fabric {
        fabric: "tcp",
        problem: format!(
            "what the agent gives as the job's description {what}: start the program with `memonet run`"
        ),
        call: None,
    };
    let seals = rustix::fs::fcntl_get_seals(&file).map_err(|_| wrong("is no memory file"))?;
    if !seals.contains(ALL) {
        return Err(wrong("could still change"));
    }
    let size = rustix::fs::fstat(&file).map_err(failed("fstat"))?.st_size;
    let size = usize::try_from(size).ok().filter(|&size| size <= most);
    let mut bytes = vec![0; size.ok_or_else(|| wrong("is too long"))?];
    let mut got = 0;
    while got < bytes.len() {
        match rustix::io::pread(&file, &mut bytes[got..], got as u64) {
            Ok(0) => return Err(wrong("ends early")),
            Ok(more) => got += more,
            Err(Errno::INTR) => {}
            Err(e) => return Err(failed("reading a memfd")(e)),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sealed_files_are_read() {
        let sealed = file("test", b"bytes").unwrap();
        assert_eq!(read(&sealed, 5).unwrap(), b"bytes");
        assert!(read(&sealed, 4).unwrap_err().to_string().contains("too long"));
        assert!(rustix::io::pwrite(&sealed, b"x", 0).is_err());
        let open = rustix::fs::memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(read(&open, 9).unwrap_err().to_string().contains("could still change"));
        assert!(read(std::fs::File::open("/dev/null").unwrap(), 9).is_err());
    }
}
