//! Restricted windows: memory that only right-holders have mapped, and rights that can be taken
//! back.
//!
//! Every home publishes a *grant* in its segment: a random number and an epoch. A holder keeps what
//! it read there when the window was made, or what a [`Key`] says. **Resolving** counts one more
//! *hold* in the holder's own segment, then compares the epoch; **revoking** raises the epoch, and
//! [`Window::revoke_wait`] then waits until nobody holds anything.
//!
//! *No remote outlives `revoke_wait` unseen.* Holder: count up (an atomic, which is a full fence),
//! read the epoch. Home: raise the epoch, full fence, read the counts. If the holder read the old
//! epoch, its read came before the home's store was visible, so its count, which came before that
//! read, is seen by the home, which waits. Otherwise it read the new epoch, counts down again and
//! reports [`Error::Revoked`]. A holder whose process has ended cannot use what it holds: its
//! counts are passed over. Each count has one writer (the holder), so a death leaves it readable. A
//! process that the holder has forked off is refused holds, and gives none back.
//!
//! *Hardware that compares keys* has one of each grant, made of its number and its epoch. The
//! home's hardware admits the key of a new epoch from [`Window::revoke`] on, and keys of earlier
//! ones until [`Window::revoke_wait`] has returned: so nobody is refused who holds what is still
//! valid.

use crate::base::access::Access;
use crate::base::error::{Call, Error, Result};
use crate::base::layout::{Grant, SystemArea};
use crate::base::memory::{Mapping, close_to_writers, create_memfd_to_seal};
use crate::base::shm::{self, AtomicOp, Plain};
use crate::base::status::State;
use crate::endpoint::ending;
use crate::endpoint::fabric::{Fabric, FarAddress};
use crate::endpoint::pe::Pe;
use crate::endpoint::route::Route;
use crate::job::Job;
use crate::wait::limit::Limit;
use crate::wait::{self, Awaiting, Terms};
use crate::window::descriptors::{Arrived, Socket};
use crate::window::{Inner, Target, Window, element_bytes};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// The right to one PE's part of a restricted window, as plain data. A program may put a key into a
/// window for another PE to use. A key opens nothing to a PE that got no right when the window was
/// made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Key {
    job: u64,
    nonce: u64,
    epoch: u64,
    len: u64,
    home: u32,
    slot: u32,
}

/// What the maker of a window wants this PE to give, and to have.
pub(crate) struct Rights {
    /// What each holder may do with this PE's part.
    given: Box<[Access]>,
    /// What this PE may do with each home's part.
    had: Box<[Access]>,
    /// Differs where PEs were given different functions, nearly always.
    pub(crate) digest: u64,
}

impl Rights {
    /// Asks `right(home, holder)` for every pair, once.
    pub(crate) fn ask(me: usize, npes: usize, right: impl Fn(usize, usize) -> Access) -> Self {
        let mut rights = Rights {
            given: vec![Access::None; npes].into(),
            had: vec![Access::None; npes].into(),
            digest: 0,
        };
        for (home, holder) in (0..npes).flat_map(|home| (0..npes).map(move |holder| (home, holder)))
        {
            let access = if home == holder { Access::ReadWrite } else { right(home, holder) };
            if home == me {
                rights.given[holder] = access;
            }
            if holder == me {
                rights.had[home] = access;
            }
            let mixed = rights.digest.rotate_left(5).wrapping_mul(0x100_0000_01b3);
            rights.digest = mixed ^ (access.bits() + 1);
        }
        rights
    }
}

/// One PE's side of a restricted window.
pub(crate) struct Restricted {
    key: usize,
    parts: Box<[HomePart]>,
    pe: Arc<Pe>,
}

/// What this PE has of one home's part.
struct HomePart {
    /// `None` where this PE has no right to it, or the home's fabric serves it.
    mapping: Option<Mapping>,
    access: Access,
    epoch: u64,
    nonce: u64,
}

/// Whether a PE's part is reached at its home, by the fabric, and so is this PE's by that PE.
fn is_served(pe: &Pe, other: usize) -> bool {
    !pe.is_near(other) && pe.far_fabric().is_some_and(Fabric::serves_parts)
}

