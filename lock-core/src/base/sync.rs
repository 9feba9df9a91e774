//! A mutex that cannot fail, and steps that are postponed until no mutex is locked.
//!
//! A waker is code of the user. It may run the task that it wakes, or drop it, and the task then calls this crate again. So no
//! waker is called while its thread has a mutex of this crate locked.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Postponed = Box<dyn FnOnce()>;

/// In [`LOCKED`]: something is postponed.
const ANY_POSTPONED: u32 = 1 << 31;
/// In [`LOCKED`]: the thread runs the postponed steps. A step that is postponed meanwhile runs after them, not inside them.
const CATCHES_UP: u32 = 1 << 30;

thread_local! {
    /// Number of mutexes of this crate that the thread has locked, [`ANY_POSTPONED`] and [`CATCHES_UP`].
    static LOCKED: Cell<u32> = const { Cell::new(0) };
    static POSTPONED: RefCell<VecDeque<Postponed>> = const { RefCell::new(VecDeque::new()) };
}

/// Locks, also after a panic elsewhere: nothing in this crate is left half-changed under a lock, and a guard
/// that is dropped while unwinding must not panic again.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> Locked<'_, T> {
    let value = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    LOCKED.set(LOCKED.get() + 1);
    Locked {
        value,
        _depth: Depth,
    }
}

/// Runs a step at once, or as soon as the thread has no mutex of this crate locked any more.
pub(crate) fn when_unlocked(step: impl FnOnce() + 'static) {
    if LOCKED.get() == 0 {
        return step();
    }
    let mut step = Some(step);
    let _ = POSTPONED.try_with(|postponed| {
        if let Some(step) = step.take() {
            postponed.borrow_mut().push_back(Box::new(step));
            LOCKED.set(LOCKED.get() | ANY_POSTPONED);
        }
    });
    // The thread ends: nothing can be kept for it.
    if let Some(step) = step {
        step();
    }
}

#[cold]
fn catch_up() {
    LOCKED.set(CATCHES_UP);
    let _until_panic = CatchesUp;
    loop {
        let next = POSTPONED.try_with(|postponed| postponed.borrow_mut().pop_front());
        let Some(step) = next.ok().flatten() else {
            break;
        };
        step();
    }
}

struct CatchesUp;

impl Drop for CatchesUp {
    fn drop(&mut self) {
        // A step that panics leaves the others to the next unlock.
        let is_left = POSTPONED.try_with(|postponed| !postponed.borrow().is_empty());
        let any = is_left == Ok(true);
        LOCKED.set(if any { ANY_POSTPONED } else { 0 });
    }
}

/// Whether this thread has no mutex of this crate locked.
pub(crate) fn is_unlocked() -> bool {
    LOCKED.get() & !(ANY_POSTPONED | CATCHES_UP) == 0
}

/// The value of a locked mutex.
pub(crate) struct Locked<'a, T: ?Sized> {
    // Dropped first: the mutex is unlocked when the postponed steps are done.
    value: MutexGuard<'a, T>,
    _depth: Depth,
}

impl<T: ?Sized> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: ?Sized> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

struct Depth;

impl Drop for Depth {
    fn drop(&mut self) {
        let left = LOCKED.get() - 1;
        LOCKED.set(left);
        if left == ANY_POSTPONED {
            catch_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn what_is_postponed_is_done_when_the_last_mutex_is_unlocked() {
        let (one, two) = (Mutex::new(0), Mutex::new(0));
        let done = Rc::new(Cell::new(0));
        let count = |done: &Rc<Cell<u32>>| {
            let done = Rc::clone(done);
            move || done.set(done.get() + 1)
        };
        when_unlocked(count(&done));
        assert_eq!(done.get(), 1, "at once");
        let first = lock(&one);
        let second = lock(&two);
        when_unlocked(count(&done));
        drop(first);
        assert_eq!(done.get(), 1);
        drop(second);
        assert_eq!(done.get(), 2);
    }

    #[test]
    fn what_is_postponed_meanwhile_comes_next() {
        let mutex = Rc::new(Mutex::new(Vec::new()));
        let inner = Rc::clone(&mutex);
        let locked = lock(&mutex);
        when_unlocked(move || {
            let last = Rc::clone(&inner);
            when_unlocked(move || lock(&last).push(2));
            lock(&inner).push(1);
        });
        drop(locked);
        assert_eq!(*lock(&mutex), [1, 2]);
    }

    #[test]
    fn a_step_that_panics_leaves_the_others_to_the_next_unlock() {
        let mutex = Mutex::new(());
        let done = Rc::new(Cell::new(false));
        let locked = lock(&mutex);
        when_unlocked(|| panic!("on purpose"));
        let later = Rc::clone(&done);
        when_unlocked(move || later.set(true));
        let unlocked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(locked)));
        assert!(unlocked.is_err() && !done.get());
        drop(lock(&mutex));
        assert!(done.get());
    }
}
