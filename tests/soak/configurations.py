"""Random configurations of small runs, with their data and models, all below one directory and with relative paths."""
import array
import json
import os
import shutil

FIXTURES = ["bf16", "f16", "sharded", "qwen2-tied", "packed-window", "llama-biases", "qwen3-bias-window", "mistral-window",
            "phi3-window", "olmo2-bias-tied", "gemma3-packed"]
OUT = "out"


def toml(settings):
    def text(value):
        if isinstance(value, bool):
            return "true" if value else "false"
        return json.dumps(value)

    sections = {}
    for name, value in settings.items():
        section, key = name.split(".")
        sections.setdefault(section, []).append(f"{key} = {text(value)}")
    return "".join(f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items())


class Configuration:
    """What a run is told, and the files it needs. `write` makes a directory in which it can run."""

    def __init__(self, random, fixtures):
        self.fixture = None
        self.files = {}
        self.settings = s = {}
        vocabulary = self.choose_model(random, fixtures, s)
        self.choose_data(random, vocabulary, s)
        page = random.choice([16, 32])
        s["training.context"] = random.choice([96, 128, 256, 300])
        s["training.page"] = page
        s["training.chunk"] = page * random.choice([1, 2, 4])
        s["training.keep_chunks"] = random.choice([1, 1, 2])
        s["training.rebuild_feed_forward"] = random.random() < 0.3
        s["training.steps"] = random.randint(5, 12)
        s["training.batch"] = random.choice([1, 1, 2, 3])
        s["training.seed"] = random.randint(0, 1000)
        s["optimizer.learning_rate"] = random.choice([1e-3, 1e-4])
        s["optimizer.clip_norm"] = random.choice([0.0, 1.0])
        s["optimizer.state"] = random.choice(["fp32", "fp32", "8bit"])
        s["optimizer.masters"] = random.choice([True, True, False])
        s["schedule.kind"] = random.choice(["cosine", "linear", "constant"])
        s["schedule.warmup_steps"] = random.choice([0, 2])
        s["checkpoint.directory"] = OUT
        s["checkpoint.every"] = random.choice([0, 1, 1, 2, 3])
        s["checkpoint.keep"] = random.choice([0, 0, 1, 2])
        if random.random() < 0.3:
            s["metrics.file"] = "elsewhere/metrics.jsonl"
        s["device.name"] = "cpu"
        s["device.threads"] = random.choice([1, 2])
        s["numerics.kv_gradient_dtype"] = random.choice(["f32", "bf16", "int8"])
        s["numerics.kv_dtype"] = random.choice(["auto", "auto", "int8", "fp8"])
        if random.random() < 0.35:
            self.choose_sparse(random, s)
        self.memory = {}

    def choose_sparse(self, random, s):
        s["attention.kind"] = "sparse"
        s["attention.budget"] = random.randint(3, 6)
        s["attention.union_pages"] = s["attention.budget"] + random.choice([0, 3, 100])
        s["attention.summary_tokens"] = s["training.page"] // random.choice([1, 2, 4])
        if s["attention.summary_tokens"] < s["training.page"]:
            s["attention.summary"] = random.choice(["auto", "means", "outliers"])
        s["attention.scoring"] = random.choice(["mass", "focus", "oomb"])

    def choose_model(self, random, fixtures, s):
        """The vocabulary."""
        if random.random() < 0.4:
            self.fixture = os.path.join(fixtures, random.choice(FIXTURES))
            s["model.path"] = "model"
            with open(os.path.join(self.fixture, "config.json"), encoding="utf-8") as file:
                return json.load(file)["vocab_size"]
        s["model.preset"] = random.choice(["tiny-llama", "tiny-qwen2", "tiny-qwen3", "tiny-mistral", "tiny-phi3",
                                           "tiny-olmo2", "tiny-gemma3"])
        s["model.dtype"] = random.choice(["f32", "f32", "bf16", "f16"])
        if s["model.preset"] not in ("tiny-llama", "tiny-olmo2", "tiny-gemma3") and random.random() < 0.4:
            s["model.window"] = random.choice([16, 33, 64])
        return 320

    def choose_data(self, random, vocabulary, s):
        count = random.randint(1500, 5000)
        tokens = [random.randrange(vocabulary) for _ in range(count)]
        kind = random.choice(["u32", "u16", "text"]) if vocabulary >= 256 else random.choice(["u32", "u16"])
        s["data.format"] = kind
        s["data.pack"] = random.random() < 0.7
        s["data.shuffle"] = random.random() < 0.7
        if kind == "text":
            self.files["tokens.bin"] = bytes(t % 256 for t in tokens)
        else:
            self.files["tokens.bin"] = array.array("I" if kind == "u32" else "H", tokens).tobytes()
        s["data.path"] = ["tokens.bin"]
        if kind == "text":
            return
        documents = random.choice(["none", "token", "index"])
        if documents == "token":
            s["data.document_token"] = random.randrange(vocabulary)
        elif documents == "index":
            starts = [0] + sorted(random.sample(range(1, count), 20))
            self.files["index.bin"] = array.array("Q", starts).tobytes()
            s["data.document_index"] = "index.bin"
        if random.random() < 0.3:
            self.files["mask.bin"] = bytes(random.random() < 0.8 for _ in range(count))
            s["data.loss_mask"] = "mask.bin"
        elif documents != "index" and random.random() < 0.3:
            self.files["more.bin"] = self.files["tokens.bin"][:count // 4 * 4]
            s["data.path"] = ["tokens.bin", "more.bin"]

    def choose_memory(self, random, line):
        """Where pages and state are, given a metrics line of a run that has all of it on the device. A budget that is
        too small is refused at the start; the caller tries again."""
        kind = random.choice(["device", "host", "disk", "both", "auto"])
        self.memory = {}
        if kind == "device":
            return
        state = random.choice(["device", "host", "disk"])
        pages = line["bytes_kv_pages"] + line["bytes_kv_gradient_pages"]
        rest = line["bytes"] - pages - (line["bytes_optimizer"] if state != "device" else 0)
        self.memory["memory.gpu"] = int(rest + random.uniform(0.4, 0.9) * pages)
        self.memory["memory.optimizer"] = "auto" if kind == "auto" else state
        if kind in ("host", "both", "auto"):
            self.memory["memory.host"] = "64M" if kind == "host" else f"{random.randint(20, 200)}K"
        if kind in ("disk", "both", "auto") or state == "disk":
            self.memory["memory.disk"] = "64M"
            self.memory["memory.disk_path"] = "disk"

    def text(self, more=None):
        return toml({**self.settings, **self.memory, **(more or {})})

    def tokens(self):
        width = {"u32": 4, "u16": 2, "text": 1}[self.settings["data.format"]]
        return sum(len(self.files[name]) // width for name in self.settings["data.path"])

    def steps(self):
        return self.settings["training.steps"]

    def write(self, directory, more=None):
        os.makedirs(os.path.join(directory, "disk"))
        for name, content in self.files.items():
            with open(os.path.join(directory, name), "wb") as file:
                file.write(content)
        if self.fixture is not None:
            shutil.copytree(self.fixture, os.path.join(directory, "model"),
                            ignore=lambda _, names: [n for n in names if n.startswith(("expected", "tokens"))])
        with open(os.path.join(directory, "run.toml"), "w", encoding="utf-8") as file:
            file.write(self.text(more))
