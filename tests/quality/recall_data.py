"""Data and a model for scripts/sparse-quality: facts hidden in real text, and a small model with random weights.

A recall document is text (bytes are tokens 0 to 255, none of them a target) in which pairs of a key and a value (one
token each) take the place of some characters. Where a key comes again, its value is a target: the model has to find a
place where the pair was before. Kinds of documents (KINDS):
  facts   each pair comes again alone, among text that has nothing to do with where it was;
  quotes  passages of text with many pairs come again word for word.
A text document is text alone, and its characters are targets.
Everything is drawn from seeds; the text is the only input.
"""
import array
import functools
import gzip
import hashlib
import json
import math
import os
import random
import struct

KINDS = ("facts", "quotes")
KEYS, VALUES = 256, 32
FIRST_KEY, FIRST_VALUE = 256, 256 + KEYS
PASSAGE_PAIRS = 16  # pairs of a quote
VOCABULARY = 576  # a multiple of 64
EMBEDDING = 0.5  # deviation


# ---- text ----

def file_text(path, most):
    """The bytes of a text file (or of one in gzip), empty if it is something else."""
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
            text = file.read(most)
        text.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(text) - 4:  # not merely cut inside a character
            return b""
    except (OSError, EOFError, gzip.zlib.error):
        return b""
    return b"" if b"\0" in text else text


def gather_text(roots, train_bytes, held_bytes):
    """Text to train on and text held out, of different packages (folders below a root); no file twice."""
    parts = {False: [], True: []}
    wanted = {False: train_bytes, True: held_bytes}
    seen = set()
    for root in roots:
        packages = sorted(os.listdir(root)) if os.path.isdir(root) else []
        packages.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
        for package in packages:
            held = hashlib.sha256(package.encode()).digest()[-1] < 32
            if wanted[held] <= 0:
                continue
            top = os.path.join(root, package)
            paths = sorted(os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names)
            for path in paths if os.path.isdir(top) else [top]:
                if os.path.islink(path) or wanted[held] <= 0:
                    continue
                text = file_text(path, 1 << 18)
                digest = hashlib.sha256(text).digest()
                if len(text) < 64 or digest in seen:
                    continue
                seen.add(digest)
                parts[held].append(text[:wanted[held]])
                wanted[held] -= len(parts[held][-1])
    if wanted[True] > 0 or wanted[False] > train_bytes * 15 // 16:
        raise SystemExit(f"{', '.join(roots)}: too little text ({sum(map(len, parts[False]))} bytes to train on, "
                         f"{sum(map(len, parts[True]))} held out); name more directories with --text")
    return b"".join(parts[False]), b"".join(parts[True])


def tokens_of(text):
    """Bytes as an array of u16 tokens."""
    tokens = array.array("H")
    tokens.frombytes(text.decode("latin-1").encode("utf-16-le"))
    return tokens


@functools.lru_cache(maxsize=1)
def whole_file(path):
    with open(path, "rb") as file:
        return file.read()


def piece(text, length, numbers):
    at = numbers.randrange(len(text) - length)
    return text[at:at + length]


# ---- documents ----

def places(length, spacing, numbers):
    """Places for two tokens each, ascending: one in every `spacing` tokens."""
    return [begin + numbers.randrange(spacing - 1) for begin in range(0, length - spacing + 1, spacing)]


def training_recall(text, length, numbers, spacings):
    """Half of the documents are as the held-out ones. In the others keys come again often, at all distances: by one that
    is uniform in its logarithm, or any key, or one not seen for long."""
    spacing = round(math.exp(numbers.uniform(*map(math.log, spacings))))
    if numbers.random() < 0.5:
        kind = numbers.choice(KINDS if length >= 4 * PASSAGE_PAIRS * spacing else ("facts",))
        return held(kind, piece(text, length, numbers), numbers, spacing, PASSAGE_PAIRS * spacing, 2)[:2]
    tokens, mask = tokens_of(piece(text, length, numbers)), bytearray(length)
    at_all = places(length, spacing, numbers)
    events = len(at_all)
    count = min(KEYS, max(1, round(events * numbers.uniform(0.15, 0.5))))
    keys = numbers.sample(range(KEYS), count)
    values = [numbers.randrange(VALUES) for _ in keys]
    # With few keys before it, a value could be guessed: the first ones are all new.
    first = min(8, count)
    is_new = bytearray(events)
    for event in [*range(first), *numbers.sample(range(first, events), count - first)]:
        is_new[event] = 1
    order, stated, last = [], 0, [0] * count
    draw = numbers.random
    for event, at in enumerate(at_all):
        if is_new[event]:
            which = stated
            stated += 1
        elif draw() < 0.25:
            which = order[-int(math.exp(draw() * math.log(event + 0.5)))]
        elif draw() < 0.5:
            which = int(draw() * stated)
        else:
            which = min((int(draw() * stated) for _ in range(4)), key=last.__getitem__)
        order.append(which)
        last[which] = event
        tokens[at] = FIRST_KEY + keys[which]
        tokens[at + 1] = FIRST_VALUE + values[which]
        mask[at + 1] = not is_new[event]
    return tokens, mask


