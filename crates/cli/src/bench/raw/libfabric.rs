//! The raw limit of libfabric between hosts: an endpoint at PE 0 and one at the first PE of the
//! second host, of the kind that the job has, and loops that poll.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result, anyhow, ensure};
use memonet_fabrics::between::Between;
use memonet_ofi::bare::Bare;

use crate::bench::toolkit::Bench;
use crate::run;

/// Bytes of what one end tells the other.
const TEXT: usize = 1024;

/// One end.
pub struct RawEndpoint(RefCell<Bare>);

/// The provider of the rows: one for network cards, or else one that is everywhere.
pub fn provider() -> String {
    memonet_fabrics::hardware().unwrap_or_else(|_| "tcp;ofi_rxm".into())
}

impl RawEndpoint {
    /// Connects PE 0 and the first PE of the second host, for blocks of so many bytes. All PEs call
    /// this; the others get nothing.
    pub fn meet(bench: &Bench<'_>, size: usize) -> Result<Option<Self>> {
        let (job, Some(peer)) = (bench.job, bench.far_peer()) else { return Ok(None) };
        let window = job.window::<u8>(TEXT)?;
        let other = match job.pe() {
            0 => Some(peer),
            pe if pe == peer => Some(0),
            _ => None,
        };
        let mut bare = other.map(|_| open(bench, size)).transpose()?;
        if let (Some(bare), Some(other)) = (&bare, other) {
            let told = bare.told().map_err(anyhow::Error::msg)?;
            ensure!(told.len() + 2 <= TEXT, "the address of an endpoint has too many bytes");
            let length = (told.len() as u16).to_le_bytes();
            window.put(other, 0, &[&length[..], &told].concat())?;
        }
        job.barrier()?;
        if let Some(bare) = &mut bare {
            let mut text = vec![0; TEXT];
            window.read_into(0, &mut text);
            let length = u16::from_le_bytes([text[0], text[1]]) as usize;
            bare.meet(&text[2..2 + length]).map_err(anyhow::Error::msg)?;
        }
        job.barrier()?;
        Ok(bare.map(|bare| RawEndpoint(RefCell::new(bare))))
    }

    /// Whether this end begins each trip.
    pub fn begins(&self) -> bool {
        self.0.borrow().begins()
    }

    /// This end's half of a round trip of a word.
    pub fn trip(&self) -> Result<()> {
        self.0.borrow_mut().trip().map_err(failed)
    }

    /// Writes so many blocks, or has them written. Returns when the other end has all.
    pub fn blocks(&self, count: usize) -> Result<()> {
        self.0.borrow_mut().blocks(count).map_err(failed)
    }
}

fn failed(why: String) -> anyhow::Error {
    anyhow!("a bare endpoint: {why}")
}

/// An endpoint at the address at which the job has its own.
fn open(bench: &Bench<'_>, size: usize) -> Result<Bare> {
    let Between::Libfabric(Some(provider)) = Between::asked()? else {
        return Err(anyhow!("this row is of jobs with --fabric ofi:provider=NAME"));
    };
    let listener = run::listen(bench.interface())?;
    let source =
        listener.addresses().first().map_or(IpAddr::from(Ipv4Addr::LOCALHOST), |at| at.ip());
    Bare::open(&provider, source, size, bench.job.pe() == 0)
        .map_err(failed)
        .context("libfabric without memonet")
}
