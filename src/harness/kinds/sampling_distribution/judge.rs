//! What many draws look like beside the distribution that they must have.

use crate::harness::kind::Outcome;

/// An id whose expected number of draws is at least this must come: it stays away by chance once in 10^13.
const CERTAIN_DRAWS: f64 = 30.0;

/// How often each id came out of `draws` calls.
pub(super) fn observe(
    ids: usize,
    draws: u64,
    draw: &mut dyn FnMut() -> Result<u32, String>,
) -> Result<Vec<u64>, String> {
    let mut counts = vec![0u64; ids];
    for n in 0..draws {
        let id = draw().map_err(|e| format!("draw {n} was refused: {e}"))?;
        match counts.get_mut(id as usize) {
            Some(count) => *count += 1,
            None => return Err(format!("draw {n} gave id {id} of {ids}")),
        }
    }
    Ok(counts)
}

pub(super) fn judge(counts: &[u64], expected: &[f64], max_deviation: f64) -> Outcome {
    let draws: u64 = counts.iter().sum();
    let mut worst = (0.0, 0);
    let mut running_worst = (0.0, 0);
    let (mut running, mut running_expected) = (0.0, 0.0);
    let (mut massless, mut lost) = (None, None);
    for (id, (count, p)) in counts.iter().zip(expected).enumerate() {
        let share = *count as f64 / draws as f64;
        running += share;
        running_expected += p;
        if (share - p).abs() > worst.0 {
            worst = ((share - p).abs(), id);
        }
        if (running - running_expected).abs() > running_worst.0 {
            running_worst = ((running - running_expected).abs(), id);
        }
        if *p == 0.0 && *count > 0 {
            massless = massless.or(Some(id));
        }
        if *count == 0 && p * draws as f64 >= CERTAIN_DRAWS {
            lost = lost.or(Some(id));
        }
    }
    let message = match (massless, lost) {
        (Some(id), _) => format!("id {id} has no mass and was drawn {} times", counts[id]),
        (None, Some(id)) => {
            format!("id {id} has the share {:.5} and never came in {draws} draws", expected[id])
        }
        _ if worst.0 > max_deviation => format!(
            "expected a share of {:.5} for id {}, found {:.5} in {draws} draws: off by more than \
             {max_deviation}",
            expected[worst.1],
            worst.1,
            counts[worst.1] as f64 / draws as f64
        ),
        _ if running_worst.0 > max_deviation => format!(
            "the share of ids up to {} is off by {:.5}, more than {max_deviation}, in {draws} draws",
            running_worst.1, running_worst.0
        ),
        _ => String::new(),
    };
    let outcome = if message.is_empty() {
        Outcome::pass(format!(
            "largest deviation {:.5} in {draws} draws",
            worst.0.max(running_worst.0)
        ))
    } else {
        Outcome::fail(message)
    };
    outcome
        .with("draws", draws)
        .number("largest_share_deviation", worst.0)
        .number("largest_running_deviation", running_worst.0)
}
