//! ZeroMQ: a pair of sockets over ipc://.

use crate::channels::{Read, Write};
use anyhow::{Result, ensure};
use std::ffi::{CString, c_char, c_int, c_void};

const PAIR: c_int = 0;

#[link(name = "zmq")]
unsafe extern "C" {
    fn zmq_ctx_new() -> *mut c_void;
    fn zmq_socket(context: *mut c_void, kind: c_int) -> *mut c_void;
    fn zmq_bind(socket: *mut c_void, address: *const c_char) -> c_int;
    fn zmq_connect(socket: *mut c_void, address: *const c_char) -> c_int;
    fn zmq_send(socket: *mut c_void, from: *const c_void, bytes: usize, flags: c_int) -> c_int;
    fn zmq_recv(socket: *mut c_void, to: *mut c_void, bytes: usize, flags: c_int) -> c_int;
}

/// Open until the process ends. A socket is used by one thread: this is no `Send`.
#[derive(Clone, Copy)]
pub struct Socket(*mut c_void);

impl Socket {
    /// Side 0 binds, and then side 1 connects.
    pub fn new(path: &str, bind: bool) -> Result<Self> {
        let address = CString::new(format!("ipc://{path}"))?;
        // SAFETY: a new context, and a new socket of it; the address ends with a zero.
        unsafe {
            let socket = zmq_socket(zmq_ctx_new(), PAIR);
            let open = if bind { zmq_bind } else { zmq_connect };
            ensure!(open(socket, address.as_ptr()) == 0, "ZeroMQ does not open {path}");
            Ok(Socket(socket))
        }
    }
}

impl Write for Socket {
    fn copied(&mut self, message: &[u64]) -> Result<()> {
        let bytes = size_of_val(message);
        // SAFETY: the socket is open, and the message has so many bytes.
        let sent = unsafe { zmq_send(self.0, message.as_ptr().cast(), bytes, 0) };
        ensure!(sent == bytes as c_int, "ZeroMQ: {}", std::io::Error::last_os_error());
        Ok(())
    }

    fn in_place(&mut self, len: usize, word: u64) -> Result<()> {
        assert_eq!(len, 1, "sockets copy");
        self.copied(&[word])
    }
}

impl Read for Socket {
    fn messages(&mut self, _: u64, see: &mut impl FnMut(&[u64])) -> Result<u64> {
        let mut word = [0u64];
        // SAFETY: the socket is open, and there is room for a word.
        let bytes = unsafe { zmq_recv(self.0, word.as_mut_ptr().cast(), 8, 0) };
        ensure!(bytes == 8, "ZeroMQ: {}", std::io::Error::last_os_error());
        see(&word);
        Ok(1)
    }
}
