# shellcheck shell=bash
# Checks of messages by the id of their class and their fields, never by their wording. Source it:
#   . "$SRC/tests/messages.sh"
# Messages on standard error are lines of JSON from here on (WEFT_LOG_FORMAT=json).
export WEFT_LOG_FORMAT=json

# has_message FILE ID [FIELD=VALUE...]: a line of FILE is a message of this class with these fields.
# Fields are file, line, key, value, rank, level, verb, the fields of the member "details", and
# `process`: the rank that printed the message, under mpirun --tag-output. ID and VALUE are patterns
# of the shell: key='*frames'. `FIELD=` (no value): the field is empty, or the message has no such
# field.
# file=NAME also matches a path that ends with /NAME. `text~=WORD` (a figure or name that the user
# must see) is a part of the message.
has_message() { messages_of has "$@"; }
# count_messages FILE ID [FIELD=VALUE...]: prints the number of such messages.
count_messages() { messages_of count "$@"; }
# message_field FIELD FILE ID [FIELD=VALUE...]: prints a field of the last such message.
message_field() { messages_of "$@"; }
# message_mib FILE ID [FIELD=VALUE...]: prints the value of the last such message, bytes, in MiB.
message_mib() { messages_of mib "$@"; }
# message_size FILE ID [FIELD=VALUE...]: the same as weft prints it: 406.94 KiB.
message_size() { messages_of size "$@"; }
messages_of() {
    python3 -IS - "$@" <<'PYTHON'
import fnmatch, json, re, sys
what, path, ident, fields = *sys.argv[1:4], [f.partition("=") for f in sys.argv[4:]]
def text_of(value):
    if not isinstance(value, float):
        return str(value)
    return "%g" % value if abs(value) < 1e5 else "%d" % value # bytes are whole
def field_of(message, name):
    return message.get(name, message.get("details", {}).get(name, ""))
def fits(name, has, wanted):
    return has == wanted or fnmatch.fnmatchcase(has, wanted) or \
        name == "file" and has.endswith("/" + wanted)
def matches(message):
    if not fnmatch.fnmatchcase(message["id"], ident):
        return False
    for name, _, wanted in fields:
        if name == "text~":
            if wanted not in message["message"]:
                return False
            continue
        if not fits(name, text_of(field_of(message, name)), wanted):
            return False
    return True
messages = []
for line in open(path, errors="replace"):
    try:
        message = json.loads(line[line.index("{"):]) # the launcher may have put a rank before it
    except ValueError:
        continue
    if isinstance(message, dict) and "id" in message:
        tag = re.match(r"\[\d+,(\d+)\]<", line)
        messages.append(dict(message, process=tag.group(1) if tag else ""))
found = [m for m in messages if matches(m)]
if what == "count":
    print(len(found))
elif not found:
    print("%s: no message %s" % (path, " ".join(sys.argv[3:])), file=sys.stderr)
    for m in messages[-20:]:
        print("  " + json.dumps(m), file=sys.stderr)
    sys.exit(1)
elif what == "size":
    size, units = found[-1]["value"], ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    print("%.2f %s" % (size, units[0]))
elif what == "mib":
    print("%.2f" % (found[-1]["value"] / (1 << 20)))
elif what != "has":
    print(text_of(field_of(found[-1], what)))
PYTHON
}

# take_message ID [FIELD=VALUE...] -- ARGUMENTS...: for functions with a message as argument. Sets
# the
# array `wanted` (id and fields) and the array `rest` (the arguments).
take_message() {
    wanted=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do wanted+=("$1"); shift; done
    rest=("${@:2}")
}

# expect_error ID [FIELD=VALUE...] -- COMMAND...: the command fails, and its error has this class and
# these fields. Its standard error is left in ./error.log.
expect_error() {
    take_message "$@"
    if "${rest[@]}" >error.out 2>error.log; then
        echo "succeeded although it should fail with ${wanted[0]}: ${rest[*]}"
        return 1
    fi
    has_message error.log "${wanted[@]}" level=error || { echo "  of: ${rest[*]}"; return 1; }
}

# is_progress FILE [TITLE]: whether it has a line of progress, of work of this title (generate, train).
is_progress() {
    grep -q "\"level\":\"progress\",\"title\":\"${2-}" "$1"
}
