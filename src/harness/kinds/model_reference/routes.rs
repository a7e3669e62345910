//! Where a policy that rounds to BF16 sends tokens to other experts than `f32` does.
//!
//! A rounding may swap the last expert chosen, and the row then computes something else altogether. Rows
//! before the first such flip of a sequence are not touched by any, and have bounds of their own.

use crate::backend::{RowWant, Tap, Taps};
use crate::harness::kinds::loaded::Loaded;
use std::collections::BTreeMap;

/// The rows of `tokens` before the first in which some layer of `tested` chooses other experts than the same
/// layer of `exact`; all of them where there is none, or where the model has no experts.
///
/// # Errors
/// An engine refuses the tokens.
pub(super) fn rows_before_a_flip(
    exact: &Loaded,
    tested: &Loaded,
    tokens: &[u32],
) -> Result<usize, String> {
    let chosen = |loaded: &Loaded| {
        let mut taps = Taps::standard();
        let mut sequence = loaded.sequence()?;
        loaded.rows(&mut sequence, tokens, RowWant::Nothing, Some(&mut taps))?;
        Ok::<_, String>(experts(taps.captured()))
    };
    Ok(first_flip(&chosen(exact)?, &chosen(tested)?).unwrap_or(tokens.len()))
}

/// Chosen experts of every row, ascending, of every layer that has some.
type Choices = BTreeMap<String, Vec<Vec<u32>>>;

fn experts(captured: &BTreeMap<String, Tap>) -> Choices {
    let layers = captured.iter().filter(|(name, _)| name.ends_with(".router_index"));
    let sorted = |row: &[f32]| {
        let mut ids: Vec<u32> = row.iter().map(|id| *id as u32).collect();
        ids.sort_unstable();
        ids
    };
    layers
        .map(|(name, tap)| {
            (name.clone(), tap.values.chunks(tap.width.max(1)).map(sorted).collect())
        })
        .collect()
}

/// The first row in which some layer differs.
fn first_flip(exact: &Choices, tested: &Choices) -> Option<usize> {
    let layers = exact.iter().filter_map(|(name, rows)| Some((rows, tested.get(name)?)));
    layers.filter_map(|(a, b)| a.iter().zip(b).position(|(a, b)| a != b)).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_flip_of_any_layer_counts_and_order_does_not() {
        let layer = |values: &[f32]| Tap { width: 2, values: values.to_vec() };
        let choices = |a: &[f32], b: &[f32]| {
            experts(&BTreeMap::from([
                ("layers.0.router_index".to_owned(), layer(a)),
                ("layers.1.router_index".to_owned(), layer(b)),
                ("layers.1.router_weight".to_owned(), layer(&[0.5; 6])),
            ]))
        };
        let exact = choices(&[0., 1., 2., 3., 4., 5.], &[6., 7., 0., 1., 2., 3.]);
        assert_eq!(exact.len(), 2);
        let same = choices(&[1., 0., 3., 2., 5., 4.], &[7., 6., 1., 0., 3., 2.]);
        assert_eq!(first_flip(&exact, &same), None);
        let late = choices(&[0., 1., 2., 3., 4., 6.], &[6., 7., 0., 2., 2., 3.]);
        assert_eq!(first_flip(&exact, &late), Some(1));
    }
}
