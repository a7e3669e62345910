//! Run: trials in persistent worker processes, results recorded as they come.
//!
//! A trial that panics, hangs, is killed or poisons its process is that trial's error; the worker
//! is replaced and the others go on. Trials of one group run in one worker.

mod client;
mod error;
mod front;
mod launch;
mod printing;
mod protocol;
mod resume;
mod schedule;
mod session;
mod worker;

pub use error::RunError;
pub use front::front;
pub use launch::{Launch, LaunchError, Launched};
pub use resume::{previous, recorded_options};
pub use session::{RunOutcome, Session, SessionOptions};
pub use worker::serve;
