//! `assay eval`: how well a model predicts a text.

use super::counts::{count, token_count};
use super::engine_args::EngineArgs;
use super::generate::{listen, read_text, requested};
use super::loading::load_engine;
use super::model_args::{ModelArgs, folder_exists};
use super::{Console, Failure, OrExit, placement_json};
use crate::backend::Policy;
use crate::engine::{Engine, EngineOptions};
use crate::generation::{
    Agreement, EvalError, Evaluation, TextTokenizer, TokenizerError, Windows, evaluate,
};
use crate::units::{Digest, Exit};
use crate::weights::Model;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const EXAMPLES: &str = "\
The text is cut into windows of --window tokens without overlap; each is a sequence of its own, and the \
first token of a window, which has no past, is not scored (unless the tokeniser puts a BOS before it).

Examples:
  assay eval --model DIR --text tests/fixtures/text/alice.txt
  assay eval --model DIR --text FILE --window 1024 --json
  assay eval --model DIR --text FILE --policy reference --against-policy f32
  assay eval --model QUANTISED --text FILE --against ORIGINAL";

/// Arguments of `assay eval`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The text, as a UTF-8 file (- for stdin)
    #[arg(long, value_name = "FILE")]
    text: PathBuf,
    /// Tokens of a window
    #[arg(long, value_name = "N", default_value = "512", value_parser = count, allow_hyphen_values = true)]
    window: NonZeroUsize,
    /// Use only this many tokens of the text [default: all]
    #[arg(long, value_name = "N", value_parser = token_count, allow_hyphen_values = true)]
    max_tokens: Option<usize>,
    /// Compare with this model: top-1 agreement, logit error
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Compare with this numerical policy (of --against, else of the same weights)
    #[arg(long, value_name = "POLICY")]
    against_policy: Option<Policy>,
    #[command(flatten)]
    engine: EngineArgs,
}

/// Runs `assay eval`.
pub(super) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    let options = args.engine.options()?;
    let against_options =
        EngineOptions { policy: args.against_policy.unwrap_or(options.policy), ..options.clone() };
    let text = read_text(&args.text)?;
    let model = args.model.open()?;
    let other = args.against.as_deref().map(open_other).transpose()?;
    let tokenizer = open_tokenizer(&args.model.model.join("tokenizer.json"))?;
    let (prefix, mut tokens) = tokenizer.encode_apart(&text).or_exit(Exit::Usage)?;
    if let Some(other) = &args.against {
        check_same_ids(other, &text, (&prefix, &tokens), console)?;
    }
    tokens.truncate(args.max_tokens.unwrap_or(tokens.len()));
    let windows = Windows::new(prefix, tokens, args.window.get()).or_exit(Exit::Usage)?;

    let (engine, weights) = load_engine(&model, &options, console)?;
    args.model.check(engine.descriptor(), console)?;
    let reference = match (&other, args.against_policy) {
        (Some(other), _) => Some(load_engine(other, &against_options, console)?.0),
        (None, Some(_)) => {
            let descriptor = Arc::clone(engine.descriptor());
            Some(Engine::new(descriptor, &weights, &against_options).or_exit(Exit::Usage)?)
        }
        (None, None) => None,
    };
    listen()?;
    let bar = progress_bar(console);
    let mut progress = |done: usize, total: usize| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
        if requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let evaluation = evaluate(&engine, &windows, reference.as_ref(), &mut progress);
    bar.finish_and_clear();
    let evaluation = match evaluation {
        Ok(evaluation) => evaluation,
        Err(EvalError::Interrupted) => {
            console.note("interrupted: nothing was measured to the end");
            return Ok(Exit::Interrupted);
        }
        Err(error @ EvalError::Engine(_)) => {
            return Err(Failure::new(Exit::Internal, error));
        }
        Err(error) => return Err(Failure::usage(error)),
    };
    if console.json() {
        console.product_json(&Report {
            evaluation: &evaluation,
            text_sha256: Digest::of(text.as_bytes()).to_string(),
            policy: engine.policy().to_string(),
            against_policy: reference.as_ref().map(|r| r.policy().to_string()),
            placement: placement_json(engine.placement()),
        })?;
    } else {
        console.product(&lines(&evaluation))?;
    }
    Ok(Exit::Success)
}

fn open_other(folder: &Path) -> Result<Model, Failure> {
    folder_exists(folder)?;
    Ok(Model::open(folder)?)
}

/// Both models score the same ids, so their tokenisers must make the same ids of the text.
///
/// # Errors
/// 64 where they do not, with the first place; as opening a tokeniser.
fn check_same_ids(
    other: &Path,
    text: &str,
    (prefix, tokens): (&[u32], &[u32]),
    console: &Console,
) -> Result<(), Failure> {
    let file = other.join("tokenizer.json");
    if !file.exists() {
        console.note(&format!(
            "note: {} is not there; its model is taken to have the same tokens",
            file.display()
        ));
        return Ok(());
    }
    let (other_prefix, other_tokens) =
        open_tokenizer(&file)?.encode_apart(text).or_exit(Exit::Usage)?;
    let (ours, theirs) = ([prefix, tokens].concat(), [other_prefix, other_tokens].concat());
    if ours == theirs {
        return Ok(());
    }
    let same = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
    let at = |ids: &[u32]| ids.get(same).map_or("the end".to_owned(), |id| format!("id {id}"));
    Err(Failure::usage(format!(
        "{}: another tokeniser than the model's: token {same} of the text is {} there and {} here; \
         --against compares logits of the same ids",
        file.display(),
        at(&theirs),
        at(&ours)
    )))
}

fn open_tokenizer(file: &Path) -> Result<TextTokenizer, Failure> {
    TextTokenizer::open(file).map_err(|e| match e {
        e @ TokenizerError::Read { .. } => Failure::new(Exit::Io, e),
        e => Failure::usage(e),
    })
}

/// The product with `--json`.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    evaluation: &'a Evaluation,
    text_sha256: String,
    policy: String,
    against_policy: Option<String>,
    /// How the model is divided over ranks; the other side is asked for the same.
    placement: serde_json::Value,
}

fn lines(e: &Evaluation) -> String {
    let mut text = format!(
        "nll         {:.5} nats per token\nperplexity  {:.4}\ntop-1       {:.2}%\n\
         tokens      {} scored of {}; {} windows of {} tokens without overlap\n",
        e.nll_mean,
        e.perplexity,
        e.top1_accuracy * 100.0,
        e.scored_tokens,
        e.text_tokens,
        e.windows,
        e.window_tokens,
    );
    if let Some(Agreement {
        reference_nll_mean,
        nll_delta,
        top1_agreement,
        logit_rms,
        logit_max_abs,
        kl_mean,
    }) = e.agreement
    {
        text += &format!(
            "against     nll {reference_nll_mean:.5} (delta {nll_delta:+.6}), top-1 agreement {:.2}%\n\
             logits      rms difference {logit_rms:.3e}, largest {logit_max_abs:.3e}, KL {kl_mean:.3e} nats\n",
            top1_agreement * 100.0,
        );
    }
    text
}

fn progress_bar(console: &Console) -> ProgressBar {
    if !console.progress() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("tokens {bar:30} {pos}/{len} {eta}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
