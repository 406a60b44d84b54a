#!/bin/bash
# A CMake project finds the installed weft and links its shared and its static library. The
# folders of the installation and of the project have blanks in their names.
set -e
. "$SRC/tests/check.sh"
case $WEFT_BUILD in */asan | */tsan) skip "the library of this build needs the sanitizers" ;; esac
prefix="/opt/a prefix"
stage="$PWD/a stage"
make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" DESTDIR="$stage" PREFIX="$prefix" install
lib=$stage$prefix/lib

# The shared library: its name, and its symbols.
the_shared_library_exports_the_headers() {
    [ "$(readlink "$lib/libweft.so")" = libweft.so.0 ] || fail "libweft.so is not a link to libweft.so.0"
    readelf -d "$lib/libweft.so" | grep -q 'SONAME.*\[libweft.so.0\]' || fail "the SONAME is not libweft.so.0"
    nm -D --defined-only "$lib/libweft.so" | awk '{print $3}' | LC_ALL=C sort >symbols
    python3 "$SRC/tools/public_functions.py" | LC_ALL=C sort >public
    [ "$(wc -l <public)" -ge 120 ] && [ "$(wc -l <public)" -le 130 ] ||
        fail "the headers declare $(wc -l <public) functions; 120 to 130 are for programs that embed weft"
    diff public symbols || fail "libweft.so does not export exactly the functions of the headers; run tools/public_functions.py --map"
}
check the_shared_library_exports_the_headers
# A program that uses every function links against the shared library, in C and in C++.
every_public_function_links() {
    needs the_shared_library_exports_the_headers
    {
        printf '#include <weft/weft.h>\ntypedef void function(void);\nfunction *const every[] = {\n'
        sed 's/.*/    (function *)&,/' public
        printf '};\nint main(void)\n{\n    for (unsigned i = 0; i < sizeof every / sizeof *every; i++)\n'
        printf '        if (!every[i])\n            return 1;\n    return 0;\n}\n'
    } | tee every.c >every.cpp
    for compiler in "cc -std=c17" "c++ -std=c++17"; do
        [[ $compiler == c++* ]] && source=every.cpp || source=every.c
        $compiler -Wall -Wextra -Wno-cast-function-type -Werror -I"$stage$prefix/include" $source \
            -o every -L"$lib" -lweft -Wl,-rpath,"$lib" || fail "$compiler: a public function does not link"
        readelf -d every | grep -q 'NEEDED.*\[libweft.so.0\]' || fail "$compiler: the program has no libweft.so.0"
        ./every || fail "$compiler: a public function has no address"
    done
}
check every_public_function_links
the_library_page_is_up_to_date() {
    python3 "$SRC/tools/public_functions.py" --markdown | diff - "$SRC/docs/reference/library.md" ||
        fail "docs/reference/library.md is out of date: tools/public_functions.py --markdown writes it"
}
check the_library_page_is_up_to_date
# The Debian packages have every installed file, once.
every_file_is_in_one_debian_package() {
    (cd "$stage$prefix" && find . -type f -o -type l) | sed -e 's|^\./lib/|usr/lib/multiarch/|' -e 's|^\./|usr/|' >files
    while read -r file; do
        packages=
        for list in "$SRC"/packaging/debian/*.install; do
            while read -r pattern to; do
                # shellcheck disable=SC2254 # a pattern
                case $file in $pattern | $pattern/*) packages="$packages $(basename "$list" .install)" ;; esac
            done <"$list"
        done
        [ "$(wc -w <<<"$packages")" = 1 ] || fail "packaging/debian: $file belongs to the packages '$packages'"
    done <files
    [ "$(wc -l <files)" -gt 20 ] || fail "few files are installed"
}
check every_file_is_in_one_debian_package
# A project.
a_project_finds_weft() {
    mkdir "a project"
    cp "$SRC"/examples/embed/* "a project"
    cmake -S "a project" -B "a project/build" -DCMAKE_PREFIX_PATH="$stage$prefix" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Werror" >log 2>&1 &&
        cmake --build "a project/build" >>log 2>&1 || { cat log; exit 1; }
    for program in embed embed_static; do
        "a project/build/$program" nowhere nowhere out.mp4 >run.log 2>&1 && fail "$program: shards that do not exist"
        grep -q '^embed: .*nowhere' run.log || { cat run.log; exit 1; }
    done
    "a project/build/generate" nowhere prompt out.mp4 >run.log 2>&1 && fail "generate: a model that does not exist"
    grep -q '^generate: .*nowhere' run.log || { cat run.log; exit 1; }
    readelf -d "a project/build/embed" | grep -q 'NEEDED.*\[libweft.so.0\]' || fail "embed does not use the shared library"
    ! readelf -d "a project/build/embed_static" | grep -q libweft || fail "embed_static uses the shared library"
}
check a_project_finds_weft
# A project that needs another version, or a component that does not exist, is refused.
another_version_is_refused() {
    mkdir other
    for want in "9.0 REQUIRED" "REQUIRED COMPONENTS gpu"; do
        printf 'cmake_minimum_required(VERSION 3.25)\nproject(other C)\nfind_package(weft %s)\n' "$want" >other/CMakeLists.txt
        ! cmake -S other -B other/build -DCMAKE_PREFIX_PATH="$stage$prefix" >log 2>&1 || fail "find_package(weft $want) succeeds"
    done
}
check another_version_is_refused
uninstall_removes_every_file() {
    make -s -C "$SRC" O="${WEFT_BUILD#"$SRC"/}" DESTDIR="$stage" PREFIX="$prefix" uninstall >/dev/null
    [ -z "$(find "$stage" -type f -o -type l)" ] || { find "$stage" -type f -o -type l; exit 1; }
}
check uninstall_removes_every_file
finish
