#!/bin/sh
# Installs the Debian packages that weft needs to build and run, and with --tests those of the tests.
# PACKAGE=KIND:NAME is present if dpkg lists it as installed, or if this machine has NAME: a command
# (cmd), a header (h), a module of pkg-config (pc), a compiler of Open MPI (mpi), or OpenBLAS on
# OpenMP (blas).
set -eu
build="gcc=cmd:gcc make=cmd:make cmake=cmd:cmake ninja-build=cmd:ninja pkg-config=cmd:pkg-config
 libc6-dev=h:stdio.h
 libavformat-dev=pc:libavformat libavcodec-dev=pc:libavcodec libswscale-dev=pc:libswscale
 libswresample-dev=pc:libswresample libavutil-dev=pc:libavutil
 libopenblas-openmp-dev=blas:cblas.h libdnnl-dev=h:dnnl.h
 openmpi-bin=cmd:ompi_info libopenmpi-dev=mpi:mpicc
 libjansson-dev=pc:jansson libyaml-dev=pc:yaml-0.1 libxxhash-dev=pc:libxxhash
 libpng-dev=pc:libpng libhwloc-dev=pc:hwloc libicu-dev=pc:icu-uc
 libmicrohttpd-dev=pc:libmicrohttpd libsqlite3-dev=pc:sqlite3
 libcurl4-openssl-dev=h:curl/curl.h"
tests="libcriterion-dev=h:criterion/criterion.h ffmpeg=cmd:ffmpeg python3=cmd:python3
 coinor-libcbc-dev=h:coin/Cbc_C_Interface.h libsimgrid-dev=h:simgrid/engine.h
 clang-format-14=cmd:clang-format-14 g++=cmd:c++"
wanted=$build
[ "${1-}" = --tests ] && wanted="$build $tests"
present() { # PACKAGE KIND NAME
    dpkg-query -W -f='${db:Status-Abbrev}' "$1" 2>/dev/null | grep -q '^ii' && return
    case $2 in
    cmd) command -v "$3" >/dev/null ;;
    h) echo "#include <$3>" | cc -E -x c - >/dev/null 2>&1 ;;
    pc) pkg-config --exists "$3" 2>/dev/null ;;
    mpi) "$3" --showme:version 2>/dev/null | grep -q "Open MPI" ;; # MPICH has the same commands
    blas) # where cmake/dependencies.cmake looks for it
        ls /usr/include/*/openblas-openmp/"$3" /usr/include/"$3" /usr/include/openblas/"$3" \
            /usr/local/include/"$3" 2>/dev/null | grep -q . ;;
    esac
}
missing=
for p in $wanted; do
    check=${p#*=}
    present "${p%%=*}" "${check%%:*}" "${check#*:}" || missing="$missing ${p%%=*}"
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
