//! What the order of a sum does on this device: measured, and explained by a bit model if one fits.

use super::data::Adversary;
use super::fact::Fact;
use super::instruction::{Cases, Instruction, differences};
use super::instruction_facts::Question;
use super::matrix_model::MatrixModel;
use crate::backend::cuda::CudaError;
use crate::tensor::{bf16_from_bits, round_bf16};
use crate::units::SplitMix64;

const TILE: Instruction = Instruction::MmaK16;

/// The same chain over 16s in descending k.
pub(super) fn order_is_visible(q: &Question<'_>) -> Result<Fact, CudaError> {
    let mut fact = Fact::default();
    let order: Vec<usize> = (0..4).rev().flat_map(|i| 16 * i..16 * i + 16).collect();
    for kind in Adversary::ALL {
        let cases = q.cases(TILE, 64, kind);
        let ascending = TILE.run(q.device, &cases)?;
        let descending = TILE.run(q.device, &cases.permuted(&order))?;
        fact.count(kind.name(), ascending.len(), differences(&ascending, &descending));
    }
    // Here the statement is that the check can see a difference of order.
    fact.holds = fact.different * 100 > fact.compared;
    Ok(fact)
}

/// Two k8 instructions for every k16.
pub(super) fn k_split(q: &Question<'_>) -> Result<Fact, CudaError> {
    let mut fact = Fact::default();
    for kind in Adversary::ALL {
        let cases = q.cases(TILE, 16, kind);
        let one = TILE.run(q.device, &cases)?;
        let two = Instruction::MmaK8.run(q.device, &cases)?;
        fact.count(kind.name(), one.len(), differences(&one, &two));
    }
    Ok(fact)
}

/// k in another order: all 16, within halves of 8, within quarters of 4.
pub(super) fn k_permutation(q: &Question<'_>) -> Result<Fact, CudaError> {
    let mut fact = Fact::default();
    for span in [16, 8, 4] {
        let order: Vec<usize> = (0..16).map(|i| i / span * span + (span - 1 - i % span)).collect();
        for kind in Adversary::ALL {
            let cases = q.cases(TILE, 16, kind);
            let plain = TILE.run(q.device, &cases)?;
            let permuted = TILE.run(q.device, &cases.permuted(&order))?;
            let name = format!("within {span}/{}", kind.name());
            fact.count(&name, plain.len(), differences(&plain, &permuted));
        }
    }
    Ok(fact)
}

/// The member of the family of bit models with the fewest contradictions, over every kind of data.
pub(super) fn arithmetic(q: &Question<'_>) -> Result<Fact, CudaError> {
    let mut observed = Vec::new();
    for kind in Adversary::ALL {
        let cases = Cases::random(TILE, 16, q.samples.min(4096), kind, &mut q.random(kind));
        let d = TILE.run(q.device, &cases)?;
        observed.push((kind, cases, d));
    }
    let contradictions = |model: &MatrixModel, cases: &Cases, d: &[u32]| -> Vec<usize> {
        (0..d.len()).filter(|at| predicted(model, cases, *at) != d[*at]).collect()
    };
    let mut best: Option<(usize, MatrixModel)> = None;
    for model in MatrixModel::family() {
        let mut total = 0;
        for (_, cases, d) in &observed {
            total += contradictions(&model, cases, d).len();
            if best.is_some_and(|(least, _)| total >= least) {
                break;
            }
        }
        if best.is_none_or(|(least, _)| total < least) {
            best = Some((total, model));
        }
    }
    let (_, model) = best.expect("the family is not empty");
    let mut fact = Fact::default();
    let mut examples = Vec::new();
    for (kind, cases, d) in &observed {
        let against = contradictions(&model, cases, d);
        fact.count(kind.name(), d.len(), against.len());
        examples.extend(against.iter().take(4).map(|at| example(cases, d, *at, &model)));
    }
    fact.note("model", serde_json::to_value(model).unwrap_or_default());
    if !examples.is_empty() {
        fact.note("contradictions", examples);
    }
    Ok(fact)
}

fn predicted(model: &MatrixModel, cases: &Cases, at: usize) -> u32 {
    let (case, row, column) = place(cases, at);
    model.element(cases.a_row(case, row), cases.b_row(case, column), cases.c[at])
}

fn place(cases: &Cases, at: usize) -> (usize, usize, usize) {
    (at / (cases.m * cases.n), at / cases.n % cases.m, at % cases.n)
}

