"""`longstride prepare`: from texts and chats to shards of tokens. docs/prepare.md describes it for users.

How the modules fit together: sources finds the input files, readers cuts them into pieces, pool hands the pieces to
worker processes (worker, documents, chat, needle), which write parts, and shards joins the parts in the order of the
input. So the output does not depend on the number of workers, and what a killed run has done is found again.
"""


def main(arguments: list[str]) -> int:
    """Runs `longstride prepare ARGUMENTS` and returns its exit status."""
    from .command import main as command

    return command(arguments)
