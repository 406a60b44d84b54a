# The files of tests/<room> are one Criterion program, test/<room> with '-' for '/'. Each program
# and each script below tests is one test of ctest. tests/run.sh runs it and sets its environment.
enable_testing()

set(WEFT_PLAIN_CRITERION OFF)
if(WEFT_SANITIZE STREQUAL thread OR CMAKE_CROSSCOMPILING)
    set(WEFT_PLAIN_CRITERION ON)
endif()

add_library(weft_criterion INTERFACE)
if(WEFT_PLAIN_CRITERION)
    add_library(weft_plain_criterion OBJECT tests/plain/criterion/runner.c)
    target_include_directories(weft_plain_criterion BEFORE PUBLIC tests/plain)
    target_include_directories(weft_criterion INTERFACE tests/plain)
    target_sources(weft_criterion INTERFACE $<TARGET_OBJECTS:weft_plain_criterion>)
elseif(WEFT_CRITERION_INCLUDE_DIR AND WEFT_CRITERION_LIBRARY)
    target_include_directories(weft_criterion SYSTEM INTERFACE ${WEFT_CRITERION_INCLUDE_DIR})
    target_link_libraries(weft_criterion INTERFACE ${WEFT_CRITERION_LIBRARY})
else()
    message(FATAL_ERROR
        "the tests need Criterion. `make test-deps` installs every package that tests need")
endif()

