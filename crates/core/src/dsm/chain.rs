//! A queue of PEs whose last holder keeps what it had until somebody asks, without doing anything
//! for that, not even running.
//!
//! # The words
//!
//! A PE that wants the lock takes a **position** in a queue: its n-th is called (PE, n). Each knows
//! the one before it; the last one is in a word of the home. Positions become *open* one after the
//! other, and whoever finds the one before its own open is in. A PE has words for two positions, as
//! it may ask again before all has been said about the last time: position n uses those with number
//! n mod 2.
//!
//! | word | where | written by | meaning |
//! |---|---|---|---|
//! | last | home | atomics of the fabric | the last position |
//! | state | each PE, 2 | the PE | `BUSY`: in, or waiting; `OPEN`: it was in, has left, and its data lie there |
//! | absent | each PE, 2 | atomics of the fabric | 0; or `AWAY`, position: gave up while it waited behind that one; `GONE`: and then somebody went by |
//! | next | each PE, 2 | who is behind; 0 again by the PE | number + 1 of the PE behind |
//! | passed | each PE, 2 | who was behind | number of the position which nobody needs any more |
//! | news | each PE | who is before it; 0 again by the PE | a position, which is `OPEN` or `AWAY` |
//!
//! **Enter**, without a position: take the next number; once that two before is passed, next := 0,
//! state := `BUSY`; swap it for *last*, which gives the one before. **Register** there: next :=
//! this PE; complete that. **Look**: news := 0, fence, get state and absent there. `OPEN`: get the
//! data; passed there := its number; in. `AWAY`: compare-and-swap it for `GONE`; if that succeeds,
//! register with its predecessor, which is now the one before; passed := the number of the one in
//! between. In any case look again. `BUSY` and not absent: wait for news, and look again; news that
//! name the position before and say `OPEN` save that look.
//!
//! **Leave**: state := `OPEN`, fence; if somebody is in next, send it the news. **Enter again**, by
//! a position that is `OPEN`: nobody is in next; state := `BUSY`, fence; still nobody: in.
//! Otherwise it is `OPEN` as before, with the news to who came, and a new position is taken. **Give
//! up**: absent := `AWAY` and the position before; if somebody is in next, send it the news.
//! **Enter again**, by a position that is `AWAY`: compare-and-swap that for 0; if that succeeds,
//! look as before. If not, somebody went by, and a new position is taken.
//!
//! So an owner that nobody asks writes and reads its own memory alone. The words that the fabric's
//! atomics update nothing else does.
//!
//! # The proof
//!
//! *Between an owner that comes back and the one behind it nothing is decided.* Both look, and
//! neither chooses. The owner writes `BUSY`, fences, reads next. The other completes its next, then
//! gets the state. If the owner read 0, next became visible after that, so the other's get sees
//! `BUSY`: it waits. If the owner read the other's number it gives way in any case, whatever the
//! other has seen: `OPEN` before or after, or `BUSY` in between, and then news follow. So once
//! somebody is registered the position's owner never enters by it again, and what the other then
//! finds `OPEN` stays so, with the data.
//!
//! *Between one who gave up and the one behind it*, the word `absent` decides, by one
//! compare-and-swap. That either succeeds means that the PE was away, behind that very position, at
//! that moment; how often it was there and away before makes no difference.
//!
//! *One is in.* The swaps of *last* put all positions in one order, each before one other. That
//! stays so as they go by: who goes by gets the predecessor, and the position in between has nobody
//! behind it for ever. A PE is in by an `OPEN` predecessor, or again by its own position. By
//! induction over the order, a position is entered only when all before it are `OPEN` or gone by;
//! those were left, and will not be entered again by what was just said.
//!
//! *The data are the newest.* They lie at the position that was in last, which is the one that is
//! found `OPEN`. Nobody writes there but the PE itself, and that not before it is in again, by a
//! position behind the one that is getting them, which leaves only later.
//!
//! *No news is lost.* Who waits has registered, and set news to 0, before the look that saw
//! somebody `BUSY` and present. Who leaves or gives up writes that before it reads next. Since that
//! look did not see it, next was there when it was read: news come, after they were set to 0. News
//! of others (late ones, of positions gone by) may overwrite them; but whoever finds such looks
//! again after setting them to 0, and so sees the words themselves.
//!
//! *The words are free when they are used again.* Position n + 2 takes those of n once n is passed.
//! Who writes that has completed its next there, as has everybody who was behind before, for they
//! were away after that; and it does not look there any more.
//!
//! *A position that will not be entered again is passed, whatever others give up.* Let (P, n) be
//! `OPEN` and P have a later position, or have been gone by there. Whoever did that, or P, walks
//! from behind, and stops only at somebody `BUSY` and present. Whoever becomes that looks at the
//! one before, and goes by if it is away; of all who do so at a time, the first one finds (P, n).
//!
//! *Fair.* Who is in the queue and waits is overtaken by nobody. Who gives up keeps its place until
//! somebody behind goes by.
//!
//! This is the code that the tests explore, all interleavings of it and all orders of delivery, in
//! `chain/model.rs`.

