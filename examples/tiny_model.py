"""Makes a tiny model to try things with: python3 tiny_model.py DIRECTORY FILE...

Qwen2 with two layers and random weights, and a tokenizer of 2048 tokens trained on the files. Needs torch, tokenizers
and transformers.
"""
import sys

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

directory, *files = sys.argv[1:]
end = "<|endoftext|>"

bytes_and_pairs = ByteLevelBPETokenizer()
bytes_and_pairs.train(files, vocab_size=2048, special_tokens=[end], show_progress=False)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytes_and_pairs._tokenizer, eos_token=end, pad_token=end)
tokenizer.save_pretrained(directory)

torch.manual_seed(1)
config = Qwen2Config(
    vocab_size=len(tokenizer), hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=4096, tie_word_embeddings=True,
    bos_token_id=None, eos_token_id=tokenizer.eos_token_id)
Qwen2ForCausalLM(config).save_pretrained(directory)
print(f"{directory}: {len(tokenizer)} tokens, {config.num_hidden_layers} layers of {config.hidden_size}")
