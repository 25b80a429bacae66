//! Input from outside is checked: the environment, an inherited descriptor, a control page.
//!
//! A process has one environment and joins one job, so each of these runs in a process of its own.

use crate::setup::in_another_process;
use memonet_core::unstable::launch::{ENV_FD, ENV_NPES, ENV_PE, JobFile, State};
use memonet_core::unstable::layout::{Geometry, JobHeader, MAX_PES};
use memonet_core::{Cause, Cmp, ENV_FABRIC, Error, Job};
use std::fs::File;
use std::io::Write;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Set where a hidden test is to run.
const MEANT: &str = "MEMONET_CONFORMANCE_OUTSIDE";

fn alone(test: &str) {
    in_another_process(&[test], &[(MEANT, "1")]);
}

fn meant() -> bool {
    std::env::var_os(MEANT).is_some()
}

#[test]
fn a_bad_environment() {
    alone("in_a_process_with_a_bad_environment");
}

#[test]
fn bad_descriptors() {
    alone("in_a_process_with_bad_descriptors");
}

#[test]
fn bad_control_pages() {
    alone("in_a_process_with_bad_control_pages");
}

#[test]
fn another_launcher() {
    alone("in_a_process_of_another_launcher");
}

#[test]
fn no_launcher() {
    alone("in_a_process_without_a_launcher");
}

#[test]
fn deaths_that_a_launcher_publishes() {
    alone("in_a_process_beside_others_that_die");
}

/// Sets or removes a variable.
fn set(name: &str, value: Option<&str>) {
    // SAFETY: this process runs one test, and nothing else in it uses the environment meanwhile.
    unsafe {
        match value {
            Some(value) => std::env::set_var(name, value),
            None => std::env::remove_var(name),
        }
    }
}

/// Joins with this environment.
fn join(fd: &str, pe: &str, npes: &str) -> Result<Job, Error> {
    set(ENV_FD, Some(fd));
    set(ENV_PE, Some(pe));
    set(ENV_NPES, Some(npes));
    memonet_fabrics::init()
}

/// A descriptor as a launcher passes it on: a call may close it.
fn handed_down(fd: impl AsFd) -> String {
    // SAFETY: duplicates a descriptor that is open during the call.
    let copy = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_DUPFD, 10) };
    assert!(copy >= 10);
    copy.to_string()
}

#[test]
#[ignore = "started by `a_bad_environment`"]
fn in_a_process_with_a_bad_environment() {
    if !meant() {
        return;
    }
    let file = JobFile::create(3, 2).unwrap();
    let fd = || handed_down(file.fd());
    for number in ["", " ", "x", "-1", "1.0", "0x1", "99999999999999999999999"] {
        for (fd, pe, npes, guilty) in [
            (number, "0", "3", ENV_FD),
            (&fd(), number, "3", ENV_PE),
            (&fd(), "0", number, ENV_NPES),
        ] {
            let refused = join(fd, pe, npes).map(drop).unwrap_err();
            assert!(
                matches!(&refused, Error::Environment { name, .. } if *name == guilty),
                "{fd} {pe} {npes}: {refused}"
            );
        }
    }
    for (pe, npes) in [
        ("3", "3"),
        ("4", "3"),
        ("0", "0"),
        ("18446744073709551615", "3"),
        ("0", "18446744073709551615"),
        ("0", "2"),
        ("0", "4"),
    ] {
        let refused = join(&fd(), pe, npes).map(drop).unwrap_err();
        assert!(
            matches!(refused, Error::Environment { .. } | Error::ControlPage { .. }),
            "{pe} of {npes}: {refused}"
        );
    }
    set(ENV_PE, None);
    assert!(memonet_fabrics::init().is_err(), "no number at all");
    set(ENV_FABRIC, Some("telepathy"));
    let refused = join(&fd(), "0", "3").map(drop).unwrap_err();
    assert!(matches!(refused, Error::Environment { name: ENV_FABRIC, .. }), "{refused}");
    set(ENV_FABRIC, None);
    assert_eq!(file.state(0), State::Empty, "none of these joined");
    // Only the wrong values were the reason for the refusals.
    let job = join(&fd(), "2", "3").unwrap();
    assert_eq!((job.pe(), job.npes()), (2, 3));
    assert_eq!(file.state(2), State::Joined);
    let again = join("nonsense", "x", "y").unwrap();
    assert_eq!((again.pe(), again.npes()), (2, 3), "a second call gives the same job");
    // A departure that was based on another state is refused.
    assert!(!file.left(0, State::Joined) && file.state(0) == State::Empty);
    assert!(file.left(0, State::Empty) && file.state(0) == State::Done);
    assert!(file.left(1, file.state(1)));
}

