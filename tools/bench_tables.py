#!/usr/bin/env python3
"""bench_tables.py: results of benchmarks as data, and the tables of their pages.

usage: tools/bench_tables.py record SUBJECT COMMAND...  runs a benchmark and stores its tables
       tools/bench_tables.py record-page PREFIX COMMAND...  stores the tables of a complete page
       tools/bench_tables.py update                     rewrites the tables of bench/*.md
       tools/bench_tables.py check                      fails if `update` would change a page

A benchmark prints Markdown tables. `record` finds the file bench/results/SUBJECT*.csv with the same
columns. In this file the columns left of `machine` identify a row, those right of `commit` are its
figures. A row with the same identity and machine is replaced; any other row is added. A line
`machine: NAME` before a table names a simulated machine; the default is this one.
BENCH_RECORD=no: print only. The exit status is that of the command.

`record-page` is for a command that prints a complete page of computed figures. The table below the
heading `## NAME` is written to bench/results/PREFIX-NAME.csv, which has these rows only.

A page has its tables between two markers:

    <!-- table FILE.csv [| COLUMN=VALUE, ... [| COLUMN, ...]] -->
    <!-- table FILE.csv | COLUMN=VALUE, ... | by COLUMN: FIGURE -->
    <!-- /table -->

The second field selects rows, the third columns. `by COLUMN: FIGURE` prints one column for each
value of COLUMN. Each machine has a table of its own.
"""
import csv
import datetime
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench", "results")
ORIGIN = ["machine", "date", "commit"]
MARKERS = re.compile(r"(<!-- table ([^|>]+?)(?:\s*\|\s*([^|>]*?))?(?:\s*\|\s*([^>]*?))?\s*-->\n)"
                     r".*?(<!-- /table -->)", re.S)


