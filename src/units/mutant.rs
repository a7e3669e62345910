//! Planted defects: switches that show whether the gates can fail.
//!
//! Region code asks `mutant!("rope_base")` at the place where a plausible mistake could be made.
//! Without the cargo feature `mutants` that is the constant `false`. With it, the switch named by
//! the environment variable `ASSAY_MUTANT` is on, for the whole life of the process.

/// One plausible defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The name in `mutant!("…")` and `ASSAY_MUTANT`.
    pub name: &'static str,
    /// The region it sits in, or the area (`sampler`, `cache`, `manifest`, …).
    pub region: &'static str,
    /// What is wrong when it is on.
    pub defect: &'static str,
}

/// The environment variable that turns one switch on.
pub const MUTANT_VARIABLE: &str = "ASSAY_MUTANT";

macro_rules! mutants {
    ($($name:literal in $region:literal: $defect:literal,)*) => {
        /// Every switch. `mutant!` accepts these names only, and a test looks for each in the
        /// source.
        pub const MUTANTS: &[Mutant] =
            &[$(Mutant { name: $name, region: $region, defect: $defect },)*];
    };
}

mutants! {
    "overlapping_tensors" in "checkpoint": "byte ranges of a safetensors file may overlap",
    "hole_accepted" in "checkpoint": "unused bytes between tensors are accepted",
    "unclaimed_tensor_accepted" in "checkpoint": "a tensor that no role uses is accepted",
    "other_tied_head_accepted" in "checkpoint": "a tied model may carry another head than its embedding",
    "stray_copy_accepted" in "checkpoint": "a tensor may also lie in another shard than the index says",
    "embedding_next_id" in "embedding": "the row after the token's is looked up",
    "embedding_token_before" in "embedding": "rows of a step after the first look up the token before theirs",
    "rope_base" in "rope": "the base of the rotary frequencies is doubled",
    "rope_restarts_each_step" in "rope": "positions are counted from the start of the step",
    "rope_other_pairs" in "rope": "half-split pairs are taken interleaved and vice versa",
    "rope_scaling_ignored" in "rope": "frequencies are not scaled where the model scales them",
    "conv_off_by_one" in "gdn_conv1d": "the convolution reads one position too early",
    "conv_forgets_history" in "gdn_conv1d": "columns before the step count as zeros",
    "conv_taps_reversed" in "gdn_conv1d": "the newest column meets the oldest tap",
    "conv_silu_sigmoid" in "gdn_conv_silu": "the activation lacks the factor x",
    "conv_silu_lost_rounding" in "gdn_conv_silu": "the activation is not rounded to BF16",
    "gdn_norm_over_heads" in "gdn_prepare": "queries and keys are normalised over all heads together",
    "gdn_decay_bias_dropped" in "gdn_prepare": "the decay lacks its bias",
    "greedy_tie_order" in "gemm_f32": "equal logits give the highest id",
    "head_rows_by_order" in "gemm_f32": "the head takes rows by their order among the wanted ones",
    "head_rounds_logits" in "gemm_f32": "logits are rounded to BF16",
    "gdn_stale_group" in "gdn_core": "odd groups use the boundary state and rows of even ones",
    "gdn_query_scale" in "gdn_core": "the query is not scaled by dk^(-1/2)",
    "gdn_decay_misses_own_row" in "gdn_core": "the decay since the group began lacks the row's own",
    "commit_drops_a_row" in "gdn_commit": "the last row of a group is not committed",
    "commit_undecayed" in "gdn_commit": "the boundary state does not decay over the group",
    "gated_norm_sigmoid" in "gdn_gated_norm": "the gate lacks the factor z",
    "gated_norm_gate_first" in "gdn_gated_norm": "the gate is applied before the norm",
    "residual_lost_rounding" in "residual_add": "the residual stream is not rounded to BF16",
    "residual_first_row" in "residual_add": "every row of a step adds what the first one adds",
    "fused_norm_before_sum" in "residual_norm": "the fused norm reads the residual before the sum",
    "fused_residual_first_row" in "residual_norm": "every row of a step adds what the first one adds",
    "fused_gate_up_swapped" in "gate_up": "gate and up change places in the fused operation",
    "fused_products_unrounded" in "gate_up": "the fused products are not rounded to BF16",
    "silu_mul_swapped" in "silu_mul": "the activation is applied to up instead of gate",
    "silu_mul_sigmoid" in "silu_mul": "the activation lacks the factor x",
    "gate_halves_swapped" in "q_gate_split": "query and gate of a head change places",
    "gate_split_by_row" in "q_gate_split": "a row is cut in two instead of every head",
    "output_gate_silu" in "attention_output_gate": "the gate is silu instead of sigmoid",
    "output_gate_first_row" in "attention_output_gate": "every row of a step has the first one's gate",
    "gemm_last_segment_lost" in "gemm": "the last segment of K is not added",
    "gemm_lost_rounding" in "gemm": "outputs are not rounded to BF16",
    "fast_sums_not_cleared" in "gemm": "under `fast` a block of K adds to what the panel before left",
    "gemm_order_by_batch" in "gemm": "several tokens sum K in one chain, one token in segments",
    "attention_merge_unscaled" in "attention_core": "merging blocks does not rescale the earlier ones",
    "fast_query_misses_last_key" in "attention_core": "under `fast` a query does not see its own key",
    "fast_value_pairs_swapped" in "kv_write": "under `fast` values of neighbouring positions change places",
    "attention_misses_own_key" in "attention_core": "a query does not see its own key",
    "attention_window_one_short" in "attention_core": "a sliding window leaves out its oldest key",
    "attention_wrong_kv_head" in "attention_core": "query heads take turns over the key heads",
    "head_norm_skips_last" in "per_head_norm": "the last head is not normalised",
    "head_norm_other_style" in "per_head_norm": "w in place of 1 + w and vice versa",
    "norm_epsilon_dropped" in "rms_norm": "epsilon is not added",
    "norm_lost_rounding" in "rms_norm": "plain norms do not round before the weight",
    "norm_weight_without_one" in "rms_norm": "one-plus norms multiply by w instead of 1 + w",
    "kv_write_wrong_slot" in "kv_write": "odd positions overwrite the even ones before them",
    "kv_write_skips_page_start" in "kv_write": "the first position of every later page is not written",
    "kv_write_heads_reversed" in "kv_write": "values are stored under the heads in reverse",
    "log_softmax_last_block_lost" in "log_softmax": "the last block of ids is not part of the sum",
    "log_softmax_max_kept" in "log_softmax": "the maximum is taken off the sum and not off the logit",
    "mla_scale_without_mscale" in "mla_attention": "scores are scaled by a tenth less",
    "router_norm_rounded" in "moe_router_logits": "the router's norm is rounded to BF16",
    "router_logits_rounded" in "moe_router_logits": "the router's logits are rounded to BF16",
    "moe_tie_order" in "moe_router": "equal probabilities go to the expert with the highest id",
    "moe_permute_swapped" in "moe_permute": "neighbouring places hold each other's rows",
    "moe_combine_by_weight" in "moe_combine": "experts are added by falling weight, not by the tree over ids",
    "mla_value_rows_as_keys" in "mla_attention": "the key rows of kv_b are read one row too late",
    "mla_latent_not_normalised" in "mla_latent_norm": "the latent is cached as it was projected",
    "mla_rope_key_shifted" in "mla_latent_norm": "the rope key starts one column too early",
    "moe_weights_lost_rounding" in "moe_router": "weights stay in FP32 where the model keeps them in its own type",
    "moe_weights_unscaled" in "moe_router": "weights lack the model's factor",
    "moe_weights_not_renormalised" in "moe_router": "the weights of the chosen experts keep their sum",
    "moe_permute_unsorted" in "moe_permute": "rows are gathered in their own order, not by expert",
    "moe_gate_up_swapped" in "moe_experts": "silu is taken of up instead of gate",
    "moe_neighbouring_expert" in "moe_experts": "rows go through the weights of the next expert",
    "moe_combine_drops_a_choice" in "moe_combine": "the chosen expert with the highest id is left out",
    "moe_shared_ungated" in "moe_shared": "the gate of the shared expert is ignored",
    "moe_shared_row_stale" in "moe_shared": "odd rows add the shared expert of the row before",
    "bias_lost_rounding" in "bias_add": "the sum with a bias is not rounded",
    "bias_first_row_only" in "bias_add": "the bias is added to the first row of a step only",
    "all_reduce_drops_a_rank" in "all_reduce": "the last rank's part is not added",
    "all_reduce_rounds_parts" in "all_reduce": "every rank rounds its part to BF16 before it is added",
    "all_reduce_as_chain" in "all_reduce": "ranks are added one after the other instead of as a tree",
    "all_gather_skips_first" in "all_gather": "the first rank's columns are not copied",
    "all_gather_reversed" in "all_gather": "columns stand in the reverse order of the ranks",
    "stage_transfer_rounds" in "stage_transfer": "rows are rounded to BF16 on their way",
    "stage_transfer_loses_last_row" in "stage_transfer": "the last row arrives as zeros",
    "shared_head_of_next_rank" in "placement": "ranks that share heads take the one after their own",
    "experts_of_next_rank" in "placement": "a rank counts its experts from where the next rank's begin",
    "expert_part_rounded" in "moe_combine": "a rank's part of the sum over experts is rounded before it is added",
    "gemm_part_in_one_segment" in "placement": "a rank sums its part of K in one segment",
    "int4_part_first_scales" in "int4": "a part of a packed weight has the scales of the first groups",
    "sampler_boundary" in "sampler": "a draw that hits a boundary selects the id before it",
    "int4_scale_by_eight" in "int4": "the scale of a group is its largest value / 8",
    "int4_round_half_up" in "int4": "codes round half up instead of half to even",
    "int4_nibbles_swapped" in "int4": "the lower K is read from the high nibble",
    "int4_scales_of_first_expert" in "moe_experts": "every packed expert has the scales of the first",
    "int4_experts_prefill_by_place" in "moe_experts": "rows of packed experts are prefill by their places, not by their own",
    "int4_experts_unhashed" in "int4": "a verification does not hash the matrices of experts one by one",
    "int4_code_unchecked" in "int4": "a code of -8 in a file is not looked for",
    "sampler_block_offset" in "sampler": "the id counts from the start of its block",
    "sampler_temperature_inverted" in "sampler": "logits are multiplied by the temperature",
    "sampler_word_for_greedy" in "sampler": "greedy choice draws a random word",
    "truncate_keeps_length" in "state": "a truncated sequence goes on at its old position",
    "truncate_past_boundary" in "state": "truncation beyond what is held is not refused",
    "truncate_keeps_charge" in "state": "a truncated sequence is still charged for what it gave back",
    "restore_keeps_state" in "state": "going back to a checkpoint changes nothing",
    "reset_keeps_checkpoints" in "state": "a reset does not make checkpoints stale",
    "conv_ring_late" in "state": "convolution columns are kept one place too late",
    "manifest_theta_omitted" in "manifest": "the effective rope base is not stamped",
    "manifest_bindings_of_default" in "manifest": "every policy is stamped with the default one's kernels",
    "manifest_seed_omitted" in "manifest": "the seed of synthetic weights is not stamped",
    "compare_ignores_added_fields" in "manifest": "a field that the left manifest lacks is no difference",
    "content_in_file_order" in "manifest": "the content of weights is hashed in an arbitrary order",
    "stream_splits_characters" in "tokenizer": "a character that spans tokens comes out in pieces",
    "stream_shows_control" in "tokenizer": "control tokens are part of the text",
    "byte_table_shifted" in "tokenizer": "bytes from 0x7f on decode to their neighbours",
    "control_text_is_control" in "tokenizer": "text that spells a control token becomes one",
    "budget_excludes_first" in "generation": "the budget does not count the first token",
    "one_end_token" in "generation": "only the first of several end tokens ends a generation",
    "end_token_returned" in "generation": "the end token is among the tokens",
    "padded_ids_choosable" in "generation": "ids beyond the tokeniser's may be chosen",
}

