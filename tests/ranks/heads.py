"""`train` with processes that share heads: the results of one process but for rounding, the same bytes in every run."""
import json
import os
import re
import shlex
import shutil
import struct
import subprocess

import tiny_model
from launch import LIMIT, Run, expect
from training import (KINDS, STEPS, expect_allocated, expect_refused, expect_same, folder_for, run_to_end,
                      stop_one)

MOST = 1e-5  # relative difference of a tensor, in the norm of all its elements
SPARSE = KINDS["sparse"]
HEAD_OPTIONS = {**KINDS, "sparse, mass": [*SPARSE, "--attention.scoring=mass"],
                "sparse, oomb": [*SPARSE, "--attention.scoring=oomb"],
                "sparse, documents apart": [*SPARSE, *KINDS["documents apart"]],
                "sparse, pages in host memory": [*KINDS["pages in host memory"], *SPARSE]}
# Settings, and the numbers of stages and of pipelines that are compared with one process.
HEAD_KINDS = {"dense": [(1, 1), (2, 1), (1, 2)], "documents apart": [(2, 1)], "pages in host memory": [(1, 1)],
              "adapters": [(2, 1)], "adapters and whole modules": [(1, 1)], "state in host memory": [(1, 2)],
              "some parameters frozen": [(1, 1)], "recomputed": [(2, 1)], "tied": [(1, 1), (2, 1)], "evaluated": [(2, 1)],
              "sparse": [(1, 1), (2, 1), (1, 2)], "sparse, mass": [(1, 1)], "sparse, oomb": [(1, 1)],
              "sparse, documents apart": [(2, 1)], "sparse, pages in host memory": [(1, 1)]}


def command(folder, out, heads, stages, groups, options):
    return folder.command(out, stages, [f"--parallel.heads={heads}", f"--parallel.data={groups}", *options])


def train(folder, out, heads, stages, pipelines, *options, groups=None):
    run_to_end(command(folder, out, heads, stages, groups or pipelines, options), heads * stages * pipelines)


def difference(a, b):
    expect(a[:2] == b[:2] and a[0] == "F32", f"{a[:2]} and {b[:2]}")
    count = len(a[2]) // 4
    x, y = struct.unpack(f"<{count}f", a[2]), struct.unpack(f"<{count}f", b[2])
    return (sum((p - q) ** 2 for p, q in zip(x, y)) / max(sum(p * p for p in x), 1e-60)) ** 0.5


def expect_close(folder, a, b, step=STEPS):
    first, second = folder.tensors(a, step), folder.tensors(b, step)
    expect(first.keys() == second.keys(), f"tensors: {sorted(first.keys() ^ second.keys())}")
    far = {name: difference(first[name], second[name]) for name in first}
    worst = max(far, key=far.get)
    expect(far[worst] <= MOST, f"{b}: {worst} is {far[worst]:.1e} from that of {a}")
    lines = [folder.metrics(out) for out in (a, b)]
    expect(len(lines[0]) == len(lines[1]), "lines of metrics")
    for one, other in zip(*lines):
        for key in ("loss", "gradient_norm"):
            if key in one:
                expect(abs(one[key] - other[key]) <= MOST * abs(one[key]), f"{key}: {one[key]} and {other[key]}")
        # Lists of sparse layers are the same.
        for key in ("kind", "step", "targets", "tokens", "union_pages_mean", "union_pages_most", "selected_page_reuse"):
            expect(one.get(key) == other.get(key), f"{key}: {one.get(key)} and {other.get(key)}")


def close(program, kind):
    with folder_for(program, tied=kind.startswith("tied")) as folder:
        for stages, pipelines in HEAD_KINDS[kind]:
            one, out = f"one{pipelines}", f"out{stages}x{pipelines}"
            options = [*HEAD_OPTIONS[kind]]
            if not os.path.isdir(folder.at(one)):
                train(folder, one, 1, 1, 1, *options, groups=pipelines)
            if kind.endswith("pages in host memory"):  # each process has half of them
                options[0] = "--memory.gpu=1140K"
            train(folder, out, 2, stages, pipelines, *options)
            expect_close(folder, one, out)
            if kind.startswith("sparse"):
                expect(all(line["union_pages_most"] > 0 for line in folder.metrics(out)), "nothing was selected")
            if kind.endswith("pages in host memory"):
                line = folder.metrics(out)[-1]
                expect(line["bytes_host_pages"] > 0 and line["bytes_moved_in"] > 0, f"no page has left: {line}")


def same_bytes(program, *options):
    """Two runs, and fewer processes than groups."""
    with folder_for(program) as folder:
        train(folder, "a", 2, 1, 2, *options)
        train(folder, "b", 2, 1, 2, *options)
        train(folder, "c", 2, 1, 1, *options, groups=2)
        expect_same(folder, "a", "b")
        expect_same(folder, "a", "c")


def four(program):
    with folder_for(program, kv_heads=4) as folder:
        train(folder, "one", 1, 1, 1, *SPARSE)
        train(folder, "out", 4, 1, 1, *SPARSE)
        expect_close(folder, "one", "out")


