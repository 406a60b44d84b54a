# `make fuzz`: the parsers of files as programs of libFuzzer, with address and undefined-behaviour
# sanitizers. fuzz_links links the same sources without clang, for tests/fuzz/links_test.sh.
file(GLOB fuzz_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} src/base/*.c
    src/format/*/*.c src/text/*.c src/video/*.c src/storage/*.c)
list(APPEND fuzz_sources src/data/id_table.c src/data/index.c src/data/index_restore.c
    src/data/data_source.c src/data/dataset.c src/data/loose_videos.c src/data/storage_video.c
    src/data/caption_csv.c src/data/caption_vtt.c)

if(NOT WEFT_FUZZ)
    set(objects ${fuzz_sources})
    list(TRANSFORM objects PREPEND "/")
    list(TRANSFORM objects APPEND "\\.o$")
    list(JOIN objects "|" objects)
    string(REPLACE ".c" "\\.c" objects "${objects}")
    add_library(fuzz_links MODULE EXCLUDE_FROM_ALL tests/fuzz/targets.c
        "$<FILTER:$<TARGET_OBJECTS:weft_objects>,INCLUDE,${objects}>")
    target_link_libraries(fuzz_links PRIVATE PkgConfig::WEFT_PKG m)
    target_link_options(fuzz_links PRIVATE LINKER:-z,defs)
    return()
endif()

set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=undefined)
add_library(weft_fuzz OBJECT ${fuzz_sources} tests/fuzz/targets.c)
target_compile_options(weft_fuzz PRIVATE ${sanitizers} -fsanitize=fuzzer-no-link)
target_link_libraries(weft_fuzz PRIVATE PkgConfig::WEFT_PKG)
foreach(target ${WEFT_FUZZ})
    add_executable(fuzz_${target} tests/fuzz/libfuzzer.c)
    target_compile_definitions(fuzz_${target} PRIVATE FUZZ_TARGET=fuzz_${target})
    target_compile_options(fuzz_${target} PRIVATE ${sanitizers} -fsanitize=fuzzer)
    target_link_options(fuzz_${target} PRIVATE ${sanitizers} -fsanitize=fuzzer)
    target_link_libraries(fuzz_${target} PRIVATE weft_fuzz PkgConfig::WEFT_PKG m)
endforeach()
