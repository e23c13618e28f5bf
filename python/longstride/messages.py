"""What the engine says goes through the logger "longstride". It is shown, unless the program set up logging itself."""
import atexit
import logging
import sys

from . import _core

LOGGER = logging.getLogger("longstride")


class Lines(logging.Handler):
    """As the program prints them: on stderr, warnings marked."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stderr.write(("warning: " if record.levelno >= logging.WARNING else "") + record.getMessage() + "\n")


def receive(warning: bool, text: str) -> None:
    if LOGGER.level == logging.NOTSET and not LOGGER.hasHandlers():
        LOGGER.addHandler(Lines())
        LOGGER.setLevel(logging.INFO)
    LOGGER.log(logging.WARNING if warning else logging.INFO, "%s", text)


_core.send_messages_to(receive)
atexit.register(_core.stop_messages)
