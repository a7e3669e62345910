//! `collective`: ranks that add get the sum by definition, whoever arrives first, in every element
//! type.

mod gate;
mod oracle;
#[cfg(test)]
mod tests;

pub(super) use gate::Collective;
