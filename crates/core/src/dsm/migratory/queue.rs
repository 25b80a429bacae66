//! A queue of PEs in which the last holder keeps the data until another PE asks for them. The
//! holder does nothing for that; it need not even run.
//!
//! # The words
//!
//! A PE that wants the lock takes a **position** in the queue: its n-th is called (PE, n). Each
//! position has a *predecessor*; a word of the home holds the last position. Positions become
//! *open* one after the other, and a PE that finds its predecessor open is in. A PE has words for
//! two positions, because it may ask again while others still use its last one: position n uses
//! those with number n mod 2.
//!
//! | word | where | written by | meaning |
//! |---|---|---|---|
//! | last | home | atomics of the fabric | the last position |
//! | state | each PE, 2 | the PE | `BUSY`: in, or waiting; `OPEN`: it was in, has left, and its data lie there |
//! | absent | each PE, 2 | atomics of the fabric | 0; or `AWAY` and a position: it gave up while it waited behind that position; `GONE`: then a PE went by |
//! | next | each PE, 2 | the PE behind; to 0 by the PE | number + 1 of the PE behind |
//! | passed | each PE, 2 | the PE that was behind | number of the position that no PE needs any more |
//! | news | each PE | the PE before; to 0 by the PE | a position that is `OPEN` or `AWAY` |
//!
//! **Enter**, without a position: take the next number. When the position two before is passed,
//! next := 0 and state := `BUSY`. Swap the position for *last*, which gives the predecessor.
//! **Register** there: next := this PE; complete that. **Look**: news := 0, fence, get state and
//! absent of the predecessor.
//!
//! * `OPEN`: get the data; passed there := its number; in.
//! * `AWAY`: compare-and-swap it for `GONE`. If that succeeds, register with the predecessor's
//!   predecessor, and write passed of the position in between. Look again in any case.
//! * `BUSY` and not absent: wait for news, and look again. News that name the predecessor and say
//!   `OPEN` save that look.
//!
//! **Leave**: state := `OPEN`, fence; if next names a PE, send it the news. **Enter again**, by a
//! position that is `OPEN`: next is 0; state := `BUSY`, fence; next is still 0: in. Otherwise state
//! := `OPEN` as before, with the news to the PE behind, and take a new position. **Give up**:
//! absent := `AWAY` and the predecessor; if next names a PE, send it the news. **Enter again**, by
//! a position that is `AWAY`: compare-and-swap that for 0. If it succeeds, look as before. If it
//! fails, a PE went by: take a new position.
//!
//! So an owner whose lock no other PE wants reads and writes its own memory alone. Words that the
//! fabric's atomics update are updated by nothing else.
//!
//! # The proof
//!
//! **I1.** *An owner that comes back and the PE behind it need no decision between them.* Both
//! look, and neither chooses. The owner writes `BUSY`, fences, reads next. The other PE completes
//! its next, then gets the state. If the owner read 0, next became visible after that, so the
//! other's get sees `BUSY`: it waits. If the owner read the other's number, it gives way, whatever
//! the other has seen: `OPEN` before or after, or `BUSY` in between, and then news follow. So once
//! a PE is registered, the position's owner never enters by that position again; and when the other
//! PE finds it `OPEN`, it stays so, with the data.
//!
//! **I2.** *Between a PE that gave up and the PE behind it, the word `absent` decides*, by one
//! compare-and-swap. Success of either means that the PE was away, behind that very position, at
//! that moment; how often it was there and away before makes no difference.
//!
//! **I3.** *At most one PE is in.* The swaps of *last* put all positions in one order, each with
//! one position behind it. Going by keeps that: the PE that goes by gets the predecessor, and the
//! position in between has no PE behind it for ever. A PE is in by an `OPEN` predecessor, or again
//! by its own position. By induction over the order, a position is entered only when all before it
//! are `OPEN` or gone by; those were left, and by I1 and I2 are not entered again.
//!
//! **I4.** *The data are the newest.* They lie at the position that was in last, which is the one
//! that is found `OPEN`. Only its PE writes there, and only when it is in again: by a position
//! behind the one that is getting the data, which leaves later.
//!
//! **I5.** *No news are lost.* A PE that waits has registered, and then set news to 0, before the
//! look that saw its predecessor `BUSY` and present. A PE that leaves or gives up writes that
//! before it reads next. Since the look did not see it, next was there when it was read: so news
//! come, after they were set to 0. Other news (late ones, of positions gone by) may overwrite them;
//! but a PE that finds such news looks again after setting them to 0, and so sees the words
//! themselves.
//!
//! **I6.** *Words are free when they are used again.* Position n + 2 takes those of n once n is
//! passed. The PE that writes passed has completed its next there, and does not look there any
//! more. So has every PE that was behind n before, as it was away after that.
//!
//! **I7.** *A position that will not be entered again is passed, whatever other PEs give up.* Let
//! (P, n) be `OPEN` and P have a later position, or have been gone by there. The PE that went by,
//! or P itself, walks from behind, and stops only at a position that is `BUSY` and present. A PE
//! that becomes so looks at its predecessor, and goes by if that is away; of all that do so at a
//! time, the first finds (P, n).
//!
//! **I8.** *Fair.* A PE that waits in the queue is overtaken by no PE. A PE that gives up keeps its
//! place until a PE behind it goes by.
//!
//! The tests in `queue/model.rs` run this code in all interleavings and all orders of delivery.

