//! The raw limit between hosts: a bare TCP connection between PE 0 and the first PE of the second
//! host, at an address that memonet's own streams use. Both ends poll a socket that does not block,
//! and that sends at once (`TCP_NODELAY`).

use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bench::toolkit::Bench;
use crate::run;

/// How long one end waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long an address may take.
const CONNECTS: Duration = Duration::from_secs(2);
/// Bytes of the text with the addresses.
const TEXT: usize = 1024;
/// Bytes of a block that is sent or received at once where records are batched: as memonet's own.
pub const BATCH: usize = 16 << 10;
/// Bytes of a record: as memonet's record of a store has.
pub const RECORD: usize = 24;
/// The word that ends an echo.
const END: u64 = u64::MAX;

/// One end of the connection.
pub struct RawStream {
    socket: TcpStream,
    /// Whether this end begins each trip.
    begins: bool,
}

impl RawStream {
    /// Connects PE 0 and the first PE of the second host. All PEs call this; the others get
    /// nothing.
    pub fn meet(bench: &Bench<'_>) -> Result<Option<Self>> {
        let (job, Some(peer)) = (bench.job, bench.far_peer()) else { return Ok(None) };
        let window = job.window::<u8>(TEXT)?;
        let mut listeners = Vec::new();
        if job.pe() == peer {
            let listener = run::listen(bench.interface())?;
            let mut text = serde_json::to_vec(listener.addresses())?;
            ensure!(text.len() <= TEXT, "this host has too many addresses: choose an --interface");
            text.resize(TEXT, b' ');
            window.put(0, 0, &text)?;
            listeners = listener.into_sockets().into_iter().map(TcpListener::from).collect();
        }
        job.barrier()?;
        let socket = match job.pe() {
            0 => {
                let mut text = vec![0; TEXT];
                window.read_into(0, &mut text);
                let text: Vec<u8> = text.into_iter().filter(|&byte| byte != b' ').collect();
                Some(connect(&serde_json::from_slice::<Vec<SocketAddr>>(&text)?)?)
            }
            pe if pe == peer => Some(accept(&listeners)?),
            _ => None,
        };
        job.barrier()?;
        let Some(socket) = socket else { return Ok(None) };
        memonet_tcp::prepare(&socket);
        socket.set_nonblocking(true)?;
        Ok(Some(RawStream { socket, begins: job.pe() == 0 }))
    }

    /// Whether this end begins each trip.
    pub fn begins(&self) -> bool {
        self.begins
    }

    /// Sends all, polling while the socket takes nothing.
    pub fn send(&self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match (&self.socket).write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if is_later(&error) => {}
                Err(error) => return Err(error).context("cannot send on a bare socket"),
            }
        }
        Ok(())
    }

    /// Receives as much, polling.
    pub fn receive(&self, mut bytes: &mut [u8]) -> Result<()> {
        while !bytes.is_empty() {
            match (&self.socket).read(bytes) {
                Ok(0) => bail!("the other end of a bare socket is gone"),
                Ok(came) => bytes = &mut bytes[came..],
                Err(error) if is_later(&error) => {}
                Err(error) => return Err(error).context("cannot receive on a bare socket"),
            }
        }
        Ok(())
    }

    /// This end's half of a round trip with the same number of bytes in both directions.
    #[inline(always)]
    pub fn trip(&self, bytes: &mut [u8]) -> Result<()> {
        if self.begins {
            self.send(bytes)?;
            return self.receive(bytes);
        }
        self.receive(bytes)?;
        self.send(bytes)
    }

    /// Answers words in a thread that blocks, while this thread computes, until the other end calls
    /// [`end_echo`](Self::end_echo).
    pub fn echo_beside_computing(&self) -> Result<()> {
        let ended = AtomicBool::new(false);
        self.socket.set_nonblocking(false)?;
        let echo = || -> Result<()> {
            let mut word = [0; 8];
            while u64::from_ne_bytes(word) != END {
                (&self.socket).read_exact(&mut word)?;
                (&self.socket).write_all(&word)?;
            }
            Ok(())
        };
        let result = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let result = echo();
                ended.store(true, Ordering::Release);
                result
            });
            compute(|| ended.load(Ordering::Acquire));
            thread.join().expect("the echo does not panic")
        });
        self.socket.set_nonblocking(true)?;
        result.context("a bare echo failed")
    }

    /// Ends the echo at the other end.
    pub fn end_echo(&self) -> Result<()> {
        self.trip(&mut END.to_ne_bytes())
    }

    /// Sends so many records, each of which names a word of `words` and its value, in batches; or
    /// receives them and stores the values. Returns when the other end has all.
    pub fn records(&self, count: usize, words: &mut [u64]) -> Result<()> {
        let mut batch = [0; BATCH / RECORD * RECORD];
        let mut left = count;
        while left > 0 {
            let some = left.min(BATCH / RECORD);
            let records = &mut batch[..some * RECORD];
            if self.begins {
                for (number, record) in records.chunks_exact_mut(RECORD).enumerate() {
                    let at = number % words.len();
                    record[8..16].copy_from_slice(&(at as u64).to_le_bytes());
                    record[16..].copy_from_slice(&words[at].to_le_bytes());
                }
                self.send(records)?;
            } else {
                self.receive(records)?;
                for record in records.chunks_exact(RECORD) {
                    let (at, value) = record[8..].split_at(8);
                    let at = u64::from_le_bytes(at.try_into()?) as usize;
                    let word = words.get_mut(at).context("a bare record names no word")?;
                    *word = u64::from_le_bytes(value.try_into()?);
                }
            }
            left -= some;
        }
        self.acknowledge()
    }

    /// Sends so many blocks, or receives them. Returns when the other end has all.
    pub fn blocks(&self, count: usize, block: &mut [u8]) -> Result<()> {
        for _ in 0..count {
            if self.begins { self.send(block)? } else { self.receive(block)? }
        }
        self.acknowledge()
    }

    fn acknowledge(&self) -> Result<()> {
        let mut one = [1];
        if self.begins { self.receive(&mut one) } else { self.send(&one) }
    }
}

/// Computes until `is_over`: what the PE of a bench does that makes no call.
pub fn compute(is_over: impl Fn() -> bool) {
    let mut number = 1_u64;
    while !is_over() {
        for _ in 0..64 {
            number = black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17));
        }
    }
}

fn is_later(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn connect(addresses: &[SocketAddr]) -> Result<TcpStream> {
    let mut why = None;
    for address in addresses {
        match TcpStream::connect_timeout(address, CONNECTS) {
            Ok(socket) => return Ok(socket),
            Err(error) => why = Some(format!("{address}: {error}")),
        }
    }
    let why = why.unwrap_or("it has no address".into());
    bail!(
        "the first host cannot connect to the second one ({why}). `memonet doctor --hosts` says more"
    )
}

fn accept(listeners: &[TcpListener]) -> Result<TcpStream> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        for listener in listeners {
            match listener.accept() {
                Ok((socket, _)) => return Ok(socket),
                Err(error) if is_later(&error) => {}
                Err(error) => return Err(error).context("accept"),
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    bail!("no bare connection came from the first host within {PATIENCE:?}")
}
