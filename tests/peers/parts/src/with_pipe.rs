//! A pipe: the floor, two copies and two system calls a message.

use crate::channels::{Read, Write};
use anyhow::{Result, bail};
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};

pub struct Sender(pub PipeWriter);

pub struct Receiver {
    pub pipe: PipeReader,
    pub message: Vec<u64>,
}

fn bytes(words: &[u64]) -> &[u8] {
    // SAFETY: any words are bytes, eight times as many.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

impl Write for Sender {
    fn copied(&mut self, message: &[u64]) -> Result<()> {
        Ok(self.0.write_all(bytes(message))?)
    }

    fn in_place(&mut self, len: usize, word: u64) -> Result<()> {
        match len {
            1 => self.copied(&[word]),
            _ => bail!("a pipe copies"),
        }
    }
}

impl Read for Receiver {
    fn messages(&mut self, _: u64, see: &mut impl FnMut(&[u64])) -> Result<u64> {
        let words = &mut self.message;
        // SAFETY: any bytes are words, an eighth as many.
        let to =
            unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), 8 * words.len()) };
        self.pipe.read_exact(to)?;
        see(words);
        Ok(1)
    }
}
