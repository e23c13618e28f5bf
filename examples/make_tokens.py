"""Turns text into a token file for longstride: python3 make_tokens.py MODEL OUT FILE...

MODEL is a Hugging Face directory with a tokenizer. A .jsonl file holds one document a line, {"text": ...} or
{"prompt": ..., "completion": ...}; any other file is one document of text. Writes OUT.bin, the token ids, and OUT.mask,
which is 0 for prompts: they are read and not learned. Needs numpy and transformers.
"""
import json
import sys

import numpy
from transformers import AutoTokenizer

model, out, *files = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(model)


def documents(path):
    """Yields (prompt, text); only the text is learned."""
    with open(path, encoding="utf-8", errors="replace") as file:
        if path.endswith(".jsonl"):
            for line in map(json.loads, filter(str.strip, file)):
                yield line.get("prompt", ""), line["completion"] if "prompt" in line else line["text"]
        else:
            yield "", file.read()


tokens = documents_done = learned = 0
with open(out + ".bin", "wb") as ids_file, open(out + ".mask", "wb") as mask_file:
    for prompt, text in (d for path in files for d in documents(path)):
        # The tokenizer puts what begins a document, where its model has such a token, before the prompt.
        before = tokenizer(prompt)["input_ids"]
        after = tokenizer(text, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
        numpy.array(before + after, dtype="<u4").tofile(ids_file)
        numpy.array([0] * len(before) + [1] * len(after), dtype="u1").tofile(mask_file)
        tokens, learned, documents_done = tokens + len(before + after), learned + len(after), documents_done + 1

print(f"{out}.bin: {documents_done} documents, {tokens} tokens, {learned} of them learned")
print(f"document_token = {tokenizer.eos_token_id}")
