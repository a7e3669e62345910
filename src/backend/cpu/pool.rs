//! Worker threads that spin briefly and then park.
//!
//! One job at a time: a number of tasks that the submitting thread and the workers claim one by one.
//! A decode step is some hundred jobs of tens of microseconds each, so a worker between two jobs spins
//! for [`SPINS`] turns before it sleeps; and it does sleep soon, because on a busy machine a spinning
//! thread spends the processor time that it needs a moment later (`docs/decisions/0012-worker-pool.md`).
//! A thread that is not running delays others only by the one task it holds: every other task goes to
//! whoever asks next.
//!
//! Which thread executes a task decides nothing about its result.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};

/// Turns (of some 20–45 ns) that a thread waits awake.
const SPINS: u32 = 1500;

/// Low bits of [`Shared::state`] that count unclaimed tasks; the others number the job.
const TASK_BITS: u32 = 24;
const TASK_MASK: u64 = (1 << TASK_BITS) - 1;

/// A pool: the submitting thread and `threads − 1` workers.
pub(super) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<Worker>,
    /// Held while a job runs.
    submitting: Mutex<()>,
}

struct Worker {
    /// Set by the worker before it parks, cleared by whoever wakes it.
    asleep: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

struct Shared {
    /// Number of the job and its unclaimed tasks. Claiming is a compare-and-swap of the whole word, so
    /// a claim that succeeds belongs to the job whose description was read.
    state: AtomicU64,
    /// The job: its tasks, the closure, and the function that calls it.
    count: AtomicUsize,
    closure: AtomicPtr<()>,
    call: AtomicPtr<()>,
    /// Tasks that are finished.
    done: AtomicUsize,
    /// The submitter, when it parks.
    waiting: AtomicBool,
    submitter: Mutex<Option<Thread>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
}

type Call = unsafe fn(*const (), usize);

thread_local! {
    static CURRENT: Cell<*const Pool> = const { Cell::new(ptr::null()) };
}

impl Pool {
    /// A pool of `threads` threads, the caller's included.
    ///
    /// # Errors
    /// When the system starts no more threads.
    pub(super) fn new(threads: usize) -> std::io::Result<Pool> {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            closure: AtomicPtr::new(ptr::null_mut()),
            call: AtomicPtr::new(ptr::null_mut()),
            done: AtomicUsize::new(0),
            waiting: AtomicBool::new(false),
            submitter: Mutex::new(None),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
        });
        let mut pool = Pool { shared, workers: Vec::new(), submitting: Mutex::new(()) };
        for i in 1..threads {
            let asleep = Arc::new(AtomicBool::new(false));
            let (shared, flag) = (pool.shared.clone(), asleep.clone());
            let builder = thread::Builder::new().name(format!("assay-cpu-{i}"));
            // If this fails, dropping the pool ends the workers started so far.
            let handle = builder.spawn(move || work(&shared, &flag))?;
            pool.workers.push(Worker { asleep, handle });
        }
        Ok(pool)
    }

    /// Threads that execute tasks.
    pub(super) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `f` with this pool serving [`run_tasks`] calls on the current thread.
    pub(super) fn install<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Restore(*const Pool);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _restore = Restore(CURRENT.replace(self));
        f()
    }

    /// Executes `f(0) … f(count − 1)`, each once, in any order and on any thread.
    ///
    /// # Panics
    /// With the first panic of a task, once all have ended.
    fn run<F: Fn(usize) + Sync>(&self, count: usize, f: &F) {
        // A job inside a job, or beside one of another thread, runs on its own thread.
        let Ok(_guard) = self.submitting.try_lock() else { return (0..count).for_each(f) };
        if self.workers.is_empty() || count < 2 || count as u64 > TASK_MASK {
            return (0..count).for_each(f);
        }
        /// # Safety
        /// `closure` must be a live `&F`.
        unsafe fn call<F: Fn(usize) + Sync>(closure: *const (), task: usize) {
            // SAFETY: `closure` is the `&F` that `run` published together with this function; `run`
            // returns only when every claimed task has finished.
            unsafe { (*closure.cast::<F>())(task) }
        }
        let shared = &*self.shared;
        shared.count.store(count, Relaxed);
        shared.closure.store(ptr::from_ref(f).cast_mut().cast(), Relaxed);
        shared.call.store(call::<F> as *mut (), Relaxed);
        shared.done.store(0, Relaxed);
        let job = (shared.state.load(Relaxed) >> TASK_BITS).wrapping_add(1);
        shared.state.store(job << TASK_BITS | count as u64, SeqCst);
        for worker in self.workers.iter().take(count - 1) {
            if worker.asleep.load(SeqCst) && worker.asleep.swap(false, SeqCst) {
                worker.handle.thread().unpark();
            }
        }
        while shared.execute_one() {}
        shared.wait_for(count);
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, SeqCst);
        for worker in self.workers.drain(..) {
            worker.handle.thread().unpark();
            // A worker catches its tasks' panics; there is nothing to learn from its end.
            let _ = worker.handle.join();
        }
    }
}