/// This PE's part of a window that is being made.
pub(crate) struct OwnPart {
    fd: OwnedFd,
    read_only: OwnedFd,
    len: usize,
}

impl OwnPart {
    pub(crate) fn make(bytes: usize) -> Result<Self> {
        let len = bytes.max(1).next_multiple_of(crate::base::memory::page_size());
        let fd = create_memfd_to_seal("memonet-restricted", len as u64)?;
        // A home's descriptor must not leak into programs it starts.
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)
            .map_err(|e| Error::system("fcntl", e, ""))?;
        // A descriptor opened for reading cannot be mapped for writing, whatever its holder does by
        // mistake.
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let read_only = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map_err(|e| {
            Error::system(
                "reopening a memfd for reading",
                e,
                "Restricted windows need /proc, and two descriptors each",
            )
        })?;
        Ok(OwnPart { fd, read_only, len })
    }
}

/// Holds of one PE in one part. A program that forgets remotes (`mem::forget`) is refused more of
/// them before the count of 32 bits wraps to 0, which would tell the home that nobody holds
/// anything. What is left up to the wrap is more than there can be threads that have counted and
/// not yet compared.
const MOST_HOLDS: u32 = 1 << 31;

/// A counted use of a part; see the module's text.
pub(crate) struct Hold {
    pe: Arc<Pe>,
    key: usize,
    home: usize,
}

fn grant_field(key: usize, field: usize) -> u64 {
    (offset_of!(SystemArea, grants) + key * size_of::<Grant>() + field) as u64
}

fn grant_word(pe: &Pe, home: usize, key: usize, field: usize) -> Result<u64> {
    Ok(pe.route(home, grant_field(key, field)).load(pe)?)
}

/// Address of this PE's own grant's word.
fn own_grant(pe: &Pe, key: usize, field: usize) -> *mut u64 {
    pe.local(grant_field(key, field)).cast()
}

/// A word of this PE's own grant.
fn own_grant_word(pe: &Pe, key: usize, field: usize) -> u64 {
    // SAFETY: an aligned word of this PE's segment.
    unsafe { shm::load(own_grant(pe, key, field)) }
}

/// The key of a grant for hardware that compares keys. An epoch more gives another key.
fn hardware_key(nonce: u64, epoch: u64) -> u64 {
    nonce.wrapping_add(epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl Hold {
    /// Counts a hold, then checks that `epoch` is still in force.
    pub(crate) fn take(pe: &Arc<Pe>, key: usize, home: usize, epoch: u64) -> Result<Hold> {
        ending::refuse_child(pe)?;
        let hold = Hold { pe: pe.clone(), key, home };
        if hold.count(1) >= MOST_HOLDS {
            // Dropping `hold` takes back what it has just added.
            return Err(Error::TooMany {
                what: "remotes of a PE into another PE's part of a restricted window",
                limit: MOST_HOLDS as usize,
                call: None,
            });
        }
        let now = grant_word(pe, home, key, offset_of!(Grant, epoch))?;
        if now == epoch {
            Ok(hold)
        } else {
            Err(Error::Revoked { pe: home, key_epoch: epoch, epoch: now, call: None })
        }
    }

    /// Gives what the count was.
    fn count(&self, change: u32) -> u32 {
        let word = self.pe.local(self.pe.control().geometry().hold(self.key, self.home));
        // SAFETY: the count's offset lies in this PE's segment, before the heap, aligned to 4; a
        // full fence on x86 and in the model.
        unsafe { shm::fetch_op(word, 4, AtomicOp::Add, change.into()) as u32 }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if ending::refuse_child(&self.pe).is_err() {
            return; // it is the PE's, which has it still
        }
        // On a far fabric the writes made under this hold may be under way still.
        self.pe.flush_far();
        self.count(u32::MAX);
        // Its home may sleep in `revoke_wait`.
        self.pe.wrote(self.home);
    }
}

/// The round in which all PEs hand each other their parts.
pub(crate) struct Exchange<'a> {
    pub(crate) pe: &'a Arc<Pe>,
    pub(crate) socket: &'a Socket,
    pub(crate) slot: usize,
    pub(crate) generation: u64,
    /// Tells all that this PE does not hand out its parts.
    pub(crate) fail: &'a dyn Fn(),
    /// Whether a PE has said that.
    pub(crate) has_failed: &'a dyn Fn(usize) -> Result<bool>,
}

/// What has still to be done in it.
struct Round<'a> {
    exchange: &'a Exchange<'a>,
    own: &'a OwnPart,
    rights: &'a Rights,
    sends: Vec<usize>,
    missing: Vec<usize>,
    parts: Vec<HomePart>,
    failed: Option<Error>,
}

