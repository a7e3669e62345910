//! One thing found out about the machine.

use serde::Serialize;

/// How good what was found is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There, and used.
    Ok,
    /// There, with a restriction.
    Limited,
    /// Not there, and something is lost by it.
    Missing,
    /// Could not be read.
    Unavailable,
}

impl State {
    /// The word for a person.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Missing => "missing",
            State::Unavailable => "unavailable",
        }
    }
}

/// One thing found out about the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about, one or two words.
    pub topic: &'static str,
    pub state: State,
    /// What was found.
    pub found: String,
    /// What the restriction or the absence costs.
    pub costs: Option<String>,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Finding {
    /// Something that is there.
    pub(super) fn ok(topic: &'static str, found: impl Into<String>) -> Finding {
        Finding { topic, state: State::Ok, found: found.into(), costs: None, remedy: None }
    }

    /// Something in another state.
    pub(super) fn new(topic: &'static str, state: State, found: impl Into<String>) -> Finding {
        Finding { state, ..Finding::ok(topic, found) }
    }

    /// Adds what it costs.
    pub(super) fn costs(mut self, costs: impl Into<String>) -> Finding {
        self.costs = Some(costs.into());
        self
    }

    /// Adds what to do about it.
    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Finding {
        self.remedy = Some(remedy.into());
        self
    }
}
