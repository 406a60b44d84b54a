#!/bin/bash
# What make install puts down is enough to use weft and to build against it.
set -eu
case $WEFT_BUILD in */asan | */tsan) echo "the library of this build needs the sanitizers"; exit 77 ;; esac
root="$PWD/a root" # a blank in the folder
make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" PREFIX="$root" install
"$root/bin/weft" --version | grep -q "^weft $(cat "$SRC/VERSION")$"
export PKG_CONFIG_PATH=$root/lib/pkgconfig
eval cc -std=c17 -Wall -Wextra -Werror "$SRC/examples/embed/embed.c" -o embed "$(pkg-config --cflags --libs weft)"
# a program's own headers may be called as weft's, and stand before them
mkdir -p own/base own/graph
echo '#error "not that one"' | tee own/base/status.h own/base/log.h own/base/memory.h >own/graph/graph.h
eval cc -std=c17 -Iown -fsyntax-only "$SRC/examples/embed/embed.c" "$(pkg-config --cflags weft)"
# the example says what is missing, and does with shards and a model what it promises
! ./embed nowhere nowhere out.mp4 >embed.log 2>&1
grep -q '^embed: .*nowhere' embed.log || { cat embed.log; exit 1; }
(
    export WEFT="$root/bin/weft"
    source "$SRC/tests/train/common.sh"
    make_shards
    write_configs
    "$WEFT" train vae.yaml >train.log 2>&1 && "$WEFT" train dit.yaml >>train.log 2>&1 || { cat train.log; exit 1; }
)
./embed shards runs/dit/model out.mp4 >embed.log 2>&1 || { cat embed.log; exit 1; }
python3 - <<'PY'
import re
text = open("embed.log").read()
losses = [float(x) for x in re.findall(r"step \d  loss ([\d.]+)", text)]
assert len(losses) == 3 and losses[2] < losses[0], text
assert "a step takes" in text and "generating takes" in text, text
PY
[ "$(ffprobe -v error -count_frames -show_entries stream=nb_read_frames -of csv=p=0 out.mp4)" = 5 ] || { echo "not the video that was asked for"; exit 1; }
# the headers name nothing outside of what was installed
! grep -rhoE '#include "[^"]+"' "$root/include/weft" | sort -u | sed 's/.*"\(.*\)"/\1/' | while read -r header; do
    [ -e "$root/include/weft/$header" ] || find "$root/include/weft" -name "$(basename "$header")" | grep -q . || echo "$header"
done | grep .
# the man page renders, the completion completes
if command -v man >/dev/null && command -v groff >/dev/null; then
    groff -man -Tutf8 -wall "$root/share/man/man1/weft.1" >page 2>warnings
    [ ! -s warnings ] || { cat warnings; exit 1; }
fi
bash -c "
source '$root/share/bash-completion/completions/weft'
COMP_WORDS=(weft do) COMP_CWORD=1
_weft
[ \"\${COMPREPLY[*]}\" = doctor ] || { echo \"completion gives '\${COMPREPLY[*]}'\"; exit 1; }
"
make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" PREFIX="$root" uninstall >/dev/null
[ -z "$(find "$root" -type f)" ] || { find "$root" -type f; exit 1; }
