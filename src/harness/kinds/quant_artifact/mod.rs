//! `quant_artifact`: a folder of packed weights is what it was made from, executes as the same
//! weights packed in memory, moves two identities and no others, survives interruption, and a
//! verification notices a change.

mod bench;
mod checks;
mod gate;
#[cfg(test)]
mod tests;
mod values;

pub(super) use gate::QuantArtifact;
