//! libfabric as it is called: its symbols, and the layouts of what it gives and takes.
//!
//! The library is loaded when a job asks for it; nothing of it is needed to build. A symbol is
//! looked up with its version: what structures look like depends on it, and the default version of
//! a newer library is another one. The layouts are those of libfabric 1.17, which its later
//! versions keep behind these symbols.
//!
//! Structures that the library allocates are declared as far as they are read or written. Those
//! that are allocated here are complete.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr::NonNull;
use std::sync::OnceLock;

pub(crate) const API: u32 = 1 << 16 | 17;

pub(crate) const MSG: u64 = 1 << 1;
pub(crate) const RMA: u64 = 1 << 2;
pub(crate) const READ: u64 = 1 << 8;
pub(crate) const WRITE: u64 = 1 << 9;
pub(crate) const RECEIVE: u64 = 1 << 10;
pub(crate) const SEND: u64 = 1 << 11;
pub(crate) const REMOTE_READ: u64 = 1 << 12;
pub(crate) const REMOTE_WRITE: u64 = 1 << 13;
pub(crate) const TRANSMIT: u64 = SEND;
pub(crate) const COMPLETION: u64 = 1 << 24;
pub(crate) const DELIVERY_COMPLETE: u64 = 1 << 28;
pub(crate) const SOURCE: u64 = 1 << 57;
pub(crate) const CONTEXT: u64 = 1 << 59;
pub(crate) const CONTEXT2: u64 = 1 << 52;
pub(crate) const ORDER_SENDS: u64 = 1 << 8;

pub(crate) const MR_LOCAL: c_int = 1 << 2;
pub(crate) const MR_VIRTUAL: c_int = 1 << 4;
pub(crate) const MR_ALLOCATED: c_int = 1 << 5;
pub(crate) const MR_PROVIDER_KEY: c_int = 1 << 6;
pub(crate) const MR_ENDPOINT: c_int = 1 << 9;

pub(crate) const EP_RDM: c_int = 3;
pub(crate) const THREAD_DOMAIN: c_int = 3;
pub(crate) const RM_ENABLED: c_int = 2;
pub(crate) const FORMAT_MSG: c_int = 2;
pub(crate) const WAIT_NONE: c_int = 0;
pub(crate) const WAIT_FD: c_int = 3;
pub(crate) const GET_WAIT: c_int = 5;
pub(crate) const ENABLE: c_int = 6;
pub(crate) const EINTR: isize = 4;
pub(crate) const EAGAIN: isize = 11;
/// An entry with an error waits in the queue.
pub(crate) const EAVAIL: isize = 259;
pub(crate) const ADDRESS_UNKNOWN: u64 = u64::MAX;

/// `struct fi_info`.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) next: *mut Info,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) addr_format: u32,
    pub(crate) src_addrlen: usize,
    pub(crate) dest_addrlen: usize,
    pub(crate) src_addr: *mut c_void,
    pub(crate) dest_addr: *mut c_void,
    pub(crate) handle: *mut Fid,
    pub(crate) tx: *mut TxAttr,
    pub(crate) rx: *mut RxAttr,
    pub(crate) ep: *mut EpAttr,
    pub(crate) domain: *mut DomainAttr,
    pub(crate) fabric: *mut FabricAttr,
}

#[repr(C)]
pub(crate) struct TxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) inject_size: usize,
    pub(crate) size: usize,
}

#[repr(C)]
pub(crate) struct RxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) total_buffered: usize,
    pub(crate) size: usize,
}

#[repr(C)]
pub(crate) struct EpAttr {
    pub(crate) kind: c_int,
    pub(crate) protocol: u32,
    pub(crate) protocol_version: u32,
    pub(crate) max_msg_size: usize,
}

#[repr(C)]
pub(crate) struct DomainAttr {
    pub(crate) domain: *mut Domain,
    pub(crate) name: *mut c_char,
    pub(crate) threading: c_int,
    pub(crate) control_progress: c_int,
    pub(crate) data_progress: c_int,
    pub(crate) resource_mgmt: c_int,
    pub(crate) av_type: c_int,
    pub(crate) mr_mode: c_int,
}

#[repr(C)]
pub(crate) struct FabricAttr {
    pub(crate) fabric: *mut Fabric,
    pub(crate) name: *mut c_char,
    pub(crate) provider: *mut c_char,
}

/// `struct fid`: what all objects begin with.
#[repr(C)]
pub(crate) struct Fid {
    pub(crate) class: usize,
    pub(crate) context: *mut c_void,
    pub(crate) ops: *const Ops,
}

