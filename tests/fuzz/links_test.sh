#!/bin/bash
# `make fuzz` compiles every source that its targets need: they link.
set -e
. "$SRC/tests/check.sh"
case $WEFT_BUILD in */asan | */tsan) skip "the objects of this build need the sanitizers" ;; esac
check the_fuzz_targets_link make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" fuzz-links
finish
