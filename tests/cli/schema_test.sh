#!/bin/bash
# weft schema: the schemas of examples/schema are current, and the examples are valid.
. "$SRC/tests/messages.sh"
. "$SRC/tests/check.sh"

schemas_are_current() {
    for file in "$SRC"/examples/schema/*.json; do
        name=$(basename "$file" .json)
        if ! "$WEFT" schema "$name" >now.json 2>log; then
            ! has_message log library-missing || continue
            fail_with log "weft schema $name"
        fi
        cmp -s now.json "$file" || fail "examples/schema/$name.json is not what the tables say now: run make docs"
    done
    [ -s now.json ] || fail "examples/schema has no schemas"
}
check schemas_are_current

unknown_name() {
    "$WEFT" schema nowhere >out 2>log
    [ $? != 0 ] && has_message log option-invalid value=nowhere "text~=plan-layout" || fail_with log "another message"
}
check unknown_name

# the first line of each example names its schema
modelines() {
    for file in "$SRC"/examples/*.yaml "$SRC"/examples/*/*.yaml; do
        schema=$(sed -n '1s/^# yaml-language-server: \$schema=//p' "$file")
        [ "$schema" ] && [ -f "$(dirname "$file")/$schema" ] || fail "$file names no schema"
    done
}
check modelines

examples_conform() {
    needs modelines
    command -v check-jsonschema >/dev/null || skip "no check-jsonschema (a Python package)"
    check-jsonschema --check-metaschema "$SRC"/examples/schema/*.json >log 2>&1 || fail_with log "a schema is none"
    for schema in train curate; do
        grep -l "^# yaml-language-server: .*schema/$schema.json" "$SRC"/examples/*.yaml "$SRC"/examples/*/*.yaml |
            xargs check-jsonschema --schemafile "$SRC/examples/schema/$schema.json" >log 2>&1 || fail_with log "an example of $schema"
    done
    sed 's/^out:/outt:/' "$SRC/examples/dit.yaml" >wrong.yaml
    ! check-jsonschema --schemafile "$SRC/examples/schema/train.json" wrong.yaml >log 2>&1 || fail "an unknown key conforms"
}
check examples_conform
finish