#[cfg(all(test, not(loom)))]
mod model;

/// A word of a PE, of those above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Word {
    State(usize),
    Absent(usize),
    Next(usize),
    Passed(usize),
    News,
}

/// What the protocol needs of the world. "Own" words are this PE's.
pub(super) trait World {
    type Error;

    /// This PE.
    fn me(&self) -> usize;
    /// Reads an own word.
    fn load(&self, word: Word) -> Result<u64, Self::Error>;
    /// Writes an own word.
    fn store(&self, word: Word, value: u64) -> Result<(), Self::Error>;
    /// Writes an own word, and makes it and all before visible before anything that follows.
    fn publish(&self, word: Word, value: u64) -> Result<(), Self::Error>;
    /// Puts a position in the place of the last.
    fn swap_last(&self, position: u64) -> Result<u64, Self::Error>;
    /// Updates the `absent` of a PE, if it is as expected; gives what it was.
    fn swap_absent(
        &self,
        pe: usize,
        slot: usize,
        expected: u64,
        new: u64,
    ) -> Result<u64, Self::Error>;
    /// Writes a word of a PE, some time.
    fn write(&self, pe: usize, word: Word, value: u64) -> Result<(), Self::Error>;
    /// Makes all that was written visible.
    fn complete(&self) -> Result<(), Self::Error>;
    /// Reads a PE's state and absent, not necessarily at once.
    fn look(&self, pe: usize, slot: usize) -> Result<[u64; 2], Self::Error>;
    /// Writes a PE's news, and wakes it.
    fn tell(&self, pe: usize, news: u64) -> Result<(), Self::Error>;
    /// Whether time is up.
    fn is_late(&self) -> Result<bool, Self::Error>;
    /// Waits until an own word is as wanted, and gives it; nothing when time is up.
    fn wait(&self, word: Word, wanted: impl Fn(u64) -> bool) -> Result<Option<u64>, Self::Error>;
    /// Gets the data from where they are.
    fn bring(&self, from: usize) -> Result<(), Self::Error>;
}

const BUSY: u64 = 1;
const OPEN: u64 = 2;
const AWAY: u64 = 3;
/// No position's bits end in it.
const GONE: u64 = 1;
const KIND_BITS: u32 = 2;
const PE_BITS: u32 = 20;
const _: () = assert!(
    crate::base::layout::MAX_HOSTED <= 1 << PE_BITS && crate::base::layout::MAX_PES <= 1 << PE_BITS
);

/// A PE's place in the queue; its numbers begin at 1, and the 42 bits that they have in a state
/// last for years.
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

/// What a PE's position is while no call of it is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Standing {
    Nowhere,
    /// It is open, and was in last when it became so.
    Owner,
    /// It gave up behind this one.
    Behind(Position),
}

/// The queue as a PE sees it. Its threads use it one at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Chain {
    number: u64,
    standing: Standing,
}

/// What `last` is at first, and the state of the home's first position.
pub(super) fn beginning(home: usize) -> (u64, Word, u64) {
    let first = Position { pe: home, number: 1 };
    (first.bits(), Word::State(first.slot()), OPEN)
}

/// Whether a PE with these words is in, or waits.
pub(super) fn is_busy([state, absent]: [u64; 2]) -> bool {
    state == BUSY && absent == 0
}

impl Chain {
    /// The home is the first owner.
    pub(super) fn new(is_home: bool) -> Self {
        Chain {
            number: u64::from(is_home),
            standing: if is_home { Standing::Owner } else { Standing::Nowhere },
        }
    }

