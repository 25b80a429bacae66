//! An endpoint and what belongs to it: the objects of libfabric that a PE has.

use crate::sys::{self, Entry, ErrEntry, Fid, Info, Library};
use rustix::fd::BorrowedFd;
use std::ffi::{CStr, CString, c_int, c_void};
use std::net::IpAddr;
use std::ptr::{null, null_mut};

/// Providers by whose software a CPU of the target serves every access.
const SOFTWARE: &[&str] = &["tcp", "sockets", "udp", "shm", "sm2", "net", "lnx"];

/// Whether hardware serves accesses of the provider with this name.
fn is_hardware(provider: &str) -> bool {
    let mut names = provider.split(';');
    !names.any(|name| SOFTWARE.contains(&name) || name.starts_with("ofi_hook"))
}

/// Whether an endpoint of the provider is at an address of the host.
pub(crate) fn goes_by_sockets(provider: &str) -> bool {
    provider.split(';').any(|name| name == "tcp" || name == "sockets")
}

/// What an operation came to.
pub(crate) enum Event {
    /// It is complete; of a message that came, the bytes.
    Complete { context: *mut c_void, len: usize },
    /// It failed, for this reason.
    Failed { context: *mut c_void, why: String },
}

/// Whether an operation was taken.
pub(crate) enum Posted {
    Yes,
    /// Not now: later, after progress.
    Later,
}

pub(crate) struct Net {
    library: &'static Library,
    info: *mut Info,
    fabric: *mut sys::Fabric,
    domain: *mut sys::Domain,
    av: *mut sys::Av,
    cq: *mut sys::Cq,
    ep: *mut sys::Ep,
    /// The queue's descriptor, where the provider has one.
    fd: Option<c_int>,
    mr_mode: c_int,
    /// The key that the next registration asks for.
    next_key: u64,
    /// The provider's name.
    pub(crate) provider: String,
    /// Most bytes of an operation.
    pub(crate) most: usize,
}

// SAFETY: the objects belong to this value alone, and may be used by any thread, one at a time.
unsafe impl Send for Net {}

/// Memory that the provider knows.
pub(crate) struct Region {
    mr: *mut sys::Mr,
    /// What remote offsets in it are added to.
    base: u64,
}

// SAFETY: as for `Net`.
unsafe impl Send for Region {}

impl Region {
    pub(crate) fn key(&self) -> u64 {
        // SAFETY: the region lives as long as this value.
        unsafe { (*self.mr).key }
    }

    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    pub(crate) fn desc(&self) -> *mut c_void {
        // SAFETY: as above.
        unsafe { (*self.mr).desc }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it is closed once, before its domain.
        unsafe { close(self.mr.cast()) };
    }
}

/// What a call that returns an errno says.
fn check(call: &str, code: c_int) -> Result<(), String> {
    let text = || std::io::Error::from_raw_os_error(-code);
    if code == 0 { Ok(()) } else { Err(format!("{call}: {}", text())) }
}

/// Says whether it is closed now: one on which others depend is not.
///
/// # Safety
/// An object that is not used any more, or null.
unsafe fn close(fid: *mut Fid) -> bool {
    // SAFETY: as the caller promises.
    fid.is_null() || unsafe { ((*(*fid).ops).close)(fid) } == 0
}

impl Net {
    /// An endpoint of the provider of that name, or of one with hardware. `source` is the address
    /// that it has, where the provider can have that.
    pub(crate) fn open(provider: Option<&str>, source: Option<IpAddr>) -> Result<Net, String> {
        let library = sys::library()?;
        let info = find(library, provider, source)?;
        // SAFETY: an info of the library, with all attributes; its strings end with a zero.
        let mut net = unsafe {
            Net {
                library,
                info,
                fabric: null_mut(),
                domain: null_mut(),
                av: null_mut(),
                cq: null_mut(),
                ep: null_mut(),
                fd: None,
                mr_mode: (*(*info).domain).mr_mode,
                next_key: 1,
                provider: provider_of(info),
                most: (*(*info).ep).max_msg_size,
            }
        };
        net.open_all().map_err(|why| format!("{why} (provider {})", net.provider))?;
        Ok(net)
    }

