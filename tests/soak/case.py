"""One run that is disturbed, again and again, in a directory of its own."""
import os
import shutil
import signal
import subprocess
import time

import verify
from configurations import OUT
from program import Program, Violation


def mount(path, options, remount=False):
    """True where this user and container may."""
    command = ["mount", "-t", "tmpfs", "-o", ("remount," if remount else "") + options, "tmpfs", path]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


class Case:
    """`reference` is the directory of the undisturbed run, every step of it saved, and `seconds` what it took."""

    def __init__(self, binary, directory, configuration, reference, seconds, random):
        self.binary, self.directory, self.configuration = binary, directory, configuration
        self.reference, self.seconds, self.random = reference, seconds, random
        self.actions = []  # for whoever repeats it
        self.complete_metrics = True
        self.comparable = True  # false once it trained on other data
        self.mounted = False
        self.program = None
        configuration.write(directory)
        with open(self.path("resident.toml"), "w", encoding="utf-8") as file:
            memory, configuration.memory = configuration.memory, {}
            file.write(configuration.text({"device.threads": 1}))
            configuration.memory = memory

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def note(self, action):
        self.actions.append(action)

    def start(self, more=(), **how):
        """A run that goes on from whatever is there, where pages and state lie elsewhere at times."""
        file = "resident.toml" if self.random.random() < 0.2 else "run.toml"
        arguments = ["train", file, "--resume"] + list(more)
        limit = f"ulimit -f {how['file_bytes'] // 1024}; " if how.get("file_bytes") is not None else ""
        self.note(f"{limit}longstride {' '.join(arguments)}")
        self.program = Program(self.binary, self.directory, arguments, **how)
        return self.program

    def unfinished_save(self):
        try:
            return any(".unfinished-" in name for name in os.listdir(self.path(OUT)))
        except OSError:
            return False

    def wait_for_a_moment(self, program):
        """Some time in the run's life: any, or in the middle of a save. False where it has ended by then."""
        begin, target = time.monotonic(), self.random.uniform(0, 0.95) * self.seconds
        in_save = self.random.random() < 0.3
        while program.running():
            if time.monotonic() - begin >= target and (not in_save or self.unfinished_save()):
                if in_save:
                    time.sleep(self.random.uniform(0, 0.004))
                break
            time.sleep(0.0005)
        running = program.running()
        self.note(f"after {time.monotonic() - begin:.3f} s{', in a save' if in_save else ''}"
                  f"{'' if running else ' (it has ended by then)'}:")
        return running

    def end(self, program, hit=True, deaths=()):
        """Waits for the end, which may be one of these deaths and else must be orderly."""
        ended = program.wait(hit)
        self.program = None
        self.note(f"  ended with status {ended.status}")
        if "internal error" in ended.log or ended.status == 1:
            raise Violation(f"status {ended.status}, an internal error")
        if ended.died and ended.died not in deaths:
            raise Violation(f"it died of signal {ended.died}, which nobody sent")
        if ended.status == 2 and not ended.refused():
            raise Violation("status 2 without an error and a hint")
        if not ended.died and ended.status not in (0, 2) and ended.status - 128 not in deaths:
            raise Violation(f"status {ended.status}")
        verify.nothing_on_disk(self.directory)
        if self.comparable:
            verify.whole_saves(self.directory, self.reference)
        return ended

    def saves(self):
        return verify.saved_steps(self.directory)

    def newest(self):
        return self.path(OUT, f"step-{self.saves()[-1]}")

    def have_save(self):
        """Sees to it that there is a save to disturb."""
        if self.saves():
            return
        program = self.start(["--checkpoint.every=1"])
        while program.running() and not self.saves():
            time.sleep(0.002)
        program.send(signal.SIGTERM)
        self.end(program, deaths=(signal.SIGTERM,))
        if not self.saves():
            raise Violation("an undisturbed run with checkpoint.every = 1 saved nothing")

    def finish(self):
        ended = self.end(self.start())
        if ended.status != 0:
            raise Violation(f"undisturbed, but it ended with status {ended.status}")
        if self.comparable:
            verify.finished(self.directory, self.reference, self.configuration, self.complete_metrics)

    def begin_anew(self):
        """A finished run has nothing left to disturb."""
        self.note(f"-- finished and as it should be; rm -r {OUT}/* elsewhere, and anew")
        for folder in (self.path(OUT), self.path("elsewhere")):
            for name in os.listdir(folder) if os.path.isdir(folder) else []:
                path = os.path.join(folder, name)
                shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        for name, content in self.configuration.files.items():
            with open(self.path(name), "wb") as file:
                file.write(content)
        self.comparable = self.complete_metrics = True

    def use_small_disk(self):
        os.makedirs(self.path(OUT), exist_ok=True)
        self.mounted = mount(self.path(OUT), "size=64m")
        if self.mounted:
            self.note(f"mount -t tmpfs -o size=64m tmpfs {OUT}")

    def close(self, keep):
        if self.program is not None:
            self.program.end()
        subprocess.run(["chattr", "-R", "-i", self.directory], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       check=False)
        if self.mounted:
            if keep:
                shutil.copytree(self.path(OUT), self.path("out-of-the-small-disk"), symlinks=True)
            subprocess.run(["umount", "-l", self.path(OUT)], check=False)
        if keep:
            with open(self.path("actions.txt"), "w", encoding="utf-8") as file:
                file.write("\n".join(self.actions) + "\n")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)
