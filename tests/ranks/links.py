"""Links between ranks, by `bench link`: right bytes, unequal ranks, ranks that fail, are killed or hang."""
import json
import os
import re
import signal
import subprocess
import tempfile
import time

from launch import HUNG_SECONDS, KILLED_SECONDS, LIMIT, Run, expect, told


def right_bytes(program, ranks):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "link.json")
        status, text = Run([[program, "bench", "link", "--seconds", "0.02", "--json", path]] * ranks).end()
        expect(status == 0, f"status {status}", text)
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    expect(result["ranks"] == ranks and len(result["rows"]) == ranks * (ranks - 1) // 2 * 5, f"rows: {result}")
    expect(all(row["seconds"] > 0 for row in result["rows"]), f"seconds: {result}")
    expect(text.count("are right") == 5 and not told(text), "not every rank but 0 was quiet", text)


def unequal_options(program):
    ranks = [[program, "bench", "link", "--bytes", size] for size in ("1", "1", "2")]
    status, text = Run(ranks).end(10)
    expect(status == 2, f"status {status}", text)
    expect(len(told(text)) == 1 and re.search("rank 0 on .*: rank 2 on .* another configuration", text),
           "the message", text)


def error_of_rank_0(program):
    status, text = Run([[program, "bench", "link", "--json", "/nonexistent/link.json"]] * 3).end(10)
    expect(status == 2 and len(told(text)) == 1 and "error: rank 0 on" in text, f"status {status}", text)


def error_of_rank_1(program):
    """It may use little memory, and asks for more."""
    usual = [program, "bench", "link", "--bytes", "1,160M", "--seconds", "0.02"]
    little = ["bash", "-c", 'ulimit -v 900000; exec "$@"', "bash", *usual]
    status, text = Run([usual, little]).end(20)
    expect(status == 2 and len(told(text)) == 1 and re.search("error: rank 1 on .*: not enough memory", text),
           f"status {status}", text)


def no_plugin(program):
    status, text = Run([[program, "bench", "link"]] * 2, {"LONGSTRIDE_MPI": "/nonexistent/plugin.so"}).end(10)
    expect(status == 2 and "/nonexistent/plugin.so" in text and "hint: install Open MPI" in text, f"status {status}",
           text)


def no_gpu_for_nccl(program):
    """Where there is none; on a machine with GPUs the ranks share one, or NCCL runs."""
    environment = {"CUDA_VISIBLE_DEVICES": ""}
    status, text = Run([[program, "bench", "link", "--link", "nccl"]] * 2, environment).end(10)
    expect(status == 2 and len(told(text)) == 1 and re.search(r"rank 0 on \S+: NCCL is asked for, .*has no GPU", text),
           f"status {status}", text)
    done = subprocess.run([program, "bench", "link", "--link", "nccl"], capture_output=True, text=True, timeout=LIMIT,
                          check=False, env=os.environ | environment)
    expect(done.returncode == 2 and "has no GPU" in done.stderr, f"status {done.returncode}", done.stderr)


def one_process_only(program):
    status, text = Run([[program, "bench", "kernels", "--filter", "embedding"]] * 3).end(10)
    expect(status == 2 and len(told(text)) == 1 and "3 processes of longstride bench kernels" in text,
           f"status {status}", text)


def alone(program):
    done = subprocess.run([program, "bench", "link"], capture_output=True, text=True, timeout=LIMIT, check=False)
    expect(done.returncode == 2 and "hint: mpirun -np 2" in done.stderr, f"status {done.returncode}", done.stderr)
    needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    expect("libmpi" not in needed and "libnccl" not in needed, "the program is linked with MPI or NCCL", needed)


def killed(program, chance):
    ranks = chance.choice((2, 3, 4))
    victim, delay = chance.randrange(ranks), chance.uniform(0, 2.5)
    run = Run([[program, "bench", "link", "--seconds", "20", "--bytes", "1,4097,16M"]] * ranks)
    pid = run.wait_for_ranks()[victim]
    time.sleep(delay)
    os.kill(pid, signal.SIGKILL)
    status, text = run.end(KILLED_SECONDS)
    where = f"rank {victim} of {ranks} killed after {delay:.2f} s, status {status}"
    expect(status != 0, where, text)
    # Ours, or mpirun's if it was faster.
    expect(re.search(rf"rank {victim} on \S+ has died|rank {victim} with PID \d+ on node \S+ exited on signal 9", text),
           where, text)
    expect(len(told(text)) <= 1, f"{where}: told more than once", text)


def stopped(program, victim, ranks, timeout):
    run = Run([[program, "bench", "link", "--seconds", "20", "--bytes", "1,16M", "--timeout", str(timeout)]] * ranks)
    pid = run.wait_for_ranks()[victim]
    while "are right" not in run.text():  # the group has been formed
        expect(run.process.poll() is None, "it ended early", run.text())
        time.sleep(0.05)
    os.kill(pid, signal.SIGSTOP)
    status, text = run.end(timeout + HUNG_SECONDS)
    expect(status == 2, f"status {status}", text)
    expect(len(told(text)) == 1 and re.search(rf"error: .*rank {victim} on \S+ has not been heard of", text),
           "the message", text)


def waiting_takes_no_core(program):
    """Of three ranks two exchange messages at any time, and the third waits for them."""
    run = Run([[program, "bench", "link", "--seconds", "20", "--bytes", "16M"]] * 3)
    pids = run.wait_for_ranks()
    while "GB/s" not in run.text():
        expect(run.process.poll() is None, "it ended early", run.text())
        time.sleep(0.05)

    def processor_seconds(pid):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

    before, seconds = {rank: processor_seconds(pid) for rank, pid in pids.items()}, 2
    time.sleep(seconds)
    used = sorted((processor_seconds(pid) - before[rank]) / seconds for rank, pid in pids.items())
    run.process.send_signal(signal.SIGTERM)
    run.end(KILLED_SECONDS)
    expect(used[0] < 0.2, f"shares of a core: {used}")


def cases(program, kills, chance):
    return [("without a launcher", lambda: alone(program)), ("no plugin", lambda: no_plugin(program)),
            *((f"right bytes, {n} ranks", lambda n=n: right_bytes(program, n)) for n in (2, 3, 4)),
            ("no GPU for NCCL", lambda: no_gpu_for_nccl(program)),
            ("a command of one process", lambda: one_process_only(program)),
            ("unequal options", lambda: unequal_options(program)),
            ("error of rank 0", lambda: error_of_rank_0(program)),
            ("error of rank 1", lambda: error_of_rank_1(program)),
            *((f"kill {n + 1}", lambda: killed(program, chance)) for n in range(kills)),
            ("waiting takes no core", lambda: waiting_takes_no_core(program)),
            ("rank 0 of 2 stopped", lambda: stopped(program, 0, 2, 2)),
            ("rank 1 of 3 stopped", lambda: stopped(program, 1, 3, 2))]
