//! Several ranks as one device model.

use super::layout::Layout;
use super::state::RankedState;
use super::world::{Abandoned, World};
use crate::backend::{
    Binding, DeviceKind, DeviceModel, Fault, RegionRun, RowOutput, State, Step, Tap, Taps,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Ranks that execute every step together, each in a thread of its own.
#[derive(Debug)]
pub struct RankedModel {
    ranks: Vec<Box<dyn DeviceModel>>,
    layout: Arc<Layout>,
    world: Arc<World>,
    /// Ranks meet in the order of their operations, so steps follow one another.
    step: Mutex<()>,
}

impl RankedModel {
    /// Makes one model of the ranks, whose links lead to `world`.
    pub fn new(ranks: Vec<Box<dyn DeviceModel>>, layout: Layout, world: Arc<World>) -> RankedModel {
        RankedModel { ranks, layout: Arc::new(layout), world, step: Mutex::new(()) }
    }

    /// Runs `work` on every rank at the same time, each in a thread of its own.
    fn on_every_rank<R: Send, P: Send>(
        &self,
        parts: Vec<P>,
        work: impl Fn(usize, &dyn DeviceModel, P) -> Result<R, Fault> + Sync,
    ) -> Result<Vec<R>, Fault> {
        let _turn = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        self.world.reset();
        let guarded = |rank: usize, part: P| {
            let result = work(rank, self.ranks[rank].as_ref(), part);
            if result.is_err() {
                self.world.fail();
            }
            result
        };
        let results: Vec<Result<R, Fault>> = std::thread::scope(|scope| {
            let handles: Vec<_> = parts
                .into_iter()
                .enumerate()
                .map(|(rank, part)| {
                    let guarded = &guarded;
                    scope.spawn(move || guarded(rank, part))
                })
                .collect();
            let died = |rank: usize| Fault {
                region: "unknown".to_owned(),
                message: format!("the thread of rank {rank} died"),
            };
            let joined = handles.into_iter().enumerate();
            joined.map(|(rank, h)| h.join().unwrap_or_else(|_| Err(died(rank)))).collect()
        });
        let mut done = Vec::new();
        let mut faults = Vec::new();
        for (rank, result) in results.into_iter().enumerate() {
            match result {
                Ok(result) => done.push(result),
                Err(fault) => faults.push((rank, fault)),
            }
        }
        // Ranks that were left alone say so; the cause is another's fault.
        let cause = faults.iter().find(|(_, fault)| fault.message != Abandoned.to_string());
        match cause.or(faults.first()).cloned() {
            None => Ok(done),
            Some((rank, Fault { region, message })) => {
                Err(Fault { region, message: format!("rank {rank}: {message}") })
            }
        }
    }

    /// Each rank's states, in the order of the spans.
    fn per_rank<'a>(&self, states: &'a mut [&mut dyn State]) -> Vec<Vec<&'a mut dyn State>> {
        let mut ranks: Vec<Vec<&mut dyn State>> = self.ranks.iter().map(|_| Vec::new()).collect();
        for state in states {
            let ranked = state.as_any_mut().downcast_mut::<RankedState>();
            let ranked = ranked.expect("a state of this device");
            for (all, own) in ranks.iter_mut().zip(&mut ranked.ranks) {
                all.push(own.as_mut());
            }
        }
        ranks
    }

    /// Appends what the ranks captured, put together, in the names' order.
    fn capture(&self, captured: Vec<BTreeMap<String, Tap>>, taps: &mut Taps) {
        for op in self.layout.whole.all_ops() {
            for (name, buf) in &op.taps {
                let Some(first) = captured.iter().position(|taps| taps.contains_key(name)) else {
                    continue;
                };
                let stage = self.layout.ranks[first].stage;
                let values = |rank: usize| captured[rank].get(name).map(|t| t.values.clone());
                let whole = self.layout.rows(*buf, stage, |rank| values(rank).unwrap_or_default());
                taps.append(name, self.layout.whole.buffers[buf.0].width, &whole);
            }
        }
    }
}

impl DeviceModel for RankedModel {
    fn device(&self) -> DeviceKind {
        self.ranks.first().map_or(DeviceKind::Cpu, |rank| rank.device())
    }

    fn bindings(&self) -> Vec<Binding> {
        let mut all: Vec<Binding> = self.ranks.iter().flat_map(|rank| rank.bindings()).collect();
        all.sort();
        all.dedup();
        all
    }

    fn new_state(&self) -> Box<dyn State> {
        let ranks = self.ranks.iter().map(|rank| rank.new_state()).collect();
        Box::new(RankedState { ranks, layout: Arc::clone(&self.layout) })
    }

    fn new_state_bytes(&self) -> u64 {
        self.ranks.iter().map(|rank| rank.new_state_bytes()).sum()
    }

    fn page_tokens(&self) -> usize {
        self.layout.page_tokens
    }

    fn page_bytes(&self) -> u64 {
        self.ranks.iter().map(|rank| rank.page_bytes()).sum()
    }

    fn step(
        &self,
        step: &Step<'_>,
        states: &mut [&mut dyn State],
        taps: Option<&mut Taps>,
    ) -> Result<Vec<RowOutput>, Fault> {
        let request = taps.as_deref().map(Taps::request);
        let parts = self.per_rank(states);
        let results = self.on_every_rank(parts, |_, rank, mut states| {
            let mut taps = request.clone();
            let rows = rank.step(step, &mut states, taps.as_mut())?;
            Ok((rows, taps.map(|mut taps| taps.take()).unwrap_or_default()))
        })?;
        let (rows, captured): (Vec<_>, Vec<_>) = results.into_iter().unzip();
        if let Some(taps) = taps {
            self.capture(captured, taps);
        }
        // Every rank of the last stage has the logits; the first of them gives the outputs.
        let last = self.layout.stages().saturating_sub(1);
        let first = self.layout.ranks.iter().position(|rank| rank.stage == last).unwrap_or(0);
        Ok(rows.into_iter().nth(first).unwrap_or_default())
    }

    fn region(
        &self,
        run: &RegionRun<'_>,
        states: &mut [&mut dyn State],
    ) -> Result<Vec<Vec<f32>>, Fault> {
        let parts = self.per_rank(states);
        let results = self.on_every_rank(parts, |number, rank, mut states| {
            let part = |(buf, values): &(_, Vec<f32>)| {
                Some((*buf, self.layout.part(*buf, number, values)?))
            };
            let inputs: Vec<_> = run.inputs.iter().filter_map(part).collect();
            rank.region(&RegionRun { inputs: &inputs, ..run.clone() }, &mut states)
        })?;
        let output = |(at, buf): (usize, &_)| {
            let stage = self.layout.last_stage_of(*buf);
            self.layout.rows(*buf, stage, |rank| results[rank][at].clone())
        };
        Ok(run.outputs.iter().enumerate().map(output).collect())
    }
}
