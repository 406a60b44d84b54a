#!/bin/bash
# tools/arm64-root.sh DIR: unpacks into DIR Debian's arm64 libraries that the tests of `make
# test-arm64` need. Nothing is installed: apt only selects and downloads the packages, with lists
# and a cache next to DIR.
set -euo pipefail
root=$1
command -v qemu-aarch64-static >/dev/null || { echo "make test-arm64 needs the emulator: apt-get install qemu-user-static"; exit 1; }
work=$(mkdir -p "$root.apt" && cd "$root.apt" && pwd)
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$root"
touch "$work/status"
cat >"$work/apt.conf" <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State "$work";
Dir::State::lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
CONF
export APT_CONFIG=$work/apt.conf
apt-get -q update >"$work/log" 2>&1 || { tail "$work/log"; exit 1; }
apt-get -q -y -d --no-install-recommends install libc6 libc6-dev libgomp1 libstdc++6 libdnnl-dev libopenblas-openmp-dev libjansson-dev \
    libyaml-dev libxxhash-dev >>"$work/log" 2>&1 || { tail "$work/log"; exit 1; }
for package in "$work"/cache/archives/*.deb; do
    dpkg -x "$package" "$root"
done
