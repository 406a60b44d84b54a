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
"$WEFT" help --man >weft.1 && grep -q '^.BR weft.-doctor (1)' weft.1 || bad=1
"$WEFT" help --man train >weft-train.1 && grep -q '^  optimizer' weft-train.1 || bad=1
for shell in bash zsh fish; do
    "$WEFT" help --$shell >weft.$shell || bad=1
    ! command -v $shell >/dev/null || $shell -n weft.$shell || bad=1
done
exit $bad
