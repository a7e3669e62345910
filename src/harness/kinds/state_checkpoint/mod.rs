//! `state_checkpoint`: truncation, checkpoints and forks return exactly to where they say.

mod checks;
mod gate;

pub(super) use checks::{CHECKS, Stage};
pub(super) use gate::StateCheckpoint;
