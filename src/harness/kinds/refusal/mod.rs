//! `refusal`: a malformed or contradictory model is refused with exactly this message, and nothing
//! is changed by the attempt.

mod change;
mod gate;
mod tensors;
mod traces;

pub(super) use change::Change;
pub(super) use gate::Refusal;
