"""Worker processes, and the order of their results.

Each worker has a thread in the main process that takes the next piece, hands it over and waits. Parts are written by
the workers themselves; only their descriptions come back, which `results` gives in the order of the input.
"""
import contextlib
import os
import pickle
import subprocess
import sys
import threading

from ..errors import Error, InternalError
from .files import child_environment


class Pool:
    """`pieces` yields pieces; `known(piece)` gives the description of a part that is already there, or None."""

    def __init__(self, settings, count, pieces, known):
        self.pieces, self.known = iter(pieces), known
        self.reading, self.change = threading.Lock(), threading.Condition()
        self.found, self.end, self.next = {}, None, 0  # results by piece; how many pieces there are, once known
        environment = child_environment(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1", OMP_NUM_THREADS="1",
                                        OPENBLAS_NUM_THREADS="1")
        self.message = pickle.dumps(settings | {"parent": os.getpid()})
        self.workers = [subprocess.Popen([sys.executable, "-m", "longstride.prepare.worker"], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, env=environment) for _ in range(count)]
        self.threads = [threading.Thread(target=self.serve, args=(worker,), daemon=True) for worker in self.workers]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        with self.change:
            self.end = -1  # no more pieces
        for worker in self.workers:
            worker.kill()
        for worker, thread in zip(self.workers, self.threads, strict=True):
            thread.join()
            worker.wait()
            with contextlib.suppress(OSError):
                worker.stdin.close()
            worker.stdout.close()

    def results(self, idle):
        """Yields the descriptions in order; calls `idle` now and then while waiting. Raises the first error."""
        number = 0
        while True:
            with self.change:
                while number not in self.found and self.end is None:
                    self.change.wait(0.2)
                    idle()
                while number not in self.found and number < self.end:
                    self.change.wait(0.2)
                    idle()
                if number not in self.found:
                    return
                result = self.found.pop(number)
            if isinstance(result, BaseException):
                raise result
            yield result
            number += 1

    def put(self, number, result):
        with self.change:
            self.found[number] = result
            if isinstance(result, BaseException) and (self.end is None or self.end > number + 1):
                self.end = number + 1  # pieces before it are still finished: the first error is the same every time
            self.change.notify_all()

    def take(self):
        """The next piece to work on, or None at the end."""
        with self.reading:
            try:
                while self.end is None:
                    piece = next(self.pieces, None)
                    if piece is None:
                        with self.change:
                            self.end = self.next if self.end is None else self.end
                            self.change.notify_all()
                        return None
                    piece.index, piece.checksum = self.next, piece.digest()
                    self.next += 1
                    result = self.known(piece)
                    if result is None:
                        return piece
                    self.put(piece.index, result)
            except BaseException as error:
                # A piece that could not be read has not been counted yet; one that was refused has.
                number = self.next - 1 if isinstance(error, Refused) else self.next
                self.put(number, error)
            return None

    def serve(self, worker):
        piece = self.take()
        if piece is None:
            return
        try:
            worker.stdin.write(self.message)
            while piece is not None:
                pickle.dump(piece, worker.stdin, protocol=5)
                worker.stdin.flush()
                following = self.take()  # read while the worker is busy
                self.put(piece.index, self.receive(worker))
                piece = following
        except OSError:
            self.put(piece.index, self.lost(worker))
        except BaseException as error:
            self.put(piece.index, error)

    def receive(self, worker):
        try:
            kind, *content = pickle.load(worker.stdout)
        except (EOFError, pickle.UnpicklingError):
            return self.lost(worker)
        if kind == "done":
            return content[0]
        return Error(*content) if kind == "error" else InternalError(*content)

    @staticmethod
    def lost(worker):
        return Error(f"a worker process ended (status {worker.wait()}), perhaps for want of memory",
                     "use fewer --workers and run the same command again: it goes on where it stopped")


class Refused(Error):
    """A piece that was read, but is not the one that an earlier run has used."""
