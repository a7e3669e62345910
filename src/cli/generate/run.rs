//! The command: check, load, generate, report.

use super::Args;
use super::printer::{Printer, show};
use super::prompt::{ModelText, Prompt, Ready, open_tokenizer};
use super::report::{
    JsonLogProbs, JsonReport, JsonStop, Statistics, sampling_line, stop_text, together_line,
};
use super::stream::{Streams, exit_of};
use crate::backend::cpu::{SAMPLER, SAMPLER_VERSION};
use crate::cli::loading::Loading;
use crate::cli::{Console, Failure, OrExit, placement_json};
use crate::engine::manifest::{Execution, SamplerTransform};
use crate::engine::{Engine, EngineOptions};
use crate::generation::chat::end_of_turn;
use crate::generation::{
    GenerateError, Generated, Request, Sampling, Seed, Stop, TextTokenizer, generate_all,
};
use crate::units::{Exit, nearest, peak_resident_bytes, write_whole};
use crate::weights::{Model, WeightSet};
use std::num::NonZeroUsize;
use std::path::Path;

/// Budget where none is given.
const DEFAULT_BUDGET_TOKENS: usize = 256;

/// Generates text.
///
/// Everything that can be refused without reading weights is refused without waiting for them: flags by
/// clap, then the prompts, the config, the tokeniser, and whether prompts and budget fit.
pub(in crate::cli) fn run(args: Args, console: &Console) -> Result<Exit, Failure> {
    if args.output.log_probs && !console.json() {
        return Err(Failure::usage("--log-probs is printed with --json; add it"));
    }
    let options = args.engine.options()?;
    let prompts = args.prompt.read()?;
    let model = args.model.open()?;
    // While the weights are loaded, the tokeniser and the prompts are read.
    let idle = args.sampling.max_tokens == Some(0);
    let loading = (!idle).then(|| Loading::begin(&model, &options));
    let folder = args.model.model.as_path();
    let all_ids = prompts.iter().all(|(_, p)| matches!(p, Prompt::Ids(_)));
    let tokenizer = open_tokenizer(folder, all_ids && args.sampling.stops.is_empty())?;
    let tokenizer = tokenizer.as_ref();
    let text = ModelText { folder, tokenizer, vocab: model.descriptor.vocab };
    let ready: Vec<Ready> = prompts
        .into_iter()
        .map(|(name, prompt)| args.prompt.ready(name, prompt, &text, console))
        .collect::<Result<_, _>>()?;
    let end_tokens = end_tokens(&model, folder, tokenizer)?;
    let mut requests = requests(&args, &model, tokenizer, &ready, &end_tokens)?;

    let loaded = loading.map(|loading| loading.finish(console)).transpose()?;
    if let Some((engine, weights)) = &loaded {
        args.model.check(engine.descriptor(), console)?;
        console.note(&engine_line(engine));
        if let Some(path) = &args.output.manifest {
            write_manifest(path, engine, weights, &model, &options, &args)?;
        }
    }
    let seed = seed(&args, loaded.is_none())?;
    requests.iter_mut().for_each(|r| r.sampling.seed = seed.unwrap_or(Seed(0)));
    console.note(&match loaded {
        None => "nothing to generate: the budget is 0 tokens".to_owned(),
        Some(_) => sampling_line(&requests[0].sampling, args.sampling.seed.is_some()),
    });

    let single = ready.len() == 1 && ready[0].name.is_none();
    let stops = &args.sampling.stops;
    let printer = |_: &Ready| {
        let show_control = args.output.show_control_tokens;
        Printer::new(console, tokenizer, show_control, stops, single && !console.json())
    };
    let mut streams = Streams::new(ready.iter().map(printer).collect())?;
    let results = match &loaded {
        None => requests.iter().map(|_| Ok(Generated::nothing())).collect(),
        Some((engine, _)) => generate_all(engine, &requests, &mut streams),
    };
    let finished = streams.finish()?;
    let mut reports = Vec::new();
    let mut done = Vec::new();
    let mut failure = None;
    for (i, (result, (text, timing))) in results.into_iter().zip(finished.texts).enumerate() {
        let (request, ready) = (&requests[i], &ready[i]);
        let generated = match result {
            Ok(generated) => generated,
            Err(error) => {
                let named = ready.name.as_ref().map(|n| format!("prompt `{n}`: "));
                let error = explain(&error, named.unwrap_or_default());
                if failure.is_none() {
                    failure = Some(error);
                } else {
                    error.report(console);
                }
                continue;
            }
        };
        let statistics = Statistics::new(request.prompt.len(), &generated, timing);
        if single {
            let stop = stop_text(generated.stop, request.budget_tokens, stops, tokenizer);
            console.note(&statistics.line(&stop));
        } else if !console.json() {
            let name = ready.name.as_deref().unwrap_or_default();
            show(console, &format!("== {name}\n{text}\n"))?;
        }
        reports.push(JsonReport {
            name: ready.name.as_deref(),
            text: if tokenizer.is_some() { text } else { String::new() },
            ids: generated.ids(),
            log_probs: if request.log_probs { JsonLogProbs::of(&generated) } else { None },
            prompt_ids: request.prompt,
            prompt_text: ready.rendered.as_deref(),
            stop: JsonStop::of(generated.stop, stops),
            temperature: request.sampling.temperature.value(),
            seed: seed.filter(|_| generated.words_drawn > 0).map(|s| s.0),
            truncation: request.sampling.truncation.transforms(),
            sampler: SAMPLER,
            sampler_version: SAMPLER_VERSION,
            end_tokens: &end_tokens,
            policy: loaded.as_ref().map(|(e, _)| e.policy().to_string()),
            device: loaded.as_ref().map(|_| options.device.to_string()),
            placement: loaded.as_ref().map(|(e, _)| placement_json(e.placement())),
            peak_resident_bytes: peak_resident_bytes(),
            statistics,
        });
        done.push(generated);
    }
    if !single {
        // Of the prompts that are counted: one that failed is an error of its own.
        let prompt_tokens = reports.iter().map(|r| r.prompt_ids.len()).sum();
        console.note(&together_line(&done, prompt_tokens, finished.time));
    }
    if console.json() {
        match (single, reports.as_slice()) {
            (true, [one]) => console.product_json(one)?,
            (true, _) => {}
            (false, all) => console.product_json(&serde_json::json!({ "generations": all }))?,
        }
    }
    match failure {
        Some(failure) => Err(failure),
        None if done.iter().any(|g| g.stop == Stop::Cancelled) => Ok(Exit::Interrupted),
        None => Ok(Exit::Success),
    }
}

