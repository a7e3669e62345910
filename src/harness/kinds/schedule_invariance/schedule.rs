//! Random schedules: who joins, which rows make a step, who goes back.

use crate::units::SplitMix64;
use std::fmt;

/// One action. Slots that hold no sequence are skipped, so that any part of a schedule is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A new sequence takes the slot; its tokens come from a stream of content.
    Join {
        slot: usize,
        stream: u64,
    },
    /// The slot's sequence goes.
    Leave {
        slot: usize,
    },
    /// One step: rows of several sequences.
    Step {
        parts: Vec<(usize, usize)>,
    },
    /// The sequence forgets its last tokens (the engine may refuse what history does not reach).
    Truncate {
        slot: usize,
        tokens: usize,
    },
    /// A copy of the sequence takes another slot.
    Fork {
        from: usize,
        to: usize,
    },
    Checkpoint {
        slot: usize,
    },
    Restore {
        slot: usize,
    },
    /// Later tokens come from another stream.
    Divert {
        slot: usize,
        stream: u64,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Join { slot, stream } => write!(f, "join s{slot} stream {stream}"),
            Action::Leave { slot } => write!(f, "leave s{slot}"),
            Action::Step { parts } => {
                let parts: Vec<String> = parts.iter().map(|(s, n)| format!("s{s}+{n}")).collect();
                write!(f, "step {}", parts.join(" "))
            }
            Action::Truncate { slot, tokens } => write!(f, "truncate s{slot} by {tokens}"),
            Action::Fork { from, to } => write!(f, "fork s{from} to s{to}"),
            Action::Checkpoint { slot } => write!(f, "checkpoint s{slot}"),
            Action::Restore { slot } => write!(f, "restore s{slot}"),
            Action::Divert { slot, stream } => write!(f, "divert s{slot} to stream {stream}"),
        }
    }
}

/// Streams of token content; few, so that serial execution of a prefix is shared.
pub(super) const STREAMS: u64 = 6;

/// The token of a stream at a position.
pub(super) fn token(stream: u64, position: usize, vocab: usize) -> u32 {
    let word = SplitMix64::new((stream << 32) | position as u64).next_word();
    (word % vocab as u64) as u32
}

/// What a schedule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Up to eight sequences, everything mixed.
    Mixed,
    /// 16 to 64 sequences.
    Crowd,
    /// A sequence past 520 tokens.
    Long,
}

impl Class {
    /// Two of ten seeds are crowds, two are long.
    pub(super) fn of(seed: u64) -> Class {
        match seed % 10 {
            0 | 5 => Class::Crowd,
            1 | 6 => Class::Long,
            _ => Class::Mixed,
        }
    }
}

/// The schedule of a seed.
pub(super) fn generate(seed: u64) -> Vec<Action> {
    let mut g =
        Generator { rng: SplitMix64::new(seed.wrapping_mul(0x9e37) ^ 0xa55a), actions: Vec::new() };
    match Class::of(seed) {
        Class::Mixed => g.mixed(),
        Class::Crowd => g.crowd(),
        Class::Long => g.long(),
    }
    g.actions
}

struct Generator {
    rng: SplitMix64,
    actions: Vec<Action>,
}

impl Generator {
    /// A number in `low ..= high`.
    fn pick(&mut self, low: usize, high: usize) -> usize {
        low + (self.rng.next_word() % (high - low + 1) as u64) as usize
    }

    fn stream(&mut self) -> u64 {
        self.rng.next_word() % STREAMS
    }

    fn join(&mut self, slot: usize) {
        let stream = self.stream();
        self.actions.push(Action::Join { slot, stream });
    }

    /// A chunk of 1 … 200 rows, mostly small, often near a multiple of 64.
    fn chunk(&mut self) -> usize {
        match self.pick(0, 9) {
            0..=4 => 1,
            5 => self.pick(2, 9),
            6 => self.pick(10, 62),
            7 => self.pick(63, 65),
            8 => self.pick(1, 200),
            _ => self.pick(127, 130),
        }
    }

    /// Something that is no step.
    fn disturb(&mut self, slots: usize) {
        let slot = self.pick(0, slots - 1);
        let action = match self.pick(0, 9) {
            0 => Action::Leave { slot },
            1 | 2 => Action::Truncate { slot, tokens: self.pick(1, 70) },
            3 => Action::Fork { from: slot, to: self.pick(0, slots - 1) },
            4 | 5 => Action::Checkpoint { slot },
            6 | 7 => Action::Restore { slot },
            8 => Action::Divert { slot, stream: self.stream() },
            _ => Action::Join { slot, stream: self.stream() },
        };
        let left = action == Action::Leave { slot };
        self.actions.push(action);
        if left && self.pick(0, 3) > 0 {
            self.join(slot);
        }
    }

    fn mixed(&mut self) {
        let slots = self.pick(1, 8);
        (0..slots).for_each(|slot| self.join(slot));
        let mut rows = 0;
        let budget = self.pick(60, 380);
        while rows < budget {
            let mut parts = Vec::new();
            for slot in 0..slots {
                if self.pick(0, 2) > 0 {
                    let n = self.chunk().min(budget - rows.min(budget - 1));
                    rows += n;
                    parts.push((slot, n));
                }
            }
            self.actions.push(Action::Step { parts });
            if self.pick(0, 2) == 0 && slots > 1 {
                self.disturb(slots);
            }
        }
    }

    fn crowd(&mut self) {
        let slots = self.pick(16, 64);
        (0..slots).for_each(|slot| self.join(slot));
        let steps = (360 / slots).max(4);
        for _ in 0..steps {
            let parts = (0..slots)
                .map(|slot| (slot, if self.pick(0, 15) == 0 { self.pick(2, 12) } else { 1 }))
                .collect();
            self.actions.push(Action::Step { parts });
            self.disturb(slots);
        }
    }

    fn long(&mut self) {
        let slots = self.pick(1, 3);
        (0..slots).for_each(|slot| self.join(slot));
        let mut position = 0;
        while position < 525 {
            let n = self.pick(20, 200);
            position += n;
            let mut parts = vec![(0, n)];
            parts.extend((1..slots).map(|slot| (slot, 1)));
            self.actions.push(Action::Step { parts });
            if self.pick(0, 3) == 0 {
                let tokens = self.pick(1, 40);
                position -= tokens.min(position);
                self.actions.push(Action::Truncate { slot: 0, tokens });
            }
        }
        for _ in 0..self.pick(3, 12) {
            self.actions.push(Action::Step { parts: (0..slots).map(|slot| (slot, 1)).collect() });
        }
    }
}
