"""Joins parts to shards, in the order of the input.

A shard ends where the next document would make it longer than the limit, so its bytes depend on the documents alone.
Each finished shard is noted, with the place in the parts where the next one begins; a run that goes on starts there.
"""
import contextlib
import os

from . import parts
from .files import digest_file, hasher, need, sync_directory, writing


class Shard:
    """The files of one shard while it grows, under temporary names."""

    def __init__(self, out, folder, name, kinds):
        self.out, self.folder, self.name, self.kinds = out, folder, name, kinds
        self.documents = self.tokens = self.targets = 0
        with writing(folder):
            self.files = {kind: open(self.temporary(kind), "wb") for kind in kinds}  # noqa: SIM115
        self.sums = {kind: hasher() for kind in kinds}
        self.sizes = dict.fromkeys(kinds, 0)

    def temporary(self, kind):
        return os.path.join(self.folder, f"{self.name}.{kind}.tmp")

    def write(self, kind, values):
        data = values.tobytes()
        with writing(self.out):
            self.files[kind].write(data)
        self.sums[kind].update(data)
        self.sizes[kind] += len(data)

    def add(self, tokens, targets, lengths):
        numpy = need("numpy")
        starts = numpy.cumsum(lengths, dtype="<u8") - lengths + numpy.uint64(self.tokens)
        self.write("tokens", tokens)
        self.write("index", starts.astype("<u8"))
        if targets is None:
            self.targets += len(tokens) - len(lengths)
        else:
            self.write(self.kinds[2], targets)
            self.targets += int(numpy.count_nonzero(targets))
        self.tokens += len(tokens)
        self.documents += len(lengths)

    def finish(self):
        """Gives the files their names and returns the shard's entry in the manifest."""
        self.write("index", need("numpy").array([self.tokens], "<u8"))
        with writing(self.out):
            for kind, file in self.files.items():
                file.flush()
                os.fsync(file.fileno())
                file.close()
                os.replace(self.temporary(kind), os.path.join(self.out, f"{self.name}.{kind}"))
            sync_directory(self.out)
        return {"name": self.name, "documents": self.documents, "tokens": self.tokens, "targets": self.targets,
                "files": {kind: {"bytes": self.sizes[kind], "xxh3": self.sums[kind].hexdigest()}
                          for kind in self.kinds}}

    def close(self):
        """Gives up. What is not written yet need not be, and a full disk has been told."""
        for file in self.files.values():
            with contextlib.suppress(OSError):
                file.close()


class Joiner:
    """Makes the shards of one split. `state` is its note: finished shards, and the part and the document to go on with;
    `save()` writes the notes of all splits."""

    def __init__(self, out, folder, split, settings, state, save):
        self.out, self.folder, self.split, self.settings = out, folder, split, settings
        self.state, self.save, self.shard, self.used = state, save, None, []

    def add(self, index, entry):
        """Appends the part `index`, whose entry for this split is given (None: it has no documents of it)."""
        if index < self.state["part"] or entry is None:
            return
        numpy, limit = need("numpy"), self.settings["shard_tokens"]
        tokens, targets, lengths = parts.read(self.folder, index, self.split, entry, self.settings["token_bytes"],
                                              self.settings["targets"])
        ends = numpy.cumsum(lengths, dtype=numpy.int64)
        first = self.state["document"] if index == self.state["part"] else 0
        while first < len(lengths):
            start = int(ends[first - 1]) if first else 0
            shard = self.shard = self.shard or self.start()
            last = max(first, int(numpy.searchsorted(ends, start + limit - shard.tokens, side="right")))
            if last == first and shard.tokens == 0:
                last = first + 1  # a document longer than a shard is a shard
            if last > first:
                end = int(ends[last - 1])
                shard.add(tokens[start:end], None if targets is None else targets[start:end], lengths[first:last])
            if last < len(lengths):
                self.finish_shard(index, last)
            first = last
        self.used.append(index)

    def start(self):
        return Shard(self.out, self.folder, f"{self.split}-{len(self.state['shards']):05d}", self.kinds())

    def kinds(self):
        return ["tokens", "index", *([] if self.settings["targets"] == "all" else [self.settings["targets"]])]

    def finish_shard(self, part, document):
        """Ends the shard before that document; parts that are wholly in finished shards are no longer needed."""
        self.state["shards"].append(self.shard.finish())
        self.state["part"], self.state["document"] = part, document
        self.shard = None
        self.save()
        for index in self.used:
            os.unlink(parts.file_name(self.folder, index, self.split))
        self.used = []

    def finish(self, count):
        if self.shard is not None:
            self.finish_shard(count, 0)

    def documents(self):
        return sum(shard["documents"] for shard in self.state["shards"]) + (self.shard.documents if self.shard else 0)

    def summary(self):
        shards = self.state["shards"]
        return {key: sum(shard[key] for shard in shards) for key in ("documents", "tokens", "targets")} | {
            "shards": shards}

    def close(self):
        if self.shard is not None:
            self.shard.close()


def altered(out, shards):
    """The name of the first file of the given shards that is not as it was written, or None."""
    for shard in shards:
        for kind, entry in shard["files"].items():
            path = os.path.join(out, f"{shard['name']}.{kind}")
            same_size = os.path.exists(path) and os.path.getsize(path) == entry["bytes"]
            if not same_size or digest_file(path) != entry["xxh3"]:
                return path
    return None
