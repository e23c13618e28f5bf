"""Disturbances of files: full disks, directories that go away, files that are not what they were. Each gives how it went,
or None where it cannot be done here."""
import json
import os
import re
import shutil
import subprocess

import verify
from case import mount
from configurations import OUT
from program import Violation


def orderly(case, program, hit):
    """It ended, or said why not."""
    ended = case.end(program, hit)
    return ("went on" if hit else "ended first") if ended.status == 0 else "refused"


# Full disks

def limited_files(case):
    limit = case.random.choice([0, 1000, 20_000, 60_000, 100_000, 200_000, 400_000, 800_000])
    if limit <= 60_000:
        case.complete_metrics = False
    return orderly(case, case.start(file_bytes=limit), True)


def full_disk(case):
    if not case.mounted:
        return None
    program = case.start()
    hit = case.wait_for_a_moment(program)
    used = sum(os.path.getsize(os.path.join(case.reference, OUT, "step-1", name))
               for name in verify.files_below(os.path.join(case.reference, OUT, "step-1")))
    free = int(case.random.uniform(0, 1.5) * used)
    disk = os.statvfs(case.path(OUT))
    filler = case.path(OUT, "filler")
    try:
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, disk.f_bavail * disk.f_frsize - free))
    except OSError:
        pass
    case.note(f"  all but {free} bytes of the disk are taken")
    case.complete_metrics = False
    how = orderly(case, program, hit)
    if case.random.random() < 0.5:
        case.note("  and again")
        case.end(case.start())
    os.remove(filler)
    return how


# Directories that go away

