#!/bin/bash
# Every relative link and anchor of README.md, docs/, bench/ and CONTRIBUTING.md has a target, and
# lines of docs/ outside of code blocks and tables have at most 100 columns.
set -u
cd "$SRC" || exit 1
python3 -S - <<'PYTHON'
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


pages = ["README.md"] + glob.glob("docs/**/*.md", recursive=True)
pages += glob.glob("bench/**/*.md", recursive=True) + glob.glob("CONTRIBUTING.md")
links = errors = 0
for page in sorted(pages):
    lines = list(prose(page))
    generated = lines[0][1].startswith("<!-- made by")
    for number, line in lines:
        for link in LINK.findall(line):
            links += 1
            reason = broken(page, link)
            if reason:
                errors += 1
                print(f"{page}:{number}: {reason}")
        exempt = generated or line.startswith("    ") or line.lstrip().startswith("|")
        if page.startswith("docs/") and not exempt and len(line) > WIDTH:
            errors += 1
            print(f"{page}:{number}: {len(line)} columns, {WIDTH} are allowed")
if links == 0:
    sys.exit("no link was found")
print(f"{links} links of {len(pages)} pages, {errors} errors")
sys.exit(1 if errors else 0)
PYTHON
