//! Arms that this binary does not execute: other builds of the engine, other engines, and what was
//! recorded earlier.
//!
//! * *Another build* (`build:`) is a worker like any other, made from a revision or given as a
//!   binary: every rule holds.
//! * A *live peer* (`command:`) speaks the peer protocol ([`PeerAsk`], [`PeerReply`]). Its samples
//!   stand between those of the baseline; its ratio never decides.
//! * A *recorded* arm is shown beside, without a ratio.

mod build;
mod content;
mod peer;
mod process;
mod recorded;

#[cfg(test)]
mod tests;

pub use build::{ArmBuild, BuildError, resolve_build};
pub use content::folder_digest;
pub use peer::{PEER_PROTOCOL, PeerAsk, PeerOutput, PeerRecord, PeerReply, PeerSample};
pub(super) use process::PeerProcess;
pub use recorded::{BesideRecord, RecordedError, read_recorded};
