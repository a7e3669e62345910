//! Which ranks of a stage meet.

/// Which ranks meet in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RankGroup {
    /// Those that divide heads and rows.
    Tensor,
    /// Those that divide experts.
    Expert,
}

impl RankGroup {
    /// The name in output.
    pub fn as_str(self) -> &'static str {
        match self {
            RankGroup::Tensor => "tensor",
            RankGroup::Expert => "expert",
        }
    }
}
