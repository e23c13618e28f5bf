"""A small model and data for it, written without packages."""
import json
import os
import random
import struct

VOCABULARY = 256


def write_safetensors(path, tensors):
    """tensors: name -> (shape, list of floats), as F32."""
    header, offset = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + 4 * len(values)]}
        offset += 4 * len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            file.write(struct.pack(f"<{len(values)}f", *values))


def read_safetensors(path):
    """name -> (dtype, shape, bytes)"""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    begin = 8 + length
    return {name: (t["dtype"], t["shape"], data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]])
            for name, t in header.items()}


def write_model(folder, tied=False, layers=4, broken=None, vocabulary=VOCABULARY, kv_heads=2):
    """A Llama of random numbers; `broken` names a tensor that begins with a NaN."""
    os.makedirs(folder, exist_ok=True)
    hidden, heads, size, feed_forward = 32, 4, 16, 64
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": vocabulary,
              "hidden_size": hidden, "intermediate_size": feed_forward, "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": size, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "max_position_embeddings": 4096, "hidden_act": "silu",
              "initializer_range": 0.05, "tie_word_embeddings": tied, "torch_dtype": "float32"}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    chance = random.Random(5)
    tensors = {}

    def matrix(name, rows, columns):
        tensors[name] = ([rows, columns], [chance.gauss(0, 0.08) for _ in range(rows * columns)])

    def norm(name):
        tensors[name] = ([hidden], [chance.uniform(0.8, 1.2) for _ in range(hidden)])

    matrix("model.embed_tokens.weight", vocabulary, hidden)
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        norm(prefix + "input_layernorm.weight")
        matrix(prefix + "self_attn.q_proj.weight", heads * size, hidden)
        matrix(prefix + "self_attn.k_proj.weight", kv_heads * size, hidden)
        matrix(prefix + "self_attn.v_proj.weight", kv_heads * size, hidden)
        matrix(prefix + "self_attn.o_proj.weight", hidden, heads * size)
        norm(prefix + "post_attention_layernorm.weight")
        matrix(prefix + "mlp.gate_proj.weight", feed_forward, hidden)
        matrix(prefix + "mlp.up_proj.weight", feed_forward, hidden)
        matrix(prefix + "mlp.down_proj.weight", hidden, feed_forward)
    norm("model.norm.weight")
    if not tied:
        matrix("lm_head.weight", vocabulary, hidden)
    if broken:
        tensors[broken][1][0] = float("nan")
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)


def write_tokens(path, count=6000, seed=3, ends=0.01):
    """Documents that end with token 0, which this share of the tokens is."""
    chance = random.Random(seed)
    with open(path, "wb") as file:
        file.write(struct.pack(f"<{count}I", *(0 if chance.random() < ends else chance.randrange(1, VOCABULARY)
                                               for _ in range(count))))
