"""Pipelines of ranks that sleep in place of computing: order and seconds are those of the simulation."""
import os

from launch import Run, expect

# Ranks; then chunks, sequences, milliseconds of a forward pass, and what every later chunk takes more.
PIPELINES = {"4 ranks, equal chunks": (4, 6, 2, 90, 0), "4 ranks, growing chunks": (4, 8, 1, 50, 15),
             "7 ranks, equal chunks": (7, 8, 1, 110, 0), "7 ranks, growing chunks": (7, 8, 1, 60, 20)}


def sleeps(program, kind):
    ranks, *numbers = PIPELINES[kind]
    folder = os.path.dirname(program)
    command = [os.path.join(folder, "tests", "sleeping_ranks"), *map(str, numbers)]
    plugin = {"LONGSTRIDE_MPI": os.path.join(folder, "liblongstride_mpi.so")}
    for _ in range(3):  # another program may have had the cores
        status, text = Run([command] * ranks, plugin).end()
        print(f"test-ranks: {text.strip().splitlines()[0] if text.strip() else 'nothing was said'}", flush=True)
        if status == 0:
            return
    expect(False, f"status {status}", text)


def cases(program):
    return [(f"sleeping: {kind}", lambda kind=kind: sleeps(program, kind)) for kind in PIPELINES]