#[repr(C)]
pub(crate) struct Ops {
    size: usize,
    pub(crate) close: unsafe extern "C" fn(*mut Fid) -> c_int,
    pub(crate) bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    pub(crate) control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct Fabric {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FabricOps,
}

type OpenDomain =
    unsafe extern "C" fn(*mut Fabric, *mut Info, *mut *mut Domain, *mut c_void) -> c_int;

#[repr(C)]
pub(crate) struct FabricOps {
    size: usize,
    pub(crate) domain: OpenDomain,
    unused: [usize; 3],
    pub(crate) trywait: unsafe extern "C" fn(*mut Fabric, *mut *mut Fid, c_int) -> c_int,
}

#[repr(C)]
pub(crate) struct Domain {
    pub(crate) fid: Fid,
    pub(crate) ops: *const DomainOps,
    pub(crate) mr: *const MrOps,
}

#[repr(C)]
pub(crate) struct DomainOps {
    size: usize,
    pub(crate) av_open:
        unsafe extern "C" fn(*mut Domain, *mut AvAttr, *mut *mut Av, *mut c_void) -> c_int,
    pub(crate) cq_open:
        unsafe extern "C" fn(*mut Domain, *mut CqAttr, *mut *mut Cq, *mut c_void) -> c_int,
    pub(crate) endpoint:
        unsafe extern "C" fn(*mut Domain, *mut Info, *mut *mut Ep, *mut c_void) -> c_int,
}

/// `fid, buffer, length, access, offset, requested key, flags, region, context`.
type Register = unsafe extern "C" fn(
    *mut Fid,
    *const c_void,
    usize,
    u64,
    u64,
    u64,
    u64,
    *mut *mut Mr,
    *mut c_void,
) -> c_int;

#[repr(C)]
pub(crate) struct MrOps {
    size: usize,
    pub(crate) reg: Register,
}

#[repr(C)]
pub(crate) struct Mr {
    pub(crate) fid: Fid,
    pub(crate) desc: *mut c_void,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct Av {
    pub(crate) fid: Fid,
    pub(crate) ops: *const AvOps,
}

#[repr(C)]
pub(crate) struct AvOps {
    size: usize,
    pub(crate) insert:
        unsafe extern "C" fn(*mut Av, *const c_void, usize, *mut u64, u64, *mut c_void) -> c_int,
}

#[repr(C)]
pub(crate) struct Cq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const CqOps,
}

#[repr(C)]
pub(crate) struct CqOps {
    size: usize,
    pub(crate) read: unsafe extern "C" fn(*mut Cq, *mut c_void, usize) -> isize,
    readfrom: usize,
    pub(crate) readerr: unsafe extern "C" fn(*mut Cq, *mut ErrEntry, u64) -> isize,
    unused: [usize; 3],
    pub(crate) strerror:
        unsafe extern "C" fn(*mut Cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
}

#[repr(C)]
pub(crate) struct Ep {
    pub(crate) fid: Fid,
    ops: usize,
    pub(crate) cm: *const CmOps,
    pub(crate) msg: *const MsgOps,
    pub(crate) rma: *const RmaOps,
}

#[repr(C)]
pub(crate) struct CmOps {
    size: usize,
    setname: usize,
    pub(crate) getname: unsafe extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
}

/// `endpoint, buffer, length, descriptor, address, context`.
type Message =
    unsafe extern "C" fn(*mut Ep, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize;

#[repr(C)]
pub(crate) struct MsgOps {
    size: usize,
    pub(crate) recv: Message,
    unused: [usize; 2],
    pub(crate) send: Message,
}

/// `endpoint, buffer, length, descriptor, address, remote address, key, context`.
type Access = unsafe extern "C" fn(
    *mut Ep,
    *mut c_void,
    usize,
    *mut c_void,
    u64,
    u64,
    u64,
    *mut c_void,
) -> isize;

#[repr(C)]
pub(crate) struct RmaOps {
    size: usize,
    pub(crate) read: Access,
    unused: [usize; 4],
    pub(crate) writemsg: unsafe extern "C" fn(*mut Ep, *const MsgRma, u64) -> isize,
}

#[repr(C)]
pub(crate) struct MsgRma {
    pub(crate) iov: *const libc::iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: u64,
    pub(crate) rma_iov: *const RmaIov,
    pub(crate) rma_iov_count: usize,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct RmaIov {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct CqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) format: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_cond: c_int,
    pub(crate) wait_set: *mut c_void,
}

#[repr(C)]
pub(crate) struct AvAttr {
    pub(crate) kind: c_int,
    pub(crate) rx_ctx_bits: c_int,
    pub(crate) count: usize,
    pub(crate) ep_per_node: usize,
    pub(crate) name: *const c_char,
    pub(crate) map_addr: *mut c_void,
    pub(crate) flags: u64,
}

/// `struct fi_cq_msg_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
}

/// `struct fi_cq_err_entry`, with room for what later versions have added.
#[repr(C)]
pub(crate) struct ErrEntry {
    pub(crate) context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) olen: usize,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
    room: [u64; 6],
}

/// Room that a provider may ask for in each operation (`struct fi_context2`).
pub(crate) type Room = [usize; 8];

/// Sizes and offsets as in libfabric 1.17 on machines with 64 bits.
const _: () = {
    assert!(size_of::<usize>() == 8);
    assert!(offset_of!(Info, addr_format) == 24 && offset_of!(Info, src_addrlen) == 32);
    assert!(offset_of!(Info, src_addr) == 48 && offset_of!(Info, tx) == 72);
    assert!(offset_of!(Info, ep) == 88 && offset_of!(Info, domain) == 96);
    assert!(offset_of!(Info, fabric) == 104);
    assert!(offset_of!(TxAttr, msg_order) == 24 && offset_of!(TxAttr, size) == 48);
    assert!(offset_of!(RxAttr, msg_order) == 24 && offset_of!(RxAttr, size) == 48);
    assert!(offset_of!(EpAttr, max_msg_size) == 16);
    assert!(offset_of!(DomainAttr, threading) == 16 && offset_of!(DomainAttr, mr_mode) == 36);
    assert!(offset_of!(DomainAttr, resource_mgmt) == 28);
    assert!(offset_of!(FabricAttr, provider) == 16);
    assert!(size_of::<Fid>() == 24 && offset_of!(Fid, ops) == 16);
    assert!(offset_of!(Ops, close) == 8 && offset_of!(Ops, control) == 24);
    assert!(offset_of!(Fabric, ops) == 24 && offset_of!(FabricOps, trywait) == 40);
    assert!(offset_of!(Domain, ops) == 24 && offset_of!(Domain, mr) == 32);
    assert!(offset_of!(DomainOps, av_open) == 8 && offset_of!(DomainOps, endpoint) == 24);
    assert!(offset_of!(MrOps, reg) == 8);
    assert!(offset_of!(Mr, desc) == 24 && offset_of!(Mr, key) == 32);
    assert!(offset_of!(Av, ops) == 24 && offset_of!(AvOps, insert) == 8);
    assert!(offset_of!(Cq, ops) == 24 && offset_of!(CqOps, read) == 8);
    assert!(offset_of!(CqOps, readerr) == 24 && offset_of!(CqOps, strerror) == 56);
    assert!(offset_of!(Ep, cm) == 32 && offset_of!(Ep, msg) == 40 && offset_of!(Ep, rma) == 48);
    assert!(offset_of!(CmOps, getname) == 16);
    assert!(offset_of!(MsgOps, recv) == 8 && offset_of!(MsgOps, send) == 32);
    assert!(offset_of!(RmaOps, read) == 8 && offset_of!(RmaOps, writemsg) == 48);
    assert!(size_of::<MsgRma>() == 64 && offset_of!(MsgRma, context) == 48);
    assert!(size_of::<RmaIov>() == 24 && size_of::<CqAttr>() == 40);
    assert!(offset_of!(CqAttr, wait_obj) == 20 && size_of::<AvAttr>() == 48);
    assert!(size_of::<Entry>() == 24 && offset_of!(Entry, len) == 16);
    assert!(offset_of!(ErrEntry, err) == 56 && offset_of!(ErrEntry, err_data) == 64);
    assert!(size_of::<ErrEntry>() >= 80 && size_of::<Room>() == 64);
};

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const Info,
    *mut *mut Info,
) -> c_int;