/// One case as hexadecimal digits: a, b, c, found, predicted.
fn example(cases: &Cases, d: &[u32], at: usize, model: &MatrixModel) -> String {
    let (case, row, column) = place(cases, at);
    let hex = |row: &[u16]| row.iter().map(|v| format!("{v:04x}")).collect::<Vec<_>>().join(" ");
    format!(
        "a {} b {} c {:08x} found {:08x} predicted {:08x}",
        hex(cases.a_row(case, row)),
        hex(cases.b_row(case, column)),
        cases.c[at],
        d[at],
        predicted(model, cases, at)
    )
}

/// k = 256 in one chain, and as four segments added as the contract's tree.
pub(super) fn segment_tree(q: &Question<'_>) -> Result<Fact, CudaError> {
    let mut fact = Fact::default();
    for kind in [Adversary::Normal, Adversary::Mixed, Adversary::Cancelling] {
        let mut cases = q.cases(TILE, 256, kind);
        cases.c.fill(0);
        let chain = TILE.run(q.device, &cases)?;
        let mut parts = Vec::new();
        for segment in 0..4 {
            let part = TILE.run(q.device, &cases.part(segment * 64, 64, cases.c.clone()))?;
            parts.push(part.into_iter().map(f32::from_bits).collect::<Vec<f32>>());
        }
        let tree: Vec<u32> = (0..chain.len())
            .map(|i| ((parts[0][i] + parts[1][i]) + (parts[2][i] + parts[3][i])).to_bits())
            .collect();
        fact.count(kind.name(), chain.len(), differences(&chain, &tree));
        let error = |d: &[u32]| relative_error(&cases, d);
        fact.note(&format!("{}: mean error of chain", kind.name()), error(&chain));
        fact.note(&format!("{}: mean error of tree", kind.name()), error(&tree));
    }
    Ok(fact)
}

/// Mean of |d − exact| / Σ|a·b| over all elements.
fn relative_error(cases: &Cases, d: &[u32]) -> f64 {
    let sum: f64 = (0..d.len())
        .map(|at| {
            let (case, row, column) = place(cases, at);
            let products = cases
                .a_row(case, row)
                .iter()
                .zip(cases.b_row(case, column))
                .map(|(a, b)| f64::from(bf16_from_bits(*a)) * f64::from(bf16_from_bits(*b)));
            let (exact, scale) = products.fold((0.0, 0.0), |(s, m), p| (s + p, m + f64::abs(p)));
            (f64::from(f32::from_bits(d[at])) - exact).abs() / scale.max(f64::MIN_POSITIVE)
        })
        .sum();
    sum / d.len() as f64
}

/// FP32 operands as sums of BF16 parts, smallest products first, in one accumulator.
pub(super) fn split_operands(q: &Question<'_>) -> Result<Fact, CudaError> {
    let mut random = SplitMix64::new(q.seed + 3);
    let (k, count) = (64, (q.samples / 128).max(2));
    let mut uniform = |n: usize| -> Vec<f32> {
        (0..n).map(|_| (random.next_unit() * 2.0 - 1.0) as f32).collect()
    };
    let (a, b) = (uniform(count * 16 * k), uniform(count * 8 * k));
    let split = |x: f32| {
        let high = round_bf16(x);
        let middle = round_bf16(x - high);
        [high, middle, round_bf16(x - high - middle)].map(|v| (v.to_bits() >> 16) as u16)
    };
    let parts =
        |data: &[f32], part: usize| -> Vec<u16> { data.iter().map(|x| split(*x)[part]).collect() };
    let mut fact = Fact::default();
    let mut results = Vec::new();
    for (name, pairs) in [
        ("high only", &[(0, 0)][..]),
        ("two parts, three products", &[(1, 0), (0, 1), (0, 0)]),
        ("three parts, six products", &[(2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)]),
    ] {
        let mut d = vec![0u32; count * 128];
        for (pa, pb) in pairs {
            let (a, b) = (parts(&a, *pa), parts(&b, *pb));
            d = TILE.run(q.device, &Cases { count, m: 16, n: 8, k, a, b, c: d })?;
        }
        fact.note(&format!("{name}: mean error"), split_error(&a, &b, k, &d));
        results.push(d);
    }
    let fma: Vec<u32> = (0..count * 128)
        .map(|at| {
            let (a, b) = rows(&a, &b, k, at);
            a.iter().zip(b).fold(0f32, |s, (a, b)| a.mul_add(*b, s)).to_bits()
        })
        .collect();
    fact.note("FP32 FMA chain: mean error", split_error(&a, &b, k, &fma));
    // BF16 operands have zero low parts: the split must then change nothing.
    let exact: Vec<f32> = a.iter().map(|x| round_bf16(*x)).collect();
    let exact_b: Vec<f32> = b.iter().map(|x| round_bf16(*x)).collect();
    let mut d = vec![0u32; count * 128];
    for (pa, pb) in [(1, 0), (0, 1), (0, 0)] {
        let (a, b) = (parts(&exact, pa), parts(&exact_b, pb));
        d = TILE.run(q.device, &Cases { count, m: 16, n: 8, k, a, b, c: d })?;
    }
    fact.count("two parts of BF16 operands", d.len(), differences(&d, &results[0]));
    Ok(fact)
}

