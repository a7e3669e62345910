//! `assay kernels measure`.

use crate::backend::cuda::Device;
use crate::backend::cuda::probe::measure_memory;
use crate::backend::{Draw, Policy, Region, RegionCost, RowOutput};
use crate::cli::model_args::read_descriptor;
use crate::cli::{Console, Failure, OrExit};
use crate::descriptor::{Descriptor, Mixer, RoleName};
use crate::engine::{Batch, Engine, EngineOptions, RowWant, Sequence, SequenceError, Want};
use crate::units::{BUILD, Exit, SplitMix64, utc_now, write_whole};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// What to measure.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay kernels measure --descriptor descriptors/qwen38-27b.json
  assay kernels measure --descriptor descriptors/qwen38-27b.json --batch 1,8
  assay kernels measure --descriptor descriptors/llama32-1b.json --out a.json

Weights are synthetic: of realistic scale and entropy, made on the device. The bound is the weights, \
states and cached keys that a step reads, over the rate at which this device reads memory in the \
same run.")]
pub(super) struct Args {
    /// The model's descriptor
    #[arg(long, value_name = "FILE")]
    descriptor: PathBuf,
    /// Seed of weights and prompts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Numerical policy
    #[arg(long, default_value = "invariant")]
    policy: Policy,
    /// The CUDA device
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Tokens before the timed decode steps
    #[arg(long, value_delimiter = ',', default_value = "512")]
    context: Vec<usize>,
    /// Sequences of a decode step
    #[arg(long, value_delimiter = ',', default_value = "1")]
    batch: Vec<usize>,
    /// Timed decode steps
    #[arg(long, default_value_t = 64)]
    steps: usize,
    /// Prompt lengths to time
    #[arg(long, value_delimiter = ',', default_value = "2048")]
    prefill: Vec<usize>,
    /// Rows of one step of a prefill
    #[arg(long, default_value_t = 2048)]
    chunk: usize,
    /// Also time the regions of the first decode step and of every prompt, as far as one step takes it
    #[arg(long)]
    profile: bool,
    /// Write every sample as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Measures and prints.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let descriptor = Arc::new(read_descriptor(&args.descriptor)?);
    let device = Device::open(args.device).or_exit(Exit::Io)?;
    let memory = measure_memory(&device).or_exit(Exit::Internal)?;
    let read = memory.iter().find(|m| m.kernel == "read").map_or(0.0, |m| m.gigabytes_per_second);
    let options = EngineOptions {
        device: crate::placement::Device::Cuda(args.device),
        chunk_tokens: args.chunk,
        ..EngineOptions::with_policy(args.policy)
    };
    let begun = Instant::now();
    let engine =
        Engine::synthetic(Arc::clone(&descriptor), args.seed, &options).or_exit(Exit::Usage)?;
    let load_seconds = begun.elapsed().as_secs_f64();
    let mut text = format!(
        "{} on {}, policy {}: {:.2} GB of synthetic weights in {load_seconds:.2} s; memory reads at {read:.0} GB/s\n",
        args.descriptor.display(),
        device.facts().name,
        engine.policy(),
        engine.weight_bytes() as f64 / 1e9,
    );
    let bench = Bench { args, engine: &engine, descriptor: &descriptor, read };
    let prefill = bench.prefills(&mut text).or_exit(Exit::Internal)?;
    let (decode, regions) = bench.decodes(&mut text).or_exit(Exit::Internal)?;
    let record = json!({
        "schema": 1,
        "taken": utc_now(),
        "build": { "source": BUILD.source_digest, "revision": BUILD.git_revision, "dirty": BUILD.git_dirty },
        "device": device.facts(),
        "descriptor": args.descriptor.display().to_string(),
        "semantic_id": crate::units::Canonical::digest(&descriptor.semantic()).to_string(),
        "policy": engine.policy().to_string(),
        "weights": { "synthetic": true, "seed": args.seed, "bytes": engine.weight_bytes() },
        "load_seconds": load_seconds,
        "memory": memory,
        "prefill": prefill,
        "decode": decode,
        "regions": regions,
    });
    if let Some(path) = &args.out {
        let json = serde_json::to_string_pretty(&record).or_exit(Exit::Internal)?;
        write_whole(path, json + "\n")
            .or_exit_with(Exit::Io, || format!("cannot write {}", path.display()))?;
    }
    if console.json() {
        console.product_json(&record)?;
    } else {
        console.product(&text)?;
    }
    Ok(Exit::Success)
}