#[cfg(test)]
mod model;

/// One of a PE's words; see the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Word {
    State(usize),
    Absent(usize),
    Next(usize),
    Passed(usize),
    News,
}

/// What the queue needs from fabric and memory. "Own" words are this PE's.
pub(super) trait World {
    type Error;

    /// This PE.
    fn me(&self) -> usize;
    /// Reads an own word.
    fn load(&self, word: Word) -> Result<u64, Self::Error>;
    /// Writes an own word.
    fn store(&self, word: Word, value: u64) -> Result<(), Self::Error>;
    /// Writes an own word, and fences: it and all earlier writes are visible before later reads.
    fn publish(&self, word: Word, value: u64) -> Result<(), Self::Error>;
    /// Swaps a position for the last one, and gives that.
    fn swap_last(&self, position: u64) -> Result<u64, Self::Error>;
    /// Compare-and-swap of a PE's `absent`; gives what it was.
    fn swap_absent(
        &self,
        pe: usize,
        slot: usize,
        expected: u64,
        new: u64,
    ) -> Result<u64, Self::Error>;
    /// Writes a word of a PE, visible only after [`complete`](Self::complete).
    fn write(&self, pe: usize, word: Word, value: u64) -> Result<(), Self::Error>;
    /// Makes all writes visible.
    fn complete(&self) -> Result<(), Self::Error>;
    /// Reads a PE's state and absent, not necessarily at one moment.
    fn look(&self, pe: usize, slot: usize) -> Result<[u64; 2], Self::Error>;
    /// Writes a PE's news, and wakes it.
    fn notify(&self, pe: usize, news: u64) -> Result<(), Self::Error>;
    /// Whether the call's time is up.
    fn is_late(&self) -> Result<bool, Self::Error>;
    /// Waits until an own word is as wanted, and gives it; `None` when time is up.
    fn wait(&self, word: Word, wanted: impl Fn(u64) -> bool) -> Result<Option<u64>, Self::Error>;
    /// Gets the data from a PE.
    fn fetch(&self, from: usize) -> Result<(), Self::Error>;
}

const BUSY: u64 = 1;
const OPEN: u64 = 2;
const AWAY: u64 = 3;
/// Differs from every `AWAY` with a position: its low bits are not those of `AWAY`.
const GONE: u64 = 1;
const KIND_BITS: u32 = 2;
const PE_BITS: u32 = 20;
const _: () = assert!(
    crate::base::layout::MAX_HOSTED <= 1 << PE_BITS && crate::base::layout::MAX_PES <= 1 << PE_BITS
);

/// A PE's place in the queue. Numbers begin at 1; the 42 bits that `absent` has for them last for
/// years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Position {
    pe: usize,
    number: u64,
}

impl Position {
    fn bits(self) -> u64 {
        self.number << PE_BITS | self.pe as u64
    }

    fn of(bits: u64) -> Self {
        Position { pe: bits as usize & ((1 << PE_BITS) - 1), number: bits >> PE_BITS }
    }

    fn slot(self) -> usize {
        (self.number % 2) as usize
    }
}

/// A PE's standing in the queue between two of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Standing {
    Nowhere,
    /// Its position is open, and was in last when it became so.
    Owner,
    /// It gave up behind this position.
    Behind(Position),
}

/// The queue as a PE sees it. Its threads use it one at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Queue {
    number: u64,
    standing: Standing,
}

/// The first value of `last`, and the word and value of the home's first state.
pub(super) fn beginning(home: usize) -> (u64, Word, u64) {
    let first = Position { pe: home, number: 1 };
    (first.bits(), Word::State(first.slot()), OPEN)
}

/// Whether these words, state and absent, are of a PE that is in or waits.
pub(super) fn is_busy([state, absent]: [u64; 2]) -> bool {
    state == BUSY && absent == 0
}

impl Queue {
    /// The home is the first owner.
    pub(super) fn new(is_home: bool) -> Self {
        Queue {
            number: u64::from(is_home),
            standing: if is_home { Standing::Owner } else { Standing::Nowhere },
        }
    }

    /// Enters; false when time is up.
    #[inline]
    pub(super) fn enter<W: World>(&mut self, world: &W) -> Result<bool, W::Error> {
        if self.standing == Standing::Owner {
            let slot = self.position(world).slot();
            if world.load(Word::Next(slot))? == 0 {
                // I1: the fence stands between the two.
                world.publish(Word::State(slot), BUSY)?;
                if world.load(Word::Next(slot))? == 0 {
                    return Ok(true);
                }
                self.open(world)?;
            }
        }
        self.enter_slowly(world)
    }

