#!/usr/bin/env python3
"""words.py: finds phrases that a stranger must read twice.

usage: tools/words.py [--counts | --check FILE | --update FILE] [PATH...]

Reads comments and strings of C files in src/, include/, tests/, bench/ and tools/, comments and
messages of scripts and makefiles, and all lines of docs/, README.md, bench/*.md and CHANGELOG.md (or
of each PATH). Prints every match as PATH:LINE: [id] text; write: REMEDY.
A line with `prose-ok` is exempt. A row of a table is not a sentence and has any length; nor is a
figure in a comment, of lines that are indented.

ALLOWED lists legitimate uses, which do not count. tools/words.txt has the counts of the matches
that are left, each with the reason why they stay.

  --counts       print the number of matches by id and kind of text
  --check FILE   compare the counts with FILE (lines "kind id count reason"); exit 1 if one has
                 grown, or has no reason. Lower the counts when a text is rewritten
  --update FILE  write the counts to FILE; a line keeps its reason
"""
import collections
import re
import subprocess
import sys

PHRASES = [
    ("told", r"\b(is|are|be|was|were|being|been) told\b|\btold (of|by|that|what|how|as)\b",
     "reports, prints, warns, predicts; takes (an input)"),
    ("tells", r"\btells?\b", "prints, returns, determines, shows"),
    ("what-noun", r"(^|[.;:(] ?)What (of|is|are|has|this|was|a|an|the|it|they|comes?|goes|each|all|"
                  r"else|no|lies?|stands?|takes?|makes?|passes?|memory)\b", "name the thing"),
    ("of-what", r"\b(of|by|with|from|to|for|in) what (is|are|it|they|a|an|the|has|was|each|this)\b",
     "name the thing"),
    ("lead-prep", r"^(of|to|by|with|in|for|from|on|as|at|and|but|or|which|that|where|also|likewise|"
                  r"the same)\b[^.:]{0,60}", "start a comment with the noun"),
    ("of-those", r"\b(of|in|by|for|to|with|from) (those|these|them|it)\b", "repeat the noun"),
    ("those-that", r"\b(those|that|what) (that|which|of|with|without|in|on)\b", "repeat the noun"),
    ("so-many", r"\bso (many|much|long|often)\b(?! as)|"
                r"(?<!twice )(?<!least )\bas (many|much|long|often)\b(?![^.;]*\bas\b)",
     "N; up to N; the given number of"),
    ("behind", r"\bbehind\b(?! (compute|attention))", "after, following, past the end of"),
    ("beside", r"\bbeside\b", "with, next to, in addition to, while"),
    ("go-on", r"\b(go|goes|going|went|gone) on\b", "resume, continue, proceed"),
    ("made-again", r"\b(mak(e|es|ing)|made)\b[^.;,]{0,30}\bagain\b|\bmade anew\b|\banew\b",
     "recompute, rebuild, encode again, from scratch"),
    ("away", r"\b(moved?|moves|moving|kept|lie|lies|lying|goes|go|are|is) (away|elsewhere)\b",
     "offload, fetch, resident"),
    ("nobody", r"\b(nobody|somebody|whoever|anybody|who)\b", "the caller, the consumer, no rank"),
    ("stands", r"\b(stand|stands|stood|standing) (in|at|on|for|beside|behind|before|there|under|"
               r"still|near|outside|above)\b", "is in, is stored in, replaces"),
    ("there-is", r"\b(is|are) there\b|\bthere is no[nt]?\b|\bthere are no(ne)?\b",
     "exists, is present, if any, none"),
    ("takes-most", r"\b(takes?|took) (most|part|so|as|what|it)\b|\bthat takes\b",
     "uses, needs, requires, participates in"),
    ("is-no", r"\b(is|are) no (?!longer\b|more\b)[a-z]+", "is not a"),
    ("by-itself", r"\bby (itself|themselves)\b", "separately, alone, automatically"),
    ("one-behind", r"\bone (after|behind|beside|by) (the )?(other|one|another)\b",
     "in sequence, one at a time, contiguous"),
    ("without-word", r"\bwithout a word\b", "by default"),
    ("does-not-go", r"\b(does|do) not go (with|together)\b|\bgoes? with\b|\bgo together\b",
     "cannot be combined with"),
    ("is-said", r"\b(is|are|was|be) said\b|\bsay so\b|\bsays so\b", "prints, reports, states"),
    ("gone", r"\b(is|are|was) gone\b", "exited, was removed, no longer exists"),
    ("held-against", r"\b(hold|holds|held|holding)( [a-z]+)? against\b", "compared with, verified against"),
    ("pictures", r"\bpictures?\b", "image, frame or coded picture"),
    ("film", r"\bfilms?\b", "source video"),
    ("numbers", r"\bthe (same )?numbers\b|\bchanges? no bits?\b|\bto the bit\b|\bthe same bits\b",
     "results; bitwise identical"),
    ("left-away", r"\bleft (away|out)\b|\bleaves? out\b", "omitted, dropped, skipped"),
    ("wants", r"\bwants?\b", "needs, requires, expects"),
    ("colon-zero", r"(^|[;:,] )0: (none|no|all|any|it|its|that|those|as)\b", "`0 (default): no limit`"),
    ("at-the-most", r"\bthe most (of|that|it|in|bytes)\b|\bat the most\b", "the maximum, the peak"),
    ("lies", r"\b(lie|lies|lay|lying|laid) (in|on|at|over|out|together|between|behind|below|beside|"
             r"along)\b", "is in, is stored in, is mapped to"),
    ("modelled", r"\bmodelled\b", "simulated"),
    ("dialect-nouns", r"\b(walk|likeness|bulletin|fates?|lanes?|seats?|spelling|rehearsal|"
                      r"rehearse[ds]?|hollow|leg|legs)\b", "the glossary's word"),
]
PHRASES = [(name, re.compile(pattern, re.I), remedy) for name, pattern, remedy in PHRASES]
# Legitimate uses: id, kind of text, pattern of the path, and the reason.
ALLOWED = [
    ("pictures", "comment", r"src/(video|curate)/",
     "the codecs' word: a coded picture is the data of one or two fields, and not a frame"),
    ("colon-zero", "comment", r".*",
     "the comment of a member states the special value after the unit: `NULL: none`, `0: no limit`"),
    ("lead-prep", "member", r".*",
     "the declaration in front of the comment is the noun: `int *node; /* by rank */`"),
    ("dialect-nouns", "comment", r"src/train/monitor/rank_telemetry\.h",
     "a quoted name of a tensor in checkpoints"),
    ("dialect-nouns", "comment", r"(tests/emu|tests/kernel/cuda|src/kernel/cuda)/",
     "CUDA's word: a lane is a thread of a warp"),
    ("lead-prep", "comment", r"tests/",
     "the comment of a test is a sentence that may begin with its condition"),
    ("pictures", "script", r"tests/curate/proof/", "the codecs' word"),
    ("wants", "string", r"tests/storage/sha256_test\.c", "a published test vector"),
]
ALLOWED = [(name, kind, re.compile(path)) for name, kind, path, reason in ALLOWED]
QUESTION = re.compile(r"[a-z]\? [A-Z]")
IDENTIFIER = re.compile(r"`[^`]*`|\b\w*_\w+\b|\b\w+\(\)|\bWEFT\w*")
TOKEN = re.compile(r'/\*(.*?)\*/|//([^\n]*)|"((?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\\n]|\\.)+\'', re.S)
LONG, WIDE = 25, 100


