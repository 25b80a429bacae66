//! iceoryx2: publish and subscribe, without overflow: a publisher waits where a buffer is full.

use crate::channels::{Read, Write};
use anyhow::{Result, anyhow};
use iceoryx2::port::{publisher::Publisher, subscriber::Subscriber};
use iceoryx2::prelude::*;
use std::fmt::Debug;
use std::mem::MaybeUninit;

pub struct Sender(Publisher<ipc::Service, [u64], ()>);

pub struct Receiver(Subscriber<ipc::Service, [u64], ()>);

fn plain(error: impl Debug) -> anyhow::Error {
    anyhow!("iceoryx2: {error:?}")
}

/// A service of its own for each name. `buffer`: messages that a subscriber may have unread, two by
/// default.
pub struct Service(
    iceoryx2::service::port_factory::publish_subscribe::PortFactory<ipc::Service, [u64], ()>,
);

impl Service {
    pub fn new(node: &Node<ipc::Service>, name: &str, buffer: Option<usize>) -> Result<Self> {
        let name = name.try_into().map_err(plain)?;
        let mut builder =
            node.service_builder(&name).publish_subscribe::<[u64]>().enable_safe_overflow(false);
        if let Some(buffer) = buffer {
            builder = builder.subscriber_max_buffer_size(buffer);
        }
        Ok(Service(builder.open_or_create().map_err(plain)?))
    }

    pub fn sender(&self, len: usize) -> Result<Sender> {
        let publisher = self
            .0
            .publisher_builder()
            .initial_max_slice_len(len)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create();
        Ok(Sender(publisher.map_err(plain)?))
    }

    pub fn receiver(&self) -> Result<Receiver> {
        Ok(Receiver(self.0.subscriber_builder().create().map_err(plain)?))
    }
}

pub fn node() -> Result<Node<ipc::Service>> {
    NodeBuilder::new().create::<ipc::Service>().map_err(plain)
}

impl Write for Sender {
    fn copied(&mut self, message: &[u64]) -> Result<()> {
        let sample = self.0.loan_slice_uninit(message.len()).map_err(plain)?;
        sample.write_from_slice(message).send().map_err(plain)?;
        Ok(())
    }

    fn in_place(&mut self, len: usize, word: u64) -> Result<()> {
        let mut sample = self.0.loan_slice_uninit(len).map_err(plain)?;
        sample.payload_mut().fill(MaybeUninit::new(word));
        // SAFETY: all words have just been written.
        unsafe { sample.assume_init() }.send().map_err(plain)?;
        Ok(())
    }
}

impl Read for Receiver {
    fn messages(&mut self, _: u64, see: &mut impl FnMut(&[u64])) -> Result<u64> {
        Ok(match self.0.receive().map_err(plain)? {
            Some(sample) => {
                see(sample.payload());
                1
            }
            None => 0,
        })
    }
}
