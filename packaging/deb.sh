#!/bin/sh
# packaging/deb.sh OUT: builds the Debian packages weft, libweft0 and libweft-dev into the folder OUT,
# in a copy of the source tree, and checks them with lintian where it is installed.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
for tool in dpkg-buildpackage dh lintian; do
    command -v $tool >/dev/null || {
        echo "make dist-deb needs $tool: apt-get install debhelper dpkg-dev lintian" >&2
        exit 1
    }
done
mkdir -p "$1"
out=$(cd "$1" && pwd)
version=$(cat "$source/VERSION")
# The date of the source: of the last commit, or of the file VERSION in a copy without history.
date=$(git -C "$source" log -1 --format=%cD 2>/dev/null || date -R -r "$source/VERSION")
tree=$out/weft-$version
rm -rf "$tree" "$out"/*.deb
mkdir "$tree"
(cd "$source" && tar -c --exclude=./build --exclude=./.git --exclude=./demo --exclude=./.cache .) |
    tar -x -C "$tree"
mv "$tree/packaging/debian" "$tree/debian"
cp "$source/packaging/weft.service" "$tree/debian/weft.service"
cp "$source/packaging/weft.default" "$tree/debian/weft.default"
cat >"$tree/debian/changelog" <<END
weft ($version) stable; urgency=medium

  * Version $version; /usr/share/doc/weft/changelog lists the changes.

 -- weft authors <weft-authors@users.noreply.github.com>  $date
END
cd "$tree"
export DEB_BUILD_OPTIONS="noautodbgsym parallel=${JOBS:-$(nproc)}"
if ! dpkg-buildpackage --build=binary --no-sign --no-check-builddeps >"$out/build.log" 2>&1; then
    tail -n 30 "$out/build.log" >&2
    exit 1
fi
cd "$out"
rm -rf "$tree"
lintian --allow-root --fail-on error,warning ./weft_"$version"_*.changes
ls -- *.deb
