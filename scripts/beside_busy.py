#!/usr/bin/env python3
"""How fast does a model decode while other processes keep the processors busy?

Every round decodes four times, one after the other: assay alone, assay beside N busy processes,
llama.cpp beside them, llama.cpp alone (where --llama-bench is given). Shares are taken within a round,
so that a machine that changes between rounds does not decide; their medians are compared with --share
and --peer, and the exit code is 1 if one lies below.

  scripts/beside_busy.py --assay target/release/assay --model DIR \\
      --llama-bench L/build/bin/llama-bench --gguf model.gguf --rounds 7
"""

import argparse
import json
import os
import statistics
import subprocess
import sys


def of_assay(args):
    command = [args.assay, "generate", "--model", args.model, "--device", "cpu", "--prompt", args.prompt]
    command += ["--max-tokens", str(args.tokens + 1), "--temperature", "0", "--threads", str(args.threads)]
    done = subprocess.run(command + ["--json"], check=True, capture_output=True, text=True)
    report = json.loads(done.stdout)["statistics"]
    if report["generated_tokens"] < args.tokens // 2:
        sys.exit(f"the text ended after {report['generated_tokens']} tokens, too few to time: try another --prompt")
    return report["decode_tokens_per_second"]


def of_llama(args):
    command = [args.llama_bench, "-m", args.gguf, "-p", "0", "-n", str(args.tokens)]
    command += ["-t", str(args.threads), "-r", "1", "-o", "json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)[0]["avg_ts"]


class Busy:
    """Processes that do nothing but compute."""

    def __init__(self, count):
        self.count = count

    def __enter__(self):
        loop = [sys.executable, "-c", "while True: pass"]
        self.processes = [subprocess.Popen(loop) for _ in range(self.count)]

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--assay", required=True, help="the program")
    parser.add_argument("--model", required=True, help="Hugging Face folder")
    parser.add_argument("--llama-bench", help="llama.cpp's program of that name")
    parser.add_argument("--gguf", help="the same model for it")
    parser.add_argument("--busy", type=int, default=2, help="busy processes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64, help="decoded in each run")
    parser.add_argument("--prompt", default="Once upon a time, in a small village by the sea,")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--share", type=float, default=0.4, help="of the speed alone, at least")
    parser.add_argument("--peer", type=float, default=3.0, help="times llama.cpp beside them, at least")
    args = parser.parse_args()
    if bool(args.llama_bench) != bool(args.gguf):
        parser.error("--llama-bench and --gguf go together")

    speeds = {"assay alone": [], "assay beside": []}
    if args.llama_bench:
        speeds |= {"llama.cpp beside": [], "llama.cpp alone": []}
    for _ in range(args.rounds):
        speeds["assay alone"].append(of_assay(args))
        with Busy(args.busy):
            speeds["assay beside"].append(of_assay(args))
            if args.llama_bench:
                speeds["llama.cpp beside"].append(of_llama(args))
        if args.llama_bench:
            speeds["llama.cpp alone"].append(of_llama(args))

    print(f"decode, tok/s, {args.threads} threads, {args.busy} busy processes, {args.rounds} rounds")
    for name, values in speeds.items():
        middle = statistics.median(values)
        print(f"  {name:<17} {middle:7.1f}   {min(values):7.1f} – {max(values):.1f}")
    wanted = [("assay beside", "assay alone", args.share)]
    if args.llama_bench:
        wanted.append(("assay beside", "llama.cpp beside", args.peer))
    failed = False
    for above, below, least in wanted:
        share = statistics.median(a / b for a, b in zip(speeds[above], speeds[below]))
        failed |= share < least
        word = "fewer than" if share < least else "at least"
        print(f"{above} / {below}: {share:.2f}, {word} {least:g}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
