#!/usr/bin/env python3
"""Disturbs training runs at random and checks that nothing is lost.

  scripts/soak [--seconds S | --kills N] [--seed X] [--binary PATH] [--only CONFIGURATION/RUN] [--signals]

Small runs of random configurations, on the CPU, are killed, stopped, starved of disk space and robbed of their files, and
then go on. What they end with must be, byte for byte, what an undisturbed run ends with; or they say why not: status 2, an
error and a hint. Anything else is a violation: it is printed with what repeats it, its directory is kept, and the status
is 1.
"""
import argparse
import collections
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

import verify
from case import Case
from configurations import OUT, Configuration
from files import FILES
from program import Program, Violation
from signals import KILLS, SIGNALS

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUNS_PER_CONFIGURATION = 12


def train(binary, directory, file="run.toml", more=()):
    return Program(binary, directory, ["train", file] + list(more)).wait()


def prepare(binary, directory, rng):
    """A configuration, the directory of its undisturbed run, and how long one takes."""
    configuration = Configuration(rng, os.path.join(ROOT, "tests", "parity", "fixtures"))
    reference = os.path.join(directory, "reference")
    every_step = {"checkpoint.every": 1, "checkpoint.keep": 0}
    configuration.write(reference, every_step)
    began = time.monotonic()
    ended = train(binary, reference)
    seconds = time.monotonic() - began
    if ended.status != 0:
        raise Violation(f"undisturbed, but status {ended.status}: {ended.log}")
    line = json.loads(verify.read(os.path.join(
        reference, configuration.settings.get("metrics.file", f"{OUT}/metrics.jsonl"))).splitlines()[0])

    # Pages and state elsewhere, in a way that this run fits; nothing of the result may depend on it.
    tiered = os.path.join(directory, "tiered")
    for _ in range(8):
        configuration.choose_memory(rng, line)
        configuration.write(tiered)
        began = time.monotonic()
        ended = train(binary, tiered)
        if ended.status == 0:
            verify.finished(tiered, reference, configuration)
            shutil.rmtree(tiered)
            return configuration, reference, min(seconds, time.monotonic() - began)
        if not ended.refused() or os.path.exists(os.path.join(tiered, OUT, "step-1")):
            raise Violation(f"undisturbed, but status {ended.status}: {ended.log}")
        shutil.rmtree(tiered)
    configuration.memory = {}
    return configuration, reference, seconds


def disturb(case, counts, only_signals):
    """Some disturbances of one run, and its end."""
    kinds = dict(SIGNALS) if only_signals else {**SIGNALS, **FILES}
    if case.random.random() < 0.3:
        case.use_small_disk()
    for _ in range(case.random.randint(1, 5)):
        name = case.random.choices(list(kinds), [weight for _, weight in kinds.values()])[0]
        case.note(f"-- {name}")
        how = kinds[name][0](case)
        counts[name, how or "not possible here"] += 1
        if case.saves() and case.saves()[-1] == case.configuration.steps():
            case.finish()
            case.begin_anew()
    case.note("-- to the end")
    case.finish()


def show(case, seed, where, problem):
    print(f"\nVIOLATION in {where} of seed {seed}: {problem}")
    print(f"its files: {case.directory}; the undisturbed run: {case.reference}")
    print(f"to repeat: scripts/soak --seed {seed} --only {where} --binary {case.binary}")
    print("what was done:")
    print("".join(f"  {action}\n" for action in case.actions), end="")
    print(case.configuration.text(), end="")
    logs = sorted((n for n in os.listdir(case.directory) if n.startswith("log-")), key=lambda n: int(n[4:-4]))
    if logs:
        print(f"the end of {logs[-1]}:")
        print(verify.read(os.path.join(case.directory, logs[-1])).decode(errors="replace")[-1500:])
    sys.stdout.flush()


class Soak:
    def __init__(self, options):
        self.options = options
        self.counts = collections.Counter()
        self.passed = self.failed = 0
        self.began = time.monotonic()

    def kills(self):
        return sum(n for (name, how), n in self.counts.items() if name in KILLS and how != "ended first")

    def enough(self):
        if self.options.kills is not None:
            return self.kills() >= self.options.kills
        return time.monotonic() - self.began >= self.options.seconds

    def configuration(self, number, directory, runs):
        seed = self.options.seed
        try:
            configuration, reference, seconds = prepare(self.options.binary, directory, random.Random(f"{seed}/{number}"))
        except Violation as violation:
            print(f"\nVIOLATION in {number}/- of seed {seed}, undisturbed: {violation}\nits files: {directory}")
            self.failed += 1
            return False
        kept = False
        for run in runs:
            if self.enough():
                break
            rng = random.Random(f"{seed}/{number}/{run}")
            case = Case(self.options.binary, os.path.join(directory, f"run-{run}"), configuration, reference, seconds, rng)
            failed = True
            try:
                disturb(case, self.counts, self.options.signals)
                self.passed += 1
                failed = False
            except (Violation, OSError, ValueError, KeyError, IndexError) as problem:
                self.failed += 1
                kept = True
                if not isinstance(problem, Violation):
                    traceback.print_exc(file=sys.stdout)
                show(case, seed, f"{number}/{run}", problem)
            finally:
                case.close(keep=failed)
        return not kept

    def run(self):
        only = self.options.only
        base = tempfile.mkdtemp(prefix="longstride-soak-", dir=self.options.directory)
        number = only[0] if only else 0
        while not self.enough():
            directory = os.path.join(base, f"configuration-{number}")
            os.makedirs(directory)
            runs = [only[1]] if only else range(RUNS_PER_CONFIGURATION)
            if self.configuration(number, directory, runs):
                shutil.rmtree(directory)
            number += 1
            print(f"soak: {number} configurations, {self.kills()} kills; {self.passed} passed, {self.failed} failed",
                  flush=True)
            if only:
                break
        if not self.failed:
            shutil.rmtree(base)

    def report(self):
        print(f"\nsoak: seed {self.options.seed}, {time.monotonic() - self.began:.0f} s, {Program.count} processes")
        for (name, how), n in sorted(self.counts.items()):
            print(f"  {name:20} {how:22} {n:6}")
        print(f"soak: {self.kills()} kills; {self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--seconds", type=float, default=180, help="how long to go on (180)")
    length.add_argument("--kills", type=int, help="until so many processes were met by a signal that ends them")
    parser.add_argument("--seed", type=int, default=None, help="of all that is random here (else by the clock)")
    parser.add_argument("--binary", default=os.path.join(ROOT, "build", "release", "longstride"))
    parser.add_argument("--only", type=lambda text: tuple(int(n) for n in text.split("/")), metavar="CONFIGURATION/RUN")
    parser.add_argument("--signals", action="store_true", help="signals alone, and no changed files")
    parser.add_argument("--directory", default=None, help="where to work (the system's directory for temporary files)")
    options = parser.parse_args()
    options.binary = os.path.abspath(options.binary)
    if not os.access(options.binary, os.X_OK):
        parser.error(f"{options.binary} is not there: scripts/build release longstride")
    if options.only is not None and len(options.only) != 2:
        parser.error("--only takes CONFIGURATION/RUN, such as 3/7")
    if options.seed is None:
        options.seed = int(time.time())
    # Cleans up and reports, also from the background of a shell.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    soak = Soak(options)
    try:
        soak.run()
    except KeyboardInterrupt:
        print("soak: interrupted")
    return soak.report()


if __name__ == "__main__":
    sys.exit(main())
