# Finds the libraries that weft links, and defines the imported target weft::dependencies, or sets
# WEFT_MISSING to the names of the libraries that were not found. The build includes this file, and
# so does the installed weftConfig.cmake, for programs that link libweft.a.
set(WEFT_PKG_MODULES libavformat libavcodec libswscale libswresample libavutil jansson
    yaml-0.1 hwloc libxxhash libpng icu-uc)
set(WEFT_MISSING)

find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
    pkg_check_modules(WEFT_PKG QUIET IMPORTED_TARGET ${WEFT_PKG_MODULES})
    if(NOT WEFT_PKG_FOUND)
        foreach(module ${WEFT_PKG_MODULES})
            execute_process(COMMAND ${PKG_CONFIG_EXECUTABLE} --exists ${module}
                RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
            if(status)
                list(APPEND WEFT_MISSING ${module})
            endif()
        endforeach()
    endif()
else()
    list(APPEND WEFT_MISSING pkg-config ${WEFT_PKG_MODULES})
endif()

# Debian has several builds of OpenBLAS; weft needs the one on OpenMP. Its folder is not searched by
# default, and the system's alternatives may name another build. Hence this folder first, and the
# general ones only where they have a cblas.h of their own.
set(blas_folder ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp)
find_path(WEFT_BLAS_INCLUDE_DIR cblas.h HINTS /usr/include/${blas_folder}
    PATHS /usr/include /usr/local/include /usr/include/openblas NO_CMAKE_SYSTEM_PATH)
find_library(WEFT_BLAS_LIBRARY openblas HINTS /usr/lib/${blas_folder})
unset(blas_folder)
if(NOT WEFT_BLAS_INCLUDE_DIR OR NOT WEFT_BLAS_LIBRARY)
    list(APPEND WEFT_MISSING openblas-openmp)
endif()

# oneDNN's own package file needs OpenCL, which weft does not.
find_path(WEFT_DNNL_INCLUDE_DIR dnnl.h)
find_library(WEFT_DNNL_LIBRARY dnnl)
if(NOT WEFT_DNNL_INCLUDE_DIR OR NOT WEFT_DNNL_LIBRARY)
    list(APPEND WEFT_MISSING dnnl)
endif()

find_program(MPI_C_COMPILER NAMES mpicc.openmpi mpicc)
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS C)
if(NOT MPI_C_FOUND)
    list(APPEND WEFT_MISSING openmpi)
endif()

if(NOT WEFT_MISSING AND NOT TARGET weft::dependencies)
    add_library(weft::dependencies INTERFACE IMPORTED)
    target_include_directories(weft::dependencies INTERFACE ${WEFT_BLAS_INCLUDE_DIR}
        ${WEFT_DNNL_INCLUDE_DIR})
    target_link_libraries(weft::dependencies INTERFACE ${WEFT_BLAS_LIBRARY} ${WEFT_DNNL_LIBRARY}
        PkgConfig::WEFT_PKG MPI::MPI_C -fopenmp dl pthread m)
endif()
