//! Which rows of a step are prefill.

use crate::backend::{Phase, Span};
use std::ops::Range;

/// Rows of prefill, as ascending ranges that do not touch; all other rows are decode.
#[derive(Clone, Debug, Default)]
pub(super) struct Phases(Vec<Range<usize>>);

impl Phases {
    /// From ascending row ranges and whether each is prefill.
    pub(super) fn of(rows: impl IntoIterator<Item = (Range<usize>, bool)>) -> Phases {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for (range, _) in rows.into_iter().filter(|(_, prefill)| *prefill) {
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        Phases(ranges)
    }

    /// The phases of the spans of a step.
    pub(super) fn of_spans(spans: &[Span], phases: &[Phase]) -> Phases {
        let rows = spans.iter().zip(phases);
        Phases::of(rows.map(|(span, phase)| (span.rows.clone(), *phase == Phase::Prefill)))
    }

    /// The phases of some rows, in ascending order, renumbered from 0.
    pub(super) fn select(&self, rows: &[usize]) -> Phases {
        let prefill = |row: &usize| self.0.iter().any(|range| range.contains(row));
        Phases::of(rows.iter().enumerate().map(|(i, row)| (i..i + 1, prefill(row))))
    }

    /// Every row of `0..rows` once, in maximal ranges of one phase; `true` for prefill.
    pub(super) fn runs(&self, rows: usize) -> Vec<(Range<usize>, bool)> {
        let mut runs = Vec::new();
        let mut at = 0;
        for range in self.0.iter().filter(|range| range.start < rows) {
            let end = range.end.min(rows);
            if at < range.start {
                runs.push((at..range.start, false));
            }
            runs.push((range.start..end, true));
            at = end;
        }
        if at < rows {
            runs.push((at..rows, false));
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_every_row_once() {
        let phases = Phases::of([(0..2, false), (2..5, true), (5..6, true), (8..9, true)]);
        let expected =
            vec![(0..2, false), (2..6, true), (6..8, false), (8..9, true), (9..11, false)];
        assert_eq!(phases.runs(11), expected);
        assert_eq!(phases.runs(4), vec![(0..2, false), (2..4, true)]);
        assert_eq!(Phases::default().runs(3), vec![(0..3, false)]);
        assert_eq!(Phases::default().runs(0), vec![]);
        let selected = phases.select(&[1, 4, 5, 7, 8]);
        assert_eq!(
            selected.runs(5),
            vec![(0..1, false), (1..3, true), (3..4, false), (4..5, true)]
        );
    }
}
