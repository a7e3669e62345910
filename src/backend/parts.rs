//! Parts of a model, as operations of a rank name them.

/// The experts whose weights are here: consecutive ids among all that a router chooses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExpertSpan {
    pub first: usize,
    pub count: usize,
    /// All experts.
    pub of: usize,
}

impl ExpertSpan {
    /// All experts.
    pub fn all(experts: usize) -> ExpertSpan {
        ExpertSpan { first: 0, count: experts, of: experts }
    }

    /// Whether every expert is here.
    pub fn is_whole(self) -> bool {
        self.count == self.of
    }

    /// The place of an expert among those that are here.
    pub fn place(self, expert: usize) -> Option<usize> {
        expert.checked_sub(self.first).filter(|place| *place < self.count)
    }
}
