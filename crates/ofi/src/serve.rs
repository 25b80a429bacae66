//! What other PEs ask of this PE's CPU.

use crate::memory::{Granted, Memory};
use crate::message::{Head, Kind};
use crate::net::Net;
use memonet_core::Access;
use memonet_core::unstable::shm::{self, AtomicOp};

/// Does what a message asks; gives what it is answered with, and, where the provider has failed,
/// also why. All is checked: region, range, right, alignment. A signal has no answer: that it was
/// refused is told with the next flush.
pub(crate) fn serve(
    me: u32,
    memory: &mut Memory,
    net: &mut Net,
    (head, block): (&Head, &[u8]),
    has_refused: &mut bool,
) -> Result<Option<Head>, (Head, String)> {
    let answer = |kind| Head { ticket: head.ticket, ..Head::new(kind, me) };
    let said = match head.kind {
        Kind::Signal => {
            *has_refused |= !signal(memory, head, block);
            return Ok(None);
        }
        Kind::Update | Kind::CompareSwap => match update(memory, head) {
            Some(held) => Head { value: held, ..answer(Kind::Held) },
            None => answer(Kind::Refused),
        },
        Kind::Flush => {
            let refused = std::mem::take(has_refused);
            Head { value: head.value, other: refused.into(), ..answer(Kind::Flushed) }
        }
        Kind::Key => {
            let (region, asked) = (head.region, head.offset);
            let none = Head { region, ticket: asked, size: 0, ..Head::new(Kind::KeyIs, me) };
            match memory.key(net, head.from, region, asked) {
                Ok(Some(Granted { start, end, base, key })) => {
                    Head { size: 8, offset: start, other: end, value: key, base, ..none }
                }
                Ok(None) => none,
                Err(why) => return Err((none, why)),
            }
        }
        Kind::Held | Kind::Flushed | Kind::KeyIs | Kind::Refused => return Ok(None),
    };
    Ok(Some(said))
}

/// The key that an answer brings.
pub(crate) fn granted(head: &Head) -> Option<Granted> {
    let granted = Granted { start: head.offset, end: head.other, base: head.base, key: head.value };
    (head.size != 0).then_some(granted)
}

/// Writes the block and does the signal. False where one of them is refused: then nothing was
/// written.
fn signal(memory: &Memory, head: &Head, block: &[u8]) -> bool {
    let place = |region, offset, len| memory.place(head.from, region, offset, len, Access::Write);
    let size = head.size as usize;
    let Some(word) = place(head.other_region, head.other, size as u64) else { return false };
    if !matches!(size, 1 | 2 | 4 | 8) || !word.addr().is_multiple_of(size) {
        return false;
    }
    if !block.is_empty() {
        let Some(to) = place(head.region, head.offset, block.len() as u64) else { return false };
        // SAFETY: mapped, writable, and within one region, as `place` says.
        unsafe { shm::copy(to, block.as_ptr(), block.len()) };
    }
    // SAFETY: as above, and aligned.
    unsafe {
        match head.op {
            AtomicOp::Swap => shm::store_sized(word, size, head.value),
            op => _ = shm::fetch_op(word, size, op, head.value),
        }
    }
    true
}

/// Updates a word; gives what it held. Nothing where that is refused.
fn update(memory: &Memory, head: &Head) -> Option<u64> {
    let size = head.size as usize;
    let right = Access::ReadWrite;
    let word = memory.place(head.from, head.region, head.offset, size as u64, right)?;
    if !matches!(size, 1 | 2 | 4 | 8) || !word.addr().is_multiple_of(size) {
        return None;
    }
    // SAFETY: mapped, writable, and within one region, as `place` says; aligned.
    Some(unsafe {
        match head.kind {
            Kind::CompareSwap => shm::compare_swap_sized(word, size, head.other, head.value),
            _ => shm::fetch_op(word, size, head.op, head.value),
        }
    })
}
