#!/bin/bash
# The configs in examples/models have as many parameters as the paper says, within one in a hundred; of a mixture's, those at work within three.
. "$SRC/tests/check.sh"
sizes_are_those_of_the_paper() {
    python3 -S - "$WEFT" "$SRC/examples/models" <<'PY'
import math, os, subprocess, sys
weft, folder = sys.argv[1:]
said = {"aquarius-2b": (2e9, None), "aquarius-13.4b": (13.4e9, None), "aquarius-moe-10b-a1.7b": (10e9, 1.7e9)}
assert sorted(os.listdir(folder)) == sorted(f"{name}.json" for name in said), os.listdir(folder)
for name, (params, active) in said.items():
    listing = subprocess.run([weft, "inspect", "model", f"{folder}/{name}.json", "--tensors"], check=True, capture_output=True, text=True).stdout
    total = routed = 0
    for line in listing.splitlines():
        tensor, _, shape = line.split()
        count = math.prod(map(int, shape.split(",")))
        total += count
        routed += count if ".experts." in tensor else 0
    at_work = total - routed * 58 // 64
    print(f"{name}: {total:,} parameters, {100 * (total / params - 1):+.1f} % of the paper's; {at_work:,} at work")
    assert abs(total / params - 1) < 0.01
    assert not active or abs(at_work / active - 1) < 0.03
PY
}
check sizes_are_those_of_the_paper
finish
