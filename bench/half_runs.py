"""Runs of benchmarks and of weft generate on one thread, for bench/half.py and bench/earlier.py."""
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def output(command, isa=None):
    """The output of a command. isa: the instruction set that the processor then seems to have."""
    env = dict(os.environ, OMP_NUM_THREADS="1", **({"WEFT_CPU_ISA": isa} if isa else {}))
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def rows(*command, isa=None):
    """The rows of the tables that a benchmark prints: first cell -> {column: cell}."""
    found, columns = {}, None
    for line in output(list(command), isa).splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            columns = None
        elif set(line) <= set("|-: "):
            continue
        elif columns is None:
            columns = cells
        else:
            found[cells[0]] = dict(zip(columns, cells))
    return found


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return 0.0


def step_of(build, folder, *options, isa=None):
    """Seconds of a denoising step of weft generate, 17 frames of 320x192."""
    with tempfile.TemporaryDirectory() as scratch:
        output([f"{build}/weft", "generate", "--model", folder, "--prompt", "a red cat", "--out", f"{scratch}/out",
                "--frames", "17", "--height", "192", "--width", "320", "--steps", "4", *options], isa)
        with open(f"{scratch}/out/prompts.jsonl", encoding="utf-8") as file:
            line = json.loads(file.readlines()[-1])
    return line["seconds"]["denoise"] / line["steps"]
