"""Rows of Parquet and Arrow files, as lines of JSON: what follows is then the same as for JSONL."""
import datetime
import json

from ..errors import Error
from .files import need, reading

ROWS = 1024  # that are decoded at a time


def rows_as_json(source, columns, size):
    """Yields (lines, rows, share of the file read so far), about `size` bytes at a time."""
    lines, held = [], 0
    for batch, share in batches(source, columns):
        for row in batch.to_pylist():
            line = json.dumps(without_nulls(row), ensure_ascii=False, default=plain)
            lines.append(line.encode("utf-8", "surrogatepass"))
            held += len(lines[-1])
            if held >= size:
                yield b"\n".join(lines), len(lines), share
                lines, held = [], 0
    if lines:
        yield b"\n".join(lines), len(lines), 1.0


def without_nulls(value):
    """Arrow gives all structs of a column the same fields; those that are null were absent, and templates ask for
    presence."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def plain(value):
    """What JSON has no type for."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def batches(source, columns):
    """Record batches with those of `columns` (name to whether it must be there) that the file has."""
    arrow = need("pyarrow")
    with reading(source.path):
        try:
            yield from (parquet if source.format == "parquet" else arrow_file)(source, columns)
        except arrow.ArrowInvalid as error:
            raise Error(f"{source.path} is not a {source.format} file: {error}",
                        "check the file, or name its format with --format") from None


def parquet(source, columns):
    module = need("pyarrow.parquet")
    with module.ParquetFile(source.path, memory_map=False, pre_buffer=False, buffer_size=1 << 20) as file:
        chosen = choose(source, columns, file.schema_arrow)
        read, total = 0, max(1, file.metadata.num_rows)
        for batch in file.iter_batches(batch_size=ROWS, columns=chosen, use_threads=False):
            read += batch.num_rows
            yield batch, read / total


def arrow_file(source, columns):
    """Both of Arrow's formats; `datasets` writes the one for streams."""
    arrow, ipc = need("pyarrow"), need("pyarrow.ipc")
    with arrow.memory_map(source.path) as file:
        magic = file.read(6)
        file.seek(0)
        if magic == b"ARROW1":
            reader = ipc.open_file(file)
            found = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            reader = ipc.open_stream(file)
            found = iter(reader)
        chosen = choose(source, columns, reader.schema)
        for batch in found:
            part = batch.select(chosen)
            share = min(1.0, file.tell() / max(1, source.bytes))
            for start in range(0, part.num_rows, ROWS):
                yield part.slice(start, ROWS), share


def choose(source, columns, schema):
    for name, required in columns.items():
        if required and name not in schema.names:
            raise Error(f"{source.path} has no column '{name}'",
                        f"it has: {', '.join(schema.names)}; choose one with --text-column or --messages-column")
    return [name for name in columns if name in schema.names]
