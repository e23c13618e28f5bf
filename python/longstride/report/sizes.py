"""Numbers as people read them."""
import math


def is_number(value):
    """Whether a value of a JSON file is a number that can be summed and drawn: nothing measured reaches 1e100."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e100


def tokens_text(count):
    """4096 → 4K, 131072 → 128K, 1000 → 1000: powers of 1024 where they divide, as in the configuration."""
    count = int(count)
    for unit, size in (("M", 2**20), ("K", 2**10)):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return f"{count:,}" if count >= 10000 else str(count)


def count_text(count):
    """A large count with three digits: 7.62B, 494M, 12.3K."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if count >= 0.9995 * size:
            return f"{digits(count / size)}{unit}"
    return str(int(count))


def bytes_text(count):
    """138 GiB, 1.50 MiB."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{digits(count / size)} {unit}"
    return f"{int(count)} B"


def digits(x, most=3):
    """At least three significant digits, without an exponent where possible: 1234, 123, 12.3, 1.23, 0.0123."""
    if x - x != 0:
        return "–"
    if x == 0:
        return "0"
    size = math.floor(math.log10(abs(float(f"{x:.{most - 1}e}"))))
    if not -5 < size < 9:
        return f"{x:.{most - 1}e}"
    return f"{x:,.{max(0, most - 1 - size)}f}"


def duration_text(seconds):
    """0.41 s, 41 s, 1 min 10 s, 3 h 05 min, 3 d 4 h."""
    if seconds != seconds:
        return "–"
    if seconds < 10:
        return f"{digits(seconds)} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def time_unit(seconds):
    """The unit of an axis that ends at so many seconds: (name, seconds)."""
    if seconds < 180:
        return "seconds", 1
    if seconds < 3 * 3600:
        return "minutes", 60
    if seconds < 72 * 3600:
        return "hours", 3600
    return "days", 86400


def byte_unit(count):
    """The unit of an axis that ends at so many bytes: (name, bytes)."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return unit, size
    return "B", 1
