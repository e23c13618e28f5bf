#!/usr/bin/env python3
"""Saves the text model of a Gemma 3 model of images and text (4B and larger) as a directory of its own.

    python3 examples/gemma3_text.py SOURCE TARGET

longstride trains the result. Needs torch and transformers.
"""
import sys

from transformers import AutoTokenizer, Gemma3ForCausalLM, Gemma3ForConditionalGeneration


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = sys.argv[1:]
    both = Gemma3ForConditionalGeneration.from_pretrained(source, dtype="auto")
    text = Gemma3ForCausalLM(both.config.text_config)
    text.model, text.lm_head = both.model.language_model, both.lm_head
    text.to(both.dtype).save_pretrained(target)
    AutoTokenizer.from_pretrained(source).save_pretrained(target)


if __name__ == "__main__":
    main()
