//! Inherits a job from memonet's launcher, by a descriptor and three variables.

use crate::base::error::{Error, Result};
use crate::base::memory;
use crate::base::settings::{ENV_FD, ENV_NPES, ENV_PE};
use crate::endpoint::control::Control;
use rustix::fd::{FromRawFd, OwnedFd};

/// The fix for a bad environment.
const HOW_TO_START: &str = "Start the program with `memonet run`; or unset MEMONET_JOB_FD, MEMONET_PE and MEMONET_NPES to run it alone";

/// The error of a process whose environment names a PE but has no descriptor: as a job of one PE,
/// it would compute wrong results.
pub(super) fn lost_descriptor() -> Option<Error> {
    [ENV_PE, ENV_NPES].into_iter().find_map(|name| {
        Some(Error::Environment {
            name,
            value: std::env::var_os(name)?.to_string_lossy().into_owned(),
            problem: format!("is set without {ENV_FD}, by which a PE finds its job"),
            fix: HOW_TO_START,
        })
    })
}

/// Takes the job from an environment that may hold anything.
pub(super) fn inherit() -> Result<(Control, usize)> {
    let number = |name: &'static str| -> Result<usize> {
        let value = std::env::var_os(name).unwrap_or_default().to_string_lossy().into_owned();
        value.parse().map_err(|_| Error::Environment {
            name,
            value,
            problem: "is not a number".into(),
            fix: HOW_TO_START,
        })
    };
    let (fd, me, npes) = (number(ENV_FD)?, number(ENV_PE)?, number(ENV_NPES)?);
    let bad_fd = |problem: String| Error::Environment {
        name: ENV_FD,
        value: fd.to_string(),
        problem,
        fix: HOW_TO_START,
    };
    if me >= npes {
        let problem = format!("is not below {ENV_NPES}={npes}");
        return Err(Error::Environment {
            name: ENV_PE,
            value: me.to_string(),
            problem,
            fix: HOW_TO_START,
        });
    }
    let fd = std::mem::ManuallyDrop::new(inherited(fd).map_err(|problem| bad_fd(problem.into()))?);
    let size = memory::sealed_size(&*fd).map_err(bad_fd)?;
    let control = Control::attach(std::mem::ManuallyDrop::into_inner(fd), size, npes, me)?;
    // Programs that this PE starts are not part of the job.
    rustix::io::fcntl_setfd(control.mapping().fd(), rustix::io::FdFlags::CLOEXEC)
        .map_err(|e| Error::system("fcntl", e, ""))?;
    Ok((control, me))
}

/// Takes the descriptor of this number, which the environment names; or gives the problem with it.
pub(crate) fn inherited(number: usize) -> std::result::Result<OwnedFd, &'static str> {
    let raw = i32::try_from(number).ok().filter(|&raw| raw > 2);
    let raw = raw.ok_or("cannot be the job's descriptor")?;
    // SAFETY: only asks the kernel about the number, which gives an error for a bad one.
    if unsafe { libc::fcntl(raw, libc::F_GETFD) } < 0 {
        return Err(
            "is not an open descriptor: a program in between has closed it, or has taken part in the job before it became this one",
        );
    }
    // SAFETY: the descriptor is open, and nothing else in this process owns it: it was inherited
    // with the environment that names it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}
