#!/bin/bash
# What `make install` puts down is enough to write a program of one's own against the library.
set -eu
case $WEFT_BUILD in */asan) echo "the library of this build needs the sanitizers"; exit 77 ;; esac
make -s -C "$SRC" install O="${WEFT_BUILD#"$SRC"/}" PREFIX="$PWD/root" >install.txt
for f in bin/weft lib/libweft.a lib/pkgconfig/weft.pc include/weft/weft.h share/man/man1/weft.1 share/bash-completion/completions/weft; do
    [ -s "root/$f" ] || { echo "missing: $f"; exit 1; }
done
cat >square.c <<'C'
#include <weft.h>

#include <stdio.h>

int main(void)
{
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_program *program;
    weft_output(g, "y", weft_unary(g, WEFT_OP_SQUARE, weft_input(g, "x", WEFT_F32, WEFT_SHAPE(3))));
    if (weft_graph_check(g) || weft_program_compile(g, &(weft_program_options){0}, &program) || weft_program_bind(program, store))
        return fprintf(stderr, "%s\n", weft_error_message()), 1;
    float *x = weft_program_input(program, "x")->data;
    for (int i = 0; i < 3; i++)
        x[i] = (float)(i + 3);
    if (weft_program_run(program))
        return 1;
    printf("%g\n", ((float *)weft_program_output(program, "y")->data)[2]);
    weft_program_free(program);
    weft_store_free(store);
    weft_graph_free(g);
    return 0;
}
C
export PKG_CONFIG_PATH=$PWD/root/lib/pkgconfig
# shellcheck disable=SC2046
cc -Wall -Werror -o square square.c $(pkg-config --cflags --libs weft)
[ "$(./square)" = 25 ]
./root/bin/weft --version | grep -q "^weft"
