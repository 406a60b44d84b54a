# weft::dependencies for another processor. The libraries' headers are this machine's, because they
# do not differ. WEFT_CROSS_ROOT is a folder with the other processor's libraries, for tests.
set(WEFT_CROSS_ROOT "" CACHE PATH "Root with the libraries of the other processor")
find_package(PkgConfig REQUIRED)
pkg_check_modules(WEFT_PKG REQUIRED libavformat libavcodec libswscale libswresample libavutil jansson
    yaml-0.1 hwloc libxxhash libpng icu-uc)
find_program(mpicc NAMES mpicc.openmpi mpicc REQUIRED)
execute_process(COMMAND ${mpicc} --showme:incdirs OUTPUT_VARIABLE mpi_folders
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(mpi_folders)
execute_process(COMMAND cc -print-multiarch OUTPUT_VARIABLE host
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
file(GLOB blas_folder /usr/include/*-linux-gnu/openblas-openmp)
list(REMOVE_ITEM WEFT_PKG_INCLUDE_DIRS /usr/include /usr/include/${host})

add_library(weft::dependencies INTERFACE IMPORTED)
target_include_directories(weft::dependencies INTERFACE ${blas_folder} ${WEFT_PKG_INCLUDE_DIRS}
    ${mpi_folders})
target_compile_options(weft::dependencies INTERFACE "SHELL:-idirafter /usr/include"
    "SHELL:-idirafter /usr/include/${host}")
set(folder ${WEFT_CROSS_ROOT}/usr/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
target_link_options(weft::dependencies INTERFACE --sysroot=${WEFT_CROSS_ROOT} -L${folder}
    -L${folder}/openblas-openmp
    -Wl,-rpath,/usr/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu/openblas-openmp)
target_link_libraries(weft::dependencies INTERFACE openblas dnnl jansson yaml xxhash pthread m)