class Results:
    """A file of results: the names of the columns and the rows as dictionaries."""

    def __init__(self, path):
        """Reads the file; path None: no file yet."""
        self.path = path
        if path is None:
            return
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            self.columns = next(reader)
            self.rows = [dict(zip(self.columns, row)) for row in reader]
        at = self.columns.index("machine")
        if self.columns[at:at + 3] != ORIGIN:
            sys.exit(f"{path}: the columns {', '.join(ORIGIN)} are missing")
        self.keys, self.figures = self.columns[:at], self.columns[at + 3:]

    def put(self, row):
        """Replaces the row of the same identity and machine, or adds it."""
        for i, old in enumerate(self.rows):
            if all(old[c] == row[c] for c in self.keys + ["machine"]):
                self.rows[i] = row
                return
        self.rows.append(row)

    def save(self):
        with open(self.path + ".new", "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows([row[c] for c in self.columns] for row in self.rows)
        os.replace(self.path + ".new", self.path)


def machine():
    """Processor, cores and the widest instructions in use, as `Model, N cores, AVX-512`."""
    text = open("/proc/cpuinfo", encoding="utf-8").read()
    model = re.search(r"model name\s*: (.*)", text)
    isa = os.environ.get("WEFT_CPU_ISA", "")
    if not isa:
        isa = ("avx512_bf16" if " avx512_bf16" in text and " avx512_vnni" in text else
               "avx512" if " avx512f" in text else "avx2" if " avx2" in text else
               os.uname().machine)
    names = {"avx512_bf16": "AVX-512 BF16", "avx512": "AVX-512", "avx2": "AVX2"}
    threads = os.environ.get("OMP_NUM_THREADS")
    cores = len(os.sched_getaffinity(0))
    return (f"{model[1].strip() if model else 'unknown'}, {cores} cores, {names.get(isa, isa)}" +
            (f", OMP_NUM_THREADS={threads}" if threads else ""))


def commit():
    """The commit of the sources; `+` after it if they have changes."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], text=True, capture_output=True,
                              check=False).stdout.strip()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "include", "bench/*.c")
    return (git("rev-parse", "--short=8", "HEAD") or "unknown") + ("+" if changed else "")


def split(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def store(subject, names, lines, where):
    """Puts the rows of a table into the file that has its columns."""
    for path in sorted(glob.glob(os.path.join(RESULTS, subject + "*.csv"))):
        results = Results(path)
        if sorted(results.keys + results.figures) == sorted(names):
            break
    else:
        sys.exit(f"no file bench/results/{subject}*.csv has the columns {', '.join(names)}")
    for line in lines:
        row = {c: "" if v == "-" else v for c, v in zip(names, split(line))}
        row.update(zip(ORIGIN, (where or machine(), datetime.date.today().isoformat(), commit())))
        results.put(row)
    results.save()


def record(subject, command):
    table, where = [], None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            print(line, end="", flush=True)
            if line.startswith("|"):
                table.append(line)
                continue
            where = end_table(subject, table, where)
            if line.startswith("machine: "):
                where = line[len("machine: "):].strip()
    end_table(subject, table, where)
    return child.returncode


def end_table(subject, table, where):
    """Stores a table that is complete. Returns the machine that was named for the next one."""
    if not table:
        return where
    if len(table) > 2 and os.environ.get("BENCH_RECORD") != "no":
        store(subject, split(table[0]), table[2:], where)
    table.clear()
    return None


def record_page(prefix, command):
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(run.stdout, end="")
    if run.returncode == 0 and os.environ.get("BENCH_RECORD") != "no":
        for part in re.split(r"^## ", run.stdout, flags=re.M)[1:]:
            lines = [split(line) for line in part.split("\n") if line.startswith("|")]
            if len(lines) < 3:
                continue
            name = re.sub(r"\W+", "-", part.split("\n")[0].split("(")[0].lower()).strip("-")
            results = Results(None)
            results.path = os.path.join(RESULTS, f"{prefix}-{name}.csv")
            results.columns = lines[0][:1] + ORIGIN + lines[0][1:]
            where = ["computed", datetime.date.today().isoformat(), commit()]
            results.rows = [dict.fromkeys(results.columns, "") |
                            dict(zip(results.columns, line[:1] + where + line[1:])) for line in lines[2:]]
            results.save()
    return run.returncode


# ---- pages ---------------------------------------------------------------------------------------


def selected(results, where):
    for row in results.rows:
        if all(row[c] == v for c, v in where):
            yield row


def origin(row):
    commit_ = "unknown" if row["commit"] == "unknown" else f"`{row['commit']}`"
    return row["date"], commit_


def grid(rows, keys, columns):
    """Head and lines with date and commit at the end; columns without a value are omitted."""
    shown = [c for c in columns if any(row[c] for row in rows)]
    return keys + shown, [[row[c] or "-" for c in keys + shown] + [*origin(row)] for row in rows]


def pivot(rows, keys, by, figure):
    """Like grid, with one column for each value of `by`."""
    names = list(dict.fromkeys(row[by] for row in rows))
    keys = [c for c in keys if c != by]
    lines = {}
    for row in rows:
        line = lines.setdefault(tuple(row[c] for c in keys), {"origin": origin(row)})
        line[row[by]] = row[figure] or "-"
    return (keys + [f"{n} ({figure})" if i == 0 else n for i, n in enumerate(names)],
            [[*k, *(v.get(n, "-") for n in names), *v["origin"]] for k, v in lines.items()])


def render(results, where, by, named):
    """The tables of the selected rows, one for each machine. `by`: match of `by COLUMN: FIGURE`.
    Date and commit are above the table if all rows have the same, else in two columns."""
    keys = [c for c in results.keys if c not in dict(where)]
    machines = list(dict.fromkeys(row["machine"] for row in selected(results, where)))
    text = []
    for name in machines:
        rows = [row for row in selected(results, where) if row["machine"] == name]
        head, lines = (pivot(rows, keys, by[1], by[2]) if by else
                       grid(rows, keys, named or results.figures))
        text += ["", f"Machine: {name}."]
        if len({tuple(line[-2:]) for line in lines}) == 1:
            text += [f"Measured: {lines[0][-2]}, commit {lines[0][-1]}."]
            lines = [line[:-2] for line in lines]
        else:
            head = head + ["date", "commit"]
        text += ["", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        text += ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(text[1:] or ["No results are stored yet."]) + "\n"


def page(text, path):
    def fill(match):
        head, file, where, what, end = match.groups()
        results = Results(os.path.join(RESULTS, file.strip()))
        where, what = (" ".join((part or "").split()) for part in (where, what))
        pairs = [tuple(p.strip().split("=", 1)) for p in where.split(",") if p.strip()]
        by = re.match(r"by ([^:]+): (.*)", what)
        named = list(by.groups()) if by else [c.strip() for c in what.split(",") if c.strip()]
        for column in [c for c, _ in pairs] + named:
            if column not in results.columns:
                sys.exit(f"{path}: {file} has no column {column}")
        return head + render(results, pairs, by, named) + end
    return MARKERS.sub(fill, text)


def pages(write):
    """True if no page differs from its results."""
    same = True
    for path in sorted(glob.glob(os.path.join(ROOT, "bench", "*.md"))):
        text = open(path, encoding="utf-8").read()
        new = page(text, path)
        if new == text:
            continue
        same = False
        if write:
            open(path, "w", encoding="utf-8").write(new)
        else:
            print(f"{os.path.relpath(path, ROOT)} differs from bench/results; run "
                  "tools/bench_tables.py update")
    return same


def missing_commits():
    """Commits of results that neither are in the history nor are listed in bench/README.md. A shallow
    or missing repository has no answer."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True)
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        return []
    listed = open(os.path.join(ROOT, "bench", "README.md"), encoding="utf-8").read()
    cited = {commit for path in glob.glob(os.path.join(RESULTS, "*.csv"))
             for commit in re.findall(r",\d{4}-\d\d-\d\d,([0-9a-f]{8})\b", open(path).read())}
    return [commit for commit in sorted(cited) if commit not in listed and
            git("merge-base", "--is-ancestor", commit, "HEAD").returncode]


def check():
    missing = missing_commits()
    for commit in missing:
        print(f"bench/results: commit {commit} is not in the history; a branch was rebased after the "
              "measurement. Write the commit that has the change now")
    return pages(False) and not missing


def main(words):
    if words == ["update"]:
        pages(True)
    elif words == ["check"]:
        sys.exit(0 if check() else 1)
    elif len(words) > 2 and words[0] == "record":
        sys.exit(record(words[1], words[2:]))
    elif len(words) > 2 and words[0] == "record-page":
        sys.exit(record_page(words[1], words[2:]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
