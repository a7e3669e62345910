//! Suggestions for misspelt names.

/// The candidate nearest to `word`, if one is near enough to be what was meant: at most a quarter of
/// its letters (and at least one) inserted, removed, replaced or swapped.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 4).max(1);
    candidates
        .into_iter()
        .filter(|c| c.len().abs_diff(word.len()) <= limit * 4)
        .map(|c| (distance(word, c), c))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, c)| c)
}

/// Optimal string alignment distance.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        let keys = ["rope_theta", "rope_scaling", "hidden_size"];
        assert_eq!(nearest("rope_tehta", keys), Some("rope_theta"));
        assert_eq!(nearest("hidden_sizes", keys), Some("hidden_size"));
        assert_eq!(nearest("frobnicate", keys), None);
        assert_eq!(nearest("", keys), None);
    }
}
