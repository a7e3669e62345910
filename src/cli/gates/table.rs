//! Columns that fit a terminal.

pub(super) use crate::cli::table::{count, wrap};

/// Rows of cells, aligned; the last column takes what is left and is cut to `width` columns.
#[derive(Debug, Default)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
    /// Columns aligned to the right.
    right: Vec<usize>,
}

impl Table {
    /// A table with these column heads.
    pub(super) fn new(heads: &[&str], right: &[usize]) -> Table {
        Table { rows: vec![heads.iter().map(|h| (*h).to_owned()).collect()], right: right.to_vec() }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Leaves out columns that have a head and nothing else.
    pub(super) fn drop_empty_columns(&mut self) {
        let columns = self.rows.first().map_or(0, Vec::len);
        for c in (0..columns).rev() {
            if self.rows.iter().skip(1).all(|row| row.get(c).is_none_or(String::is_empty)) {
                for row in self.rows.iter_mut().filter(|row| c < row.len()) {
                    row.remove(c);
                }
                self.right.retain(|at| *at != c);
                self.right.iter_mut().filter(|at| **at > c).for_each(|at| *at -= 1);
            }
        }
    }

    /// The lines, the heads first.
    pub(super) fn lines(&self, width: usize) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let length = |cell: &String| cell.chars().count();
        let widths: Vec<usize> = (0..columns)
            .map(|c| self.rows.iter().filter_map(|r| r.get(c)).map(length).max().unwrap_or(0))
            .collect();
        let line = |row: &Vec<String>| {
            let mut text = String::new();
            for (c, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[c].saturating_sub(length(cell)));
                if c > 0 {
                    text.push_str("  ");
                }
                let (before, after) =
                    if self.right.contains(&c) { (pad, "".into()) } else { ("".into(), pad) };
                text.push_str(&before);
                text.push_str(cell);
                text.push_str(&after);
            }
            cut(text.trim_end(), width)
        };
        self.rows.iter().map(line).collect()
    }
}

/// Text of at most `width` characters, its end marked where it was cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}
