"""Disturbances by signal, and by what is done to a process from outside. Each gives how it went, in a word or two."""
import signal
import time

import verify
from program import Violation


def kill(case):
    """Nothing can be done about it; what was saved is there."""
    program = case.start()
    hit = case.wait_for_a_moment(program) and program.send(signal.SIGKILL)
    case.note("  kill -KILL")
    ended = case.end(program, hit, deaths=(signal.SIGKILL,))
    return "killed" if ended.died else ended_first(ended)


def ended_first(ended):
    if ended.status != 0:
        raise Violation(f"undisturbed, but it ended with status {ended.status}")
    return "ended first"


def stop_by(number):
    """The last completed step is saved, and the status says which signal it was."""
    def stop(case):
        program = case.start()
        hit = case.wait_for_a_moment(program) and program.send(number)
        case.note(f"  kill -{number.name}")
        ended = case.end(program, hit, deaths=(number,))
        if ended.died:
            if case.saves() and case.saves()[-1] == case.configuration.steps():
                return "ended after its end"
            # Until it has read its configuration there is nothing to save.
            if "\nstep " in ended.log or "\nsaved " in ended.log:
                raise Violation(f"signal {number.name} ended it without a save")
            return "ended before it began"
        if ended.status == 0:
            return "ended first"
        if ended.status == 2:
            raise Violation("a stop by signal ended with an error")
        check_last_step_saved(case)
        return "stopped and saved"
    return stop


def check_last_step_saved(case):
    lines, saves = verify.metrics(case.directory, case.configuration), case.saves()
    if case.complete_metrics and lines and (not saves or saves[-1] != lines[-1]["step"]):
        raise Violation(f"step {lines[-1]['step']} was done when it was stopped, but the saves are {saves}")


def stop_twice(case):
    """The second signal does not wait for a save."""
    number = case.random.choice([signal.SIGINT, signal.SIGTERM])
    program = case.start()
    hit = case.wait_for_a_moment(program) and program.send(number)
    time.sleep(case.random.uniform(0, 0.01))
    program.send(number)
    case.note(f"  kill -{number.name}, twice")
    ended = case.end(program, hit, deaths=(number,))
    return "left at once" if ended.died else "stopped" if ended.status else "ended first"


def close_pipe(case):
    """Whoever reads the log goes away; the run goes on."""
    program = case.start(pipe=True)
    hit = False
    begin, target = time.monotonic(), case.random.uniform(0, 0.9) * case.seconds
    while program.running() and time.monotonic() - begin < target:
        time.sleep(0.001)
    hit = program.running()
    case.note(f"  after {target:.3f} s the reader of its log goes away")
    program.close_pipe()
    ended = case.end(program, hit)
    if ended.status != 0:
        raise Violation(f"status {ended.status} after the reader of its log went away")
    return "went on" if hit else "ended first"


def pause(case):
    program = case.start()
    hit = case.wait_for_a_moment(program) and program.send(signal.SIGSTOP)
    time.sleep(case.random.uniform(0.01, 0.2))
    program.send(signal.SIGCONT)
    case.note("  kill -STOP, kill -CONT")
    ended = case.end(program, hit)
    if ended.status != 0:
        raise Violation(f"status {ended.status} after a pause")
    return "went on" if hit else "ended first"


def second_process(case):
    """It is refused, and the first does not notice."""
    program = case.start()
    hit = case.wait_for_a_moment(program)
    case.note("  a second one in the same directory:")
    first = case.program
    second = case.start()
    at_work = program.running()
    other = second.wait()
    case.note(f"  ended with status {other.status}")
    case.program = first
    ended = case.end(program, hit)
    if other.status not in (0, 2) or (other.status == 2 and not other.refused()):
        raise Violation(f"the second process ended with status {other.status}")
    if ended.status == 2 and "another process" in ended.log:
        return "the second was first"
    if ended.status != 0:
        raise Violation(f"status {ended.status} of the first of two processes")
    return "second refused" if other.status == 2 else "one after the other" if not (hit and at_work) else "took turns"


SIGNALS = {
    "KILL": (kill, 10),
    "TERM": (stop_by(signal.SIGTERM), 4),
    "INT": (stop_by(signal.SIGINT), 4),
    "HUP": (stop_by(signal.SIGHUP), 3),
    "INT or TERM twice": (stop_twice, 2),
    "closed pipe": (close_pipe, 2),
    "STOP and CONT": (pause, 2),
    "second process": (second_process, 1),
}
KILLS = ("KILL", "TERM", "INT", "HUP", "INT or TERM twice", "closed pipe")