#[test]
#[ignore = "started by `bad_descriptors`"]
fn in_a_process_with_bad_descriptors() {
    if !meant() {
        return;
    }
    let refuse = |what: &str, fd: String| {
        let refused = join(&fd, "0", "2").map(drop).unwrap_err();
        assert!(
            matches!(refused, Error::Environment { name: ENV_FD, .. } | Error::ControlPage { .. }),
            "{what}: {refused}"
        );
        assert!(refused.to_string().contains("memonet run"), "what to do: {refused}");
    };
    for standard in ["0", "1", "2"] {
        refuse("a standard stream", standard.into());
    }
    refuse("closed", "999".into());
    refuse("no descriptor", "2147483647".into());
    refuse("too large for one", "4294967299".into());
    refuse("a device", handed_down(File::open("/dev/null").unwrap()));
    refuse("a directory", handed_down(File::open("/").unwrap()));
    refuse("a program", handed_down(File::open(std::env::current_exe().unwrap()).unwrap()));
    let (reader, _writer) = std::io::pipe().unwrap();
    refuse("a pipe", handed_down(reader));
    let memory = |flags: u32, len: u64, seals: i32| {
        // SAFETY: the name is a C string; the new descriptor is checked, and has no other owner.
        let file = unsafe {
            let fd = libc::memfd_create(c"not-a-job".as_ptr(), flags);
            assert!(fd >= 0);
            File::from(OwnedFd::from_raw_fd(fd))
        };
        file.set_len(len).unwrap();
        assert!(
            // SAFETY: takes no pointer.
            seals == 0 || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } == 0
        );
        file
    };
    let sealed = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    let (allow, one_page) = (libc::MFD_ALLOW_SEALING, 4096);
    refuse("memory that may shrink", handed_down(memory(allow, 1 << 20, 0)));
    refuse("memory without seals", handed_down(memory(0, 1 << 20, 0)));
    for len in [0, 1, 8, size_of::<JobHeader>() as u64 - 1, one_page, 1 << 24] {
        refuse("zeros", handed_down(memory(allow, len, sealed)));
    }
    // A real job, cut short.
    let real = JobFile::create(2, 2).unwrap();
    let real = File::from(real.fd().try_clone_to_owned().unwrap());
    let mut page = vec![0; one_page as usize];
    real.read_exact_at(&mut page, 0).unwrap();
    for len in [size_of::<JobHeader>() as u64, one_page, 1 << 22] {
        let mut cut = memory(allow, len, 0);
        cut.write_all(&page[..page.len().min(len as usize)]).unwrap();
        // SAFETY: takes no pointer.
        assert_eq!(unsafe { libc::fcntl(cut.as_raw_fd(), libc::F_ADD_SEALS, sealed) }, 0);
        refuse("cut off", handed_down(cut));
    }
}