fn rows<'a>(a: &'a [f32], b: &'a [f32], k: usize, at: usize) -> (&'a [f32], &'a [f32]) {
    let (case, row, column) = (at / 128, at / 8 % 16, at % 8);
    (&a[(case * 16 + row) * k..][..k], &b[(case * 8 + column) * k..][..k])
}

fn split_error(a: &[f32], b: &[f32], k: usize, d: &[u32]) -> f64 {
    let sum: f64 = (0..d.len())
        .map(|at| {
            let (a, b) = rows(a, b, k, at);
            let exact: f64 = a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let scale: f64 =
                a.iter().zip(b).map(|(a, b)| (f64::from(*a) * f64::from(*b)).abs()).sum();
            (f64::from(f32::from_bits(d[at])) - exact).abs() / scale
        })
        .sum();
    sum / d.len() as f64
}

/// One element: c + a₀·b₀, everything else zero.
fn single(q: &Question<'_>, a: u16, b: u16, c: u32) -> Result<u32, CudaError> {
    let mut cases =
        Cases { count: 1, m: 16, n: 8, k: 16, a: vec![0; 256], b: vec![0; 128], c: vec![0; 128] };
    cases.set_a_row(0, 0, &[a]);
    cases.set_b_row(0, 0, &[b]);
    cases.c[0] = c;
    Ok(TILE.run(q.device, &cases)?[0])
}

pub(super) fn subnormals(q: &Question<'_>) -> Result<Fact, CudaError> {
    let mut fact = Fact::default();
    let one = 0x3f80;
    for (name, a, b, c, expected) in [
        ("smallest BF16 times one is kept", 0x0001, one, 0, 0x0001_0000),
        ("a product below the normal range is kept", 0x1c80, 0x1c80, 0, 1 << 9),
        ("a subnormal accumulator is kept", 0, one, 0x0000_0001, 0x0000_0001),
        ("a sum that becomes subnormal is kept", 0x8080, one, 0x00c0_0000, 0x0040_0000),
    ] {
        let found = single(q, a, b, c)?;
        fact.count(name, 1, usize::from(found != expected));
        fact.note(&format!("{name}: bits"), format!("{found:08x}"));
    }
    Ok(fact)
}

pub(super) fn special_values(q: &Question<'_>) -> Result<Fact, CudaError> {
    let mut fact = Fact::default();
    let (one, infinity, nan) = (0x3f80, 0x7f80, 0x7fc1);
    for (name, a, b, c, expected) in [
        ("NaN operand gives the one NaN", nan, one, 0, 0x7fff_ffff),
        ("NaN accumulator gives the one NaN", 0, one, 0x7fc0_1234, 0x7fff_ffff),
        ("infinity times zero gives the one NaN", infinity, 0, 0, 0x7fff_ffff),
        ("infinity minus infinity gives the one NaN", infinity, one, 0xff80_0000, 0x7fff_ffff),
        ("infinity is kept", infinity, one, 0x3f80_0000, 0x7f80_0000),
        ("overflow gives infinity", 0x7f00, 0x7f00, 0, 0x7f80_0000),
        ("minus zero alone becomes plus zero", 0x8000, one, 0x8000_0000, 0),
    ] {
        let found = single(q, a, b, c)?;
        fact.count(name, 1, usize::from(found != expected));
        fact.note(&format!("{name}: bits"), format!("{found:08x}"));
    }
    Ok(fact)
}
