//! Waiting for a change of this PE's memory, and testing for one.

use crate::state::{State, check_result, die, get, or_die};
use memonet_core::Cmp;
use memonet_core::unstable::shm::{self, Word};
use memonet_core::unstable::wait::Words as Shown;
use std::cell::Cell;
use std::ffi::c_int;

const NONE: usize = usize::MAX;

fn comparison(call: &'static str, cmp: c_int) -> Cmp {
    match cmp {
        0 => Cmp::Eq,
        1 => Cmp::Ne,
        2 => Cmp::Gt,
        3 => Cmp::Ge,
        4 => Cmp::Lt,
        5 => Cmp::Le,
        _ => die(
            call,
            format_args!("cmp: {cmp} is no comparison; use SHMEM_CMP_EQ, NE, GT, GE, LT or LE"),
        ),
    }
}

/// The state. With all checks on, ends the job where no other PE can write the words.
fn checked<T>(
    call: &'static str,
    argument: &'static str,
    words: *const T,
    count: usize,
) -> &'static State {
    let state = get(call);
    if state.check && count > 0 {
        state.symmetric(call, argument, words as usize, crate::state::bytes::<T>(call, count));
    }
    state
}

/// Waits until the comparison of a word with `value` holds. Gives the value that the word had then.
///
/// # Safety
/// `word` points to a word of the program.
#[inline(always)]
pub unsafe fn wait_for<T: Word>(
    call: &'static str,
    argument: &'static str,
    word: *mut T,
    cmp: c_int,
    value: T,
) -> T {
    let state = checked(call, argument, word, 1);
    let cmp = comparison(call, cmp);
    if state.job.is_recorded() {
        note(state, word, cmp, value);
    }
    // SAFETY: the caller's promise.
    let load = || unsafe { shm::load(word) };
    let words =
        || Shown::of(false, cmp, Some(&value), [(0, word.addr() as u64, load())].into_iter());
    or_die(
        call,
        state.segment.wait_for(words, || {
            let seen = load();
            cmp.holds(seen, value).then_some(seen)
        }),
    )
}

/// Says for a timeline which word is waited for.
#[cold]
fn note<T: Word>(state: &State, word: *const T, cmp: Cmp, value: T) {
    let offset = state.offset(word as usize, size_of::<T>());
    state.segment.note_word(offset, size_of::<T>(), cmp, value.to_bits());
}

#[inline(always)]
pub unsafe fn wait_until<T: Word>(call: &'static str, ivar: *mut T, cmp: c_int, cmp_value: T) {
    // SAFETY: the caller's promise.
    unsafe { wait_for(call, "ivar", ivar, cmp, cmp_value) };
}

/// The words of a call on several words. A word whose status is not 0 does not count.
struct Words<T> {
    words: *const T,
    count: usize,
    status: *const c_int,
    cmp: Cmp,
    value: Value<T>,
}

/// The values with which the words are compared: one for all, or one for each.
enum Value<T> {
    One(T),
    Each(*const T),
}

impl<T: Word> Words<T> {
    /// Whether word `i` counts and its comparison holds.
    fn holds(&self, i: usize) -> bool {
        self.counts(i) && self.compares(i)
    }

    fn counts(&self, i: usize) -> bool {
        // SAFETY: `status` is null, or the program's array with a number for each word.
        self.status.is_null() || unsafe { *self.status.add(i) } == 0
    }

    fn compares(&self, i: usize) -> bool {
        // SAFETY: `i` is below `count`, so this is a word of the program.
        self.cmp.holds(unsafe { shm::load(self.words.add(i)) }, self.value(i))
    }

    /// The value with which word `i` is compared.
    fn value(&self, i: usize) -> T {
        match self.value {
            Value::One(value) => value,
            // SAFETY: the program's array has a value for each word.
            Value::Each(values) => unsafe { *values.add(i) },
        }
    }

    /// Says for a timeline which words are waited for. Of very many, the first.
    fn note(&self, state: &State) {
        const MOST: usize = 64;
        if state.job.is_recorded() {
            for i in (0..self.count).filter(|&i| self.counts(i)).take(MOST) {
                note(state, self.words.wrapping_add(i), self.cmp, self.value(i));
            }
        }
    }

    /// The words that count, as they are now.
    fn show(&self, all: bool) -> Shown {
        let counting: Vec<usize> = (0..self.count).filter(|&i| self.counts(i)).collect();
        let word = |i: usize| {
            let word = self.words.wrapping_add(i);
            // SAFETY: `i` is below `count`, so this is a word of the program.
            (i, word.addr() as u64, unsafe { shm::load(word) })
        };
        let words = counting.into_iter().map(word);
        let wanted = match &self.value {
            Value::One(value) => Some(value),
            Value::Each(_) => None,
        };
        Shown::of(all, self.cmp, wanted, words)
    }

    /// Whether no word counts: nothing to wait for.
    fn none_counts(&self) -> bool {
        !(0..self.count).any(|i| self.counts(i))
    }

    fn all(&self) -> bool {
        (0..self.count).all(|i| !self.counts(i) || self.compares(i))
    }

