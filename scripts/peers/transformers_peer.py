"""A live peer for scenarios: transformers behind Assay's peer protocol (docs/scenarios.md).

    command: [python3, ../scripts/peers/transformers_peer.py, --model, DIR, --dtype, bfloat16]

Needs torch and transformers. The token loop runs between two reads of one clock; the harness checks
these times against its own.
"""

import argparse
import hashlib
import json
import pathlib
import resource
import sys
import time


def folder_digest(folder):
    """SHA-256 over `<SHA-256>  <name>` lines of config.json and the safetensors files."""
    lines = hashlib.sha256()
    names = [p for p in pathlib.Path(folder).iterdir() if p.name == "config.json" or p.suffix == ".safetensors"]
    for path in sorted(names, key=lambda p: p.name.encode()):
        with open(path, "rb") as file:
            lines.update(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n".encode())
    return lines.hexdigest()


class Peer:
    def __init__(self, options):
        self.options = options
        # With `prefill: once`: the prompt that the cache begins with, the cache, and the token behind it.
        self.kept = None

    def load(self, ask):
        if ask["protocol"] != 1:
            raise ValueError("this peer speaks protocol 1")
        import torch
        import transformers

        torch.set_num_threads(ask["threads"])
        self.torch = torch
        dtype = getattr(torch, self.options.dtype)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(self.options.model, dtype=dtype).eval()
        return {
            "reply": "loaded",
            "protocol": 1,
            "name": f"transformers {transformers.__version__}, torch {torch.__version__}",
            "model": f"{self.options.dtype} on the CPU",
            "weights_from": folder_digest(self.options.model),
            "output": "tokens",
            "threads": torch.get_num_threads(),
        }

    def forward(self, ask):
        torch, tokens, prompt = self.torch, [], ask["prompt"]
        once = ask.get("prefill") == "once"
        with torch.inference_mode():
            begun = time.perf_counter()
            if once and self.kept and self.kept[0] == prompt:
                _, cache, behind = self.kept
                cache.crop(len(prompt))
            else:
                out = self.model(torch.tensor([prompt]), use_cache=True, logits_to_keep=1)
                cache, behind = out.past_key_values, int(out.logits[0, -1].argmax())
                self.kept = (prompt, cache, behind) if once else None
            tokens.append(behind)
            first = time.perf_counter()
            for _ in range(ask["decode_tokens"]):
                step = torch.tensor([[tokens[-1]]])
                out = self.model(step, past_key_values=cache, use_cache=True)
                tokens.append(int(out.logits[0, -1].argmax()))
            end = time.perf_counter()
        return {
            "reply": "forwarded",
            "prefill_ms": 1e3 * (first - begun),
            "decode_ms": 1e3 * (end - first),
            "prompt_tokens": len(ask["prompt"]),
            "decode_tokens": ask["decode_tokens"],
            "tokens": tokens,
        }

    def finish(self, _):
        kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"reply": "finished", "host_bytes": kibibytes * 1024}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a Hugging Face folder")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    peer = Peer(parser.parse_args())
    # Only replies go to stdout; whatever libraries print is a diagnostic.
    replies, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        ask = json.loads(line)
        try:
            reply = {"load": peer.load, "forward": peer.forward, "finish": peer.finish}[ask["ask"]](ask)
        except Exception as error:  # the harness is told, whatever it was
            reply = {"reply": "failed", "message": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)
        if reply["reply"] in ("failed", "finished"):
            break


if __name__ == "__main__":
    main()
