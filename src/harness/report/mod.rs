//! Reports: self-contained HTML pages, a pure function of records and verdicts.
//!
//! Pages need no network and no script. Every string from a file or a model is escaped by
//! construction (`html`), and a page renders to the same bytes from the same record.

mod compare;
mod decision;
mod environment;
mod error_rates;
mod files;
mod format;
mod gates;
mod html;
mod index;
mod page;
mod plot;
mod store;
mod survey;
#[cfg(test)]
mod testing;

pub use compare::{
    Admissible, Change, DecisionComparison, EvidenceChange, Fact, Found, GateComparison, RatioPair,
    RunComparison, Side, TrialChange, ValuePair, compare_runs, render_comparison,
};
pub use decision::render_decision;
use environment::environment;
pub use error_rates::render_error_rates;
pub use files::{junit_of, markdown_of};
pub use gates::render_gate_run;
pub use store::{Checked, ReportError, check_reports, render_report, write_report};
pub use survey::render_survey;
