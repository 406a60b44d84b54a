#!/bin/bash
# The first screen of each verb fits a terminal, and its sections have every option and config key.
. "$SRC/tests/messages.sh"
. "$SRC/tests/check.sh"

# the names that completion offers after --help
sections() { # VERB
    bash -c '. ./weft.bash; _weft_words sections "$1"' - "$1"
}
# options and config keys of a section, one per line
names_in() { # FILE...
    sed -nE 's/^  (--)?([a-zA-Z0-9_.-]+)( .*)?$/\1\2/p' "$@" | sort -u
}
# options and config keys of a verb's page
names_of() { # VERB
    "$WEFT" help --markdown "$1" >page.md
    sed -nE 's/^\| `(--[a-z0-9-]+).*/\1/p' page.md
    sed -n '/^## Config/,/^## [^C]/p' page.md | sed -nE 's/^\| `([a-zA-Z0-9_.]+)` \|.*/\1/p'
}

first_screen() { # VERB
    "$WEFT" "$1" --help >first || fail "weft $1 --help fails"
    [ "$(wc -l <first)" -le 40 ] || fail "weft $1 --help has $(wc -l <first) lines"
    [ "$(wc -L <first)" -le 80 ] || fail "weft $1 --help has $(wc -L <first) columns"
    for name in $(sections "$1"); do
        case $name in
        all | options) ;;
        *) grep -qE "(^|[ ,])$name([ ,]|$)" first || fail "the first screen does not name the section $name" ;;
        esac
    done
}

all_names_are_reachable() { # VERB
    local names config=
    names=$(sections "$1")
    [ -n "$names" ] || fail "completion offers no sections"
    [ -z "$(tr ' ' '\n' <<<"$names" | sort | uniq -d)" ] || fail "two sections of one name: $names"
    # these have the config of `weft train`, which is checked there
    case $1 in inspect | profile) config=yes ;; esac
    names_of "$1" | sort -u >expected
    "$WEFT" "$1" --help all >all || fail "weft $1 --help all fails"
    names_in all >found
    comm -23 expected found >missing
    [ ! -s missing ] || fail "not in --help all: $(tr '\n' ' ' <missing)"
    : >union
    for name in $names; do
        [ "$name" != all ] || continue
        [ -z "$config" ] || "$WEFT" help --markdown "$1" | grep -q "^### $name$" || [ "$name" = options ] || continue
        "$WEFT" "$1" --help "$name" >section || fail "weft $1 --help $name fails"
        [ -s section ] || fail "weft $1 --help $name is empty"
        cat section >>union
    done
    names_in union >found
    [ -z "$config" ] || sed -i '/^--/!d' expected
    comm -23 expected found >missing
    [ ! -s missing ] || fail "in no section: $(tr '\n' ' ' <missing)"
}

unknown_section() { # VERB
    WEFT_LOG_FORMAT=json "$WEFT" "$1" --help no-such-section >out 2>&1
    [ $? = 2 ] || fail "status $?"
    has_message out option-invalid key=--help value=no-such-section "text~=options" || fail_with out "another message"
}

"$WEFT" help --bash >weft.bash
for verb in $("$WEFT" help --verbs); do
    check "first_screen_of_$verb" first_screen "$verb"
    check "all_names_of_${verb}_are_reachable" all_names_are_reachable "$verb"
    check "unknown_section_of_$verb" unknown_section "$verb"
done

sections_in_sections() {
    "$WEFT" train --help parallel.cascades >section.txt || fail "a nested section"
    grep -q '^  parallel.cascades.plan' section.txt || fail "the keys of a nested section"
    ! grep -q '^  parallel.zero' section.txt || fail "keys of the section around a nested one"
    "$WEFT" train --help transformer | grep -q '^  transformer.lora.rank' || fail "keys of sections in a section"
    "$WEFT" train --help stages.N.buckets >with || fail "items of a list"
    "$WEFT" train --help stages.buckets | cmp -s - with || fail "items of a list without .N"
}
check sections_in_sections

entries_of_tables() {
    "$WEFT" train --help WanTransformer3DModel | grep -q '^  num_attention_heads' || fail "the fields of a class"
}
check entries_of_tables

forms_of_the_option() {
    "$WEFT" help train data | grep -q '^  data.fps' || fail "weft help VERB SECTION"
    "$WEFT" train x.yaml --help=data | grep -q '^  data.fps' || fail "--help=SECTION"
}
check forms_of_the_option

complete_words() {
    bash -c '. ./weft.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weft; echo "${COMPREPLY[*]}"' - "$@"
}
completion() {
    [ "$(complete_words weft gener)" = generate ] || fail "a verb"
    [ "$(complete_words weft generate --steps)" = "--steps" ] || fail "an option"
    [ "$(complete_words weft generate --help guid)" = guidance ] || fail "a section"
    [ "$(complete_words weft plan ca)" = cascades ] || fail "the first word of a usage"
    [ "$(complete_words weft serve --policy sr)" = srpt ] || fail "the value of an option"
    [ "$(complete_words weft train x.yaml --set precis)" = precision= ] || fail "a key"
    [ "$(complete_words weft train x.yaml --set precision =)" = "f32 bf16 auto tf32" ] || fail "the values of a key"
    [ "$(complete_words weft estimate x.yaml --set passes.fuse = t)" = true ] || fail "a key of two verbs"
}
check completion
finish
