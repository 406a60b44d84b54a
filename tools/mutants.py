#!/usr/bin/env python3
"""tools/mutants.py [--list] [--check] [--only PATTERN] [--work DIR] [--seconds N] [--baseline]: how many errors the tests find.

A mutant is one small error in one place of src. The script plants each mutant in a copy of the tree, builds the programs that its
tests need, and runs those tests. A mutant is detected if a test fails, crashes or hangs. A test hangs if it exceeds the time limit with
the mutant, and passes within a third of it without; else the machine is too slow for the limit, and the mutant does not count.

    --list           prints the mutants
    --check          only verifies that each mutant's text occurs once in its file, and that its tests exist (a second)
    --only PATTERN   mutants whose name or file contains PATTERN; may be repeated
    --work DIR       copy of the tree, with its build folder; reused from run to run (default /tmp/weft-mutants)
    --seconds N      time limit of each test (default 240)
    --baseline       first runs every selected test without a mutant
    --log FILE       also writes the outcomes as lines of JSON

Exit status 1: a mutant survived, exceeded the time limit, does not compile, or does not apply."""
import argparse
import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from mutants_list import MUTANTS  # name, file, text, replacement, tests


def read(path):
    with open(path) as f:
        return f.read()


def cases_of(program):
    """"suite/case" of each Criterion test of tests/<program>."""
    found = []
    folder = os.path.join(ROOT, "tests", program.replace("-", "/"))
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        if name.endswith(".c"):
            found += ["/".join(m) for m in re.findall(r"^Test\((\w+),\s*(\w+)", read(os.path.join(folder, name)), re.M)]
    return found


def check(mutants):
    """What is wrong with the list, a line each."""
    problems, cases = [], {}
    names = [m[0] for m in mutants]
    for name in sorted(set(n for n in names if names.count(n) > 1)):
        problems.append(f"{name}: two mutants have this name")
    for name, path, old, new, tests in mutants:
        full = os.path.join(ROOT, path)
        count = read(full).count(old) if os.path.exists(full) else -1
        if count != 1:
            problems.append(f"{name}: {path} " + ("does not exist" if count < 0 else f"has the text {count} times: {old!r}"))
        if old == new:
            problems.append(f"{name}: the replacement is the text")
        for test in tests.split():
            if test.endswith(".sh"):
                if not os.path.exists(os.path.join(ROOT, "tests", test)):
                    problems.append(f"{name}: no tests/{test}")
                continue
            program, pattern = test.split(":")
            cases.setdefault(program, cases_of(program))
            if not fnmatch.filter(cases[program], pattern):
                problems.append(f"{name}: no case of tests/{program} matches {pattern}")
    return problems


def copy_tree(work):
    """The files of this checkout and its build folder, with their times."""
    tree = os.path.join(work, "tree")
    os.makedirs(tree, exist_ok=True)
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in files.stdout.decode().split("\0"):
        source, target = os.path.join(ROOT, name), os.path.join(tree, name)
        if not name or not os.path.isfile(source):
            continue
        if os.path.exists(target) and os.path.getmtime(target) == os.path.getmtime(source) and read_bytes(source) == read_bytes(target):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(source, target)
    for folder, _, names in os.walk(os.path.join(tree, "build")):
        for name in names:
            if name.endswith(".o.kept"):  # a run was killed: the object beside it has a mutant
                put_back(tree, os.path.join(folder, name[:-5]))
    if not os.path.isdir(os.path.join(tree, "build")) and os.path.isdir(os.path.join(ROOT, "build")):
        subprocess.run(["cp", "-a", os.path.join(ROOT, "build"), tree], check=True)
    return tree


def put_back(tree, obj):
    """Restores the kept object with its time, and removes what was linked with the mutant."""
    os.replace(obj + ".kept", obj)
    for name in "libweft.a", "weft":
        if os.path.exists(os.path.join(tree, "build", name)):
            os.remove(os.path.join(tree, "build", name))


def read_bytes(path):
    with open(path, "rb") as f:
        return f.read()


