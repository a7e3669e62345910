#!/usr/bin/env python3
"""Print what transformers says of `assay eval`'s figures: mean NLL and top-1 of a text in windows.

    pip install torch transformers        (CPU builds suffice; 5.24 was used here)
    python scripts/eval_nll.py --model DIR --text FILE --window 256 --max-tokens 1024
    assay eval --model DIR --text FILE --window 256 --max-tokens 1024 --policy f32

Windows are cut as `assay eval` cuts them for a tokeniser without a BOS: no overlap, the first token
of a window not scored. Log-probabilities are taken in FP64 from the model's logits.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, type=Path, help="Hugging Face folder")
    parser.add_argument("--text", required=True, type=Path, help="UTF-8 file")
    parser.add_argument("--window", type=int, default=512, help="tokens of a window")
    parser.add_argument("--max-tokens", type=int, help="use only this many tokens of the text")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    if tokenizer("")["input_ids"]:
        parser.error("the tokeniser puts special tokens before a text; windows would differ")
    text = args.text.read_text(encoding="utf-8")
    ids = tokenizer(text, add_special_tokens=False)["input_ids"][: args.max_tokens]
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype))
    nll, right, scored = 0.0, 0, 0
    with torch.no_grad():
        for start in range(0, len(ids), args.window):
            window = torch.tensor([ids[start : start + args.window]])
            log_p = torch.log_softmax(model(window).logits[0, :-1].double(), dim=-1)
            wanted = window[0, 1:]
            nll -= log_p[torch.arange(len(wanted)), wanted].sum().item()
            right += (log_p.argmax(-1) == wanted).sum().item()
            scored += len(wanted)
    print(f"scored_tokens {scored}\nnll_mean {nll / scored:.12f}\ntop1_accuracy {right / scored:.12f}")


if __name__ == "__main__":
    main()
