//! What both forms of output say of a placement.

use crate::backend::cpu::Isa;
use crate::backend::{DeviceKind, Policy};
use crate::descriptor::{Descriptor, Role};
use crate::engine::manifest::NumericalPolicy;
use crate::placement::{Device, Placement, PlacementRequest, Stored};

/// A placed model.
#[derive(Debug)]
pub(in crate::cli::model) struct Placed<'a> {
    pub(super) d: &'a Descriptor,
    pub(super) p: Placement,
    /// What a folder of packed weights holds; `None` counts them in BF16.
    pub(super) stored: Option<&'a Stored>,
}

impl<'a> Placed<'a> {
    pub(in crate::cli::model) fn new(
        d: &'a Descriptor,
        p: Placement,
        stored: Option<&'a Stored>,
    ) -> Placed<'a> {
        Placed { d, p, stored }
    }

    /// The policies of the device under which the ranks have the bits of one device, `fast` last: it sums
    /// a product in one chain, of which no part is a subtree.
    pub(super) fn bitwise(&self) -> Vec<Policy> {
        let kind = match self.p.devices[0] {
            Device::Cpu => DeviceKind::Cpu,
            Device::Cuda(_) => DeviceKind::Cuda,
        };
        let keeps = |policy: &Policy| {
            let all = match kind {
                DeviceKind::Cpu => NumericalPolicy::of(self.d, *policy, Isa::PORTABLE),
                DeviceKind::Cuda => NumericalPolicy::on_cuda(self.d, *policy),
            };
            all.placed(&self.p).cuts_off_the_tree.is_empty()
        };
        let (fast, others): (Vec<Policy>, Vec<Policy>) =
            Policy::available(kind).iter().partition(|policy| **policy == Policy::Fast);
        others.into_iter().chain(fast).filter(keeps).collect()
    }

    /// Roles of which several ranks of a group hold the same part, and how many: all of the group where
    /// nothing divides the role.
    pub(super) fn replicated(&self) -> Vec<(&'a Role, usize)> {
        let copies = self.d.roles.iter().map(|role| (role, self.p.ranks_per_part(role)));
        copies.filter(|(_, ranks)| *ranks > 1).collect()
    }

    /// `--ep` that would divide experts which every rank has, among the ranks there are.
    pub(super) fn expert_flag(&self) -> Option<usize> {
        let (whole, group) = (self.p.expert == 1, self.p.group_ranks());
        let request = PlacementRequest {
            stages: Some(self.p.stages.len()),
            tensor: self.p.tensor,
            expert: group,
            ..PlacementRequest::single(self.p.devices[0])
        };
        let fits = || Placement::plan(self.d, &request).is_ok();
        (whole && group > 1 && fits()).then_some(group)
    }
}
