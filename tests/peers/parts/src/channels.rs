//! Messages from one writer to one reader, of whatever library.

use crate::measure::{Figure, measure};
use crate::page::Side;
use anyhow::{Result, ensure};

/// Sends messages of words. Waits where there is no room: no message is lost.
pub trait Write {
    /// Copies the message into the channel.
    fn copied(&mut self, message: &[u64]) -> Result<()>;
    /// Writes `len` times `word` where the reader reads them.
    fn in_place(&mut self, len: usize, word: u64) -> Result<()>;
}

/// Takes messages in order.
pub trait Read {
    /// Shows the messages that are there, at most `most`, where they lie; at least one, or none if
    /// the library's call does not wait.
    fn messages(&mut self, most: u64, see: &mut impl FnMut(&[u64])) -> Result<u64>;

    /// Copies each of these messages out of the channel, to `to`, which is as long, and shows the
    /// copy. A library that has a call for that uses it.
    fn copies(
        &mut self,
        most: u64,
        to: &mut Vec<u64>,
        see: &mut impl FnMut(&[u64]),
    ) -> Result<u64> {
        self.messages(most, &mut |message| {
            to.copy_from_slice(message);
            see(to);
        })
    }
}

/// Takes so many messages, and checks them. Copies them first where `to` is given.
fn take(
    read: &mut impl Read,
    mut to: Option<&mut Vec<u64>>,
    next: u64,
    count: u64,
) -> Result<()> {
    let (copied, mut come, mut wrong) = (to.is_some(), 0, 0u64);
    let mut done = 0;
    while done < count {
        let mut see = |message: &[u64]| {
            let number = next + come;
            wrong += u64::from(if copied {
                message[0] != number
            } else {
                let sum = message.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
                sum != number.wrapping_mul(message.len() as u64)
            });
            come += 1;
        };
        let some = match to.as_deref_mut() {
            Some(to) => read.copies(count - done, to, &mut see)?,
            None => read.messages(count - done, &mut see)?,
        };
        match some {
            0 => std::hint::spin_loop(),
            some => done += some,
        }
    }
    ensure!(wrong == 0 && come == count, "{wrong} of {come} messages are not those of the writer");
    Ok(())
}

/// Of one side's end.
pub enum End<W, R> {
    Write(W),
    Read(R),
}

/// The rows `NAME_copied` and `NAME_in_place`.
pub fn stream<W: Write, R: Read>(
    side: &Side,
    row: &str,
    seconds: f64,
    len: usize,
    mut end: End<W, R>,
) -> Result<()> {
    let copied = row.ends_with("copied");
    let figure =
        if len > 100 { Figure::Megabytes(8.0 * len as f64) } else { Figure::Millions(1.0) };
    let mut message = vec![0; len];
    let mut next = 1;
    measure(side, row, seconds, figure, |count| {
        match &mut end {
            End::Write(write) => {
                for number in next..next + count {
                    if copied {
                        message[0] = number;
                        write.copied(&message)?;
                    } else {
                        write.in_place(len, number)?;
                    }
                }
            }
            End::Read(read) => take(read, copied.then_some(&mut message), next, count)?,
        }
        next += count;
        Ok(())
    })
}

/// The row of 8 bytes there and back.
pub fn there_and_back(
    side: &Side,
    row: &str,
    seconds: f64,
    mut write: impl Write,
    mut read: impl Read,
) -> Result<()> {
    let mut next = 1;
    measure(side, row, seconds, Figure::OneWay, |count| {
        for number in next..next + count {
            if side.me == 0 {
                write.in_place(1, number)?;
            }
            take(&mut read, None, number, 1)?;
            if side.me == 1 {
                write.in_place(1, number)?;
            }
        }
        next += count;
        Ok(())
    })
}
