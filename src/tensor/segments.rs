//! Reduction trees: part of the numerical contract, so below every backend.

/// Segments of a reduction over K: the largest of 8, 4, 2 with K mod 64·S = 0, else 1.
///
/// K is that of the logical role, before any sharding, fusion or packing. Each segment is summed by
/// itself; segments are added as a binary tree.
pub fn segments(k: usize) -> usize {
    [8, 4, 2].into_iter().find(|s| k.is_multiple_of(64 * s)).unwrap_or(1)
}

/// Adds leaves as the binary tree over their indices: neighbours first, then pairs of neighbours. The
/// number of leaves is padded to a power of two with leaves that add nothing.
///
/// Parts of a larger tree that are whole subtrees of equal size therefore add up to the bits of the
/// larger tree.
///
/// # Numerics
/// Plain additions in the element type of `add`, left operand the lower index.
pub fn add_as_tree<T>(mut leaves: Vec<T>, add: impl Fn(T, T) -> T) -> Option<T> {
    while leaves.len() > 1 {
        let mut level = Vec::with_capacity(leaves.len().div_ceil(2));
        let mut rest = leaves.into_iter();
        while let Some(left) = rest.next() {
            level.push(match rest.next() {
                Some(right) => add(left, right),
                None => left,
            });
        }
        leaves = level;
    }
    leaves.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_counts() {
        assert_eq!(
            [64, 128, 256, 512, 576, 1536, 176, 17408, 10944].map(segments),
            [1, 2, 4, 8, 1, 8, 1, 8, 1]
        );
    }

    #[test]
    fn the_tree_pairs_neighbours_and_skips_what_is_not_there() {
        let spelt = |n: usize| {
            let leaves = (0..n).map(|i| i.to_string()).collect();
            add_as_tree(leaves, |a, b| format!("({a}{b})")).unwrap_or_default()
        };
        assert_eq!(spelt(8), "(((01)(23))((45)(67)))");
        assert_eq!(spelt(3), "((01)2)");
        assert_eq!(spelt(5), "(((01)(23))4)");
        assert_eq!(spelt(1), "0");
        assert_eq!(spelt(0), "");
    }
}
