//! Which trial a worker takes next.

use std::collections::VecDeque;

/// A trial waiting to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Index in the plan.
    pub(super) trial: usize,
    pub(super) group: Option<String>,
}

/// The queue of a run. Trials of a group go to the worker that has it; a group that no worker has
/// is taken by the first worker that is free.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Groups that some worker holds.
    held: Vec<(usize, String)>,
}

impl Queue {
    /// A queue in this order.
    pub(super) fn new(waiting: Vec<Waiting>) -> Queue {
        Queue { waiting: waiting.into(), held: Vec::new() }
    }

    /// Mixes the order, the same for the same seed.
    pub(super) fn shuffle(&mut self, seed: u64) {
        let mut random = crate::units::SplitMix64::new(seed);
        for i in (1..self.waiting.len()).rev() {
            let j = (random.next_word() % (i as u64 + 1)) as usize;
            self.waiting.swap(i, j);
        }
    }

    /// The next trial for a worker; `None`: nothing is left for it.
    pub(super) fn take(&mut self, worker: usize) -> Option<Waiting> {
        let mine = |held: &[(usize, String)], group: &str| {
            held.iter().any(|(w, g)| *w == worker && g == group)
        };
        let free = |held: &[(usize, String)], group: &str| held.iter().all(|(_, g)| g != group);
        type Held<'a> = &'a dyn Fn(&[(usize, String)], &str) -> bool;
        let in_group = |queue: &Queue, test: Held<'_>| {
            queue
                .waiting
                .iter()
                .position(|w| w.group.as_deref().is_some_and(|group| test(&queue.held, group)))
        };
        let at = in_group(self, &mine).or_else(|| {
            self.waiting.iter().position(|w| match &w.group {
                None => true,
                Some(group) => free(&self.held, group),
            })
        })?;
        let next = self.waiting.remove(at)?;
        self.held.retain(|(w, _)| *w != worker);
        self.held.extend(next.group.clone().map(|group| (worker, group)));
        Some(next)
    }

    /// Forgets a worker that ran out of work, so that others may take its group.
    pub(super) fn leave(&mut self, worker: usize) {
        self.held.retain(|(w, _)| *w != worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(groups: &[&str]) -> Queue {
        let group = |g: &&str| (!g.is_empty()).then(|| (*g).to_owned());
        Queue::new(
            groups
                .iter()
                .enumerate()
                .map(|(trial, g)| Waiting { trial, group: group(g) })
                .collect(),
        )
    }

    #[test]
    fn a_group_stays_with_its_worker() {
        let mut queue = queue(&["a", "a", "b", "", "a", "b"]);
        let mut take = |worker| queue.take(worker).map(|w| w.trial);
        assert_eq!(take(0), Some(0));
        assert_eq!(take(1), Some(2), "`a` is held, `b` is free");
        assert_eq!(take(1), Some(5));
        assert_eq!(take(1), Some(3));
        assert_eq!(take(1), None, "what is left belongs to the other worker");
        assert_eq!(take(0), Some(1));
        assert_eq!(take(0), Some(4));
        assert_eq!(take(0), None);
    }

    #[test]
    fn a_shuffle_is_replayable_and_loses_nothing() {
        let order = |seed| {
            let mut queue = queue(&[""; 50]);
            queue.shuffle(seed);
            std::iter::from_fn(|| queue.take(0)).map(|w| w.trial).collect::<Vec<_>>()
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
        let mut sorted = order(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
    }
}