/// The requests, without a seed yet; refused where one does not fit.
fn requests<'a>(
    args: &Args,
    model: &Model,
    tokenizer: Option<&TextTokenizer>,
    ready: &'a [Ready],
    end_tokens: &'a [u32],
) -> Result<Vec<Request<'a>>, Failure> {
    let descriptor = &model.descriptor;
    let context_tokens = descriptor.max_position_tokens;
    let truncation = args.sampling.truncation();
    let request = |ready: &'a Ready| {
        let room = (context_tokens + 1).saturating_sub(ready.ids.len());
        let budget_tokens = args.sampling.max_tokens;
        let request = Request {
            prompt: &ready.ids,
            budget_tokens: budget_tokens.unwrap_or(DEFAULT_BUDGET_TOKENS.min(room.max(1))),
            end_tokens,
            choosable_ids: tokenizer.map_or(descriptor.vocab, TextTokenizer::ids),
            sampling: Sampling {
                temperature: args.sampling.temperature,
                seed: Seed(0),
                truncation,
            },
            log_probs: args.output.log_probs,
        };
        match (request.check_size(context_tokens), &ready.name) {
            (Ok(()), _) => Ok(request),
            (Err(error), None) => Err(Failure::usage(error)),
            (Err(error), Some(name)) => Err(Failure::usage(format!("prompt `{name}`: {error}"))),
        }
    };
    ready.iter().map(request).collect()
}

/// The end tokens of the descriptor (config and generation config), and the tokeniser's own.
///
/// # Errors
/// 64 where the tokeniser's files name an end token that its vocabulary lacks.
fn end_tokens(
    model: &Model,
    folder: &Path,
    tokenizer: Option<&TextTokenizer>,
) -> Result<Vec<u32>, Failure> {
    let mut end_tokens = model.descriptor.end_tokens.clone();
    if let Some(tokenizer) = tokenizer
        && let Some(token) = end_of_turn(folder)?
    {
        end_tokens.push(tokenizer.id_of(&token).ok_or_else(|| {
            let near = nearest(&token, tokenizer.control_tokens());
            Failure::usage(format!(
                "{}: `eos_token` is {token:?}, which tokenizer.json does not have: text would not \
                 end where it should{}",
                folder.join("tokenizer_config.json").display(),
                near.map(|near| format!(" (help: is {near:?} meant?)")).unwrap_or_default()
            ))
        })?);
    }
    end_tokens.sort_unstable();
    end_tokens.dedup();
    Ok(end_tokens)
}

/// The seed: as given, else drawn once from the operating system, unless nothing will be drawn.
fn seed(args: &Args, nothing: bool) -> Result<Option<Seed>, Failure> {
    match args.sampling.seed {
        Some(seed) => Ok(Some(seed)),
        None if args.sampling.temperature.is_greedy() || nothing => Ok(None),
        None => Seed::from_os().map(Some).or_exit(Exit::Io),
    }
}

fn engine_line(engine: &Engine) -> String {
    let (descriptor, placement) = (engine.descriptor(), engine.placement());
    let ranks = match placement.devices.len() {
        1 => String::new(),
        ranks => format!(" in {ranks} ranks"),
    };
    format!(
        "{}, {} layers, {:.1} MB of weights on {}{ranks}, policy {}",
        descriptor.family,
        descriptor.layers(),
        engine.weight_bytes() as f64 / 1e6,
        placement.devices[0],
        engine.policy()
    )
}

fn write_manifest(
    path: &Path,
    engine: &Engine,
    weights: &WeightSet,
    model: &Model,
    options: &EngineOptions,
    args: &Args,
) -> Result<(), Failure> {
    let threads = options
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get));
    let mut execution = Execution::of(engine, weights.source(), Some(&model.checkpoint), threads);
    let transforms = args.sampling.truncation().transforms();
    execution.numerical_policy.truncation = transforms
        .into_iter()
        .map(|t| SamplerTransform { name: t.name, version: t.version, value: t.value })
        .collect();
    let manifest = execution.manifest().to_json();
    let json = serde_json::to_string_pretty(&manifest).or_exit(Exit::Internal)?;
    write_whole(path, json + "\n")
        .or_exit_with(Exit::Io, || format!("cannot write {}", path.display()))
}

fn explain(error: &GenerateError, named: String) -> Failure {
    Failure::new(exit_of(error), format!("{named}{error}"))
}