    fn open_all(&mut self) -> Result<(), String> {
        // SAFETY: objects of the library, each opened before the next needs it; attributes live
        // during the calls.
        unsafe {
            let made = (self.library.fabric)((*self.info).fabric, &raw mut self.fabric, null_mut());
            check("fi_fabric", made)?;
            let open = (*(*self.fabric).ops).domain;
            let made = open(self.fabric, self.info, &raw mut self.domain, null_mut());
            check("fi_domain", made)?;
            let domain = &*(*self.domain).ops;
            let mut av: sys::AvAttr = std::mem::zeroed();
            let made = (domain.av_open)(self.domain, &mut av, &raw mut self.av, null_mut());
            check("fi_av_open", made)?;
            self.open_queue()?;
            let made = (domain.endpoint)(self.domain, self.info, &raw mut self.ep, null_mut());
            check("fi_endpoint", made)?;
            let fid: *mut Fid = self.ep.cast();
            let ops = &*(*fid).ops;
            check("fi_ep_bind", (ops.bind)(fid, self.av.cast(), 0))?;
            let all = sys::TRANSMIT | sys::RECEIVE;
            check("fi_ep_bind", (ops.bind)(fid, self.cq.cast(), all))?;
            check("fi_enable", (ops.control)(fid, sys::ENABLE, null_mut()))
        }
    }

    /// The queue, with a descriptor if there can be one.
    fn open_queue(&mut self) -> Result<(), String> {
        let mut made = 0;
        for wait_obj in [sys::WAIT_FD, sys::WAIT_NONE] {
            // SAFETY: an open domain; zeros are good attributes, and live during the call.
            unsafe {
                let mut attr: sys::CqAttr = std::mem::zeroed();
                let info = &*self.info;
                attr.size = ((*info.tx).size + (*info.rx).size).max(1024);
                (attr.format, attr.wait_obj) = (sys::FORMAT_MSG, wait_obj);
                let open = (*(*self.domain).ops).cq_open;
                made = open(self.domain, &mut attr, &raw mut self.cq, null_mut());
                if made != 0 {
                    continue;
                }
                let (fid, mut fd): (*mut Fid, c_int) = (self.cq.cast(), -1);
                let control = (*(*fid).ops).control;
                if wait_obj == sys::WAIT_FD
                    && control(fid, sys::GET_WAIT, (&raw mut fd).cast()) == 0
                {
                    self.fd = Some(fd);
                }
            }
            return Ok(());
        }
        check("fi_cq_open", made)
    }

