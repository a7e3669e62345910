//! The gate: its keys, its trials.

use super::check::Check;
use super::reference::Reference;
use super::subject::Subject;
use crate::harness::kind::{
    Case, Cell, DeviceUse, Fault, GateKind, KindSpec, Outcome, PlanScope, PolicyUse, RunContext,
};
use serde::Deserialize;
use std::path::PathBuf;

/// Tokeniser and streaming agree with a reference: ids of texts with and without the tokens that
/// the checkpoint adds, texts of ids (broken bytes included), the text that each token completes,
/// the tail of sequences cut anywhere, and control tokens spelt in a text.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::harness::kinds) struct TokenizerStream {
    /// `tokenizer.json` without added tokens around a text.
    tokenizer: PathBuf,
    /// The same vocabulary with a BOS in front of every text.
    tokenizer_bos: PathBuf,
    /// The reference; `docs/generation.md` gives its format.
    reference: PathBuf,
}

impl KindSpec for TokenizerStream {
    const NAME: &'static str = "tokenizer_stream";
    const DEVICE: DeviceUse = DeviceUse::Host;
    const POLICY: PolicyUse = PolicyUse::None;
}

impl GateKind for TokenizerStream {
    fn cases(&self, scope: &PlanScope) -> Result<Vec<Case>, Fault> {
        Reference::read(&scope.path(&self.reference))
            .map_err(|message| Fault::at("reference", message))?;
        Ok(Check::ALL.iter().map(|check| Case::named(check.name())).collect())
    }

    fn run(&self, cell: &Cell, context: &RunContext) -> Outcome {
        let name = cell.case.as_deref().unwrap_or_default();
        let Some(check) = Check::ALL.iter().find(|c| c.name() == name) else {
            return Outcome::error(format!("there is no check `{name}`"));
        };
        let open = |path: &PathBuf| Subject::open(&context.path(path));
        let parts = Reference::read(&context.path(&self.reference))
            .and_then(|r| Ok((r, open(&self.tokenizer)?, open(&self.tokenizer_bos)?)));
        match parts {
            Err(message) => Outcome::error(message),
            Ok((reference, plain, bos)) => match check.run(&reference, &plain, &bos) {
                Ok(done) => Outcome::pass(format!("{done} sequences")).with("sequences", done),
                Err(message) => Outcome::fail(message),
            },
        }
    }
}
