"""Cuts the input into pieces, each of which one worker turns into tokens.

A piece holds about `size` bytes of whole documents, so memory does not depend on the input but for its longest
document. Where pieces are cut has no effect on the output.
"""
import dataclasses
import gzip
import io
import zlib

from ..errors import Error
from . import tables
from .files import BLOCK, digest_file, hasher, need, reading


@dataclasses.dataclass
class Piece:
    kind: str  # "text": every blob is a document; "jsonl", "rows": lines of JSON; "needle": a list of orders
    names: list[str]  # the file of every blob
    blobs: list[bytes]
    first: int  # the number of the first line or row of the only blob, from 1
    position: int  # bytes of input read up to its end, for the progress bar
    index: int = 0
    checksum: str = ""

    def digest(self):
        """A checksum of what the worker is given."""
        state = hasher()
        state.update(self.kind.encode())
        for blob in self.blobs:
            state.update(len(blob).to_bytes(8, "little"))
            state.update(blob)
        return state.hexdigest()


class HashingFile(io.RawIOBase):
    """A file that computes the checksum of what is read from it."""

    def __init__(self, path):
        super().__init__()
        self.file, self.state, self.count = open(path, "rb", buffering=0), hasher(), 0  # noqa: SIM115

    def readable(self):
        return True

    def readinto(self, buffer):
        count = self.file.readinto(buffer)
        self.state.update(memoryview(buffer)[:count])
        self.count += count
        return count

    def close(self):
        self.file.close()
        super().close()

    def finish(self):
        """Reads what a decompressor has left, so that the checksum is the whole file's."""
        while self.read(BLOCK):
            pass


class Reader:
    """Iterates over the pieces of the sources. `origin` describes the files that have been read so far."""

    def __init__(self, sources, columns, size):
        self.sources, self.columns, self.size = sources, columns, size
        self.origin, self.before = [], 0

    def __iter__(self):
        names, blobs, held = [], [], 0
        for source in self.sources:
            if source.format == "text":
                names.append(source.path)
                blobs.append(self.read_text(source))
                held += len(blobs[-1])
                if held < self.size:
                    continue
            if blobs:  # also before a file of another format: documents stay in order
                yield Piece("text", names, blobs, 1, self.before)
                names, blobs, held = [], [], 0
            if source.format == "jsonl":
                yield from self.read_lines(source)
            elif source.format != "text":
                yield from self.read_rows(source)
        if blobs:
            yield Piece("text", names, blobs, 1, self.before)

    def done(self, source, checksum):
        self.origin.append({"path": source.path, "bytes": source.bytes, "xxh3": checksum})
        self.before += source.bytes

    def read_text(self, source):
        with reading(source.path), HashingFile(source.path) as raw:
            data = b"".join(blocks(raw, source))
            self.check_size(raw, source)
            self.done(source, raw.state.hexdigest())
        return data

    def read_lines(self, source):
        """Pieces that end with the end of a line."""
        first, held, size = 1, [], 0
        with reading(source.path), HashingFile(source.path) as raw:
            for block in cut(blocks(raw, source), self.size):
                size += len(block)
                end = block.rfind(b"\n") + 1 if size >= self.size else 0
                if not end:
                    held.append(block)
                    continue
                data = b"".join([*held, block[:end]])
                yield Piece("jsonl", [source.path], [data], first, self.before + raw.count)
                first += data.count(b"\n")
                held = [block[end:]] if end < len(block) else []
                size = len(block) - end
            self.check_size(raw, source)
            self.done(source, raw.state.hexdigest())
        if held:
            yield Piece("jsonl", [source.path], [b"".join(held)], first, self.before)

    def read_rows(self, source):
        first = 1
        for data, rows, share in tables.rows_as_json(source, self.columns, self.size):
            yield Piece("rows", [source.path], [data], first, self.before + int(share * source.bytes))
            first += rows
        self.done(source, digest_file(source.path))

    @staticmethod
    def check_size(raw, source):
        raw.finish()
        if raw.count != source.bytes:
            raise Error(f"{source.path} changed while it was read: {source.bytes} bytes before, {raw.count} now",
                        "wait until it is complete, then run the same command again")


def blocks(raw, source):
    """The unpacked content of a file, in blocks."""
    if source.compression == "zst":
        yield from unpack_zstd(raw, source)
        return
    buffered = io.BufferedReader(raw, BLOCK)
    stream = gzip.GzipFile(fileobj=buffered) if source.compression == "gz" else raw
    try:
        while block := stream.read(BLOCK):
            yield block
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Error(f"{source.path} is not a whole gzip file: {error}", "pack it again") from None
    finally:
        buffered.detach()  # else it would close the file


def cut(found, size):
    """Blocks of at most `size` bytes."""
    for block in found:
        yield from (block[start:start + size] for start in range(0, len(block), size))


def unpack_zstd(raw, source):
    """Frame by frame, as that tells whether the last one is complete."""
    zstandard = need("zstandard")
    frame, packed = None, b""
    try:
        while packed or (packed := raw.read(BLOCK // 16)):
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            block = frame.decompress(packed)
            packed = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
            if block:
                yield block
    except zstandard.ZstdError as error:
        raise Error(f"{source.path} is not a zstd file: {error}", "pack it again") from None
    if frame is not None:
        raise Error(f"{source.path} is not a whole zstd file: its last frame is incomplete", "pack it again")


def total_bytes(sources):
    return sum(source.bytes for source in sources)
