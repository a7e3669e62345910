#!/usr/bin/env python3
"""Make a tiny random checkpoint of any family with transformers, in the Hugging Face layout.

    pip install torch transformers safetensors        (CPU builds suffice; 5.24 was used here)
    python scripts/make_tiny.py --list
    python scripts/make_tiny.py --variant deepseek_v2-query-rank --out DIR
    python scripts/make_tiny.py --variant qwen2 --set num_key_value_heads=1 --out DIR
    python scripts/make_tiny.py --variant qwen3_5_moe --published --out DIR

Beside the checkpoint it writes prompts.json: random ids of the lengths given by --lengths. Then

    python scripts/make_reference.py --model DIR --prompts DIR/prompts.json --taps t7 --greedy 16 \\
        --measure-bf16 --out DIR/reference.json
    assay gates run model-reference --set model=DIR --set reference=DIR/reference.json

Weights are random at a scale at which logits have a deviation of about 3 and routers, gates and decays
are neither flat nor saturated, so that a mistake anywhere moves the logits. The variants are shapes
that the committed fixtures do not have.
"""

import argparse
import json
import math
import random
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

COMMON = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
              num_key_value_heads=2, vocab_size=512, max_position_embeddings=4096,
              bos_token_id=506, eos_token_id=509, rms_norm_eps=1e-6, tie_word_embeddings=False)
MOE = dict(moe_intermediate_size=40, num_experts=8, num_experts_per_tok=2, norm_topk_prob=True)
HYBRID = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
              linear_value_head_dim=16, head_dim=32, shared_expert_intermediate_size=48)
LATENT = dict(num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=32, qk_nope_head_dim=32,
              qk_rope_head_dim=16, v_head_dim=32, n_routed_experts=8, num_experts_per_tok=2,
              n_shared_experts=2, moe_intermediate_size=40, first_k_dense_replace=1,
              routed_scaling_factor=1.0, topk_method="greedy", n_group=1, topk_group=1,
              norm_topk_prob=False)


def yarn(mscale, mscale_all_dim, factor=40.0):
    return dict(rope_type="yarn", rope_theta=10000.0, factor=factor, mscale=mscale,
                mscale_all_dim=mscale_all_dim, beta_fast=32, beta_slow=1,
                original_max_position_embeddings=64)


# name -> (model_type, what differs from the common shape)
VARIANTS = {
    "qwen2": ("qwen2", {}),
    "qwen2-tied-one-kv-head": ("qwen2", dict(tie_word_embeddings=True, num_key_value_heads=1,
                                             vocab_size=521)),
    "qwen2-window": ("qwen2", dict(use_sliding_window=True, sliding_window=40, max_window_layers=0)),
    "mistral": ("mistral", dict(sliding_window=24, head_dim=16)),
    "mistral-wide-window": ("mistral", dict(sliding_window=200, head_dim=24, num_key_value_heads=1)),
    "qwen3_moe-stepped": ("qwen3_moe", dict(MOE, num_experts=6, num_experts_per_tok=3, head_dim=24,
                                            decoder_sparse_step=2, norm_topk_prob=False,
                                            num_key_value_heads=1, vocab_size=523)),
    "qwen3_moe-yarn": ("qwen3_moe", dict(MOE, head_dim=32, mlp_only_layers=[2],
                                         rope_parameters=dict(rope_type="yarn", rope_theta=1e6,
                                                              factor=4.0,
                                                              original_max_position_embeddings=64))),
    "llama-linear": ("llama", dict(head_dim=10, num_attention_heads=6, num_key_value_heads=3,
                                   hidden_size=54, intermediate_size=37, vocab_size=515,
                                   rope_parameters=dict(rope_type="linear", rope_theta=1e4,
                                                        factor=4.0))),
    "mixtral-five-experts": ("mixtral", dict(num_local_experts=5, num_experts_per_tok=3,
                                             num_key_value_heads=1)),
    "mixtral-window": ("mixtral", dict(num_local_experts=4, num_experts_per_tok=1,
                                       sliding_window=40)),
    "qwen3_next-half-rotary": ("qwen3_next", dict(
        MOE, **HYBRID, num_hidden_layers=6, full_attention_interval=3,
        decoder_sparse_step=2, num_key_value_heads=1,
        rope_parameters=dict(rope_type="default", rope_theta=1e6, partial_rotary_factor=0.5))),
    "qwen3_next-three-per-key": ("qwen3_next", dict(
        MOE, **{**HYBRID, "linear_num_value_heads": 6, "linear_value_head_dim": 24, "head_dim": 48},
        num_experts=10, num_experts_per_tok=4, norm_topk_prob=False)),
    "qwen3_next-yarn": ("qwen3_next", dict(
        MOE, **HYBRID, rope_parameters=dict(rope_type="yarn", rope_theta=1e6, factor=4.0,
                                            partial_rotary_factor=0.25,
                                            original_max_position_embeddings=64))),
    "qwen3_5_moe": ("qwen3_5_moe_text", dict(
        MOE, **HYBRID,
        rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25,
                             mrope_interleaved=True, mrope_section=[2, 1, 1]))),
    "qwen3_5_moe-every-other": ("qwen3_5_moe_text", dict(
        MOE, **HYBRID, num_experts=5, num_experts_per_tok=1, full_attention_interval=2,
        rope_parameters=dict(rope_type="default", rope_theta=1e6, partial_rotary_factor=0.5))),
    "deepseek_v2-query-rank": ("deepseek_v2", dict(
        LATENT, q_lora_rank=24, v_head_dim=20, qk_nope_head_dim=24, qk_rope_head_dim=8,
        rope_parameters=yarn(1.0, 0.5), rms_norm_eps=1e-5, routed_scaling_factor=2.5)),
    "deepseek_v2-everything": ("deepseek_v2", dict(
        LATENT, num_hidden_layers=3, q_lora_rank=24, qk_nope_head_dim=24, qk_rope_head_dim=8,
        v_head_dim=20, n_routed_experts=12, num_experts_per_tok=3, n_group=4, topk_group=2,
        topk_method="group_limited_greedy", routed_scaling_factor=2.5, n_shared_experts=1,
        rms_norm_eps=1e-5, vocab_size=519, rope_parameters=yarn(1.0, 0.5))),
    "deepseek_v2-groups": ("deepseek_v2", dict(
        LATENT, n_routed_experts=12, num_experts_per_tok=3, topk_method="group_limited_greedy",
        n_group=4, topk_group=2, n_shared_experts=1, first_k_dense_replace=2, v_head_dim=48,
        rope_parameters=yarn(0.707, 0.707))),
    "deepseek_v2-plain-rope": ("deepseek_v2", dict(
        LATENT, first_k_dense_replace=0,
        rope_parameters=dict(rope_type="default", rope_theta=50000.0))),
    "deepseek_v2-wide-dense": ("deepseek_v2", dict(
        LATENT, hidden_size=16, intermediate_size=10944, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=2, rope_parameters=yarn(0.707, 0.707))),
}