def run(command, tree, seconds, log):
    """Exit status; 124: the time limit."""
    env = dict(os.environ)
    shared = os.path.join(os.path.dirname(ROOT), "shared")
    if "WEFT_SHARED" not in env and os.path.exists(shared):
        env["WEFT_SHARED"] = os.path.realpath(shared)
    env["WEFT_TEST_TIMEOUT"] = str(2 * seconds)  # of scripts: later than the limit here
    with open(log, "wb") as out:
        child = subprocess.Popen(command, cwd=tree, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            end_session(child.pid)
            child.wait()
            return 124


def end_session(session):
    """Kills every process of a session: of a script, timeout and mpirun have process groups of their own."""
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getsid(int(name)) == session:
                os.kill(int(name), signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended


def build(tree, tests, log):
    goals = set()
    for test in tests:
        goals |= {"all"} if test.endswith(".sh") else {"build/test/" + test.split(":")[0]}
    return run(["make", "-j2", *sorted(goals)], tree, 1800, log)


def run_test(tree, test, seconds, log):
    if test.endswith(".sh"):
        return run(["tests/run.sh", "build", test], tree, seconds, log)
    program, pattern = test.split(":")
    return run(["build/test/" + program, "--filter", pattern, "-j2", "--fail-fast"], tree, seconds, log)


class Planted:
    """A mutant in the tree; leaves source and object as they were, so that only one file is compiled for each mutant."""

    def __init__(self, tree, path, old, new):
        self.tree, self.path = tree, os.path.join(tree, path)
        target = "weft" if path == "src/cli/main.c" else "weft_objects"
        self.object = os.path.join(tree, "build/CMakeFiles", target + ".dir", path + ".o")
        self.old, self.new = old, new

    def __enter__(self):
        self.text, self.times = read(self.path), os.stat(self.path)
        if os.path.exists(self.object):
            shutil.copy2(self.object, self.object + ".kept")
        with open(self.path, "w") as f:
            f.write(self.text.replace(self.old, self.new))

    def __exit__(self, *_):
        with open(self.path, "w") as f:
            f.write(self.text)
        os.utime(self.path, ns=(self.times.st_atime_ns, self.times.st_mtime_ns))
        if os.path.exists(self.object + ".kept"):
            put_back(self.tree, self.object)
        elif os.path.exists(self.object):
            os.remove(self.object)


def try_mutant(tree, mutant, seconds, log):
    """Outcome, and the test that failed."""
    name, path, old, new, tests = mutant
    hung = None
    with Planted(tree, path, old, new):
        if build(tree, tests.split(), log):
            return "does not compile", ""
        for test in tests.split():
            status = run_test(tree, test, seconds, log)
            if status == 124:
                hung = test
                break
            if status:
                return "detected", test
    if not hung:
        return "SURVIVED", ""
    if build(tree, [hung], log) or run_test(tree, hung, seconds / 3, log):
        return "time limit", hung
    return "detected", hung + " (hangs)"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--baseline", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--work", default="/tmp/weft-mutants")
    parser.add_argument("--seconds", type=int, default=240)
    parser.add_argument("--log")
    args = parser.parse_args()
    problems = check(MUTANTS)
    for line in problems:
        print(line)
    if args.check or problems:
        print(f"{len(MUTANTS)} mutants, {len(problems)} problems")
        return bool(problems)
    chosen = [m for m in MUTANTS if not args.only or any(p in m[0] or p in m[1] for p in args.only)]
    if args.list:
        for name, path, old, new, tests in chosen:
            print(f"{name}\n  {path}\n  - {old}\n  + {new}\n  {tests}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the tree is left without a mutant
    tree = copy_tree(args.work)
    log = os.path.join(args.work, "last.log")
    if args.baseline:
        tests = sorted({t for m in chosen for t in m[4].split()})
        if build(tree, tests, log):
            print(f"the tree does not build: {log}")
            return 1
        for test in tests:
            if run_test(tree, test, args.seconds, log):
                print(f"{test} fails without a mutant: {log}")
                return 1
    survived, broken, late = [], [], []
    for i, mutant in enumerate(chosen):
        begun = time.time()
        outcome, by = try_mutant(tree, mutant, args.seconds, log)
        print(f"{i + 1:3}/{len(chosen)}  {outcome:16}  {mutant[0]:34} {time.time() - begun:5.0f} s  {by}", flush=True)
        survived += [mutant[0]] if outcome == "SURVIVED" else []
        broken += [mutant[0]] if outcome == "does not compile" else []
        late += [mutant[0]] if outcome == "time limit" else []
        if args.log:
            with open(args.log, "a") as f:
                f.write(json.dumps({"mutant": mutant[0], "outcome": outcome, "test": by}) + "\n")
    whole = len(chosen) - len(broken) - len(late)
    print(f"{whole - len(survived)} of {whole} mutants detected ({100 * (whole - len(survived)) / max(whole, 1):.1f} %)")
    for name in survived:
        print("survived:", name)
    for name in broken:
        print("does not compile:", name)
    for name in late:
        print("exceeded the time limit:", name)
    return bool(survived or broken or late)


if __name__ == "__main__":
    sys.exit(main())