    /// Comes in; false when time is up.
    #[inline]
    pub(super) fn enter<W: World>(&mut self, world: &W) -> Result<bool, W::Error> {
        if self.standing == Standing::Owner {
            let slot = self.position(world).slot();
            if world.load(Word::Next(slot))? == 0 {
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
        // Also where standing failed after its place was taken.
        if let (Err(_) | Ok(false), Standing::Behind(before)) = (&entered, self.standing) {
            let gave_up = self.give_up(world, before);
            // Of two errors the first says more.
            return entered.and_then(|entered| gave_up.map(|()| entered));
        }
        entered
    }

    /// Leaves.
    #[inline]
    pub(super) fn leave<W: World>(&mut self, world: &W) -> Result<(), W::Error> {
        self.open(world)
    }

    #[inline]
    fn position<W: World>(&self, world: &W) -> Position {
        Position { pe: world.me(), number: self.number }
    }

    /// From now on who is behind may come in.
    #[inline]
    fn open<W: World>(&self, world: &W) -> Result<(), W::Error> {
        let slot = self.position(world).slot();
        world.publish(Word::State(slot), OPEN)?;
        match world.load(Word::Next(slot))? {
            0 => Ok(()),
            next => self.tell(world, next, OPEN),
        }
    }

    /// From now on who is behind may go by.
    fn give_up<W: World>(&self, world: &W, before: Position) -> Result<(), W::Error> {
        let slot = self.position(world).slot();
        world.swap_absent(world.me(), slot, 0, AWAY | before.bits() << KIND_BITS)?;
        match world.load(Word::Next(slot))? {
            0 => Ok(()),
            next => self.tell(world, next, AWAY),
        }
    }

    #[cold]
    fn tell<W: World>(&self, world: &W, next: u64, kind: u64) -> Result<(), W::Error> {
        world.tell(next as usize - 1, kind | self.position(world).bits() << KIND_BITS)
    }

    /// Stands in the queue again, or anew at its end; false when time is up.
    fn stand<W: World>(&mut self, world: &W) -> Result<bool, W::Error> {
        if let Standing::Behind(before) = self.standing {
            let (me, slot) = (world.me(), self.position(world).slot());
            let away = AWAY | before.bits() << KIND_BITS;
            if world.swap_absent(me, slot, away, 0)? == away {
                return Ok(true);
            }
            // Nobody looks at that any more.
            world.store(Word::State(slot), 0)?;
            world.swap_absent(me, slot, GONE, 0)?;
            self.standing = Standing::Nowhere;
        }
        let position = Position { pe: world.me(), number: self.number + 1 };
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

    /// Becomes the one behind `before`.
    fn register<W: World>(&mut self, world: &W, before: Position) -> Result<(), W::Error> {
        self.standing = Standing::Behind(before);
        world.write(before.pe, Word::Next(before.slot()), world.me() as u64 + 1)?;
        world.complete()
    }

    /// Goes by those who gave up, and waits for who did not; false when time is up.
    /// The one before may come back and give up again and again. Then neither a wait nor going by
    /// it ends this, so time is looked at here, too.
    fn walk<W: World>(&mut self, world: &W) -> Result<bool, W::Error> {
        while let Standing::Behind(before) = self.standing {
            world.publish(Word::News, 0)?;
            let [mut state, absent] = world.look(before.pe, before.slot())?;
            // Only a position that says behind whom it was can be gone by.
            if state != OPEN && absent & ((1 << KIND_BITS) - 1) != AWAY {
                match world.wait(Word::News, |news| news != 0)? {
                    None => return Ok(false),
                    Some(news) if news == OPEN | before.bits() << KIND_BITS => state = OPEN,
                    Some(_) if world.is_late()? => return Ok(false),
                    Some(_) => continue,
                }
            }
            if state == OPEN {
                world.bring(before.pe)?;
                self.standing = Standing::Owner;
            } else if world.swap_absent(before.pe, before.slot(), absent, GONE)? != absent {
                if world.is_late()? {
                    return Ok(false);
                }
                continue;
            } else {
                self.register(world, Position::of(absent >> KIND_BITS))?;
            }
            world.write(before.pe, Word::Passed(before.slot()), before.number)?;
        }
        Ok(true)
    }
}