def counts_bytes(program, chunks=1, options=()):
    """Nothing is computed twice: q, k, v and outputs, then what goes back, and the gradients and weights. In sparse layers,
    the scores of every chunk's 4 pages for all earlier ones."""
    with folder_for(program) as folder:
        tokens = 64 * chunks
        tiny_model.write_tokens(folder.at("tokens.bin"), ends=0)
        train(folder, "out", 2, 1, 1, f"--training.context={tokens}", "--training.chunk=64", "--training.batch=1",
              f"--training.keep_chunks={chunks}", *options)
        elements = sum(len(data) // 4 for name, (_, _, data) in folder.tensors("out").items()
                       if not re.match("first|second|master", name))
        layers, query_heads, kv_heads, size = 4, 4, 2, 16
        for line in folder.metrics("out"):
            around = layers * (6 * query_heads + 4 * kv_heads) * size * tokens // 2 * 4
            around += 2 * layers * sum(4 * 4 * chunk for chunk in range(chunks)) * 4
            shared = elements * 4 * (2 if line["step"] > 1 else 1)
            expect(line["ranks"] == 2 and line["bytes_sent"] == around + shared, f"{around} + {shared} expected: {line}")


def as_planned(program):
    """`plan --ranks` knows the bytes of the rank that takes most, and its command starts such a run."""
    with folder_for(program) as folder:
        for ranks, options in ((2, ()), (4, ()), (4, ("--parallel.pipeline=2",)), (4, ("--parallel.data=2",)),
                               (2, ("--training.context=250", "--memory.activations=recompute")),
                               (2, tuple(KINDS["pages in 8 bits"]))):
            line = [program, "plan", folder.at("run.toml"), "--ranks", str(ranks), "--json", "--parallel.heads=2", *options]
            done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT, check=False)
            expect(done.returncode == 0, f"plan: status {done.returncode}", done.stderr)
            plan = json.loads(done.stdout)["plans"][0]
            expect(plan["heads"] == 2 and plan["ranks_used"] <= ranks, f"plan: {plan}")
            words = shlex.split(plan["command"])
            expect(words[:3] == ["mpirun", "-np", str(plan["ranks_used"])], plan["command"])
            shutil.rmtree(folder.at("out"), ignore_errors=True)
            more = f"--checkpoint.directory={folder.at('out')}"
            text = run_to_end([program, *words[words.index("longstride") + 1:], more], plan["ranks_used"])
            expect_allocated(text, plan["ranks_used"])
            worst = max((stage["bytes"] for stage in plan["stages"]), key=lambda planned: planned["device"])
            line = folder.metrics("out")[-1]
            expect(line["ranks"] == plan["ranks_used"] and line["bytes"] == worst["device"], f"{worst} planned: {line}")
            for part in ("weights", "gradients", "optimizer", "kv_pages", "kv_gradient_pages", "workspace"):
                expect(line[f"bytes_{part}"] == worst[part], f"{part}: {worst[part]} planned: {line}")


def resumed(program):
    """Another number of processes goes on, near what one process comes to."""
    with folder_for(program) as folder:
        train(folder, "one", 1, 1, 1, "--checkpoint.every=1")
        train(folder, "out", 2, 1, 1, "--checkpoint.every=1")
        for heads, stages in ((1, 1), (2, 2), (1, 2)):
            shutil.rmtree(folder.at("out", f"step-{STEPS}"))
            train(folder, "out", heads, stages, 1, "--resume")
            first, second = folder.tensors("one"), folder.tensors("out")
            worst = max(difference(first[name], second[name]) for name in first)
            expect(worst <= MOST, f"{heads} x {stages}: {worst:.1e}")


def refused(program):
    with folder_for(program) as folder:
        def start(processes, heads, stages, *options):
            return Run([command(folder, "out", heads, stages, 1, options)] * processes).end()

        expect_refused(*start(3, 3, 1), "parallel.heads is 3 and the model has 2 KV heads")
        expect_refused(*start(4, 4, 1), "parallel.heads is 4 and the model has 2 KV heads")
        expect_refused(*start(3, 2, 1), "3 processes, which do not fit .* parallel.heads = 2")
        done = subprocess.run(command(folder, "out", 2, 1, 1, ()), capture_output=True, text=True, timeout=LIMIT, check=False)
        expect_refused(done.returncode, done.stderr, "parallel.heads is 2 and there is one process")


def signalled(program):
    """All stop at the same chunk."""
    constant = "--schedule.kind=constant"
    with folder_for(program) as folder:
        step = stop_one(command(folder, "out", 2, 2, 1, ["--training.steps=200", constant]), 4)
        train(folder, "again", 2, 2, 1, f"--training.steps={step}", constant)
        expect_same(folder, "again", "out", step)


def cases(program):
    return [("heads: refused", lambda: refused(program)),
            *((f"heads: {kind}", lambda kind=kind: close(program, kind)) for kind in HEAD_KINDS),
            ("heads: sparse, four processes", lambda: four(program)),
            ("heads: same bytes", lambda: same_bytes(program)),
            ("heads: sparse, same bytes", lambda: same_bytes(program, *SPARSE)),
            ("heads: bytes sent", lambda: counts_bytes(program)),
            ("heads: sparse, bytes sent", lambda: counts_bytes(program, 3, SPARSE)),
            ("heads: as planned", lambda: as_planned(program)),
            ("heads: resumed", lambda: resumed(program)),
            ("heads: TERM to one rank", lambda: signalled(program))]