def without_rights(case):
    program = case.start()
    hit = case.wait_for_a_moment(program)
    out = case.path(OUT)
    if os.geteuid() != 0 and os.path.isdir(out):
        os.chmod(out, 0o555)
        done = True
    elif case.mounted:
        done = mount(out, "ro", remount=True)
    else:
        done = subprocess.run(["chattr", "+i", out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              check=False).returncode == 0
    case.note(f"  {OUT} cannot be written to{'' if done else ' (not here)'}")
    # Its metrics may not be there yet, and then cannot be made.
    case.complete_metrics = case.complete_metrics and not done
    how = orderly(case, program, hit)
    if done and os.geteuid() != 0:
        os.chmod(out, 0o755)
    elif case.mounted:
        mount(out, "rw,size=64m", remount=True)
    else:
        subprocess.run(["chattr", "-i", out], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return how if done else None


def out_removed(case):
    if case.mounted:
        return None
    program = case.start()
    hit = case.wait_for_a_moment(program)
    case.note(f"  rm -r {OUT}")
    shutil.rmtree(case.path(OUT), ignore_errors=True)
    case.complete_metrics = False
    comparable, case.comparable = case.comparable, False
    how = orderly(case, program, hit)
    case.comparable = comparable
    # A save that took its name while it was being removed has lost files to us, not to the program.
    for step in case.saves():
        try:
            verify.same_step(case.directory, case.reference, step)
        except Violation:
            shutil.rmtree(case.path(OUT, f"step-{step}"))
    return how


def out_moved(case, stand_in=None):
    if case.mounted:
        return None
    program = case.start()
    hit = case.wait_for_a_moment(program)
    out, away = case.path(OUT), case.path("away")
    moved = os.path.isdir(out)
    if moved:
        case.note(f"  mv {OUT} away{'; a file in its place' if stand_in else ''}")
        os.rename(out, away)
        if stand_in:
            try:
                with open(out, "x", encoding="utf-8") as file:
                    file.write(stand_in)
            except FileExistsError:
                pass
        case.complete_metrics = False
    how = orderly(case, program, hit)
    if moved:
        if os.path.isfile(out):
            os.remove(out)
        if os.path.isdir(out):
            shutil.rmtree(away)
        else:
            os.rename(away, out)
    return how


def file_in_place_of_out(case):
    return out_moved(case, "no directory\n")


def moved_for_a_run(name):
    """Away from some moment of a run on; then back."""
    def move(case):
        if not os.path.exists(case.path(name)):
            return None
        at_start = case.random.random() < 0.3
        program = None if at_start else case.start()
        hit = at_start or case.wait_for_a_moment(program)
        case.note(f"  mv {name} away")
        os.rename(case.path(name), case.path("away"))
        program = program or case.start()
        how = orderly(case, program, hit)
        if os.path.isdir(case.path(name)):
            shutil.rmtree(case.path(name))
        os.rename(case.path("away"), case.path(name))
        return how
    return move


# Files that are not what they were

def data_cut_in_a_run(case):
    """What it reads is what it began with, or it says so."""
    program = case.start()
    hit = case.wait_for_a_moment(program)
    content = case.configuration.files["tokens.bin"]
    kept = case.random.choice([0, 4, 4096, len(content) // 8 * 4])
    case.note(f"  truncate -s {kept} tokens.bin")
    os.truncate(case.path("tokens.bin"), kept)
    comparable, case.comparable = case.comparable, False
    ended = case.end(program, hit)
    write(case.path("tokens.bin"), content)
    # Cut before it was opened, it is another file.
    said = re.search(r"^ +data +(\d+) tokens", ended.log, re.M)
    case.comparable = comparable and (said is None or int(said[1]) == case.configuration.tokens())
    if case.comparable:
        verify.whole_saves(case.directory, case.reference)
    return ("went on" if hit else "ended first") if ended.status == 0 else "refused"


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)


def other_data(case):
    """In a run, or between two: it may go on, with a warning in the second case."""
    settings = case.configuration.settings
    width = {"u32": 4, "u16": 2, "text": 1}[settings["data.format"]]
    token = 1 if settings.get("data.document_token") == 0 else 0  # documents of one token teach nothing
    content = token.to_bytes(width, "little") * (len(case.configuration.files["tokens.bin"]) // width)
    program = None
    if case.random.random() < 0.5:
        program = case.start()
        case.wait_for_a_moment(program)
    case.note("  other tokens in tokens.bin")
    case.comparable = False
    write(case.path("tokens.bin"), content)
    return orderly(case, program or case.start(), True)


def damaged_save(case):
    case.have_save()
    newest = case.newest()
    name = case.random.choice(verify.files_below(newest))
    path = os.path.join(newest, name)
    original = verify.read(path)
    content = bytearray(original)
    kind = case.random.choice(["flipped", "cut", "removed", "emptied", "longer"])
    if kind == "flipped":
        content[case.random.randrange(len(content))] ^= 1 << case.random.randrange(8)
        write(path, content)
    elif kind == "removed":
        os.remove(path)
    else:
        write(path, content[:case.random.randrange(len(content))] if kind == "cut" else
              b"" if kind == "emptied" else content + b"\0")
    case.note(f"  {name} of {os.path.basename(newest)} is {kind}")
    comparable, case.comparable = case.comparable, False
    ended = case.end(case.start())
    case.comparable = comparable
    if ended.status == 0 and "passed over" not in ended.log:
        raise Violation(f"a damaged save ({name} {kind}) was accepted: status {ended.status}")
    # It may have been saved anew, or be gone with others that are old.
    if os.path.isdir(newest) and (not os.path.exists(path) or verify.read(path) != original):
        case.note(f"  rm -r {newest}")
        shutil.rmtree(newest)
    return "refused" if ended.status == 2 else "passed over"


def leftovers(case):
    """Of saves that were cut short, and names that are none of ours."""
    os.makedirs(case.path(OUT), exist_ok=True)
    for name in (".step-9.unfinished-1/state", ".step-1.unfinished-99999999", "step-", "step-x", "step-99999999999999999999",
                 "other"):
        os.makedirs(case.path(OUT, name), exist_ok=True)
    write(case.path(OUT, ".step-9.unfinished-1/model.safetensors"), b"half")
    write(case.path(OUT, "step-5000"), b"a file")
    case.note("  leftovers of unfinished saves, and other names")
    ended = case.end(case.start())
    for name in ("step-", "step-x", "step-99999999999999999999", "other"):
        if not os.path.isdir(case.path(OUT, name)):
            raise Violation(f"{name}, which is no save of ours, is gone")
        os.rmdir(case.path(OUT, name))
    os.remove(case.path(OUT, "step-5000"))
    if ended.status != 0:
        raise Violation(f"leftovers of unfinished saves are a reason to end with status {ended.status}")
    return "went on"


def empty_save(case):
    name = case.path(OUT, f"step-{case.random.choice([case.configuration.steps(), 77])}")
    if os.path.exists(name):
        return None
    os.makedirs(name)
    case.note(f"  mkdir {name}")
    comparable, case.comparable = case.comparable, False
    ended = case.end(case.start())
    case.comparable = comparable
    if os.path.isdir(name) and not os.listdir(name):
        os.rmdir(name)
    return "went on" if ended.status == 0 else "refused"


def metrics_file(case):
    path = case.path(case.configuration.settings.get("metrics.file", os.path.join(OUT, "metrics.jsonl")))
    if not os.path.exists(path):
        return None
    content = verify.read(path)
    kind = case.random.choice(["cut short", "removed", "of somebody else"])
    case.note(f"  the metrics are {kind}")
    case.complete_metrics = False
    if kind == "cut short":
        write(path, content[:-1 - case.random.randrange(max(1, min(len(content) - 1, 300)))])
    elif kind == "removed":
        os.remove(path)
    else:
        write(path, b"no line of ours\n" + content)
    ended = case.end(case.start())
    if kind == "of somebody else":
        if verify.read(path)[:16] != b"no line of ours\n":
            raise Violation("a file that is no metrics file was overwritten")
        write(path, content)
    elif ended.status != 0:
        raise Violation(f"status {ended.status} where the metrics are {kind}")
    return "went on" if ended.status == 0 else "refused"


def other_setting(case):
    case.have_save()
    s = case.configuration.settings
    key, value = case.random.choice([("training.seed", s["training.seed"] + 1),
                                     ("training.context", s["training.context"] + 16),
                                     ("training.chunk", s["training.chunk"] * 2),
                                     ("data.shuffle", json.dumps(not s["data.shuffle"])),
                                     ("data.pack", json.dumps(not s["data.pack"]))])
    ended = case.end(case.start([f"--{key}={value}"]))
    if ended.status != 2:
        raise Violation(f"{key} was changed and the run went on: status {ended.status}")
    return "refused"


FILES = {
    "limited files": (limited_files, 2),
    "full disk": (full_disk, 2),
    "no rights": (without_rights, 2),
    "output removed": (out_removed, 1),
    "output moved": (out_moved, 1),
    "file in its place": (file_in_place_of_out, 1),
    "model away": (moved_for_a_run("model"), 2),
    "data away": (moved_for_a_run("tokens.bin"), 1),
    "disk_path away": (moved_for_a_run("disk"), 1),
    "data cut": (data_cut_in_a_run, 2),
    "other data": (other_data, 1),
    "damaged save": (damaged_save, 3),
    "leftovers": (leftovers, 1),
    "empty save": (empty_save, 1),
    "metrics": (metrics_file, 1),
    "other setting": (other_setting, 1),
}
