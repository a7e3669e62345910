//! Reports: self-contained HTML pages, a pure function of records and verdicts.

mod html;
mod page;
mod plot;