/// The functions that are looked up; all others are found in tables of objects.
pub(crate) struct Library {
    pub(crate) getinfo: GetInfo,
    pub(crate) dupinfo: unsafe extern "C" fn(*const Info) -> *mut Info,
    pub(crate) freeinfo: unsafe extern "C" fn(*mut Info),
    pub(crate) fabric:
        unsafe extern "C" fn(*mut FabricAttr, *mut *mut Fabric, *mut c_void) -> c_int,
}

/// The library, loaded once and for ever; or why it is not there.
pub(crate) fn library() -> Result<&'static Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref().map_err(String::clone)
}

fn load() -> Result<Library, String> {
    let found = memonet_dl::Library::open(c"libfabric.so.1").map_err(|why| {
        format!("{why}. Install libfabric (Debian: libfabric1), or set LD_LIBRARY_PATH")
    })?;
    let symbol = |name: &CStr, version: &CStr| {
        let missing =
            || format!("libfabric has no {name:?} of version {version:?}: take 1.17 or later");
        found.versioned(name, version).map(NonNull::as_ptr).ok_or_else(missing)
    };
    // SAFETY: these functions have these signatures in these versions.
    unsafe {
        use std::mem::transmute;
        Ok(Library {
            getinfo: transmute::<*mut c_void, GetInfo>(symbol(c"fi_getinfo", c"FABRIC_1.3")?),
            dupinfo: transmute::<*mut c_void, unsafe extern "C" fn(*const Info) -> *mut Info>(
                symbol(c"fi_dupinfo", c"FABRIC_1.3")?,
            ),
            freeinfo: transmute::<*mut c_void, unsafe extern "C" fn(*mut Info)>(symbol(
                c"fi_freeinfo",
                c"FABRIC_1.3",
            )?),
            fabric: transmute::<
                *mut c_void,
                unsafe extern "C" fn(*mut FabricAttr, *mut *mut Fabric, *mut c_void) -> c_int,
            >(symbol(c"fi_fabric", c"FABRIC_1.1")?),
        })
    }
}
