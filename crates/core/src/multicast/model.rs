//! The code of a channel on a bare job of near PEs, without a window: for loom.

use super::make::{Channel, Means, MulticastOptions, Places};
use super::ring::Fragment;
use super::{Delivery, reader, writer};
use crate::base::error::{Call, Result};
use crate::base::shm;
use crate::endpoint::pe::Pe;
use crate::window::Inner;
use std::sync::Arc;

/// The ring: four records of a word, of which the writer keeps a part free.
const RING_BYTES: u64 = 64;

pub(crate) struct Sender(writer::Writer);
pub(crate) struct Receiver(reader::Reader);

/// PE 0 writes, all others read its ring.
pub(crate) fn ends(pes: &[Arc<Pe>], drops: bool) -> (Sender, Vec<Receiver>) {
    channel(pes, Delivery::Near, drops)
}

/// PE 0 writes, PE 1 reads and relays to PE 2, and so on.
pub(crate) fn chain(pes: &[Arc<Pe>]) -> (Sender, Vec<Receiver>) {
    channel(pes, Delivery::Tree, false)
}

fn channel(pes: &[Arc<Pe>], delivery: Delivery, drops: bool) -> (Sender, Vec<Receiver>) {
    let readers: Vec<usize> = (1..pes.len()).collect();
    let mut options = MulticastOptions::new();
    if drops {
        options = options.drop_slow(std::time::Duration::ZERO);
    }
    let lines = pes[0].control().geometry().heap_offset + 4096;
    let places = || Places {
        lines,
        front: 0,
        ring: lines + 128 * readers.len() as u64,
        bytes: RING_BYTES,
        lap: RING_BYTES,
        unit: 8,
    };
    let touch = |pe: &Pe| {
        for offset in (0..readers.len() as u64)
            .flat_map(|line| [128 * line, 128 * line + 8])
            .map(|at| lines + at)
        {
            // SAFETY: aligned words of the mapped heap.
            assert_eq!(unsafe { shm::load::<u64>(pe.local(offset).cast()) }, 0);
        }
        for offset in (0..RING_BYTES).step_by(8) {
            // SAFETY: as above.
            assert_eq!(unsafe { shm::load::<u64>(pe.local(places().ring + offset).cast()) }, 0);
        }
    };
    pes.iter().for_each(|pe| touch(pe));
    let channel = |me: usize| Channel {
        pe: &pes[me],
        writer: 0,
        readers: &readers,
        options: &options,
        places: places(),
        arity: 1,
        window: Arc::new(Inner::bare(pes[me].clone()).expect("a window")),
    };
    let sender = Sender(channel(0).writers_end(delivery, Means::Memory));
    let receivers = readers
        .iter()
        .map(|&me| Receiver(channel(me).readers_end(delivery, me - 1, Means::Memory)));
    (sender, receivers.collect())
}

impl Sender {
    pub(crate) fn send(&mut self, value: u64) -> Result<()> {
        let room = self.0.room(8)?;
        // SAFETY: room for a word, aligned.
        unsafe { shm::store(self.0.block(room).cast(), value) };
        self.0.publish(room, 8, Fragment::WHOLE);
        Ok(())
    }

    /// Goes on without readers that have more than `ahead` words unread.
    pub(crate) fn drop_those_behind(&mut self, ahead: u64) {
        let record = self.0.ring().record(8);
        self.0.drop_slow(self.0.position + RING_BYTES - ahead * record + 1);
    }

    pub(crate) fn dropped(&self) -> usize {
        self.0.dropped().len()
    }
}

impl Receiver {
    pub(crate) fn receive(&mut self) -> Result<u64> {
        let record = self.0.next(Call::here("a model", 0, None))?;
        assert_eq!(record.len, 8);
        // SAFETY: a word of the ring, aligned.
        let value = unsafe { shm::load(self.0.block().cast()) };
        self.0.check()?;
        self.0.consume(record);
        Ok(value)
    }
}