def held(kind, text, numbers, spacing, passage, near):
    """A document as they are held out: pairs come twice, at least `near` tokens apart, one in `spacing` tokens or in
    quotes of `passage` tokens. Gives also (place of the target, distance)."""
    if kind == "quotes":
        return held_quotes(text, numbers, passage, near)
    return held_facts(text, numbers, 2 * spacing, near)


def held_facts(text, numbers, spacing, near):
    length = len(text)
    count = min(KEYS, length // spacing)
    free = places(length, spacing // 2, numbers)
    tokens, mask, asked = tokens_of(text), bytearray(length), []
    for key in numbers.sample(range(KEYS), count):
        twice = two_places(free, near, numbers)
        if twice is None:
            break  # only near places are left
        value = numbers.randrange(VALUES)
        for at in twice:
            tokens[at], tokens[at + 1] = FIRST_KEY + key, FIRST_VALUE + value
        mask[twice[1] + 1] = 1
        asked.append((twice[1] + 1, twice[1] - twice[0]))
    return tokens, mask, asked


def two_places(free, near, numbers):
    """Takes two, at least `near` apart, the earlier one first; None if there seem to be none."""
    for _ in range(50):
        if len(free) < 2:
            break
        first, again = sorted(numbers.sample(free, 2))
        if again - first >= near:
            free.remove(first)
            free.remove(again)
            return first, again
    return None


def held_quotes(text, numbers, passage, near):
    length, room = len(text), passage + passage // 4
    free = [begin + numbers.randrange(room - passage + 1) for begin in range(0, length - room + 1, room)]
    tokens, mask, asked = tokens_of(text), bytearray(length), []
    keys = numbers.sample(range(KEYS), KEYS)
    while len(keys) >= PASSAGE_PAIRS:
        twice = two_places(free, near, numbers)
        if twice is None:
            break
        first, again = twice
        for at in places(passage, passage // PASSAGE_PAIRS, numbers):
            tokens[first + at], tokens[first + at + 1] = FIRST_KEY + keys.pop(), FIRST_VALUE + numbers.randrange(VALUES)
            mask[again + at + 1] = 1
            asked.append((again + at + 1, again - first))
        tokens[again:again + passage] = tokens[first:first + passage]
    return tokens, mask, asked


def training_text(text, length, numbers, _):
    return tokens_of(piece(text, length, numbers)), b"\1" * length


def training_sequence(arguments):
    """One sequence: documents of one length, side by side. In one argument, for a pool of processes."""
    path, context, lengths, spacings, text_share, seed = arguments
    text = whole_file(path)
    numbers = random.Random(seed)
    length = numbers.choice(lengths)
    tokens, mask = array.array("H"), bytearray()
    make = training_text if numbers.random() < text_share else training_recall
    for _ in range(context // length):
        more_tokens, more_mask = make(text, length, numbers, spacings)
        tokens += more_tokens
        mask += more_mask
    return tokens.tobytes(), bytes(mask), length


def write_data(directory, sequences):
    """Token file (u16), loss mask and document index from (tokens, mask, document length); complete or absent."""
    temporary = directory + ".unfinished"
    os.makedirs(temporary, exist_ok=True)
    total = 0
    with open(os.path.join(temporary, "tokens.u16"), "wb") as tokens_file, \
         open(os.path.join(temporary, "mask.u8"), "wb") as mask_file, \
         open(os.path.join(temporary, "documents.u64"), "wb") as index_file:
        for tokens, mask, length in sequences:
            tokens_file.write(tokens)
            mask_file.write(mask)
            index_file.write(array.array("Q", range(total, total + len(mask), length)).tobytes())
            total += len(mask)
    os.rename(temporary, directory)


# ---- the model ----

def bf16(values):
    """Cut, not rounded."""
    raw = array.array("f", values).tobytes()
    short = bytearray(len(raw) // 2)
    short[0::2], short[1::2] = raw[2::4], raw[3::4]
    return bytes(short)


def look_back(weights, layer, hidden, size, theta):
    """Lets the layer's first head begin as one that attends to the token before, by its biases alone, and speaks as loud
    as the token itself.

    Lookup needs such a head (where a pair's value is, its key must be known), and a model takes much longer to find it
    than all the rest. With the bias of k along (1, 0) and that of q along R(-1) (1, 0) in the pairs of dimensions that
    RoPE turns fastest, scores are largest one token back.
    """
    name, half = f"model.layers.{layer}.self_attn.", size // 2
    for which in "qk":
        weights[name + f"{which}_proj.weight"][:size * hidden] = [0.0] * (size * hidden)
    for i in range(half):
        angle = theta ** (-i / half)
        if angle > 0.05:
            weights[name + "k_proj.bias"][i] = 8.0
            weights[name + "q_proj.bias"][i] = 8.0 * math.cos(angle)
            weights[name + "q_proj.bias"][i + half] = -8.0 * math.sin(angle)
    out = weights[name + "o_proj.weight"]
    wide = len(out) // hidden
    power = sum(out[i * wide + j] ** 2 for i in range(hidden) for j in range(size)) / hidden  # of an output element
    for i in range(hidden):
        for j in range(size):
            out[i * wide + j] *= EMBEDDING * power ** -0.5


def write_model(directory, hidden, layers, heads, kv_heads, ffn, seed):
    """A Qwen2 with random weights in bf16 (but see look_back), as a Hugging Face directory. Gives its size."""
    size = hidden // heads
    config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": hidden,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
              "intermediate_size": ffn, "vocab_size": VOCABULARY, "hidden_act": "silu", "rms_norm_eps": 1e-6,
              "rope_theta": 1e7, "max_position_embeddings": 131072, "tie_word_embeddings": True,
              "use_sliding_window": False, "torch_dtype": "bfloat16", "initializer_range": 0.02}
    wide, out = hidden ** -0.5, (2 * layers) ** -0.5  # what is added to the residual stream begins smaller
    # Tokens are told apart from the start, by an embedding as large as what layers add; the last norm makes up for it.
    shapes = {"model.embed_tokens.weight": ((VOCABULARY, hidden), EMBEDDING), "model.norm.weight": ((hidden,), None)}
    for i in range(layers):
        name = f"model.layers.{i}."
        shapes |= {name + "input_layernorm.weight": ((hidden,), None),
                   name + "post_attention_layernorm.weight": ((hidden,), None),
                   name + "self_attn.q_proj.weight": ((heads * size, hidden), wide),
                   name + "self_attn.k_proj.weight": ((kv_heads * size, hidden), wide),
                   name + "self_attn.v_proj.weight": ((kv_heads * size, hidden), wide),
                   name + "self_attn.o_proj.weight": ((hidden, heads * size), (heads * size) ** -0.5 * out),
                   name + "mlp.gate_proj.weight": ((ffn, hidden), wide),
                   name + "mlp.up_proj.weight": ((ffn, hidden), wide),
                   name + "mlp.down_proj.weight": ((hidden, ffn), ffn ** -0.5 * out)}
        for which, width in (("q", heads * size), ("k", kv_heads * size), ("v", kv_heads * size)):
            shapes[name + f"self_attn.{which}_proj.bias"] = ((width,), 0.0)
    numbers = random.Random(seed)
    weights = {name: [1.0] * math.prod(shape) if deviation is None else
               [numbers.gauss(0, deviation) if deviation else 0.0 for _ in range(math.prod(shape))]
               for name, (shape, deviation) in shapes.items()}
    weights["model.norm.weight"] = [0.1] * hidden
    look_back(weights, 0, hidden, size, config["rope_theta"])
    header, at = {}, 0
    for name, (shape, _) in shapes.items():
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + 2 * math.prod(shape)]}
        at += 2 * math.prod(shape)
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    text += b" " * (-len(text) % 8)
    temporary = directory + ".unfinished"
    os.makedirs(temporary, exist_ok=True)
    with open(os.path.join(temporary, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(bf16(values) for values in weights.values()))
    with open(os.path.join(temporary, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    os.rename(temporary, directory)
    return at // 2


def read_safetensors(path):
    """Tensors of one dimension as sequences of numbers, by name."""
    kinds = {"F32": "f", "I32": "i", "U8": "B", "BOOL": "B", "I64": "q"}
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    return {name: memoryview(data)[slice(*entry["data_offsets"])].cast(kinds[entry["dtype"]])
            for name, entry in header.items() if name != "__metadata__"}
