#!/bin/bash
# The progress line on a terminal: messages have their own lines, 100 % is shown at the end only,
# the time left is that of the denoising steps (without loading and text encoding), and decoding is
# a phase of its own.
. "$SRC/tests/check.sh"
export OMP_NUM_THREADS=1
model=$SRC/tests/golden/pipelines/wan_over
cat >terminal.py <<'PY'
import os, pty, re, sys

def run(command):
    """the bytes that the command writes to a terminal, and its status"""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    out = b""
    while True:
        try:
            part = os.read(fd, 65536)
        except OSError:  # the process closed the terminal
            break
        if not part:
            break
        out += part
    return out.decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def screen(text):
    """the lines that remain, and every progress line that was shown"""
    lines, line, shown = [], "", []
    for piece in re.split(r"(\r\n|\n|\r|\033\[K)", text):
        if piece in ("\r\n", "\n"):
            lines.append(line)
            line = ""
        elif piece == "\r":
            line = Cursor(line)
        elif piece == "\033[K":
            line = line.typed if isinstance(line, Cursor) else line
            shown += [line] if line.startswith("generate ") else []
        else:
            line = line.type(piece) if isinstance(line, Cursor) else line + piece
    return lines + [str(line)], shown

class Cursor:
    """a line whose cursor is at its beginning"""
    def __init__(self, old):
        self.old, self.typed = str(old), ""
    def type(self, piece):
        self.typed += piece
        return self
    def __str__(self):
        return self.typed + self.old[len(self.typed):]
    def __add__(self, piece):
        return self.type(piece)

text, status = run(sys.argv[1:])
assert status == 0, text
lines, shown = screen(text)
lines = [str(line) for line in lines]
for line in lines:  # a message is a complete line
    assert not (re.search("predicted (from|peak)|goes on|stopped", line) and re.search("denoising step|decoding frame", line)), line
assert any(re.fullmatch("predicted from the first two steps: .*", line) for line in lines), lines
assert any("denoising step" in line for line in shown) and any("decoding frame" in line for line in shown), shown
for line in shown:
    if "100 %" in line:
        assert "eta" not in line and "step" not in line and "frame" not in line, line
    step = re.search(r"denoising step (\d+)/(\d+), ([0-9.]+) (us|ms|s) each", line)
    left = re.search(r"  eta ([0-9.]+) (us|ms|s)$", line)
    unit = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
    if step and left:  # one video, whose decoding time is not known yet
        expected = (int(step[2]) - int(step[1])) * float(step[3]) * unit[step[4]]
        assert abs(float(left[1]) * unit[left[2]] - expected) <= 0.02 * expected, line
assert [line for line in lines if "100 %" in line], lines
PY
a_video_has_one_line_of_progress() {
    python3 terminal.py "$WEFT" generate --model "$model" --prompt x --height 64 --width 64 --frames 9 --steps 6 --out video.mp4
}
check a_video_has_one_line_of_progress
mkdir blocked.npy
an_error_has_its_own_line() {
    python3 -S - "$WEFT" "$model" <<'PY'
import sys
source = open("terminal.py").read().split("text, status")[0]
exec(source)
text, status = run([sys.argv[1], "generate", "--model", sys.argv[2], "--prompt", "x", "--height", "32", "--width", "32", "--frames", "5", "--steps", "3",
                    "--frames-npy", "--out", "blocked.mp4"])
assert status != 0, text
lines = [str(line) for line in screen(text)[0]]
assert any(line.startswith("weft generate: ") for line in lines), lines
assert not any("weft generate: " in line and "denoising step" in line for line in lines), lines
PY
}
check an_error_has_its_own_line
# As JSON, the first step and the start of decoding are shown at once: `weft serve` measures its start and its pace with both.
programs_see_every_phase() {
    WEFT_LOG=info WEFT_LOG_FORMAT=json WEFT_PROGRESS_INTERVAL=1000 "$WEFT" generate --model "$model" --prompt x --height 32 --width 32 --frames 5 \
        --steps 4 --out phases.mp4 2>phases.log || fail "generate"
    python3 -S - <<'PY' || fail "the phases"
import json
lines = [json.loads(line) for line in open("phases.log") if line.startswith("{")]
done = [line["done"] for line in lines if line["level"] == "progress" and not line["finished"]]
assert done == [1, 4], done
PY
}
check programs_see_every_phase
finish
