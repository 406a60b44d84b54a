#!/bin/bash
# The sources that `make fuzz` compiles are all that its targets need.
set -eu
case $WEFT_BUILD in */asan | */tsan) echo "the objects of this build need the sanitizers"; exit 77 ;; esac
make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" fuzz-links
