#!/bin/bash
# Parameters of the published sizes: every name and shape is the public checkpoint's.
set -u
names=$WEFT_SHARED/golden/names
[ -d "$names" ] || { echo "no list of names in $names"; exit 77; }
compared=0 failed=0
for config in "$names"/*.config.json; do
    list=${config%.config.json}.tensors.txt
    "$WEFT" inspect model "$config" --tensors >ours.txt 2>err || {
        grep -qE 'is not built in|is not supported|fit no model family' err || { cat err; failed=1; }
        continue # another family, or a switch that is refused by name
    }
    compared=$((compared + 1))
    diff <(cut -d' ' -f1,3 ours.txt | LC_ALL=C sort) <(grep -v '^#' "$list" | LC_ALL=C sort) >differs ||
        { echo "$config:"; head -5 differs; failed=1; }
done
echo "$compared configs compared"
[ $compared -ge 2 ] || failed=1
exit $failed
