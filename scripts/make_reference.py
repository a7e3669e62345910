#!/usr/bin/env python3
"""Write a reference of a Hugging Face checkpoint: what transformers computes from it in FP32.

    pip install torch transformers safetensors        (CPU builds suffice; 5.24 was used here)
    python scripts/make_reference.py --model DIR --prompts prompts.json --out reference.json

`prompts.json` maps names to token ids or to text, as for `assay capture record`. The numbers go
to the .safetensors file beside --out. The format is described in docs/references.md; the gate
kind `model_reference` reads it:

    assay gates run model-reference --set model=DIR --set reference=reference.json

Full logits of a large vocabulary are large. With `--logits columns` each position keeps the
largest --top logits, --columns pseudo-random ones (others at each position) and the logsumexp,
which depends on every logit.
"""

import argparse
import hashlib
import json
import platform
from pathlib import Path

import numpy as np
import safetensors
import tokenizers
import torch
import transformers
from safetensors.numpy import save_file

MASK = (1 << 64) - 1


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    prompts = read_prompts(args)
    model = load(args.model, torch.float32)
    tensors = {}
    report = {
        **({"about": args.about} if args.about else {}),
        "family": model.config.get_text_config().model_type,
        "model_class": type(model).__name__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "weights_digest": weights_digest(args.model),
        "versions": versions(),
        "compute": {"f32": "stored weights converted to FP32, FP32 arithmetic, eager attention, "
                           "eager experts, no cache for logits"},
        "prompts": [{"name": name, "length": len(ids), "ids": ids, "text": text}
                    for name, (ids, text) in prompts.items()],
    }
    logits = {}
    for name, (ids, _) in prompts.items():
        logits[name] = store_logits(model, name, ids, args, tensors)
    if args.taps:
        report["tap_prompt"] = args.taps
        store_taps(model, prompts[args.taps][0], tensors)
    if args.states:
        report["state_prompt"] = args.states
        store_states(model, prompts[args.states][0], tensors)
    if args.greedy:
        report["greedy_steps"] = args.greedy
        report["greedy_note"] = "arg-max at every step, lowest id on ties, end tokens ignored"
        report["greedy"] = {name: greedy(model, ids, args.greedy)
                            for name, (ids, _) in prompts.items()}
    if args.measure_bf16:
        measured_on = prompts | draws(model, args.noise_prompts)
        for name in measured_on.keys() - prompts.keys():
            logits[name] = forward(model, measured_on[name][0]).logits[0].numpy()
        routes = {name: chosen_experts(model, ids) for name, (ids, _) in measured_on.items()}
        del model
        rounded = load(args.model, torch.bfloat16)
        report["measured"] = measure_bf16(rounded, measured_on, logits, routes)
    report["tensors"] = {name: [str(t.dtype), list(t.shape)] for name, t in tensors.items()}
    write(args.out, report, tensors)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="checkpoint folder")
    parser.add_argument("--prompts", type=Path, required=True, help="JSON: name -> ids or text")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these prompts of the file")
    parser.add_argument("--tokens", type=int, help="cut every prompt to this many tokens")
    parser.add_argument("--logits", choices=["full", "columns", "none"], default="full")
    parser.add_argument("--columns", type=int, default=56, help="pseudo-random columns per position")
    parser.add_argument("--top", type=int, default=8, help="largest logits per position")
    parser.add_argument("--greedy", type=int, default=0, metavar="STEPS", help="greedy tokens")
    parser.add_argument("--taps", metavar="NAME", help="keep the activations of this prompt")
    parser.add_argument("--states", metavar="NAME",
                        help="keep the gated-delta-net states after this prompt")
    parser.add_argument("--noise-prompts", type=int, default=16, metavar="N",
                        help="prompts of 64 random ids beside the others for --measure-bf16 [16]")
    parser.add_argument("--measure-bf16", action="store_true",
                        help="also run the model in BF16 and report how far it is from FP32")
    parser.add_argument("--about", metavar="TEXT", help="where the weights came from, for the file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="the .json file")
    args = parser.parse_args()
    if args.out.suffix != ".json":
        parser.error("--out must end in .json (the numbers go to the .safetensors beside it)")
    return args


def read_prompts(args):
    """name -> (ids, text), in file order."""
    chosen = json.loads(args.prompts.read_text(encoding="utf-8"))
    for name in args.only or []:
        if name not in chosen:
            raise SystemExit(f"{args.prompts} has no prompt `{name}`; it has {list(chosen)}")
    texts = any(isinstance(p, str) for p in chosen.values())
    has_tokenizer = (args.model / "tokenizer_config.json").exists()
    tokenizer = None
    if texts or has_tokenizer:
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    prompts = {}
    for name, prompt in chosen.items():
        if args.only and name not in args.only:
            continue
        ids = tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        if args.tokens:
            if len(ids) < args.tokens:
                raise SystemExit(f"prompt `{name}` has {len(ids)} tokens, --tokens {args.tokens}")
            ids = ids[: args.tokens]
        prompts[name] = (ids, tokenizer.decode(ids) if tokenizer else "")
    for name in filter(None, [args.taps, args.states]):
        if name not in prompts:
            raise SystemExit(f"no prompt `{name}`; there are {list(prompts)}")
    return prompts


def load(folder, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager",
        local_files_only=True)
    return model.eval()


@torch.no_grad()
def forward(model, ids, **options):
    return model(torch.tensor([ids]), use_cache=False, **options)


def store_logits(model, name, ids, args, tensors):
    """Stores what --logits asks for and returns all logits as a NumPy array [n, V]."""
    logits = forward(model, ids).logits[0].float().numpy()
    if args.logits == "full":
        tensors[f"logits.{name}.f32"] = logits
    elif args.logits == "columns":
        index = columns(logits, args.top, args.columns)
        tensors[f"columns.{name}.index"] = index
        tensors[f"columns.{name}.f32"] = np.take_along_axis(logits, index.astype(np.int64), 1)
        wide = logits.astype(np.float64)
        peak = wide.max(axis=1)
        lse = peak + np.log(np.exp(wide - peak[:, None]).sum(axis=1))
        tensors[f"logsumexp.{name}.f32"] = lse.astype(np.float32)
    return logits


def columns(logits, top, count):
    """Ids per position: the `top` largest by falling logit, then `count` pseudo-random others."""
    rows, vocab = logits.shape
    index = np.empty((rows, top + count), np.int32)
    for row in range(rows):
        best = np.lexsort((np.arange(vocab), -logits[row]))[:top]
        taken = {int(i) for i in best}
        others, state = [], row
        while len(others) < count:
            state, word = splitmix64(state)
            candidate = word % vocab
            if candidate not in taken:
                taken.add(candidate)
                others.append(candidate)
        index[row] = np.concatenate([best, np.array(others, np.int64)])
    return index


def splitmix64(state):
    state = (state + 0x9E3779B97F4A7C15) & MASK
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return state, z ^ (z >> 31)


def store_taps(model, ids, tensors):
    """Activations of every row of the prompt, under the names that the engine uses; the experts
    chosen and their weights by falling weight."""
    body = model.get_decoder()
    kept, hooks = {}, []

    def keep(name, module):
        def hook(_module, _inputs, output):
            output = output[0] if isinstance(output, tuple) else output
            kept[f"tap.{name}"] = output.detach().reshape(len(ids), -1).float().numpy().copy()
        hooks.append(module.register_forward_hook(hook))

    def route(name, module):
        def hook(_module, _inputs, output):
            _, weights, index = output
            order = torch.argsort(weights, dim=1, descending=True, stable=True)
            weights, index = (t.gather(1, order) for t in (weights, index))
            kept[f"tap.{name}.router_index"] = index.to(torch.int32).numpy().copy()
            kept[f"tap.{name}.router_weight"] = weights.float().numpy().copy()
        hooks.append(module.register_forward_hook(hook))

    keep("embed", body.embed_tokens)
    for i, layer in enumerate(body.layers):
        keep(f"layers.{i}.mixer", getattr(layer, "linear_attn", None) or layer.self_attn)
        keep(f"layers.{i}.mlp", layer.mlp)
        if hasattr(layer.mlp, "experts"):
            route(f"layers.{i}", layer.mlp.gate)
        keep(f"layers.{i}.out", layer)
    keep("final_norm", body.norm)
    forward(model, ids)
    for hook in hooks:
        hook.remove()
    tensors.update(kept)


@torch.no_grad()
def store_states(model, ids, tensors):
    """Gated-delta-net states after the prompt: recurrent [heads, k_dim, v_dim] and the
    convolution's last three inputs [channels, 3], oldest first."""
    cache = model(torch.tensor([ids]), use_cache=True).past_key_values
    found = False
    for i, layer in enumerate(cache.layers):
        if getattr(layer, "recurrent_states", None) is None:
            continue
        found = True
        recurrent, conv = layer.recurrent_states[0], layer.conv_states[0]
        width = model.config.get_text_config().linear_conv_kernel_dim
        tensors[f"state.layers.{i}.recurrent"] = recurrent[0].float().numpy().copy()
        tensors[f"state.layers.{i}.conv"] = conv[0, :, -(width - 1):].float().numpy().copy()
    if not found:
        raise SystemExit("--states: this model has no gated-delta-net layer")


@torch.no_grad()
def greedy(model, ids, steps):
    """Greedy tokens by cached decoding; margins, and a check of every token, from one full pass.

    A model without any attention has no cache that transformers could ask for its length: full passes then.
    """
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or ["full_attention"]
    cached = any("attention" in kind and kind != "linear_attention" for kind in kinds)
    cache, chunk, tokens = None, ids, []
    for _ in range(steps):
        out = model(torch.tensor([chunk]), past_key_values=cache, use_cache=cached)
        cache = out.past_key_values if cached else None
        tokens.append(int(out.logits[0, -1].argmax()))
        chunk = tokens[-1:] if cached else ids + tokens
    rows = forward(model, ids + tokens[:-1]).logits[0, len(ids) - 1:]
    best = torch.topk(rows, 2, dim=1).values
    if rows.argmax(dim=1).tolist() != tokens:
        raise SystemExit("cached decoding and a full pass disagree: a near tie; take another prompt")
    margins = [round(float(m), 5) for m in best[:, 0] - best[:, 1]]
    return {"fp32": tokens, "fp32_margin": margins, "fp32_min_margin": min(margins),
            "distinct": len(set(tokens))}


def chosen_experts(model, ids):
    """The experts of every row, ascending, layer by layer: [n, layers, k]; None without experts."""
    kept, hooks = [], []

    def hook(_module, _inputs, output):
        kept.append(np.sort(output[2].reshape(len(ids), -1).numpy(), axis=1))

    for layer in model.get_decoder().layers:
        if hasattr(layer.mlp, "experts"):
            hooks.append(layer.mlp.gate.register_forward_hook(hook))
    forward(model, ids)
    for handle in hooks:
        handle.remove()
    return np.stack(kept, axis=1) if kept else None


def draws(model, count):
    """More prompts to measure noise on: a maximum over the few rows before a flip is a low estimate."""
    rng = np.random.default_rng(1)
    vocabulary = model.config.get_text_config().vocab_size
    return {f"noise{i}": (rng.integers(0, vocabulary, 64).tolist(), None) for i in range(count)}


def measure_bf16(model, prompts, logits, routes):
    """How far the same model in BF16 is from the FP32 logits, per prompt. With experts also before
    the first row that BF16 sends elsewhere: rows behind it compute something else altogether."""
    measured = {}
    for name, (ids, _) in prompts.items():
        rounded = forward(model, ids).logits[0].float().numpy()
        difference = np.abs(rounded - logits[name])
        measured[name] = {
            "max": float(difference.max()), "mean": float(difference.mean()),
            "p99": float(np.quantile(difference, 0.99)),
            "argmax_agreement": float((rounded.argmax(1) == logits[name].argmax(1)).mean()),
        }
        if routes[name] is not None:
            flips = (chosen_experts(model, ids) != routes[name]).any(axis=(1, 2))
            before = int(flips.argmax()) if flips.any() else len(ids)
            measured[name] |= {"flipped_rows": int(flips.sum()), "rows_before_flip": before,
                               "max_before_flip": float(difference[:before].max(initial=0.0))}
    keys = [key for key in ("max", "mean", "p99", "max_before_flip")
            if all(key in m for m in measured.values())]
    worst = {key: max(m[key] for m in measured.values()) for key in keys}
    return {"fp32_vs_bf16": measured, "fp32_vs_bf16_worst": worst}


def weights_digest(folder):
    """SHA-256 over every stored tensor in name order: name, dtype, shape, bytes. The same
    weights in other files or in another order have the same digest."""
    index = Path(folder) / "model.safetensors.index.json"
    if index.exists():
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    else:
        shards = {"model.safetensors"}
    where = {}
    for path in (Path(folder) / shard for shard in sorted(shards)):
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        where.update({name: (path, 8 + size, entry) for name, entry in header.items()})
    digest = hashlib.sha256()
    for name, (path, base, entry) in sorted(where.items(), key=lambda item: item[0].encode()):
        start, end = entry["data_offsets"]
        shape = ",".join(map(str, entry["shape"]))
        digest.update(f"{name}\n{entry['dtype']}\n{shape}\n".encode())
        with open(path, "rb") as file:
            file.seek(base + start)
            digest.update(file.read(end - start))
    return digest.hexdigest()


def versions():
    return {"python": platform.python_version(), "torch": str(torch.__version__),
            "transformers": transformers.__version__, "safetensors": safetensors.__version__,
            "tokenizers": tokenizers.__version__, "numpy": np.__version__}


def write(path, report, tensors):
    numbers = path.with_suffix(".safetensors")
    save_file({name: np.ascontiguousarray(t) for name, t in tensors.items()}, numbers)
    report["tensors_sha256"] = hashlib.sha256(numbers.read_bytes()).hexdigest()
    path.write_text(dump(report) + "\n", encoding="utf-8")
    sizes = path.stat().st_size, numbers.stat().st_size
    print(f"{path}: {sizes[0]} bytes, {numbers}: {sizes[1]} bytes, {len(tensors)} tensors")


def dump(value, indent=""):
    """JSON with an object's fields on lines of their own and a list of plain values on one line."""
    if isinstance(value, dict) and value:
        inner = indent + " "
        fields = (f"{inner}{json.dumps(k)}: {dump(v, inner)}" for k, v in value.items())
        return "{\n" + ",\n".join(fields) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        inner = indent + " "
        return "[\n" + ",\n".join(inner + dump(v, inner) for v in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    main()
