//! MPI programs that `memonet run` starts: for MPI, each process is the only one of its world, so
//! each does the whole work. On this machine that gives a warning; a simulated one refuses them.
//! The libraries that a program's file names show whether it is linked with MPI.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use super::program::Image;
use super::spec::Program;

/// Programs that are linked with MPI, of which the job has several processes.
pub struct Found {
    program: String,
    library: String,
    /// Number of processes.
    n: usize,
}

/// Looks for programs that are linked with MPI.
pub fn find(images: &[Image], programs: &[Program]) -> Option<Found> {
    let linked = |(image, program)| Some((image, program, library_of(image)?));
    let found: Vec<(&Image, &Program, String)> =
        images.iter().zip(programs).filter_map(linked).collect();
    let n: usize = found.iter().map(|(_, program, _)| program.n).sum();
    let (image, _, library) = found.first().filter(|_| n > 1)?;
    Some(Found { program: image.name().to_string(), library: library.clone(), n })
}

impl Found {
    /// The warning to a user who starts them.
    pub fn warning(&self) -> String {
        let Found { program, library, n } = self;
        format!(
            "{program} is linked with MPI ({library}), which `memonet run` does not start: for MPI, each of the {n} processes is alone, rank 0 of 1. \
             Start it with MPI's launcher, such as `mpiexec -n {n}`; memonet works there, too"
        )
    }

    /// Why a simulated machine does not run them.
    pub fn refusal(&self) -> String {
        let Found { program, library, n } = self;
        format!(
            "{program} is linked with MPI ({library}), and a simulated machine has no MPI: each of the {n} processes would be alone, rank 0 of 1. \
             Link it without MPI, with its messages by OpenSHMEM or memonet; or leave out --machine, and start it with MPI's launcher"
        )
    }
}

/// The name of the MPI library that a program is linked with.
fn library_of(image: &Image) -> Option<String> {
    let file = File::open(OsStr::from_bytes(image.path.as_bytes())).ok()?;
    // A file that cannot be read is no reason for this warning.
    needed(&file).ok()?.into_iter().find(|name| is_mpi(name))
}

/// Whether a library is one of MPI: that of Open MPI, MPICH, Intel MPI, MVAPICH or Cray, for C, C++
/// or Fortran.
fn is_mpi(library: &str) -> bool {
    let stem = library.split(".so").next().unwrap_or_default();
    ["libmpi", "libmpich", "libmpifort", "libmpichfort", "libmpicxx", "libmpichcxx"].contains(&stem)
        || stem.starts_with("libmpi_")
}

/// The most bytes that this reads of a file: names of libraries take some KiB.
const MOST: u64 = 64 << 20;
const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;

/// The libraries that an ELF file names, if it has 64 bits and this processor's byte order. None
/// for any other file.
///
/// # Errors
/// If the file cannot be read, or is damaged.
fn needed(file: &File) -> io::Result<Vec<String>> {
    let header = bytes(file, 0, 64)?;
    if header[..6] != *b"\x7fELF\x02\x01" || cfg!(target_endian = "big") {
        return Ok(Vec::new());
    }
    let (size, count) = (number(&header, 54, 2), number(&header, 56, 2));
    let table = bytes(file, number(&header, 32, 8), size * count)?;
    let segments: Vec<_> = table.chunks_exact((size as usize).max(56)).map(Segment::read).collect();
    let Some(dynamic) = segments.iter().find(|segment| segment.kind == PT_DYNAMIC) else {
        // Linked statically.
        return Ok(Vec::new());
    };
    let dynamic = bytes(file, dynamic.offset, dynamic.size)?;
    let entries =
        || dynamic.chunks_exact(16).map(|entry| (number(entry, 0, 8), number(entry, 8, 8)));
    let of = |wanted| entries().filter(move |(tag, _)| *tag == wanted).map(|(_, value)| value);
    let place = |address: u64| {
        let around = |segment: &&Segment| {
            segment.kind == PT_LOAD && address.wrapping_sub(segment.address) < segment.size
        };
        segments
            .iter()
            .find(around)
            .map(|segment| segment.offset.wrapping_add(address - segment.address))
    };
    let (Some(names), Some(length)) = (of(DT_STRTAB).next().and_then(place), of(DT_STRSZ).next())
    else {
        return Ok(Vec::new());
    };
    let names = bytes(file, names, length)?;
    let name = |at: u64| {
        let rest = names.get(usize::try_from(at).ok()?..)?;
        Some(String::from_utf8_lossy(rest.split(|&byte| byte == 0).next()?).into_owned())
    };
    Ok(of(DT_NEEDED).filter_map(name).collect())
}

/// An entry of the table of segments.
struct Segment {
    kind: u64,
    offset: u64,
    address: u64,
    size: u64,
}

impl Segment {
    fn read(line: &[u8]) -> Segment {
        Segment {
            kind: number(line, 0, 4),
            offset: number(line, 8, 8),
            address: number(line, 16, 8),
            size: number(line, 32, 8),
        }
    }
}

fn bytes(file: &File, from: u64, length: u64) -> io::Result<Vec<u8>> {
    if length > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

/// The little-endian number in `size` bytes from `at` on.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    bytes[at..at + size].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    #[test]
    fn libraries_of_mpi_are_known_from_others() {
        for name in [
            "libmpi.so.40",
            "libmpich.so.12",
            "libmpi_mpifh.so.40",
            "libmpifort.so.12",
            "libmpi_gnu_123.so.12",
            "libmpi.so",
        ] {
            assert!(is_mpi(name), "{name}");
        }
        for name in [
            "libmpfr.so.6",
            "libmpi4.so.1",
            "libmpir.so",
            "libc.so.6",
            "libmemonet.so.0",
            "mylibmpi.so",
            "libmpiP.so",
            "",
        ] {
            assert!(!is_mpi(name), "{name}");
        }
    }

    #[test]
    fn this_program_needs_libc() {
        let found = needed(&File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(found.iter().any(|name| name == "libc.so.6"), "{found:?}");
        assert_eq!(needed(&File::open("/bin/sh").unwrap()).unwrap(), ["libc.so.6"]);
        assert!(needed(&File::open("/dev/null").unwrap()).is_err(), "shorter than a header");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        /// A damaged program, or another file, is read or refused without a panic.
        #[test]
        fn damaged_programs_do_not_panic(at in prop_oneof![0..64usize, 64..1024usize], gained: [u8; 8], length in 0..5000usize) {
            let mut program = std::fs::read("/bin/sh").unwrap();
            program[at..at + 8].copy_from_slice(&gained);
            let mut file = tempfile::tempfile().unwrap();
            let whole = length >= 4096;
            file.write_all(if whole { &program } else { &program[..length] }).unwrap();
            let _ = needed(&file);
        }
    }
}
