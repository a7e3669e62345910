//! Facts that `invariant` rests on: each either holds or does not.

use super::data::Adversary;
use super::fact::Fact;
use super::instruction::{Cases, Instruction, differences};
use crate::backend::cuda::{CudaError, Device};
use crate::units::SplitMix64;

/// A device and how much to ask it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) device: &'a Device,
    /// Results per kind of data and instruction.
    pub(super) samples: usize,
    pub(super) seed: u64,
}

impl Question<'_> {
    pub(super) fn random(&self, kind: Adversary) -> SplitMix64 {
        SplitMix64::new(self.seed ^ ((kind as u64) << 32))
    }

    pub(super) fn cases(&self, tile: Instruction, k: usize, kind: Adversary) -> Cases {
        Cases::random(tile, k, self.samples, kind, &mut self.random(kind))
    }

    /// Asks for every instruction of the device and every kind of data.
    fn everywhere(
        &self,
        ask: impl Fn(Instruction, Adversary) -> Result<(usize, usize), CudaError>,
    ) -> Result<Fact, CudaError> {
        let mut fact = Fact::default();
        for tile in Instruction::all(self.device.arch()) {
            for kind in Adversary::ALL {
                let (compared, different) = ask(tile, kind)?;
                fact.count(&format!("{}/{}", tile.name(), kind.name()), compared, different);
            }
        }
        Ok(fact)
    }

    /// Rows and columns change places; every result must go with them.
    pub(super) fn position(&self) -> Result<Fact, CudaError> {
        self.everywhere(|tile, kind| {
            let cases = self.cases(tile, 32, kind);
            let d = tile.run(self.device, &cases)?;
            let mut random = SplitMix64::new(self.seed + 1);
            let (rows, columns) = (shuffle(&mut random, cases.m), shuffle(&mut random, cases.n));
            let mut moved = cases.clone();
            let mut expected = d.clone();
            for case in 0..cases.count {
                for (to, from) in rows.iter().enumerate() {
                    moved.set_a_row(case, to, cases.a_row(case, *from));
                }
                for (to, from) in columns.iter().enumerate() {
                    moved.set_b_row(case, to, cases.b_row(case, *from));
                }
                for (i, row) in rows.iter().enumerate() {
                    for (j, column) in columns.iter().enumerate() {
                        let (to, from) = (cases.at(case, i, j), cases.at(case, *row, *column));
                        moved.c[to] = cases.c[from];
                        expected[to] = d[from];
                    }
                }
            }
            let found = tile.run(self.device, &moved)?;
            Ok((found.len(), differences(&found, &expected)))
        })
    }

    /// One element of each case stays, everything else of its tile changes, to NaN and infinity too.
    pub(super) fn neighbours(&self) -> Result<Fact, CudaError> {
        self.everywhere(|tile, kind| {
            let mut random = SplitMix64::new(self.seed + 2);
            let cases = self.cases(tile, 32, kind);
            let d = tile.run(self.device, &cases)?;
            let mut other = cases.clone();
            let mut kept = Vec::new();
            for case in 0..cases.count {
                let row = random.next_word() as usize % cases.m;
                let column = random.next_word() as usize % cases.n;
                kept.push(cases.at(case, row, column));
                for i in (0..cases.m).filter(|i| *i != row) {
                    let data = hostile_row(&mut random, cases.k);
                    other.set_a_row(case, i, &data);
                }
                for j in (0..cases.n).filter(|j| *j != column) {
                    let data = hostile_row(&mut random, cases.k);
                    other.set_b_row(case, j, &data);
                }
                for at in case * cases.m * cases.n..(case + 1) * cases.m * cases.n {
                    if at != kept[case] {
                        other.c[at] = random.next_word() as u32;
                    }
                }
            }
            let found = tile.run(self.device, &other)?;
            let different = kept.iter().filter(|at| found[**at] != d[**at]).count();
            Ok((kept.len(), different))
        })
    }

    /// Columns of the widest tile, computed by every narrower one.
    pub(super) fn n_tile(&self) -> Result<Fact, CudaError> {
        let mut fact = Fact::default();
        for kind in Adversary::ALL {
            let wide = self.cases(Instruction::Wgmma(256), 64, kind);
            let expected = Instruction::Wgmma(256).run(self.device, &wide)?;
            for n in [8, 16, 32, 64, 128] {
                let narrow = columns_as_cases(&wide, n);
                let found = Instruction::Wgmma(n).run(self.device, &narrow)?;
                let expected = columns_of(&wide, &expected, n);
                let name = format!("n{n} against n256/{}", kind.name());
                fact.count(&name, found.len(), differences(&found, &expected));
            }
        }
        Ok(fact)
    }

    pub(super) fn mma_sync_equals_wgmma(&self) -> Result<Fact, CudaError> {
        let mut fact = Fact::default();
        for kind in Adversary::ALL {
            for k in [16, 64, 256] {
                let wide = self.cases(Instruction::Wgmma(8), k, kind);
                let expected = Instruction::Wgmma(8).run(self.device, &wide)?;
                // Four tiles of 16 rows; the columns are shared.
                let b = (0..wide.count)
                    .flat_map(|case| wide.b[case * 8 * k..(case + 1) * 8 * k].repeat(4))
                    .collect();
                let narrow = Cases { count: wide.count * 4, m: 16, b, ..wide };
                let found = Instruction::MmaK16.run(self.device, &narrow)?;
                let name = format!("k{k}/{}", kind.name());
                fact.count(&name, found.len(), differences(&found, &expected));
            }
        }
        Ok(fact)
    }

    pub(super) fn operand_in_registers(&self) -> Result<Fact, CudaError> {
        let mut fact = Fact::default();
        for kind in Adversary::ALL {
            let cases = self.cases(Instruction::Wgmma(64), 64, kind);
            let memory = Instruction::Wgmma(64).run(self.device, &cases)?;
            let registers = Instruction::WgmmaRegisters.run(self.device, &cases)?;
            fact.count(kind.name(), memory.len(), differences(&memory, &registers));
        }
        Ok(fact)
    }

    pub(super) fn zero_start(&self) -> Result<Fact, CudaError> {
        let mut fact = Fact::default();
        for kind in Adversary::ALL {
            let cases = self.cases(Instruction::Wgmma(64), 32, kind);
            let ignored = Instruction::Wgmma(64).run_from_nothing(self.device, &cases)?;
            let zeros = Cases { c: vec![0; cases.c.len()], ..cases };
            let started = Instruction::Wgmma(64).run(self.device, &zeros)?;
            fact.count(kind.name(), started.len(), differences(&ignored, &started));
        }
        Ok(fact)
    }

    pub(super) fn chain_resumes(&self) -> Result<Fact, CudaError> {
        self.everywhere(|tile, kind| {
            let cases = self.cases(tile, 64, kind);
            let whole = tile.run(self.device, &cases)?;
            let mut d = cases.c.clone();
            for start in (0..64).step_by(16) {
                d = tile.run(self.device, &cases.part(start, 16, d))?;
            }
            Ok((whole.len(), differences(&whole, &d)))
        })
    }

    pub(super) fn zero_padding(&self) -> Result<Fact, CudaError> {
        self.everywhere(|tile, kind| {
            let cases = self.cases(tile, 64, kind);
            let mut padded = cases.clone();
            // Three quarters of the k hold zeros on B's side, anything finite on A's.
            for row in padded.b.chunks_exact_mut(64) {
                row[16..].fill(0);
            }
            let short = tile.run(self.device, &cases.part(0, 16, cases.c.clone()))?;
            let long = tile.run(self.device, &padded)?;
            Ok((short.len(), differences(&short, &long)))
        })
    }

    pub(super) fn padded_tokens(&self) -> Result<Fact, CudaError> {
        self.everywhere(|tile, kind| {
            let cases = self.cases(tile, 32, kind);
            let full = tile.run(self.device, &cases)?;
            let (mut compared, mut different) = (0, 0);
            for fill in [0u16, 0x7fc0] {
                let mut padded = cases.clone();
                for case in 0..cases.count {
                    for column in 1..cases.n {
                        padded.set_b_row(case, column, &[fill; 32]);
                    }
                }
                let found = tile.run(self.device, &padded)?;
                for at in (0..full.len()).step_by(cases.n) {
                    compared += 1;
                    different += usize::from(found[at] != full[at]);
                }
            }
            Ok((compared, different))
        })
    }

    pub(super) fn repeatable(&self) -> Result<Fact, CudaError> {
        self.everywhere(|tile, kind| {
            let cases = self.cases(tile, 64, kind);
            let first = tile.run(self.device, &cases)?;
            let mut different = 0;
            for _ in 0..99 / Instruction::all(self.device.arch()).len() {
                different += differences(&first, &tile.run(self.device, &cases)?);
            }
            Ok((first.len(), different))
        })
    }
}

