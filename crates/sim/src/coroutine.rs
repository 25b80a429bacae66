//! Programs as coroutines: all PEs on one thread, each on a stack of its own, exactly one of them
//! running.

use crate::program::{Program, Ran, Reply, Request};
use crate::stacks::{Mark, Piece};
use crate::time::Ps;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The way of one PE's program to the machine.
///
/// Fabrics, which hold it, may be sent to any thread and kept for any time; but only while its
/// coroutine runs on this thread can a PE be suspended. So the engine says who runs here, and
/// everybody else is refused.
pub(crate) struct Port {
    pe: u32,
    /// Set by the coroutine before its program starts; where its yielder is, on its stack.
    yielder: AtomicPtr<Yielder<Reply, Request>>,
    /// The PE's time when it last went on, in picoseconds.
    now: AtomicU64,
}

thread_local! {
    /// The port of the PE that runs on this thread; null when none does.
    static RUNNING: Cell<*const Port> = const { Cell::new(null()) };
}

impl Port {
    pub(crate) fn new(pe: u32) -> Arc<Port> {
        Arc::new(Port { pe, yielder: AtomicPtr::new(null_mut()), now: AtomicU64::new(0) })
    }

    pub(crate) fn pe(&self) -> u32 {
        self.pe
    }

    /// The PE's time.
    pub(crate) fn now(&self) -> Ps {
        Ps(self.now.load(Ordering::Relaxed))
    }

    /// Hands a request over and comes back with the reply, when other PEs have run and time has
    /// passed. Nothing, when it is not this PE that runs on this thread.
    pub(crate) fn call(&self, request: Request) -> Option<Reply> {
        if !std::ptr::eq(RUNNING.get(), self) {
            return None;
        }
        // SAFETY: `RUNNING` names this port only between a `resume` of its coroutine on this thread
        // and the suspension or end that follows, so it is that coroutine which runs; it has set
        // `yielder` before its program could call anything, and the yielder lives until its end.
        let yielder = unsafe { &*self.yielder.load(Ordering::Relaxed) };
        let reply = yielder.suspend(request);
        self.now.store(reply.now.0, Ordering::Relaxed);
        Some(reply)
    }
}

/// Shows the port of the PE that runs on this thread.
pub(crate) fn with_running<R>(f: impl FnOnce(Option<&Port>) -> R) -> R {
    let port = RUNNING.get();
    // SAFETY: set by `Task::resume` to a port that it holds while its coroutine runs, and this is
    // called by that coroutine.
    f(unsafe { port.as_ref() })
}

/// A PE's program, at any point of it.
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
        // SAFETY: request and reply own what they say, and the caller promises that what the body
        // borrows lives longer.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, body) };
        Task { coroutine, port, mark }
    }
}

/// Puts back who ran before, also when a panic passes.
struct Before(*const Port);

impl Drop for Before {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

impl Program for Task {
    fn resume(&mut self, reply: Reply) -> Ran {
        let before = Before(RUNNING.replace(Arc::as_ptr(&self.port)));
        let ran = catch_unwind(AssertUnwindSafe(|| self.coroutine.resume(reply)));
        drop(before);
        // SAFETY: the coroutine, and with it its stack, is still there.
        unsafe { self.mark.check(self.port.pe as usize) };
        match ran {
            Ok(CoroutineResult::Yield(request)) => Ran::Asks(request, Ps::ZERO),
            Ok(CoroutineResult::Return(())) => Ran::Ended,
            Err(panic) => Ran::Panicked(panic),
        }
    }
}
