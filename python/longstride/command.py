"""The command `longstride`: the program's own commands, and those that are written in Python."""
import importlib
import importlib.util
import os
import sys

from .errors import Error

# By name: the module, whose main(arguments) returns the exit status, and a line for the list of commands.
COMMANDS = {"prepare": ("longstride.prepare", "tokens from text, chats and tables"),
            "report": ("longstride.report", "one page about a run, or several"),
            "tensorboard": ("longstride.tensorboard", "the metrics of a run for TensorBoard")}


def own(name: str) -> bool:
    """The module of a command, if this installation has it."""
    return name in COMMANDS and importlib.util.find_spec(COMMANDS[name][0]) is not None


def main() -> int:
    arguments = sys.argv[1:]
    if arguments and own(arguments[0]):
        try:
            status: int = importlib.import_module(COMMANDS[arguments[0]][0]).main(arguments[1:])
            return status
        except Error as error:
            print(f"error: {error.message}", file=sys.stderr)
            if error.hint:
                print(f"  hint: {error.hint}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130
    from . import libraries
    from .program import program
    libraries.use()
    path = program()
    if arguments[:1] in (["--help"], ["-h"]):
        import subprocess
        status = subprocess.call([path, *arguments])
        print("\nCommands of the Python package:")
        for name, (_, text) in COMMANDS.items():
            if own(name):
                print(f"  {name:<26}{text}")
        return status
    sys.stdout.flush()
    os.execv(path, [path, *arguments])


if __name__ == "__main__":
    sys.exit(main())
