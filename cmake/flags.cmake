# Flags of every target: language, warnings, sanitizers, where the libraries are at run time.

set(WEFT_SANITIZE "" CACHE STRING "address (with undefined behaviour), thread, or empty")
set_property(CACHE WEFT_SANITIZE PROPERTY STRINGS "" address thread)
option(WEFT_WERROR "Treat warnings as errors" ${PROJECT_IS_TOP_LEVEL})

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})

add_compile_definitions(_GNU_SOURCE WEFT_VERSION="${PROJECT_VERSION}")
include_directories(src include)
if(NOT WEFT_FUZZ) # clang has no OpenMP of its own on Debian, and other warnings
    add_compile_options(-fopenmp -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes
        -Wpointer-arith -Wvla -Wno-missing-field-initializers)
    add_link_options(-fopenmp)
    if(WEFT_WERROR AND NOT WEFT_SANITIZE) # instrumented code has warnings that are false
        add_compile_options(-Werror)
    endif()
endif()
# Assertions name src/x.c, wherever the source tree is.
add_compile_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)

if(WEFT_SANITIZE STREQUAL address)
    set(sanitizer -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(WEFT_SANITIZE STREQUAL thread)
    set(sanitizer -fsanitize=thread)
elseif(WEFT_SANITIZE)
    message(FATAL_ERROR "WEFT_SANITIZE is '${WEFT_SANITIZE}'; use address or thread")
endif()
if(WEFT_SANITIZE)
    add_compile_options(${sanitizer} -fno-omit-frame-pointer)
    add_link_options(${sanitizer})
endif()

# Kernels are optimized harder (clones for wider vectors are chosen inside the files), and their
# multiply-adds become FMA where the processor has it, which -std=c17 alone forbids. The options of
# a source follow CMAKE_C_FLAGS on the command line and therefore override them.
set(WEFT_KERNEL_OPTIONS -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast)
if(WEFT_SANITIZE) # -O3 of instrumented code takes minutes to compile and is hardly faster
    list(REMOVE_ITEM WEFT_KERNEL_OPTIONS -O3)
endif()
set(WEFT_O3_SOURCES src/video/pixels.c src/curate/shots/shots_match.c src/model/adapter.c
    src/curate/duplicates/embedding_clusters.c
    src/format/tensors/quant_blocks.c)
function(set_source_flags) # SOURCES of weft, relative to the source tree
    set(kernels ${ARGN})
    list(FILTER kernels INCLUDE REGEX "^src/kernel/cpu/")
    set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS "${WEFT_KERNEL_OPTIONS}")
    foreach(source ${WEFT_O3_SOURCES})
        if(NOT source IN_LIST ARGN)
            message(FATAL_ERROR "WEFT_O3_SOURCES of cmake/flags.cmake: ${source} does not exist")
        endif()
    endforeach()
    set_source_files_properties(${WEFT_O3_SOURCES} PROPERTIES COMPILE_OPTIONS -O3)
endfunction()
