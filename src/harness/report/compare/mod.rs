//! Two runs side by side: what got worse, what got better, and whether their numbers may be
//! divided at all.

mod decisions;
mod gates;
mod page;
mod runs;
mod section;

#[cfg(test)]
mod tests;

pub use decisions::{Admissible, DecisionComparison, RatioPair, ValuePair};
pub use gates::{Change, EvidenceChange, GateComparison, TrialChange};
pub use page::render_comparison;
pub use runs::{Fact, Found, RunComparison, Side, compare_runs};
