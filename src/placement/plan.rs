//! The plan: stages, ranks, and what each rank holds.

use super::{Collective, Cut, Device, PlacementError, PlacementRequest, RoleSlice, Stored};
use super::{collective, coverage, cut, split};
use crate::descriptor::{Descriptor, Mixer, Role, RoleName, Scope, ShardRule};
use crate::tensor::Int4Shape;
use std::ops::Range;

/// Where every layer runs and how it is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The device of every rank: stage after stage, inside a stage the ranks of its group.
    pub devices: Vec<Device>,
    /// Layers of every stage.
    pub stages: Vec<Range<usize>>,
    /// Ranks that divide heads and rows.
    pub tensor: usize,
    /// Ranks that divide experts.
    pub expert: usize,
    /// The reductions that are divided.
    pub cuts: Vec<Cut>,
    /// What ranks exchange in one forward.
    pub collectives: Vec<Collective>,
    /// Per rank of a group, the part of every role, in the descriptor's order.
    slices: Vec<Vec<RoleSlice>>,
}

/// The name of a way to place a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementPolicy {
    SingleDevice,
    LayerSplit,
    TensorParallel,
    ExpertParallel,
    TensorAndExpertParallel,
}

impl PlacementPolicy {
    /// The name in manifests and output.
    pub fn name(self) -> &'static str {
        match self {
            PlacementPolicy::SingleDevice => "single_device",
            PlacementPolicy::LayerSplit => "layer_split",
            PlacementPolicy::TensorParallel => "tensor_parallel",
            PlacementPolicy::ExpertParallel => "expert_parallel",
            PlacementPolicy::TensorAndExpertParallel => "tensor_and_expert_parallel",
        }
    }
}

/// One rank's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Its number.
    pub rank: usize,
    pub device: Device,
    pub stage: usize,
    /// Its number in the group of its stage.
    pub index: usize,
}

/// A part of one weight, held by a rank.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    pub slice: &'a RoleSlice,
    /// `None` for roles that the model has once.
    pub layer: Option<usize>,
    /// Whether it takes no memory of its own: a tied head beside the embedding.
    pub shared: bool,
    /// Elements of the part that a rank of a lower number in the group holds as well.
    pub copied_elements: u64,
}

impl Placement {
    /// The whole model on one device.
    pub fn single(descriptor: &Descriptor, device: Device) -> Placement {
        Placement {
            devices: vec![device],
            stages: std::iter::once(0..descriptor.layers()).collect(),
            tensor: 1,
            expert: 1,
            cuts: Vec::new(),
            collectives: Vec::new(),
            slices: vec![descriptor.roles.iter().map(RoleSlice::whole).collect()],
        }
    }

    /// Places a model of BF16 weights.
    ///
    /// # Errors
    /// As [`Placement::plan_stored`].
    pub fn plan(d: &Descriptor, request: &PlacementRequest) -> Result<Placement, PlacementError> {
        Placement::plan_stored(d, request, &Stored::default())
    }

    /// Places a model. How its weights are stored decides which layers make stages of like bytes.
    ///
    /// # Errors
    /// [`PlacementError`]: ranks that do not fit the devices, layers, heads, rows or experts, and
    /// shard rules that do not fit together.
    pub fn plan_stored(
        d: &Descriptor,
        request: &PlacementRequest,
        stored: &Stored,
    ) -> Result<Placement, PlacementError> {
        let (tensor, expert) = (request.tensor, request.expert);
        let (devices, stages) = request.ranks()?;
        let ways = |role: &Role| ways_of(role.shard, tensor, expert);
        let divides = |wanted: fn(&Role) -> bool| d.roles.iter().any(wanted);
        if expert > 1 && !divides(|role| role.shard == ShardRule::OutExperts) {
            return Err(PlacementError::NoExperts { ranks: expert });
        }
        let by_tensor =
            |role: &Role| !matches!(role.shard, ShardRule::None | ShardRule::OutExperts);
        if tensor > 1 && !divides(by_tensor) {
            return Err(PlacementError::NothingDivided { ranks: tensor });
        }
        coverage::check(d, |role| ways(role) > 1)?;
        let slices = (0..request.group_ranks()?).map(|index| {
            let slice = |role: &Role| RoleSlice::of(d, role, index % ways(role), ways(role));
            d.roles.iter().map(slice).collect()
        });
        let slices: Vec<Vec<RoleSlice>> = slices.collect::<Result<_, _>>()?;
        Ok(Placement {
            devices,
            stages: split::stages(d, stages, stored)?,
            tensor,
            expert,
            cuts: cut::cuts(d, ways),
            collectives: collective::collectives(d, ways, stages),
            slices,
        })
    }