impl Round<'_> {
    /// Does what can be done now; whether it was all. What fails does not stop the round, for the
    /// others' sake.
    fn go_on(&mut self) -> Result<bool> {
        // Sending and receiving alternate: a full queue on either side would otherwise stop both.
        while let Some(&to) = self.sends.last() {
            match self.send(to) {
                // A PE that has failed may take nothing any more.
                Ok(false) if !(self.exchange.has_failed)(to)? => break,
                Ok(_) => drop(self.sends.pop()),
                Err(error) => {
                    self.sends.clear();
                    (self.exchange.fail)();
                    self.failed.get_or_insert(error);
                }
            }
        }
        while let Some(Arrived { home, slot, generation, fd }) = self.exchange.socket.receive()? {
            if (slot, generation) == (self.exchange.slot, self.exchange.generation)
                && self.missing.contains(&home)
            {
                self.missing.retain(|&other| other != home);
                match fd.and_then(|fd| map_part(fd, self.own.len, self.parts[home].access)) {
                    Ok(mapping) => self.parts[home].mapping = Some(mapping),
                    Err(error) => drop(self.failed.get_or_insert(error)),
                }
            }
        }
        for index in (0..self.missing.len()).rev() {
            let home = self.missing[index];
            if (self.exchange.has_failed)(home)? {
                self.missing.swap_remove(index);
                let error = std::io::Error::other(format!(
                    "PE {home} could not hand out its part; its own error says why"
                ));
                self.failed.get_or_insert(Error::system("making a restricted window", error, ""));
            }
        }
        Ok(self.sends.is_empty() && self.missing.is_empty())
    }

    fn send(&self, to: usize) -> Result<bool> {
        let Exchange { pe, socket, slot, generation, .. } = self.exchange;
        let read_only = self.rights.given[to] == Access::Read;
        let fd = if read_only { &self.own.read_only } else { &self.own.fd };
        let sent = socket.send(to, pe.me(), *slot, *generation, fd.as_fd())?;
        if sent {
            pe.ring(to);
        }
        Ok(sent)
    }
}

impl Restricted {
    /// Hands this PE's part to those with a right to it, and takes what others hand to this PE.
    pub(crate) fn create(
        exchange: &Exchange<'_>,
        bytes: usize,
        own: OwnPart,
        rights: &Rights,
    ) -> Result<Self> {
        let (pe, key) = (exchange.pe, exchange.slot);
        let (me, n) = (pe.me(), pe.npes());
        let part = |home| HomePart { mapping: None, access: rights.had[home], epoch: 0, nonce: 0 };
        let meets = |other: usize| other != me && !is_served(pe, other);
        let mut round = Round {
            exchange,
            own: &own,
            rights,
            sends: (0..n)
                .filter(|&holder| meets(holder) && rights.given[holder] != Access::None)
                .collect(),
            missing: (0..n)
                .filter(|&home| meets(home) && rights.had[home] != Access::None)
                .collect(),
            parts: (0..n).map(part).collect(),
            failed: None,
        };
        wait::until(pe, Terms::forever(Awaiting::Word(None)), || match round.go_on() {
            Ok(false) => None,
            Ok(true) => Some(Ok(())),
            Err(error) => Some(Err(error)),
        })??;
        let Round { mut parts, failed, .. } = round;
        let OwnPart { fd, len, .. } = own;
        failed.map_or(Ok(()), Err)?;
        parts[me].mapping = Some(Mapping::new(fd, len, true)?);
        // SAFETY: aligned words of this PE's own grant, which others only read.
        unsafe {
            shm::store(
                own_grant(pe, key, offset_of!(Grant, nonce)),
                crate::endpoint::control::random(),
            );
            shm::store(own_grant(pe, key, offset_of!(Grant, len)), bytes as u64);
            shm::fetch_op(own_grant(pe, key, offset_of!(Grant, epoch)).cast(), 8, AtomicOp::Add, 1);
        }
        let restricted = Restricted { key, parts: parts.into(), pe: pe.clone() };
        restricted.tell_recorder(true);
        restricted.tell_fabric(&rights.given)?;
        restricted.admit(true)?;
        Ok(restricted)
    }

