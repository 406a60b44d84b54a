# The programs of bench/. The target test-bin has them, too, so that a changed interface shows which
# benchmark it breaks; bench/plan/pipeline is built by `make bench-pipeline` alone.
function(add_benchmark name) # SOURCES; NAME may contain a folder
    string(REPLACE / - target bench-${name})
    get_filename_component(folder bench/${name} DIRECTORY)
    get_filename_component(program ${name} NAME)
    add_executable(${target} ${ARGN})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${program} EXCLUDE_FROM_ALL ON
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/${folder})
    target_link_libraries(${target} PRIVATE weft_static weft::dependencies)
endfunction()

foreach(name kernels loader models families near ranks fusion storage gpu_host)
    add_benchmark(${name} bench/${name}.c)
endforeach()
add_benchmark(cascades bench/cascades.c bench/cascades_ranks.c bench/cascades_plans.c
    bench/cascades_errors.c bench/ahead_plans.c bench/simulated_ranks.c)
add_benchmark(robust bench/robust.c bench/robust_ranks.c bench/ahead_plans.c
    bench/simulated_ranks.c)
add_benchmark(plan/pipeline bench/plan/pipeline.c bench/plan/methods.c bench/plan/breakdown.c)

if(WEFT_TESTS)
    foreach(name kernels loader models families near ranks fusion robust cascades gpu_host)
        add_dependencies(test-bin bench-${name})
    endforeach()
endif()
