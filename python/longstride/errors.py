"""What commands and calls raise."""


class Error(RuntimeError):
    """Something the user can change: what is wrong and where (`message`), and what to do (`hint`, may be empty)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\n  hint: {hint}" if hint else message)
        self.message = message
        self.hint = hint


class InternalError(RuntimeError):
    """A broken invariant: a mistake in longstride itself."""
