"""Plain text: the tokens are transformers', from every kind of file."""
import gzip
import importlib.util
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
import prepare_support as support  # noqa: E402


def save_dataset(directory, table, shards):
    """As `datasets` lays out a dataset on disk."""
    import pyarrow.ipc

    names = [f"data-{i:05d}-of-{shards:05d}.arrow" for i in range(shards)]
    support.write(os.path.join(directory, "dataset_info.json"), "{}")
    support.write(os.path.join(directory, "state.json"), json.dumps(
        {"_data_files": [{"filename": name} for name in names], "_indices_data_files": None, "_split": None}))
    size = -(-table.num_rows // shards)
    for i, name in enumerate(names):
        with pyarrow.ipc.new_stream(os.path.join(directory, name), table.schema) as file:
            file.write_table(table.slice(i * size, size), max_chunksize=300)


class Text(support.Case):
    def expected(self, texts, end=0, tokenizer=None):
        loaded = self.transformers(tokenizer)
        return [loaded(text)["input_ids"] + ([] if end is None else [end]) for text in texts]

    def tokens(self, **options):
        return [tokens for tokens, _ in support.documents(self.out, **options)]

    def test_ten_scripts(self):
        texts = [support.SCRIPTS[name] for name in sorted(support.SCRIPTS)]
        for name, text in support.SCRIPTS.items():
            support.write(self.path("texts", "below", name + ".txt"), text)
        support.write(self.path("texts", ".hidden"), "not this")
        support.write(self.path("texts", "empty.txt"), "")
        self.prepare(self.path("texts"), "--workers", 1)
        self.assertEqual(self.tokens(), self.expected(texts))
        manifest = support.manifest_of(self.out)
        self.assertEqual(list(manifest), ["format", "version", "token_bytes", "vocabulary", "targets", "tokenizer",
                                          "splits", "origin", "options", "made_by"])
        self.assertEqual((manifest["format"], manifest["version"], manifest["token_bytes"], manifest["targets"]),
                         ("longstride data", 1, 2, "all"))
        train = manifest["splits"]["train"]
        self.assertEqual(train["targets"], train["tokens"] - train["documents"])
        self.assertEqual(list(manifest["splits"]), ["train"])
        self.check_sums(manifest)
        self.assertFalse(os.path.exists(os.path.join(self.out, ".prepare")))

    def check_sums(self, manifest):
        import xxhash

        for split in manifest["splits"].values():
            for shard in split["shards"]:
                for kind, entry in shard["files"].items():
                    with open(os.path.join(self.out, f"{shard['name']}.{kind}"), "rb") as file:
                        data = file.read()
                    self.assertEqual(entry, {"bytes": len(data), "xxh3": xxhash.xxh3_64_hexdigest(data)})
        for entry in manifest["origin"]:
            with open(entry["path"], "rb") as file:
                data = file.read()
            self.assertEqual((entry["bytes"], entry["xxh3"]), (len(data), xxhash.xxh3_64_hexdigest(data)))
        with open(os.path.join(self.tokenizer, "tokenizer.json"), "rb") as file:
            self.assertEqual(manifest["tokenizer"], {"path": self.tokenizer,
                                                     "xxh3": xxhash.xxh3_64_hexdigest(file.read())})

    def test_special_tokens_and_end_token(self):
        bos = support.train_tokenizer(self.path("bos"), bos=True)
        source = support.write(self.path("a.txt"), "\ufeffA short text.")  # a byte order mark is no text
        self.prepare(source, tokenizer=bos)
        self.assertEqual(self.tokens(), self.expected(["A short text."], tokenizer=bos))
        self.assertEqual(self.tokens()[0][0], 1)
        self.out = self.path("without")
        self.prepare(source, "--no-special-tokens", "--end-token", "none", tokenizer=bos)
        self.assertEqual(self.tokens(), self.expected(["A short text."], end=None))
        self.out = self.path("other")
        self.prepare(source, "--end-token", "<|im_end|>")
        self.assertEqual(self.tokens(), self.expected(["A short text."], end=2))
        self.out = self.path("ended")  # the text ends itself
        self.prepare(support.write(self.path("b.txt"), "Done.<|endoftext|>"))
        self.assertEqual(self.tokens(), self.expected(["Done."]))

    def test_large_vocabulary_has_four_bytes(self):
        import tokenizers

        directory = self.path("large")
        os.makedirs(directory)
        vocabulary = {chr(0x4E00 + i // 256) + chr(0x4E00 + i % 256): i for i in range(65537)} | {"[UNK]": 65537}
        model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
        model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        model.save(os.path.join(directory, "tokenizer.json"))  # and no tokenizer_config.json
        source = support.write(self.path("a.txt"), f"{chr(0x4E00 + 256)}{chr(0x4E00)} other")
        self.prepare(source, "--end-token", "none", tokenizer=directory)
        self.assertEqual((self.tokens(), support.manifest_of(self.out)["token_bytes"]), ([[65536, 65537]], 4))

    def test_every_format_gives_the_same(self):
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
        import zstandard

        texts = [support.words(i, 5 + i % 40) for i in range(2500)]
        plain = support.write_lines(self.path("a.jsonl"), [{"body": text, "other": 1} for text in texts])
        with open(plain, "rb") as file:
            data = file.read()
        half = data.index(b"\n", len(data) // 2) + 1
        gz = support.write(self.path("a.jsonl.gz"), gzip.compress(data[:half]) + gzip.compress(data[half:]), "wb")
        pack = zstandard.ZstdCompressor().compress
        zst = support.write(self.path("a.ndjson.zst"), pack(data[:half]) + pack(data[half:]), "wb")
        table = pyarrow.table({"id": list(range(2500)), "body": texts})
        pyarrow.parquet.write_table(table, self.path("a.parquet"), row_group_size=700)
        with pyarrow.ipc.new_file(self.path("a.arrow"), table.schema) as file:
            file.write_table(table)
        save_dataset(self.path("saved"), table, 3)
        save_dataset(self.path("dict", "test"), table.slice(0, 5), 1)
        save_dataset(self.path("dict", "all"), table, 2)
        support.write(self.path("dict", "dataset_dict.json"), json.dumps({"splits": ["test", "all"]}))
        split_up = self.path("files")
        for i, text in enumerate(texts[:300]):
            support.write(os.path.join(split_up, f"{i:05d}.txt"), text)
        wanted = self.expected(texts)
        cases = {"jsonl": [plain], "gz": [gz], "zst": [zst], "parquet": [self.path("a.parquet")],
                 "arrow": [self.path("a.arrow")], "saved": [self.path("saved")],
                 "dict": [self.path("dict"), "--split", "all"], "files": [split_up]}
        for name, arguments in cases.items():
            with self.subTest(name):
                self.out = self.path("out-" + name)
                self.prepare(*arguments, "--text-column", "body", "--workers", 1, "--piece-bytes", 20000)
                self.assertEqual(self.tokens(), wanted[:300] if name == "files" else wanted)
        state = json.dumps({"_data_files": [{"filename": "data.arrow"}], "_indices_data_files": [{"filename": "i.arrow"}]})
        support.write(self.path("saved", "state.json"), state)
        self.refused("indices mapping", self.path("saved"), out=self.path("new"))
        support.write(self.path("a.parquet.gz"), gzip.compress(b"x"), "wb")
        self.refused("compressed parquet file", self.path("a.parquet.gz"), out=self.path("new"))
        self.refused("several splits: test, all", self.path("dict"), out=self.path("new"))
        self.refused("no split 'train'", self.path("dict"), "--split", "train", out=self.path("new"))
        self.refused("a.parquet has no column 'text'", self.path("a.parquet"), out=self.path("new"))

    @unittest.skipUnless(importlib.util.find_spec("datasets"), "needs the package datasets")
    def test_what_datasets_itself_writes(self):
        import datasets

        datasets.disable_progress_bars()
        texts = [support.words(i, 5) for i in range(30)]
        rows = datasets.Dataset.from_dict({"text": texts}).select(range(29, -1, -1))  # with an indices mapping
        datasets.DatasetDict({"train": rows}).save_to_disk(self.path("dict"), num_shards={"train": 3})
        self.prepare(self.path("dict"))
        self.assertEqual(self.tokens(), self.expected(texts[::-1]))

    def test_eval_split_is_by_the_document(self):
        texts = [support.words(i, 20) for i in range(400)]
        source = support.write_lines(self.path("a.jsonl"), [{"text": text} for text in texts])
        self.prepare(source, "--eval-fraction", 0.25, "--workers", 1)
        train, held_out = self.tokens(), self.tokens(split="eval")
        self.assertEqual(sorted(train + held_out), sorted(self.expected(texts)))
        self.assertTrue(70 <= len(held_out) <= 130, len(held_out))
        chosen = {tuple(tokens) for tokens in held_out}
        self.out = self.path("reversed")  # another place, another set: the same split
        support.write_lines(self.path("b.jsonl"), [{"text": text} for text in reversed(texts[:200])])
        self.prepare(self.path("b.jsonl"), "--eval-fraction", 0.25, "--workers", 1)
        self.assertEqual({tuple(tokens) for tokens in self.tokens(split="eval")},
                         chosen & {tuple(tokens) for tokens in self.expected(texts[:200])})

    def test_shards_are_bounded_and_documents_whole(self):
        texts = [support.words(i, 1 + i * 7 % 50) for i in range(300)] + [support.words("long", 3000)]
        texts += ["short", "end"]
        source = support.write_lines(self.path("a.jsonl"), [{"text": text} for text in texts])
        self.prepare(source, "--shard-tokens", 1000, "--piece-bytes", 3000, "--workers", 1)
        self.assertEqual(self.tokens(), self.expected(texts))
        shards = support.manifest_of(self.out)["splits"]["train"]["shards"]
        self.assertEqual([shard["name"] for shard in shards], [f"train-{i:05d}" for i in range(len(shards))])
        self.assertEqual([shard["documents"] for shard in shards if shard["tokens"] > 1000], [1])
        for shard, following in zip(shards, shards[1:], strict=False):  # none ends early
            self.assertGreater(shard["tokens"] + following["tokens"], 1000)

    def test_weights(self):
        source = support.write_lines(self.path("a.jsonl"), [{"text": "good", "w": 2}, {"text": "bad text", "w": -0.5}])
        self.prepare(source, "--weight-column", "w")
        for (_, weights), weight in zip(support.documents(self.out), (2, -0.5), strict=True):
            self.assertEqual(weights, [0.0] + [weight] * (len(weights) - 1))
        self.assertEqual(support.manifest_of(self.out)["targets"], "weights")
        for wrong in ("1", None, True):
            support.write(self.path("b.jsonl"), json.dumps({"text": "x", "w": wrong}))
            self.refused("b.jsonl, line 1: 'w' is not a finite number", self.path("b.jsonl"), "--weight-column", "w",
                         out=self.path("new"))


if __name__ == "__main__":
    unittest.main()
