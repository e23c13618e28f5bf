"""What bench/compare_products and bench/compare_attention share: kernels of longstride and calls of PyTorch, timed alike."""
import json
import os
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def add_options(parser, name):
    parser.add_argument("--binary", default=os.environ.get("LONGSTRIDE", os.path.join(ROOT, "build/release/longstride")),
                        help="longstride, built with CUDA (default: LONGSTRIDE, or build/release/longstride)")
    parser.add_argument("--library-path", help="where longstride finds CUDA's libraries; PyTorch does not see it")
    parser.add_argument("--json", default=os.path.join(ROOT, f"build/{name}.json"))


def bench_kernels(args, options):
    """The output of `longstride bench kernels` with further options: device, kernels and rows."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [args.binary, "bench", "kernels", "--device", "cuda", *options, "--json", file.name]
        paths = [args.library_path, os.environ.get("LD_LIBRARY_PATH")]
        environment = os.environ | {"LD_LIBRARY_PATH": ":".join(path for path in paths if path)}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        return json.load(open(file.name, encoding="utf-8"))


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def time_of(torch, call, seconds, warm_up=0.0):
    """Seconds a call after `warm_up` seconds of calls, over ten batches that fill `seconds`; the median batch."""
    def batch(count):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000 / count
    batch(3)
    count = max(1, int(seconds / 10 / batch(10)))
    start = time.monotonic()
    while time.monotonic() - start < warm_up:
        batch(count)
    return median([batch(count) for _ in range(10)])


def write_json(path, what):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(what, file, indent=2)
    print(f"Written to {path}")
