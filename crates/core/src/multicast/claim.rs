//! The calls of programs: blocks of elements, copied or in place.

use super::reader::{Reader, Record};
use super::ring::Fragment;
use super::writer::{Room, Writer};
use super::{End, Multicast, no_reader};
use crate::base::error::{Call, Error, Result};
use crate::base::shm::{self, Plain, zeroed};
use crate::base::shows;
use std::ops::{Deref, DerefMut};

impl<T: Plain> Multicast<T> {
    /// Publishes a block of any length, 0 included. Waits where a reader is too far behind. Writer
    /// only.
    ///
    /// # Errors
    /// [`Error::PeerFailed`] when it waits for a reader that is gone, or [`Error::Silent`], unless
    /// the channel survives that; [`Error::Misuse`] at a reader, and once this PE has finalised.
    #[inline]
    #[track_caller]
    pub fn publish(&mut self, block: &[T]) -> Result<()> {
        if let End::Writer(writer) = &mut self.end
            && writer.publish_at_once(block)
        {
            return Ok(());
        }
        self.publish_in_general(block)
    }

    #[inline(never)]
    #[track_caller]
    fn publish_in_general(&mut self, block: &[T]) -> Result<()> {
        let call = Call::here("Multicast::publish", self.pe, None);
        call.of(move || {
            let _call = self.writer()?.pe.begin(call.name, call.at, None);
            publish(self.writer()?, block)
        })
    }

