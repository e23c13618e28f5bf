"""`train` on ranks: the bytes of one process, resumed with other numbers of ranks, ended in every way."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import tiny_model
from launch import HUNG_SECONDS, KILLED_SECONDS, LIMIT, Run, expect, told

STEPS = 3  # of CONFIG
CONFIG = """[model]
path = "model"
[data]
path = ["tokens.bin"]
document_token = 0
[training]
context = 256
chunk = 32
page = 16
steps = 3
batch = 2
[device]
name = "cpu"
threads = 1
[checkpoint]
directory = "out"
"""
# Settings whose bytes must not depend on the number of ranks.
KINDS = {
    "dense": [],
    "documents apart": ["--data.pack=false"],
    "sparse": ["--attention.kind=sparse", "--attention.budget=3", "--attention.sinks=1", "--attention.recent=1"],
    "gradient pages in bf16": ["--numerics.kv_gradient_dtype=bf16"],
    "pages in 8 bits": ["--numerics.kv_dtype=int8", "--numerics.kv_gradient_dtype=int8"],
    "pages in host memory": ["--memory.gpu=1300K", "--memory.host=4M", "--memory.optimizer=host"],
    "adapters": ["--lora.rank=4"],
    "adapters and whole modules": ["--lora.rank=4", '--lora.also_train=["embed_tokens", "lm_head"]'],
    "NF4": ["--lora.rank=4", "--model.quantize=nf4"],
    "moments in 8 bits": ["--optimizer.state=8bit"],
    "bf16 without masters": ["--optimizer.masters=false"],
    "state in host memory": ["--memory.optimizer=host"],
    "some parameters frozen": ['--model.freeze=["model.layers.1.*", "model.embed_tokens.*"]'],
    "lower layers frozen": ['--model.freeze=["model.embed_tokens.*", "model.layers.0.*", "model.layers.1.*"]'],
    "all but the head frozen": ["--model.train=lm_head.*"],
    "recomputed": ["--memory.activations=recompute"],
    "tied": [],
    "tied, adapters": ["--lora.rank=4"],
    "tied, adapters and whole modules": ["--lora.rank=4", "--lora.also_train=lm_head"],
    "evaluated": ["--eval.path=FOLDER/eval.bin", "--eval.every=2"],
}


class Folder:
    """A model, data and runs of them."""

    def __init__(self, program, **model):
        self.program = program
        self.path = tempfile.mkdtemp(prefix="ranks-")
        tiny_model.write_model(self.at("model"), **model)
        tiny_model.write_tokens(self.at("tokens.bin"))
        tiny_model.write_tokens(self.at("eval.bin"), 1500, 9)
        with open(self.at("run.toml"), "w", encoding="utf-8") as file:
            file.write(CONFIG)

    def at(self, *names):
        return os.path.join(self.path, *names)

    def command(self, out, ranks, options):
        return [self.program, "train", self.at("run.toml"), f"--checkpoint.directory={self.at(out)}",
                f"--parallel.pipeline={ranks}", *(option.replace("FOLDER", self.path) for option in options)]

    def start(self, out, stages, options=(), cut=None, pipelines=1):
        """`cut` is put before the command of the rank that it names."""
        command = self.command(out, stages, options)
        return Run([[*cut[rank], *command] if cut and rank in cut else command for rank in range(stages * pipelines)])

    def slow_disk(self, ranks, gate=None):
        """What is put before the commands of ranks whose saves shall take long, or until the gate is gone."""
        library = self.at("slow_sync.so")
        if not os.path.exists(library):
            source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow_sync.c")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        more = [f"LONGSTRIDE_TEST_GATE={gate}"] if gate else []
        return {rank: ["env", f"LD_PRELOAD={library}", *more] for rank in range(ranks)}

    def is_saving(self, out):
        return os.path.isdir(self.at(out)) and any(".unfinished-" in name for name in os.listdir(self.at(out)))

    def train(self, out, ranks, *options):
        if ranks == 1:
            done = subprocess.run(self.command(out, 1, options), capture_output=True, text=True, timeout=LIMIT,
                                  check=False)
            status, text = done.returncode, done.stderr
        else:
            status, text = self.start(out, ranks, options).end()
        expect(status == 0, f"{ranks} ranks: status {status}", text)
        return text

    def tensors(self, out, step=STEPS):
        """All tensors of a checkpoint, whatever files they are in."""
        found = {}
        for name in (folder + "/" + name for folder in (self.at(out, f"step-{step}"), self.at(out, f"step-{step}/state"))
                     for name in sorted(os.listdir(folder)) if name.endswith(".safetensors")):
            for tensor, value in tiny_model.read_safetensors(name).items():
                expect(tensor not in found, f"{tensor} is there twice")
                found[tensor] = value
        return found

    def metrics(self, out):
        with open(self.at(out, "metrics.jsonl"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]


@contextlib.contextmanager
def folder_for(program, **model):
    folder = Folder(program, **model)
    try:
        yield folder
    finally:
        shutil.rmtree(folder.path)


def expect_same(folder, a, b, step=STEPS):
    first, second = folder.tensors(a, step), folder.tensors(b, step)
    expect(first.keys() == second.keys(), f"tensors: {sorted(first.keys() ^ second.keys())}")
    differ = [name for name in first if first[name] != second[name]]
    expect(not differ, f"{b} has other bytes than {a}: {differ[:5]}")


def results(line):
    return {key: line.get(key) for key in ("kind", "step", "loss", "accuracy", "targets", "gradient_norm", "by_position")}


def same_bytes(program, kind):
    with folder_for(program, tied=kind.startswith("tied")) as folder:
        folder.train("one", 1, *KINDS[kind])
        for ranks in (2, 3, 4) if kind in ("dense", "tied") else (3,):
            folder.train(f"out{ranks}", ranks, *KINDS[kind])
            expect_same(folder, "one", f"out{ranks}")
            expect([results(line) for line in folder.metrics("one")] ==
                   [results(line) for line in folder.metrics(f"out{ranks}")], "metrics differ")


def counts_bytes(program):
    """Each boundary is crossed once forward and once back."""
    with folder_for(program) as folder:
        folder.train("out", 3)
        for line in folder.metrics("out"):
            expect(line["ranks"] == 3 and line["bytes_sent"] == 2 * 2 * line["tokens"] * 32 * 4 and
                   line["seconds_waiting"] > 0, f"metrics: {line}")


def worst_rank(program):
    """Memory in the metrics is that of the rank that takes most: of three, the one with two layers."""
    with folder_for(program) as folder:
        text = folder.train("out", 3)
        expect("layers 1 to 2" in text, "another cut", text)
        for line in folder.metrics("out"):
            parts = [line[f"bytes_{part}"] for part in ("weights", "gradients", "optimizer", "kv_pages",
                                                        "kv_gradient_pages", "workspace", "other")]
            layers = 4 * 2 * (2 * 32 + (2 * 64 + 2 * 32 + 3 * 64) * 32)  # and some bytes between tensors
            expect(line["bytes"] == sum(parts) and layers <= parts[0] < layers + 1024, f"metrics: {line}", text)


def traced(program):
    """One file with rows of all ranks by one clock, also of a run that is stopped."""
    with folder_for(program) as folder:
        path = folder.at("trace.json")
        folder.train("out", 3, f"--trace={path}")
        check_trace(path, 3, 2, list(range(8)))
        more = ["--training.steps=1000", "--trace-steps=1000", f"--trace={path}"]
        run = folder.start("stopped", 2, more)
        pids = run.wait_for_ranks()
        wait_until(run, lambda: "step 3/" in run.text(), "a third step")
        os.kill(pids[1], signal.SIGUSR1)
        status, text = run.end()
        expect(status == 128 + signal.SIGUSR1 and text.count("open it at ui.perfetto.dev") == 1, f"status {status}", text)
        check_trace(path, 2, 3, list(range(8)), all_steps=False)
        other = {1: "--trace-steps=3"}
        unequal = [[*folder.command("out2", 2, [f"--trace={path}"]), *([other[rank]] if rank in other else [])]
                   for rank in range(2)]
        expect_refused(*Run(unequal).end(), "rank 1 on .* another configuration")


def check_trace(path, ranks, steps, chunks, all_steps=True):
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    expect(sorted(names) == list(range(1, ranks + 1)) and
           all(re.fullmatch(rf"rank {pid - 1} on \S+", name) for pid, name in names.items()), f"processes: {names}")
    spans = {}  # by stage and name, in the order of time
    for event in sorted((event for event in events if event["ph"] == "X"), key=lambda event: event["ts"]):
        expect(event["ts"] >= 0 and event["dur"] >= 0, f"event: {event}")
        spans.setdefault((event["pid"] - 1, event["name"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for stage in range(ranks):
        found = len(spans.get((stage, "step 1"), []))
        expect(found == 1 and (stage, f"step {steps}") in spans and
               (not all_steps or (stage, f"step {steps + 1}") not in spans), f"steps of stage {stage}")
    for stage in range(ranks - 1):
        for chunk in chunks:
            for source, target, sent, received in ((stage, stage + 1, "send", "receive"),
                                                   (stage + 1, stage, "send gradient", "receive gradient")):
                sends = spans[source, f"{sent} chunk {chunk}"]
                receives = spans[target, f"{received} chunk {chunk}"]
                count = min(len(sends), len(receives))
                expect(count >= 2 * steps if all_steps else count > 0, f"{sent} chunk {chunk}: {count}")
                for (begin, _), (_, end) in zip(sends[:count], receives[:count]):
                    expect(begin < end, f"chunk {chunk} was {sent} at {begin}, and there at {end}")


def resumed(program):
    """Any number of ranks goes on from what any other has saved."""
    with folder_for(program) as folder:
        folder.train("one", 1, "--checkpoint.every=1")
        folder.train("out3", 3, "--checkpoint.every=1")
        folder.train("in_place", 3, "--checkpoint.every=1", "--checkpoint.snapshot=0")
        for step in (1, 2, 3):
            expect_same(folder, "one", "out3", step)
            expect_same(folder, "one", "in_place", step)
        for ranks in (1, 2, 4):
            shutil.rmtree(folder.at("out3", "step-3"))
            folder.train("out3", ranks, "--resume")
            expect_same(folder, "one", "out3")
        shutil.rmtree(folder.at("one", "step-3"))
        folder.train("one", 2, "--resume")
        expect_same(folder, "out3", "one")


def adapters_resumed(program):
    options = ["--lora.rank=4", "--checkpoint.every=1"]
    with folder_for(program) as folder:
        folder.train("one", 1, *options)
        folder.train("out", 2, *options)
        folder.train("in_place", 3, "--checkpoint.snapshot=0", *options)
        for step in (1, 2, 3):
            expect_same(folder, "one", "out", step)
            expect_same(folder, "one", "in_place", step)
        shutil.rmtree(folder.at("out", "step-3"))
        folder.train("out", 4, "--resume", *options)
        expect_same(folder, "one", "out")


def saved_beside_steps(program):
    """Steps go on while a save waits for the disk."""
    more = ["--training.steps=16", "--schedule.kind=constant", "--checkpoint.every=8"]
    with folder_for(program) as folder:
        gate, saved = folder.at("gate"), f"saved {folder.at('out', 'step-8')}"
        run = folder.start("out", 3, more, folder.slow_disk(3, gate))
        wait_until(run, lambda: "step 1/16" in run.text(), "a step")
        with open(gate, "w", encoding="utf-8"):
            pass
        wait_until(run, lambda: "step 11/16" in run.text(), "steps beside a save")
        expect(folder.is_saving("out") and saved not in run.text(), "no save was under way", run.text())
        os.remove(gate)
        status, text = run.end()
        expect(status == 0 and text.count(saved) == 1, f"status {status}", text)
        folder.train("one", 1, *more)
        for step in (8, 16):
            expect_same(folder, "one", "out", step)


def wait_until(run, condition, what):
    end = time.monotonic() + LIMIT
    while not condition():
        expect(run.process.poll() is None and time.monotonic() < end, f"never: {what}", run.text())
        time.sleep(0.01)


def run_to_end(line, processes):
    """The same command in all processes, which must succeed."""
    if processes == 1:
        done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT, check=False)
        status, text = done.returncode, done.stderr
    else:
        status, text = Run([line] * processes).end()
    expect(status == 0, f"{processes} processes: status {status}", text)
    return text


def expect_allocated(text, ranks):
    """Every rank says that it took what was planned."""
    expect(f"all {ranks} ranks have allocated what was planned" in text, "planned bytes and allocated ones differ", text)


def as_planned(program):
    """Stages and data groups, whatever is where: planned bytes are the allocated ones, on every rank."""
    for kind in ("dense", "tied", "recomputed", "state in host memory", "pages in host memory", "adapters",
                 "lower layers frozen", "sparse", "pages in 8 bits"):
        with folder_for(program, tied=kind == "tied") as folder:
            for stages, pipelines, groups in ((3, 1, 1), (1, 2, 2), (2, 2, 2)) if kind == "dense" else ((2, 2, 2),):
                line = folder.command("out", stages, [*KINDS[kind], f"--parallel.data={groups}"])
                expect_allocated(run_to_end(line, stages * pipelines), stages * pipelines)
                shutil.rmtree(folder.at("out"))


def stop_one(line, processes):
    """The last process is asked to stop: all stop, and save. Returns after which step."""
    run = Run([line] * processes)
    pids = run.wait_for_ranks()
    wait_until(run, lambda: "step 2/" in run.text(), "a second step")
    os.kill(pids[processes - 1], signal.SIGTERM)
    status, text = run.end(KILLED_SECONDS)
    stopped = re.search(r"stopped by signal 15 after step (\d+)", text)
    expect(status == 128 + signal.SIGTERM and stopped and not told(text), f"status {status}", text)
    return int(stopped.group(1))


def signalled(program, number, everyone):
    """Stopped between chunks and saved; then resumed with another number of ranks."""
    more = ["--training.steps=40", "--schedule.kind=constant"]
    with folder_for(program) as folder:
        run = folder.start("out", 3, more)
        pids = run.wait_for_ranks()
        wait_until(run, lambda: "step 2/" in run.text(), "a second step")
        for pid in pids.values() if everyone else [pids[1]]:
            os.kill(pid, number)
        status, text = run.end(KILLED_SECONDS)
        expect(status == 128 + number, f"status {status}", text)
        expect(len(re.findall(f"stopped by signal {int(number)} after step", text)) == 1 and not told(text),
               "the message", text)
        folder.train("out", 2, "--resume", *more)
        folder.train("one", 1, *more)
        expect_same(folder, "one", "out", 40)


def killed(program, chance):
    """A rank dies at any time, saves included. The newest checkpoint is whole."""
    more = ["--training.steps=12", "--schedule.kind=constant", "--checkpoint.every=1", "--checkpoint.keep=2"]
    with folder_for(program) as folder:
        stages, pipelines = chance.choice(((2, 1), (3, 1), (4, 1), (1, 2), (2, 2)))
        more.append(f"--parallel.data={pipelines}")
        ranks, delay = stages * pipelines, chance.uniform(0, 1.5)
        victim, in_save = chance.randrange(ranks), chance.random() < 0.5
        run = folder.start("out", stages, more, folder.slow_disk(ranks) if in_save else None, pipelines)
        pid = run.wait_for_ranks()[victim]
        if in_save:
            wait_until(run, lambda: folder.is_saving("out"), "a save")
            delay /= 2
        time.sleep(delay)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        status, text = run.end(KILLED_SECONDS)
        expect(status != 0 or "saved" in text, f"rank {victim} of {ranks}: status {status}", text)
        expect(status != 0 or not in_save, f"rank {victim} of {ranks} was killed in a save: status {status}", text)
        # Two may tell, if the rank that decides who does is the one that died.
        expect(len(told(text)) <= 2, f"rank {victim} of {ranks}: told too often", text)
        folder.train("out", chance.choice((1, 2, 3)), "--resume", *more)
        folder.train("one", 1, *more)
        expect_same(folder, "one", "out", 12)
        left = [name for name in os.listdir(folder.at("out")) if not re.fullmatch(r"step-\d+|metrics.jsonl|\.lock", name)]
        expect(not left, f"left behind: {left}")


def hung(program):
    with folder_for(program) as folder:
        run = folder.start("out", 3, ["--training.steps=1000", "--parallel.timeout=2"])
        pids = run.wait_for_ranks()
        wait_until(run, lambda: "step 2/" in run.text(), "a second step")
        os.kill(pids[1], signal.SIGSTOP)
        run.started.remove(pids[1])
        status, text = run.end(2 + HUNG_SECONDS)
        with contextlib.suppress(ProcessLookupError):  # mpirun has ended it, unless it crashed itself
            os.kill(pids[1], signal.SIGKILL)
        # The status is mpirun's own: Open MPI 4.1 may crash where it ends a rank that is stopped.
        expect(status != 0 and len(told(text)) == 1 and re.search(r"rank 1 on \S+ has not been heard of", text),
               f"status {status}", text)


def expect_refused(status, text, message):
    expect(status == 2 and len(told(text)) == 1 and re.search(message, text), f"status {status}", text)


def full_disk(program):
    """Rank 1 cannot write a file of its save: all say so once, and nothing is left."""
    with folder_for(program) as folder:
        cut = {1: ["bash", "-c", 'ulimit -f 4; exec "$@"', "bash"]}
        reason = r"rank 1 on \S+: .*(too large|File size|No space)"
        status, text = folder.start("out", 2, ["--checkpoint.every=1"], cut).end()
        expect_refused(status, text, f"error: .*{reason}")
        for step in (1, 2):  # on the way
            expect(len(re.findall(f"warning: step {step} could not be saved: {reason}", text)) == 1, f"step {step}", text)
        left = [name for name in os.listdir(folder.at("out")) if name != "metrics.jsonl" and not name.startswith(".lock")]
        expect(not left, f"left behind: {left}", text)


def damaged_weights(program):
    with folder_for(program, broken="model.layers.3.mlp.up_proj.weight") as folder:
        status, text = folder.start("out", 2).end()
        expect_refused(status, text, r"error: rank 1 on \S+: .*model.layers.3.mlp.up_proj.weight")


def little_memory(program):
    with folder_for(program) as folder:
        cut = {1: ["bash", "-c", 'ulimit -v 250000; exec "$@"', "bash"]}
        status, text = folder.start("out", 2, ["--training.context=2K"], cut).end()
        expect(status != 0 and len(told(text)) == 1, f"status {status}", text)


def refused(program):
    """Before anything is allocated, once."""
    with folder_for(program) as folder:
        def start(ranks, *options):
            return Run([[*folder.command("out", ranks, ()), *options]] * 2).end()

        expect_refused(*start(3), "2 processes and parallel.pipeline is 3")
        expect_refused(*start(1), "2 processes and parallel.pipeline is 1")
        expect_refused(*start(2, "--training.stepps=3"), r"unknown key training\.stepps")
        expect_refused(*Run([folder.command("out", 5, ())] * 5).end(), "parallel.pipeline is 5 and the model has 4 layers")
        expect_refused(*start(2, "--device.name=cpu", "--parallel.link=nccl"), "NCCL is asked for, and rank 0 on .* no GPU")
        unequal = [folder.command("out", 2, [f"--training.seed={rank}"]) for rank in range(2)]
        expect_refused(*Run(unequal).end(), "rank 1 on .* another configuration")
        done = subprocess.run(folder.command("out", 2, ()), capture_output=True, text=True, timeout=LIMIT, check=False)
        expect_refused(done.returncode, done.stderr, "parallel.pipeline is 2 and there is one process")
        elsewhere = {1: ["bash", "-c", 'cd /; exec "$@"', "bash"]}
        command = folder.command("out", 2, ["--checkpoint.directory=here"])
        os.chdir(folder.path)
        status, text = Run([[*elsewhere.get(rank, []), *command] for rank in range(2)]).end()
        os.chdir("/")
        expect_refused(status, text, "checkpoint.directory here is not the same for all: rank 1")


def cases(program, kills, chance):
    return [("train: refused", lambda: refused(program)),
            *((f"train: {kind}", lambda kind=kind: same_bytes(program, kind)) for kind in KINDS),
            ("train: bytes sent", lambda: counts_bytes(program)),
            ("train: memory of the worst rank", lambda: worst_rank(program)),
            ("train: as planned", lambda: as_planned(program)),
            ("train: traced", lambda: traced(program)),
            ("train: resumed", lambda: resumed(program)),
            ("train: saved beside steps", lambda: saved_beside_steps(program)),
            ("train: adapters resumed", lambda: adapters_resumed(program)),
            ("train: USR1 to all", lambda: signalled(program, signal.SIGUSR1, True)),
            ("train: TERM to one rank", lambda: signalled(program, signal.SIGTERM, False)),
            ("train: hung", lambda: hung(program)),
            ("train: full disk", lambda: full_disk(program)),
            ("train: damaged weights", lambda: damaged_weights(program)),
            ("train: little memory", lambda: little_memory(program)),
            *((f"train: kill {n + 1}", lambda: killed(program, chance)) for n in range(kills))]
