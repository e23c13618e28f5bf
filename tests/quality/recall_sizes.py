"""Sizes of what scripts/sparse-quality trains and evaluates."""
# A stage is trained in tries of `steps` steps with new data, each from the model of the one before, until the recall of
# held-out documents as long as its longest reaches `goal` for every kind of them, or `tries` are used up. A step is one
# sequence, of documents of one of the `lengths`: recall, with a pair in so many tokens (`spacings`), or text
# (`text_share`, else an eighth). Rates are low and the first documents short: otherwise the model needs many times as
# long to find out that it has to look for the key (a model of 8 million parameters at a rate of 2e-3, in documents of 128
# and 256 tokens: not within 80 million tokens).
# Summaries: (kind, keys per vector), the plainest first, the one to tune with last.
FULL_SUMMARIES = [["means", 128], ["means", 32], ["outliers", 64], ["outliers", 32]]
SMALL_SUMMARIES = [["means", 16], ["means", 4], ["outliers", 8], ["outliers", 4]]
FULL = {
    "model": {"hidden": 512, "layers": 4, "heads": 8, "kv_heads": 4, "ffn": 1024},
    "page": 128, "chunk": 1024, "contexts": [16384, 32768, 65536], "summaries": FULL_SUMMARIES, "spacing": 64,
    "passage": 384, "sequence": 262144, "text": 131072, "text_bytes": 32 << 20,
    "stages": [
        {"name": "32", "lengths": [16, 32], "spacings": [2, 2], "sequence": 16384, "chunk": 8192, "steps": 600,
         "rate": 2e-4, "tries": 3},
        {"name": "256", "lengths": [64, 128, 256], "spacings": [2, 6], "sequence": 16384, "chunk": 8192, "steps": 400,
         "rate": 2e-4, "tries": 3},
        {"name": "2K", "lengths": [512, 1024, 2048], "spacings": [3, 24], "sequence": 32768, "chunk": 8192,
         "steps": 400, "rate": 2e-4, "tries": 3},
        {"name": "16K", "lengths": [4096, 8192, 16384, 16384], "spacings": [8, 64], "sequence": 65536, "chunk": 8192,
         "steps": 300, "rate": 1.5e-4, "tries": 3, "text_share": 0.25},
        {"name": "64K", "lengths": [16384, 32768, 65536, 65536], "spacings": [16, 128], "sequence": 65536,
         "chunk": 8192, "steps": 300, "rate": 1.5e-4, "tries": 3, "text_share": 0.25}],
    "tuning": {"lengths": [16384], "spacings": [16, 64], "sequence": 65536, "chunk": 1024, "steps": 150, "rate": 1e-4,
               "text_share": 0.25},
    "goal": 0.97, "least": 0.6, "warmup": 20}
# The same with pages, chunks and contexts of an eighth, which a CPU can train.
SMALL = {
    "model": {"hidden": 128, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 256},
    "page": 16, "chunk": 128, "contexts": [2048, 4096, 8192], "summaries": SMALL_SUMMARIES, "spacing": 16,
    "passage": 48, "sequence": 8192, "text": 8192, "text_bytes": 8 << 20,
    "stages": [
        {"name": "32", "lengths": [16, 32], "spacings": [2, 2], "sequence": 4096, "chunk": 1024, "steps": 400,
         "rate": 1e-3, "tries": 3},
        {"name": "256", "lengths": [64, 128, 256], "spacings": [2, 4], "sequence": 4096, "chunk": 1024, "steps": 200,
         "rate": 1e-3, "tries": 3},
        {"name": "2K", "lengths": [512, 1024, 2048], "spacings": [2, 16], "sequence": 8192, "chunk": 1024, "steps": 80,
         "rate": 1e-3, "tries": 3},
        {"name": "8K", "lengths": [2048, 4096, 8192], "spacings": [3, 32], "sequence": 8192, "chunk": 1024, "steps": 80,
         "rate": 5e-4, "tries": 3}],
    "tuning": {"lengths": [2048], "spacings": [3, 32], "sequence": 8192, "chunk": 128, "steps": 60, "rate": 2e-4},
    "goal": 0.97, "least": 0.6, "warmup": 20}
TINY = {
    "model": {"hidden": 64, "layers": 2, "heads": 2, "kv_heads": 1, "ffn": 128},
    "page": 16, "chunk": 64, "contexts": [512, 1024, 2048], "summaries": SMALL_SUMMARIES, "spacing": 16,
    "passage": 48, "sequence": 2048, "text": 2048, "text_bytes": 1 << 20,
    "stages": [
        {"name": "256", "lengths": [128, 256], "spacings": [2, 6], "sequence": 1024, "chunk": 256, "steps": 8,
         "rate": 2e-3, "tries": 2},
        {"name": "2K", "lengths": [512, 2048], "spacings": [4, 32], "sequence": 2048, "chunk": 512, "steps": 6,
         "rate": 1e-3, "tries": 2}],
    "tuning": {"lengths": [512], "spacings": [4, 32], "sequence": 2048, "chunk": 64, "steps": 4, "rate": 1e-3},
    "goal": 0.97, "least": 0, "warmup": 2}
SIZES = {"full": FULL, "small": SMALL, "tiny": TINY}
