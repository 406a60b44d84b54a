#!/bin/bash
# docs/verbs is what `make docs` writes now, and every page has its verb.
set -u
bad=0
for verb in $("$WEFT" help --verbs); do
    "$WEFT" help --markdown "$verb" >page.md || exit 1
    if ! cmp -s page.md "$SRC/docs/verbs/$verb.md"; then
        echo "docs/verbs/$verb.md is not what the table says now: run make docs"
        bad=1
    fi
done
for page in "$SRC"/docs/verbs/*.md; do
    "$WEFT" help --verbs | grep -qx "$(basename "$page" .md)" || { echo "$page: no such verb"; bad=1; }
done
"$WEFT" help --man >weft.1 && grep -q '^.SH weft doctor' weft.1 || bad=1
"$WEFT" help --bash >weft.bash && bash -n weft.bash || bad=1
exit $bad
