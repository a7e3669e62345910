//! `descriptor_echo`: the engine holds exactly the descriptor that it was given, and a change of any
//! key is held or refused.

mod change;
mod gate;
#[cfg(test)]
mod tests;

pub(super) use gate::DescriptorEcho;
