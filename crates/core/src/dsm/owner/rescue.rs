//! What is left of the data when their owner is gone.

use super::{DATA, GONE, HELD, IDLE, KIND, Owner, POLL, twin_at};
use crate::error::{Error, Quick};
use crate::wait::{self, Terms};

impl Owner {
    /// Copies the newest version of the data that a PE which still lives has released, or was given, into `to`. For when the owner is gone:
    /// copies of the others then change no more, but by PEs that still hand over what they got before.
    pub(in crate::dsm) fn newest(&self, to: &mut [u8]) -> Quick<()> {
        loop {
            let mut newest: Option<(u64, u64, usize, u64)> = None;
            let mut holder = None;
            for pe in (0..self.pe.npes()).filter(|&pe| self.counts(pe)) {
                let [_, there, grant] = self.look_at(pe)?;
                let version = there >> 4;
                let (version, at) = match there & KIND {
                    HELD => {
                        holder = Some(pe);
                        break;
                    }
                    GONE | IDLE => (version, DATA),
                    _ if grant > version => (grant, DATA),
                    _ => (version, twin_at(self.bytes)),
                };
                if newest.is_none_or(|(most, ..)| most < version) {
                    newest = Some((version, at, pe, there));
                }
            }
            if let Some(pe) = holder {
                self.wait_for_release(pe)?;
            } else if let Some((_, at, pe, there)) = newest {
                // SAFETY: `to` is private memory.
                unsafe { self.pe.route(pe, self.offset + at).get(&self.pe, to.as_mut_ptr(), to.len()) }?;
                // If it was used meanwhile, it is another version now.
                if self.look_at(pe)?[1] == there {
                    return Ok(());
                }
            }
        }
    }

    /// Whether a PE's words mean anything: it lives, and has not panicked with the lock.
    fn counts(&self, pe: usize) -> bool {
        let left_with_it = || matches!(self.pe.control().state(pe).departed(), Some(crate::Cause::Finalized)) && self.holds(pe);
        !self.pe.control().is_gone(pe) && !left_with_it() && self.threads.poison() as usize != pe + 1
    }

    fn holds(&self, pe: usize) -> bool {
        self.look_at(pe).is_ok_and(|[_, there, _]| there & KIND == HELD)
    }

    fn wait_for_release(&self, pe: usize) -> Quick<()> {
        if pe == self.pe.me() {
            return Err(super::super::held_here().into());
        }
        // Until it has released the data; if it dies now, or leaves with them, it is passed over.
        let terms = Terms {
            members: Some(&[]),
            timeout: Some(POLL),
            ..Terms::default()
        };
        while self.counts(pe) && self.look_at(pe)?[1] & KIND == HELD {
            match wait::until(&self.pe, terms, || None::<()>).map_err(|error| *error) {
                Ok(()) | Err(Error::Timeout { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
