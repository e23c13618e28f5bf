"""A worker process: takes pieces from its standard input, writes parts, answers on its standard output.

Messages are pickles, first the settings. The process ends with its input, so also when the main process is killed.
"""
import os
import pickle
import signal
import sys
import traceback

from ..errors import Error
from . import parts


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process decides what Ctrl-C means
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    preparer = settings = None
    while True:
        try:
            message = pickle.load(sys.stdin.buffer)
        except (EOFError, pickle.UnpicklingError):  # the main process has ended, perhaps in the middle of a piece
            return
        try:
            if preparer is None:
                from .documents import Preparer

                settings = message
                preparer = Preparer(settings)
                continue
            answer = ("done", work(preparer, settings, message))
        except Error as error:
            answer = ("error", error.message, error.hint)
        except MemoryError:
            answer = ("error", "a worker has not enough memory", "use fewer --workers, or cut the longest document")
        except Exception:
            answer = ("internal", traceback.format_exc())
        try:
            pickle.dump(answer, answers)
            answers.flush()
        except BrokenPipeError:
            return


def work(preparer, settings, piece):
    preparer.once = preparer.written = preparer.empty = 0
    documents = list(preparer.documents(piece))
    if os.getppid() != settings["parent"]:
        sys.exit(1)  # the main process was killed: another may be at work here by now
    description = parts.write(settings["folder"], piece.index, piece.checksum, documents, settings["token_bytes"],
                              settings["targets"])
    description |= {"once": preparer.once, "written": preparer.written, "empty": preparer.empty,
                    "position": piece.position}
    parts.save(settings["folder"], piece.index, description)
    return description


if __name__ == "__main__":
    main()