    /// Gives memory for a block of `len` elements: the memory where the readers read it, with
    /// arbitrary old contents. Waits where a reader is too far behind. Writer only.
    ///
    /// A block of more than [`most_in_place`](Self::most_in_place) elements is in private memory
    /// until it is published.
    ///
    /// # Errors
    /// As for [`publish`](Self::publish); [`Error::Overflow`].
    #[inline]
    #[track_caller]
    pub fn claim(&mut self, len: usize) -> Result<Claim<'_, T>> {
        let call = Call::here("Multicast::claim", self.pe, None);
        call.of(move || {
            let _call = self.writer()?.pe.begin(call.name, call.at, None);
            let bytes = block_bytes::<T>(len)?;
            let writer = self.writer()?;
            if bytes > writer.ring().most() {
                return Ok(Claim::private(writer, len));
            }
            let room = writer.room(bytes)?;
            Ok(Claim::in_place(writer, room, len))
        })
    }

    /// [`claim`](Self::claim), if that needs no waiting.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    #[inline]
    #[track_caller]
    pub fn try_claim(&mut self, len: usize) -> Result<Option<Claim<'_, T>>> {
        let call = Call::here("Multicast::try_claim", self.pe, None);
        call.of(move || {
            let _call = self.writer()?.pe.begin(call.name, call.at, None);
        let bytes = block_bytes::<T>(len)?;
        let writer = self.writer()?;
        if bytes > writer.ring().most() {
            return Err(Error::misuse(
                "a block of more than `most_in_place` elements is published in parts, which may have to wait: use `claim`, or make the channel with more capacity",
            ));
        }
        match writer.try_room(bytes)? {
            Some(room) => Ok(Some(Claim::in_place(writer, room, len))),
            None => Ok(None),
        }
        })
    }

    /// Waits for the next block, and replaces the contents of `to` by it. Readers only.
    ///
    /// # Errors
    /// After the last block: [`Error::Closed`] when the writer has left, [`Error::PeerFailed`] when
    /// it has died, or when it has left because of a reader that had died. [`Error::Silent`];
    /// [`Error::Dropped`]; [`Error::Misuse`] at the writer.
    #[inline]
    #[track_caller]
    pub fn recv(&mut self, to: &mut Vec<T>) -> Result<()> {
        if let Some((record, _)) = self.next_at_once()
            && self.take(record, to).is_ok()
        {
            return Ok(());
        }
        self.recv_in_general(to)
    }

    #[inline(never)]
    #[track_caller]
    fn recv_in_general(&mut self, to: &mut Vec<T>) -> Result<()> {
        let call = Call::here("Multicast::recv", self.pe, None);
        call.of(move || {
            let _call = self.reader()?.pe.begin(call.name, call.at, None);
            if !self.assembled {
                let reader = self.reader()?;
                let record = reader.next(call)?;
                if record.part == Fragment::WHOLE {
                    return self.take(record, to);
                }
                self.assemble(call, record)?;
            }
            std::mem::swap(to, &mut self.block);
            self.forget_assembled();
            Ok(())
        })
    }

    /// [`recv`](Self::recv), if the next block has come; gives whether it has. Parts of a large
    /// block that have come are kept.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    #[inline]
    #[track_caller]
    pub fn try_recv(&mut self, to: &mut Vec<T>) -> Result<bool> {
        let call = Call::here("Multicast::try_recv", self.pe, None);
        call.of(move || {
            let _call = self.reader()?.pe.begin(call.name, call.at, None);
            while !self.assembled {
                let Some(record) = self.reader()?.try_next()? else {
                    return Ok(false);
                };
                if record.part == Fragment::WHOLE {
                    return self.take(record, to).map(|()| true);
                }
                self.append(record)?;
            }
            std::mem::swap(to, &mut self.block);
            self.forget_assembled();
            Ok(true)
        })
    }

    /// Waits for the next block, and shows it where it is. It stays the next block until
    /// [`Peek::pop`]. Readers only.
    ///
    /// A block of more than [`most_in_place`](Self::most_in_place) elements is shown in private
    /// memory. So is every block on a channel that [drops slow
    /// readers](super::MulticastOptions::drop_slow).
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    #[inline]
    #[track_caller]
    pub fn peek(&mut self) -> Result<Peek<'_, T>> {
        match self.next_at_once() {
            Some((record, at)) => Ok(Peek::in_place(self, record, at)),
            None => self.peek_in_general(),
        }
    }

    #[inline(never)]
    #[track_caller]
    fn peek_in_general(&mut self) -> Result<Peek<'_, T>> {
        let call = Call::here("Multicast::peek", self.pe, None);
        call.of(move || {
            let _call = self.reader()?.pe.begin(call.name, call.at, None);
            if !self.assembled {
                let reader = self.reader()?;
                let record = reader.next(call)?;
                if record.part == Fragment::WHOLE && !self.reader()?.copies() {
                    return self.show(record);
                }
                self.assemble(call, record)?;
            }
            Ok(Peek::assembled(self))
        })
    }

    /// [`peek`](Self::peek), if the next block has come.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    #[inline]
    #[track_caller]
    pub fn try_peek(&mut self) -> Result<Option<Peek<'_, T>>> {
        let call = Call::here("Multicast::try_peek", self.pe, None);
        call.of(move || {
            let _call = self.reader()?.pe.begin(call.name, call.at, None);
            while !self.assembled {
                let Some(record) = self.reader()?.try_next()? else {
                    return Ok(None);
                };
                if record.part == Fragment::WHOLE && !self.reader()?.copies() {
                    return self.show(record).map(Some);
                }
                self.append(record)?;
            }
            Ok(Some(Peek::assembled(self)))
        })
    }

    /// The next record and its address, if it comes soon and [is
    /// plain](Reader::next_at_once). Its length is one of elements.
    #[inline(always)]
    fn next_at_once(&mut self) -> Option<(Record, *const u8)> {
        if self.assembled {
            return None;
        }
        let End::Reader(reader) = &mut self.end else { return None };
        let len = reader.next_at_once().filter(|len| len.is_multiple_of(size_of::<T>()))?;
        Some((Record { len, part: Fragment::WHOLE }, reader.block()))
    }

    /// Copies a whole block, and consumes it.
    #[inline]
    fn take(&mut self, record: Record, to: &mut Vec<T>) -> Result<()> {
        to.clear();
        // `reader` has a result that would go through memory.
        let End::Reader(reader) = &mut self.end else { return Err(no_reader()) };
        copy_record(reader, record, to)
    }

    #[inline(always)]
    fn show(&mut self, record: Record) -> Result<Peek<'_, T>> {
        elements::<T>(record)?;
        let reader = self.reader()?;
        reader.show()?;
        let at = reader.block();
        Ok(Peek::in_place(self, record, at))
    }

    /// Appends a record to the parts of its block. The first record replaces the parts of a block
    /// that was given up.
    fn append(&mut self, record: Record) -> Result<()> {
        let Multicast { end, block, .. } = self;
        let End::Reader(reader) = end else { return Err(no_reader()) };
        if record.part.first {
            block.clear();
        }
        copy_record(reader, record, block)?;
        self.assembled = record.part.last;
        Ok(())
    }

    /// Waits for the rest of a block whose next record has come, in a call of the program.
    fn assemble(&mut self, call: Call, mut record: Record) -> Result<()> {
        loop {
            self.append(record)?;
            if self.assembled {
                return Ok(());
            }
            record = self.reader()?.next(call)?;
        }
    }

    fn forget_assembled(&mut self) {
        self.assembled = false;
        self.block.clear();
    }
}

