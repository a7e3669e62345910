//! Measures a quad: four samples A B B A and three readings of the read bandwidth.

use super::peers::Process;
use super::run::Runner;
use super::{Plan, QuadLine, RunError, Sample, Slot, Turn};
use std::collections::BTreeMap;

impl Runner<'_> {
    /// The four samples of a quad and its three bandwidth readings.
    pub(super) fn quad(
        &self,
        plan: &Plan,
        launch: u32,
        point: usize,
        arm: &str,
        processes: &mut BTreeMap<String, Process>,
    ) -> Result<QuadLine, RunError> {
        let (samples, readings) = match plan.turn {
            Turn::Sample => self.by_samples(plan, point, arm, processes)?,
            Turn::Step => self.by_steps(plan, point, arm, processes)?,
        };
        Ok(QuadLine {
            launch,
            point,
            arm: arm.to_owned(),
            samples: samples.try_into().expect("a quad has four slots"),
            bandwidth_bytes_per_second: readings,
        })
    }

    /// One sample after the other, with a reading before, in the middle and after.
    fn by_samples(
        &self,
        plan: &Plan,
        point: usize,
        arm: &str,
        processes: &mut BTreeMap<String, Process>,
    ) -> Result<(Vec<Sample>, Vec<f64>), RunError> {
        let mut readings = vec![self.reading()?];
        let mut samples = Vec::with_capacity(4);
        for (i, slot) in Slot::QUAD.into_iter().enumerate() {
            if i == 2 {
                readings.push(self.reading()?);
            }
            let name = plan.arm(slot, arm);
            samples.push(process_of(processes, name).sample(name, point)?);
        }
        readings.push(self.reading()?);
        Ok((samples, readings))
    }

    /// The four samples are open at once, two in each process, and advance in the order A B B A. A
    /// reading is about a third of the steps, and is taken between them.
    fn by_steps(
        &self,
        plan: &Plan,
        point: usize,
        arm: &str,
        processes: &mut BTreeMap<String, Process>,
    ) -> Result<(Vec<Sample>, Vec<f64>), RunError> {
        // The arm of every slot, and which of its two open samples stands there.
        let slots: Vec<(&str, usize)> = Slot::QUAD
            .into_iter()
            .zip([0, 0, 1, 1])
            .map(|(slot, open)| (plan.arm(slot, arm), open))
            .collect();
        for (name, _) in &slots {
            process_of(processes, name).engine(name)?.open(point)?;
        }
        let rounds = plan.points[point].decode_tokens as usize;
        let mut readings = Vec::with_capacity(3);
        for (from, to) in thirds(rounds) {
            let mut reading = 0f64;
            for step in from..to {
                let (name, open) = slots[step % slots.len()];
                process_of(processes, name).engine(name)?.step(open)?;
                let behind = self.probe.behind_step(step - from, to - from);
                reading = reading.max(behind.map_err(RunError::Memory)?.unwrap_or(0.0));
            }
            readings.push(reading.round());
        }
        let close = |(name, _): &(&str, usize)| process_of(processes, name).engine(name)?.close();
        Ok((slots.iter().map(close).collect::<Result<Vec<_>, _>>()?, readings))
    }

    /// Whole bytes per second.
    fn reading(&self) -> Result<f64, RunError> {
        self.probe.bytes_per_second().map(f64::round).map_err(RunError::Memory)
    }
}

/// The steps of a quad of so many rounds A B B A in three parts, each with its reading. A step costs more
/// when another process had the device before it, by 5% on an H200. The first B and the last A of a round always
/// follow another arm: where a reading stands before one of these, it costs neither arm more, and one
/// stands before each.
fn thirds(rounds: usize) -> [(usize, usize); 3] {
    let (first, second) = (4 * (rounds / 3) + 1, 4 * (2 * rounds / 3) + 3);
    [(0, first), (first, second), (second, 4 * rounds)]
}

fn process_of<'a>(processes: &'a mut BTreeMap<String, Process>, arm: &str) -> &'a mut Process {
    processes.get_mut(arm).expect("every arm that is measured has a process")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_between_steps_costs_neither_arm_more() {
        for rounds in 2..40 {
            let [first, second, third] = thirds(rounds);
            assert_eq!((first.0, first.1, second.1, third.1), (0, second.0, third.0, 4 * rounds));
            // The second slot is the first B, the fourth the last A.
            assert_eq!((second.0 % 4, third.0 % 4), (1, 3), "{rounds} rounds");
            assert!(first.1 < second.1 && second.1 < third.1, "{rounds} rounds");
        }
    }
}
