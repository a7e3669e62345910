//! Which comparisons two manifests admit.

use crate::engine::manifest::{BlockName, ManifestDifference};

/// The half of provenance that a strict comparison lets differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Across {
    /// Two commits on one machine.
    Builds,
    /// One build on two machines.
    Machines,
}

impl Across {
    /// As the command line spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Across::Builds => "builds",
            Across::Machines => "machines",
        }
    }

    fn block(self) -> BlockName {
        match self {
            Across::Builds => BlockName::Build,
            Across::Machines => BlockName::Run,
        }
    }
}

/// What a comparison is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Two results claim to be the same.
    Strict {
        across: Option<Across>,
        /// A difference of placement alone is a scoped exception instead of a refusal.
        deployment_scoped: bool,
    },
    /// A deliberate difference is looked at; never a pass.
    Diagnostic,
}

impl Mode {
    /// Strict, without exceptions.
    pub const STRICT: Mode = Mode::Strict { across: None, deployment_scoped: false };
}

/// What two manifests admit under a mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The comparison is one of like with like; allowed differences are named.
    Admitted { shown: Vec<String> },
    /// Like with like, but for where it ran.
    Scoped { shown: Vec<String> },
    /// The two cannot be compared honestly; every reason is given.
    Refused { reasons: Vec<String> },
    /// Everything is shown and nothing is claimed.
    Diagnostic,
}

/// Decides about two manifests.
///
/// Storage is never looked at: the same weights in another file layout are the same weights.
pub fn admit(difference: &ManifestDifference, mode: Mode) -> Admission {
    let Mode::Strict { across, deployment_scoped } = mode else {
        return Admission::Diagnostic;
    };
    let allowed = across.map(Across::block);
    let (mut reasons, mut shown, mut scoped) = (Vec::new(), Vec::new(), false);
    for block in &difference.blocks {
        let name = block.name;
        if name == BlockName::Storage || block.equal() && block.unestablished.is_empty() {
            continue;
        }
        let differs =
            || format!("{name} differs in {}", paths(block.fields.iter().map(|f| &f.path)));
        if allowed == Some(name) {
            // The half that was named may differ, and need not be known in full.
            shown.extend((!block.equal()).then(differs));
            shown.extend(not_established(name, &block.unestablished));
            continue;
        }
        if !block.equal() && name == BlockName::Deployment && deployment_scoped {
            scoped = true;
            shown.push(differs());
        } else if !block.equal() {
            reasons.push(differs());
        }
        reasons.extend(not_established(name, &block.unestablished));
    }
    match (reasons.is_empty(), scoped) {
        (false, _) => Admission::Refused { reasons },
        (true, true) => Admission::Scoped { shown },
        (true, false) => Admission::Admitted { shown },
    }
}

fn not_established(name: BlockName, open: &[String]) -> Option<String> {
    (!open.is_empty()).then(|| format!("{name} does not establish {}", paths(open.iter())))
}

/// A few paths by name, the rest counted.
fn paths<'a>(paths: impl Iterator<Item = &'a String>) -> String {
    const SHOWN: usize = 3;
    let paths: Vec<&str> = paths.map(String::as_str).collect();
    let named = paths.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match paths.len().saturating_sub(SHOWN) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
