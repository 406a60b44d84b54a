#!/bin/bash
# tools/install-deps.sh waits while another program holds the lock of the package manager, and
# reports other failures. With or without dpkg, it installs no package that is present. make test
# and make demo run it first.
. "$SRC/tests/check.sh"
set -e
fail() { cat log; echo "FAILED: $*"; exit 1; }
unset MAKEFLAGS MAKELEVEL MFLAGS
mkdir bin
export CALLS=$PWD/calls
printf '#!/bin/sh\nexit 1\n' | tee bin/dpkg-query >bin/cc # dpkg lists no package, no header is found
printf '#!/bin/sh\n[ "$1" = --version ] && echo 1.8.1\n' >bin/pkg-config # and no library is found
printf '#!/bin/sh\nexit 0\n' >bin/sleep
printf '#!/bin/sh\nexec "$@"\n' >bin/sudo
cat >bin/apt-get <<'EOF'
#!/bin/sh
echo "$*" >>"$CALLS"
[ "$(wc -l <"$CALLS")" -gt "$BUSY" ] && exit "$STATUS"
echo "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 1 (apt-get)" >&2
exit 100
EOF
chmod +x bin/*
run() { PATH=$PWD/bin:$PATH BUSY=$1 STATUS=$2 "${tool[@]}" >log 2>&1; }
tool=("$SRC/tools/install-deps.sh")
it_waits_for_a_busy_package_manager() {
    run 3 0 || fail "a busy package manager ends the installation"
    [ "$(wc -l <calls)" = 5 ] || fail "expected 5 calls of apt-get: three that fail, update and install"
    grep -q "waiting for it" log || fail "waiting is not reported"
}
check it_waits_for_a_busy_package_manager
failures_are_reported() {
    rm -f calls
    ! run 100000 0 || fail "it succeeds although the lock is never released"
    grep -q "Could not get lock" log || fail "the reason is not printed"
    rm calls
    ! run 0 100 || fail "a failure of apt-get is not reported"
}
check failures_are_reported
# On a machine without the libraries, test and demo install first, and plain make names them.
test_and_demo_install_first() {
    for goal in test demo; do
        rm -f calls
        tool=(make -C "$SRC" O="$PWD/fresh" "$goal")
        ! run 0 100 || fail "make $goal succeeds although nothing can be installed"
        grep -q "^installing:.* libjansson-dev" log && grep -q update calls || fail "make $goal does not install"
        ! grep -q "not found:" log || fail "make $goal stops before it installs"
    done
    ! [ -e fresh ] || fail "make configures before the libraries are installed"
    rm -f calls
    rm bin/cc # CMake needs a compiler before it looks for libraries
    tool=(make -C "$SRC" O="$PWD/fresh")
    ! run 0 0 || fail "make succeeds without libraries"
    grep -q 'not found: libavformat .* jansson .*On Debian 12, `make deps` installs every package' log || fail "make does not name the missing libraries"
    ! [ -e calls ] || fail "plain make installs"
}
check test_and_demo_install_first
make_names_a_missing_cmake() {
    mkdir path
    ln -s "$(command -v make)" "$(command -v cc)" "$(command -v sh)" "$(command -v nproc)" path
    tool=(env PATH="$PWD/path" make -C "$SRC" O="$PWD/fresh")
    ! run 0 0 || fail "make succeeds without cmake"
    grep -q 'not found: cmake. On Debian 12, `make deps` installs every package' log || fail "make does not name cmake"
}
check make_names_a_missing_cmake
# Whether dpkg knows the packages or not, the package manager is not called.
packages_that_are_present_are_not_installed() {
    rm -f bin/pkg-config bin/cc calls
    tool=("$SRC/tools/install-deps.sh" --tests)
    run 0 100 || fail "packages that are present are installed"
    ! [ -e calls ] || fail "the package manager was called although nothing is missing"
}
check packages_that_are_present_are_not_installed
finish
