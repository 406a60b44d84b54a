#!/bin/bash
# packaging/Dockerfile without a daemon: the image is a server whose user is not root, and the copied files exist.
# packages_test.sh executes the last stage in an empty Debian.
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
the_last_stage_is_complete() {
    python3 -S "$SRC/tests/dist/dockerfile.py" "$SRC/packaging/Dockerfile" >stage.json || fail "packaging/Dockerfile"
    # the options of the command exist, and the folder of the state is the default one
    python3 -S -c 'import json, os
stage = json.load(open("stage.json"))
assert stage["ENTRYPOINT"] == ["/usr/bin/weft"] and stage["CMD"][0] == "serve", stage
assert stage["VOLUME"] == stage["WORKDIR"] + "/serve", stage
print("\n".join(stage["CMD"]))' >words || fail "the command"
    mapfile -t command <words
    ! WEFT_LOG_FORMAT=json "$WEFT" "${command[@]}" >out 2>log || fail "a server without its model"
    has_message log model-not-found || fail_with log "another error than the absent model"
}
# bad TEXT: the Dockerfile is refused after this change of sed
bad() {
    mkdir -p x/packaging && sed "$1" "$SRC/packaging/Dockerfile" >x/packaging/Dockerfile
    ! cmp -s "$SRC/packaging/Dockerfile" x/packaging/Dockerfile || fail "$1 changes nothing"
    ! python3 -S "$SRC/tests/dist/dockerfile.py" x/packaging/Dockerfile >out 2>log || fail "accepted: $1"
}
faults_are_seen() {
    bad '/^USER/d'
    bad 's/^USER .*/USER 0:0/'
    bad '/^HEALTHCHECK/d'
    bad '/^VOLUME/d'
    bad 's/--from=build/--from=other/'
    bad 's/^COPY \. /COPY absent /'
}
check "the last stage" the_last_stage_is_complete
check "faults" faults_are_seen
finish
