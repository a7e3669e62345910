//! `assay kernels probe`.

use crate::backend::cuda::probe::{
    ChainResult, FactName, RowsQuestion, SpeedReport, measure_chain, measure_speed,
};
use crate::backend::cuda::{Blas, CudaError, Device, nvrtc_version};
use crate::cli::{Console, Failure, OrExit};
use crate::units::{BUILD, Exit, utc_now, write_whole};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;

/// What to ask the device.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  assay kernels probe                               bits, products, launches
  assay kernels probe --part speed --shape 17408x5120 --tokens 1,8,64,2048
  assay kernels probe --out probe.json              with every sample

Times are of this machine as it is found; the page in docs/decisions says what they decide.")]
pub(super) struct Args {
    /// Which questions: repeatable [default: all]
    #[arg(long = "part", value_name = "PART")]
    parts: Vec<Part>,
    /// The CUDA device
    #[arg(long, default_value_t = 0)]
    device: usize,
    /// Weight shapes, rows x depth
    #[arg(long = "shape", value_name = "MxK", value_parser = shape, default_value = "17408x5120")]
    shapes: Vec<(usize, usize)>,
    /// Numbers of tokens to time
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,2048")]
    tokens: Vec<usize>,
    /// Layers of the chain; 64 are 49 GB of weights
    #[arg(long, default_value_t = 64)]
    layers: usize,
    /// Results compared per fact, instruction and kind of data
    #[arg(long, default_value_t = 16384)]
    samples: usize,
    #[arg(long, default_value_t = 20_250_731)]
    seed: u64,
    /// Write everything, samples too, as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Facts about the matrix instructions
    Bits,
    /// Rows of whole products at many numbers of tokens
    Rows,
    /// Times of products beside cuBLASLt and the memory's ceilings
    Speed,
    /// A captured chain of dependent launches
    Chain,
}

fn shape(text: &str) -> Result<(usize, usize), String> {
    let wrong = || format!("expected rows x depth, e.g. 17408x5120, found `{text}`");
    let (m, k) = text.split_once('x').ok_or_else(wrong)?;
    Ok((m.parse().map_err(|_| wrong())?, k.parse().map_err(|_| wrong())?))
}

/// Asks and prints.
pub(super) fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let device = Device::open(args.device).or_exit(Exit::Io)?;
    let wanted = |part| args.parts.is_empty() || args.parts.contains(&part);
    let facts = device.facts();
    console.note(&format!("{} ({}), driver CUDA {}", facts.name, facts.arch, facts.driver_cuda));
    let mut record = json!({
        "schema": 1,
        "taken": utc_now(),
        "device": facts,
        "nvrtc": nvrtc_version().unwrap_or_else(|e| e.to_string()),
        "cublaslt": Blas::version().unwrap_or_else(|e| e.to_string()),
        "build": { "source": BUILD.source_digest, "revision": BUILD.git_revision, "dirty": BUILD.git_dirty },
    });
    let mut text = String::new();
    if wanted(Part::Bits) {
        record["bits"] = bits(&device, args, &mut text);
    }
    if wanted(Part::Rows) {
        record["rows"] = rows(&device, args, &mut text).or_exit(Exit::Internal)?;
    }
    if wanted(Part::Speed) {
        let mut all = Vec::new();
        for (m, k) in &args.shapes {
            let reports = measure_speed(&device, *m, *k, &args.tokens).or_exit(Exit::Internal)?;
            speed_text(&reports, &mut text);
            all.extend(reports);
        }
        record["speed"] = json!(all);
    }
    if wanted(Part::Chain) {
        let results = measure_chain(&device, args.layers, 1).or_exit(Exit::Internal)?;
        chain_text(&results, &mut text);
        record["chain"] = json!(results);
    }
    let images: Vec<Value> = device
        .images()
        .iter()
        .map(|i| json!({ "key": i.key, "image": i.digest().to_string(), "origin": i.origin }))
        .collect();
    record["images"] = json!(images);
    if console.json() {
        console.product_json(&record)?;
    } else {
        console.product(&text)?;
    }
    if let Some(path) = &args.out {
        let json = serde_json::to_string_pretty(&record).or_exit(Exit::Internal)?;
        write_whole(path, json + "\n")
            .or_exit_with(Exit::Io, || format!("cannot write {}", path.display()))?;
    }
    Ok(Exit::Success)
}

fn bits(device: &Device, args: &Args, text: &mut String) -> Value {
    let mut all = serde_json::Map::new();
    for name in FactName::ALL {
        if name.needs_wgmma() && !device.arch().has_wgmma() {
            let _ = writeln!(text, "{:<24} not asked: no wgmma", name.name());
            continue;
        }
        let answer = name.ask(device, args.samples, args.seed);
        let _ = match &answer {
            Ok(fact) => {
                let holds = if fact.holds { "holds" } else { "does not" };
                let (different, compared) = (fact.different, fact.compared);
                writeln!(text, "{:<24} {holds:<9} {different} of {compared} differ", name.name())
            }
            Err(error) => writeln!(text, "{:<24} error     {error}", name.name()),
        };
        all.insert(name.name(), answer.map_or_else(|e| json!(e.to_string()), |f| json!(f)));
    }
    Value::Object(all)
}

fn rows(device: &Device, args: &Args, text: &mut String) -> Result<Value, CudaError> {
    let mut all = serde_json::Map::new();
    for (m, k) in args.shapes.iter().copied().chain([(1000, 576), (264, 896), (520, 1000)]) {
        let tokens = [1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 32, 33, 63, 64];
        let question =
            RowsQuestion { device, m, k, all_tokens: 2048, tokens: &tokens, seed: args.seed };
        let fact = question.ask()?;
        let _ = writeln!(
            text,
            "product rows {m}x{k}: {}, {} of {} differ",
            if fact.holds { "equal" } else { "NOT EQUAL" },
            fact.different,
            fact.compared
        );
        all.insert(format!("{m}x{k}"), json!(fact));
    }
    Ok(Value::Object(all))
}

fn speed_text(reports: &[SpeedReport], text: &mut String) {
    let _ = writeln!(
        text,
        "\n{:<48} {:>6} {:>14} {:>9} {:>17} {:>8} {:>8}",
        "kernel (* chosen)", "tokens", "weights", "µs", "fastest…slowest", "GB/s", "TFLOP/s"
    );
    for r in reports {
        let t = &r.timing;
        let shape = if r.m > 0 { format!("{}x{}", r.m, r.k) } else { String::new() };
        let range = format!("{:.1}…{:.1}", t.fastest_us, t.slowest_us);
        let _ = writeln!(
            text,
            "{:<48} {:>6} {shape:>14} {:>9.2} {range:>17} {:>8.0} {:>8.1}",
            r.kernel, r.tokens, t.time_us, r.gigabytes_per_second, r.teraflops
        );
    }
}

fn chain_text(results: &[ChainResult], text: &mut String) {
    let _ = writeln!(
        text,
        "\n{:<28} {:>9} {:>10} {:>18} {:>8}  digest",
        "chain", "launches", "µs", "fastest…slowest", "GB/s"
    );
    for r in results {
        let t = &r.timing;
        let mode = serde_json::to_value(r.mode).unwrap_or_default();
        let range = format!("{:.0}…{:.0}", t.fastest_us, t.slowest_us);
        let _ = writeln!(
            text,
            "{:<28} {:>9} {:>10.1} {range:>18} {:>8.0}  {}",
            mode.as_str().unwrap_or_default(),
            r.launches,
            t.time_us,
            r.gigabytes_per_second,
            &r.digest[..12]
        );
    }
}
