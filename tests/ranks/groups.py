"""`train` with data groups: the bytes depend on the number of groups alone, not on the processes."""
import re
import shutil

from launch import Run, expect
from training import KINDS, STEPS, expect_refused, expect_same, folder_for, results, run_to_end, stop_one

# Settings of two groups whose bytes are compared; the others are those of pipelines alone.
GROUP_KINDS = ["dense", "documents apart", "sparse", "gradient pages in bf16", "pages in host memory", "adapters",
               "adapters and whole modules", "NF4", "moments in 8 bits", "bf16 without masters", "state in host memory",
               "some parameters frozen", "tied", "tied, adapters and whole modules", "evaluated"]


def command(folder, out, stages, groups, options):
    return folder.command(out, stages, [f"--parallel.data={groups}", *options])


def train(folder, out, processes, stages, groups, *options):
    run_to_end(command(folder, out, stages, groups, options), processes)


def compare(folder, groups, cuts, options):
    train(folder, "one", 1, 1, groups, *options)
    for processes, stages in cuts:
        out = f"out{processes}x{stages}"
        train(folder, out, processes, stages, groups, *options)
        expect_same(folder, "one", out)
        expect([results(line) for line in folder.metrics("one")] == [results(line) for line in folder.metrics(out)],
               f"metrics of {out} differ")


def same_bytes(program, kind):
    with folder_for(program, tied=kind.startswith("tied")) as folder:
        options = [*KINDS[kind]]
        if kind == "pages in host memory":  # one process has a second set of gradients
            options[0] = "--memory.gpu=1650K"
        compare(folder, 2, [(2, 1), (4, 2)] if kind in ("dense", "tied") else [(4, 2)], options)


def several_rounds(program):
    """Fewer processes than groups, and sequences of different lengths."""
    with folder_for(program) as folder:
        compare(folder, 4, [(2, 1), (4, 1), (4, 2)], ["--training.batch=8", "--data.pack=false"])


def cut_tensors(program):
    """The embedding is larger than a shard, so that several processes have parts of one tensor."""
    with folder_for(program, vocabulary=40000) as folder:
        compare(folder, 3, [(3, 1)], ["--training.batch=3", "--optimizer.state=8bit"])


def trained_sizes(folder):
    """Elements of each weight: all are trained, in F32."""
    return [len(data) // 4 for name, (_, _, data) in folder.tensors("out").items() if not re.match("first|second|master", name)]


def counts_bytes(program):
    """Every process sends what the others sum of its gradients, and its part of the weights to all others."""
    with folder_for(program) as folder:
        train(folder, "out", 3, 1, 6, "--training.batch=6")
        elements = sum(trained_sizes(folder))
        for line in folder.metrics("out"):
            rounds = 2
            gradients, weights = rounds * (3 - 1) * elements * 4, (3 - 1) * elements * 4
            # The weights of a step are sent after its line is written.
            expected = gradients + (weights if line["step"] > 1 else 0)
            expect(line["ranks"] == 3 and line["bytes_sent"] == expected, f"{expected} bytes expected: {line}")


def resumed(program):
    """Any number of processes goes on; another number of groups is refused."""
    with folder_for(program) as folder:
        options = ["--checkpoint.every=1", "--optimizer.state=8bit"]
        train(folder, "one", 1, 1, 2, *options)
        train(folder, "out", 4, 2, 2, *options)
        for step in range(1, STEPS + 1):
            expect_same(folder, "one", "out", step)
        for processes, stages in ((1, 1), (2, 1), (3, 3), (4, 2)):
            shutil.rmtree(folder.at("out", f"step-{STEPS}"))
            train(folder, "out", processes, stages, 2, "--resume", *options)
            expect_same(folder, "one", "out")
        expect_refused(*Run([command(folder, "out", 2, 1, ["--resume", *options])] * 2).end(),
                       "parallel.data is 1 but the checkpoint")


def refused(program):
    with folder_for(program) as folder:
        def start(processes, stages, groups, *options):
            return Run([command(folder, "out", stages, groups, options)] * processes).end()

        expect_refused(*start(3, 1, 2), "3 processes, which do not fit parallel.pipeline = 1 and parallel.data = 2")
        expect_refused(*start(2, 1, 4), r"training.batch \(2\) is not a multiple of parallel.data \(4\)")


def signalled(program):
    """In one pipeline: the other stops too."""
    constant = "--schedule.kind=constant"
    with folder_for(program) as folder:
        step = stop_one(command(folder, "out", 2, 2, ["--training.steps=200", constant]), 4)
        train(folder, "one", 1, 1, 2, f"--training.steps={step}", constant)
        expect_same(folder, "one", "out", step)


def full_disk(program):
    """A process cannot write the file that it gets parts of from others: all say so once."""
    with folder_for(program, vocabulary=40000) as folder:
        line = command(folder, "out", 1, 2, ["--training.steps=1"])
        cut = ["bash", "-c", 'ulimit -f 64; exec "$@"', "bash"]
        status, text = Run([[*cut, *line], line]).end()
        expect_refused(status, text, r"error: .*(too large|File size|No space)")


def cases(program):
    return [("groups: refused", lambda: refused(program)),
            *((f"groups: {kind}", lambda kind=kind: same_bytes(program, kind)) for kind in GROUP_KINDS),
            ("groups: several rounds", lambda: several_rounds(program)),
            ("groups: cut tensors", lambda: cut_tensors(program)),
            ("groups: bytes sent", lambda: counts_bytes(program)),
            ("groups: resumed", lambda: resumed(program)),
            ("groups: TERM to one rank", lambda: signalled(program)),
            ("groups: full disk", lambda: full_disk(program))]
