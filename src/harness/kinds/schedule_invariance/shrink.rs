//! Shrinks a failing schedule.

use super::schedule::Action;

/// Executions that shrinking may take.
const ATTEMPTS: usize = 400;

/// The smallest schedule found that still fails.
pub(super) fn shrink(
    actions: Vec<Action>,
    fails: &mut dyn FnMut(&[Action]) -> bool,
) -> Vec<Action> {
    let mut best = actions;
    let mut attempts = 0;
    let mut progress = true;
    while progress && attempts < ATTEMPTS {
        progress = false;
        for candidate in candidates(&best) {
            attempts += 1;
            if attempts > ATTEMPTS {
                break;
            }
            if fails(&candidate) {
                best = candidate;
                progress = true;
                break;
            }
        }
    }
    best
}

/// Smaller schedules, the most promising first: halves, single actions, single parts, fewer rows.
fn candidates(actions: &[Action]) -> Vec<Vec<Action>> {
    let n = actions.len();
    let mut all = Vec::new();
    let mut size = n / 2;
    while size >= 1 {
        for start in (0..n).step_by(size).rev() {
            let end = (start + size).min(n);
            all.push([&actions[..start], &actions[end..]].concat());
        }
        size /= 2;
    }
    for (i, action) in actions.iter().enumerate() {
        let Action::Step { parts } = action else { continue };
        let replaced = |parts: Vec<(usize, usize)>| {
            let mut copy = actions.to_vec();
            copy[i] = Action::Step { parts };
            copy
        };
        for p in 0..parts.len() {
            if parts.len() > 1 {
                let mut fewer = parts.clone();
                fewer.remove(p);
                all.push(replaced(fewer));
            }
            if parts[p].1 > 1 {
                for rows in [parts[p].1 / 2, parts[p].1 - 1] {
                    let mut shorter = parts.clone();
                    shorter[p].1 = rows;
                    all.push(replaced(shorter));
                }
            }
        }
    }
    all
}
