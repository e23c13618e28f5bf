"""What is compared with transformers: sequences and losses, for test_against_transformers.py (with torch), for
tests/parity/make_engine_cases.py (which stores what torch computes) and for test_against_fixtures.py (which reads it).

Without torch, all but the functions that say so can be used."""
import os

import numpy

FIXTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "parity", "fixtures")
FAMILIES = ("qwen2", "qwen3", "llama-gqa", "mistral-window", "phi3", "olmo2", "gemma3")
CASES = ("signed", "clipped", "dpo")
TOKENS, TARGETS = 120, 119
DIVISOR = 50.0  # of signed weights
CLIP = (0.2, 0.28)
# DPO: two answers to one prompt, packed as documents; the second one is the rejected one.
DOCUMENTS = (0, 60)
CHOSEN, REJECTED = slice(20, 59), slice(80, 119)
BETA = 0.1
ADAMW = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.01}
OPTIMIZER = {"weight_decay": 0.01, "clip_norm": 0, "beta2": 0.95}  # the same, as settings of the engine
STEPS = 5


def inputs_of(vocabulary):
    """Tokens, and what the losses are made of."""
    clipped = numpy.random.default_rng(2)
    return {"tokens": numpy.random.default_rng(5).integers(0, vocabulary, TOKENS).astype(numpy.int32),
            "weights": numpy.random.default_rng(1).normal(size=TARGETS).astype(numpy.float32),
            "advantages": clipped.normal(size=TARGETS).astype(numpy.float32),
            "ratios": clipped.uniform(0.5, 1.6, TARGETS).astype(numpy.float32),
            "reference": numpy.random.default_rng(3).normal(-5, 1, TARGETS).astype(numpy.float32)}


def old_logprobs(inputs, now):
    """Log-probabilities before the update, such that their ratios to those of now are the inputs'."""
    return (now - numpy.log(inputs["ratios"])).astype(numpy.float32)


def run(engine, case, inputs, old):
    """The engine's result for the losses that need no torch."""
    if case == "signed":
        return engine.backward(inputs["tokens"], weights=inputs["weights"], divisor=DIVISOR)
    return engine.backward(inputs["tokens"], weights=inputs["advantages"], old_logprobs=old, clip=CLIP,
                           divisor=float(TARGETS))


def dpo_by_hand(logprobs, reference):
    """(loss, its gradient by the log-probabilities), with numpy alone."""
    difference = logprobs.astype(numpy.float64) - reference
    margin = BETA * (difference[CHOSEN].sum() - difference[REJECTED].sum())
    gradient = numpy.zeros(TARGETS)
    gradient[CHOSEN] = -BETA / (1 + numpy.exp(margin))
    gradient[REJECTED] = -gradient[CHOSEN][0]
    return float(numpy.logaddexp(0, -margin)), gradient


def torch_loss(case, inputs, old):
    """A case's loss as a function of the log-probabilities. Needs torch."""
    import torch

    def like(array, logprobs):
        return torch.as_tensor(array).to(logprobs.dtype)

    def signed(logprobs):
        return -(logprobs * like(inputs["weights"], logprobs)).sum() / DIVISOR

    def clipped(logprobs):
        ratio = torch.exp(logprobs - like(old, logprobs))
        advantages = like(inputs["advantages"], logprobs)
        return -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP[0], 1 + CLIP[1]) * advantages).mean()

    def dpo(logprobs):
        difference = logprobs - like(inputs["reference"], logprobs)
        return -torch.nn.functional.logsigmoid(BETA * (difference[CHOSEN].sum() - difference[REJECTED].sum()))

    return {"signed": signed, "clipped": clipped, "dpo": dpo}[case]


def torch_logprobs(model, case, tokens):
    """Log-probabilities of the targets by transformers, document by document; 0 between them. Needs torch."""
    import torch

    parts = []
    starts = DOCUMENTS if case == "dpo" else (0,)
    for first, last in zip(starts, (*starts[1:], len(tokens))):
        ids = torch.as_tensor(tokens[first:last], dtype=torch.long)[None]
        logits = model(input_ids=ids, use_cache=False).logits[0, :-1]
        parts += [torch.zeros(1, dtype=logits.dtype)] if parts else []
        parts.append(torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0])
    return torch.cat(parts)


def by_engine_names(model, tensors):
    """{name of a parameter of transformers: tensor} by the names of the engine, which holds projections one by one."""
    config = model.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    q, k, up = config.num_attention_heads * size, config.num_key_value_heads * size, config.intermediate_size
    rows = {"qkv_proj": {"q_proj": (0, q), "k_proj": (q, q + k), "v_proj": (q + k, q + 2 * k)},
            "gate_up_proj": {"gate_proj": (0, up), "up_proj": (up, 2 * up)}}
    found = {}
    for name, tensor in tensors.items():
        whole = next((one for one in rows if one in name), None)
        for part, (first, last) in rows.get(whole, {"": (None, None)}).items():
            found[name.replace(whole, part) if whole else name] = tensor[first:last]
    return found
