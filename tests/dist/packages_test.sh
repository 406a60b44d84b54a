#!/bin/bash
# The Debian packages, the tree and the wheel, each installed in an empty Debian 12, generate a video there.
# The image of a container serves. Needs root, the package archive and half an hour of processor time: `make test-long`. The tools are
# debootstrap, debhelper, lintian, patchelf and uv.
# WEFT_DIST_ROOT names a root that debootstrap made with python3, to be copied instead.
. "$SRC/tests/check.sh"
[ "${WEFT_TEST_LONG-}" ] || skip "make test-long runs it"
[ "$(id -u)" = 0 ] || skip "only root can change the root folder"
for tool in debootstrap dh lintian patchelf; do
    command -v $tool >/dev/null || skip "no $tool"
done
case $WEFT_BUILD in */asan | */tsan) skip "an instrumented build is not a release" ;; esac
dist=$WEFT_BUILD/dist

# in_root ROOT COMMAND...: with /proc, without which the loader cannot resolve $ORIGIN; unmounted at the end
in_root() {
    unshare --mount sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"' "$@"
}
new_root() { # NAME: an empty Debian 12 with a model in /model
    cp -a base "$1" && cp -r runs/dit/model "$1/model"
}
generates() { # ROOT WEFT
    in_root "$1" "$2" --version | grep -qx "weft $(cat "$SRC/VERSION")" || fail "$2 --version"
    in_root "$1" "$2" generate --model /model --prompt "a red circle" --steps 2 --out /out.mp4 >log 2>&1 || fail_with log "$2 generate"
    [ "$(ffprobe -v error -count_frames -show_entries stream=nb_read_frames -of csv=p=0 "$1/out.mp4")" = 5 ] || fail "the video does not have 5 frames"
}

a_model_and_a_root() {
    (
        . "$SRC/tests/train/common.sh"
        make_shards
        write_configs
        "$WEFT" train vae.yaml && "$WEFT" train dit.yaml
    ) >log 2>&1 || fail_with log "no model"
    if [ "${WEFT_DIST_ROOT-}" ]; then
        cp -a "$WEFT_DIST_ROOT" base
    else
        debootstrap --variant=minbase --include=python3 bookworm base >log 2>&1 || fail_with log "debootstrap"
    fi
    "$WEFT" generate --model runs/dit/model --prompt "a red circle" --steps 2 --out here.mp4 >log 2>&1 || fail_with log "weft generate"
}
check a_model_and_a_root

