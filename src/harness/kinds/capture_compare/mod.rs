//! `capture_compare`: two captures are recorded, one of them with a single difference, and their
//! comparison ends as the table of modes says.

mod edit;
mod gate;
mod recorded;
#[cfg(test)]
mod tests;

pub(super) use gate::CaptureCompare;
