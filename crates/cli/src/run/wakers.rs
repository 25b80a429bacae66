//! Threads that wake PEs on the other CPUs of a simulated machine.
//!
//! To wake a process on another CPU that is busy takes several times as long as on the own one. So
//! each of the other CPUs has a thread that wakes the PEs there, at once with the machine, which
//! wakes those on its own CPU.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

use memonet_core::unstable::hosted::Passages;

use super::no_cycles::NoCycles;
use super::seats::bind;

/// Fewer PEs are woken from here: the thread is to be woken, too.
const FEW: usize = 3;

/// Bytes of the stack of such a thread: many times what it needs.
const STACK: usize = 64 << 10;

/// The threads, by CPU, and the way to give PEs to them.
pub struct Wakers {
    passages: Arc<Passages>,
    threads: RefCell<BTreeMap<usize, Option<Sender<Vec<usize>>>>>,
}

impl Wakers {
    pub fn new(passages: Arc<Passages>) -> Wakers {
        Wakers { passages, threads: RefCell::default() }
    }

    /// Wakes PEs.
    pub fn wake(&self, pes: &[usize]) {
        pes.iter().for_each(|&pe| self.passages.wake(pe));
    }

    /// Has PEs woken that sleep on another CPU.
    pub fn wake_there(&self, cpu: usize, pes: Vec<usize>) {
        if pes.len() < FEW {
            return self.wake(&pes);
        }
        let mut threads = self.threads.borrow_mut();
        match threads.entry(cpu).or_insert_with(|| self.start(cpu)) {
            // It ends after the machine.
            Some(thread) => thread.send(pes).expect("a thread that wakes PEs has failed"),
            None => self.wake(&pes),
        }
    }

    /// Starts the thread of a CPU; nothing where no more threads may be started.
    fn start(&self, cpu: usize) -> Option<Sender<Vec<usize>>> {
        let (sender, pes) = channel();
        let passages = self.passages.clone();
        let thread = Builder::new().name(format!("wakes CPU {cpu}")).stack_size(STACK);
        thread.spawn(move || run(cpu, &passages, &pes)).is_ok().then_some(sender)
    }
}

fn run(cpu: usize, passages: &Passages, pes: &Receiver<Vec<usize>>) {
    // From elsewhere it wakes as well, if later.
    let _ = bind(None, cpu);
    let _like_its_pes = NoCycles::begin();
    while let Ok(pes) = pes.recv() {
        pes.into_iter().for_each(|pe| passages.wake(pe));
    }
}