    /// A word whose comparison holds. The search starts behind the word that this thread found
    /// last, so that repeated calls find each word.
    fn any(&self) -> Option<usize> {
        thread_local! {
            static NEXT: Cell<usize> = const { Cell::new(0) };
        }
        let start = Some(NEXT.get()).filter(|&next| next < self.count).unwrap_or(0);
        let found = (start..self.count).chain(0..start).find(|&i| self.holds(i))?;
        NEXT.set(found + 1);
        Some(found)
    }

    /// Writes the indices of all words whose comparison holds, and gives their number.
    fn some(&self, indices: *mut usize) -> usize {
        let mut found = 0;
        for i in (0..self.count).filter(|&i| self.holds(i)) {
            // SAFETY: the program's array has room for an index of each word.
            unsafe { *indices.add(found) = i };
            found += 1;
        }
        found
    }
}

/// The calls that wait for several words or test them, with one value for all or one for each.
macro_rules! families {
    ($($value:ident $ty:ty, $wrap:expr; $wait_all:ident $wait_any:ident $wait_some:ident $test_all:ident $test_any:ident $test_some:ident;)*) => {$(
        pub unsafe fn $wait_all<T: Word>(call: &'static str, ivars: *mut T, nelems: usize, status: *const c_int, cmp: c_int, $value: $ty) {
            let state = checked(call, "ivars", ivars, nelems);
            let words = Words { words: ivars, count: nelems, status, cmp: comparison(call, cmp), value: $wrap };
            words.note(state);
            // The comparison has held for all words before `seen`, which need no second look.
            let mut seen = 0;
            or_die(call, state.segment.wait_for(|| words.show(true), || {
                while seen < nelems && (!words.counts(seen) || words.compares(seen)) {
                    seen += 1;
                }
                (seen == nelems).then_some(())
            }));
        }

        pub unsafe fn $wait_any<T: Word>(call: &'static str, ivars: *mut T, nelems: usize, status: *const c_int, cmp: c_int, $value: $ty) -> usize {
            let state = checked(call, "ivars", ivars, nelems);
            let words = Words { words: ivars, count: nelems, status, cmp: comparison(call, cmp), value: $wrap };
            words.note(state);
            if words.none_counts() {
                return NONE;
            }
            or_die(call, state.segment.wait_for(|| words.show(false), || words.any()))
        }

        pub unsafe fn $wait_some<T: Word>(
            call: &'static str, ivars: *mut T, nelems: usize, indices: *mut usize, status: *const c_int, cmp: c_int, $value: $ty,
        ) -> usize {
            let state = checked(call, "ivars", ivars, nelems);
            if nelems > 0 {
                check_result(call, "indices", indices);
            }
            let words = Words { words: ivars, count: nelems, status, cmp: comparison(call, cmp), value: $wrap };
            words.note(state);
            if words.none_counts() {
                return 0;
            }
            or_die(call, state.segment.wait_for(|| words.show(false), || Some(words.some(indices)).filter(|&found| found > 0)))
        }

        pub unsafe fn $test_all<T: Word>(call: &'static str, ivars: *mut T, nelems: usize, status: *const c_int, cmp: c_int, $value: $ty) -> c_int {
            let state = checked(call, "ivars", ivars, nelems);
            let words = Words { words: ivars, count: nelems, status, cmp: comparison(call, cmp), value: $wrap };
            c_int::from(state.segment.test(|| words.all().then_some(())).is_some())
        }

        pub unsafe fn $test_any<T: Word>(call: &'static str, ivars: *mut T, nelems: usize, status: *const c_int, cmp: c_int, $value: $ty) -> usize {
            let state = checked(call, "ivars", ivars, nelems);
            let words = Words { words: ivars, count: nelems, status, cmp: comparison(call, cmp), value: $wrap };
            state.segment.test(|| words.any()).unwrap_or(NONE)
        }

        pub unsafe fn $test_some<T: Word>(
            call: &'static str, ivars: *mut T, nelems: usize, indices: *mut usize, status: *const c_int, cmp: c_int, $value: $ty,
        ) -> usize {
            let state = checked(call, "ivars", ivars, nelems);
            if nelems > 0 {
                check_result(call, "indices", indices);
            }
            let words = Words { words: ivars, count: nelems, status, cmp: comparison(call, cmp), value: $wrap };
            state.segment.test(|| Some(words.some(indices)).filter(|&found| found > 0)).unwrap_or(0)
        }
    )*};
}

families! {
    value T, Value::One(value); wait_until_all wait_until_any wait_until_some test_all test_any test_some;
    values *const T, Value::Each(values);
        wait_until_all_vector wait_until_any_vector wait_until_some_vector test_all_vector test_any_vector test_some_vector;
}

#[inline(always)]
pub unsafe fn test<T: Word>(call: &'static str, ivar: *mut T, cmp: c_int, cmp_value: T) -> c_int {
    let state = checked(call, "ivar", ivar, 1);
    let cmp = comparison(call, cmp);
    // SAFETY: `ivar` points to a word of the program.
    let holds = || cmp.holds(unsafe { shm::load(ivar) }, cmp_value);
    c_int::from(state.segment.test(|| holds().then_some(())).is_some())
}