    /// Has the hardware admit writes to this PE's part that carry the key of the grant in force,
    /// beside earlier keys or as the only one.
    fn admit(&self, only: bool) -> Result<()> {
        let Some(fabric) = self.pe.far_fabric() else { return Ok(()) };
        let word = |field| own_grant_word(&self.pe, self.key, field);
        let key = hardware_key(word(offset_of!(Grant, nonce)), word(offset_of!(Grant, epoch)));
        fabric.admit_key(self.region(), key, only)
    }

    /// Has the hardware's writes to a home's part carry the key of a grant, if this PE may write.
    fn carry(&self, home: usize, nonce: u64, epoch: u64) -> Result<()> {
        let Some(fabric) = self.pe.far_fabric() else { return Ok(()) };
        match self.reaches(home) && self.parts[home].access.allows(Access::Write) {
            true => fabric.carry_key(home as u32, self.region(), hardware_key(nonce, epoch)),
            false => Ok(()),
        }
    }

    fn region(&self) -> u32 {
        self.key as u32 + 1
    }

    /// What this PE has mapped, and what others may do with its own part, for the fabric.
    fn tell_fabric(&self, given: &[Access]) -> Result<()> {
        let pe = &self.pe;
        let Some(fabric) = pe.far_fabric() else { return Ok(()) };
        if fabric.serves_parts() {
            let own = self.own_part();
            // SAFETY: the mapping lives until `Drop for Restricted`, which closes the part first.
            return unsafe { fabric.open_part(self.region(), own.at(0), own.len(), given) };
        }
        for (home, part) in self.parts.iter().enumerate() {
            if let Some(mapping) = part.mapping.as_ref().filter(|_| !pe.is_near(home)) {
                let (base, len) = (mapping.at(0), mapping.len());
                // SAFETY: the mapping lives until `Drop for Restricted`, which takes the region
                // back first; it is writable where writing is granted.
                unsafe { fabric.map_region(home as u32, self.region(), base, len, mapping.fd()) }?;
            }
        }
        Ok(())
    }

    /// What this PE has mapped, or has no longer, for timelines.
    fn tell_recorder(&self, is_mapped: bool) {
        for mapping in self.parts.iter().filter_map(|part| part.mapping.as_ref()) {
            let len = if is_mapped { mapping.len() } else { 0 };
            self.pe.note_mapped(self.region(), mapping.at(0), len);
        }
    }

    fn own_part(&self) -> &Mapping {
        self.parts[self.pe.me()].mapping.as_ref().expect("a PE always maps its own part")
    }

    /// Has this PE's part written by those alone who have mapped it, once all have that may: a
    /// read-only descriptor can be opened anew for writing by its name in /proc.
    pub(crate) fn close_own_part(&self) {
        close_to_writers(self.own_part().fd());
    }

    /// Reads every home's grant, once all have published theirs.
    pub(crate) fn learn_grants(&mut self, pe: &Pe) -> Result<()> {
        for (home, part) in self.parts.iter_mut().enumerate() {
            part.epoch = grant_word(pe, home, self.key, offset_of!(Grant, epoch))?;
            part.nonce = grant_word(pe, home, self.key, offset_of!(Grant, nonce))?;
        }
        let carry = |(home, part): (usize, &HomePart)| self.carry(home, part.nonce, part.epoch);
        self.parts.iter().enumerate().try_for_each(carry)
    }