fn block_bytes<T>(len: usize) -> Result<usize> {
    len.checked_mul(size_of::<T>())
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .ok_or(Error::Overflow { index: len, size: size_of::<T>(), call: None })
}

/// The number of elements of a record. Its length is checked, as the ring may have been overwritten
/// by mistake.
#[inline]
fn elements<T>(record: Record) -> Result<usize> {
    if record.len.is_multiple_of(size_of::<T>()) {
        Ok(record.len / size_of::<T>())
    } else {
        Err(Error::misuse(
            "the ring of a multicast channel was written over: something stored to memory that is not its own",
        ))
    }
}

/// Appends a record to `to`, and consumes it.
#[inline]
fn copy_record<T: Plain>(reader: &mut Reader, record: Record, to: &mut Vec<T>) -> Result<()> {
    let len = elements::<T>(record)?;
    to.reserve(len);
    // SAFETY: the record lies in the ring, as `Ring::decode` has checked; `to` has room for its
    // elements.
    unsafe { shm::copy(to.as_mut_ptr().add(to.len()).cast(), reader.block(), record.len) };
    reader.check()?; // M5
    // SAFETY: the copy filled so many elements, and any bytes are a `T`.
    unsafe { to.set_len(to.len() + len) };
    reader.consume(record);
    Ok(())
}

#[inline]
fn publish<T: Plain>(writer: &mut Writer, block: &[T]) -> Result<()> {
    let bytes = size_of_val(block);
    if bytes > writer.ring().most() {
        return publish_in_parts(writer, block);
    }
    let room = writer.room(bytes)?;
    // SAFETY: `room` has room for so many bytes, and no reader reads them before they are
    // published; `block` is private memory.
    unsafe { shm::copy(writer.block(room), block.as_ptr().cast(), bytes) };
    writer.publish(room, bytes, Fragment::WHOLE);
    writer.reach_ahead();
    Ok(())
}

/// Publishes a block of any size in parts: readers copy a part while the next one is written. If it
/// fails in its midst, readers forget its parts.
#[cold]
fn publish_in_parts<T: Plain>(writer: &mut Writer, block: &[T]) -> Result<()> {
    let most = writer.ring().most() / size_of::<T>();
    let count = block.len().div_ceil(most);
    for (number, elements) in block.chunks(most).enumerate() {
        let bytes = size_of_val(elements);
        let room = writer.room(bytes)?;
        // SAFETY: as in `publish`.
        unsafe { shm::copy(writer.block(room), elements.as_ptr().cast(), bytes) };
        let part = Fragment { first: number == 0, last: number + 1 == count };
        writer.publish(room, bytes, part);
    }
    Ok(())
}

/// A block that is being written: a slice of its elements. [`commit`](Self::commit) publishes it;
/// dropped without that, it is not published.
#[must_use = "a block is published only by `commit`"]
pub struct Claim<'a, T> {
    writer: &'a mut Writer,
    memory: Memory<T>,
    len: usize,
}

