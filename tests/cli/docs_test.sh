#!/bin/bash
# docs/reference/verbs and messages.md are what `make docs` writes now; every page has its verb.
. "$SRC/tests/check.sh"
pages_of_verbs() {
    local verb page
    for verb in $("$WEFT" help --verbs); do
        "$WEFT" help --markdown "$verb" >page.md || fail "weft help --markdown $verb"
        cmp -s page.md "$SRC/docs/reference/verbs/$verb.md" ||
            fail "docs/reference/verbs/$verb.md is not what the table says now: run make docs"
    done
    for page in "$SRC"/docs/reference/verbs/*.md; do
        "$WEFT" help --verbs | grep -qx "$(basename "$page" .md)" || fail "$page: no such verb"
    done
}
page_of_messages() {
    "$WEFT" explain --markdown >messages.md
    cmp -s messages.md "$SRC/docs/reference/messages.md" ||
        fail "docs/reference/messages.md is not what the table says now: run make docs"
}
man_pages() {
    "$WEFT" help --man >weft.1 && grep -q '^.BR weft.-doctor (1)' weft.1 || fail "weft.1"
    "$WEFT" help --man train >weft-train.1 && grep -q '^  optimizer' weft-train.1 || fail "weft-train.1"
}
completions() {
    local shell
    for shell in bash zsh fish; do
        "$WEFT" help --$shell >weft.$shell || fail "weft help --$shell"
        ! command -v $shell >/dev/null || $shell -n weft.$shell || fail "$shell does not read weft.$shell"
    done
}
check pages_of_verbs
check page_of_messages
check man_pages
check completions
finish
