//! Operations of a rank: parts of what one device has, and where ranks meet.

use super::super::buffers::Buffers;
use super::super::collective::{all_gather, all_reduce, stage_receive, stage_send};
use super::super::elementwise::embedding_part;
use super::{Context, Executor};
use crate::backend::OpKind;
use crate::backend::ranks::{Abandoned, Link};
use std::panic::resume_unwind;

impl Executor {
    /// Executes an operation that only the plan of a rank has, over all rows of a step.
    ///
    /// # Panics
    /// On any other operation, and with [`Abandoned`] as the message where another rank failed.
    pub(super) fn run_rank(&self, op: &OpKind, context: &Context<'_>, b: &mut Buffers) {
        let round = self.round;
        match *op {
            OpKind::EmbeddingPart { weight, first_row, out } => {
                let weight = &self.matrices[&weight];
                embedding_part(context.tokens, weight, first_row, round, b.get_mut(out));
            }
            OpKind::GemmPart { x, weight, segments, out } => {
                b.with(out, |out, b| self.part(&weight, b.get(x), context, segments, out));
            }
            OpKind::AllReduce { x, group } => {
                met(all_reduce(self.link(), group, b, x, round));
            }
            OpKind::AllGather { x, group, out } => {
                met(all_gather(self.link(), group, b, x, out));
            }
            OpKind::StageSend { x } => met(stage_send(self.link(), b, x)),
            OpKind::StageReceive { out } => met(stage_receive(self.link(), b, out)),
            _ => unreachable!("`{}` is no operation of a rank alone", op.region()),
        }
    }

    fn link(&self) -> &Link {
        self.link.as_ref().expect("a plan of several ranks is executed with a link")
    }
}

/// A rank that is left alone ends its step without a word; the cause is the fault of another rank.
fn met(result: Result<(), Abandoned>) {
    if let Err(abandoned) = result {
        resume_unwind(Box::new(abandoned.to_string()));
    }
}
