"""What scripts/sparse-quality and scripts/page-quality share: a directory of work that goes on where it stopped, the
training of a model that recalls, and its evaluation with a setting of attention and pages."""
import argparse
import concurrent.futures
import ctypes
import json
import multiprocessing
import os
import random
import shlex
import shutil
import signal
import subprocess
import sysconfig
import time

import recall_data as data
import recall_report as report
from recall_sizes import SIZES

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEFAULT_FORCED = (1, 2)
# How pages may be coded, by name: options of the program that have other than their usual values.
PAGES = {"wide": {}, "kv-int8": {"kv-dtype": "int8"}, "kv-int8-all": {"attention-kv-dtype": "int8"},
         "kv-fp8": {"kv-dtype": "fp8"}, "kv-fp8-all": {"attention-kv-dtype": "fp8"},
         "gradients-bf16": {"kv-gradient-dtype": "bf16"}, "gradients-int8": {"kv-gradient-dtype": "int8"},
         "gradients-fp8": {"kv-gradient-dtype": "fp8"},
         "int8": {"kv-dtype": "int8", "kv-gradient-dtype": "int8"},
         "fp8": {"kv-dtype": "fp8", "kv-gradient-dtype": "fp8"}}


class TimeIsUp(Exception):
    pass


class Work:
    """Where the parts are, how long there is, and how programs are run."""

    def __init__(self, arguments, sizes):
        self.program, self.device, self.seed = arguments.program, arguments.device, arguments.seed
        self.sizes, self.jobs = sizes, arguments.jobs or (2 if arguments.device == "cpu" else 12)
        self.directory = os.path.abspath(arguments.work)
        self.ends = time.monotonic() + 60 * arguments.minutes
        self.longest = 0.0  # seconds of an evaluation so far
        for name in ("data", "runs", "models", "results"):
            os.makedirs(self.path(name), exist_ok=True)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def left(self):
        return self.ends - time.monotonic()

    def require(self, seconds):
        if self.left() < seconds:
            raise TimeIsUp

    def result(self, name):
        path = self.path("results", name + ".json")
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def save_result(self, name, value):
        save_json(self.path("results", name + ".json"), value)
        return value


