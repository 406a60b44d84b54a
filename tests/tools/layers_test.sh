#!/bin/bash
# Every folder below src is a room on a floor. A file includes headers of its own room or of rooms
# on lower floors, without exception, so cycles are impossible. A function is declared in the header
# named after its source, is called at least once, and is written once. A type has a name of its own.
# A file has at most 1,000 lines and a unique name, a line at most 100 columns, a function at most
# 150 lines. In src/plan, only files with these words in their names use JSON, configs and charts.
. "$SRC/tests/check.sh"
# Writes the problems of check NAME to the file NAME.
python3 -S - "$SRC" <<'PY' || fail "the sources cannot be read"
import os, re, sys

root = sys.argv[1]
FLOORS = [
    ["base", "kernel/cuda/kernels"],
    ["storage"],
    ["draw", "format/log", "format/tar", "format/tensors", "graph", "plan", "plan/queue", "text", "video"],
    ["curate/duplicates", "data", "diffusion", "kernel", "nn", "plan/layout", "plan/ops", "transform/memory"],
    ["kernel/cpu", "kernel/cuda", "kernel/ref", "model/critics", "plan/cluster", "transform/numeric"],
    ["kernel/far", "kernel/virtual", "plan/cost", "plan/pipeline", "plan/simulate", "transform/sharding"],
    ["comm", "kernel/registry", "model", "plan/cascade", "plan/published", "transform"],
    ["exec/store", "model/autoencoders", "model/denoisers", "model/encoders"],
    ["exec"],
    ["convert", "curate/operators", "curate/shots", "exec/trace", "latent", "prompt"],
    ["curate/captions", "curate/embeddings", "curate/proof", "generate/conditioning", "train/config"],
    ["curate", "generate/generator", "train/graph", "train/monitor"],
    ["estimate", "train/checkpoint", "train/pipeline"],
    ["estimate/generation", "train/step"],
    ["generate/jobs", "train/latents"],
    ["cli/options"],
    ["doctor", "evaluate", "parity", "train/estimate"],
    ["estimate/training", "report"],
    ["inspect", "profile", "train/cascade"],
    ["train"],
    ["api", "serve"],
    ["cli"],
]
FLOOR = {folder: i for i, folders in enumerate(FLOORS) for folder in folders}
# lower rooms that a room must not include, each with its sub-folders
NEVER = {"graph": ("comm", "exec", "kernel"), "nn": ("comm", "exec", "kernel"), "model": ("comm", "exec", "kernel"),
         "transform": ("comm", "exec", "kernel"), "plan": ("comm", "exec", "kernel", "model"), "kernel": ("model",)}
MAX_FILE, MAX_FUNCTION, MAX_COLUMNS = 1000, 150, 100
MAX_VERB = 200  # lines of a file in src/cli
problems = []
named = {}  # basename to path


def includes(path):
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
            if match:
                yield number, match.group(1)


def check_name(name, relative):
    # A basename is unique. Exceptions: a file of a verb has the name of the verb, a file of src/api
    # that of its public header, and ref and cpu mirror each other.
    if relative.startswith(("src/cli/", "src/api/", "src/kernel/ref/", "src/kernel/cpu/")):
        return
    if named.setdefault(name, relative) != relative:
        problems.append(f"{relative}: is called as {named[name]}")


def room_of(path):
    return os.path.dirname(path)


def check_floor(path, relative):
    own = room_of(relative)[len("src/"):]
    if own not in FLOOR:
        problems.append(f"{relative}: folder src/{own} is on no floor")
        return
    for number, header in includes(path):
        if header.startswith("weft/"):
            continue
        if not os.path.exists(os.path.join(root, "src", header)):
            problems.append(f"{relative}:{number}: {header} is in no folder of src/")
            continue
        other = room_of(header)
        if other == own:
            continue
        if FLOOR.get(other, 99) >= FLOOR[own]:
            problems.append(f"{relative}:{number}: src/{own} (floor {FLOOR[own] + 1}) must not include "
                            f"{header} (floor {FLOOR.get(other, 99) + 1})")
        elif other.split("/")[0] in NEVER.get(own.split("/")[0], ()):
            problems.append(f"{relative}:{number}: src/{own} must not know {header}")