    /// This endpoint's address, as other endpoints are told it.
    pub(crate) fn address(&self) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0u8; 512];
        let mut len = bytes.len();
        // SAFETY: an enabled endpoint; the buffer has `len` bytes.
        let got = unsafe {
            let getname = (*(*self.ep).cm).getname;
            getname(self.ep.cast(), bytes.as_mut_ptr().cast(), &mut len)
        };
        check("fi_getname", got)?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Learns another endpoint's address; gives its number.
    pub(crate) fn insert(&mut self, address: &[u8]) -> Result<u64, String> {
        let mut number = sys::ADDRESS_UNKNOWN;
        // SAFETY: an open table; the bytes are an address of this provider, or are refused.
        let inserted = unsafe {
            let insert = (*(*self.av).ops).insert;
            insert(self.av, address.as_ptr().cast(), 1, &mut number, 0, null_mut())
        };
        let known = inserted == 1 && number != sys::ADDRESS_UNKNOWN;
        if known { Ok(number) } else { Err(format!("fi_av_insert gave {inserted}")) }
    }

    /// Whether local memory has to be registered too.
    pub(crate) fn needs_local(&self) -> bool {
        self.mr_mode & sys::MR_LOCAL != 0
    }

    /// Whether hardware serves accesses.
    pub(crate) fn is_hardware(&self) -> bool {
        is_hardware(&self.provider)
    }

    /// What may be wrong where an endpoint does not reach another one, whose process runs.
    pub(crate) fn why_not_reached(&self) -> String {
        format!(
            "its process runs, but nothing passes between the endpoints of libfabric ({}). Let its \
             ports through the firewall (FI_TCP_PORT_LOW_RANGE and FI_TCP_PORT_HIGH_RANGE name \
             those of tcp), choose another network (--interface), or take --fabric tcp",
            self.provider
        )
    }

    /// Registers memory for these accesses.
    ///
    /// # Safety
    /// The memory stays mapped until the region is dropped, and is writable where the access says
    /// so.
    pub(crate) unsafe fn register(
        &mut self,
        start: *const u8,
        len: usize,
        access: u64,
    ) -> Result<Region, String> {
        if self.ep.is_null() {
            return Err("the endpoint is closed".into());
        }
        let mut mr = null_mut();
        self.next_key += 1;
        // SAFETY: an open domain; the memory is as the caller promises.
        unsafe {
            let reg = (*(*self.domain).mr).reg;
            let (fid, key) = (self.domain.cast(), self.next_key);
            let made = reg(fid, start.cast(), len, access, 0, key, 0, &mut mr, null_mut());
            check("fi_mr_reg", made)?;
        }
        let base = if self.mr_mode & sys::MR_VIRTUAL != 0 { start as u64 } else { 0 };
        let region = Region { mr, base };
        if self.mr_mode & sys::MR_ENDPOINT != 0 {
            // SAFETY: an open region and an open endpoint.
            unsafe {
                let (fid, ep): (*mut Fid, *mut Fid) = (mr.cast(), self.ep.cast());
                let ops = &*(*fid).ops;
                check("fi_mr_bind", (ops.bind)(fid, ep, 0))?;
                check("fi_mr_enable", (ops.control)(fid, sys::ENABLE, null_mut()))?;
            }
        }
        Ok(region)
    }

    /// Takes the next message into `to`.
    ///
    /// # Safety
    /// `to` stays writable for `len` bytes, and `context` in place, until the operation is complete
    /// or the endpoint closed.
    pub(crate) unsafe fn receive(
        &mut self,
        to: *mut u8,
        len: usize,
        desc: *mut c_void,
        context: *mut c_void,
    ) -> Result<Posted, String> {
        let unknown = sys::ADDRESS_UNKNOWN;
        // SAFETY: as the caller promises.
        let code =
            unsafe { ((*(*self.ep).msg).recv)(self.ep, to.cast(), len, desc, unknown, context) };
        posted("fi_recv", code)
    }

    /// Sends a message.
    ///
    /// # Safety
    /// `from` stays readable for `len` bytes, and `context` in place, until the operation is
    /// complete or the endpoint closed.
    pub(crate) unsafe fn send(
        &mut self,
        from: *const u8,
        len: usize,
        desc: *mut c_void,
        to: u64,
        context: *mut c_void,
    ) -> Result<Posted, String> {
        let from = from.cast_mut().cast();
        // SAFETY: as the caller promises.
        let code = unsafe { ((*(*self.ep).msg).send)(self.ep, from, len, desc, to, context) };
        posted("fi_send", code)
    }

    /// Writes to a peer's memory; complete when it is visible there.
    ///
    /// # Safety
    /// As for [`send`](Self::send).
    pub(crate) unsafe fn write(
        &mut self,
        (from, len, mut desc): (*const u8, usize, *mut c_void),
        to: u64,
        (addr, key): (u64, u64),
        context: *mut c_void,
    ) -> Result<Posted, String> {
        let iov = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: len };
        let remote = sys::RmaIov { addr, len, key };
        let message = sys::MsgRma {
            iov: &iov,
            desc: &mut desc,
            iov_count: 1,
            addr: to,
            rma_iov: &remote,
            rma_iov_count: 1,
            context,
            data: 0,
        };
        let flags = sys::COMPLETION | sys::DELIVERY_COMPLETE;
        // SAFETY: as the caller promises; what describes the operation lives during the call.
        let code = unsafe { ((*(*self.ep).rma).writemsg)(self.ep, &message, flags) };
        posted("fi_writemsg", code)
    }

    /// Reads a peer's memory.
    ///
    /// # Safety
    /// As for [`receive`](Self::receive).
    pub(crate) unsafe fn read(
        &mut self,
        (to, len, desc): (*mut u8, usize, *mut c_void),
        from: u64,
        (addr, key): (u64, u64),
        context: *mut c_void,
    ) -> Result<Posted, String> {
        // SAFETY: as the caller promises.
        let code = unsafe {
            ((*(*self.ep).rma).read)(self.ep, to.cast(), len, desc, from, addr, key, context)
        };
        posted("fi_read", code)
    }

    /// Makes progress, and gives what is complete to `take`. An error is of the queue itself, which
    /// is of no use any more.
    pub(crate) fn events(&mut self, take: &mut Vec<Event>) -> Result<(), String> {
        const MANY: usize = 16;
        let mut entries = [Entry { context: null_mut(), flags: 0, len: 0 }; MANY];
        // SAFETY: an open queue, with entries of this format.
        let ops = unsafe { &*(*self.cq).ops };
        // SAFETY: as above; there is room for so many.
        let count = unsafe { (ops.read)(self.cq, entries.as_mut_ptr().cast(), MANY) };
        match -count {
            sys::EAGAIN | sys::EINTR => Ok(()),
            sys::EAVAIL => self.failure(take),
            error if error > 0 => Err(format!("fi_cq_read: error {error}")),
            _ => {
                let came = &entries[..count as usize];
                take.extend(
                    came.iter().map(|&Entry { context, len, .. }| Event::Complete { context, len }),
                );
                Ok(())
            }
        }
    }

    fn failure(&mut self, take: &mut Vec<Event>) -> Result<(), String> {
        // SAFETY: zeros are a good entry; the queue is open. The text that the provider gives ends
        // with a zero.
        unsafe {
            let ops = &*(*self.cq).ops;
            let mut entry: ErrEntry = std::mem::zeroed();
            match (ops.readerr)(self.cq, &mut entry, 0) {
                1 => {}
                // It has been taken, or comes later.
                error if matches!(-error, 0 | sys::EAGAIN | sys::EINTR) => return Ok(()),
                error => return Err(format!("fi_cq_readerr: error {}", -error)),
            }
            let text = (ops.strerror)(self.cq, entry.prov_errno, entry.err_data, null_mut(), 0);
            let text = if text.is_null() { c"" } else { CStr::from_ptr(text) };
            let error = std::io::Error::from_raw_os_error(entry.err);
            let why = format!("{error} ({})", text.to_string_lossy());
            take.push(Event::Failed { context: entry.context, why });
        }
        Ok(())
    }

    /// Whether one may sleep on the [descriptor](Self::fd): it is readable when
    /// [`events`](Self::events) has something to do after that.
    pub(crate) fn may_sleep(&mut self) -> bool {
        let mut fid: *mut Fid = self.cq.cast();
        // SAFETY: an open queue of this fabric.
        unsafe { ((*(*self.fabric).ops).trywait)(self.fabric, &mut fid, 1) == 0 }
    }

    /// The queue's descriptor, where there is one.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is open as long as the queue.
        self.fd.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Ends the endpoint: afterwards the provider touches no buffer of an operation. False where
    /// the endpoint stays open: with some providers, as long as a registration is bound to it.
    pub(crate) fn shut(&mut self) -> bool {
        // SAFETY: it is not used any more, nor is the null pointer in its place.
        let is_closed = unsafe { close(self.ep.cast()) };
        if is_closed {
            self.ep = null_mut();
        }
        is_closed
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.shut();
        // SAFETY: each is closed once, after what belongs to it; null is none. There is nothing to
        // do about one that stays open.
        unsafe {
            close(self.cq.cast());
            close(self.av.cast());
            close(self.domain.cast());
            close(self.fabric.cast());
            (self.library.freeinfo)(self.info);
        }
    }
}