    /// Address of this PE's own part.
    pub(crate) fn local(&self) -> *mut u8 {
        self.own_part().at(0)
    }

    /// Whether this PE can reach a home's part.
    fn reaches(&self, home: usize) -> bool {
        let part = &self.parts[home];
        part.mapping.is_some() || part.access != Access::None && is_served(&self.pe, home)
    }

    #[inline(never)]
    pub(crate) fn resolve(
        &self,
        pe: &Arc<Pe>,
        home: usize,
        offset: usize,
        wanted: Access,
        attached: Option<(usize, u64)>,
    ) -> Result<Target> {
        let part = &self.parts[home];
        let denied = || Error::AccessDenied {
            pe: home,
            wanted: wanted.name(),
            granted: part.access,
            call: None,
        };
        if !self.reaches(home) || !part.access.allows(wanted) {
            return Err(denied());
        }
        let epoch = match attached {
            None => part.epoch,
            Some((only, epoch)) if only == home => epoch,
            Some(_) => return Err(denied()),
        };
        // A home does not revoke its own right; only a key of an earlier epoch is refused.
        let hold = if home == pe.me() && attached.is_none() {
            None
        } else {
            Some(Hold::take(pe, self.key, home, epoch)?)
        };
        let at = offset as u64;
        let route = match part.mapping.as_ref().filter(|_| pe.is_near(home)) {
            Some(mapping) => Route::Near(mapping.at(at)),
            None => Route::Far(FarAddress { pe: home as u32, region: self.region(), offset: at }),
        };
        Ok(Target { route: pe.recorded(home, route), hold })
    }

    /// What `key` opens here: its epoch, if it was made from the grant that is in force.
    fn check(&self, pe: &Pe, key: &Key) -> Result<u64> {
        let home = key.home as usize;
        let grant = |field| grant_word(pe, home, self.key, field);
        if grant(offset_of!(Grant, nonce))? != key.nonce
            || grant(offset_of!(Grant, len))? != key.len
        {
            return Err(Error::WrongKey { pe: home, call: None });
        }
        match grant(offset_of!(Grant, epoch))? {
            epoch if epoch == key.epoch => Ok(epoch),
            epoch => Err(Error::Revoked { pe: home, key_epoch: key.epoch, epoch, call: None }),
        }
    }
}

impl Drop for Restricted {
    fn drop(&mut self) {
        if ending::refuse_child(&self.pe).is_err() {
            return; // the network knows the PE's, which is there still
        }
        self.tell_recorder(false);
        if self.pe.has_fabric() {
            // Writes under way may still use the mappings.
            self.pe.flush_far();
            if self.pe.fabric().serves_parts() {
                self.pe.fabric().close_part(self.region());
                return;
            }
            let is_mapped =
                |&home: &usize| self.parts[home].mapping.is_some() && !self.pe.is_near(home);
            for home in (0..self.parts.len()).filter(is_mapped) {
                self.pe.fabric().unmap_region(home as u32, self.region());
            }
        }
    }
}

fn map_part(fd: OwnedFd, len: usize, access: Access) -> Result<Mapping> {
    let size = rustix::fs::fstat(&fd).map_err(|e| Error::system("fstat", e, ""))?.st_size;
    if size as u64 != len as u64 {
        return Err(Error::ControlPage {
            problem: format!(
                "is fine, but a restricted window of {size} instead of {len} bytes was handed over"
            ),
        });
    }
    Mapping::new(fd, len, access != Access::Read)
}

impl<T: Plain> Window<T> {
    fn own_restricted(&self) -> Result<&Restricted> {
        self.inner.restricted().ok_or(Error::misuse(
            "only restricted windows have keys: make the window with `Job::restricted`",
        ))
    }

