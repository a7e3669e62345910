//! Sums of counts that were read from files.

/// The sum, or the largest count there is where it is beyond: a record may hold any number.
///
/// ```
/// assert_eq!(assay::units::total([1, 2]), 3);
/// assert_eq!(assay::units::total([u64::MAX, 1]), u64::MAX);
/// ```
pub fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}
