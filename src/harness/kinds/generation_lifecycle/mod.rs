//! `generation_lifecycle`: what the generation loop does with its engine, on a scripted one.

mod expected;
mod gate;
#[cfg(test)]
mod tests;

pub(super) use gate::GenerationLifecycle;