shows!([T] Claim<'_, T> as "Claim", |it| len = it.len);

enum Memory<T> {
    InPlace(Room, *mut T),
    Private(Vec<T>),
}

impl<'a, T: Plain> Claim<'a, T> {
    #[inline]
    fn in_place(writer: &'a mut Writer, room: Room, len: usize) -> Self {
        let at = writer.block(room).cast();
        Claim { writer, memory: Memory::InPlace(room, at), len }
    }

    fn private(writer: &'a mut Writer, len: usize) -> Self {
        Claim { writer, memory: Memory::Private(zeroed(len)), len }
    }

    /// Publishes the block.
    ///
    /// # Errors
    /// For a block in place [`Error::Misuse`] alone; else as for [`Multicast::publish`].
    #[inline]
    #[track_caller]
    pub fn commit(self) -> Result<()> {
        let Claim { writer, memory, len } = self;
        // The processor would finish all stores of the block before it counts an `Arc`.
        let call = Call::here("Claim::commit", writer.pe.me(), None);
        call.of(move || {
            writer.refuse_departed()?;
            let _call = writer.pe.begin(call.name, call.at, None);
            match memory {
                Memory::InPlace(room, _) => {
                    writer.publish(room, len * size_of::<T>(), Fragment::WHOLE);
                    Ok(())
                }
                Memory::Private(block) => publish(writer, &block[..len]),
            }
        })
    }

    /// Publishes only the first `len` elements.
    ///
    /// # Errors
    /// As for [`commit`](Self::commit); [`Error::OutOfBounds`] when the block has fewer elements.
    #[inline]
    #[track_caller]
    pub fn commit_first(mut self, len: usize) -> Result<()> {
        if len > self.len {
            return Err(Error::OutOfBounds { index: 0, count: len, len: self.len, call: None });
        }
        self.len = len;
        self.commit()
    }
}

impl<T: Plain> Deref for Claim<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.memory {
            // SAFETY: room for so many elements, aligned, in the ring; any bytes are a `T`. No
            // other PE writes there, and this one only through this guard.
            Memory::InPlace(_, at) => unsafe { std::slice::from_raw_parts(*at, self.len) },
            Memory::Private(block) => block,
        }
    }
}

impl<T: Plain> DerefMut for Claim<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            // SAFETY: as above. No reader reads there before the record is published, but for a
            // dropped one that copies, and then discards the copy (M5).
            Memory::InPlace(_, at) => unsafe { std::slice::from_raw_parts_mut(*at, self.len) },
            Memory::Private(block) => block,
        }
    }
}

/// The next block: a slice of its elements. It stays the next block until [`pop`](Self::pop).
pub struct Peek<'a, T> {
    channel: &'a mut Multicast<T>,
    at: *const T,
    len: usize,
    /// Whether the block is a whole record in the ring. Else it is in the channel's private memory.
    in_place: bool,
}

shows!([T] Peek<'_, T> as "Peek", |it| len = it.len);

impl<'a, T: Plain> Peek<'a, T> {
    fn assembled(channel: &'a mut Multicast<T>) -> Self {
        Peek { at: channel.block.as_ptr(), len: channel.block.len(), channel, in_place: false }
    }

    /// A record of whole elements.
    #[inline(always)]
    fn in_place(channel: &'a mut Multicast<T>, record: Record, at: *const u8) -> Self {
        Peek { channel, at: at.cast(), len: record.len / size_of::<T>(), in_place: true }
    }

    /// Consumes the block. The next one follows, and the writer may reuse the memory.
    #[inline]
    pub fn pop(self) {
        if !self.in_place {
            return self.channel.forget_assembled();
        }
        if let End::Reader(reader) = &mut self.channel.end {
            let len = self.len * size_of::<T>();
            reader.consume(Record { len, part: Fragment::WHOLE });
        }
    }
}

impl<T: Plain> Deref for Peek<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: either the channel's own vector, which cannot change while this borrows the
        // channel; or a published record, whose elements are aligned and lie in the ring. By M3 no
        // PE overwrites the record before this reader reports that it has consumed it, which only
        // `pop` does: the writer waits for this reader on every channel but those on which readers
        // copy, and a PE that leaves the job keeps a shown record.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }
}
