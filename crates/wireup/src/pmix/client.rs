//! A session of PMIx, by the library.

use super::abi::{self, pmix_info_t, pmix_proc_t, pmix_value_t};
use super::library::Library;
use super::value::{self, Value};
use super::{LOOK, NAME};
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What each program puts, by which the next one of the same processes counts it.
const MARK: &str = "run";
/// Programs that processes can run one after the other.
const MOST_RUNS: u32 = 10_000;

/// A session of this process's, by its library.
pub(super) struct Client {
    library: Library,
    me: pmix_proc_t,
    size: u32,
    /// How many programs these processes have run before.
    run: u32,
    broken: bool,
}

impl Client {
    /// Begins a session.
    ///
    /// # Errors
    /// [`Error::System`] where there is no library, and any other of the launcher's.
    pub(super) fn begin() -> Result<Self> {
        let library = Library::load()?;
        let mut me = pmix_proc_t { nspace: [0; abi::LONGEST_NAME + 1], rank: 0 };
        // SAFETY: the process is written to `me`, which has its layout; there are no attributes.
        let status = unsafe { (library.init)(&mut me, std::ptr::null(), 0) };
        if status != abi::SUCCESS {
            return Err(refuse("PMIx_Init", library.explain(status), "means that it has failed"));
        }
        // A C string, whatever the library has written.
        me.nspace[abi::LONGEST_NAME] = 0;
        let mut client = Client { library, me, size: 0, run: 0, broken: false };
        let size = client.value_of(abi::RANK_WILDCARD, abi::JOB_SIZE)?;
        client.size = match size {
            Some(Value::Number(size)) if size > i128::from(me.rank) && size <= 1 << 30 => {
                size as u32
            }
            other => {
                let problem = "is not the number of processes";
                return Err(refuse("the size of the job", format!("{other:?}"), problem));
            }
        };
        while client.value_of(me.rank, &key(client.run, MARK))?.is_some() {
            client.run += 1;
            if client.run > MOST_RUNS {
                return Err(refuse("PMIx_Get", "a value".into(), "was put by nobody"));
            }
        }
        client.put(MARK, b"")?;
        Ok(client)
    }

    /// Ends the session.
    pub(super) fn end(self) -> Result<()> {
        // SAFETY: there are no attributes.
        let status = unsafe { (self.library.finalize)(std::ptr::null(), 0) };
        self.check("PMIx_Finalize", status)
    }

    fn check(&self, request: &str, status: c_int) -> Result<()> {
        if status == abi::SUCCESS {
            return Ok(());
        }
        Err(refuse(request, self.library.explain(status), "means that it has failed"))
    }

    fn is_usable(&self) -> Result<()> {
        if self.broken { Err(Error::Broken { launcher: NAME }) } else { Ok(()) }
    }

    fn value_of(&self, rank: u32, key: &CStr) -> Result<Option<Value>> {
        self.look_up(rank, key, true)
    }

    /// The value that a process has put. `is_here`: this node's server has it already, if anybody.
    fn look_up(&self, rank: u32, key: &CStr, is_here: bool) -> Result<Option<Value>> {
        self.is_usable()?;
        let process = pmix_proc_t { rank, ..self.me };
        let attributes = [
            // A look for a value that nobody has put ends by the time limit alone, otherwise.
            attribute(abi::IMMEDIATE, value::of_flag(is_here)),
            attribute(abi::TIMEOUT, value::of_int(LOOK.as_secs() as i32)),
        ];
        let mut found: *mut pmix_value_t = std::ptr::null_mut();
        // SAFETY: the pointers are of what lives until the call returns; the lengths are right.
        let status = unsafe {
            let (info, count) = (attributes.as_ptr(), attributes.len());
            (self.library.get)(&process, key.as_ptr(), info, count, &mut found)
        };
        if [abi::ERR_NOT_FOUND, abi::ERR_TIMEOUT].contains(&status) {
            return Ok(None);
        }
        self.check("PMIx_Get", status)?;
        if found.is_null() {
            return Err(refuse("PMIx_Get", "nothing".into(), "is no value"));
        }
        // SAFETY: the library has made the value and leaves it to this process. It stays: 4.2 has
        // no function that frees it, and a process asks for few.
        Ok(Some(unsafe { value::read(&*found) }))
    }
}

impl Exchange for Client {
    fn rank(&self) -> u32 {
        self.me.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.is_usable()?;
        let mut value = value::of_bytes(bytes);
        // SAFETY: key and value live until the call returns, which copies them.
        let status =
            unsafe { (self.library.put)(abi::GLOBAL, key(self.run, name).as_ptr(), &mut value) };
        self.check("PMIx_Put", status)
    }

