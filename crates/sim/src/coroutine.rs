//! Programs as coroutines. All PEs run on one thread, each on a stack of its own, one at a time.

use crate::host::Pe;
use crate::program::{Program, Ran, Reply, Request};
use crate::stacks::{Mark, Piece};
use crate::time::Ps;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use memonet_core::unstable::calls::{self, Left};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// The way of one PE's program to the machine.
///
/// Fabrics hold ports, and a program may send a fabric to any thread and keep it for any time. But
/// a PE can be suspended only while its coroutine runs on this thread. So the task names the port
/// that runs here, and calls through any other port are refused.
pub(crate) struct Port {
    pe: u32,
    /// The yielder, on the coroutine's stack. The coroutine sets it before its program starts.
    yielder: AtomicPtr<Yielder<Reply, Request>>,
    /// The PE's time when it last went on, in picoseconds.
    now: AtomicU64,
    /// Whether the PE's requests end in a panic.
    abandoned: AtomicBool,
}

/// What the panic of an abandoned PE carries.
struct Abandoned;

/// Goes on with the call that was left, also where the coroutine is unwound.
struct GoesOn(Option<Left>);

impl Drop for GoesOn {
    fn drop(&mut self) {
        if let Some(left) = self.0.take() {
            // SAFETY: `Port::call` alone makes this and drops it in the same frame, so on the stack
            // where it left the call.
            unsafe { left.resume() };
        }
    }
}

thread_local! {
    /// The port of the PE that runs on this thread; null when none does.
    static RUNNING: Cell<*const Port> = const { Cell::new(null()) };
}

impl Port {
    pub(crate) fn new(pe: u32) -> Arc<Port> {
        Arc::new(Port {
            pe,
            yielder: AtomicPtr::new(null_mut()),
            now: AtomicU64::new(0),
            abandoned: AtomicBool::new(false),
        })
    }

    pub(crate) fn pe(&self) -> u32 {
        self.pe
    }

    /// The PE's time.
    pub(crate) fn now(&self) -> Ps {
        Ps(self.now.load(Ordering::Relaxed))
    }

    /// Hands a request over and returns with the reply, after other PEs have run and time has
    /// passed. Returns nothing when this PE is not the one that runs on this thread.
    pub(crate) fn call(&self, request: Request) -> Option<Reply> {
        if !std::ptr::eq(RUNNING.get(), self) {
            return None;
        }
        // SAFETY: `RUNNING` names this port only between a `resume` of its coroutine on this thread
        // and the suspension or end that follows. So this port's coroutine runs now. It set
        // `yielder` before its program could call anything, and the yielder lives until the
        // coroutine ends.
        let yielder = unsafe { &*self.yielder.load(Ordering::Relaxed) };
        let call = GoesOn(Some(calls::leave()));
        let reply = yielder.suspend(request);
        drop(call);
        self.now.store(reply.now.0, Ordering::Relaxed);
        // A second panic would end the process.
        if self.abandoned.load(Ordering::Relaxed) && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(Abandoned));
        }
        Some(reply)
    }
}

/// Shows the port of the PE that runs on this thread.
pub(crate) fn with_running<R>(f: impl FnOnce(Option<&Port>) -> R) -> R {
    let port = RUNNING.get();
    // SAFETY: `RUNNING` is null, or names a port that `Task::resume` holds while the coroutine runs
    // that calls this function.
    f(unsafe { port.as_ref() })
}

/// A PE's program, started or not, suspended or ended.
pub(crate) struct Task {
    coroutine: Coroutine<Reply, Request, (), Piece>,
    port: Arc<Port>,
    mark: Mark,
}

impl Task {
    /// The PE of `port`, which will run `body`.
    ///
    /// # Safety
    /// What `body` borrows outlives the task.
    pub(crate) unsafe fn new(stack: Piece, port: Arc<Port>, body: impl FnOnce(&Arc<Port>)) -> Task {
        let (mark, own) = (stack.mark(), port.clone());
        let body = move |yielder: &Yielder<Reply, Request>, first: Reply| {
            own.yielder.store(std::ptr::from_ref(yielder).cast_mut(), Ordering::Relaxed);
            own.now.store(first.now.0, Ordering::Relaxed);
            body(&own);
        };
        // SAFETY: requests and replies own their content, and the caller promises that what `body`
        // borrows outlives the task.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, body) };
        Task { coroutine, port, mark }
    }
}

/// Puts back the port that ran before, also when a panic passes.
struct Before(*const Port);

impl Drop for Before {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // Suspended here only after a panic of the engine. Destructors on the coroutine's stack are
        // no part of the PE that may run on this thread.
        let _before = Before(RUNNING.replace(null()));
        self.coroutine.force_unwind();
    }
}

impl Program for Task {
    const ENDS_WITH_RUN: bool = true;

    fn abandon(&mut self) {
        self.port.abandoned.store(true, Ordering::Relaxed);
    }

    fn resume(&mut self, reply: Reply) -> Ran {
        let before = Before(RUNNING.replace(Arc::as_ptr(&self.port)));
        let ran = catch_unwind(AssertUnwindSafe(|| self.coroutine.resume(reply)));
        drop(before);
        // SAFETY: the task holds the coroutine, and the coroutine holds the stack.
        unsafe { self.mark.check(self.port.pe as usize) };
        match ran {
            Ok(CoroutineResult::Yield(request)) => Ran::Asks(request, Ps::ZERO),
            Ok(CoroutineResult::Return(())) => Ran::Ended,
            Err(panic) => Ran::Panicked(panic),
        }
    }

    fn is_nearly_ready(&self) -> bool {
        false
    }

    fn run(_: &mut [Task], _: &[Pe]) -> Vec<Ran> {
        unreachable!("a coroutine runs when it is resumed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Answer;
    use crate::stacks::stacks;

    struct Tells<'a>(&'a Cell<Option<bool>>);

    impl Drop for Tells<'_> {
        fn drop(&mut self) {
            self.0.set(Some(with_running(|port| port.is_some())));
        }
    }

    #[test]
    fn what_unwinds_as_its_task_is_dropped_is_not_the_pe_that_runs() {
        let (told, outer) = (Cell::new(None), Port::new(7));
        let body = |port: &Arc<Port>| {
            let _tells = Tells(&told);
            port.call(Request::IsQuiet);
        };
        let stack = stacks(1, 64 << 10).unwrap().remove(0);
        // SAFETY: the task is dropped before what the body borrows.
        let mut task = unsafe { Task::new(stack, Port::new(0), body) };
        let asks = task.resume(Reply { now: Ps::ZERO, answer: Answer::default() });
        assert!(matches!(asks, Ran::Asks(Request::IsQuiet, _)));
        let _before = Before(RUNNING.replace(Arc::as_ptr(&outer)));
        drop(task);
        assert_eq!(told.get(), Some(false));
        assert_eq!(RUNNING.get(), Arc::as_ptr(&outer));
    }
}
