//! `sampling_replay`: the exact side of sampling. Known random words, known tokens and
//! log-probabilities, boundaries of the selection, what consumes a random word and what is refused
//! before anything is opened.

mod check;
mod command;
mod gate;
mod spec;
#[cfg(test)]
mod tests;

pub(super) use gate::SamplingReplay;