    /// The key to this PE's part, with the epoch that is now in force.
    ///
    /// ```
    /// # use memonet_core::{Access, Job, Key};
    /// # Job::threads(2, |job| -> memonet_core::Result<()> {
    /// let secret = job.restricted::<u64>(8, |_, _| Access::Read)?;
    /// let keys = job.window::<Key>(1)?;
    /// if job.pe() == 0 {
    ///     secret.write(3, 42);
    ///     keys.put_one(1, 0, secret.key()?)?; // pass the right on
    /// }
    /// job.barrier()?;
    /// if job.pe() == 1 {
    ///     let part = job.attach::<u64>(&keys.read(0))?;
    ///     assert_eq!(part.get_one(0, 3)?, 42);
    /// }
    /// job.barrier()?;
    /// if job.pe() == 0 {
    ///     secret.revoke()?; // from now on the key opens nothing
    /// }
    /// # job.barrier()
    /// # }).unwrap().into_iter().for_each(|r| r.unwrap());
    /// ```
    ///
    /// # Errors
    /// [`Error::Misuse`] for a window that is not restricted.
    #[track_caller]
    pub fn key(&self) -> Result<Key> {
        Call::here("Window::key", self.inner.pe.me(), Some(self.inner.made)).of(|| {
            let (restricted, pe) = (self.own_restricted()?, &self.inner.pe);
            let word = |field| own_grant_word(pe, restricted.key, field);
            Ok(Key {
                job: pe.control().job_id(),
                nonce: word(offset_of!(Grant, nonce)),
                epoch: word(offset_of!(Grant, epoch)),
                len: word(offset_of!(Grant, len)),
                home: pe.me() as u32,
                slot: restricted.key as u32,
            })
        })
    }

    /// Takes back all rights to this PE's part: from now on other PEs that resolve a place in it
    /// get [`Error::Revoked`]. Remotes that were resolved before stay valid until they are dropped;
    /// [`revoke_wait`](Self::revoke_wait) waits for that. To give a PE the right again, send it a
    /// new [`key`](Self::key).
    ///
    /// # Errors
    /// As for [`key`](Self::key).
    #[track_caller]
    pub fn revoke(&self) -> Result<()> {
        self.inner.pe.call("Window::revoke", Some(self.inner.made), || {
            let (restricted, pe) = (self.own_restricted()?, &self.inner.pe);
            ending::refuse_child(pe)?;
            // SAFETY: an aligned word of this PE's own grant; the atomic is a full fence, as the
            // module's proof needs.
            unsafe {
                shm::fetch_op(
                    own_grant(pe, restricted.key, offset_of!(Grant, epoch)).cast(),
                    8,
                    AtomicOp::Add,
                    1,
                )
            };
            shm::full_fence();
            restricted.admit(false)
        })
    }

    /// Waits until every remote and operation that another PE resolved into this PE's part has
    /// ended, or the process of its holder has. When this returns after a [`revoke`](Self::revoke),
    /// no other PE writes this part any more. Remotes of this PE itself do not count.
    ///
    /// # Errors
    /// As for [`key`](Self::key); [`Error::Timeout`]. [`Error::PeerFailed`] where a PE that is a
    /// thread of this process has died and a remote that it resolved lives on: another thread may
    /// use it.
    #[track_caller]
    pub fn revoke_wait(&self, timeout: Option<Duration>) -> Result<()> {
        self.inner.pe.waiting_call("Window::revoke_wait", Some(self.inner.made), || {
            let (restricted, pe) = (self.own_restricted()?, &self.inner.pe);
            ending::refuse_child(pe)?;
            let hold = pe.control().geometry().hold(restricted.key, pe.me());
            let done = |holder: usize| {
                let held = || pe.route(holder, hold).load::<u32>(pe);
                // Looked at first: whoever was dead by then, and is not gone behind that, is a
                // thread of this process.
                let state = pe.control().state(holder);
                if holder == pe.me() || pe.control().is_gone(holder) {
                    return Ok(true);
                }
                match (held(), state) {
                    (Ok(0), _) => Ok(true),
                    (_, State::Dead(cause)) => Err(pe.failed(holder, cause)),
                    // It has died since the look above, and the next one passes it over.
                    (Err(_), _) if pe.control().state(holder).departed().is_some() => Ok(false),
                    (Err(error), _) => Err(*error),
                    (Ok(_), _) => Ok(false),
                }
            };
            let all_done = || {
                let all: Result<bool> =
                    (0..pe.npes()).try_fold(true, |all, holder| Ok(all & done(holder)?));
                match all {
                    Ok(false) => None,
                    Ok(true) => Some(Ok(())),
                    Err(error) => Some(Err(error)),
                }
            };
            // Depends on nobody's life: the dead are passed over.
            let limit = Limit::from(timeout);
            let terms = Terms::new(Awaiting::WordOf(&[], None), limit.patience());
            wait::until(pe, terms, all_done)??;
            restricted.admit(true)
        })
    }
}