impl Shared {
    /// Claims and executes a task; `false` when none is left.
    fn execute_one(&self) -> bool {
        let mut state = self.state.load(Acquire);
        loop {
            let left = (state & TASK_MASK) as usize;
            if left == 0 {
                return false;
            }
            let (count, closure) = (self.count.load(Relaxed), self.closure.load(Relaxed));
            let call = self.call.load(Relaxed);
            match self.state.compare_exchange_weak(state, state - 1, SeqCst, Acquire) {
                Ok(_) => {
                    // SAFETY: the claim succeeded, so the job is still the one whose `call` and
                    // `closure` were published before `state`; `call` came from a `Call`. The closure
                    // lives until `done` reaches `count`, which needs this task.
                    let result = catch_unwind(AssertUnwindSafe(|| unsafe {
                        let call = std::mem::transmute::<*mut (), Call>(call);
                        call(closure, count - left);
                    }));
                    if let Err(panic) = result {
                        *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
                    }
                    self.finish(count);
                    return true;
                }
                Err(now) => state = now,
            }
        }
    }

    fn finish(&self, count: usize) {
        if self.done.fetch_add(1, SeqCst) + 1 == count && self.waiting.load(SeqCst) {
            let submitter = self.submitter.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(thread) = &*submitter {
                thread.unpark();
            }
        }
    }

    /// Waits until every task has finished.
    fn wait_for(&self, count: usize) {
        for _ in 0..SPINS {
            if self.done.load(Acquire) == count {
                return;
            }
            std::hint::spin_loop();
        }
        *self.submitter.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current());
        self.waiting.store(true, SeqCst);
        while self.done.load(SeqCst) != count {
            thread::park();
        }
        self.waiting.store(false, SeqCst);
    }
}

fn work(shared: &Shared, asleep: &AtomicBool) {
    let mut spins = 0;
    while !shared.stop.load(Relaxed) {
        if shared.execute_one() {
            spins = 0;
        } else if spins < SPINS {
            spins += 1;
            std::hint::spin_loop();
        } else {
            asleep.store(true, SeqCst);
            // Looked at again after the flag is up: a job published before is seen here, one
            // published later sees the flag.
            let idle = shared.state.load(SeqCst) & TASK_MASK == 0;
            if idle && !shared.stop.load(SeqCst) {
                thread::park();
            }
            asleep.store(false, SeqCst);
            spins = 0;
        }
    }
}

/// Executes `f(0) … f(count − 1)` on the pool installed on this thread, or here.
pub(super) fn run_tasks<F: Fn(usize) + Sync>(count: usize, f: &F) {
    // SAFETY: `install` sets the pointer for the duration of a borrow of the pool and restores it.
    match unsafe { CURRENT.get().as_ref() } {
        Some(pool) => pool.run(count, f),
        None => (0..count).for_each(f),
    }
}

/// Threads that [`run_tasks`] uses here.
pub(super) fn current_threads() -> usize {
    // SAFETY: as in `run_tasks`.
    unsafe { CURRENT.get().as_ref() }.map_or(1, Pool::threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(total: &AtomicUsize, by: usize) {
        total.fetch_add(by, Relaxed);
    }

    #[test]
    fn every_task_runs_once_for_any_number_of_threads() {
        for threads in [1, 2, 5] {
            let pool = Pool::new(threads).unwrap();
            assert_eq!(pool.threads(), threads);
            for count in (0..40).chain([1000, 20_000]) {
                let hits: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                pool.install(|| {
                    run_tasks(count, &|i| {
                        hits[i].fetch_add(1, Relaxed);
                    })
                });
                assert!(hits.iter().all(|h| h.load(Relaxed) == 1), "{threads} threads, {count}");
            }
        }
    }

    #[test]
    fn workers_that_sleep_are_woken() {
        let pool = Pool::new(3).unwrap();
        for _ in 0..20 {
            thread::sleep(std::time::Duration::from_millis(2));
            let total = AtomicUsize::new(0);
            pool.install(|| run_tasks(64, &|i| count(&total, i)));
            assert_eq!(total.load(Relaxed), 63 * 32);
        }
    }

    #[test]
    fn a_panic_reaches_the_submitter_and_the_pool_goes_on() {
        let pool = Pool::new(3).unwrap();
        for bad in [0, 13, 99] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.install(|| run_tasks(100, &|i| assert!(i != bad, "task {i}")));
            }));
            let panic = result.unwrap_err();
            assert_eq!(panic.downcast_ref::<String>().unwrap(), &format!("task {bad}"));
            let total = AtomicUsize::new(0);
            pool.install(|| run_tasks(10, &|i| count(&total, i)));
            assert_eq!(total.load(Relaxed), 45);
        }
    }

    #[test]
    fn jobs_inside_jobs_and_beside_each_other_finish() {
        let pool = Pool::new(4).unwrap();
        let total = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    pool.install(|| {
                        for _ in 0..200 {
                            run_tasks(8, &|_| run_tasks(4, &|_| count(&total, 1)));
                        }
                    });
                });
            }
        });
        assert_eq!(total.load(Relaxed), 3 * 200 * 32);
    }

    #[test]
    fn without_a_pool_the_caller_does_the_work() {
        let total = AtomicUsize::new(0);
        run_tasks(5, &|i| count(&total, i));
        assert_eq!((total.load(Relaxed), current_threads()), (10, 1));
    }
}
