//! `long_sequence`: a long prompt cut in two and a long continuation, by bits; and with a real
//! model whether its text holds up to the end.

mod bitwise;
mod gate;
mod quality;

#[cfg(test)]
mod tests;

pub(super) use gate::LongSequence;
