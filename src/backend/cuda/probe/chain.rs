//! A captured chain of dependent products: what programmatic dependent launch and prefetch give.

use super::rows::fill;
use super::timing::{Captured, Timing};
use crate::backend::cuda::{Chaining, CudaError, Device, GemmKernel, Product};
use crate::units::Digest;
use cudarc::driver::CudaSlice;
use serde::Serialize;

/// How the launches of a chain follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainMode {
    /// One after the other.
    Plain,
    /// … with the start of the next weights brought into the second-level cache.
    PlainPrefetch,
    /// Programmatic dependent launch, everything after the wait.
    Dependent,
    /// … own weights asked for before the wait.
    DependentEarly,
    /// … and the next weights brought into the second-level cache.
    DependentEarlyPrefetch,
}

impl ChainMode {
    /// Every mode, plainest first.
    pub const ALL: [ChainMode; 5] = [
        ChainMode::Plain,
        ChainMode::PlainPrefetch,
        ChainMode::Dependent,
        ChainMode::DependentEarly,
        ChainMode::DependentEarlyPrefetch,
    ];

    fn chaining(self, next: (u64, u32)) -> Chaining {
        let prefetch = matches!(self, ChainMode::PlainPrefetch | ChainMode::DependentEarlyPrefetch);
        let dependent = !matches!(self, ChainMode::Plain | ChainMode::PlainPrefetch);
        let early = matches!(self, ChainMode::DependentEarly | ChainMode::DependentEarlyPrefetch);
        Chaining { dependent, early_weights: early, next: if prefetch { next } else { (0, 0) } }
    }
}

/// What a mode came to.
#[derive(Clone, Debug, Serialize)]
pub struct ChainResult {
    pub mode: ChainMode,
    pub tokens: usize,
    pub launches: usize,
    pub weight_bytes: u64,
    /// Time of the whole chain.
    pub timing: Timing,
    pub gigabytes_per_second: f64,
    /// SHA-256 of the last output: the same in every mode, or the chain has a race.
    pub digest: String,
}

/// The weight shapes (m, k) of the hybrid 27B model's layers, in the order a decode step reads
/// them: every fourth layer has attention (q with gate, k, v; o), the others a gated delta net
/// (q, k, v, z, a, b; out); each is followed by gate with up, and down.
pub fn chain_matrices(layers: usize) -> Vec<(usize, usize)> {
    const HIDDEN: usize = 5120;
    const FFN: usize = 17408;
    (0..layers)
        .flat_map(|layer| {
            let attention = layer % 4 == 3;
            let input = if attention { 24 * 256 * 2 + 2 * 4 * 256 } else { 10240 + 6144 + 2 * 48 };
            [(input, HIDDEN), (HIDDEN, 6144), (2 * FFN, HIDDEN), (HIDDEN, FFN)]
        })
        .collect()
}

/// Bytes of the next weights that a prefetch asks for.
const PREFETCH_BYTES: u32 = 8 << 20;
const REPLAYS: usize = 9;

/// Measures a chain of `layers` layers at `tokens` tokens in every mode. Each product reads the
/// first elements of its predecessor's rows.
///
/// # Errors
/// The device could not be asked, or has too little memory.
pub fn measure_chain(
    device: &Device,
    layers: usize,
    tokens: usize,
) -> Result<Vec<ChainResult>, CudaError> {
    let shapes = chain_matrices(layers);
    let weights: Vec<CudaSlice<u16>> = shapes
        .iter()
        .enumerate()
        .map(|(i, (m, k))| fill(device, m * k, i as u64, 1.0 / (*k as f64).sqrt()))
        .collect::<Result<_, _>>()?;
    let weight_bytes: u64 = shapes.iter().map(|(m, k)| (m * k * 2) as u64).sum();
    let first = fill(device, tokens * shapes[0].1, 7, 1.0)?;
    // Rows of one product are inputs of the next, which may be shorter: one buffer per token
    // count and launch parity, with rows packed for the reader.
    let widest = shapes.iter().map(|(m, _)| *m).max().unwrap_or(0);
    let buffers = [device.zeros::<u16>(tokens * widest)?, device.zeros::<u16>(tokens * widest)?];
    let product = |i: usize| {
        let (m, k) = shapes[i];
        let input = if i == 0 { device.address(&first) } else { device.address(&buffers[i % 2]) };
        Product {
            weights: device.address(&weights[i]),
            input,
            output: device.address(&buffers[(i + 1) % 2]),
            m,
            n: tokens,
            k,
            output_stride: m,
            wide: false,
        }
    };
    let mut results = Vec::new();
    for mode in ChainMode::ALL {
        if mode.chaining((0, 0)).dependent && !device.arch().has_dependent_launch() {
            continue;
        }
        let launch = |i: usize| {
            let kernel = GemmKernel::choose(device.arch(), tokens);
            let next = weights
                .get(i + 1)
                .map_or((0, 0), |w| (device.address(w), PREFETCH_BYTES.min(w.num_bytes() as u32)));
            // SAFETY: the memory has the product's sizes and outlives the replays.
            unsafe { kernel.launch(device, &product(i), mode.chaining(next)) }
        };
        launch(0)?;
        let graph = Captured::new(device, || (0..shapes.len()).try_for_each(launch))?;
        let timing = graph.time(REPLAYS, 1)?;
        let last = device.download(&buffers[shapes.len() % 2])?;
        let (m, _) = shapes[shapes.len() - 1];
        let bytes: Vec<u8> = last[..tokens * m].iter().flat_map(|v| v.to_le_bytes()).collect();
        results.push(ChainResult {
            mode,
            tokens,
            launches: shapes.len(),
            weight_bytes,
            gigabytes_per_second: weight_bytes as f64 / timing.time_us / 1e3,
            timing,
            digest: Digest::of(&bytes).to_string(),
        });
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_reads_the_weights_of_the_model() {
        let shapes = chain_matrices(64);
        assert_eq!(shapes.len(), 256);
        let bytes: usize = shapes.iter().map(|(m, k)| m * k * 2).sum();
        assert_eq!(bytes, 48_701_112_320);
        // Every product's input is covered by its predecessor's rows.
        assert!(shapes.windows(2).all(|pair| pair[0].0 >= pair[1].1));
    }
}