# ---- Criterion programs -------------------------------------------------------------------------
file(GLOB test_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests tests/*/*.c
    tests/*/*/*.c)
set(rooms ${test_files})
list(FILTER rooms INCLUDE REGEX "_test\\.c$")
list(TRANSFORM rooms REPLACE "/[^/]*$" "")
list(REMOVE_DUPLICATES rooms)
if(NOT WEFT_SERVE)
    list(REMOVE_ITEM rooms serve)
endif()

set(test_programs)
foreach(room ${rooms})
    set(sources ${test_files})
    list(FILTER sources INCLUDE REGEX "^${room}/[^/]*$")
    list(TRANSFORM sources PREPEND tests/)
    string(REPLACE / - program ${room})
    add_executable(test-${program} ${sources})
    set_target_properties(test-${program} PROPERTIES OUTPUT_NAME ${program}
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test)
    target_link_libraries(test-${program} PRIVATE weft_static weft::dependencies weft_criterion)
    if(CMAKE_CROSSCOMPILING) # the vectorizer of GCC 12 for arm64 fails on a loop of a test
        target_compile_options(test-${program} PRIVATE -fno-tree-vectorize)
    endif()
    list(APPEND test_programs test-${program})
endforeach()
if(WEFT_SERVE)
    target_link_libraries(test-serve PRIVATE weft_serve)
    target_sources(test-serve PRIVATE tests/fuzz/fuzz_corpus.c)
    target_include_directories(test-serve PRIVATE tests/fuzz)
endif()

# Kernels of CUDA as C, whose threads are fibres. The cases of `cpu` run on them, too.
file(GLOB emu_kernels CONFIGURE_DEPENDS src/kernel/cuda/kernels/*.cu)
add_library(weft_emu OBJECT ${emu_kernels} tests/emu/fibres.c)
target_include_directories(weft_emu PUBLIC tests/emu tests)
set_source_files_properties(${emu_kernels} PROPERTIES LANGUAGE C
    COMPILE_OPTIONS "-xc;-DWEFT_EMU;-Wno-unknown-pragmas")
foreach(kernel ${cuda_exact})
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/kernel/cuda/kernels/${kernel}.cu APPEND PROPERTY
        COMPILE_OPTIONS -ffp-contract=off)
endforeach()
set_source_files_properties(tests/kernel/cuda/probes.c PROPERTIES COMPILE_OPTIONS
    -Wno-unknown-pragmas)
target_sources(test-kernel-cuda PRIVATE tests/kernel/harness.c tests/kernel/blocks_test.c
    tests/kernel/cases_test.c tests/kernel/narrow_test.c)
target_link_libraries(test-kernel-cuda PRIVATE weft_emu)

# Planners are compared with CBC, the simulator with SimGrid. The product links neither.
foreach(program test-plan-pipeline test-plan-cascade)
    if(NOT CMAKE_CROSSCOMPILING)
        if(NOT WEFT_CBC_LIBRARY OR NOT WEFT_CBC_SOLVER_LIBRARY)
            message(FATAL_ERROR
                "the tests need CBC. `make test-deps` installs every package that tests need")
        endif()
        target_link_libraries(${program} PRIVATE ${WEFT_CBC_SOLVER_LIBRARY} ${WEFT_CBC_LIBRARY})
    endif()
endforeach()
if(WEFT_SIMGRID_INCLUDE_DIR AND WEFT_SIMGRID_LIBRARY)
    target_link_libraries(test-plan-simulate PRIVATE ${WEFT_SIMGRID_LIBRARY})
endif()

# The emulated driver: emu/libcuda.so.1 runs the kernels that gcc compiled.
file(GLOB emu_driver CONFIGURE_DEPENDS tests/emu/driver/*.c)
add_library(weft_emu_driver SHARED ${emu_driver} $<TARGET_OBJECTS:weft_emu>)
set_target_properties(weft_emu_driver PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 NO_SONAME ON
    C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/emu)
set_source_files_properties(${emu_driver} PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes)
target_link_options(weft_emu_driver PRIVATE LINKER:-Bsymbolic-functions)
target_link_libraries(weft_emu_driver PRIVATE pthread m)
# The emulated NCCL adds its work to streams of that driver.
add_library(weft_emu_nccl SHARED tests/emu/nccl/emu_nccl.c)
set_target_properties(weft_emu_nccl PROPERTIES OUTPUT_NAME nccl SUFFIX .so.2 NO_SONAME ON
    C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/emu)
set_source_files_properties(tests/emu/nccl/emu_nccl.c PROPERTIES COMPILE_OPTIONS
    -Wno-missing-prototypes)
target_link_libraries(weft_emu_nccl PRIVATE pthread dl rt)
# So does the emulated cuBLASLt.
file(GLOB emu_cublaslt CONFIGURE_DEPENDS tests/emu/cublaslt/*.c tests/emu/library/*.c)
add_library(weft_emu_cublaslt SHARED ${emu_cublaslt})
set_target_properties(weft_emu_cublaslt PROPERTIES OUTPUT_NAME cublasLt SUFFIX .so.12 NO_SONAME ON
    C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/emu)
set_source_files_properties(${emu_cublaslt} PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes)
target_include_directories(weft_emu_cublaslt PRIVATE tests/emu/cublaslt tests/emu/library)
target_link_libraries(weft_emu_cublaslt PRIVATE dl m)
# So does the emulated cuDNN.
file(GLOB emu_cudnn CONFIGURE_DEPENDS tests/emu/cudnn/*.c tests/emu/library/*.c)
add_library(weft_emu_cudnn SHARED ${emu_cudnn})
set_target_properties(weft_emu_cudnn PROPERTIES OUTPUT_NAME cudnn SUFFIX .so.9 NO_SONAME ON
    C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/emu)
set_source_files_properties(${emu_cudnn} PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes)
target_include_directories(weft_emu_cudnn PRIVATE tests/emu/cudnn tests/emu/library)
target_link_libraries(weft_emu_cudnn PRIVATE dl m)
# The emulated NVRTC: the host's compiler.
add_library(weft_emu_nvrtc SHARED tests/emu/nvrtc/emu_nvrtc.c)
set_target_properties(weft_emu_nvrtc PROPERTIES OUTPUT_NAME nvrtc SUFFIX .so.12 NO_SONAME ON
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/emu)
set_source_files_properties(tests/emu/nvrtc/emu_nvrtc.c PROPERTIES COMPILE_OPTIONS
    -Wno-missing-prototypes)
set_source_files_properties(tests/emu/nvrtc/emu_nvrtc.c tests/emu/driver/emu_compile.c PROPERTIES
    COMPILE_DEFINITIONS
    "EMU_CC=\"${CMAKE_C_COMPILER}\";EMU_INCLUDE=\"${PROJECT_SOURCE_DIR}/tests/emu\"")
# A cuDNN that checks calls and computes nothing.
add_library(weft_cudnn_bindings SHARED tests/emu/cudnn_bindings/cudnn_bindings.c)
set_target_properties(weft_cudnn_bindings PROPERTIES OUTPUT_NAME cudnn SUFFIX .so.9 NO_SONAME ON
    C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/emu/bindings)
set_source_files_properties(tests/emu/cudnn_bindings/cudnn_bindings.c PROPERTIES COMPILE_OPTIONS
    -Wno-missing-prototypes)
target_link_libraries(weft_cudnn_bindings PRIVATE dl)
# A driver without GPUs, with which NVIDIA's cuDNN finds plans.
add_library(weft_absent_driver SHARED tests/emu/absent/absent_cuda.c)
set_target_properties(weft_absent_driver PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1
    C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/emu/absent)
set_source_files_properties(tests/emu/absent/absent_cuda.c PROPERTIES COMPILE_OPTIONS
    -Wno-missing-prototypes)
target_compile_definitions(test-kernel-cuda_driver PRIVATE
    WEFT_ABSENT_DRIVER="${PROJECT_BINARY_DIR}/emu/absent/libcuda.so.1"
    WEFT_CUDNN_BINDINGS="${PROJECT_BINARY_DIR}/emu/bindings/libcudnn.so.9")
add_dependencies(test-kernel-cuda_driver weft_absent_driver weft_cudnn_bindings)
foreach(program test-kernel-cuda_driver test-train-step test-doctor test-latent)
    target_compile_definitions(${program} PRIVATE
        WEFT_EMU_DRIVER="${PROJECT_BINARY_DIR}/emu/libcuda.so.1"
        WEFT_EMU_NCCL="${PROJECT_BINARY_DIR}/emu/libnccl.so.2"
        WEFT_EMU_CUBLASLT="${PROJECT_BINARY_DIR}/emu/libcublasLt.so.12"
        WEFT_EMU_CUDNN="${PROJECT_BINARY_DIR}/emu/libcudnn.so.9"
        WEFT_EMU_NVRTC="${PROJECT_BINARY_DIR}/emu/libnvrtc.so.12")
    add_dependencies(${program} weft_emu_driver weft_emu_nccl weft_emu_cublaslt weft_emu_cudnn
        weft_emu_nvrtc)
endforeach()
target_compile_definitions(test-kernel-cuda_driver PRIVATE
    WEFT_CUDA_KERNELS=$<BOOL:${WEFT_CUDA_CLANG}>)

# A small program for the tests that need mpirun (tests/comm/*.sh).
add_executable(ranks tests/comm/tool/ranks.c)
set_target_properties(ranks PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test-tools)
target_link_libraries(ranks PRIVATE weft_static weft::dependencies)

# Operations of a storage from the command line, for scripts (tests/storage/*.sh).
add_executable(store tests/storage/tool/store.c)
set_target_properties(store PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/test-tools)
target_link_libraries(store PRIVATE weft_static weft::dependencies)

add_custom_target(test-bin ALL DEPENDS weft ranks store ${test_programs})

# ---- ctest --------------------------------------------------------------------------------------
# Labels: unit (Criterion programs), script, ranks (scripts that run mpirun), long (sweeps that take
# minutes; they run with `ctest -C Long`).
file(RELATIVE_PATH build ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
set(run ${PROJECT_SOURCE_DIR}/tests/run.sh)
function(add_run name labels) # ARGUMENTS of tests/run.sh
    cmake_parse_arguments(arg "" CONFIGURATIONS "" ${ARGN})
    add_test(NAME ${name} COMMAND ${run} ${arg_UNPARSED_ARGUMENTS}
        CONFIGURATIONS ${arg_CONFIGURATIONS})
    set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT 7200 PROCESSORS 2
        SKIP_REGULAR_EXPRESSION "0 passed, 0 failed, [1-9][0-9]* skipped")
endfunction()

foreach(room ${rooms})
    add_run(${room} unit --programs ${build} ${room})
endforeach()

add_run(train/pipeline/long long --programs ${build} train/pipeline CONFIGURATIONS Long)
set_tests_properties(train/pipeline/long PROPERTIES ENVIRONMENT WEFT_TEST_LONG=1)

# tests/run.sh runs scripts with the permission to execute.
execute_process(COMMAND find . -mindepth 2 -maxdepth 3 -name "*.sh" -perm -u=x
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/tests OUTPUT_VARIABLE executable)
file(GLOB scripts CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/tests tests/*/*.sh
    tests/*/*/*.sh)
foreach(script ${scripts})
    if(NOT "${executable}" MATCHES "/${script}\n")
        continue()
    endif()
    file(STRINGS tests/${script} mpi REGEX "mpirun|MPIRUN|^ *ranks " LIMIT_COUNT 1)
    if(mpi)
        add_run(${script} "script;ranks" ${build} ${script})
    else()
        add_run(${script} script ${build} ${script})
    endif()
endforeach()