def check_declared():
    # Every function that other files may call is declared in the header named after its source. The
    # cells of the op table (graph/op.def) are declared where the table is expanded.
    cells = ("infer", "vjp", "layout", "local", "cost", "print")
    for folder, _, files in os.walk(os.path.join(root, "src")):
        for name in sorted(files):
            if not name.endswith(".c") or name == "main.c":
                continue
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as f:
                text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
            declared = ""
            # the public headers declare the functions of src/api
            public = os.path.join(root, "include", "weft", name[:-2] + ".h")
            for header in [path[:-2] + ".h"] + ([public] if folder.endswith("/src/api") else []):
                if os.path.exists(header):
                    with open(header, encoding="utf-8") as f:
                        declared += f.read()
            for function in re.findall(r"^(?!static|typedef|#)[a-z][\w *]*?\b(weft_\w+)\([^;{}]*\)\n\{", text, re.M):
                if not re.search(rf"\b{function}[(;]", declared) and \
                        not re.match(rf"weft_({'|'.join(cells)})_", function):
                    problems.append(f"{os.path.relpath(path, root)}: {function} is not declared in "
                                    f"{name[:-2]}.h")


def check_length(path, relative):
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")
    if os.path.dirname(relative) == "src/cli" and len(lines) - 1 > MAX_VERB:
        problems.append(f"{relative}: {len(lines) - 1} lines, at most {MAX_VERB}; a verb has its options and a short "
                        "run function")
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


# Names of files of src/plan that read or write JSON, read a config, or draw.
OUTSIDE = re.compile(r"_(json|file|report|print|svg)\.[ch]$|/(gantt|cluster|workload|plan_checksum)\.[ch]$|/published/")


def check_numbers_only(path, relative):
    if not relative.startswith("src/plan/") or OUTSIDE.search(relative):
        return
    for number, header in includes(path):
        if header in ("base/json.h", "base/config.h") or header.startswith("format/") or \
                re.search(r"_(json|file|report)\.h$", header):
            problems.append(f"{relative}:{number}: a core of src/plan takes and gives plain structs; "
                            f"{header} belongs into a file named *_json, *_report, *_svg ...")


def check_lines(path, relative):
    # the formatter's result for a member whose comment does not fit on its line
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if re.search(r"[<>]=? *WEFT_OP_(?!COUNT)", line):
                problems.append(f"{relative}:{number}: where an op stands in the table means nothing; ask for its traits")
            if re.match(r"\s+(const |unsigned |struct )*(char|bool|int|float|double|u?int\d+_t|size_t|weft_\w+|json_t)$",
                        line.rstrip("\n")):
                problems.append(f"{relative}:{number}: a declaration is split; its comment goes above it")


def check_called():
    # a function that is named only where it is declared and defined has no caller
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
    # A function is written once. Exception: ref and cpu are compared with each other and share
    # nothing.
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


def check_types():
    # A type that headers define has a name of its own, so that two headers can be included together.
    types = {}
    for folder, _, files in os.walk(os.path.join(root, "src")):
        for name in sorted(files):
            if not name.endswith(".h"):
                continue
            relative = os.path.relpath(os.path.join(folder, name), root)
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                text = f.read()
            for words in re.findall(r"^typedef (?:struct|enum|union) (weft_\w+) \{|^\} (weft_\w+);", text, re.M):
                word = words[0] or words[1]
                if types.setdefault(word, relative) != relative:
                    problems.append(f"{relative}: {types[word]} defines a type {word}, too")


found = {}


def run(name, check, *arguments):
    problems.clear()
    check(*arguments)
    found.setdefault(name, set()).update(problems)


count = 0
run("types_have_one_name", check_types)
run("functions_are_called", check_called)
run("functions_are_written_once", check_twice)
run("functions_are_declared_in_their_header", check_declared)
for folder, _, files in os.walk(os.path.join(root, "src")):
    for name in sorted(files):
        path = os.path.join(folder, name)
        relative = os.path.relpath(path, root)
        if name.endswith((".c", ".h", ".cu", ".def", ".inc")):
            count += 1
            run("includes_go_down", check_floor, path, relative)
            run("names_are_unique", check_name, name, relative)
            run("planners_know_numbers_only", check_numbers_only, path, relative)
            run("files_and_functions_are_short", check_length, path, relative)
            run("declarations_are_whole", check_lines, path, relative)
for name, texts in found.items():
    with open(name, "w", encoding="utf-8") as f:
        f.writelines(text + "\n" for text in sorted(texts))
sys.exit(count < 20)
PY
report() { # NAME: fails if the check has problems
    cat "$1"
    [ ! -s "$1" ]
}
for name in *; do check "$name" report "$name"; done
finish
