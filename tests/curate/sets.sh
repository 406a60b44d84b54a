#!/bin/bash
# Videos assembled from the shared footage by tools/shot_sets.py: complete fades and long dissolves
# are found, and no shot is lost.
set -e
. "$SRC/tests/check.sh"
clips=${WEFT_SHARED:-}/videos/clips
[ -d "$clips" ] || skip "no shared footage"
mkdir footage
for name in flower.mp4 juggle.mp4 man-surfing.mp4 woman-running.mp4 car-turn.mp4; do
    ln -s "$clips/$name" footage/
done
tool=$(dirname "$WEFT_BUILD")/tools/shot_sets.py
# These seeds give 10 and 12 frames per second, which are quick to make. Without the exclusion of
# flashes from spans, and without the noise-tolerant detection of fades, the first two sets have
# five false alarms.
fades_and_dissolves_are_found() {
python3 "$tool" make footage fades --seed 6 --films 1 --kind fades >/dev/null
python3 "$tool" make footage flashes --seed 13 --films 1 --kind flash >/dev/null
python3 "$tool" make footage wipes --seed 16 --films 1 >/dev/null
python3 "$tool" make footage long --seed 10 --films 1 --kind long >/dev/null
$WEFT shots fades/*.m* flashes/*.m* >found.jsonl
python3 "$tool" score fades/shots.json flashes/shots.json found.jsonl | tee score
$WEFT shots fades/*.m* flashes/*.m* wipes/*.m* long/*.m* >found.jsonl
python3 "$tool" score {fades,flashes,wipes,long}/shots.json found.jsonl | tee -a score
python3 -S - <<'EOF'
import re
lines = [l for l in open('score').read().splitlines() if ' F1 ' in l and 'false' in l and not l.startswith('    ')]
first, all_of = (re.search(r'false (\d+) .* left (\d+)/(\d+) .* F1 ([\d.]+)', l).groups() for l in lines)
assert int(first[0]) == 0 and int(first[1]) == 0 and int(first[2]) >= 6 and float(first[3]) >= 0.98, first
assert int(all_of[1]) == 0 and float(all_of[3]) >= 0.95, all_of
EOF
}
check fades_and_dissolves_are_found
finish
