#!/bin/bash
# Every relative link and anchor of README.md, docs/, bench/ and CONTRIBUTING.md has a target, and
# lines of docs/ outside of code blocks and tables have at most 100 columns.
. "$SRC/tests/check.sh"
# Writes the problems of check NAME to the file NAME.
python3 -S - "$SRC" "$PWD" <<'PYTHON' || fail "the pages cannot be read"
import functools
import glob
import os
import re
import sys

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
WIDTH = 100


def prose(path):
    """(number, line) of the lines of a page outside of fenced code blocks."""
    fenced = False
    with open(path, encoding="utf-8") as page:
        for number, line in enumerate(page.read().split("\n"), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced:
                yield number, line


@functools.lru_cache(maxsize=None)
def anchors(path):
    """The anchors that GitHub makes of the headings of a page."""
    seen = {}
    result = set()
    for _, line in prose(path):
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if not heading:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        result.add(slug if count == 0 else f"{slug}-{count}")
    return result


def broken(page, link):
    """Why a link of a page has no target; None if it has one."""
    if re.match(r"[a-z]+:", link):
        return None
    name, _, anchor = link.partition("#")
    target = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
    if not os.path.exists(target):
        return f"{target} does not exist"
    if anchor and target.endswith(".md") and anchor not in anchors(target):
        return f"{target} has no heading #{anchor}"
    return None


os.chdir(sys.argv[1])
pages = ["README.md"] + glob.glob("docs/**/*.md", recursive=True)
pages += glob.glob("bench/**/*.md", recursive=True) + glob.glob("CONTRIBUTING.md")
links = 0
problems = {"links_have_targets": [], "lines_fit": []}
for page in sorted(pages):
    lines = list(prose(page))
    generated = lines[0][1].startswith("<!-- made by")
    for number, line in lines:
        for link in LINK.findall(line):
            links += 1
            reason = broken(page, link)
            if reason:
                problems["links_have_targets"].append(f"{page}:{number}: {reason}\n")
        exempt = generated or line.startswith("    ") or line.lstrip().startswith("|")
        if page.startswith("docs/") and not exempt and len(line) > WIDTH:
            problems["lines_fit"].append(f"{page}:{number}: {len(line)} columns, {WIDTH} are allowed\n")
for name, texts in problems.items():
    with open(os.path.join(sys.argv[2], name), "w", encoding="utf-8") as f:
        f.writelines(texts)
sys.exit("no link was found" if links == 0 else 0)
PYTHON
report() { # NAME: fails if the check has problems
    cat "$1"
    [ ! -s "$1" ]
}
for name in *; do check "$name" report "$name"; done
finish
