//! Measures a quad: four samples A B B A and three readings of the read bandwidth.

use super::bandwidth::readings;
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

    /// One sample after the other, with a look at the bandwidth before, between and after them.
    fn by_samples(
        &self,
        plan: &Plan,
        point: usize,
        arm: &str,
        processes: &mut BTreeMap<String, Process>,
    ) -> Result<(Vec<Sample>, Vec<f64>), RunError> {
        let look = || self.probe.between_samples().map_err(RunError::Memory);
        let mut looks = vec![look()?];
        let mut samples = Vec::with_capacity(4);
        for slot in Slot::QUAD {
            let name = plan.arm(slot, arm);
            samples.push(process_of(processes, name).sample(name, point)?);
            looks.push(look()?);
        }
        Ok((samples, readings(&looks)))
    }

    /// The four samples are open at once, two in each process, and advance in the order A B B A,
    /// with looks at the bandwidth between the steps.
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
        let mut looks = Vec::new();
        for step in 0..rounds * slots.len() {
            let (name, open) = slots[step % slots.len()];
            process_of(processes, name).engine(name)?.step(open)?;
            if self.probe.looks_behind(step, rounds) {
                looks.push(self.probe.between_steps().map_err(RunError::Memory)?);
            }
        }
        let close = |(name, _): &(&str, usize)| process_of(processes, name).engine(name)?.close();
        Ok((slots.iter().map(close).collect::<Result<Vec<_>, _>>()?, readings(&looks)))
    }
}

fn process_of<'a>(processes: &'a mut BTreeMap<String, Process>, arm: &str) -> &'a mut Process {
    processes.get_mut(arm).expect("every arm that is measured has a process")
}
