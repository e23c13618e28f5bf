"""A run: its directory, what an earlier one has left there, and the work from pieces to the manifest."""
import contextlib
import errno
import fcntl
import json
import os
import shutil

from ..errors import Error
from . import parts
from .files import digest, read_json, sync_directory, write_json, writing
from .pool import Pool, Refused
from .shards import Joiner, altered

VERSION = 1
WORK = ".prepare"  # in the output directory, until the manifest is written


def made_by():
    from importlib import metadata

    try:
        return f"longstride {metadata.version('longstride')}"
    except metadata.PackageNotFoundError:
        return "longstride 0"


class Run:
    """`identity` (tokenizer and options) is all that decides about the bytes, beside the input."""

    def __init__(self, out, identity, settings):
        self.out, self.identity, self.settings = out, identity, settings
        self.work = os.path.join(out, WORK)
        key = [identity["tokenizer"]["xxh3"], identity["options"]]
        # A worker that outlives a killed run for a moment can never write into a run with other settings.
        self.folder = os.path.join(self.work, digest(json.dumps(key, sort_keys=True).encode()))
        self.lock, self.joiners = None, {}
        self.state = {split: {"shards": [], "part": 0, "document": 0} for split in splits(settings)}
        settings["folder"] = os.path.abspath(self.folder)

    def __enter__(self):
        """Finds out what is there. Refuses what belongs to other data."""
        with writing(self.out):
            os.makedirs(self.out, exist_ok=True)
            foreign = sorted(set(os.listdir(self.out)) - {WORK, "manifest.json"})
            if not os.path.exists(os.path.join(self.out, "manifest.json")):
                if foreign and not os.path.exists(os.path.join(self.work, "run.json")):
                    raise Error(f"{self.out} is not empty: it holds {foreign[0]}", "choose a new directory for --out")
                os.makedirs(self.work, exist_ok=True)
                self.take_lock()
        return self

    def __exit__(self, *_):
        for joiner in self.joiners.values():
            joiner.close()
        if self.lock is not None:
            os.close(self.lock)

    def take_lock(self):
        self.lock = os.open(os.path.join(self.work, "lock"), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise Error(f"another run is writing to {self.out}", "wait for it, or choose another --out") from None

    def finished(self):
        """The manifest of a finished run, after its check; None if there is none."""
        path = os.path.join(self.out, "manifest.json")
        if not os.path.exists(path):
            return None
        manifest = read_json(path)
        if not isinstance(manifest, dict) or manifest.get("format") != "longstride data":
            raise Error(f"{path} is not a manifest of prepared data", "choose a new directory for --out")
        self.compare({key: manifest.get(key) for key in self.identity}, "was made")
        shards = [shard for split in manifest["splits"].values() for shard in split["shards"]]
        self.check_shards(shards)
        shutil.rmtree(self.work, ignore_errors=True)
        return manifest

    def resume(self):
        """Finds what an unfinished run of the same identity has done; True if there was one."""
        path = os.path.join(self.work, "run.json")
        earlier = read_json(path)
        if earlier is None or not self.has_work():
            shutil.rmtree(self.folder, ignore_errors=True)
            with writing(self.work):
                os.makedirs(self.folder, exist_ok=True)
            write_json(path, self.identity)
            return False
        self.compare(earlier, "was begun")
        with writing(self.work):
            os.makedirs(self.folder, exist_ok=True)
            for name in os.listdir(self.folder):
                if name.endswith(".tmp"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(self.folder, name))
        self.state = read_json(os.path.join(self.folder, "shards.json")) or self.state
        self.check_shards([shard for split in self.state.values() for shard in split["shards"]])
        return True

    def has_work(self):
        """Whether an earlier run has finished a part; one that failed at once is not worth a refusal."""
        folders = [entry.path for entry in os.scandir(self.work) if entry.is_dir()]
        return any(name.endswith(".json") for folder in folders for name in os.listdir(folder))

    def compare(self, earlier, verb):
        if earlier.get("tokenizer", {}).get("xxh3") != self.identity["tokenizer"]["xxh3"]:
            raise Error(f"{self.out} {verb} with another tokenizer or chat template: {earlier.get('tokenizer')}, "
                        f"not {self.identity['tokenizer']}", "choose another --out, or remove it")
        before, now = earlier.get("options") or {}, self.identity["options"]
        wrong = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
        if wrong:
            told = ", ".join(f"{key} {json.dumps(before.get(key))}, not {json.dumps(now.get(key))}" for key in wrong)
            raise Error(f"{self.out} {verb} with other options: {told}",
                        "use the same, choose another --out, or remove it")

    def check_shards(self, shards):
        path = altered(self.out, shards)
        if path is not None:
            raise Error(f"{path} is not as it was written: it was altered or removed",
                        f"remove {self.out} and prepare the data again")

    def known(self, piece):
        """The description of the part of a piece if an earlier run has finished it."""
        entry = parts.describe(self.folder, piece.index)
        if entry is None or entry["input"] != piece.checksum:
            if any((piece.index, 0) < (state["part"], state["document"]) for state in self.state.values()):
                raise Refused(f"the input is not what the unfinished run in {self.out} has read"
                              + (f": {piece.names[0]} differs" if piece.names else ""),
                              f"restore it, or remove {self.out} and begin anew")
            return None
        for split, part in entry["splits"].items():
            needed = piece.index >= self.state[split]["part"]  # else it is in shards, which have been checked
            if needed and not parts.intact(self.folder, piece.index, split, part):
                return None
        return entry

    def make(self, pieces, workers, progress):
        """Does the work. Returns the counts of all parts."""
        counts = {"once": 0, "written": 0, "empty": 0, "parts": 0}
        self.joiners = {split: Joiner(self.out, self.folder, split, self.settings, state, self.save)
                        for split, state in self.state.items()}
        with Pool(self.settings, workers, pieces, self.known) as pool:
            for entry in pool.results(progress.draw):
                for split, joiner in self.joiners.items():
                    joiner.add(counts["parts"], entry["splits"].get(split))
                for key in ("once", "written", "empty"):
                    counts[key] += entry[key]
                counts["parts"] += 1
                progress.advance(entry["position"], sum(part["tokens"] for part in entry["splits"].values()))
        return counts

    def save(self):
        write_json(os.path.join(self.folder, "shards.json"), self.state)

    def finish(self, count, origin, vocabulary):
        """Writes the last shards and the manifest, and removes what only an unfinished run needs."""
        for joiner in self.joiners.values():
            joiner.finish(count)
        manifest = {"format": "longstride data", "version": VERSION, "token_bytes": self.settings["token_bytes"],
                    "vocabulary": vocabulary, "targets": self.settings["targets"],
                    "tokenizer": self.identity["tokenizer"],
                    "splits": {split: joiner.summary() for split, joiner in self.joiners.items()},
                    "origin": origin, "options": self.identity["options"], "made_by": made_by()}
        write_json(os.path.join(self.out, "manifest.json"), manifest, folder=self.work)  # a kill leaves nothing in out
        shutil.rmtree(self.work, ignore_errors=True)
        with writing(self.out):
            sync_directory(self.out)
        return manifest


def splits(settings):
    return parts.SPLITS if settings["eval_fraction"] else parts.SPLITS[:1]
