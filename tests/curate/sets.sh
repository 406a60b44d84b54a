#!/bin/bash
# Films made of footage by tools/shot_sets.py: fades are told whole, long dissolves are found, nothing swallows a shot.
set -eu
clips=${WEFT_SHARED:-}/videos/clips
[ -d "$clips" ] || { echo "no shared footage"; exit 77; }
mkdir footage
for name in cat_portrait_20s.webm coffee.mp4 flower.mp4 juggle.mp4 man-surfing.mp4 woman-running.mp4 car-turn.mp4 marathon.mp4; do
    ln -s "$clips/$name" footage/
done
tool=$(dirname "$WEFT_BUILD")/tools/shot_sets.py
python3 "$tool" make footage mixed --seed 7 --films 2 >/dev/null
python3 "$tool" make footage long --seed 7 --films 1 --kind long >/dev/null
$WEFT shots mixed/*.m* long/*.m* >found.jsonl
python3 "$tool" score mixed/shots.json long/shots.json found.jsonl | tee score
python3 - <<'EOF'
import re
line = open('score').read().splitlines()[-1]
left, fades, f1 = re.search(r'left (\d+)/(\d+) .* F1 ([\d.]+)', line).groups()
assert int(fades) >= 2 and int(left) * 4 <= int(fades) and float(f1) >= 0.9, line
EOF
