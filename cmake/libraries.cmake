# The libraries of weft and of its tests, and what the build says when one is missing.

if(CMAKE_CROSSCOMPILING)
    include(cross_dependencies)
else()
    include(dependencies)
endif()
if(WEFT_MISSING)
    list(JOIN WEFT_MISSING " " missing)
    message(NOTICE "not found: ${missing}. On Debian 12, `make deps` installs every package that "
        "weft needs (tools/install-deps.sh lists them)")
    message(FATAL_ERROR "libraries are missing")
endif()

# Programs and libweft.so find the OpenBLAS of the build at run time, whatever the system's
# alternatives name. Packages that rely on the alternatives set WEFT_RPATH=OFF.
option(WEFT_RPATH "Record the folder of OpenBLAS in programs and libraries" ON)
get_filename_component(blas_folder "${WEFT_BLAS_LIBRARY}" DIRECTORY)
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
if(WEFT_RPATH AND blas_folder MATCHES "/openblas-openmp$")
    set(CMAKE_INSTALL_RPATH ${blas_folder})
endif()

# `weft serve` is part of the program if its libraries are installed. libweft never needs them.
# Without them, and for another processor, the verb prints the packages to install.
set(WEFT_SERVE OFF)
if(PKG_CONFIG_FOUND AND NOT CMAKE_CROSSCOMPILING)
    pkg_check_modules(WEFT_SERVE_PKG QUIET IMPORTED_TARGET libmicrohttpd sqlite3)
    if(WEFT_SERVE_PKG_FOUND)
        set(WEFT_SERVE ON)
    endif()
endif()

# Tests need Criterion, and the tests of two planners need CBC. Without SimGrid, the test that
# compares the simulator with SimGrid is skipped. Under ThreadSanitizer and for another processor,
# tests/plain replaces Criterion.
find_path(WEFT_CRITERION_INCLUDE_DIR criterion/criterion.h)
find_library(WEFT_CRITERION_LIBRARY criterion)
find_library(WEFT_CBC_LIBRARY Cbc)
find_library(WEFT_CBC_SOLVER_LIBRARY CbcSolver)
find_path(WEFT_SIMGRID_INCLUDE_DIR simgrid/engine.h)
find_library(WEFT_SIMGRID_LIBRARY simgrid)
set(WEFT_TESTS_DEFAULT OFF)
if(PROJECT_IS_TOP_LEVEL AND WEFT_CRITERION_INCLUDE_DIR AND WEFT_CRITERION_LIBRARY
        AND WEFT_CBC_LIBRARY AND WEFT_CBC_SOLVER_LIBRARY)
    set(WEFT_TESTS_DEFAULT ON)
endif()

# libcurl is loaded at run time, for buckets and HTTP servers; the build needs its header only.
find_path(WEFT_CURL_INCLUDE_DIR curl/curl.h)
if(WEFT_CURL_INCLUDE_DIR AND NOT CMAKE_CROSSCOMPILING)
    set_source_files_properties(src/storage/curl_library.c src/storage/http.c
        PROPERTIES COMPILE_DEFINITIONS WEFT_HAS_CURL)
endif()