    #[cold]
    fn enter_slowly<W: World>(&mut self, world: &W) -> Result<bool, W::Error> {
        let entered = match self.stand(world) {
            Ok(false) => return Ok(false),
            stood => stood.and_then(|_| self.walk(world)),
        };
        // A failed `stand` may have taken a position, which must not block those behind.
        if let (Err(_) | Ok(false), Standing::Behind(before)) = (&entered, self.standing) {
            let gave_up = self.give_up(world, before);
            // The first of two errors says more.
            return entered.and_then(|entered| gave_up.map(|()| entered));
        }
        entered
    }

    #[inline]
    pub(super) fn leave<W: World>(&mut self, world: &W) -> Result<(), W::Error> {
        self.open(world)
    }

    #[inline]
    fn position<W: World>(&self, world: &W) -> Position {
        Position { pe: world.me(), number: self.number }
    }

    /// Lets the PE behind enter. I5: the state is written before next is read.
    #[inline]
    fn open<W: World>(&self, world: &W) -> Result<(), W::Error> {
        let slot = self.position(world).slot();
        world.publish(Word::State(slot), OPEN)?;
        match world.load(Word::Next(slot))? {
            0 => Ok(()),
            next => self.notify(world, next, OPEN),
        }
    }

    /// Lets the PE behind go by. I5: absent is written before next is read.
    fn give_up<W: World>(&self, world: &W, before: Position) -> Result<(), W::Error> {
        let slot = self.position(world).slot();
        world.swap_absent(world.me(), slot, 0, AWAY | before.bits() << KIND_BITS)?;
        match world.load(Word::Next(slot))? {
            0 => Ok(()),
            next => self.notify(world, next, AWAY),
        }
    }

    #[cold]
    fn notify<W: World>(&self, world: &W, next: u64, kind: u64) -> Result<(), W::Error> {
        world.notify(next as usize - 1, kind | self.position(world).bits() << KIND_BITS)
    }

    /// Takes up the old place in the queue, or a new one at its end; false when time is up.
    fn stand<W: World>(&mut self, world: &W) -> Result<bool, W::Error> {
        if let Standing::Behind(before) = self.standing {
            let (me, slot) = (world.me(), self.position(world).slot());
            let away = AWAY | before.bits() << KIND_BITS;
            // I2
            if world.swap_absent(me, slot, away, 0)? == away {
                return Ok(true);
            }
            // A PE went by: nobody looks at these words any more.
            world.store(Word::State(slot), 0)?;
            world.swap_absent(me, slot, GONE, 0)?;
            self.standing = Standing::Nowhere;
        }
        let position = Position { pe: world.me(), number: self.number + 1 };
        // I6
        let earlier = position.number.saturating_sub(2);
        if world.wait(Word::Passed(position.slot()), |passed| passed == earlier)?.is_none() {
            return Ok(false);
        }
        world.store(Word::Next(position.slot()), 0)?;
        world.publish(Word::State(position.slot()), BUSY)?;
        let before = Position::of(world.swap_last(position.bits())?);
        self.number = position.number;
        self.register(world, before)?;
        Ok(true)
    }

    /// Becomes the PE behind `before`. I1, I6: its next is complete before it looks.
    fn register<W: World>(&mut self, world: &W, before: Position) -> Result<(), W::Error> {
        self.standing = Standing::Behind(before);
        world.write(before.pe, Word::Next(before.slot()), world.me() as u64 + 1)?;
        world.complete()
    }

    /// Goes by PEs that gave up, and waits for the first that did not; false when time is up. That
    /// PE may come back and give up again and again. Then neither a wait nor going by ends this
    /// loop, so it looks at the time itself.
    fn walk<W: World>(&mut self, world: &W) -> Result<bool, W::Error> {
        while let Standing::Behind(before) = self.standing {
            // I5: news are 0 before the look.
            world.publish(Word::News, 0)?;
            let [mut state, absent] = world.look(before.pe, before.slot())?;
            // Only `AWAY` names the predecessor, which going by needs.
            if state != OPEN && absent & ((1 << KIND_BITS) - 1) != AWAY {
                match world.wait(Word::News, |news| news != 0)? {
                    None => return Ok(false),
                    Some(news) if news == OPEN | before.bits() << KIND_BITS => state = OPEN,
                    Some(_) if world.is_late()? => return Ok(false),
                    Some(_) => continue,
                }
            }
            // I4: an open position stays open, with the data. I2: absent decides.
            if state == OPEN {
                world.fetch(before.pe)?;
                self.standing = Standing::Owner;
            } else if world.swap_absent(before.pe, before.slot(), absent, GONE)? != absent {
                if world.is_late()? {
                    return Ok(false);
                }
                continue;
            } else {
                self.register(world, Position::of(absent >> KIND_BITS))?;
            }
            // I6, I7
            world.write(before.pe, Word::Passed(before.slot()), before.number)?;
        }
        Ok(true)
    }
}