def plain(text):
    """The text without identifiers and code, which may contain any word."""
    return IDENTIFIER.sub("X", text)


def c_texts(source):
    """(line, kind, text) of comments and strings; adjacent strings are one text."""
    strings = []
    end = 0
    for m in TOKEN.finditer(source):
        line = source.count("\n", 0, m.start()) + 1
        if m.group(3) is not None:
            between = source[end:m.start()]
            if strings and re.fullmatch(r"\s*(PRI\w+\s*)?", between):
                strings[-1][2] += m.group(3)
            elif not re.search(r"#include\s*$", source[max(0, m.start() - 12):m.start()]):
                strings.append([line, "string", m.group(3)])
            end = m.end()
        elif m.group(1) is not None or m.group(2) is not None:
            text = m.group(1) if m.group(1) is not None else m.group(2)
            text = re.sub(r"\n *\*? {3,}[^\n]*", "\n.", text)  # a line of a figure
            text = re.sub(r"\n\s*\*?", " ", text).strip()
            before = source[source.rfind("\n", 0, m.start()) + 1:m.start()].strip()
            if "prose-ok" not in text and "clang-format" not in text:
                yield line, "member" if before else "comment", text
    for line, kind, text in strings:
        if " " in text and "<|" not in text:  # the template of a model is not weft's text
            yield line, kind, text


MESSAGE = re.compile(r'\b(?:fail|skip|fail_with \S+) "((?:[^"\\]|\\.)*)"')


