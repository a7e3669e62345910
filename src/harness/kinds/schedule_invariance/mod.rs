//! `schedule_invariance`: every row of a random schedule of many sequences has the bits of serial
//! token-by-token execution.

mod execute;
mod gate;
mod schedule;
mod serial;
mod shrink;
#[cfg(test)]
mod tests;

pub(super) use gate::ScheduleInvariance;
