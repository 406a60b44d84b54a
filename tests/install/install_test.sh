#!/bin/bash
# The files that make install writes are sufficient to use weft and to build programs with it.
set -e
. "$SRC/tests/check.sh"
case $WEFT_BUILD in */asan | */tsan) skip "the library of this build needs the sanitizers" ;; esac
root="$PWD/a root" # a folder name with a blank
make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" PREFIX="$root" install
"$root/bin/weft" --version | grep -q "^weft $(cat "$SRC/VERSION")$"
export PKG_CONFIG_PATH=$root/lib/pkgconfig
embed=$SRC/examples/embed
programs_build_by_pkg_config() {
    eval cc -std=c17 -Wall -Wextra -pedantic -Werror "$embed/embed.c" -o embed "$(pkg-config --cflags --libs weft)" '-Wl,-rpath,"$root/lib"'
    eval cc -std=c17 "$embed/embed.c" -o embed-static "$(pkg-config --cflags --libs weft-static)"
    eval c++ -std=c++17 -Wall -Wextra -pedantic -Werror "$embed/generate.cpp" -o generate "$(pkg-config --cflags --libs weft)" '-Wl,-rpath,"$root/lib"'
    ! readelf -d embed-static | grep -q libweft || { echo "weft-static.pc links the shared library"; exit 1; }
}
check programs_build_by_pkg_config
# Each header compiles alone in each language; headers include no private or foreign header.
each_header_compiles_alone() {
    installed=$(cd "$root/include/weft" && echo *)
    [ "$installed" = "core.h data.h generate.h graph.h program.h types.h weft.h" ] || { echo "installed: $installed"; exit 1; }
    for header in $installed; do
        echo "#include <weft/$header>" | tee header.c >header.cpp
        for language in "cc -std=c11" "cc -std=c17" "c++ -std=c++17"; do
            file=header.c
            [[ $language != c++* ]] || file=header.cpp
            $language -Wall -Wextra -pedantic -Werror -I"$root/include" -fsyntax-only $file || { echo "$language: $header"; exit 1; }
        done
    done
    others=$(grep -hoE '^ *# *include .*' "$root"/include/weft/*.h | sort -u | grep -vE '"weft/[a-z]+\.h"|<std(bool|def|int)\.h>' || true)
    [ -z "$others" ] || { echo "the headers include $others"; exit 1; }
}
check each_header_compiles_alone
macros_work_in_cpp() {
    cat >macros.cpp <<'END'
#include <weft/weft.h>
int main()
{
    weft_graph *g = weft_graph_create();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_DIMS(2, 3));
    const weft_value s = weft_input(g, "s", WEFT_F32, WEFT_DIM0);
    const auto options = WEFT_INIT(weft_compile_options);
    auto of_x = WEFT_INIT(weft_value_description), of_s = WEFT_INIT(weft_value_description);
    weft_output(g, "y", weft_add(g, weft_mean_all(g, x), s));
    const bool good = weft_graph_check(g) == WEFT_OK &&
                      weft_value_describe(g, x, &of_x) == WEFT_OK && of_x.shape.rank == 2 &&
                      weft_value_describe(g, s, &of_s) == WEFT_OK && of_x.shape.dim[1] == 3 &&
                      of_s.shape.rank == 0 &&
                      WEFT_NONE.id == -1 && options.size == sizeof options && !options.backend;
    weft_graph_free(g);
    return good ? 0 : 1;
}
END
    eval c++ -std=c++17 -Wall -Wextra -pedantic -Werror macros.cpp -o macros "$(pkg-config --cflags --libs weft)" '-Wl,-rpath,"$root/lib"'
    ./macros || { echo "the macros of the headers are wrong in C++"; exit 1; }
}
check macros_work_in_cpp
# The example names missing inputs.
the_example_names_missing_inputs() {
    needs programs_build_by_pkg_config
    for program in embed embed-static; do
        ! ./$program nowhere nowhere out.mp4 >embed.log 2>&1 || { echo "$program: shards that do not exist"; exit 1; }
        grep -q '^embed: .*nowhere' embed.log || { cat embed.log; exit 1; }
    done
}
check the_example_names_missing_inputs
(
    export WEFT="$root/bin/weft"
    source "$SRC/tests/train/common.sh"
    make_shards
    write_configs
    "$WEFT" train vae.yaml >train.log 2>&1 && "$WEFT" train dit.yaml >>train.log 2>&1 || { cat train.log; exit 1; }
)
the_example_trains_and_generates() {
    needs programs_build_by_pkg_config
    ./embed shards runs/dit/model out.mp4 >embed.log 2>&1 || { cat embed.log; exit 1; }
    python3 -S - <<'PY'
import re
text = open("embed.log").read()
losses = [float(x) for x in re.findall(r"step \d  loss ([\d.]+)", text)]
assert len(losses) == 3 and losses[2] < losses[0], text
assert "a step needs" in text and "generating needs" in text, text
PY
    [ "$(ffprobe -v error -count_frames -show_entries stream=nb_read_frames -of csv=p=0 out.mp4)" = 5 ] || { echo "the video does not have 5 frames"; exit 1; }
}
check the_example_trains_and_generates
# the C++ program prints its progress and writes the same kind of video
the_cpp_program_generates() {
    needs programs_build_by_pkg_config
    ./generate runs/dit/model "a red circle" cpp.mp4 >generate.log 2>&1 || { cat generate.log; exit 1; }
    grep -q "^step 4 of 4" generate.log || { cat generate.log; exit 1; }
    [ "$(ffprobe -v error -count_frames -show_entries stream=nb_read_frames -of csv=p=0 cpp.mp4)" = 5 ] || { echo "cpp.mp4 has other frames"; exit 1; }
    ! ./generate nowhere "a red circle" cpp2.mp4 >generate.log 2>&1 || { echo "generate: a model that does not exist"; exit 1; }
    grep -q '^generate: .*nowhere' generate.log || { cat generate.log; exit 1; }
}
check the_cpp_program_generates
# the man pages render
man_pages_render() {
    if command -v man >/dev/null && command -v groff >/dev/null; then
        groff -man -Tutf8 -wall "$root"/share/man/man1/weft*.1 >page 2>warnings
        [ ! -s warnings ] || { cat warnings; exit 1; }
    fi
    for verb in $("$WEFT" help --verbs); do
        [ -s "$root/share/man/man1/weft-$verb.1" ] || { echo "no man page of $verb"; exit 1; }
    done
}
check man_pages_render
completions_work() {
    if command -v zsh >/dev/null; then zsh -n "$root/share/zsh/site-functions/_weft"; fi
    if command -v fish >/dev/null; then fish -n "$root/share/fish/vendor_completions.d/weft.fish"; fi
    bash -c "
    source '$root/share/bash-completion/completions/weft'
    COMP_WORDS=(weft do) COMP_CWORD=1
    _weft
    [ \"\${COMPREPLY[*]}\" = doctor ] || { echo \"completion gives '\${COMPREPLY[*]}'\"; exit 1; }
    "
}
check completions_work
uninstall_removes_every_file() {
    make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" PREFIX="$root" uninstall >/dev/null
    [ -z "$(find "$root" -type f -o -type l)" ] || { find "$root" -type f -o -type l; exit 1; }
}
check uninstall_removes_every_file
finish
