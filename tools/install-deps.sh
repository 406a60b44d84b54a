#!/bin/sh
# Installs the Debian packages that weft needs to build and run, and with --tests those of the tests.
set -eu
build="gcc make pkg-config libc6-dev
 libavformat-dev libavcodec-dev libswscale-dev libavutil-dev
 libopenblas-openmp-dev libdnnl-dev openmpi-bin libopenmpi-dev
 libjansson-dev libyaml-dev libxxhash-dev libpng-dev
 libhwloc-dev libicu-dev"
tests="libcriterion-dev ffmpeg python3 coinor-libcbc-dev libsimgrid-dev
 clang-format-14"
wanted=$build
[ "${1-}" = --tests ] && wanted="$build $tests"
missing=
for p in $wanted; do
    dpkg-query -W -f='${db:Status-Abbrev}' "$p" 2>/dev/null | grep -q '^ii' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0
if ! command -v apt-get >/dev/null; then
    echo "install-deps: this is not a Debian system; install the equivalents of:$missing" >&2
    exit 1
fi
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
# Runs apt-get, and again while another program holds the lock of the package manager: for 10 minutes at most.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
    tries=0
    while ! DEBIAN_FRONTEND=noninteractive $sudo apt-get -o DPkg::Lock::Timeout=60 "$@" >/dev/null 2>"$log"; do
        if ! grep -qiE 'could not get lock|unable to (acquire|lock)|is another process using it' "$log" || [ $tries -ge 120 ]; then
            cat "$log" >&2
            return 1
        fi
        [ $tries -gt 0 ] || echo "install-deps: another program is using the package manager; waiting for it (up to 10 minutes)"
        tries=$((tries + 1))
        sleep 5
    done
}
echo "installing:$missing"
apt update -qq
# shellcheck disable=SC2086
apt install -y -qq --no-install-recommends $missing
