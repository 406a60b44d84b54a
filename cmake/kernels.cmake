# Kernels for NVIDIA GPUs: clang compiles src/kernel/cuda/kernels/*.cu to PTX, and cuda_images.c
# embeds it. No file of CUDA is needed. Without clang the list is empty, and backend `cuda` reports
# that at the start. The table of registers and occupancy is embedded as well.
find_program(WEFT_CUDA_CLANG NAMES clang-14 clang-15 clang-16 clang-17 clang-18 clang-19 clang
    DOC "clang that compiles kernels for GPUs")
file(GLOB cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/kernel/cuda/kernels/*.cu)
if(NOT WEFT_CUDA_CLANG)
    set(cuda_kernels)
    message(NOTICE "not found: clang-14. weft is built without kernels for NVIDIA GPUs")
endif()

# Kernels that NVRTC compiles have the results of the embedded ones, bitwise: no contraction in
# their files. tools/gpu_budgets.py has the same list.
set(cuda_exact pointwise modulation norms attention gemm gemm_tf32 flash_64 flash_128 flash_tf32_64
    flash_tf32_128)

set(images "#include \"kernel/cuda/cuda_module.h\"\n\n")
set(items "")
set(ptx_files)
foreach(kernel ${cuda_kernels})
    get_filename_component(name ${kernel} NAME_WE)
    set(ptx ${PROJECT_BINARY_DIR}/ptx/${name}.ptx)
    set(contract)
    if(name IN_LIST cuda_exact)
        set(contract -ffp-contract=off)
    endif()
    add_custom_command(OUTPUT ${ptx} DEPENDS ${kernel} DEPFILE ${ptx}.d VERBATIM
        COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/ptx
        COMMAND ${WEFT_CUDA_CLANG} -x cuda --cuda-device-only -nocudainc -nocudalib -DWEFT_BARE
            --cuda-path=/nonexistent --cuda-gpu-arch=sm_80 -Xclang -target-feature -Xclang +ptx75
            -O3 -S ${contract} -I${PROJECT_SOURCE_DIR}/src -MD -MF ${ptx}.d -MT ${ptx} ${kernel} -o ${ptx})
    list(APPEND ptx_files ${ptx})
    string(APPEND images "__asm__(\".section .rodata\\n.global weft_ptx_${name}\\n\"\n"
        "        \"weft_ptx_${name}:\\n.incbin \\\"${ptx}\\\"\\n.byte 0\\n.previous\");\n"
        "extern const unsigned char weft_ptx_${name}[];\n")
    string(APPEND items "    {\"${name}\", weft_ptx_${name}},\n")
endforeach()
set(budgets ${PROJECT_SOURCE_DIR}/tools/gpu_budgets.txt)
string(APPEND images "__asm__(\".section .rodata\\n.global weft_gpu_budgets\\n\"\n"
    "        \"weft_gpu_budgets:\\n.incbin \\\"${budgets}\\\"\\n.byte 0\\n.previous\");\n")
# Files that NVRTC compiles: headers of generated kernels, and the exact kernels.
set(header_items "")
set(header_files)
set(headers kernel_args.h list_args.h simt.h simt_math.h simt_tensor.h pointwise_ops.h
    special_source.h gemm_operand.h gemm_loop.h attention_tiles.h flash.h flash_tiles.h
    flash_parts.h)
foreach(file ${headers} ${cuda_exact})
    string(MAKE_C_IDENTIFIER ${file} name)
    if(NOT file MATCHES "\\.h$")
        string(APPEND file .cu)
    endif()
    set(header kernel/cuda/kernels/${file})
    list(APPEND header_files ${PROJECT_SOURCE_DIR}/src/${header})
    string(APPEND images "__asm__(\".section .rodata\\n.global weft_header_${name}\\n\"\n"
        "        \"weft_header_${name}:\\n.incbin \\\"${PROJECT_SOURCE_DIR}/src/${header}\\\"\\n"
        ".byte 0\\n.previous\");\nextern const unsigned char weft_header_${name}[];\n")
    string(APPEND header_items "    {\"${header}\", weft_header_${name}},\n")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/cuda_images.c @ONLY
    CONTENT "${images}\nconst weft_cuda_image weft_cuda_images[] = {\n${items}    {0},\n};\nconst \
weft_cuda_image weft_cuda_headers[] = {\n${header_items}    {0},\n};\n")
set_source_files_properties(${PROJECT_BINARY_DIR}/cuda_images.c PROPERTIES
    OBJECT_DEPENDS "${ptx_files};${budgets};${header_files}")
