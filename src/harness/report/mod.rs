//! Reports: self-contained HTML pages, a pure function of records and verdicts.

mod decision;
mod format;
mod html;
mod page;
mod plot;

pub use decision::render_decision;
