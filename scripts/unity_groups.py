#!/usr/bin/env python3
"""Groups sources that can be compiled as one unit, so that common headers are read once.

  scripts/unity_groups.py STEM FILE…   writes STEM-0.cc and so on, which include the files, and prints their names

Only files of the same folder share a group.

Two files go into different groups if they define the same name outside of classes, or if one mentions a name from the
other's anonymous namespace. Names are found in the text: the project's formatting puts such definitions in the first
column.
"""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST_LINES = 2500  # of a group, so that several can be compiled in parallel
TYPE = re.compile(r"(?:template\s*<.*>\s*)?(?:struct|class|enum class|enum|union|using|#define)\s+(\w+)")
# A function or a variable: the last name before its parameters, its value or its size.
OTHER = re.compile(r"(?!return\b|namespace\b|typedef\b|#|//|TEST)[\w:][^=(){};/\"\[]*?[\s&*>](\w+)\s*[=({;\[]")


# Not a member, not a name of another namespace.
MENTIONED = re.compile(r"(?<![\w.:>])[A-Za-z_]\w*")
PROSE = re.compile(r'//.*|"(?:\\.|[^"\\\n])*"')
ANONYMOUS = re.compile(r"^namespace \{$.*?^\}  // namespace$", re.M | re.S)


def defined_names(text):
    matches = [pattern.match(line) for line in text.splitlines() for pattern in (TYPE, OTHER)]
    return {match.group(1) for match in matches if match} - {"namespace"}


class Names:
    def __init__(self, text):
        self.defined = defined_names(text)
        self.own = set().union(*map(defined_names, ANONYMOUS.findall(text)))
        self.mentioned = set(MENTIONED.findall(PROSE.sub("", text)))

    def clash(self, other):
        return self.defined & other.defined or self.own & other.mentioned or other.own & self.mentioned


def unity_groups(files):
    """Lists of files, each to be compiled as one."""
    groups = []  # (folder, [lines and names of each file], files)
    for path in sorted(files):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        names, lines, folder = Names(text), text.count("\n"), os.path.dirname(path)
        for group_folder, members, paths in groups:
            if (group_folder == folder and lines + sum(n for n, _ in members) <= MOST_LINES
                    and not any(names.clash(other) for _, other in members)):
                break
        else:
            members, paths = [], []
            groups.append((folder, members, paths))
        members.append((lines, names))
        paths.append(path)
    return [paths for _, _, paths in groups]


def include_line(path):
    """As the project includes its files: the same text wherever the sources lie, for the compiler's cache."""
    name = os.path.relpath(path, ROOT)
    return f'#include "{name.removeprefix("src/")}"\n'


def write_groups(stem, files):
    for number, group in enumerate(unity_groups(files)):
        name, text = f"{stem}-{number}.cc", "".join(map(include_line, group))
        os.makedirs(os.path.dirname(name), exist_ok=True)
        try:
            with open(name, encoding="utf-8") as file:
                unchanged = file.read() == text
        except FileNotFoundError:
            unchanged = False
        if not unchanged:  # else objects compiled from it stay valid
            with open(name, "w", encoding="utf-8") as file:
                file.write(text)
        print(name)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    write_groups(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    main()
