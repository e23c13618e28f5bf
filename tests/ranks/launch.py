"""Runs of mpirun on this machine, in which ranks may be stopped and killed."""
import os
import re
import signal
import subprocess
import tempfile
import time

MPIRUN = ["mpirun", *(["--allow-run-as-root"] if os.geteuid() == 0 else []), "--oversubscribe", "--bind-to", "none"]
KILLED_SECONDS = 10  # the longest time between the death of a rank and the end of all
HUNG_SECONDS = 5  # beyond the timeout
LIMIT = 60  # of any run


class Failed(Exception):
    pass


def expect(condition, what, output=""):
    if not condition:
        raise Failed(f"{what}\n{output}".rstrip())


def alive(pid):
    """Whether a process still runs; one that has ended may wait for its parent."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Run:
    """A run of mpirun in a process group of its own. `ranks` are lists of arguments, one per rank."""

    def __init__(self, ranks, environment=None):
        command = [*MPIRUN]
        for number, rank in enumerate(ranks):
            command += [*([":"] if number > 0 else []), "-np", "1", *rank]
        self.output = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.output, stderr=subprocess.STDOUT,
                                        env=os.environ | (environment or {}), start_new_session=True)
        self.size = len(ranks)
        self.started = []  # the processes of ranks, once wait_for_ranks has seen them

    def pids(self):
        """By rank: the processes that mpirun has started."""
        found = {}
        for name in os.listdir("/proc"):
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
                if parent == self.process.pid:
                    with open(f"/proc/{name}/environ", encoding="utf-8", errors="replace") as file:
                        rank = re.search(r"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", file.read())
                    if rank:
                        found[int(rank.group(1))] = int(name)
            except (OSError, ValueError, IndexError):
                continue
        return found

    def wait_for_ranks(self):
        end = time.monotonic() + LIMIT
        while len(self.pids()) < self.size:
            expect(self.process.poll() is None and time.monotonic() < end, "the ranks did not start", self.text())
            time.sleep(0.02)
        found = self.pids()
        self.started = list(found.values())
        return found

    def text(self):
        self.output.seek(0)
        return self.output.read()

    def end(self, seconds=LIMIT):
        """The exit status and what was printed. Fails if it takes longer; nothing is left running then."""
        begin = time.monotonic()
        try:
            status = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            status = None
        taken = time.monotonic() - begin
        left = [pid for pid in self.pids().values() if os.path.exists(f"/proc/{pid}")]
        if status is None:
            for pid in [*left, self.process.pid]:
                os.kill(pid, signal.SIGKILL)
            self.process.wait()
        while any(alive(pid) for pid in self.started) and time.monotonic() - begin < seconds:
            time.sleep(0.02)
        left = [pid for pid in self.started if alive(pid)]
        expect(not left, f"processes are left: {left}", self.text())
        expect(status is not None and taken <= seconds, f"it took {taken:.1f} s to end, not {seconds}", self.text())
        return status, self.text()


def told(text):
    """The error messages of ours."""
    return re.findall(r"^(?:internal )?error: .*$", text, re.M)