    /// The name of the policy that made it. A layer split is named only where nothing else divides.
    pub fn policy(&self) -> PlacementPolicy {
        match (self.tensor > 1, self.expert > 1) {
            (true, true) => PlacementPolicy::TensorAndExpertParallel,
            (true, false) => PlacementPolicy::TensorParallel,
            (false, true) => PlacementPolicy::ExpertParallel,
            (false, false) if self.stages.len() > 1 => PlacementPolicy::LayerSplit,
            (false, false) => PlacementPolicy::SingleDevice,
        }
    }

    /// Ranks of one stage.
    pub fn group_ranks(&self) -> usize {
        self.slices.len()
    }

    /// Every rank, in order.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> {
        let group = self.group_ranks();
        self.devices.iter().enumerate().map(move |(rank, device)| Rank {
            rank,
            device: *device,
            stage: rank / group,
            index: rank % group,
        })
    }

    /// The rank of every layer: the first of its stage's group.
    pub fn layer_ranks(&self) -> Vec<usize> {
        let group = self.group_ranks();
        let stages = self.stages.iter().enumerate();
        stages.flat_map(|(stage, layers)| layers.clone().map(move |_| stage * group)).collect()
    }

    /// The part of a role that the rank `index` of a group holds.
    pub fn slice(&self, role: RoleName, index: usize) -> Option<&RoleSlice> {
        self.slices.get(index)?.iter().find(|slice| slice.role == role)
    }

    /// Ranks that divide a role's weight.
    pub fn ways(&self, role: &Role) -> usize {
        let whole = self.slices[0].iter().any(|s| s.role == role.name && s.is_whole());
        if whole { 1 } else { ways_of(role.shard, self.tensor, self.expert) }
    }

    /// The cut of a role's reduction, if it is divided.
    pub fn cut(&self, role: RoleName) -> Option<&Cut> {
        self.cuts.iter().find(|cut| cut.role == role)
    }

    /// Cuts that are no subtrees: with them the bits of one device are not kept.
    pub fn cuts_off_the_tree(&self) -> impl Iterator<Item = &Cut> {
        self.cuts.iter().filter(|cut| !cut.is_subtree())
    }

    /// The parts of weights that a rank holds, layer by layer.
    pub fn held<'a>(&'a self, d: &'a Descriptor, rank: Rank) -> impl Iterator<Item = Held<'a>> {
        let (stage, last) = (rank.stage, self.stages.len() - 1);
        let layers_of = move |role: &Role| match &role.scope {
            Scope::Model if role.name == RoleName::Embed && stage == 0 => vec![None],
            Scope::Model if role.name != RoleName::Embed && stage == last => vec![None],
            Scope::Model => Vec::new(),
            Scope::Layers(layers) => {
                let here = layers.iter().filter(|layer| self.stages[stage].contains(layer));
                here.map(|layer| Some(*layer)).collect()
            }
        };
        d.roles.iter().zip(&self.slices[rank.index]).enumerate().flat_map(
            move |(at, (role, slice))| {
                // A tied head shares the embedding where both lie on one device.
                let shared = role.tied_to.is_some() && stage == 0;
                let copied_elements = match rank.index {
                    0 => 0,
                    index if index >= self.ways(role) => slice.elements(),
                    // Ranks that share a head have neighbouring numbers.
                    index => slice.elements_in_common(&self.slices[index - 1][at]),
                };
                let held = move |layer| Held { slice, layer, shared, copied_elements };
                layers_of(role).into_iter().map(held)
            },
        )
    }

    /// Bytes of the weights that a rank holds.
    pub fn weight_bytes(&self, d: &Descriptor, rank: Rank, stored: &Stored) -> u64 {
        self.held(d, rank).map(|held| stored.of_held(&held, held.slice.elements())).sum()
    }

    /// Bytes of the weights that a rank holds and that a rank of a lower number in its group holds as
    /// well: without them the ranks have every weight once.
    pub fn copied_bytes(&self, d: &Descriptor, rank: Rank, stored: &Stored) -> u64 {
        self.held(d, rank).map(|held| stored.of_held(&held, held.copied_elements)).sum()
    }

    /// Ranks of a group that hold the same part of a role; a head that ranks share is counted once.
    pub fn ranks_per_part(&self, role: &Role) -> usize {
        self.group_ranks() / self.ways(role)
    }

    /// Whether packed weights can be divided so: a rank takes whole groups of values, which share a
    /// scale, and whole tiles of rows.
    ///
    /// # Errors
    /// [`PlacementError::Packed`], for the first weight that cannot.
    pub fn check_packed(
        &self,
        d: &Descriptor,
        packed: impl IntoIterator<Item = (RoleName, Int4Shape)>,
    ) -> Result<(), PlacementError> {
        for (name, shape) in packed {
            let Some(role) = d.roles.iter().find(|role| role.name == name) else { continue };
            let slices = (0..self.group_ranks()).filter_map(|index| self.slice(name, index));
            for slice in slices.filter(|slice| !slice.is_whole()) {
                let [rows, columns] = slice.matrix();
                let refuse =
                    |why| PlacementError::Packed { role: name, ranks: self.ways(role), why };
                shape.part(&rows.ranges, &columns.ranges).map_err(refuse)?;
            }
        }
        Ok(())
    }

    /// Elements that one token adds to a rank's attention caches: keys and values, or latents.
    pub fn cache_elements_per_token(&self, d: &Descriptor, rank: Rank) -> u64 {
        let layers = &d.layer_mixers[self.stages[rank.stage].clone()];
        let heads = self.slice(RoleName::AttnK, rank.index).map_or(0, |s| 2 * s.axes[0].len());
        // One latent and one rope key, which every head reads.
        let latent = d.mla.as_ref().map_or(0, |mla| mla.latent_dim + mla.rope.rotary_dim);
        let of_layer = |mixer: &Mixer| match mixer {
            Mixer::FullAttention => heads,
            Mixer::Mla => latent,
            Mixer::Gdn => 0,
        };
        layers.iter().map(of_layer).sum::<usize>() as u64
    }

    /// Bytes of a rank's states of gated delta nets for one sequence.
    pub fn gdn_state_bytes_per_sequence(&self, d: &Descriptor, rank: Rank) -> u64 {
        let rows = |role| self.slice(role, rank.index).map(|slice| slice.axes[0].len());
        let own = d.gdn.and_then(|dims| {
            let (channels, value_heads) = (rows(RoleName::GdnConv)?, rows(RoleName::GdnALog)?);
            Some(dims.state_bytes(channels, value_heads))
        });
        let layers = &d.layer_mixers[self.stages[rank.stage].clone()];
        let nets = layers.iter().filter(|mixer| **mixer == Mixer::Gdn).count();
        own.unwrap_or(0) * nets as u64
    }
}

/// Ranks that a shard rule divides a weight among.
fn ways_of(rule: ShardRule, tensor: usize, expert: usize) -> usize {
    match rule {
        ShardRule::None => 1,
        ShardRule::OutExperts => expert,
        ShardRule::OutHeads | ShardRule::OutDim | ShardRule::InDim => tensor,
    }
}
