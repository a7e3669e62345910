//! The progress bar of long commands.

use crate::cli::Console;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar over bytes, on a terminal.
pub(super) fn bar(console: &Console, doing: &str) -> ProgressBar {
    if !console.progress() {
        return ProgressBar::hidden();
    }
    let template = format!(
        "{doing} {{bar:30}} {{binary_bytes}}/{{binary_total_bytes}} {{binary_bytes_per_sec}} {{eta}}"
    );
    let style = ProgressStyle::with_template(&template);
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