def main():
    args = arguments()
    model_type, overrides = VARIANTS[args.variant]
    values = {**COMMON, **overrides, **dict(args.set)}
    config = transformers.AutoConfig.for_model(model_type, **values)
    torch.manual_seed(args.seed)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(draw(name, parameter))
    model.to(torch.bfloat16).save_pretrained(args.out)
    if args.published:
        publish(model, args.out)
    words = random.Random(args.seed)
    lengths = args.lengths
    prompts = {f"t{n}": [words.randrange(config.vocab_size) for _ in range(n)] for n in lengths}
    (args.out / "prompts.json").write_text(json.dumps(prompts) + "\n")
    print(f"{args.out}: {model_type}, {sum(p.numel() for p in model.parameters())} parameters")


def publish(model, out):
    """Writes config and weights again as multimodal checkpoints of Qwen3.5 are published: the text model's
    config nested, its tensors under `model.language_model.`, the experts of a layer in two tensors (which
    `save_pretrained` takes apart), and beside them parts that a text engine leaves out."""
    text = json.loads((out / "config.json").read_text(encoding="utf-8"))
    outer = {key: text.pop(key) for key in ("tie_word_embeddings", "transformers_version")}
    del text["architectures"]
    config = {
        "architectures": [type(model).__name__.replace("CausalLM", "ConditionalGeneration")],
        "image_token_id": 3,
        "model_type": text["model_type"].removesuffix("_text"),
        "text_config": {**text, "mtp_num_hidden_layers": 1},
        "vision_config": {"depth": 1, "hidden_size": 32, "out_hidden_size": text["hidden_size"]},
        **outer,
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = {name.replace("model.", "model.language_model.", 1): tensor.contiguous()
               for name, tensor in model.state_dict().items()}
    hidden = text["hidden_size"]
    tensors["mtp.fc.weight"] = torch.randn(hidden, 2 * hidden, dtype=torch.bfloat16)
    tensors["model.visual.pos_embed.weight"] = torch.randn(16, 32, dtype=torch.bfloat16)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})


def draw(name, parameter):
    """Random values of the scale that a trained parameter of this name has."""
    shape = parameter.shape
    noise = torch.randn(shape)
    if name.endswith("A_log"):
        return torch.empty(shape).uniform_(1.0, 8.0).log()
    if name.endswith("dt_bias"):
        return torch.empty(shape).uniform_(-4.0, -1.0)
    if name.endswith(".bias"):
        return noise * 0.5
    if "norm" in name:
        # Norms that add 1 start at 0, others at 1.
        return parameter.detach() + noise * 0.1
    if "embed_tokens" in name:
        return noise
    gain = 3.0 if "lm_head" in name else 2.0 if name.endswith("gate.weight") else 1.0
    return noise * gain / math.sqrt(shape[-1])


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the variants")
    parser.add_argument("--variant", choices=VARIANTS, metavar="NAME")
    parser.add_argument("--set", nargs="+", type=setting, default=[], metavar="KEY=JSON")
    parser.add_argument("--published", action="store_true",
                        help="write a text model of Qwen3.5 as multimodal checkpoints are published")
    parser.add_argument("--lengths", nargs="+", type=int, default=[7, 65, 129, 257])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.list:
        raise SystemExit("\n".join(VARIANTS))
    if not (args.variant and args.out):
        parser.error("--variant and --out are needed")
    if args.published and not VARIANTS[args.variant][0].endswith("_text"):
        parser.error("--published is for the text models of Qwen3.5")
    args.out.mkdir(parents=True, exist_ok=True)
    return args


def setting(text):
    key, _, value = text.partition("=")
    return key, json.loads(value)


if __name__ == "__main__":
    main()
