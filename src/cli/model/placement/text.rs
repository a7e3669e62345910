//! The placement as tables.

use super::Placed;
use crate::backend::Policy;
use crate::cli::table::{bytes, columns, count, wrap};
use crate::descriptor::RoleName;
use crate::placement::{Cut, Rank, Stored, Tree};

const BF16_BYTES: u64 = 2;
const COLUMNS: usize = 80;

impl Placed<'_> {
    /// The ranks, what they exchange, and where something is divided the roles and what follows of it.
    pub(in crate::cli::model) fn as_text(&self) -> String {
        let p = &self.p;
        let (stages, ranks) = (p.stages.len() as u64, p.group_ranks() as u64);
        let mut text = format!(
            "placement  {}: {} of {}\n{}",
            p.policy().name(),
            count(stages, "stage"),
            count(ranks, "rank"),
            self.ranks()
        );
        if !p.collectives.is_empty() {
            text += &format!("\n{}", self.collectives());
        }
        if ranks == 1 {
            let bits = "every rank holds whole layers: the bits of one device under every policy";
            return text + "\n" + &sentence(bits);
        }
        text + &format!("\n{}\n", self.roles()) + &self.conclusions()
    }

    fn ranks(&self) -> String {
        let (d, p) = (self.d, &self.p);
        let plain = Stored::default();
        let (stored, weights) = match self.stored {
            Some(stored) => (stored, "weights as packed"),
            None => (&plain, "weights in BF16"),
        };
        // A model without gated delta nets has no such state.
        let shown = if d.gdn.is_some() { 7 } else { 6 };
        let heads = ["rank", "device", "layers", weights, "copies", "cache/token", "state"];
        let row = |rank: Rank| {
            let layers = &p.stages[rank.stage];
            [
                rank.rank.to_string(),
                rank.device.to_string(),
                format!("{}-{}", layers.start, layers.end - 1),
                bytes(p.weight_bytes(d, rank, stored)),
                bytes(p.copied_bytes(d, rank, stored)),
                bytes(p.cache_elements_per_token(d, rank) * BF16_BYTES),
                bytes(p.gdn_state_bytes_per_sequence(d, rank)),
            ]
        };
        let rows = std::iter::once(heads.map(str::to_owned)).chain(p.ranks().map(row));
        let rows: Vec<Vec<String>> = rows.map(|row| row[..shown].to_vec()).collect();
        let mut text = columns(&rows, &[0, 3, 4, 5, 6]);
        text +=
            &sentence("copies: weights that a rank of a lower number in the stage holds as well");
        text += &sentence("cache/token: in BF16; under f32 in FP32, twice as much");
        if d.gdn.is_some() {
            text += &sentence(
                "state: of a sequence's gated delta nets, matrices in FP32, columns of the \
                 convolution in BF16",
            );
        }
        text
    }

    fn collectives(&self) -> String {
        let heads = ["collective", "after", "ranks", "elements/token", "per forward"];
        let mut rows = vec![heads.map(str::to_owned).to_vec()];
        rows.extend(self.p.collectives.iter().map(|c| {
            vec![
                c.kind.to_string(),
                c.after.map_or(String::new(), |role| role.to_string()),
                format!("{} {}", c.ranks, c.kind.group()),
                c.elements_per_token.to_string(),
                c.per_forward.to_string(),
            ]
        }));
        columns(&rows, &[3, 4])
    }

    fn roles(&self) -> String {
        let mut rows = vec![["role", "ways", "on a rank", "reduction"].map(str::to_owned).to_vec()];
        rows.extend(self.d.roles.iter().map(|role| {
            let slice = self.p.slice(role.name, 0);
            let shape =
                slice.map(|s| s.axes.iter().map(|a| a.len().to_string()).collect::<Vec<_>>());
            vec![
                role.name.to_string(),
                self.p.ways(role).to_string(),
                shape.unwrap_or_default().join(" × "),
                self.p.cut(role.name).map(reduction).unwrap_or_default(),
            ]
        }));
        columns(&rows, &[1])
    }

    /// What is replicated, which heads are shared, what could be divided further, and the bits.
    fn conclusions(&self) -> String {
        let (d, p) = (self.d, &self.p);
        let replicated = self.replicated();
        let mut copies: Vec<usize> = replicated.iter().map(|(_, ranks)| *ranks).collect();
        copies.sort_unstable_by(|a, b| b.cmp(a));
        copies.dedup();
        let mut text = String::new();
        for ranks in copies {
            let of = replicated.iter().filter(|(_, found)| *found == ranks);
            let names = list(of.map(|(role, _)| role.name));
            text += &sentence(&match ranks == p.group_ranks() {
                true => format!("replicated: {names}"),
                false => format!("each part on {ranks} ranks: {names}"),
            });
        }
        for shared in p.shared_heads(d) {
            let (role, dimension, ranks) = (shared.role, shared.dimension, shared.ranks);
            text += &sentence(&match shared.partly {
                false => format!("{role}: ranks outnumber {dimension}, {ranks} ranks hold each"),
                true => format!(
                    "{role}: ranks outnumber {dimension}, {ranks} ranks hold the q and k rows of each; \
                     the other rows are divided"
                ),
            });
        }
        if d.moe.is_some() && p.expert == 1 {
            let divides = self.expert_flag().map(|ranks| format!("; --ep {ranks} divides them"));
            text +=
                &sentence(&format!("the experts are on every rank{}", divides.unwrap_or_default()));
        }
        let off: Vec<RoleName> = p.cuts_off_the_tree().map(|cut| cut.role).collect();
        text + &sentence(&match off.is_empty() {
            true => {
                let policies: Vec<String> = self.bitwise().iter().map(Policy::to_string).collect();
                let policies = policies.join(", ");
                format!(
                    "every cut is a subtree of its reduction: the bits of one device under {policies}"
                )
            }
            false => {
                format!("no subtrees, so other bits than one device: {}", list(off.into_iter()))
            }
        })
    }
}

/// `512 in 8 segments, subtrees`, `576 in 1 segment, no subtrees`.
fn reduction(cut: &Cut) -> String {
    let whole = match cut.tree {
        Tree::Segments(n) => format!("{} in {}", cut.extent, count(n as u64, "segment")),
        Tree::Experts => count(cut.extent as u64, "expert"),
    };
    match cut.is_subtree() {
        true => format!("{whole}, subtrees"),
        false => format!("{whole}, no subtrees"),
    }
}

fn list(roles: impl Iterator<Item = RoleName>) -> String {
    roles.map(|role| role.to_string()).collect::<Vec<_>>().join(", ")
}

/// Lines of at most 80 columns; those after the first are indented.
fn sentence(text: &str) -> String {
    let wrapped = wrap(text, "  ", COLUMNS);
    wrapped.trim_start().to_owned() + "\n"
}