debian_packages() {
    needs a_model_and_a_root
    make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" dist-deb >log 2>&1 || fail_with log "make dist-deb"
    new_root deb
    cp "$dist"/*.deb deb/tmp
    in_root deb sh -c 'apt-get update && apt-get install -y --no-install-recommends /tmp/*.deb' >log 2>&1 || fail_with log "apt-get install"
    generates deb weft
    for file in usr/share/man/man1/weft-train.1.gz lib/systemd/system/weft.service etc/default/weft usr/include/weft/weft.h; do
        [ -e "deb/$file" ] || fail "no /$file"
    done
    printf '#include <stdio.h>\n#include <weft/weft.h>\nint main(void) { return puts(weft_version()) < 0; }\n' >deb/root/p.c
    in_root deb apt-get install -y --no-install-recommends gcc libc6-dev pkg-config >log 2>&1 || fail_with log "a compiler"
    # shellcheck disable=SC2016 # in the root
    in_root deb sh -c 'cd /root && gcc -Wall -Werror p.c $(pkg-config --cflags --libs weft) -o p && ./p' >log 2>&1 || fail_with log "a program with libweft-dev"
    [ "$(cat log)" = "$(cat "$SRC/VERSION")" ] || fail_with log "another version"
    in_root deb apt-get purge -y weft libweft-dev libweft0 >log 2>&1 || fail_with log "apt-get purge"
    [ -z "$(find deb -xdev \( -path deb/tmp -o -path deb/model \) -prune -o -name '*weft*' -print | grep -v /var/)" ] || fail "files remain"
}
check debian_packages
rm -rf deb

serve_in_image() { # in namespaces of its own: port 8080 of the machine stays free
    python3 -S -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 0x41))' && mount -t proc proc image/proc || return 1
    "${run[@]}" "${entry[@]}" serve --new-token someone >/dev/null || return 1
    : >image.log
    "${run[@]}" "${entry[@]}" "${command[@]}" >image.log 2>&1 &
    local server=$!
    until "${run[@]}" "${probe[@]}"; do kill -0 "$server" && sleep 0.1 || return 1; done
    kill "$server"
    wait "$server"
    [ $? = 130 ] || return 1
    ! "${run[@]}" "${probe[@]}" # no server answers any more
}
# The last stage of packaging/Dockerfile, without a daemon.
an_image() {
    needs debian_packages
    python3 -S "$SRC/tests/dist/dockerfile.py" "$SRC/packaging/Dockerfile" >stage.json || fail "packaging/Dockerfile"
    new_root image
    mkdir -p image/packages image/data/runs/dit
    cp "$dist"/weft_*.deb image/packages
    mv image/model image/data/runs/dit/model
    of() { python3 -S -c 'import json, sys; v = json.load(open("stage.json"))[sys.argv[1]]; print("\n".join(v if isinstance(v, list) else [v]))' "$1"; }
    while read -r line; do in_root image sh -c "$line" >log 2>&1 || fail_with log "$line"; done < <(of RUN)
    local user health run entry command probe
    user=$(of USER) health=WEFT_HEALTH=$(python3 -S -c 'import json; print(json.load(open("stage.json"))["ENV"]["WEFT_HEALTH"])')
    mapfile -t entry < <(of ENTRYPOINT)
    mapfile -t command < <(of CMD)
    mapfile -t probe < <(of HEALTHCHECK)
    # as the user of the image, in its folder
    # shellcheck disable=SC2016 # in the root
    run=(chroot --userspec="$user" image env -i HOME=/data PATH=/usr/bin:/bin "$health" sh -c 'cd /data && exec "$@"' sh)
    unshare --mount --net bash -c "$(declare -f serve_in_image; declare -p run entry command probe); serve_in_image" >log 2>&1 ||
        fail_with log "$(cat image.log) weft serve in the image"
    [ "$(stat -c %u:%g image/data/serve/queue.sqlite)" = "$user" ] || fail "the queue belongs to another user"
}
check an_image
rm -rf image

a_tree() {
    needs a_model_and_a_root
    make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" dist-tar >log 2>&1 || fail_with log "make dist-tar"
    new_root tar
    mkdir "tar/opt/a folder"
    tar -C "tar/opt/a folder" --strip-components=1 -xf "$dist"/weft-*.tar.* || fail "no archive"
    generates tar "/opt/a folder/bin/weft"
    cmp here.mp4 tar/out.mp4 || fail "the tree generates another video"
    [ -z "$(in_root tar ldd "/opt/a folder/bin/weft" | grep 'not found')" ] || fail "a library is missing"
    [ "$(ls "tar/opt/a folder/share/doc/weft/licenses" | wc -l)" -gt 50 ] || fail "licenses are missing"
}
check a_tree
rm -rf tar

a_wheel() {
    needs a_model_and_a_root
    command -v uv >/dev/null || skip "no uv (a Python package)"
    make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" dist-wheel >log 2>&1 || fail_with log "make dist-wheel"
    new_root wheel
    cp "$(command -v uv)" wheel/usr/bin
    cp "$dist"/*.whl wheel/tmp
    in_root wheel sh -c 'uv tool install --offline --no-index /tmp/*.whl' >log 2>&1 || fail_with log "uv tool install"
    generates wheel /root/.local/bin/weft
    cmp here.mp4 wheel/out.mp4 || fail "the wheel generates another video"
}
check a_wheel
finish
