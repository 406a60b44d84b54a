#!/usr/bin/env python3
"""Lists the functions of the public headers, include/weft/*.h.

  tools/public_functions.py             one name a line, sorted
  tools/public_functions.py --map       writes the names into include/weft/weft.map
  tools/public_functions.py --markdown  prints docs/reference/library.md
"""
import os
import re
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, "include", "weft")
HEADERS = ["core", "graph", "program", "data", "generate"]
# A declaration begins in column 0, and its text ends at the first ';'.
DECLARATION = re.compile(
    r"^(?!typedef|static|template|inline|#|extern)[a-z][\w *]*?\b(weft_\w+)\([^;{]*;", re.M)


def read(header):
    with open(os.path.join(FOLDER, header + ".h"), encoding="utf-8") as file:
        return file.read()


def without_comments(text):
    """Comments become blanks, so that positions stay the same."""
    return re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def declarations(header):
    """(name, declaration on one line, its comment or "", title of its section) in the order of the header."""
    text = read(header)
    bare = without_comments(text)
    section, last, comment, end = "", 0, "", 0
    for match in DECLARATION.finditer(bare):
        between = text[end:match.start()]
        for title in re.findall(r"/\* -{2,} (.*?) -{2,}", between):
            section, comment = title, ""
        comments = re.findall(r"/\*(?:(?!\*/).)*\*/(?=\s*$)", between, re.S)
        if comments and "----" not in comments[-1]:
            comment = comments[-1]
        elif "\n\n" in between or between.strip():
            comment = ""
        end = match.end()
        declared = re.sub(r"#.*|__attribute__\(\(.*\)\)", "", match.group())
        yield match.group(1), " ".join(declared.split()).replace(" ;", ";"), comment, section


def names():
    return sorted(name for header in HEADERS for name, *_ in declarations(header))


def write_map():
    path = os.path.join(FOLDER, "weft.map")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    listed = "".join(f"        {name};\n" for name in names())
    text = re.sub(r"(functions: begin \*/\n).*?( *\/\* public functions: end)",
                  rf"\g<1>{listed}\g<2>", text, flags=re.S)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def print_markdown():
    print("""# The library, by header

[Use weft as a library](../how-to/embed.md) shows how to build with the library.
This page lists the functions with the comments of their headers, from which
`tools/public_functions.py --markdown` generates it.
The headers also document option structs, enumerators and the conventions of all functions.
""")
    for header in HEADERS:
        text = read(header)
        first = re.match(r"/\*(.*?)\*/", text, re.S).group(1).replace("\n *", "\n")
        title = " ".join(first.split("\n\n")[0].split())
        print(f"## weft/{header}.h\n\n" + title.replace(". ", ".\n") + "\n")
        groups = []  # functions that share a comment
        for name, declared, about, part in declarations(header):
            if groups and groups[-1][0] == part and about and groups[-1][1] == about:
                groups[-1][2].append(declared)
            else:
                groups.append((part, about, [declared]))
        section = ""
        for part, about, functions in groups:
            if part != section:
                print(f"### {part[0].upper()}{part[1:]}\n")
            section = part
            lines = [about] * bool(about) + [wrapped(f) for f in functions]
            print("```c\n" + "\n".join(lines) + "\n```\n")


def wrapped(declared):
    """A declaration in lines of at most 100 columns."""
    if len(declared) <= 100:
        return declared
    return "\n".join(textwrap.wrap(declared, 96, subsequent_indent="    "))


if __name__ == "__main__":
    if sys.argv[1:] == ["--map"]:
        write_map()
    elif sys.argv[1:] == ["--markdown"]:
        print_markdown()
    else:
        print("\n".join(names()))
