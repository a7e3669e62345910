//! A plan of few operations, its weights, inputs and outputs.

use super::material::weight;
use super::subject::{Draw, Input};
use crate::backend::{Buf, BufferSpec, GdnSpec, NormWeight, Op, OpKind, Plan, WeightRef};
use crate::descriptor::{GatedDeltaNet, NormStyle, RoleName};
use crate::tensor::Weight;
use std::collections::HashMap;

/// Collects the parts of a plan.
pub(super) struct Builder {
    pub(super) plan: Plan,
    pub(super) weights: HashMap<WeightRef, Weight>,
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<Buf>,
}

impl Builder {
    pub(super) fn new() -> Builder {
        Builder {
            plan: Plan {
                buffers: Vec::new(),
                ops: Vec::new(),
                head_ops: Vec::new(),
                residual: Buf(usize::MAX),
                final_hidden: Buf(usize::MAX),
                logits: Buf(usize::MAX),
                attention_slots: Vec::new(),
                gdn_slots: Vec::new(),
                rope: None,
            },
            weights: HashMap::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
        }
    }

    pub(super) fn buffer(&mut self, name: &str, width: usize) -> Buf {
        self.plan.buffers.push(BufferSpec { name: name.to_owned(), width });
        Buf(self.plan.buffers.len() - 1)
    }

    pub(super) fn input(&mut self, name: &str, width: usize, draw: Draw) -> Buf {
        let buf = self.buffer(name, width);
        self.inputs.push(Input { buf, width, draw });
        buf
    }

    pub(super) fn output(&mut self, name: &str, width: usize) -> Buf {
        let buf = self.buffer(name, width);
        self.outputs.push(buf);
        buf
    }

    pub(super) fn weight(
        &mut self,
        role: RoleName,
        rows: usize,
        cols: usize,
        scale: f32,
    ) -> WeightRef {
        let reference = WeightRef { role, layer: Some(0) };
        self.weights.insert(reference, weight(rows, cols, role as u64 + 77, scale));
        reference
    }

    pub(super) fn norm(&mut self, role: RoleName, width: usize, style: NormStyle) -> NormWeight {
        NormWeight { weight: self.weight(role, 1, width, 1.0), style, epsilon: 1e-6 }
    }

    pub(super) fn op(&mut self, kind: OpKind) {
        self.plan.ops.push(Op { kind, layer: Some(0), taps: Vec::new() });
    }

    pub(super) fn gdn(&mut self, dims: GatedDeltaNet) -> usize {
        self.plan.gdn_slots.push(GdnSpec { layer: 0, dims });
        0
    }
}