def script_texts(source):
    """(line, kind, text) of the comments and messages of a shell script, a Python program or a
    makefile. Adjacent lines of comments are one text; an indented one is a figure."""
    first, block = 0, ""
    for number, line in enumerate(source.split("\n") + [""], 1):
        comment = re.match(r"\s*#(?!!) ?(.*)", line)
        if comment and "shellcheck" not in line and "prose-ok" not in line:
            first = first or number
            block += "\n." if comment[1].startswith("  ") else " " + comment[1]
            continue
        if block:
            yield first, "script", block.strip()
            first, block = 0, ""
        for m in MESSAGE.finditer(line):
            yield number, "script", re.sub(r"\$\w+|\$\{[^}]*\}", "X", m.group(1))


def prose_texts(source):
    """(line, kind, text) of the lines of a page, without code blocks."""
    code = False
    for number, line in enumerate(source.split("\n"), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.startswith("    ") and "prose-ok" not in line:
            yield number, "docs", line


def findings(path):
    """(line, kind, id, excerpt, remedy) of a file. A comment after code is a comment, too."""
    for line, kind, name, excerpt, remedy in all_findings(path):
        plain_kind = "comment" if kind == "member" else kind
        if not any(name == n and k in (kind, plain_kind) and p.match(path) for n, k, p in ALLOWED):
            yield line, plain_kind, name, excerpt, remedy


def all_findings(path):
    source = open(path, encoding="utf-8", errors="replace").read()
    texts = prose_texts
    if path.endswith((".c", ".h", ".def", ".cu")):
        texts = c_texts
    elif path.endswith((".sh", ".py", ".mk", "Makefile")):
        texts = script_texts
    for line, kind, text in texts(source):
        bare = plain(text)
        for name, pattern, remedy in PHRASES:
            if name == "lead-prep" and kind not in ("comment", "member"):
                continue
            for m in pattern.finditer(bare):
                yield line, kind, name, m.group(0).strip(), remedy
        if kind == "string" and QUESTION.search(bare):
            yield line, kind, "question", text[:60], "the error and the remedy"
        if kind != "string" and not (kind == "docs" and text.startswith("|")):
            for sentence in re.split(r"(?<=[.!?;:])\s+", bare):
                if len(sentence.split()) > LONG:
                    yield line, kind, "long", sentence[:60], "two sentences"
        if kind == "docs" and len(text) > WIDE and not text.startswith("|"):
            yield line, kind, "width", text[:40], "one sentence a line, 100 columns"


def read_limits(path):
    """{(kind, id): (count, reason)}"""
    rows = [line.split(None, 3) for line in open(path)]
    return {(r[0], r[1]): (int(r[2]), r[3].strip() if len(r) > 3 else "") for r in rows}


def grown(counts, limits):
    """Lines about counts that have grown or have no reason."""
    for (kind, name), count in sorted(counts.items()):
        limit, reason = limits.get((kind, name), (0, "none"))
        if count > limit:
            yield f"{kind}: [{name}] {count} matches, {limit} are allowed; tools/words.py lists them"
        elif not reason:
            yield f"{kind}: [{name}] has no reason"


def write_limits(path, counts):
    old = read_limits(path)
    with open(path, "w") as f:
        for key, count in sorted(counts.items()):
            print(*key, count, old.get(key, (0, ""))[1], file=f)


def default_paths():
    listed = subprocess.run(["git", "ls-files"], text=True, capture_output=True, check=True)
    for path in listed.stdout.split("\n"):
        if path in ("tools/words.py", "tests/tools/words_test.sh") or "/corpus/" in path:
            continue  # have the phrases themselves, or arbitrary bytes
        if re.match(r"(docs/|bench/|README|CHANGELOG).*\.md$", path) or re.match(
                r"(src|include|tests|bench|tools|mk)/.*\.(c|h|def|cu|sh|py|mk)$|Makefile$", path):
            yield path


def main(arguments):
    mode = arguments.pop(0) if arguments and arguments[0].startswith("--") else None
    limit_file = arguments.pop(0) if mode in ("--check", "--update") else None
    if mode not in (None, "--counts", "--check", "--update"):
        sys.exit(__doc__)
    counts = collections.Counter()
    for path in arguments or default_paths():
        for line, kind, name, excerpt, remedy in findings(path):
            counts[kind, name] += 1
            if mode is None:
                print(f"{path}:{line}: [{name}] {excerpt}; write: {remedy}")
    if mode == "--counts":
        for (kind, name), count in sorted(counts.items()):
            print(kind, name, count)
        print("all", "all", sum(counts.values()))
    if mode == "--update":
        write_limits(limit_file, counts)
    if mode == "--check":
        complaints = list(grown(counts, read_limits(limit_file)))
        print(*complaints, sep="\n", end="\n" if complaints else "")
        sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