fn posted(call: &str, code: isize) -> Result<Posted, String> {
    match -code {
        0 => Ok(Posted::Yes),
        sys::EAGAIN => Ok(Posted::Later),
        error => check(call, -error as c_int).map(|()| Posted::Yes),
    }
}

/// # Safety
/// An info of the library.
unsafe fn provider_of(info: *const Info) -> String {
    // SAFETY: its name ends with a zero.
    unsafe { CStr::from_ptr((*(*info).fabric).provider).to_string_lossy().into_owned() }
}

/// What is asked of a provider.
fn hints(library: &Library, provider: Option<&str>) -> Result<*mut Info, String> {
    let name = provider.map(CString::new).transpose().map_err(|_| "a name with a zero in it")?;
    // SAFETY: an info that the library has made has all attributes, as zeros. It frees the name.
    unsafe {
        let hints = (library.dupinfo)(null());
        if hints.is_null() {
            return Err("fi_allocinfo: no memory".into());
        }
        (*hints).caps = sys::MSG | sys::RMA;
        (*hints).mode = sys::CONTEXT | sys::CONTEXT2;
        (*(*hints).ep).kind = sys::EP_RDM;
        (*(*hints).tx).msg_order = sys::ORDER_SENDS;
        (*(*hints).rx).msg_order = sys::ORDER_SENDS;
        let domain = &mut *(*hints).domain;
        domain.threading = sys::THREAD_DOMAIN;
        domain.resource_mgmt = sys::RM_ENABLED;
        domain.mr_mode = sys::MR_LOCAL
            | sys::MR_VIRTUAL
            | sys::MR_ALLOCATED
            | sys::MR_PROVIDER_KEY
            | sys::MR_ENDPOINT;
        if let Some(name) = name {
            (*(*hints).fabric).provider = libc::strdup(name.as_ptr());
        }
        Ok(hints)
    }
}