impl Job {
    /// Opens one PE's part of a restricted window by its [key](Window::key). The window that it
    /// gives reaches that part alone; its calls for the PE's own memory, as [`Window::read`], use
    /// this PE's own part, as those of any window.
    ///
    /// # Errors
    /// [`Error::WrongKey`] for a key that was never made in this job, or to a part that is not a
    /// whole number of `T`; [`Error::Revoked`]; [`Error::AccessDenied`] when this PE has no right
    /// to it.
    #[track_caller]
    pub fn attach<T: Plain>(&self, key: &Key) -> Result<Window<T>> {
        self.pe.call("Job::attach", None, || {
            // Another thread may have looked for a window at the fork.
            ending::refuse_child(&self.pe)?;
            element_bytes::<T>(0)?;
            let home = key.home as usize;
            let wrong = || Error::WrongKey { pe: home, call: None };
            if key.job != self.pe.control().job_id()
                || home >= self.npes()
                || !(key.len as usize).is_multiple_of(size_of::<T>())
            {
                return Err(wrong());
            }
            let inner: Arc<Inner> = self.pe.find_restricted(key.slot as usize).ok_or_else(wrong)?;
            let restricted = inner.restricted().ok_or_else(wrong)?;
            let epoch = restricted.check(&self.pe, key)?;
            if !restricted.reaches(home) {
                let granted = restricted.parts[home].access;
                return Err(Error::AccessDenied { pe: home, wanted: "any", granted, call: None });
            }
            restricted.carry(home, key.nonce, epoch)?;
            Ok(Window::view(inner, Some((home, epoch))))
        })
    }
}

impl Restricted {
    pub(crate) fn slot(&self) -> usize {
        self.key
    }

    /// Rights alone, without memory.
    #[cfg(all(test, loom))]
    pub(crate) fn bare(pe: Arc<Pe>, key: usize) -> Self {
        Restricted { key, parts: [].into(), pe }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Remotes that are forgotten keep their holds; their count never wraps to 0.
    #[test]
    fn forgotten_remotes_are_refused_before_their_count_wraps() {
        let run = |job: Job| -> Result<()> {
            let window = job.restricted::<u64>(4, |_, _| Access::ReadWrite)?;
            if job.pe() == 0 {
                let slot = window.own_restricted()?.key;
                let count = job.pe.local(job.pe.control().geometry().hold(slot, 1)).cast::<u32>();
                // SAFETY: the count of this PE's holds in PE 1's part, as in `Hold::count`.
                unsafe { shm::store(count, MOST_HOLDS - 1) };
                let last = window.remote(1, 0)?;
                for _ in 0..3 {
                    let refused = window.remote(1, 1).err();
                    assert!(matches!(refused, Some(Error::TooMany { .. })), "{refused:?}");
                    assert!(matches!(window.put(1, 0, &[1]), Err(Error::TooMany { .. })));
                }
                drop(last);
                window.put(1, 0, &[1])?;
                // SAFETY: as above.
                assert_eq!(unsafe { shm::load::<u32>(count) }, MOST_HOLDS - 1);
                // SAFETY: as above.
                unsafe { shm::store(count, 0u32) };
            }
            job.barrier()
        };
        Job::threads(2, run).unwrap().into_iter().for_each(Result::unwrap);
    }
}