/// A permutation of 0 … n − 1.
fn shuffle(random: &mut SplitMix64, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    for i in (1..n).rev() {
        order.swap(i, random.next_word() as usize % (i + 1));
    }
    order
}

/// Any bit patterns, NaN and infinity among them.
fn hostile_row(random: &mut SplitMix64, k: usize) -> Vec<u16> {
    (0..k).map(|_| random.next_word() as u16).collect()
}

/// The columns of 256-wide cases as cases of `n` columns.
fn columns_as_cases(wide: &Cases, n: usize) -> Cases {
    let parts = wide.n / n;
    let rows = wide.m * wide.k;
    let a = (0..wide.count).flat_map(|c| wide.a[c * rows..(c + 1) * rows].repeat(parts)).collect();
    Cases {
        count: wide.count * parts,
        n,
        a,
        b: wide.b.clone(),
        c: columns_of(wide, &wide.c, n),
        ..*wide
    }
}

/// An array of \[count\]\[m\]\[256\] cut into [count × parts]\[m\]\[n\].
fn columns_of(wide: &Cases, data: &[u32], n: usize) -> Vec<u32> {
    let mut cut = Vec::with_capacity(data.len());
    for case in 0..wide.count {
        for part in 0..wide.n / n {
            for row in 0..wide.m {
                let from = wide.at(case, row, part * n);
                cut.extend(&data[from..from + n]);
            }
        }
    }
    cut
}