#[test]
#[ignore = "started by `bad_control_pages`"]
fn in_a_process_with_bad_control_pages() {
    if !meant() {
        return;
    }
    let job_file = JobFile::create(2, 2).unwrap();
    let file = File::from(job_file.fd().try_clone_to_owned().unwrap());
    let (version, npes) = (offset_of!(JobHeader, version), offset_of!(JobHeader, npes));
    let words = [
        (offset_of!(JobHeader, magic), 8),
        (version, 4),
        (npes, 4),
        (offset_of!(JobHeader, file_size), 8),
        (offset_of!(JobHeader, segments), 8),
        (offset_of!(JobHeader, segment_stride), 8),
        (offset_of!(JobHeader, heap_offset), 8),
        (offset_of!(JobHeader, globals_offset), 8),
    ];
    for (offset, size) in words {
        let mut good = vec![0; size];
        file.read_exact_at(&mut good, offset as u64).unwrap();
        for bit in 0..8 * size {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            refuse_page(&file, offset, &bad);
        }
        refuse_page(&file, offset, &vec![0; size]);
        refuse_page(&file, offset, &vec![0xFF; size]);
        file.write_all_at(&good, offset as u64).unwrap();
    }
    // All fields at once: they fit together, but not the file.
    for (pes, heap) in [(2, 1 << 21), (MAX_PES, 1 << 30), (2, 1 << 50)] {
        let g = Geometry::new(pes, heap).unwrap();
        let mut page = vec![0; 128];
        file.read_exact_at(&mut page, 0).unwrap();
        let good = page.clone();
        let fields = [
            (offset_of!(JobHeader, file_size), g.file_size()),
            (offset_of!(JobHeader, segments), g.segments),
            (offset_of!(JobHeader, segment_stride), g.segment_stride),
            (offset_of!(JobHeader, heap_offset), g.heap_offset),
            (offset_of!(JobHeader, globals_offset), g.globals_offset),
        ];
        for (offset, value) in fields {
            page[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
        }
        refuse_page(&file, 0, &page);
        file.write_all_at(&good, 0).unwrap();
    }
    let own = offset_of!(JobHeader, own_segment);
    for bad in [8, 1 << 21, !0 << 30] {
        refuse_page(&file, own, &u64::to_ne_bytes(bad));
    }
    assert_eq!(job_file.state(0), State::Empty);
    // A valid address that is in use: then the segment lies elsewhere.
    file.write_all_at(&(1u64 << 62).to_ne_bytes(), own as u64).unwrap();
    let job = join(&handed_down(&file), "0", "2").unwrap();
    assert_eq!((job.pe(), job.npes()), (0, 2));
    assert!(job_file.left(1, State::Empty));
}

fn refuse_page(file: &File, offset: usize, bytes: &[u8]) {
    file.write_all_at(bytes, offset as u64).unwrap();
    let refused = join(&handed_down(file), "0", "2").map(drop);
    let refused = refused.expect_err("a wrong control page");
    assert!(matches!(refused, Error::ControlPage { .. }), "{bytes:?} at {offset}: {refused}");
}

#[test]
#[ignore = "started by `another_launcher`"]
fn in_a_process_of_another_launcher() {
    if !meant() {
        return;
    }
    for variable in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"] {
        set(variable, Some("4"));
        let refused = memonet_fabrics::init().map(drop).unwrap_err();
        assert!(matches!(refused, Error::ForeignLauncher { size: 4, .. }), "{variable}: {refused}");
        assert!(
            refused.to_string().contains("memonet run -n 4")
                && refused.to_string().contains(variable),
            "{refused}"
        );
        set(variable, None);
    }
    for (variable, value) in [("SLURM_NTASKS", "4"), ("SLURM_PROCID", "3"), ("PMIX_RANK", "3")] {
        set(variable, Some(value));
        let refused = memonet_fabrics::init().map(drop).unwrap_err();
        assert!(matches!(refused, Error::ForeignLauncher { size: 4, .. }), "{variable}: {refused}");
        assert!(refused.to_string().contains(variable), "{refused}");
        set(variable, None);
    }
    set("SLURM_NTASKS", Some("4"));
    // One that a launcher has started inside of what another has reserved.
    for variable in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"] {
        set(variable, Some("1"));
    }
    assert_eq!(memonet_fabrics::init().unwrap().npes(), 1, "one process is no job of several");
}

#[test]
#[ignore = "started by `no_launcher`"]
fn in_a_process_without_a_launcher() {
    if !meant() {
        return;
    }
    let job = memonet_fabrics::init().unwrap();
    assert_eq!((job.pe(), job.npes()), (0, 1));
    let w = job.window::<u64>(4).unwrap();
    w.put(0, 0, &[1, 2]).unwrap();
    w.remote(0, 3).unwrap().fetch_add(4).unwrap();
    job.barrier().unwrap();
    assert_eq!(w.to_vec(), [1, 2, 0, 4]);
    assert_eq!(w.wait_until(3, Cmp::Eq, 4).unwrap(), 4);
    assert!(job.team(&[0]).unwrap().is_some());
    job.restricted::<u8>(1, |_, _| memonet_core::Access::None).unwrap().free().unwrap();
    let again = memonet_fabrics::init().unwrap();
    again.barrier().unwrap();
    job.finalize().unwrap();
}

#[test]
#[ignore = "started by `deaths_that_a_launcher_publishes`"]
fn in_a_process_beside_others_that_die() {
    if !meant() {
        return;
    }
    let file = JobFile::create(5, 2).unwrap();
    let job = join(&handed_down(file.fd()), "0", "5").unwrap();
    let causes = [
        Cause::Signal(libc::SIGKILL),
        Cause::Exit(3),
        Cause::Exit(0),
        Cause::Signal(libc::SIGSEGV),
    ];
    let said = ["SIGKILL", "exit status 3", "_exit(0)", "SIGSEGV"];
    for (pe, (cause, said)) in (1..).zip(causes.into_iter().zip(said)) {
        let ended = std::thread::scope(|scope| {
            // No other PE is there: it waits until the departure.
            let waiting = scope.spawn(|| job.barrier());
            crate::setup::nap(std::time::Duration::from_millis(5));
            file.depart(pe, cause);
            waiting.join().unwrap()
        });
        let error = ended.unwrap_err();
        assert!(
            matches!(error, Error::PeerFailed { pe: 1, cause: Cause::Signal(libc::SIGKILL), .. })
                || pe > 1,
            "{error}"
        );
        assert_eq!(file.state(pe), State::Dead(cause));
        assert!(
            State::Dead(cause).departed().is_some_and(|c| c.to_string().contains(said)),
            "{cause}"
        );
        // A death is final.
        file.depart(pe, Cause::Exit(77));
        file.left(pe, State::Dead(cause));
        assert_eq!(file.state(pe), State::Dead(cause));
    }
}
