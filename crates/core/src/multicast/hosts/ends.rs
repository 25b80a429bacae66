//! The ends of a channel between hosts, made of what its PEs have opened.

use super::cast::{self, Cast};
use super::head::{self, Head};
use super::{Plan, Side};
use crate::base::layout::ReaderLine;
use crate::endpoint::route::Route;
use crate::multicast::Delivery;
use crate::multicast::make::Channel;
use crate::multicast::position::{PositionLine, Upstream};
use crate::multicast::reader::{Reader, Reporting};
use crate::multicast::ring::Ring;
use crate::multicast::writer::{Onward, Writer};
use std::mem::offset_of;
use std::sync::{Arc, Mutex};

impl Channel<'_> {
    /// The writer's end.
    pub(in crate::multicast) fn hosts_writer(&self, plan: &Plan, side: Side) -> Writer {
        let Side::Writer(seal, sender, window) = side else {
            unreachable!("the writer has opened that")
        };
        let heads = plan.hosts.iter().map(|host| (self.readers[host[0]], self.own_line(host[0])));
        let cast = Arc::new(Cast {
            pe: self.pe.clone(),
            ring: self.own_ring(),
            front: PositionLine(self.pe.local(self.places.front)),
            readers: self.readers.into(),
            heads: heads.collect(),
            work: Mutex::new(cast::Work {
                seal,
                window,
                out: vec![0; sender.most * sender.at_once()].into(),
                sender,
                end: 0,
                sent: 0,
                looked: 0,
                ended: false,
            }),
            keep: Mutex::new(None),
            _window: self.window.clone(),
        });
        self.register(cast.clone());
        self.writer(Delivery::Hosts, &plan.here, Onward::Hosts(cast))
    }

    /// The end of the `number`-th reader.
    pub(in crate::multicast) fn hosts_reader(
        &self,
        plan: &Plan,
        side: Side,
        number: usize,
    ) -> Reader {
        let host = plan.host_of(number);
        // The PE in whose segment it reads.
        let home = host.map_or(self.writer, |host| self.readers[host[0]]);
        let pe = self.pe;
        let at = |offset: u64| match pe.route(home, offset) {
            _ if home == pe.me() => pe.local(offset),
            Route::Near(place) => place,
            Route::Far(_) => unreachable!("PEs of one node are near to each other"),
        };
        // SAFETY: the ring lies in that PE's part of the window, which is mapped as long as the
        // job; `Ring::bytes` gave its length.
        let ring = unsafe { Ring::new(at(self.places.ring), self.places.bytes, self.places.unit) };
        let node = self.leaf(ring, self.upstream(home, number, offset_of!(ReaderLine, position)));
        let head = match (host, side) {
            (Some(host), Side::Head(seal, receiver, window)) => {
                let work = head::Work::new(pe, self.own_ring(), seal, receiver, window);
                Some(self.head(host, work))
            }
            _ => None,
        };
        let mut sources = vec![home, self.writer];
        sources.retain(|&source| source != pe.me());
        sources.dedup();
        let front = PositionLine(at(self.places.front));
        self.reader(ring, None, Reporting::Host { node, front, head }, sources)
    }

    /// A word of a reader's line in the segment of another PE, or this one.
    fn upstream(&self, pe: usize, number: usize, field: usize) -> Upstream {
        Upstream { pe, word: self.pe.route(pe, self.line(number) + field as u64) }
    }

    fn head(&self, host: &[usize], work: head::Work) -> Arc<Head> {
        let number = host[0];
        let readers = host.iter().map(|&number| (self.readers[number], self.own_line(number)));
        let head = Arc::new(Head {
            pe: self.pe.clone(),
            writer: self.writer,
            front: PositionLine(self.pe.local(self.places.front)),
            readers: readers.collect(),
            consumed: self.upstream(self.writer, number, offset_of!(ReaderLine, position)),
            received: self.upstream(self.writer, number, offset_of!(ReaderLine, received)),
            theirs: self.pe.route(self.writer, self.places.front),
            offset: self.places.ring,
            work: Mutex::new(work),
            keep: Mutex::new(None),
            _window: self.window.clone(),
        });
        self.register(head.clone());
        head
    }
}
