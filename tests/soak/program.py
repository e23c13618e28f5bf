"""The program as its users run it: a process of its own, what it says and how it ends."""
import os
import resource
import shutil
import signal
import subprocess
import threading
import time


class Violation(Exception):
    """The program did what it must never do."""


class Ended:
    """How a run ended. `status` is as a shell gives it: 128 + signal where one ended it."""

    def __init__(self, returncode, log, hit):
        self.died = -returncode if returncode < 0 else 0  # of this signal
        self.status = 128 - returncode if returncode < 0 else returncode
        self.log = log
        self.hit = hit  # the disturbance met it while it ran

    def refused(self):
        return self.status == 2 and "error: " in self.log and "hint: " in self.log


class Program:
    """A started longstride, in a directory of its own, with its log in a file there or through a pipe."""

    count = 0

    def __init__(self, binary, directory, arguments, file_bytes=None, pipe=False, timeout=120):
        Program.count += 1
        self.log_path = os.path.join(directory, f"log-{Program.count}.txt")
        self.deadline = time.monotonic() + timeout
        self.read_end = self.reader = None
        environment = dict(os.environ, LONGSTRIDE_CACHE=os.path.join(directory, "cache"))

        def limit():
            if file_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
            # What is ignored here (by Python, or by a shell in the background) would be ignored there too.
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)

        # A log in a file would fall under the limit itself.
        through_pipe = pipe or file_bytes is not None
        with open(self.log_path, "wb") as log:
            out = log
            if through_pipe:
                self.read_end, out = os.pipe()
            self.process = subprocess.Popen([binary] + arguments, cwd=directory, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, env=environment, preexec_fn=limit)
            if through_pipe:
                os.close(out)
        if through_pipe and not pipe:
            self.reader = threading.Thread(target=self.copy_log)
            self.reader.start()

    def copy_log(self):
        with open(self.log_path, "wb") as log, os.fdopen(self.read_end, "rb") as read_end:
            shutil.copyfileobj(read_end, log)

    def running(self):
        return self.process.poll() is None

    def send(self, number):
        """True where it was still there to get the signal."""
        if not self.running():
            return False
        self.process.send_signal(number)
        return True

    def close_pipe(self):
        os.close(self.read_end)
        self.read_end = None

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait(self, hit=True):
        if self.read_end is not None and self.reader is None:
            self.close_pipe()
        try:
            self.process.wait(max(1.0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Violation("it hangs: no end after the time limit") from None
        finally:
            if self.reader is not None:
                self.reader.join()
        return Ended(self.process.returncode, self.log(), hit)

    def end(self):
        """For whoever gives up on it."""
        if self.read_end is not None and self.reader is None:
            self.close_pipe()
        if self.running():
            self.process.kill()
            self.process.wait()