def save_json(path, value):
    with open(path + ".unfinished", "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1)
    os.replace(path + ".unfinished", path)


def say(text):
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def seed_of(work, *names):
    return random.Random("/".join(map(str, (work.seed, *names)))).getrandbits(48)


# ---- data ----

def prepare_text(work, roots):
    if not os.path.exists(work.path("data", "held.txt")):
        train, held = data.gather_text(roots, work.sizes["text_bytes"], work.sizes["sequence"] + work.sizes["text"])
        for name, text in (("train.txt", train), ("held.txt", held)):  # held.txt last: it says that both are there
            with open(work.path("data", name + ".unfinished"), "wb") as file:
                file.write(text)
            os.rename(work.path("data", name + ".unfinished"), work.path("data", name))
        say(f"text: {len(train)} bytes to train on, {len(held)} held out, from {', '.join(roots)}")


def training_data(work, name, stage):
    directory = work.path("data", name)
    if not os.path.exists(directory):
        begin = time.monotonic()
        jobs = [(work.path("data", "train.txt"), stage["sequence"], stage["lengths"], stage["spacings"],
                 stage.get("text_share", 1 / 8), seed_of(work, name, i))
                for i in range(stage["steps"])]
        with multiprocessing.Pool(min(16, os.cpu_count())) as pool:
            data.write_data(directory, pool.imap(data.training_sequence, jobs, chunksize=4))
        say(f"data of {name}: {stage['steps']} sequences of {stage['sequence']} tokens, "
            f"{time.monotonic() - begin:.1f} s")
    return directory


def held_data(work, context):
    """Held-out documents of one length: one folder per kind of recall, and `text`."""
    directory = work.path("data", f"held-{context}")
    if os.path.exists(directory):
        return directory
    with open(work.path("data", "held.txt"), "rb") as file:
        held = file.read()
    count = max(1, work.sizes["sequence"] // context)
    near = min(2 * work.sizes["chunk"], context // 4)  # a chunk's own tokens are attended to anyway
    # Documents of the first stages are short.
    spacing = min(work.sizes["spacing"], max(2, context // 32))
    passage = min(work.sizes["passage"], max(2 * data.PASSAGE_PAIRS, context // 4))
    temporary = directory + ".making"
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary)
    for kind in data.KINDS:
        numbers = random.Random(seed_of(work, "held", context, kind))
        documents, asked = [], []
        for i in range(count):
            text = held[i * context:(i + 1) * context]
            tokens, mask, places = data.held(kind, text, numbers, spacing, passage, near)
            documents.append((tokens.tobytes(), bytes(mask), context))
            asked += [(i * context + at, distance) for at, distance in places]
        if asked:  # a short document may have no room for passages
            data.write_data(os.path.join(temporary, kind), documents)
            save_json(os.path.join(temporary, kind, "asked.json"), asked)
    rest = held[count * context:][:work.sizes["text"]]
    text = [(data.tokens_of(rest[i:i + context]).tobytes(), b"\1" * context, context)
            for i in range(0, len(rest), context)]
    data.write_data(os.path.join(temporary, "text"), text)
    os.rename(temporary, directory)
    return directory


# ---- training ----

def toml(settings):
    text = ""
    for section, values in settings.items():
        text += f"[{section}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
    return text


def end_with_parent():
    """So that a killed script leaves no run behind, which would keep its directory locked."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def last_step(output):
    names = os.listdir(output) if os.path.isdir(output) else []
    steps = [int(name[5:]) for name in names if name.startswith("step-") and name[5:].isdigit()]
    return max(steps, default=0)


def train(work, name, stage, start, attention=None, pages="wide"):
    """Trains models/NAME from the model `start`, a directory or the settings of [model]; goes on with a run that was
    stopped. Stages with the same `data` have the same sequences."""
    target = work.path("models", name)
    if os.path.exists(target):
        return target
    work.require(20)
    tokens = training_data(work, stage.get("data", name), stage)
    run = work.path("runs", name)
    output = os.path.join(run, "out")
    os.makedirs(run, exist_ok=True)
    settings = {"model": start if isinstance(start, dict) else {"path": start},
                "data": {"path": os.path.join(tokens, "tokens.u16"), "format": "u16", "shuffle": False,
                         "document_index": os.path.join(tokens, "documents.u64"),
                         "loss_mask": os.path.join(tokens, "mask.u8")},
                "training": {"context": stage["sequence"], "chunk": stage["chunk"], "page": work.sizes["page"],
                             "steps": stage["steps"], "seed": work.seed,
                             "keep_chunks": stage["sequence"] // stage["chunk"]},
                "optimizer": {"learning_rate": stage["rate"], "weight_decay": 0.01, **stage.get("optimizer", {})},
                "schedule": {"warmup_steps": work.sizes["warmup"]},
                "checkpoint": {"directory": output, "every": max(1, stage["steps"] // 4), "keep": 1},
                "device": {"name": work.device}, "attention": attention or {},
                "numerics": {"determinism": "fast",
                             **{key.replace("-", "_"): value for key, value in PAGES[pages].items()}}}
    with open(os.path.join(run, "run.toml"), "w", encoding="utf-8") as file:
        file.write(toml(settings))
    command = [work.program, "train", os.path.join(run, "run.toml")] + (["--resume"] if last_step(output) else [])
    begin, before = time.monotonic(), last_step(output)
    with open(os.path.join(run, "log"), "a", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=end_with_parent)
        stopped = False
        try:
            process.wait(timeout=max(1.0, work.left() - 8))  # what a save may take
        except subprocess.TimeoutExpired:
            stopped = True
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)  # INT is ignored in background jobs
                process.wait()
    if stopped and process.returncode != 0:
        say(f"{name}: stopped after step {last_step(output)} of {stage['steps']}")
        raise TimeIsUp
    if process.returncode != 0:
        with open(os.path.join(run, "log"), encoding="utf-8") as log:
            raise SystemExit(f"{shlex.join(command)} ended with status {process.returncode}:\n{log.read()[-3000:]}")
    with open(os.path.join(output, "metrics.jsonl"), encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    last = lines[-max(1, len(lines) // 5):]
    rate = sum(line["tokens"] for line in lines) / sum(line["seconds"] for line in lines)
    work.save_result("train-" + name, {
        "command": shlex.join(command), "settings": settings, "steps": len(lines), "tokens_per_s": rate,
        "seconds": sum(line["seconds"] for line in lines),
        "loss": sum(line["loss"] for line in last) / len(last), "losses": [line["loss"] for line in lines],
        "accuracy": sum(line["accuracy"] for line in last) / len(last)})
    saved, temporary = os.path.join(output, f"step-{stage['steps']}"), target + ".unfinished"
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(saved, temporary, ignore=shutil.ignore_patterns("state"))
    os.rename(temporary, target)
    shutil.rmtree(output)  # what is left of the run is its model, its log and its result
    if "data" not in stage:
        shutil.rmtree(tokens)
    say(f"{name}: {stage['steps'] - before} steps in {time.monotonic() - begin:.0f} s, {rate:.0f} tokens/s, "
        f"loss {work.result('train-' + name)['loss']:.3f}")
    return target


def curriculum(work):
    """Trains stage by stage, and gives the last model."""
    model = work.path("models", "start")
    if not os.path.exists(model):
        count = data.write_model(model, **work.sizes["model"], seed=work.seed)
        say(f"a model with {count} parameters")
    for stage in work.sizes["stages"]:
        for number in range(1, stage["tries"] + 1):
            name = f"{stage['name']}.{number}"
            model = train(work, name, stage, model)
            length = max(stage["lengths"])
            recall = min(evaluate(work, name, length, dense(), kind)["recall"] for kind in data.KINDS
                         if os.path.exists(os.path.join(held_data(work, length), kind)))
            if recall >= work.sizes["goal"]:
                break
        if recall < work.sizes["goal"]:
            say(f"stage {stage['name']}: recall is {recall:.3f} after {number} tries, short of {work.sizes['goal']}")
        if recall < work.sizes["least"]:
            raise SystemExit("a model that recalls so little would show nothing: try another --seed, or more steps "
                             "(tests/quality/recall_sizes.py)")
    return os.path.basename(model)


# ---- evaluation ----

def dense():
    return {"kind": "dense"}


def sparse(share, scoring, summary, forced=DEFAULT_FORCED):
    """A setting; `summary` is the number of one in the sizes."""
    return {"kind": "sparse", "share": share, "scoring": scoring, "summary": summary, "forced": list(forced)}


def label(setting):
    pages = f"-{setting['pages']}" if setting.get("pages", "wide") != "wide" else ""
    if setting["kind"] == "dense":
        return "dense" + pages
    sinks, recent = setting["forced"]
    return f"{setting['scoring']}-s{setting['summary']}-f{sinks}.{recent}-b{setting['share']}{pages}"


def attention_of(work, context, setting):
    """Options of the program, by the names that `gradients` has."""
    budget = max(sum(setting["forced"]) + 1, context // work.sizes["page"] // setting["share"])
    return {"budget": budget, "sinks": setting["forced"][0], "recent": setting["forced"][1],
            "union": max(512, 4 * budget), "summary": work.sizes["summaries"][setting["summary"]][0],
            "summary-tokens": work.sizes["summaries"][setting["summary"]][1], "scoring": setting["scoring"]}


def options_of(pages):
    return [word for key, value in PAGES[pages].items() for word in ("--" + key, value)]


def command_of(work, model, context, setting, part, more):
    held = os.path.join(held_data(work, context), part)
    command = [work.program, "gradients", "--model", work.path("models", model), "--format", "u16",
               "--tokens", os.path.join(held, "tokens.u16"), "--document-index", os.path.join(held, "documents.u64"),
               "--loss-mask", os.path.join(held, "mask.u8"), "--chunk", str(max(work.sizes["page"], min(work.sizes["chunk"], context))),
               "--page", str(work.sizes["page"]), "--device", work.device]
    if setting["kind"] == "sparse":
        command += ["--attention", "sparse"]
        for key, value in attention_of(work, context, setting).items():
            command += ["--" + key, str(value)]
    return command + options_of(setting.get("pages", "wide")) + more


def run_gradients(work, command):
    begin = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)} ended with status {done.returncode}:\n{done.stderr[-3000:]}")
    work.longest = max(work.longest, time.monotonic() - begin)
    return {"command": shlex.join(command), "wall": time.monotonic() - begin, **json.loads(done.stdout)}


def evaluate(work, model, context, setting, part):
    """Recall, or the loss of text, of a model with one setting, over the held-out documents of one length."""
    name = f"{part}-{model}-{context}-{label(setting)}"
    if (known := work.result(name)) is not None:
        return known
    work.require(1.5 * work.longest + 5)
    losses = work.path("results", name + ".safetensors")
    outcome = run_gradients(work, command_of(work, model, context, setting, part, ["--losses", losses]))
    loss = data.read_safetensors(losses)["loss"]
    if part in data.KINDS:
        with open(os.path.join(held_data(work, context), part, "asked.json"), encoding="utf-8") as file:
            figures = report.recall_figures(outcome, loss, json.load(file))
    else:
        figures = report.text_figures(loss, context)
    off = abs(figures["loss_read"] - outcome["loss"])
    if figures["targets_read"] != outcome["targets"] or off > 1e-3 * outcome["loss"] + 1e-6:
        raise SystemExit(f"{losses}: {figures['targets_read']} targets with loss {figures['loss_read']}, but the "
                         f"program printed {outcome['targets']} and {outcome['loss']}")
    os.remove(losses)
    return work.save_result(name, {"model": model, "context": context, "setting": setting, **outcome, **figures})


def together(work, jobs):
    """Runs functions side by side, until all are done or the time is up."""
    up = False
    with concurrent.futures.ThreadPoolExecutor(work.jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(*job) for job in jobs]):
            try:
                future.result()
            except TimeIsUp:
                up = True
            except BaseException:
                work.ends = 0.0  # starts no more
                raise
    if up:
        raise TimeIsUp


def evaluations(work, model, settings, part):
    return [(evaluate, work, model, context, setting, part) for setting in settings
            for context in work.sizes["contexts"]]


# ---- a script's call ----

def check_program(arguments):
    try:
        text = subprocess.run([arguments.program, "gradients", "--help"], stdout=subprocess.PIPE, text=True,
                              check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"{arguments.program} does not run ({error}): scripts/build release longstride, "
                         "or --program") from error
    missing = [option for option in ("--loss-mask", "--losses", "--compare-dense", "--summary ") if option not in text]
    if missing:
        raise SystemExit(f"`{arguments.program} gradients` has no {', '.join(missing)}: build a newer one")


def same_settings(work, arguments, sizes):
    """Parts of different settings must not be mixed."""
    path, now = work.path("settings.json"), {"seed": arguments.seed, "sizes": sizes}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if json.load(file) != now:
                raise SystemExit(f"{path} has other settings: give the same ones, or another --work")
    else:
        save_json(path, now)


def parser_of(description):
    """Of the options that all scripts have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", default=None, help="directory for everything (build/sparse-quality-SIZE)")
    parser.add_argument("--minutes", type=float, default=8, help="of this call (default 8)")
    parser.add_argument("--program", default=os.path.join(ROOT, "build", "release", "longstride"))
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--jobs", type=int, default=None,
                        help="evaluations side by side (default: 12 on a GPU, whose programs mostly wait to start; else 2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--text", action="append",
                        help="directory with text, of one folder per package; may be repeated")
    parser.add_argument("--size", default="full", choices=list(SIZES))
    parser.add_argument("--tiny", dest="size", action="store_const", const="tiny", help="the same as --size tiny")
    parser.add_argument("--report", action="store_true", help="only write the outcome of what there is, and print it")
    return parser


def parse_arguments(parser):
    arguments = parser.parse_args()
    arguments.work = arguments.work or os.path.join(ROOT, "build", f"sparse-quality-{arguments.size}")
    arguments.text = arguments.text or ["/usr/share/doc", sysconfig.get_paths()["stdlib"], os.path.join(ROOT, "src")]
    return arguments


def trained_model(work, arguments):
    """The model that recalls, trained as far as the time allows."""
    prepare_text(work, arguments.text)
    return curriculum(work)
