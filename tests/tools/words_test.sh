#!/bin/bash
# Texts have at most the number of phrases of tools/words.py that tools/words.txt allows, and each
# phrase is detected.
. "$SRC/tests/check.sh"
cd "$SRC" || exit 1
check texts_have_no_more_phrases tools/words.py --check tools/words.txt
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cat >"$here/a.c" <<'C'
/* What is told of the film. */
/* of those behind it */
int a; /* by rank, which is legitimate after code */
const char *s = "a picture that lies in /* no comment */ there";
C
cat >"$here/b.sh" <<'S'
# What is told
# of the film.
#     of those
false || fail "the picture of $them is gone" # prose in code is not read: behind
S
expected="b.sh:1: [what-noun]
b.sh:1: [told]
b.sh:1: [film]
b.sh:4: [pictures]
b.sh:4: [gone]
a.c:1: [what-noun]
a.c:1: [told]
a.c:1: [film]
a.c:2: [lead-prep]
a.c:2: [of-those]
a.c:2: [behind]
a.c:4: [pictures]
a.c:4: [lies]"
every_kind_is_found() {
    local found
    found=$(tools/words.py "$here/a.c" "$here/b.sh" | sed -E "s|^$here/||; s/\\].*/]/")
    [ "$(sort <<<"$found")" = "$(sort <<<"$expected")" ] || fail "found: $found"
}
check every_kind_is_found
finish
