#!/bin/bash
# What make install puts down is enough to use weft and to build against it.
set -eu
case $WEFT_BUILD in */asan | */tsan) echo "the library of this build needs the sanitizers"; exit 77 ;; esac
root="$PWD/a root" # a blank in the folder
make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" PREFIX="$root" install
"$root/bin/weft" --version | grep -q "^weft $(cat "$SRC/VERSION")$"
cat >program.c <<'C'
#include <weft.h>
#include <stdio.h>

int main(void)
{
    weft_tensors *tensors;
    if (weft_tensors_open("/no/such/folder", &tensors) != WEFT_E_NOT_FOUND)
        return 1;
    printf("%s\n", weft_error_message());
    return strcmp(weft_dtype_name(WEFT_BF16), "bf16") != 0;
}
C
export PKG_CONFIG_PATH=$root/lib/pkgconfig
eval cc -std=c17 -Wall -Werror program.c -o program "$(pkg-config --cflags --libs weft)"
./program | grep -q /no/such/folder
# the headers name nothing outside of what was installed
! grep -rhoE '#include "[^"]+"' "$root/include/weft" | sort -u | sed 's/.*"\(.*\)"/\1/' | while read -r header; do
    [ -e "$root/include/weft/$header" ] || find "$root/include/weft" -name "$(basename "$header")" | grep -q . || echo "$header"
done | grep .
# the man page renders, the completion completes
if command -v man >/dev/null && command -v groff >/dev/null; then
    groff -man -Tutf8 -wall "$root/share/man/man1/weft.1" >page 2>warnings
    [ ! -s warnings ] || { cat warnings; exit 1; }
fi
bash -c "
source '$root/share/bash-completion/completions/weft'
COMP_WORDS=(weft do) COMP_CWORD=1
_weft
[ \"\${COMPREPLY[*]}\" = doctor ] || { echo \"completion gives '\${COMPREPLY[*]}'\"; exit 1; }
"
make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" PREFIX="$root" uninstall >/dev/null
[ -z "$(find "$root" -type f)" ] || { find "$root" -type f; exit 1; }
