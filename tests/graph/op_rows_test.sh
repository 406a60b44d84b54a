#!/bin/bash
# A row of src/graph/op.def without one of its cells does not compile. The test empties each cell of
# the row of softmax in turn, and drops the last one. It skips the names of the op and of its
# functions: without these nothing links.
. "$SRC/tests/check.sh"
cd "$SRC" || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/graph"
compiles() { "${CC:-cc}" -std=c17 -D_GNU_SOURCE -fsyntax-only -I"$dir" -Isrc -Iinclude src/graph/op.c 2>"$dir/log"; }
command -v "${CC:-cc}" >/dev/null || skip "no C compiler"
row=$(grep '^WEFT_OP(SOFTMAX,' src/graph/op.def)
cells=$(tr -cd , <<<"$row" | wc -c)
[ "$cells" -ge 20 ] || fail "the row of softmax has $cells commas"
try() { # CELL: writes op.def without this cell
    awk -v cell="$1" '/^WEFT_OP\(SOFTMAX,/ {
        sub(/^WEFT_OP\(/, ""); sub(/\)$/, ""); n = split($0, part, ","); text = ""
        for (i = 1; i <= n; i++) {
            if (cell == "last" && i == n) continue
            text = text (i > 1 ? "," : "") (i == cell ? "" : part[i])
        }
        $0 = "WEFT_OP(" text ")"
    } { print }' src/graph/op.def >"$dir/graph/op.def"
}
a_complete_row_compiles() {
    try none
    compiles || fail_with "$dir/log" "op.c does not compile"
}
a_row_without_a_cell_does_not_compile() {
    local cell
    for cell in $(seq 3 $((cells + 1))) last; do
        case $cell in 7 | 8 | 9 | 10 | 11) continue ;; esac # functions
        try "$cell"
        ! compiles || fail "a row without cell $cell compiles"
    done
}
check a_complete_row_compiles
check a_row_without_a_cell_does_not_compile
finish