    fn fence(&mut self, named: &'static str, limit: Duration) -> Result<()> {
        self.is_usable()?;
        // SAFETY: takes nothing.
        let status = unsafe { (self.library.commit)() };
        self.check("PMIx_Commit", status)?;
        let done = Arc::new(Done::default());
        let seconds = i32::try_from(limit.as_secs()).unwrap_or(i32::MAX).max(1);
        // The launcher gives up too, later than this process.
        let attributes: Box<[pmix_info_t]> = Box::new([
            attribute(abi::COLLECT_DATA, value::of_flag(true)),
            attribute(abi::TIMEOUT, value::of_int(seconds.saturating_add(1))),
        ]);
        let told = Arc::into_raw(done.clone()).cast_mut().cast::<c_void>();
        let (all, count) = (std::ptr::null(), attributes.len());
        // SAFETY: no list of processes stands for all of the job. The attributes live until the
        // library has called, or for ever. It calls once at most, which takes over `told`.
        let status = unsafe {
            (self.library.fence_nb)(all, 0, attributes.as_ptr(), count, Done::tell, told)
        };
        let status = if status == abi::SUCCESS {
            done.wait(limit)
        } else {
            // SAFETY: the library does not call after it has refused.
            drop(unsafe { Arc::from_raw(told.cast::<Done>()) });
            Some(status)
        };
        match status {
            Some(status) => self.check("PMIx_Fence", status).inspect_err(|_| self.broken = true),
            None => {
                self.broken = true;
                Box::leak(attributes);
                let missing = "some (PMIx does not say which)".into();
                Err(Error::Fence { fence: named, missing, size: self.size, after: limit })
            }
        }
    }

    fn get(&mut self, rank: u32, name: &str) -> Result<Vec<u8>> {
        let key_of = key(self.run, name);
        let mut found = self.look_up(rank, &key_of, true)?;
        if found.is_none() {
            // Open MPI's server fetches values of other nodes when somebody asks for them.
            found = self.look_up(rank, &key_of, false)?;
        }
        match found {
            Some(Value::Bytes(bytes)) => Ok(bytes),
            Some(_) => {
                let problem = "is of another type";
                Err(Error::Value { rank, key: name.into(), problem })
            }
            None => Err(Error::Nothing { rank, key: name.into() }),
        }
    }
}

/// Whether an operation of the library's is done, and how it went.
#[derive(Default)]
struct Done {
    status: Mutex<Option<c_int>>,
    changed: Condvar,
}

impl Done {
    extern "C" fn tell(status: c_int, done: *mut c_void) {
        // SAFETY: what `fence` has given to the library, for the one call.
        let done = unsafe { Arc::from_raw(done.cast::<Done>()) };
        *done.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
        done.changed.notify_all();
    }

    fn wait(&self, limit: Duration) -> Option<c_int> {
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let done = self.changed.wait_timeout_while(status, limit, |status| status.is_none());
        *done.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A key that neither MPI nor another run of a program has.
fn key(run: u32, name: &str) -> CString {
    CString::new(format!("memonet{run}-{name}")).expect("names are letters, digits and `-`")
}

fn attribute(key: &CStr, value: pmix_value_t) -> pmix_info_t {
    let mut info = pmix_info_t { key: [0; abi::LONGEST_KEY + 1], flags: 0, value };
    for (to, &from) in info.key.iter_mut().zip(key.to_bytes()) {
        *to = from as c_char;
    }
    info
}

fn refuse(request: &str, answer: String, problem: &'static str) -> Error {
    Error::Answer { launcher: NAME, request: request.into(), answer, problem }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn an_operation_that_does_not_end_is_given_up() {
        let done = Arc::new(Done::default());
        assert_eq!(done.wait(Duration::from_millis(10)), None);
        let told = Arc::into_raw(done.clone()).cast_mut().cast::<c_void>() as usize;
        let library = std::thread::spawn(move || Done::tell(-46, told as *mut c_void));
        assert_eq!(done.wait(Duration::from_secs(60)), Some(-46));
        library.join().unwrap();
        assert_eq!(Arc::strong_count(&done), 1);
    }

    #[test]
    fn keys_are_c_strings() {
        assert_eq!(key(2, "a-1").as_c_str(), c"memonet2-a-1");
        let info = attribute(abi::COLLECT_DATA, value::of_flag(true));
        assert_eq!(info.key[..13].iter().map(|&c| c as u8).collect::<Vec<_>>(), *b"pmix.collect\0");
    }
}
