#!/bin/bash
# Films made of footage by tools/shot_sets.py: fades are told whole, long dissolves are found, nothing swallows a shot.
set -eu
clips=${WEFT_SHARED:-}/videos/clips
[ -d "$clips" ] || { echo "no shared footage"; exit 77; }
mkdir footage
for name in flower.mp4 juggle.mp4 man-surfing.mp4 woman-running.mp4 car-turn.mp4; do
    ln -s "$clips/$name" footage/
done
tool=$(dirname "$WEFT_BUILD")/tools/shot_sets.py
# Seeds whose films are of 10 and 12 frames a second, so that they are made soon: cuts, fades, dissolves; wipes; long dissolves.
python3 "$tool" make footage fades --seed 15 --films 1 >/dev/null
python3 "$tool" make footage wipes --seed 16 --films 1 >/dev/null
python3 "$tool" make footage long --seed 10 --films 1 --kind long >/dev/null
$WEFT shots fades/*.m* wipes/*.m* long/*.m* >found.jsonl
python3 "$tool" score fades/shots.json wipes/shots.json long/shots.json found.jsonl | tee score
python3 - <<'EOF'
import re
line = open('score').read().splitlines()[-1]
left, fades, f1 = re.search(r'left (\d+)/(\d+) .* F1 ([\d.]+)', line).groups()
assert int(fades) >= 4 and int(left) * 4 <= int(fades) and float(f1) >= 0.9, line
EOF
