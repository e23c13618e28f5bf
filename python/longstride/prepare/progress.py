"""How far a run is: a bar on a terminal, now and then a line elsewhere."""
import sys
import time

WIDTH = 30


class Progress:
    def __init__(self, total, stream=None, every=10.0, unit=1e6, name="MB"):
        self.total, self.stream = max(1, total), stream or sys.stderr
        self.terminal = self.stream.isatty()
        self.every = 0.2 if self.terminal else every
        self.unit, self.name = unit, name
        self.begin = self.drawn = time.monotonic()
        self.position = self.tokens = self.width = 0

    def advance(self, position, tokens):
        """A part of that many tokens is done, the input up to `position` with it."""
        self.position, self.tokens = position, self.tokens + tokens
        self.draw()

    def draw(self):
        now = time.monotonic()
        if now - self.drawn >= self.every:
            self.drawn = now
            self.write(self.line(now), end=False)

    def line(self, now):
        share = min(1.0, self.position / self.total)
        seconds = max(1e-9, now - self.begin)
        text = (f"{100 * share:5.1f}%  {self.position / self.unit:,.1f} of {self.total / self.unit:,.1f} {self.name}  "
                f"{short(self.tokens)} tokens  {short(self.tokens / seconds)} tokens/s")
        if 0 < share < 1:
            text += f"  {clock(seconds * (1 - share) / share)} left"
        if self.terminal:
            full = round(WIDTH * share)
            text = f"[{'#' * full}{'.' * (WIDTH - full)}] {text}"
        return text

    def write(self, text, end):
        if self.terminal:
            self.stream.write("\r" + text.ljust(self.width) + ("\n" if end else ""))
            self.width = len(text)
        else:
            self.stream.write(text + "\n")
        self.stream.flush()

    def finish(self):
        self.position = self.total
        self.write(self.line(time.monotonic()), end=True)

    def clear(self):
        """Makes room for a message."""
        if self.terminal and self.width:
            self.stream.write("\r" + " " * self.width + "\r")
            self.stream.flush()


def short(number):
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if number >= unit:
            return f"{number / unit:.1f}{name}"
    return f"{number:.0f}"


def clock(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