struct Bench<'a> {
    args: &'a Args,
    engine: &'a Engine,
    descriptor: &'a Descriptor,
    /// GB/s.
    read: f64,
}

impl Bench<'_> {
    fn prompt(&self, tokens: usize) -> Vec<u32> {
        let mut rng = SplitMix64::new(self.args.seed);
        let vocab = self.descriptor.vocab as f64;
        (0..tokens).map(|_| (rng.next_unit() * vocab) as u32).collect()
    }

    /// Times of whole prompts, first token included; the first run of a length warms up.
    fn prefills(&self, text: &mut String) -> Result<Vec<Value>, SequenceError> {
        let mut all = Vec::new();
        for &tokens in &self.args.prefill {
            let prompt = self.prompt(tokens);
            let mut samples = Vec::new();
            for run in 0..4 {
                let mut sequence = self.engine.sequence()?;
                let begun = Instant::now();
                self.engine.prefill(&mut sequence, &prompt, RowWant::Greedy)?;
                if run > 0 {
                    samples.push(begun.elapsed().as_secs_f64() * 1e3);
                }
            }
            let median_ms = median(&samples);
            let rate = tokens as f64 / median_ms * 1e3;
            let _ = writeln!(text, "prefill {tokens:>6}: {median_ms:9.2} ms, {rate:9.0} tokens/s");
            all.push(json!({ "tokens": tokens, "median_ms": median_ms, "tokens_per_second": rate, "samples_ms": samples }));
        }
        Ok(all)
    }

    /// Times of decode steps by context and batch, and the regions of the first prompt and step.
    fn decodes(&self, text: &mut String) -> Result<(Vec<Value>, Value), SequenceError> {
        let (mut all, mut regions) = (Vec::new(), Value::Null);
        for &context in &self.args.context {
            let mut first = self.engine.sequence()?;
            let output = self.engine.prefill(&mut first, &self.prompt(context), RowWant::Greedy)?;
            let start = output.greedy().unwrap_or(0);
            for &batch in &self.args.batch {
                let mut sequences = vec![first.fork()?];
                while sequences.len() < batch {
                    sequences.push(first.fork()?);
                }
                let mut tokens = vec![start; batch];
                let samples = self.steps(&mut sequences, &mut tokens, |_| RowWant::Greedy)?;
                let median_ms = median(&samples);
                let bytes = self.bound_bytes(batch, context + 8 + self.args.steps / 2);
                let bound_ms = bytes as f64 / (self.read * 1e9) * 1e3;
                let fraction = bound_ms / median_ms;
                let mut words = SplitMix64::new(self.args.seed);
                let drawn = self.steps(&mut sequences, &mut tokens, |vocab| {
                    let unit = words.next_unit();
                    RowWant::Sampled(Draw { temperature: 1.0, unit, choosable_ids: vocab })
                })?;
                let drawn_ms = median(&drawn);
                let _ = writeln!(
                    text,
                    "decode {batch:>2} x {context:>6}: {median_ms:8.3} ms a step, {:8.1} tokens/s, bound {bound_ms:7.3} ms, {:5.1}% of it; drawn at T = 1 {:+.1}%",
                    batch as f64 / median_ms * 1e3,
                    fraction * 100.0,
                    (drawn_ms / median_ms - 1.0) * 100.0
                );
                all.push(json!({
                    "batch": batch, "context": context, "median_ms": median_ms, "bound_bytes": bytes,
                    "bound_ms": bound_ms, "fraction_of_bound": fraction, "samples_ms": samples,
                    "drawn_median_ms": drawn_ms, "drawn_samples_ms": drawn,
                }));
                if self.args.profile && regions.is_null() {
                    let costs = self.engine.profile_decode(&mut sequences, start)?;
                    let decode =
                        self.regions(&format!("a decode step behind {context}"), &costs, text);
                    let mut prefills = Vec::new();
                    for tokens in &self.args.prefill {
                        let rows = *tokens.min(&self.args.chunk);
                        let fresh = self.engine.sequence()?;
                        let costs = self.engine.profile_prefill(fresh, &self.prompt(rows))?;
                        let regions = self.regions(&format!("a prefill of {rows}"), &costs, text);
                        let attention = self.attention_teraflops(rows, &costs);
                        if let Some(rate) = attention {
                            let _ = writeln!(text, "  attention multiplies at {rate:.0} TFLOP/s");
                        }
                        prefills.push(json!({ "rows": rows, "regions": regions, "attention_teraflops": attention }));
                    }
                    regions = json!({ "decode": decode, "prefill": prefills });
                }
            }
        }
        Ok((all, regions))
    }

    /// Times of steps; the first eight warm up.
    fn steps(
        &self,
        sequences: &mut [Sequence],
        tokens: &mut Vec<u32>,
        mut want: impl FnMut(usize) -> RowWant,
    ) -> Result<Vec<f64>, SequenceError> {
        let mut samples = Vec::new();
        for step in 0..self.args.steps + 8 {
            let begun = Instant::now();
            let mut batch = Batch::new();
            for (sequence, token) in sequences.iter_mut().zip(tokens.iter()) {
                let want = Want::Last(want(self.descriptor.vocab));
                batch.push(sequence, std::slice::from_ref(token), want);
            }
            let outputs = self.engine.forward(&mut batch);
            let next = outputs.into_iter().map(|o| {
                o.map(|o| match o.rows.first() {
                    Some(RowOutput::Greedy(id) | RowOutput::Sampled(id)) => *id,
                    _ => 0,
                })
            });
            *tokens = next.collect::<Result<_, _>>()?;
            if step >= 8 {
                samples.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
        Ok(samples)
    }

    /// Weights that a step multiplies with, once, and every sequence's states and cached keys.
    fn bound_bytes(&self, batch: usize, context: usize) -> u64 {
        let d = self.descriptor;
        let head_is_embedding = d.roles.iter().any(|r| r.tied_to == Some(RoleName::Embed));
        let embed = (d.vocab * d.hidden * 2) as u64;
        let weights = self.engine.weight_bytes() - if head_is_embedding { 0 } else { embed };
        let each = d.cache_bytes_per_token() * context as u64 + d.gdn_state_bytes_per_sequence();
        weights + each * batch as u64
    }

    /// Operations of attention's two products over the keys that a prompt's rows see, two a multiply-add,
    /// over the time of the region.
    fn attention_teraflops(&self, rows: usize, costs: &[RegionCost]) -> Option<f64> {
        let time_us = costs.iter().find(|c| c.region == Region::AttentionCore)?.time_us;
        let pairs = (rows * (rows + 1) / 2) as f64;
        let attention = self.descriptor.attention.as_ref()?;
        let width = (attention.query_heads * attention.head_dim) as f64;
        let is_attention = |m: &&Mixer| **m == Mixer::FullAttention;
        let layers = self.descriptor.layer_mixers.iter().filter(is_attention).count() as f64;
        Some(4.0 * pairs * width * layers / time_us / 1e6)
    }

    fn regions(&self, what: &str, costs: &[RegionCost], text: &mut String) -> Value {
        let total: f64 = costs.iter().map(|c| c.time_us).sum();
        let _ = writeln!(text, "regions of {what}, each by itself ({total:.0} us together):");
        let rows = costs.iter().map(|c| {
            let rate = c.bytes as f64 / c.time_us / 1e3;
            let _ = writeln!(
                text,
                "  {:<22} {:>4} launches {:>9.1} us, {:>7.1} us each {:>9.2} MB {:>6.0} GB/s {:>5.1}% of the bound",
                c.region.name(),
                c.launches,
                c.time_us,
                c.time_us / c.launches.max(1) as f64,
                c.bytes as f64 / 1e6,
                rate,
                100.0 * rate / self.read
            );
            json!({
                "region": c.region.name(), "launches": c.launches, "time_us": c.time_us,
                "bytes": c.bytes, "fraction_of_bound": rate / self.read,
            })
        });
        json!(rows.collect::<Vec<_>>())
    }
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
