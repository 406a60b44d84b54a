#!/bin/bash
# docs/reference/verbs and messages.md are what `make docs` writes now; every page has its verb.
set -u
bad=0
for verb in $("$WEFT" help --verbs); do
    "$WEFT" help --markdown "$verb" >page.md || exit 1
    if ! cmp -s page.md "$SRC/docs/reference/verbs/$verb.md"; then
        echo "docs/reference/verbs/$verb.md is not what the table says now: run make docs"
        bad=1
    fi
done
"$WEFT" explain --markdown >messages.md
if ! cmp -s messages.md "$SRC/docs/reference/messages.md"; then
    echo "docs/reference/messages.md is not what the table says now: run make docs"
    bad=1
fi
for page in "$SRC"/docs/reference/verbs/*.md; do
    "$WEFT" help --verbs | grep -qx "$(basename "$page" .md)" || { echo "$page: no such verb"; bad=1; }
done
"$WEFT" help --man >weft.1 && grep -q '^.SH weft doctor' weft.1 || bad=1
"$WEFT" help --bash >weft.bash && bash -n weft.bash || bad=1
exit $bad