/// The provider of that name, or the first with hardware.
fn find(
    library: &Library,
    provider: Option<&str>,
    source: Option<IpAddr>,
) -> Result<*mut Info, String> {
    let hints = hints(library, provider)?;
    let source = source.map(|ip| CString::new(ip.to_string()).expect("an address has no zero"));
    let (mut list, node) = (null_mut(), source.as_ref().map_or(null(), |text| text.as_ptr()));
    let flags = if source.is_some() { sys::SOURCE } else { 0 };
    // SAFETY: hints of this library; lists that it has made are freed once.
    unsafe {
        let code = (library.getinfo)(sys::API, node, null(), flags, hints, &mut list);
        (library.freeinfo)(hints);
        let wanted = provider.unwrap_or("with remote memory access in hardware");
        check("fi_getinfo", code).map_err(|why| format!("no provider {wanted}: {why}"))?;
        let (mut info, mut others) = (list, Vec::new());
        while !info.is_null() {
            let name = provider_of(info);
            if provider.map_or_else(|| is_hardware(&name), |wanted| wanted == name) {
                break;
            }
            if !others.contains(&name) {
                others.push(name);
            }
            info = (*info).next;
        }
        let found = if info.is_null() { null_mut() } else { (library.dupinfo)(info) };
        (library.freeinfo)(list);
        if found.is_null() {
            let others = others.join(", ");
            return Err(format!("no provider {wanted}; there are {others}: name one by provider="));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn software_is_known_by_its_name() {
        for software in ["tcp", "tcp;ofi_rxm", "udp;ofi_rxd", "shm", "sockets", "ofi_hook_debug"] {
            assert!(!is_hardware(software), "{software}");
        }
        for hardware in ["verbs;ofi_rxm", "efa", "cxi", "psm2"] {
            assert!(is_hardware(hardware), "{hardware}");
        }
    }
}
