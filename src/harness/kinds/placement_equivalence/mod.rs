//! `placement_equivalence`: ranks give what one device gives: logits, activations, states, and
//! identities that say so.

mod engines;
mod gate;
mod identity;
#[cfg(test)]
mod tests;
mod trace;

pub(super) use gate::PlacementEquivalence;
