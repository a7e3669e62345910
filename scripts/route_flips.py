#!/usr/bin/env python3
"""How often BF16 sends a token to other experts than FP32, and how far logits are then.

    pip install numpy safetensors
    python scripts/route_flips.py --assay target/release/assay tests/fixtures/mixtral …

Records every prompt under `f32` and under `reference` and compares the experts of every row and layer.
Prompts are `--prompts` seeded draws of `--tokens` ids below the vocabulary's size.
"""

import argparse
import json
import random
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


def record(assay, model, prompts, policy, out):
    subprocess.run([assay, "capture", "record", "--model", model, "--prompts", prompts, "--policy", policy,
                    "--device", "cpu", "--all-positions", "--taps", "--out", out, "-q"], check=True)
    return load_file(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, help="folders of models with experts")
    parser.add_argument("--assay", default="target/release/assay", help="the program")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(f"{'model':24} {'flips':>6} {'of':>7} {'mean':>7} {'p99':>7}")
    for model in args.models:
        config = json.loads((model / "config.json").read_text())
        vocabulary = config.get("text_config", config)["vocab_size"]
        draw = random.Random(args.seed)
        ids = {f"r{i}": [draw.randrange(vocabulary) for _ in range(args.tokens)] for i in range(args.prompts)}
        with tempfile.TemporaryDirectory() as folder:
            prompts = Path(folder) / "prompts.json"
            prompts.write_text(json.dumps(ids))
            wide, rounded = (record(args.assay, model, prompts, policy, Path(folder) / f"{policy}.safetensors")
                             for policy in ["f32", "reference"])
        routes = [name for name in wide if name.endswith(".router_index")]
        flips = sum(int((np.sort(wide[r], 1) != np.sort(rounded[r], 1)).any(1).sum()) for r in routes)
        rows = sum(len(wide[r]) for r in routes)
        apart = [np.abs(wide[f"logits.{p}"] - rounded[f"logits.{p}"]) for p in ids]
        mean, p99 = (np.exp(np.mean(np.log([f(a) for a in apart]))) for f in
                     [np.mean, lambda a: np.quantile(a, 0.99)])
        print(f"{model.name:24} {flips:6} {rows:7} {mean:7.3f} {p99:7.3f}")


if __name__ == "__main__":
    main()
