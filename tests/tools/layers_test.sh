#!/bin/bash
# The floors of the house: a file includes headers of its own folder or of a lower floor. Also: a file
# has at most 1,500 lines and a name of its own, a line at most 100 columns, a function at most 150 lines. The searches of src/plan
# know numbers only: JSON, config files and pictures are in files whose names say so. No function is called by nobody or written twice.
exec python3 - "$SRC" <<'PY'
import os, re, sys

root = sys.argv[1]
FLOORS = [
    ["base"], ["graph", "video", "format", "text"], ["nn", "pass", "kernel", "plan"], ["runtime", "model"],
    ["diffusion", "data", "prompt", "latent"], ["train", "generate", "curate"], ["cli"],
]
FLOOR = {folder: i for i, folders in enumerate(FLOORS) for folder in folders}
# lower floors that a folder nevertheless must not know
NEVER = {"graph": {"runtime", "kernel"}, "nn": {"runtime", "kernel"}, "model": {"runtime", "kernel"},
         "pass": {"runtime", "kernel"}, "plan": {"runtime", "kernel", "model"}, "kernel": {"model"}}
MAX_FILE, MAX_FUNCTION, MAX_COLUMNS = 1500, 150, 100
problems = []
named = {}  # basename to path


def includes(path):
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
            if match:
                yield number, match.group(1)


def check_name(name, relative):
    # a basename is one file; but a verb's file is called as its verb, and ref and cpu mirror each other
    if relative.startswith(("src/cli/", "src/kernel/ref/", "src/kernel/cpu/")):
        return
    if named.setdefault(name, relative) != relative:
        problems.append(f"{relative}: is called as {named[name]}")


def check_floor(path, relative):
    own = relative.split("/")[1]
    if own not in FLOOR:
        problems.append(f"{relative}: folder src/{own} is on no floor")
        return
    for number, header in includes(path):
        other = header.split("/")[0] if "/" in header else own
        if other == "weft" or other == own:
            continue
        if other not in FLOOR:
            if not os.path.exists(os.path.join(os.path.dirname(path), header)):
                problems.append(f"{relative}:{number}: {header} is in no folder of src/")
        elif FLOOR[other] >= FLOOR[own]:
            problems.append(f"{relative}:{number}: src/{own} (floor {FLOOR[own] + 1}) must not include "
                            f"{header} (floor {FLOOR[other] + 1})")
        elif other in NEVER.get(own, ()):
            problems.append(f"{relative}:{number}: src/{own} must not know {header}")


def check_length(path, relative):
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")
    if len(lines) > MAX_FILE:
        problems.append(f"{relative}: {len(lines)} lines, at most {MAX_FILE}")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS and relative.endswith((".c", ".h")):
            problems.append(f"{relative}:{number}: {len(line)} columns, at most {MAX_COLUMNS}; "
                            "`make format` wraps lines")
    # clang-format puts the braces of a function, and of nothing else with ')' before, in column 0
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
        elif line.startswith("}") and start is not None:
            if number - start > MAX_FUNCTION:
                problems.append(f"{relative}:{start}: a function of {number - start} lines, at most "
                                f"{MAX_FUNCTION}")
            start = None


# What a file of src/plan is called that reads or writes JSON, reads a config, or draws.
OUTSIDE = re.compile(r"_(json|file|report|print|svg)\.[ch]$|/(gantt|cluster|workload)\.[ch]$")


def check_numbers_only(path, relative):
    if not relative.startswith("src/plan/") or OUTSIDE.search(relative):
        return
    for number, header in includes(path):
        if header in ("base/json.h", "base/config.h") or header.startswith("format/") or \
                re.search(r"_(json|file|report)\.h$", header):
            problems.append(f"{relative}:{number}: a core of src/plan takes and gives plain structs; "
                            f"{header} belongs into a file named *_json, *_report, *_svg ...")


def check_lines(path, relative):
    # what a formatter leaves of a member whose comment did not fit beside it
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if re.search(r"[<>]=? *WEFT_OP_(?!COUNT)", line):
                problems.append(f"{relative}:{number}: where an op stands in the table means nothing; ask for its traits")
            if re.match(r"\s+(const |unsigned |struct )*(char|bool|int|float|double|u?int\d+_t|size_t|weft_\w+|json_t)$",
                        line.rstrip("\n")):
                problems.append(f"{relative}:{number}: a declaration is split; its comment goes above it")


def check_called():
    # a function that is named where it is declared and defined, and nowhere else, is called by nobody
    declared, named = {}, {}
    for top in ("src", "include", "tests", "bench", "examples"):
        for folder, _, files in os.walk(os.path.join(root, top)):
            for name in files:
                if not name.endswith((".c", ".h", ".def", ".inc")):
                    continue
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as f:
                    text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
                for word in re.findall(r"\bweft_\w+", text):
                    named[word] = named.get(word, 0) + 1
                if top == "src" and name.endswith(".h"):
                    for function in re.findall(r"^(?!typedef|static)[a-z][\w *]*?\b(weft_\w+)\(", text, re.M):
                        declared[function] = os.path.relpath(path, root)
    for function, relative in declared.items():
        if named[function] <= 2:
            problems.append(f"{relative}: nobody calls {function}")


def check_twice():
    # one function is written once; ref and cpu, which prove each other, share nothing on purpose
    bodies = {}
    for folder, _, files in os.walk(os.path.join(root, "src")):
        for name in sorted(files):
            relative = os.path.relpath(os.path.join(folder, name), root)
            if not name.endswith((".c", ".h", ".inc")) or relative.startswith("src/kernel/ref/"):
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
            for body in re.findall(r"\)\n\{\n(.*?)^\}", text, re.M | re.S):
                body = " ".join(body.split())
                if len(body) > 100 and bodies.setdefault(body, relative) != relative:
                    problems.append(f"{relative}: a function of {bodies[body]} is written again: {body[:60]} ...")


count = 0
check_called()
check_twice()
for folder, _, files in os.walk(os.path.join(root, "src")):
    for name in sorted(files):
        path = os.path.join(folder, name)
        relative = os.path.relpath(path, root)
        if name.endswith((".c", ".h", ".cu", ".def", ".inc")):
            count += 1
            check_floor(path, relative)
            check_name(name, relative)
            check_numbers_only(path, relative)
            check_length(path, relative)
            check_lines(path, relative)
for problem in sorted(problems):
    print(problem)
print(f"{count} files, {len(problems)} problems")
sys.exit(1 if problems or count < 20 else 0)
PY
