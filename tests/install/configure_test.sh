#!/bin/bash
# Flags of kernels do not depend on CFLAGS; with sanitizers kernels are compiled at -O1. If
# variables of make change, the next make runs CMake first. ctest has every test program and every script. The
# presets are valid.
. "$SRC/tests/check.sh"
set -e
unset MAKEFLAGS MAKELEVEL MFLAGS CFLAGS
flags() { # OPTIONS that a kernel, an ordinary source and one that is compiled with -O3 must have
    python3 -S - "$@" <<'PY'
import json, sys
wanted = dict(zip(("src/kernel/cpu/norm.c", "src/base/log.c", "src/video/pixels.c"), sys.argv[1:]))
commands = {c["file"]: c["command"].split() for c in json.load(open("build/compile_commands.json"))}
for file, options in wanted.items():
    command = next(c for f, c in commands.items() if f.endswith("/" + file))
    levels = [o for o in command if o.startswith("-O")]
    optimization, *others = options.split()
    assert levels[-1] == optimization, (file, levels)
    assert all(o in command for o in others), (file, others, command)
PY
}
kernel="-fno-math-errno -fno-trapping-math -ffp-contract=fast -std=c17"
mkdir bin
printf '#!/bin/sh\nexec "$@"\n' >bin/ccache
chmod +x bin/ccache
export PATH=$PWD/bin:$PATH
cflags_keep_the_flags_of_kernels() {
    make -s -C "$SRC" O="$PWD/build" CC="ccache gcc" CFLAGS="-O1 -DOWN='a b'" configure
    flags "-O3 $kernel -O1" "-O1 -std=c17" "-O3 -O1"
    grep -q "^CMAKE_C_COMPILER_LAUNCHER:.*=ccache$" build/CMakeCache.txt || fail "ccache is not the launcher"
    grep -q "^CMAKE_C_COMPILER:.*/gcc$" build/CMakeCache.txt || fail "gcc is not the compiler"
}
check cflags_keep_the_flags_of_kernels
variables_configure_again() {
    needs cflags_keep_the_flags_of_kernels
    make -s -C "$SRC" O="$PWD/build" SAN=1 CC=gcc configure
    flags "-O1 $kernel -g -fsanitize=address,undefined" "-O1 -g -fsanitize=address,undefined" "-O3 -O1"
    ! grep -q "^CMAKE_C_COMPILER_LAUNCHER:.*=ccache$" build/CMakeCache.txt || fail "ccache is still the launcher"
    before=$(stat -c %Y.%i build/build.ninja)
    make -s -C "$SRC" O="$PWD/build" SAN=1 CC=gcc configure
    [ "$(stat -c %Y.%i build/build.ninja)" = "$before" ] || fail "configured again although no variable changed"
}
check variables_configure_again
ctest_has_every_test() {
    needs cflags_keep_the_flags_of_kernels
    ctest --test-dir build -N | sed -n 's/^ *Test *#[0-9]*: //p' | sort >listed
    (
        cd "$SRC/tests"
        find . -mindepth 2 -maxdepth 3 -name '*.sh' -perm -u=x -printf '%P\n'
        find . -mindepth 2 -maxdepth 3 -name '*_test.c' -printf '%h\n' | sed 's,^\./,,' | sort -u
    ) | sort >expected
    diff expected listed || fail "ctest has other tests than tests/"
    for label in unit script ranks; do
        [ "$(ctest --test-dir build -N -L "$label" | sed -n 's/^Total Tests: //p')" -gt 0 ] || fail "no test has the label $label"
    done
    [ "$(ctest --test-dir build -N -C Long -L long | sed -n 's/^Total Tests: //p')" = 1 ] || fail "no test has the label long"
}
check ctest_has_every_test
presets_are_valid() {
    for preset in release debug asan tsan; do
        (cd "$SRC" && cmake --list-presets=all) | grep -q "\"$preset\"" || fail "no preset $preset"
    done
}
check presets_are_valid
finish