/// Whether a planted defect is on: `if mutant!("rope_base") { … }`. A name that [`MUTANTS`] lacks
/// does not compile.
macro_rules! mutant {
    ($name:literal) => {{
        const SWITCH: usize = $crate::units::mutant_index($name);
        $crate::units::mutant_active(SWITCH)
    }};
}

pub(crate) use mutant;

/// The place of a switch in [`MUTANTS`].
///
/// # Panics
/// At compile time, where the name is not listed.
#[doc(hidden)]
pub const fn mutant_index(name: &str) -> usize {
    let mut at = 0;
    while at < MUTANTS.len() {
        if same(MUTANTS[at].name.as_bytes(), name.as_bytes()) {
            return at;
        }
        at += 1;
    }
    panic!("this switch is not listed in MUTANTS")
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Whether this build has switches at all.
pub const HAS_MUTANTS: bool = cfg!(feature = "mutants");

/// Whether the switch at `index` is on.
#[cfg(not(feature = "mutants"))]
#[doc(hidden)]
#[inline(always)]
pub const fn mutant_active(_index: usize) -> bool {
    false
}

/// Whether the switch at `index` is on.
#[cfg(feature = "mutants")]
#[doc(hidden)]
#[inline(always)]
pub fn mutant_active(index: usize) -> bool {
    active_mutant() == Some(index)
}

/// The switch that is on in this process.
#[cfg(feature = "mutants")]
fn active_mutant() -> Option<usize> {
    use std::sync::OnceLock;
    static ACTIVE: OnceLock<Option<usize>> = OnceLock::new();
    *ACTIVE.get_or_init(|| {
        let name = std::env::var(MUTANT_VARIABLE).ok()?;
        MUTANTS.iter().position(|m| m.name == name)
    })
}

#[cfg(test)]
mod tests {
    use super::MUTANTS;
    use std::path::Path;

    fn sources(folder: &Path, all: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, all);
            } else if path.extension().is_some_and(|e| e == "rs") {
                all.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    #[test]
    fn every_listed_switch_is_placed_and_names_are_unique() {
        let mut source = String::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut source);
        for (i, mutant) in MUTANTS.iter().enumerate() {
            let call = format!("mutant!(\"{}\")", mutant.name);
            assert!(source.contains(&call), "{call} is listed and nowhere placed");
            assert!(MUTANTS[..i].iter().all(|m| m.name != mutant.name), "{} twice", mutant.name);
        }
    }
}
