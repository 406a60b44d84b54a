#!/bin/bash
# Schedules, the trajectories of every sampler and the formulas agree with the reference. A golden
# file with one changed value fails, and an unsupported solver is refused by name.
set -e
. "$SRC/tests/check.sh"
. "$SRC/tests/messages.sh"
for json in "$SRC"/tests/golden/sched_*.json; do check "$(basename "$json" .json)" "$WEFT" parity "$json"; done
golden=${WEFT_SHARED:-/nonexistent}/golden
[ -f "$golden/formulas_a.json" ] || finish
for json in "$golden"/sched_*.json "${golden}3"/sched_*.json "$golden"/formulas_*.json; do check "$(basename "$json" .json)" "$WEFT" parity "$json"; done
python3 -S - "$golden" <<'PY'
import json, shutil, struct, sys
golden = sys.argv[1]
def changed(name, tensor, delta, kind):
    data = bytearray(open(f"{golden}/{name}.safetensors", "rb").read())
    n = struct.unpack("<Q", data[:8])[0]
    at = 8 + n + json.loads(data[8:8 + n])[tensor]["data_offsets"][1] - struct.calcsize(kind)
    data[at:at + struct.calcsize(kind)] = struct.pack(kind, struct.unpack(kind, data[at:at + struct.calcsize(kind)])[0] + delta)
    open(f"{name}_changed.safetensors", "wb").write(data)
    shutil.copy(f"{golden}/{name}.json", f"{name}_changed.json")
changed("sched_unipc_a", "run0.trajectory", 1e-3, "<f")
changed("sched_ddim_a", "run1.timesteps", 1, "<q")
changed("formulas_a", "guide.apg", 1e-3, "<f")
ask = json.load(open(f"{golden}/sched_unipc_a.json"))
ask["runs"][0]["config"]["solver_p"] = "DDIM"
json.dump(ask, open("refused.json", "w"))
shutil.copy(f"{golden}/sched_unipc_a.safetensors", "refused.safetensors")
PY
a_changed_value_is_detected() { # NAME
    local name=$1
    if "$WEFT" parity ${name}_changed.json >/dev/null 2>&1; then
        fail "$name with a changed value passed"
    fi
}
for name in sched_unipc_a sched_ddim_a formulas_a; do check "a_changed_value_is_detected_$name" a_changed_value_is_detected $name; done
an_unknown_solver_is_refused() {
    if "$WEFT" parity refused.json 2>err; then
        fail "an unsupported solver_p is accepted"
    fi
    has_message err '*' level=error text~=solver_p
}
check an_unknown_solver_is_refused
finish
